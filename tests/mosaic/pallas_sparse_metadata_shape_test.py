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
"""Tests of sparse tcgen05_mma whose metadata has another shape than A."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tf32_test as tf32
import gpu_tiles_test_util as test_util
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pallas_tiles_test_util as pallas_util

SEMANTICS = pallas_util.SEMANTICS


@dataclasses.dataclass(frozen=True)
class Tf32Matmul(tf32.Matmul, pallas_util.Matmul):
  pass


def _matmul(m, n, k, cls=pallas_util.Matmul, **kwargs):
  return cls(
      m, n, k, jnp.float4_e2m1fn, b_k_major=True, scale_block=64,
      scale_dtype=jnp.float8_e8m0fnu, **kwargs,
  )


class CallForEachRowTile(pallas_util.Matmul):
  """One call for each 128 rows, in a loop. Rows of scales can't be sliced."""

  def tmem_scratch(self):
    refs = super().tmem_scratch()
    refs["a_scale"] = plgpu.TMEM(
        (128, self.scales), self.scale_dtype,
        layout=plgpu.TMEMLayout.SCALES_LAYOUT,
    )
    return refs

  def issue_in(self, smem, tmem, done, axis):
    del axis
    plgpu.async_copy_sparse_metadata_to_tmem(smem["metadata"], tmem["metadata"])
    plgpu.async_copy_scales_to_tmem(smem["b_scale"], tmem["b_scale"])

    @pl.loop(0, self.m // 128)
    def _(i):
      rows = pl.ds(i * 128, 128)
      plgpu.async_copy_scales_to_tmem(
          smem["a_scale"].at[pl.ds(i, 1)], tmem["a_scale"]
      )
      plgpu.tcgen05_mma(
          tmem["d"].at[rows],
          smem["a"].at[rows],
          smem["b"].transpose((1, 0)),
          a_sparse_metadata=tmem["metadata"].at[rows],
          a_scale=tmem["a_scale"],
          b_scale=tmem["b_scale"],
          accumulate=False,
      )

    plgpu.tcgen05_commit_arrive(done)


class CallForEachHalfOfK(pallas_util.Matmul):
  """Two calls, of which the second one adds to what the first one did."""

  def issue_in(self, smem, tmem, done, axis):
    del axis
    plgpu.async_copy_sparse_metadata_to_tmem(smem["metadata"], tmem["metadata"])
    for name in ("a_scale", "b_scale"):
      plgpu.async_copy_scales_to_tmem(smem[name], tmem[name])

    def half(i, size):
      return slice(None), pl.ds(i * size // 2, size // 2)

    for i in range(2):
      plgpu.tcgen05_mma(
          tmem["d"],
          smem["a"].at[half(i, self.a_k)],
          smem["b"].at[half(i, self.k)].transpose((1, 0)),
          a_sparse_metadata=tmem["metadata"].at[half(i, self.entries)],
          a_scale=tmem["a_scale"].at[half(i, self.scales)],
          b_scale=tmem["b_scale"].at[half(i, self.scales)],
          accumulate=i > 0,
      )
    plgpu.tcgen05_commit_arrive(done)


class PallasSparseMetadataShapeTest(test_util.TestCase):

  @parameterized.product(
      semantics=SEMANTICS,
      in_warp=(False, True),
      shape=((128, 128, 512), (256, 128, 512)),
  )
  def test_fp4(self, semantics, in_warp, shape):
    _matmul(*shape, semantics=semantics, in_warp=in_warp).check(self)

  @parameterized.product(semantics=SEMANTICS, a_in_tmem=(False, True))
  def test_tf32(self, semantics, a_in_tmem):
    Tf32Matmul(
        256, 64, 128, semantics=semantics, a_in_tmem=a_in_tmem
    ).check(self)

  @parameterized.product(semantics=SEMANTICS, in_warp=(False, True))
  def test_a_call_for_each_row_tile(self, semantics, in_warp):
    _matmul(
        256, 128, 512, CallForEachRowTile, semantics=semantics, in_warp=in_warp
    ).check(self)

  @parameterized.product(semantics=SEMANTICS)
  def test_a_call_for_each_half_of_k(self, semantics):
    _matmul(128, 128, 1024, CallForEachHalfOfK, semantics=semantics).check(self)

  @parameterized.product(semantics=SEMANTICS)
  def test_metadata_of_8_bit_types(self, semantics):

    class Wrong(pallas_util.Matmul):
      # Twice as many entries as there are.
      entries = property(lambda self: self.k // 2)

    matmul = _matmul(128, 128, 512, Wrong, semantics=semantics)
    with self.assertRaisesRegex(ValueError, "metadata shape mismatch"):
      pallas_util.lower(matmul.kernel(), *matmul.arg_types())


if __name__ == "__main__":
  absltest.main()
