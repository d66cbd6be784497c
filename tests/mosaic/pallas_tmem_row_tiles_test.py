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
"""Tests of Pallas's TMEM references of several row tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax.experimental import pallas as pl
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

SEMANTICS = (
    plgpu.LoweringSemantics.Lane, plgpu.LoweringSemantics.Warpgroup
)
TCGEN05 = plgpu.Layout.TCGEN05
NATIVE = plgpu.Layout.TCGEN05_TMEM_NATIVE


def _kernel(semantics, body, out_type, *scratch_types):
  return jax.jit(plgpu.kernel(
      body,
      out_type=out_type,
      scratch_types=scratch_types,
      compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
  ))


class PallasTmemRowTilesTest(test_util.TestCase):

  @parameterized.product(
      semantics=SEMANTICS,
      parts=("whole", "row_tiles", "row_loop_and_columns"),
      case=(
          (jnp.float32, TCGEN05, False),
          (jnp.float32, NATIVE, False),
          (jnp.float16, TCGEN05, True),
          (jnp.float16, TCGEN05, False),
          (jnp.float16, NATIVE(2), True),
          (jnp.int8, NATIVE(4), True),
      ),
  )
  def test_store_and_load(self, semantics, parts, case):
    dtype, layout, packed = case
    m, n = 256, 64

    def for_each_part(f):
      if parts == "whole":
        f((slice(None), slice(None)))
      elif parts == "row_tiles":
        for row in range(0, m, 128):
          f((slice(row, row + 128), slice(None)))
      else:

        @pl.loop(0, m // 128)
        def _(i):
          for column in (0, n // 2):
            f((pl.ds(i * 128, 128), pl.ds(column, n // 2)))

    def body(src, dst, tmem):
      @for_each_part
      def _(part):
        value = plgpu.load(src.at[part], layout=layout, optimized=False)
        plgpu.async_store_tmem(tmem.at[part], value)

      plgpu.commit_tmem()

      @for_each_part
      def _(part):
        value = plgpu.async_load_tmem(tmem.at[part], layout=layout)
        test_util.store(dst.at[part], value)

    x = np.random.default_rng(0).integers(-128, 128, (m, n)).astype(dtype)
    kernel = _kernel(
        semantics, body, x, plgpu.TMEM((m, n), dtype, packed=packed)
    )
    np.testing.assert_array_equal(test_util.run(kernel, x), x)

  @parameterized.product(semantics=SEMANTICS)
  def test_rows_of_a_slice_of_columns_of_a_slice_of_rows(self, semantics):
    x = np.arange(384 * 64, dtype=np.float32).reshape(384, 64)

    def body(src, dst, tmem):
      value = plgpu.load(src, layout=TCGEN05, optimized=False)
      plgpu.async_store_tmem(tmem, value)
      plgpu.commit_tmem()
      rows = tmem.at[128:384].at[pl.ds(128, 128)]
      test_util.store(dst, plgpu.async_load_tmem(rows.at[:, 32:].at[:, 8:24]))

    kernel = _kernel(
        semantics, body, jax.ShapeDtypeStruct((128, 16), jnp.float32),
        plgpu.TMEM(x.shape, jnp.float32),
    )
    np.testing.assert_array_equal(
        test_util.run(kernel, x), x[256:384, 40:56]
    )

  @parameterized.product(
      semantics=SEMANTICS,
      case=(
          # Rows of a reference, a slice of it, and what is said of it.
          (256, lambda i: slice(64, 192), "got 128 rows from row 64 on"),
          (256, lambda i: slice(0, 64), "got 64 rows from row 0 on"),
          (128, lambda i: slice(0, 64), "got 64 rows from row 0 on"),
          (64, lambda i: slice(0, 32), "are not contiguous. Allocate a TMEM"),
          (256, lambda i: pl.ds(i * 64, 128), "128 rows from a dynamic row on"),
          (256, lambda i: (slice(None), slice(0, 8)), "Slice one row tile"),
      ),
  )
  def test_slices_that_are_not_supported(self, semantics, case):
    rows, part, message = case

    def body(dst, tmem):
      @pl.loop(0, 2)
      def _(i):
        value = plgpu.async_load_tmem(tmem.at[part(i)])
        test_util.store(dst.at[: value.shape[0], : value.shape[1]], value)

    kernel = _kernel(
        semantics, body, jax.ShapeDtypeStruct((256, 64), jnp.float32),
        plgpu.TMEM((rows, 64), jnp.float32),
    )
    with deviceless.as_blackwell():
      traced = kernel.trace()
      # With Warpgroup semantics, layout inference finds most of them.
      with self.assertRaisesRegex(
          (NotImplementedError, ValueError), message
      ):
        traced.lower(lowering_platforms=("cuda",))


if __name__ == "__main__":
  absltest.main()
