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
"""Tests of tcgen05.mma with f32 operands (tf32), dense and 1:2 sparse."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax._src.lib.mlir import ir
from jax.experimental.mosaic.gpu import tcgen05
import numpy as np


Matmul = test_util.Tf32Matmul

_MATMULS = (
    Matmul(128, 128, 64, sparse=False),
    Matmul(256, 64, 64, sparse=False),
    Matmul(128, 320, 32, sparse=False),
    Matmul(128, 64, 64, sparse=False, a_swizzle=64, b_swizzle=32),
    Matmul(128, 64, 64, sparse=False, a_in_tmem=True),
    Matmul(128, 128, 64),
    Matmul(128, 64, 128, a_swizzle=64),
    Matmul(256, 64, 128),
    Matmul(384, 64, 64),
    Matmul(128, 320, 64),
    Matmul(256, 64, 64, a_in_tmem=True),
    # Two CTAs.
    Matmul(128, 64, 64, sparse=False, collective=True),
    Matmul(256, 64, 64, sparse=False, collective=True),
    Matmul(128, 64, 128, collective=True),
    Matmul(256, 64, 128, collective=True),
    Matmul(256, 64, 64, a_in_tmem=True, collective=True),
)


def _with_noise(rng, x):
  """Sets bits of the mantissas below half of the last bit of tf32."""
  noise = rng.integers(0, 2**12, x.shape, np.uint32)
  return (x.view(np.uint32) | noise).view(np.float32)


class Tf32Test(test_util.TestCase):

  @parameterized.parameters(*_MATMULS)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)

  @parameterized.parameters(
      Matmul(128, 64, 64, sparse=False),
      Matmul(128, 64, 64),
  )
  def test_lower_bits_are_ignored(self, matmul):
    rng = np.random.default_rng(1)
    (a, b, *metadata), *clean = matmul.random_args(rng)
    # Whether the 13 lower bits are rounded or cut off is not documented. What
    # is below half of the last bit that is taken vanishes either way.
    noisy = [_with_noise(rng, np.asarray(x)) for x in (a, b)]
    result = test_util.run(matmul.kernel(), *noisy, *metadata)
    matmul.assert_close(self, result, np.matmul(*clean))

  def test_errors(self):
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(ir.Module.create().body):
      with self.assertRaisesWithLiteralMatch(
          NotImplementedError,
          "MMA with element type f32 (tf32) only supports K-fastest operands:"
          " others need a swizzle with 32-byte atoms. Transpose the input",
      ):
        tcgen05.mma(
            test_util.tmem_ref((128, 64), f32),
            test_util.smem_ref((16, 2, 8, 32), f32),
            test_util.smem_ref((8, 2, 8, 32), f32),
        )


if __name__ == "__main__":
  absltest.main()
