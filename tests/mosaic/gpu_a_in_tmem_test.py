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
"""Tests of tcgen05.mma calls with several M tiles of A in TMEM."""

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

E4M3 = jnp.float8_e4m3fn
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn

_MATMULS = (
    # One tile, as before.
    Matmul(128, 128, 128, sparse=False, a_in_tmem=True),
    Matmul(128, 128, 256, a_in_tmem=True),
    # Several M tiles.
    Matmul(256, 128, 128, sparse=False, a_in_tmem=True),
    Matmul(384, 64, 128, jnp.bfloat16, sparse=False, a_in_tmem=True),
    Matmul(256, 64, 256, E4M3, sparse=False, b_swizzle=64, a_in_tmem=True),
    Matmul(256, 64, 256, jnp.int8, acc_dtype=jnp.int32, sparse=False,
           b_swizzle=64, a_in_tmem=True),
    Matmul(256, 128, 256, a_in_tmem=True),
    Matmul(256, 96, 256, b_swizzle=64, a_swizzle=64, a_in_tmem=True),
    Matmul(512, 64, 128, a_in_tmem=True),
    Matmul(256, 64, 512, E4M3, b_swizzle=64, a_in_tmem=True),
    # Several N tiles.
    Matmul(128, 320, 128, sparse=False, a_in_tmem=True),
    Matmul(128, 320, 256, a_in_tmem=True),
    # Block scales.
    Matmul(256, 128, 256, E4M3, sparse=False, scale_dtype=E8M0,
           scale_block=32, a_in_tmem=True),
    Matmul(256, 64, 256, E2M1, sparse=False, b_k_major=True, scale_dtype=E8M0,
           scale_block=32, a_in_tmem=True),
    Matmul(256, 128, 256, E4M3, scale_dtype=E8M0, scale_block=64,
           a_in_tmem=True),
    Matmul(256, 64, 512, E2M1, b_k_major=True, scale_dtype=E4M3,
           scale_block=32, a_in_tmem=True),
    # Two CTAs.
    Matmul(256, 64, 128, sparse=False, a_in_tmem=True, collective=True),
    Matmul(256, 64, 256, a_in_tmem=True, collective=True),
)


class AInTmemTest(test_util.TestCase):

  @parameterized.parameters(*_MATMULS)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)

  @parameterized.parameters(jnp.float16, jnp.bfloat16)
  def test_a_from_registers(self, dtype):
    matmul = Matmul(256, 64, 128, dtype, sparse=False, a_in_tmem=True)
    _, b_type = matmul.arg_types()
    b_smem_type = matmul.smem_types()["b"]

    def body(ctx, a, b, out, scratch):
      b_smem, loaded, done, alloc = scratch
      tmem = matmul.tmem_refs(alloc)
      ctx.async_copy(
          src_ref=b, dst_ref=b_smem, swizzle=128, barrier=loaded,
          gmem_transform=mgpu.TileTransform((8, 64)),
      )
      value = fa.FragmentedArray.load_untiled(
          a, layout=tcgen05.LAYOUT, optimized=False
      )
      tmem["a"].store(value)
      tcgen05.commit_tmem()
      loaded.wait()
      with mgpu.single_thread():
        tcgen05.mma(tmem["d"], tmem["a"], b_smem, accumulate=False)
        tcgen05.commit_arrive(done)
      done.wait(orders_tensor_core=True)
      for row in (0, 128):
        tile = tmem["d"].slice(mgpu.ds(row, 128), slice(None)).load()
        rows = mgpu.memref_slice(out, mgpu.ds(row, 128))
        tile.store_untiled(rows, optimized=False)

    kernel = test_util.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1),
        (jax.ShapeDtypeStruct((256, 128), dtype), b_type),
        jax.ShapeDtypeStruct((256, 64), jnp.float32),
        [
            b_smem_type, mgpu.Barrier(1), mgpu.Barrier(1),
            mgpu.TMEM((128, 512), jnp.float32),
        ],
    )
    rng = np.random.default_rng(0)
    a = matmul.random_values(rng, (256, 128), dtype)
    b = matmul.random_values(rng, (128, 64), dtype)
    result = test_util.run(kernel, a, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-3)

  def test_errors(self):
    f16 = ir.F16Type.get()
    with ir.InsertionPoint(ir.Module.create().body):
      with self.assertRaisesWithLiteralMatch(
          NotImplementedError,
          "Only multiples of 128 rows are supported for MMA with A in TMEM, but"
          " got M=64",
      ):
        tcgen05.mma(
            test_util.tmem_ref((64, 64), ir.F32Type.get()),
            test_util.tmem_ref((64, 64), f16),
            test_util.smem_ref((8, 4, 8, 16), f16),
            b_swizzle=32,
        )
      with self.assertRaisesWithLiteralMatch(
          ValueError,
          "MMA operands take 544 TMEM columns (D: 512, A: 32), but only 512 are"
          " available. Use a smaller M, N or K in each call",
      ):
        tcgen05.mma(
            test_util.tmem_ref((256, 256), ir.F32Type.get()),
            test_util.tmem_ref(
                (256, 32), f16, tcgen05.tmem_default_layout(2)
            ),
            test_util.smem_ref((4, 16, 8, 16), f16),
            a_swizzle=32, b_swizzle=32,
        )
      with self.assertRaisesWithLiteralMatch(
          ValueError,
          "TMEM reference must have a multiple of 128 rows, but got 64",
      ):
        tcgen05.async_copy_smem_to_tmem(
            test_util.smem_ref((8, 4, 8, 16), f16),
            test_util.tmem_ref(
                (64, 64), f16, tcgen05.tmem_half_lane_layout(64, 2)
            ),
            32,
        )


if __name__ == "__main__":
  absltest.main()
