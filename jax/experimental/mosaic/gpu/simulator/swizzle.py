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
"""Swizzles of shared memory: XOR on absolute byte addresses.

PTX ISA 9.7.16.5 (shared memory layout of MMA operands) and 9.7.9.27 (tensor
maps). A swizzle of W bytes exchanges 16-byte chunks inside rows of W bytes; the
pattern repeats every 8 * W bytes.
"""

from __future__ import annotations

import numpy as np

# Bytes of a swizzled row -> mask of the address bits 7.. that are XORed into
# the address bits 4...
_MASKS = {0: 0, 16: 0, 32: 1, 64: 3, 128: 7}


def swizzle(address: np.ndarray, width: int) -> np.ndarray:
  """Physical addresses of logical ones; its own inverse.

  Args:
    address: absolute shared memory byte addresses, integer array (any shape).
    width: 32, 64 or 128; 0 or 16 for no swizzle.
  """
  mask = _MASKS[width]
  return address ^ (((address >> 7) & mask) << 4) if mask else address


def pattern_bytes(width: int) -> int:
  """After how many bytes the pattern of a swizzle repeats."""
  return max(8 * width, 16)
