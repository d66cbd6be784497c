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
"""Moves arrays into the simulated global memory and back.

Elements of less than a byte lie packed in a GPU's memory, the first one in the
lowest bits, while NumPy gives each a byte of its own.
"""

from __future__ import annotations

import numpy as np

# Results begin as NaNs (or all ones), so that elements a kernel leaves out show.
_POISON = 0xFF


def sub_byte_bits(dtype) -> int | None:
  """Bits of an element if it takes less than a byte, otherwise None."""
  name = np.dtype(dtype).name
  for prefix in ("int", "uint", "float"):
    digits = name.removeprefix(prefix).split("_")[0]
    if name.startswith(prefix) and digits in ("2", "4"):
      return int(digits)
    if name.startswith(prefix) and digits.startswith("4e"):
      return 4
  return None


def num_bytes(shape: tuple[int, ...], dtype) -> int:
  """Bytes that an array takes in global memory."""
  size = int(np.prod(shape, dtype=np.int64))
  bits = sub_byte_bits(dtype)
  if bits is None:
    return size * np.dtype(dtype).itemsize
  return -(-size * bits // 8)


def pack(array: np.ndarray) -> np.ndarray:
  """Returns the bytes of an array in global memory, a writable uint8 array."""
  bits = sub_byte_bits(array.dtype)
  flat = np.ascontiguousarray(array).reshape(-1)
  if bits is None:
    return np.array(flat.view(np.uint8))
  per_byte = 8 // bits
  # ml_dtypes keeps the bits of an element in the lower bits of its byte.
  values = flat.view(np.uint8) & ((1 << bits) - 1)
  padded = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
  padded[:values.size] = values
  groups = padded.reshape(-1, per_byte)
  packed = np.zeros(groups.shape[0], np.uint8)
  for i in range(per_byte):
    packed |= groups[:, i] << (bits * i)
  return packed


def unpack(data: np.ndarray, shape: tuple[int, ...], dtype) -> np.ndarray:
  """Returns the array that lies in the given bytes."""
  dtype = np.dtype(dtype)
  bits = sub_byte_bits(dtype)
  if bits is None:
    return data.view(dtype).reshape(shape)
  per_byte = 8 // bits
  size = int(np.prod(shape, dtype=np.int64))
  values = np.empty((data.size, per_byte), np.uint8)
  for i in range(per_byte):
    values[:, i] = (data >> (bits * i)) & ((1 << bits) - 1)
  values = values.reshape(-1)[:size]
  if dtype.kind == "i" or dtype.name.startswith("int"):
    sign = 1 << (bits - 1)
    values = ((values ^ sign) - sign).astype(np.uint8)
  return values.view(dtype).reshape(shape)


def poisoned(shape: tuple[int, ...], dtype) -> np.ndarray:
  """Returns the bytes of a result that is yet to be written."""
  return np.full(num_bytes(shape, dtype), _POISON, np.uint8)
