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
"""Tests of Pallas's tcgen05_mma over several M and N tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pallas_tiles_test_util as pallas_util

Matmul = pallas_util.Matmul
E4M3 = jnp.float8_e4m3fn
E8M0 = jnp.float8_e8m0fnu

_MATMULS = dict(
    dense_m=dict(m=256, n=128, k=64, sparse=False),
    dense_n=dict(m=128, n=272, k=64, sparse=False, b_k_major=True),
    sparse_m=dict(m=256, n=128, k=256),
    sparse_n=dict(m=128, n=384, k=128),
    sparse_transposed_a=dict(m=384, n=64, k=128, a_k_major=False),
    fp8=dict(m=256, n=128, k=256, dtype=E4M3),
    int8=dict(m=256, n=128, k=256, dtype=jnp.int8, acc_dtype=jnp.int32),
    f16_accumulator=dict(m=256, n=128, k=128, acc_dtype=jnp.float16),
    scaled_m=dict(
        m=256, n=128, k=256, dtype=E4M3, sparse=False, scale_dtype=E8M0,
        scale_block=32,
    ),
    scaled_n=dict(
        m=128, n=320, k=256, dtype=E4M3, sparse=False, b_k_major=True,
        scale_dtype=E8M0, scale_block=32,
    ),
    scaled_sparse=dict(
        m=256, n=128, k=256, dtype=E4M3, scale_dtype=E8M0, scale_block=64
    ),
    a_in_tmem=dict(m=256, n=64, k=128, sparse=False, a_in_tmem=True),
    sparse_a_in_tmem=dict(m=256, n=128, k=256, a_in_tmem=True),
    two_ctas=dict(m=256, n=64, k=256, collective=True),
)


def _matmul(name: str, semantics, **kwargs) -> Matmul:
  return Matmul(**_MATMULS[name], semantics=semantics, **kwargs)


class PallasTilesTest(test_util.TestCase):

  @parameterized.product(
      name=tuple(_MATMULS), semantics=pallas_util.SEMANTICS
  )
  def test_matmul(self, name, semantics):
    _matmul(name, semantics).check(self)

  @parameterized.product(
      name=("sparse_m", "scaled_sparse", "sparse_a_in_tmem", "two_ctas"),
      semantics=pallas_util.SEMANTICS,
  )
  def test_matmul_in_a_warp(self, name, semantics):
    _matmul(name, semantics, in_warp=True).check(self)

  @parameterized.product(
      semantics=pallas_util.SEMANTICS,
      read=("whole", "loop", "column_halves"),
  )
  def test_ways_to_read_the_accumulator(self, semantics, read):
    _matmul("sparse_m", semantics, read=read).check(self)

  @parameterized.product(
      semantics=pallas_util.SEMANTICS,
      how=("row_tiles", "loop"),
      in_warp=(False, True),
  )
  def test_a_call_for_each_row_tile(self, semantics, how, in_warp):
    a_in_tmem = in_warp

    class Calls(Matmul):

      def issue_in(self, smem, tmem, done, axis):
        del axis

        def issue(rows, tile):
          a, metadata = smem["a"].at[rows], tmem["metadata"].at[rows]
          plgpu.async_copy_sparse_metadata_to_tmem(
              smem["metadata"].at[tile], metadata
          )
          if a_in_tmem:
            plgpu.async_copy_smem_to_tmem(a, tmem["a"].at[rows])
            a = tmem["a"].at[rows]
          plgpu.tcgen05_mma(
              tmem["d"].at[rows], a, smem["b"], a_sparse_metadata=metadata,
              accumulate=False,
          )

        if how == "loop":

          @pl.loop(0, self.m // 128)
          def _(i):
            issue(pl.ds(i * 128, 128), pl.ds(i, 1))

        else:
          for i, rows in enumerate(pallas_util.row_tiles(self.m)):
            issue(rows, slice(i, i + 1))
        plgpu.tcgen05_commit_arrive(done)

    Calls(
        256, 64, 256, a_in_tmem=a_in_tmem, semantics=semantics, in_warp=in_warp
    ).check(self)

  @parameterized.product(
      semantics=pallas_util.SEMANTICS, in_warp=(False, True)
  )
  def test_calls_for_parts_of_rows_and_k(self, semantics, in_warp):

    class Calls(Matmul):

      def issue_in(self, smem, tmem, done, axis):
        del axis
        plgpu.async_copy_sparse_metadata_to_tmem(
            smem["metadata"], tmem["metadata"]
        )
        half = self.k // 2
        for rows in pallas_util.row_tiles(self.m):
          for start in (0, half):
            # Entries of metadata and elements of A.
            compressed = (rows, pl.ds(start // 2, half // 2))
            plgpu.tcgen05_mma(
                tmem["d"].at[rows],
                smem["a"].at[compressed],
                smem["b"].at[pl.ds(start, half)],
                a_sparse_metadata=tmem["metadata"].at[compressed],
                accumulate=start > 0,
            )
        plgpu.tcgen05_commit_arrive(done)

    Calls(256, 64, 256, semantics=semantics, in_warp=in_warp).check(self)


if __name__ == "__main__":
  absltest.main()
