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
"""Tests of swizzle.py."""

import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator.swizzle import (
    pattern_bytes,
    swizzle,
)


class SwizzleTest(parameterized.TestCase):

  @parameterized.parameters((128, 8), (64, 4), (32, 2))
  def test_table(self, width, lines):
    # Chunk c of the 128-byte line number l moves to c ^ (l % lines).
    for address in range(0, 8192, 4):
      line, chunk, rest = address // 128, address // 16 % 8, address % 16
      want = line * 128 + (chunk ^ line % lines) * 16 + rest
      self.assertEqual(swizzle(np.array(address), width), want)

  @parameterized.parameters(0, 16)
  def test_none(self, width):
    address = np.arange(4096)
    np.testing.assert_array_equal(swizzle(address, width), address)

  @parameterized.parameters(32, 64, 128)
  def test_permutes_its_pattern_and_is_its_own_inverse(self, width):
    address = np.arange(3 * pattern_bytes(width))
    moved = swizzle(address, width)
    np.testing.assert_array_equal(np.sort(moved), address)
    np.testing.assert_array_equal(swizzle(moved, width), address)
    np.testing.assert_array_equal(
        swizzle(address + pattern_bytes(width), width),
        moved + pattern_bytes(width),
    )


if __name__ == "__main__":
  absltest.main()
