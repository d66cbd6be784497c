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
"""Tests of how arrays lie in the simulated global memory."""

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental.mosaic.gpu.simulator import buffers
import jax.numpy as jnp
import ml_dtypes
import numpy as np


class BuffersTest(parameterized.TestCase):

  @parameterized.parameters(
      jnp.float32, jnp.bfloat16, jnp.float8_e4m3fn, jnp.int8, jnp.uint32
  )
  def test_whole_bytes(self, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(1, 100, (3, 5)).astype(dtype)
    data = buffers.pack(x)
    self.assertEqual(data.size, buffers.num_bytes(x.shape, dtype))
    self.assertEqual(data.tobytes(), x.tobytes())
    self.assertFalse(np.shares_memory(data, x))
    np.testing.assert_array_equal(buffers.unpack(data, x.shape, x.dtype), x)

  @parameterized.parameters(
      (ml_dtypes.uint2, [1, 2, 3, 0, 2], [0b00111001, 0b10]),
      (ml_dtypes.int2, [1, -2, -1, 0, -2], [0b00111001, 0b10]),
      (ml_dtypes.uint4, [1, 15, 7], [0xF1, 0x7]),
      (ml_dtypes.int4, [1, -1, 7], [0xF1, 0x7]),
      (ml_dtypes.float4_e2m1fn, [0.5, -6.0, 3.0], [0xF1, 0x5]),
  )
  def test_less_than_a_byte(self, dtype, values, packed):
    x = np.array(values, dtype)
    data = buffers.pack(x)
    self.assertEqual(data.tolist(), packed)
    self.assertEqual(buffers.num_bytes(x.shape, dtype), len(packed))
    result = buffers.unpack(data, x.shape, dtype)
    np.testing.assert_array_equal(
        result.astype(np.float32), x.astype(np.float32)
    )

  @parameterized.parameters(
      (ml_dtypes.uint2, 2), (ml_dtypes.int2, 2), (ml_dtypes.uint4, 4),
      (ml_dtypes.int4, 4), (ml_dtypes.float4_e2m1fn, 4), (np.int8, None),
      (np.float16, None), (ml_dtypes.float8_e4m3fn, None), (np.uint32, None),
  )
  def test_sub_byte_bits(self, dtype, bits):
    self.assertEqual(buffers.sub_byte_bits(dtype), bits)

  def test_results_begin_poisoned(self):
    data = buffers.poisoned((4, 4), np.float32)
    self.assertTrue(np.isnan(data.view(np.float32)).all())


if __name__ == "__main__":
  absltest.main()
