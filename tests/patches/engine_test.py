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
"""Tests of applying a series: all of it or nothing, and clear refusals."""

import os
import pathlib
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest
from synthetic import FILE, make_edit, make_patch

from patches import engine, state, trees
from patches.model import AnchorError, PatchError


class EngineTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.tree = synthetic.make_tree(self.folder / "tree")
    self.repo = self.folder / "repo"
    (self.repo / "jax/new").mkdir(parents=True)
    (self.repo / "jax/new/a.py").write_text("A = 1\n")
    (self.repo / "tests").mkdir()
    (self.repo / "tests/a_test.py").write_text("import jax\n")
    # No cached JAX of the same version may be looked at.
    self.enter_context(
        mock.patch.dict(
            os.environ, {trees.CACHE_VARIABLE: str(self.folder / "cache")}
        )
    )

  def apply(self, *series, tree=None):
    """Does what `python -m patches apply` does."""
    tree = tree or self.tree
    state.require_pristine(tree, series, self.repo)
    steps = engine.compute(tree, series, repo=self.repo)
    engine.write(tree.root, engine.merged(steps))
    return steps

  def assert_refused(self, message, *series, error=PatchError, tree=None):
    before = synthetic.snapshot(self.folder)
    with self.assertRaisesRegex(error, message) as caught:
      self.apply(*series, tree=tree)
    self.assertEqual(synthetic.snapshot(self.folder), before)
    return str(caught.exception)

  def test_patches_build_on_one_another(self):
    first = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
        make_edit(anchor="LIMIT = 5", action="after", code="MORE = 6"),
        new_files=("jax/new/",), tests=("tests/a_test.py",),
    )
    second = make_patch(
        make_edit(anchor="MORE = 6", code="MORE = 7"), subject="Second",
        tests=("tests/a_test.py",),
    )
    steps = self.apply(first, second)
    text = (self.tree.root / FILE).read_text()
    self.assertIn("\nLIMIT = 5\nMORE = 7\n", text)
    self.assertIn(b"MORE = 6", steps[0].files[FILE])
    self.assertEqual(
        (self.tree.root / "jax/new/a.py").read_text(), "A = 1\n"
    )
    self.assertEqual(
        sorted(steps[0].files), ["jax/new/a.py", FILE, "tests/a_test.py"]
    )
    self.assertEqual(sorted(steps[1].files), [FILE])

  def test_tests_stay_out_of_the_wheel(self):
    (self.repo / "tests/a_util.py").touch()
    (self.repo / "docs").mkdir()
    (self.repo / "docs/a.md").touch()
    patch = make_patch(
        new_files=("jax/new/", "tests/a_util.py", "docs/a.md"),
        tests=("tests/a_test.py",),
    )
    with_tests = engine.compute(self.tree, [patch], repo=self.repo)
    self.assertContainsSubset(
        ["docs/a.md", "tests/a_test.py", "tests/a_util.py"],
        with_tests[0].files,
    )
    files = engine.compute(self.tree, [patch], tests=False, repo=self.repo)
    self.assertEqual(list(files[0].files), ["jax/new/a.py"])

  def test_missing_anchor_names_everything(self):
    message = self.assert_refused(
        "found 0",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5")),
        make_patch(
            make_edit(scope="Ref.slice", anchor="total = 9", code="x"),
            subject="[Tiles] Second", new_files=("jax/new/a.py",),
        ),
        error=AnchorError,
    )
    for part in ("Patch second", "JAX 0.12.0.1", FILE, "Ref.slice",
                 "total = 9", "patches/series/second.py", "Nothing was wri"):
      self.assertIn(part, message)

  def test_anchor_that_matches_several_times(self):
    self.assert_refused(
        r"found 3 \(lines 41, 43, 45\)",
        make_patch(make_edit(scope="Ref.slice", anchor="total = $X", code="x")),
    )

  def test_result_that_does_not_parse(self):
    self.assert_refused(
        "change_the_tiles on JAX 0.12.0.1: jax/tiles.py does not parse after",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = (")),
    )

  def test_edit_that_changes_nothing(self):
    self.assert_refused(
        "to change something",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 4")),
    )

  def test_missing_file(self):
    self.assert_refused(
        "expected the file to exist",
        make_patch(make_edit(file="jax/no.py", anchor="x", code="y")),
    )

  def test_new_file_that_exists(self):
    patch = make_patch(new_files=("jax/new/a.py",))
    tree = synthetic.make_tree(
        self.folder / "other", {"jax/new/a.py": "B = 1\n"}
    )
    self.assert_refused("jax/new/a.py exists", patch, tree=tree)
    with self.assertRaisesRegex(PatchError, "has such a file already"):
      engine.compute(tree, [patch], repo=self.repo)

  def test_new_file_that_is_missing_here(self):
    self.assert_refused(
        "has no such file", make_patch(new_files=("jax/new/b.py",))
    )

  def test_new_file_that_two_patches_bring(self):
    patches = [make_patch(new_files=("jax/new/a.py",)),
               make_patch(new_files=("jax/new/a.py",), subject="Second")]
    with self.assertRaisesRegex(PatchError, "does so already"):
      engine.check_new_files(patches)

  def test_new_file_is_not_edited(self):
    patch = make_patch(
        make_edit(file="jax/new/a.py", anchor="A = 1", code="A = 2"),
        new_files=("jax/new/a.py",),
    )
    with self.assertRaisesRegex(PatchError, "the series itself brings"):
      engine.check_new_files([patch])

  def test_unknown_version(self):
    with self.assertRaisesRegex(PatchError, "0.11.2, got 0.9.9 in"):
      synthetic.make_tree(self.folder / "old", version="0.9.9")
    tree = engine.Tree.open(self.folder / "old", "0.11.2")
    self.assertEqual(tree.version, "0.11.2")

  def test_no_tree(self):
    with self.assertRaisesRegex(PatchError, "has no jax/version.py"):
      engine.Tree.open(self.folder)

  def test_edits_of_one_version(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5", versions=("0.11.2",)),
        make_edit(anchor="import math", code="import cmath"),
    )
    files = engine.merged(engine.compute(self.tree, [patch]))
    self.assertIn(b"LIMIT = 4", files[FILE])
    old = engine.Tree.open(self.tree.root, "0.11.2")
    self.assertIn(b"LIMIT = 5", engine.compute(old, [patch])[0].files[FILE])

  def test_files_of_a_checkout_only(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
        make_edit(file="tests/BUILD", anchor='"a"', action="after",
                  code='"b"', checkout_only=True),
    )
    steps = engine.compute(self.tree, [patch])
    self.assertEqual(list(steps[0].files), [FILE])
    checkout = synthetic.make_tree(
        self.folder / "checkout",
        {FILE: synthetic.SOURCE, "pyproject.toml": "",
         "tests/BUILD": 'test(names = ["a"])\n'},
    )
    steps = self.apply(patch, tree=checkout)
    self.assertEqual(
        steps[0].files["tests/BUILD"], b'test(names = ["a", "b"])\n'
    )

  def test_second_apply(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", action="after", code="MORE = 1"),
        new_files=("jax/new/",),
    )
    self.apply(patch)
    self.assert_refused("already", patch)

  def test_second_apply_of_code_alone(self):
    patch = make_patch(
        make_edit(
            scope="rows", action="after",
            code='''
                def more_rows_than_before(shape):
                  """Returns the rows."""
                  return rows(shape) + 1
            ''',
        ),
    )
    self.apply(patch)
    self.assert_refused("has the code of change_the_tiles", patch)

  def test_line_ends_stay(self):
    path = self.tree.root / FILE
    path.write_bytes(synthetic.SOURCE.replace("\n", "\r\n").encode())
    self.apply(make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5")))
    self.assertIn(b"\r\nLIMIT = 5\r\n", path.read_bytes())

  def test_write_is_undone_when_it_fails(self):
    before = synthetic.snapshot(self.folder)
    files = {FILE: b"1\n", "jax/version.py/impossible.py": b"2\n"}
    with self.assertRaises(OSError):
      engine.write(self.tree.root, files)
    self.assertEqual(synthetic.snapshot(self.folder), before)

  def test_write_replaces_files_and_keeps_their_mode(self):
    path = self.tree.root / FILE
    path.chmod(0o755)
    os.link(path, self.folder / "link")
    engine.write(self.tree.root, {FILE: b"1\n"})
    self.assertEqual(path.read_bytes(), b"1\n")
    self.assertEqual(path.stat().st_mode & 0o777, 0o755)
    self.assertEqual((self.folder / "link").read_text(), synthetic.SOURCE)

  def test_write_drops_stale_bytecode(self):
    stale = self.tree.root / "jax/__pycache__/tiles.cpython-312.pyc"
    stale.parent.mkdir()
    stale.write_bytes(b"")
    engine.write(self.tree.root, {FILE: b"1\n"})
    self.assertFalse(stale.exists())


class SeriesTest(absltest.TestCase):

  def test_series_is_well_formed(self):
    self.assertIsInstance(engine.load_series(), tuple)

  def test_unknown_patch(self):
    with self.assertRaisesRegex(PatchError, "got 'nothing'"):
      engine.load_series("nothing")


if __name__ == "__main__":
  absltest.main()
