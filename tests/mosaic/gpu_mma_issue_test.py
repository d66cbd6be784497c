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
"""Tests of the code that issues the instructions of a ``tcgen05.mma`` call."""

import re

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental.mosaic.gpu import tcgen05_issue
import jax.numpy as jnp

import gpu_tiles_test_util as test_util
import sass_util

Matmul = test_util.Matmul
E4M3, E2M1 = jnp.float8_e4m3fn, jnp.float4_e2m1fn
E8M0 = jnp.float8_e8m0fnu
# What the issue of an MMA may cost: three sums of pairs, and a part of the
# branches.
OTHERS_PER_MMA = 3.1

_CALLS = {
    "f16": Matmul(256, 128, 256),
    "f16_N_tiles": Matmul(128, 384, 128),
    "f16_4_M_tiles": Matmul(512, 96, 256, b_swizzle=64),
    "f16_36_MMAs": Matmul(384, 32, 384, b_swizzle=64),
    "f16_swizzle_64": Matmul(256, 64, 512, a_swizzle=64),
    "f16_collective": Matmul(256, 64, 512, collective=True),
    "f16_A_in_TMEM": Matmul(256, 128, 256, a_in_tmem=True),
    "f16_loop": Matmul(256, 128, 256, accumulate="loop"),
    "f16_argument": Matmul(256, 128, 256, accumulate="argument"),
    "f16_dense": Matmul(256, 128, 256, sparse=False),
    "f16_dense_loop": Matmul(256, 128, 256, sparse=False, accumulate="loop"),
    "f16_dense_512": Matmul(128, 512, 128, sparse=False),
    "f16_dense_A_in_TMEM": Matmul(256, 128, 256, sparse=False, a_in_tmem=True),
    "int8": Matmul(256, 128, 512, dtype=jnp.int8, acc_dtype=jnp.int32),
    "fp8": Matmul(512, 96, 512, dtype=E4M3, b_swizzle=32),
    "mxfp8": Matmul(
        256, 192, 512, dtype=E4M3, b_swizzle=64, scale_dtype=E8M0,
        scale_block=64,
    ),
    "mxfp8_dense": Matmul(
        256, 128, 256, dtype=E4M3, sparse=False, scale_dtype=E8M0,
        scale_block=32,
    ),
    "mxfp4": Matmul(
        256, 128, 512, dtype=E2M1, b_k_major=True, scale_dtype=E8M0,
        scale_block=64,
    ),
}


class MmaIssueTest(test_util.TestCase):

  @parameterized.named_parameters(_CALLS.items())
  def test_sass(self, matmul):
    sass = matmul.compiled.sass
    if sass is None:
      self.skipTest("Needs the nvidia-cuda-nvdisasm wheel")
    cost = sass_util.issue_cost(sass)
    self.assertLessEqual(cost.per_mma, OTHERS_PER_MMA)
    self.assertEqual(cost.spills, 0)

  def test_most_instructions(self):
    # SMEM has no room for the A of more.
    matmul = Matmul(384, 16, 288, sparse=False, a_swizzle=64, b_swizzle=32)
    groups = 54 // tcgen05_issue.GROUP
    self.assertLessEqual(groups, len(tcgen05_issue._UNUSED_ADDRESS_BITS))
    ptx = matmul.compiled.ptx
    self.assertEqual(ptx.count("tcgen05.mma."), 54)
    self.assertEqual(ptx.count("@never bra DONE;"), groups)
    matmul.check_instructions(self)
    matmul.check(self)

  @parameterized.parameters(
      Matmul(128, 256, 256), Matmul(64, 512, 64, sparse=False, b_swizzle=64)
  )
  def test_single_tile_has_a_block_for_each_instruction(self, matmul):
    blocks = re.findall(
        r"begin inline asm(.*?)end inline asm", matmul.compiled.ptx, re.DOTALL
    )
    counts = {block.count("tcgen05.mma.") for block in blocks}
    self.assertEqual(counts, {0, 1})
    self.assertNotIn("never", matmul.compiled.ptx)


if __name__ == "__main__":
  absltest.main()
