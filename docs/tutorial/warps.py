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
"""One warp loads, another one multiplies."""

import common
import jax
from jax import lax
from jax.experimental import pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

TILE_M, TILE_N, TILE_K, STAGES = 256, 64, 128, 2


def matmul(values, positions, b):
  m, (k, n) = values.shape[0], b.shape
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, values.dtype)
  m_tiles, steps = TILE_M // 128, k // TILE_K

  def body(values_gmem, metadata_gmem, b_gmem, out_gmem, *, a_smem,
           metadata_smem, b_smem, out_smem, acc, metadata_tmem, loaded,
           consumed, done):
    mi, ni = lax.axis_index("m"), lax.axis_index("n")

    def load(ki, _):
      slot = lax.rem(ki, STAGES)

      @pl.when(ki >= STAGES)
      def _():
        plgpu.barrier_wait(consumed.at[slot])

      def copy(gmem, smem, *index):
        plgpu.copy_gmem_to_smem(
            gmem.at[index], smem.at[slot], loaded.at[slot]
        )

      copy(values_gmem, a_smem, pl.ds(mi * TILE_M, TILE_M),
           pl.ds(ki * (TILE_K // 2), TILE_K // 2))
      copy(metadata_gmem, metadata_smem, pl.ds(mi * m_tiles, m_tiles),
           pl.ds(ki, 1))
      copy(b_gmem, b_smem, pl.ds(ki * TILE_K, TILE_K),
           pl.ds(ni * TILE_N, TILE_N))

    def multiply(ki, _):
      slot = lax.rem(ki, STAGES)
      plgpu.barrier_wait(loaded.at[slot])
      stage = metadata_tmem.at[pl.ds(slot * TILE_M, TILE_M)]
      plgpu.async_copy_sparse_metadata_to_tmem(metadata_smem.at[slot], stage)
      plgpu.tcgen05_mma(
          acc, a_smem.at[slot], b_smem.at[slot], consumed.at[slot],
          a_sparse_metadata=stage, accumulate=ki > 0,
      )

    @plgpu.warp_map
    def _(warp):
      @pl.when(warp == 0)
      def _():
        lax.fori_loop(0, steps, load, None)

      @pl.when(warp == 1)
      def _():
        lax.fori_loop(0, steps, multiply, None)
        plgpu.tcgen05_commit_arrive(done)

    plgpu.barrier_wait(done)
    for row in range(0, TILE_M, 128):
      rows = pl.ds(row, 128)
      out_smem[rows] = plgpu.async_load_tmem(acc.at[rows])
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(
        out_smem,
        out_gmem.at[pl.ds(mi * TILE_M, TILE_M), pl.ds(ni * TILE_N, TILE_N)],
    )
    plgpu.wait_smem_to_gmem(0)

  return plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((m, n), jnp.float32),
      grid=(m // TILE_M, n // TILE_N),
      grid_names=("m", "n"),
      scratch_types=dict(
          a_smem=common.smem(STAGES, TILE_M, TILE_K // 2),
          metadata_smem=plgpu.SMEM((STAGES, m_tiles, 1, 128, 64), jnp.uint2),
          b_smem=common.smem(STAGES, TILE_K, TILE_N),
          out_smem=common.smem(TILE_M, TILE_N, dtype=jnp.float32),
          acc=plgpu.TMEM((TILE_M, TILE_N), jnp.float32),
          metadata_tmem=common.metadata_tmem(STAGES * TILE_M, TILE_K),
          loaded=plgpu.Barrier(num_arrivals=3, num_barriers=STAGES),
          consumed=plgpu.Barrier(num_barriers=STAGES, orders_tensor_core=True),
          done=plgpu.Barrier(orders_tensor_core=True),
      ),
  )(values, metadata, b)


if __name__ == "__main__":
  print(common.summary(common.run(matmul, m=512, n=256, k=256)))
