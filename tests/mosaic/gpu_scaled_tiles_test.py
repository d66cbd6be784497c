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
"""Tests of block-scaled tcgen05.mma calls that cover several M and N tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.lib.mlir import ir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp
import numpy as np

Matmul = test_util.Matmul

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn


def _mxfp8(m, n, k, dtype=E4M3, sparse=False, **kwargs):
  return Matmul(
      m, n, k, dtype, sparse=sparse, scale_dtype=E8M0,
      scale_block=32 * (1 + sparse), **kwargs,
  )


def _fp4(m, n, k, scale_dtype, block, sparse=False, **kwargs):
  return Matmul(
      m, n, k, E2M1, sparse=sparse, b_k_major=True, scale_dtype=scale_dtype,
      scale_block=block * (1 + sparse), **kwargs,
  )


_MATMULS = (
    # One tile, as before.
    _mxfp8(128, 128, 256),
    _fp4(128, 64, 256, E8M0, 32),
    # Several M tiles.
    _mxfp8(256, 128, 256),
    _mxfp8(384, 64, 128, b_swizzle=64),
    _mxfp8(512, 64, 128, (E5M2, E4M3), b_swizzle=64),
    _mxfp8(256, 96, 256, b_k_major=True),
    _mxfp8(256, 128, 256, a_k_major=False),
    _fp4(256, 128, 256, E8M0, 32),
    _fp4(256, 128, 256, E8M0, 16),
    _fp4(384, 64, 512, jnp.float8_e4m3fn, 16),
    # Several N tiles.
    _mxfp8(128, 384, 128),
    _mxfp8(128, 272, 256, E5M2, b_k_major=True),
    _fp4(128, 320, 256, jnp.float8_e4m3fn, 16),
    # Sparse.
    _mxfp8(128, 128, 256, sparse=True),
    _mxfp8(256, 128, 256, sparse=True),
    _mxfp8(384, 64, 512, E5M2, sparse=True, b_swizzle=64, a_swizzle=64),
    _mxfp8(128, 384, 256, sparse=True),
    _fp4(128, 128, 512, E8M0, 32, sparse=True),
    _fp4(256, 128, 512, E8M0, 32, sparse=True),
    _fp4(256, 64, 512, E8M0, 16, sparse=True),
    _fp4(256, 128, 512, jnp.float8_e4m3fn, 16, sparse=True),
    _fp4(128, 320, 512, jnp.float8_e4m3fn, 16, sparse=True),
)


class ScaledTilesTest(test_util.TestCase):

  @parameterized.parameters(*_MATMULS)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)

  @parameterized.product(rows=(128, 256, 384), scales=(4, 8))
  def test_store_and_load_of_scales(self, rows, scales):
    ty = jax.ShapeDtypeStruct((rows, scales), E8M0)
    layout = tcgen05.scales_layout().as_tiled_layout()

    def body(ctx, x, out, tmem):
      del ctx
      ref = tcgen05.TMEMRef(
          tmem.address, ty.shape, ir.Float8E8M0FNUType.get(),
          tcgen05.scales_layout(),
      )
      load = fa.FragmentedArray.load_untiled
      ref.store(load(x, layout=layout, optimized=False))
      tcgen05.commit_tmem()
      ref.load().store_untiled(out, optimized=False)

    kernel = test_util.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1), ty, ty,
        mgpu.TMEM((128, 32), jnp.float32),
    )
    x = np.random.default_rng(0).integers(1, 255, ty.shape)
    x = x.astype(np.uint8).view(E8M0)
    np.testing.assert_array_equal(
        test_util.run(kernel, x).view(np.uint8), x.view(np.uint8)
    )

  def test_stored_scales_lie_where_the_mma_reads_them(self):
    # The same call, with scales from registers instead of the copy.
    matmul = _mxfp8(256, 128, 256)
    layout = tcgen05.scales_layout().as_tiled_layout()

    def body(ctx, a, b, a_scale, b_scale, out, scratch):
      smem, loaded, done, alloc = scratch
      tmem = matmul.tmem_refs(alloc)
      types = zip((a, b), smem, matmul.tilings().values(), range(2))
      for src, dst, tiling, i in types:
        ctx.async_copy(
            src_ref=src, dst_ref=dst, barrier=loaded[i], swizzle=128,
            gmem_transform=mgpu.TileTransform(tiling),
        )
      for name, src in (("a_scale", a_scale), ("b_scale", b_scale)):
        value = fa.FragmentedArray.load_untiled(
            src, layout=layout, optimized=False
        )
        tmem[name].store(value)
      tcgen05.commit_tmem()
      for i in range(2):
        loaded[i].wait()
      with mgpu.single_thread():
        tcgen05.mma(
            tmem["d"], smem[0], smem[1], accumulate=False,
            a_scale=tmem["a_scale"], b_scale=tmem["b_scale"],
        )
        tcgen05.commit_arrive(done)
      done.wait(orders_tensor_core=True)
      for row in (0, 128):
        tile = tmem["d"].slice(mgpu.ds(row, 128), slice(None)).load()
        rows = mgpu.memref_slice(out, mgpu.ds(row, 128))
        tile.store_untiled(rows, optimized=False)

    a_type, b_type = matmul.arg_types()[:2]
    scales = lambda rows: jax.ShapeDtypeStruct((rows, 8), E8M0)
    kernel = test_util.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1),
        (a_type, b_type, scales(256), scales(128)),
        jax.ShapeDtypeStruct((256, 128), jnp.float32),
        [
            list(matmul.smem_types().values())[:2],
            mgpu.Barrier(1, num_barriers=2),
            mgpu.Barrier(1),
            mgpu.TMEM((128, 512), jnp.float32),
        ],
    )
    rng = np.random.default_rng(0)
    a = matmul.random_values(rng, (256, 256), E4M3)
    b = matmul.random_values(rng, (256, 128), E4M3)
    a_scale = matmul.random_scales(rng, 256)
    b_scale = matmul.random_scales(rng, 128)
    result = test_util.run(kernel, a, b, a_scale, b_scale)
    wide = lambda x: x.astype(np.float64)
    expected = (wide(a) * wide(a_scale).repeat(32, 1)) @ (
        wide(b) * wide(b_scale).repeat(32, 1).T
    )
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-3)

  def test_too_many_columns(self):
    f8 = ir.Float8E4M3FNType.get()
    e8m0 = ir.Float8E8M0FNUType.get()
    layout = tcgen05.scales_layout()
    with (
        ir.InsertionPoint(ir.Module.create().body),
        self.assertRaisesWithLiteralMatch(
            ValueError,
            "MMA operands take 532 TMEM columns (D: 512, A scale: 4, B scale:"
            " 16), but only 512 are available. Use a smaller M, N or K in each"
            " call",
        ),
    ):
      tcgen05.mma(
          test_util.tmem_ref((128, 512), ir.F32Type.get()),
          test_util.smem_ref((16, 4, 8, 32), f8),
          test_util.smem_ref((16, 16, 8, 32), f8),
          a_swizzle=32, b_swizzle=32,
          a_scale=test_util.tmem_ref((128, 4), e8m0, layout),
          b_scale=test_util.tmem_ref((512, 4), e8m0, layout),
      )

  def test_wrong_scale_shapes(self):
    f8 = ir.Float8E4M3FNType.get()
    e8m0 = ir.Float8E8M0FNUType.get()
    scales = lambda rows: test_util.tmem_ref(
        (rows, 4), e8m0, tcgen05.scales_layout()
    )

    def call(a_rows, b_rows):
      tcgen05.mma(
          test_util.tmem_ref((256, 64), ir.F32Type.get()),
          test_util.smem_ref((32, 4, 8, 32), f8),
          test_util.smem_ref((16, 2, 8, 32), f8),
          a_swizzle=32, b_swizzle=32,
          a_scale=scales(a_rows), b_scale=scales(b_rows),
      )

    with ir.InsertionPoint(ir.Module.create().body):
      with self.assertRaisesWithLiteralMatch(
          ValueError,
          "A scale shape mismatch: expected (256, 4), got (128, 4)",
      ):
        call(128, 128)


if __name__ == "__main__":
  absltest.main()
