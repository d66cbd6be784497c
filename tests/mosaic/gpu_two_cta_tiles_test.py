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
"""Tests of tcgen05.mma calls that two CTAs share, with several M tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax.numpy as jnp

E4M3 = jnp.float8_e4m3fn
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn


def _matmul(m, n, k, dtype=jnp.float16, **kwargs):
  return test_util.Matmul(m, n, k, dtype, collective=True, **kwargs)


_MATMULS = (
    # One tile, as before.
    _matmul(128, 128, 128, sparse=False),
    _matmul(128, 128, 256),
    # Several M tiles.
    _matmul(256, 64, 128, sparse=False),
    _matmul(256, 128, 64, jnp.bfloat16, sparse=False),
    _matmul(256, 64, 128, E4M3, sparse=False, b_swizzle=64),
    _matmul(256, 64, 128, jnp.int8, acc_dtype=jnp.int32, sparse=False,
            b_swizzle=64),
    _matmul(256, 112, 128, sparse=False, b_k_major=True, a_k_major=False),
    _matmul(256, 64, 256),
    _matmul(256, 112, 128, b_swizzle=32),
    _matmul(384, 64, 128, jnp.bfloat16),
    _matmul(256, 96, 256, E4M3, b_swizzle=32),
    _matmul(256, 96, 256, jnp.int8, acc_dtype=jnp.int32, b_swizzle=32),
    _matmul(256, 64, 256, b_k_major=True, a_k_major=False, a_swizzle=64),
    # Block scales.
    _matmul(128, 128, 256, E4M3, sparse=False, scale_dtype=E8M0,
            scale_block=32),
    _matmul(256, 64, 256, E4M3, sparse=False, b_swizzle=64, scale_dtype=E8M0,
            scale_block=32),
    _matmul(256, 64, 256, E2M1, sparse=False, b_k_major=True, scale_dtype=E4M3,
            scale_block=16),
    _matmul(256, 64, 256, E4M3, b_swizzle=64, scale_dtype=E8M0, scale_block=64),
    _matmul(256, 64, 512, E2M1, b_k_major=True, scale_dtype=E8M0,
            scale_block=64),
    # With M=64, the scales of each half of B have lanes of their own.
    _matmul(64, 64, 256, E4M3, sparse=False, b_swizzle=64, scale_dtype=E8M0,
            scale_block=32),
    _matmul(64, 128, 512, E2M1, sparse=False, b_k_major=True, scale_dtype=E4M3,
            scale_block=16),
)


class TwoCtaTilesTest(test_util.TestCase):

  @parameterized.parameters(*_MATMULS)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)


if __name__ == "__main__":
  absltest.main()
