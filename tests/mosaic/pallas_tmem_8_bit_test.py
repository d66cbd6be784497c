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
"""Tests of transfers between TMEM and registers of 4 and 8-bit elements."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src import dtypes
from jax.experimental.mosaic.gpu import constraints as cs
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Semantics = plgpu.LoweringSemantics


class PallasTmem8BitTest(test_util.TestCase):

  @parameterized.product(
      semantics=(Semantics.Lane, Semantics.Warpgroup),
      dtype=(jnp.int8, jnp.float8_e4m3fn, jnp.float4_e2m1fn),
      rows=(128, 256),
  )
  def test_load_with_an_inferred_layout(self, semantics, dtype, rows):
    # Rows of 64 bytes.
    columns = 64 * 8 // dtypes.itemsize_bits(dtype)
    shape = (rows, columns)

    def body(src, dst, smem, tmem, loaded, copied):
      plgpu.copy_gmem_to_smem(src, smem, loaded)
      plgpu.barrier_wait(loaded)
      plgpu.async_copy_smem_to_tmem(smem, tmem)
      plgpu.tcgen05_commit_arrive(copied)
      plgpu.barrier_wait(copied)
      test_util.store(dst, plgpu.async_load_tmem(tmem))

    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(shape, dtype),
        scratch_types=[
            plgpu.SMEM(
                shape,
                dtype,
                transforms=(
                    plgpu.TilingTransform((8, columns)),
                    plgpu.SwizzleTransform(64),
                ),
            ),
            plgpu.TMEM(shape, dtype, packed=True),
            plgpu.Barrier(),
            plgpu.Barrier(orders_tensor_core=True),
        ],
        compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
    )
    x = np.random.default_rng(0).integers(-8, 8, shape).astype(dtype)
    np.testing.assert_array_equal(test_util.run(jax.jit(kernel), x), x)

  @parameterized.product(
      case=(
          (128, tcgen05.tmem_default_layout, fa.TCGEN05_LAYOUT),
          (64, lambda packing: tcgen05.tmem_half_lane_layout(64, packing),
           fa.WGMMA_LAYOUT),
          (64, lambda packing: tcgen05.tmem_m64_collective_layout(64, packing),
           tcgen05.fa_m64_collective_layout(64)),
      ),
      # Of packed references, only those of 16 and 32 bits have these layouts.
      # Unpacked ones have no other, so that the lowering can say so.
      bitwidth_packing_and_valid=(
          (4, 8, False), (8, 4, False), (16, 2, True), (32, 1, True),
          (8, 1, True), (16, 1, True),
      ),
  )
  def test_inferred_layouts(self, case, bitwidth_packing_and_valid):
    rows, tmem_layout, reg_layout = case
    bitwidth, packing, valid = bitwidth_packing_and_valid
    tmem_layout = tmem_layout(packing)

    def is_valid(reg_layout):
      return cs.IsTransferableTmemRegisters(
          cs.TMEMLayout(tmem_layout), cs.RegisterLayout(reg_layout),
          (rows, 64), bitwidth=bitwidth,
      ).is_valid_tmem_transfer(tmem_layout, reg_layout)

    self.assertEqual(is_valid(reg_layout), valid)
    if packing * bitwidth == 32:
      self.assertTrue(is_valid(tmem_layout.as_tiled_layout()))


if __name__ == "__main__":
  absltest.main()
