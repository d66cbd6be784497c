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
"""Tests of comparing JAX's own tests, on a tiny JAX with tiny tests."""

import contextlib
import io
import pathlib
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest
from synthetic import make_edit, make_patch

import patches
from patches import engine, trees, upstream
from patches.model import PatchError

_TEST = """
import unittest
from jax import tiles

class TilesTest(unittest.TestCase):

  def test_same(self):
    self.assertEqual(tiles.Ref().slice(0, 0)["b"], 2)

  def test_fails_on_both(self):
    self.assertEqual(tiles.Ref().slice(0, 0)["b"], 3)

  def test_skips_on_both(self):
    self.skipTest("no GPU")

  def test_limit(self):
    self.assertEqual(tiles.LIMIT, 4)
"""


# On JAX as it was released, TMEM references of 256 rows can't be loaded.
_GPU_TEST = """
import jax
from jax._src import test_util as jtu
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

class TCGen05Test(jtu.JaxTestCase, jtu.CudaArchSpecificTest):

  def setUp(self):
    self.skip_unless_tcgen05()
    super().setUp()

  def copy(self, rows):
    x = np.arange(rows * 32, dtype=np.float32).reshape(rows, 32)

    def body(src, dst, tmem):
      layout = plgpu.Layout.TCGEN05
      value = plgpu.load(src, layout=layout, optimized=False)
      plgpu.async_store_tmem(tmem, value)
      plgpu.commit_tmem()
      plgpu.store(dst, plgpu.async_load_tmem(tmem), optimized=False)

    kernel = plgpu.kernel(
        body, out_type=x, scratch_types=[plgpu.TMEM(x.shape, x.dtype)],
    )
    np.testing.assert_array_equal(jax.jit(kernel)(x), x)

  def test_one_row_tile(self):
    self.copy(128)

  def test_two_row_tiles(self):
    self.copy(256)

  def test_of_hopper(self):
    self.skip_unless_sm90a()

class OtherTest(jtu.JaxTestCase):

  def test_that_is_not_meant(self):
    self.fail()
"""


class UpstreamTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory(prefix="a b "))
    self.folder = pathlib.Path(folder)
    tree = synthetic.make_tree(
        self.folder / "tree",
        {synthetic.FILE: synthetic.SOURCE, "jax/__init__.py": ""},
    )
    self.enter_context(
        mock.patch.object(trees, "pristine", lambda base: tree.root)
    )
    self.tests = self.folder / "checkout/tests/mosaic/gpu_dialect_test.py"
    self.tests.parent.mkdir(parents=True)
    self.tests.write_text(_TEST)

  def compare(self, edit):
    output = io.StringIO()
    with (
        mock.patch.object(engine, "load_series", lambda: (make_patch(edit),)),
        contextlib.redirect_stdout(output),
    ):
      code = upstream.compare(
          patches.BASE, self.folder / "checkout", [], jobs=0
      )
    return code, output.getvalue()

  def test_same_results(self):
    code, output = self.compare(
        make_edit(anchor="LIMIT = 4", action="after", code="MORE = 5")
    )
    self.assertEqual(code, 0, output)
    self.assertIn(
        "4 tests of 1 files without the patches: 1 failure, 2 passed, 1"
        " skipped; with them, 0 differ, 0 for the worse", output,
    )

  def test_helpers_that_only_a_checkout_has(self):
    self.tests.write_text(
        _TEST.replace("import tiles", "import tiles, tiles_test_util")
    )
    package = self.folder / "checkout/jax"
    package.mkdir()
    (package / "tiles_test_util.py").write_text("")
    # What the release has is taken from the release.
    (package / "tiles.py").write_text("")
    code, output = self.compare(
        make_edit(anchor="LIMIT = 4", action="after", code="MORE = 5")
    )
    self.assertEqual(code, 0, output)
    self.assertIn("4 tests of 1 files", output)
    self.assertFalse((trees.pristine("") / "jax/tiles_test_util.py").exists())

  def test_other_result(self):
    code, output = self.compare(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"))
    self.assertEqual(code, 1)
    self.assertIn(
        "TilesTest.test_limit: passed without the patches, failure with them",
        output,
    )
    self.assertIn("1 differ, 1 for the worse", output)

  def test_test_that_is_missing(self):
    self.assertEqual(
        upstream.differences({"a": "passed"}, {"b": "passed"}),
        ["a: passed without the patches, missing with them",
         "b: missing without the patches, passed with them"],
    )

  def test_what_is_worse(self):
    before = dict(a="passed", b="failure", c="failure", d="passed", e="failure")
    after = dict(b="passed", c="failure", d="skipped", e="skipped", f="failure")
    self.assertEqual(upstream.worse(before, after), ["a", "d", "e", "f"])

  def test_tests_that_do_not_load(self):
    self.tests.write_text("import nothing_of_this_name\n")
    with self.assertRaisesRegex(PatchError, "(?s)exit code .*nothing_of_this"):
      self.compare(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"))

  def test_folder_without_tests(self):
    with self.assertRaisesRegex(PatchError, "found no gpu_constraints_test"):
      upstream.find(self.folder, [])
    with self.assertRaisesRegex(PatchError, "found no a_test.py"):
      upstream.find(self.folder / "checkout", ["a_test.py"])


class SimulatedTest(absltest.TestCase):

  def test_on_the_simulator(self):
    folder = pathlib.Path(
        self.enter_context(tempfile.TemporaryDirectory(prefix="a b "))
    )
    (folder / "gpu_test.py").write_text(_GPU_TEST)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
      code = upstream.compare(patches.BASE, folder, [], jobs=0, simulate=True)
    self.assertEqual(code, 0, output.getvalue())
    self.assertIn(
        "TCGen05Test.test_two_row_tiles: failure without the patches, passed"
        " with them", output.getvalue(),
    )
    self.assertIn(
        "3 tests of 1 files without the patches: 1 failure, 1 passed, 1"
        " skipped; with them, 1 differ, 0 for the worse", output.getvalue(),
    )


if __name__ == "__main__":
  absltest.main()
