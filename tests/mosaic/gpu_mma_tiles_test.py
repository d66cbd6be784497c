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
"""Tests of dense tcgen05.mma calls that cover several M and N tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax._src.lib.mlir import ir
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp

Matmul = test_util.Matmul

_MATMULS = (
    # One tile, as before.
    Matmul(128, 128, 128, sparse=False),
    Matmul(128, 512, 64, sparse=False),
    # Several M tiles.
    Matmul(256, 128, 128, sparse=False),
    Matmul(384, 160, 64, sparse=False, b_swizzle=64, a_k_major=False),
    Matmul(512, 64, 64, jnp.bfloat16, sparse=False),
    Matmul(256, 96, 128, sparse=False, b_swizzle=32, acc_dtype=jnp.float16),
    Matmul(256, 256, 64, sparse=False, b_k_major=True),
    # A short last N tile.
    Matmul(128, 272, 64, sparse=False, b_swizzle=32),
    Matmul(128, 384, 128, sparse=False),
    Matmul(128, 496, 64, sparse=False, b_k_major=True),
    # Eight bits.
    Matmul(256, 128, 128, jnp.float8_e4m3fn, sparse=False),
    Matmul(256, 64, 128, (jnp.float8_e5m2, jnp.float8_e4m3fn), sparse=False,
           b_swizzle=64),
    Matmul(128, 384, 128, jnp.int8, acc_dtype=jnp.int32, sparse=False),
    Matmul(384, 128, 128, jnp.int8, acc_dtype=jnp.int32, sparse=False,
           b_k_major=True),
)

# N is halved over the lanes, one tile for each half.
_M_64 = (
    Matmul(64, 320, 64, sparse=False, b_swizzle=32),
    Matmul(64, 272, 64, sparse=False, b_k_major=True),
)


class MmaTilesTest(test_util.TestCase):

  @parameterized.parameters(*_MATMULS, *_M_64)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)

  def call(self, m, n, k, *, collective=False):
    """Emits a call whose operands are just types."""
    f16 = ir.F16Type.get()
    with ir.InsertionPoint(ir.Module.create().body):
      tcgen05.mma(
          test_util.tmem_ref((m, n * (1 + collective)), ir.F32Type.get()),
          test_util.smem_ref((m // 8, k // 16, 8, 16), f16),
          test_util.smem_ref((k // 8, n // 16, 8, 16), f16),
          a_swizzle=32,
          b_swizzle=32,
          collective=collective,
      )

  def test_wrong_m(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Only M=64 and multiples of 128 are supported for MMA, but got M=192",
    ):
      self.call(192, 64, 64)

  def test_collective_n(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Only N <= 128 per CTA are supported for collective MMA, but got N=256:"
        " a second N tile would interleave the columns of both CTAs. Issue one"
        " MMA for each slice of B and of the accumulator instead.",
    ):
      self.call(128, 256, 64, collective=True)

  def test_too_many_columns(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "MMA operands take 1024 TMEM columns (D: 1024), but only 512 are"
        " available. Use a smaller M, N or K in each call",
    ):
      self.call(512, 256, 64)

  @parameterized.parameters((128, 640), (256, 1024))
  def test_wrong_n(self, m, n):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Only N <= 512 are supported for MMA"
    ):
      self.call(m, n, 64)


if __name__ == "__main__":
  absltest.main()
