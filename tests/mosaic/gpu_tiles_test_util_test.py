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
"""Tests of the description of a matmul that other tests share."""

import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax.numpy as jnp
import numpy as np

Matmul = test_util.Matmul


class MatmulTest(test_util.TestCase):

  @parameterized.parameters(
      Matmul(128, 64, 128), Matmul(128, 128, 64, sparse=False),
      Matmul(128, 64, 256, dtype=jnp.int8, acc_dtype=jnp.int32, b_swizzle=64),
  )
  def test_single_tile(self, matmul):
    matmul.check(self)
    matmul.check_instructions(self)

  def test_wrong_element(self):
    matmul = Matmul(128, 64, 128)
    run = test_util.run

    def run_and_break(*args, **kwargs):
      result = np.array(run(*args, **kwargs))
      result[5, 7] += 1
      return result

    with (
        mock.patch.object(test_util, "run", run_and_break),
        self.assertRaisesRegex(AssertionError, "Not equal to tolerance"),
    ):
      matmul.check(self)

  @parameterized.parameters("d", "a", "b", "metadata", None)
  def test_wrong_instruction(self, operand):
    matmul = Matmul(128, 64, 128)
    read_mmas = test_util.read_mmas

    def read_and_break(ptx):
      first, *rest = read_mmas(ptx)
      if operand is None:
        return rest  # A part of the matmul is missing.
      # Two columns of TMEM, or 32 bytes of SMEM.
      changed = getattr(first, operand) + 2
      return [dataclasses.replace(first, **{operand: changed}), *rest]

    with mock.patch.object(test_util, "read_mmas", read_and_break):
      with self.assertRaises(AssertionError):
        matmul.check_instructions(self)


if __name__ == "__main__":
  absltest.main()
