# Copyright 2026 The JAX Authors. All Rights Reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
# ==============================================================================
"""Tests of the proof itself: it passes, and it fails where it should."""

import contextlib
import io
import pathlib
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest
from synthetic import make_edit, make_patch

from patches import check, engine, mails, trees
from patches import series as series_package

# Not the release of the wheel, so that no real JAX is needed.
_BASE = "0.11.2"
_GOOD = make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"))


class CheckTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    tree = synthetic.make_tree(pathlib.Path(folder), version=_BASE)
    self.replace(trees, "pristine", lambda base: tree.root)
    self.replace(check, "_check_order", lambda: "1 patch")

  def replace(self, where, name, value):
    self.enter_context(mock.patch.object(where, name, value))

  def check(self, *series):
    self.replace(engine, "load_series", lambda: series)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
      code = check.check([_BASE], jobs=1)
    return code, output.getvalue()

  def test_good_series(self):
    code, output = self.check(_GOOD)
    self.assertEqual(code, 0, output)
    self.assertEndsWith(output, "\ncheck: OK\n")

  def test_empty_series(self):
    self.assertEqual(self.check()[0], 0)

  def test_lost_anchor(self):
    code, output = self.check(
        make_patch(make_edit(anchor="LIMIT = 5", code="LIMIT = 6"))
    )
    self.assertEqual(code, 1)
    self.assertIn("found 0", output)
    self.assertEndsWith(output, "\ncheck: 1 FAILED\n")

  def test_mails_that_do_not_make_the_same_tree(self):
    self.replace(mails.Repo, "files", lambda self: {"jax/tiles.py": b""})
    code, output = self.check(_GOOD)
    self.assertEqual(code, 1)
    self.assertIn("these differ: jax/tiles.py", output)

  def test_ruff_finding(self):
    first = make_patch(
        make_edit(scope="rows", anchor="total = shape[0] * packing",
                  action="before", code="unused = 1")
    )
    second = make_patch(
        make_edit(scope="rows", anchor="unused = 1", action="delete"),
        subject="Second",
    )
    code, output = self.check(first, second)
    self.assertEqual(code, 1)
    self.assertIn("ruff after change_the_tiles", output)
    self.assertIn("jax/tiles.py: F841: Local variable `unused`", output)

  def test_pyrefly_finding(self):
    edit = make_edit(
        anchor="LIMIT = 4", action="after", code="WIDE: int = 'no number'"
    )
    code, output = self.check(make_patch(edit))
    self.assertEqual(code, 1)
    self.assertIn("finding of pyrefly", output)
    self.assertIn("jax/tiles.py: bad-assignment", output)

  def test_import_of_what_a_later_patch_brings(self):
    edit = make_edit(
        anchor="LIMIT = 4", action="after",
        code="def load():\n  from jax.experimental.mosaic.gpu import sparsity",
    )
    code, output = self.check(
        make_patch(edit),
        make_patch(
            subject="Second",
            new_files=("jax/experimental/mosaic/gpu/sparsity.py",),
        ),
    )
    self.assertEqual(code, 1)
    self.assertIn(
        "change_the_tiles: jax/tiles.py imports"
        " jax.experimental.mosaic.gpu.sparsity, which comes with second", output
    )

  def test_findings_of_the_release_do_not_count(self):
    root = trees.pristine(_BASE)
    path = root / synthetic.FILE
    path.write_text(path.read_text() + "\n\nNUMBER: int = ''\nx = NAME\n")
    code, output = self.check(_GOOD)
    self.assertEqual(code, 0, output)
    # Once more is another finding, and so is a line that moved no finding.
    edit = make_edit(anchor="LIMIT = 4", code="LIMIT = NAME")
    code, output = self.check(make_patch(edit))
    self.assertIn("got 1:\n  jax/tiles.py: F821", output)

  def test_long_lines_are_noted(self):
    edit = make_edit(anchor="LIMIT = 4", code="LIMIT = " + "9" * 80)
    code, output = self.check(make_patch(edit))
    self.assertEqual(code, 0)
    self.assertIn("note: jax/tiles.py: 88 columns: LIMIT", output)


class OrderTest(absltest.TestCase):

  def test_forgotten_module(self):
    with mock.patch.object(series_package, "ORDER", ()):
      row = check._timed("", "series", check._check_order)
    if list(pathlib.Path(series_package.__file__).parent.glob("[a-z]*.py")):
      self.assertIn("in ORDER of its __init__.py, missing", row.failure)


if __name__ == "__main__":
  absltest.main()
