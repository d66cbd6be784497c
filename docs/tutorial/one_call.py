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
"""One `tcgen05_mma` call for the whole matmul."""

import common
import jax
from jax.experimental import pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp


def matmul(values, positions, b):
  """Multiplies compressed (M, K // 2) by (K, N)."""
  m, (k, n) = values.shape[0], b.shape
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, values.dtype)

  def body(values_gmem, metadata_gmem, b_gmem, out_gmem, *, a_smem,
           metadata_smem, b_smem, out_smem, acc, metadata_tmem, loaded, done):
    plgpu.copy_gmem_to_smem(values_gmem, a_smem, loaded)
    plgpu.copy_gmem_to_smem(metadata_gmem, metadata_smem, loaded)
    plgpu.copy_gmem_to_smem(b_gmem, b_smem, loaded)
    plgpu.barrier_wait(loaded)

    plgpu.async_copy_sparse_metadata_to_tmem(metadata_smem, metadata_tmem)
    plgpu.tcgen05_mma(
        acc, a_smem, b_smem, done, a_sparse_metadata=metadata_tmem,
        accumulate=False,
    )
    plgpu.barrier_wait(done)

    for row in range(0, m, 128):
      rows = pl.ds(row, 128)
      out_smem[rows] = plgpu.async_load_tmem(acc.at[rows])
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_smem, out_gmem)
    plgpu.wait_smem_to_gmem(0)

  return plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((m, n), jnp.float32),
      scratch_types=dict(
          a_smem=common.smem(m, k // 2),
          metadata_smem=plgpu.SMEM(metadata.shape, jnp.uint2),
          b_smem=common.smem(k, n),
          out_smem=common.smem(m, n, dtype=jnp.float32),
          acc=plgpu.TMEM((m, n), jnp.float32),
          metadata_tmem=common.metadata_tmem(m, k),
          loaded=plgpu.Barrier(num_arrivals=3),
          done=plgpu.Barrier(orders_tensor_core=True),
      ),
  )(values, metadata, b)


if __name__ == "__main__":
  for rows in (128, 256):
    print(f"M={rows}")
    print(common.summary(common.run(matmul, m=rows, n=64, k=128)))
