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
"""Two CTAs that share their columns of B."""

import common
import jax
from jax import lax
from jax.experimental import pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp

# Of a CTA. A pair makes a tile of twice as many rows and columns.
TILE_M, TILE_N, TILE_K, STAGES = 128, 64, 128, 2


def matmul(values, positions, b):
  m, (k, n) = values.shape[0], b.shape
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, values.dtype)
  rows, columns, steps = 2 * TILE_M, 2 * TILE_N, k // TILE_K
  grid = m // rows, n // columns
  tiles = grid[0] * grid[1]

  def body(values_gmem, metadata_gmem, b_gmem, out_gmem, *, a_smem,
           metadata_smem, b_smem, out_smem, acc, metadata_tmem, loaded,
           consumed, done, stored):
    warpgroup, cta = lax.axis_index("warpgroup"), lax.axis_index("cta")

    @plgpu.nd_loop((tiles,), collective_axes="pair")
    def _(loop):
      mi, ni = plgpu.planar_snake(loop.index[0], grid, 1, 1)
      first = loop.local_index * steps
      half = lax.rem(loop.local_index, 2)
      my_acc = acc.at[pl.ds(half * TILE_M, TILE_M)]

      def load(ki, _):
        slot = lax.rem(first + ki, STAGES)

        @pl.when(first + ki >= STAGES)
        def _():
          plgpu.barrier_wait(consumed.at[slot])

        def copy(gmem, smem, split, *index):
          plgpu.copy_gmem_to_smem(
              gmem.at[index], smem.at[slot], loaded.at[slot],
              collective_axes="cta",
              leader_tracked=plgpu.CopyPartition.PARTITIONED(split),
          )

        copy(values_gmem, a_smem, 0, pl.ds(mi * rows, rows),
             pl.ds(ki * (TILE_K // 2), TILE_K // 2))
        copy(metadata_gmem, metadata_smem, 0,
             pl.ds(mi * (rows // 128), rows // 128), pl.ds(ki, 1))
        copy(b_gmem, b_smem, 1, pl.ds(ki * TILE_K, TILE_K),
             pl.ds(ni * columns, columns))

      def multiply(ki, _):
        slot = lax.rem(first + ki, STAGES)
        plgpu.barrier_wait(loaded.at[slot])
        stage = metadata_tmem.at[pl.ds(slot * TILE_M, TILE_M)]
        plgpu.async_copy_sparse_metadata_to_tmem(
            metadata_smem.at[slot], stage, collective_axis="cta"
        )
        plgpu.tcgen05_mma(
            my_acc, a_smem.at[slot], b_smem.at[slot], consumed.at[slot],
            a_sparse_metadata=stage, accumulate=ki > 0,
            collective_axis="cta",
        )

      @pl.when(warpgroup == 0)
      def _():
        @plgpu.warp_map
        def _(warp):
          @pl.when(warp == 0)
          def _():
            lax.fori_loop(0, steps, load, None)

          @pl.when(jnp.logical_and(warp == 1, cta == 0))
          def _():
            @pl.when(loop.local_index >= 2)
            def _():
              plgpu.barrier_wait(stored.at[half])

            lax.fori_loop(0, steps, multiply, None)
            plgpu.tcgen05_commit_arrive(
                done.at[half], collective_axis="cta"
            )

      @pl.when(warpgroup == 1)
      def _():
        plgpu.barrier_wait(done.at[half])
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        out_smem[...] = plgpu.async_load_tmem(my_acc)
        plgpu.wait_load_tmem()
        plgpu.barrier_arrive(stored.at[half])
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(
            out_smem,
            out_gmem.at[pl.ds(mi * rows + cta * TILE_M, TILE_M),
                        pl.ds(ni * columns, columns)],
        )

    @pl.when(warpgroup == 1)
    def _():
      plgpu.wait_smem_to_gmem(0)

  return plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((m, n), jnp.float32),
      grid=(min(tiles, jax.local_devices()[0].core_count // 2),),
      grid_names=("pair",),
      cluster=(2,),
      cluster_names=("cta",),
      num_threads=2,
      thread_name="warpgroup",
      scratch_types=dict(
          a_smem=common.smem(STAGES, TILE_M, TILE_K // 2),
          metadata_smem=plgpu.SMEM(
              (STAGES, TILE_M // 128, 1, 128, 64), jnp.uint2
          ),
          b_smem=common.smem(STAGES, TILE_K, TILE_N),
          out_smem=common.smem(TILE_M, columns, dtype=jnp.float32),
          acc=plgpu.TMEM(
              (2 * TILE_M, columns), jnp.float32, collective=True
          ),
          metadata_tmem=common.metadata_tmem(
              STAGES * TILE_M, TILE_K, collective=True
          ),
          loaded=plgpu.Barrier(num_arrivals=3, num_barriers=STAGES),
          consumed=plgpu.Barrier(num_barriers=STAGES, orders_tensor_core=True),
          done=plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
          stored=plgpu.ClusterBarrier(
              collective_axes=("cta",), num_barriers=2, num_arrivals=1,
              orders_tensor_core=True,
          ),
      ),
  )(values, metadata, b)


if __name__ == "__main__":
  print(common.summary(common.run(matmul, m=512, n=256, k=256)))
