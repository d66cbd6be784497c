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
"""Steps along K, while TMA loads the next ones."""

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

  def body(values_gmem, metadata_gmem, b_gmem, out_gmem, *, out_smem, acc,
           metadata_tmem, multiplied):
    mi, ni = lax.axis_index("m"), lax.axis_index("n")

    def step(index, a_smem, metadata_smem, b_smem):
      (ki,) = index
      slot = lax.rem(ki, 2)
      stage = metadata_tmem.at[pl.ds(slot * TILE_M, TILE_M)]
      plgpu.async_copy_sparse_metadata_to_tmem(metadata_smem, stage)
      plgpu.tcgen05_mma(
          acc, a_smem, b_smem, multiplied.at[slot], a_sparse_metadata=stage,
          accumulate=ki > 0,
      )

      @pl.when(ki > 0)
      def _():
        plgpu.barrier_wait(multiplied.at[1 - slot])

    spec = lambda shape, index, **kwargs: plgpu.BlockSpec(
        shape, index, delay_release=1, **kwargs
    )
    swizzled = dict(
        transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    )
    plgpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            spec((TILE_M, TILE_K // 2), lambda ki: (mi, ki), **swizzled),
            spec((m_tiles, TILE_K // 128, 128, 64), lambda ki: (mi, ki, 0, 0)),
            spec((TILE_K, TILE_N), lambda ki: (ki, ni), **swizzled),
        ],
        max_concurrent_steps=STAGES,
    )(values_gmem, metadata_gmem, b_gmem)
    plgpu.barrier_wait(multiplied.at[(steps - 1) % 2])

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
          out_smem=common.smem(TILE_M, TILE_N, dtype=jnp.float32),
          acc=plgpu.TMEM((TILE_M, TILE_N), jnp.float32),
          metadata_tmem=common.metadata_tmem(2 * TILE_M, TILE_K),
          multiplied=plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
      ),
  )(values, metadata, b)


if __name__ == "__main__":
  print(common.summary(common.run(matmul, m=512, n=256, k=256)))
