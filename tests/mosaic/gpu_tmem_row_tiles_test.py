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
"""Tests of loads and stores of TMEM references of several row tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tmem_test_util as test_util
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp
import numpy as np


class TmemRowTilesTest(test_util.TestCase):

  @parameterized.product(
      shape=((256, 64), (384, 32), (512, 48)),
      case=(
          (jnp.float32, 1, "LAYOUT"),
          (jnp.float32, 1, "TMEM_NATIVE_LAYOUT"),
          (jnp.int32, 1, "LAYOUT"),
          (jnp.float16, 1, "LAYOUT"),
          (jnp.float16, 2, "LAYOUT"),
          (jnp.bfloat16, 1, "TMEM_NATIVE_LAYOUT"),
          (jnp.int8, 4, None),
      ),
  )
  def test_store_and_load(self, shape, case):
    dtype, packing, layout_name = case
    layout = tcgen05.tmem_default_layout(packing)
    regs_layout = (
        layout.as_tiled_layout()
        if layout_name is None
        else getattr(tcgen05, layout_name)
    )
    x = test_util.random(np.random.default_rng(0), shape, dtype)

    def whole(tmem, x, out):
      self.store_all(tmem, x, regs_layout)
      self.load_to(tmem, out, regs_layout)

    def by_row_tile(tmem, x, out):
      self.store_all(tmem, x, regs_layout)
      for row in range(0, shape[0], 128):
        tile = tmem.slice(mgpu.ds(row, 128), slice(None))
        rows = mgpu.memref_slice(out, mgpu.ds(row, 128))
        self.load_to(tile, rows, regs_layout)

    for body in (whole, by_row_tile):
      with self.subTest(body.__name__):
        result = self.run_with_tmem(body, shape, dtype, layout=layout, x=x)
        np.testing.assert_array_equal(result, x)

  def test_row_tiles_are_stored_where_their_slices_are(self):
    shape = (384, 64)
    x = test_util.random(np.random.default_rng(1), shape, jnp.float32)

    def body(tmem, x, out):
      for row in (256, 0, 128):
        tile = tmem.slice(slice(row, row + 128), slice(None))
        src = mgpu.memref_slice(x, mgpu.ds(row, 128))
        self.store_all(tile, src, tcgen05.LAYOUT)
      self.load_to(tmem, out)

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    np.testing.assert_array_equal(result, x)

  def test_two_row_tiles_of_four(self):
    shape = (512, 32)
    x = test_util.random(np.random.default_rng(2), shape, jnp.float32)

    def body(tmem, x, out):
      self.store_all(tmem, x, tcgen05.LAYOUT)
      for row in (0, 256):
        half = tmem.slice(mgpu.ds(256 - row, 256), slice(None))
        self.assertEqual(half.shape, (256, 32))
        self.load_to(half, mgpu.memref_slice(out, mgpu.ds(row, 256)))

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    np.testing.assert_array_equal(result, np.concatenate([x[256:], x[:256]]))

  def test_store_of_unsupported_layout(self):
    def body(tmem, x, out):
      del out
      value = fa.FragmentedArray.load_untiled(
          x, layout=fa.WGMMA_LAYOUT, optimized=False
      )
      with self.assertRaisesRegex(ValueError, "Storing from register layout"):
        tmem.store(value)

    x = test_util.random(np.random.default_rng(5), (256, 32), jnp.float32)
    self.run_with_tmem(
        body, (256, 32), jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )


if __name__ == "__main__":
  absltest.main()
