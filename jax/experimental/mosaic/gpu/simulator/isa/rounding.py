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
"""Correct rounding of arithmetic, in every rounding mode.

An exact result is first brought to float64 with the last bit as a sticky bit
("round to odd": if inexact, the neighbour with an odd mantissa). Rounding that
to a format of at most 51 bits gives what rounding the exact value would.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)

# What the hardware returns for any NaN. PTX ISA 9.7.3 ("NaN payloads"); f64
# keeps the payload of an operand.
_CANONICAL_NAN = {
    F32: np.array(0x7FFFFFFF, np.uint32).view(F32),
    F16: np.array(0x7FFF, np.uint16).view(F16),
    BF16: np.array(0x7FFF, np.uint16).view(BF16),
}


def canonical_nan(value):
  """Replaces every NaN by the one the hardware makes."""
  nan = value != value
  if nan.any() and value.dtype in _CANONICAL_NAN:
    return np.where(nan, _CANONICAL_NAN[value.dtype], value)
  return value


_MANTISSAS = {F16: 10, BF16: 7, F32: 23, F64: 52}


def quiet(value):
  """Sets the top bit of the mantissa of every NaN."""
  bits = np.dtype(f"u{value.dtype.itemsize}")
  top = bits.type(1 << (_MANTISSAS[value.dtype] - 1))
  quieted = (np.ascontiguousarray(value).view(bits) | top).view(value.dtype)
  return np.where(value != value, quieted.reshape(value.shape), value)


def convert_nan(value, dtype, quieted=True):
  """The NaNs of `value` in another format, with sign and upper payload."""
  m, n = _MANTISSAS[value.dtype], _MANTISSAS[dtype]
  bits = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
  bits = bits.astype(np.uint64).reshape(value.shape)
  payload = bits & np.uint64((1 << m) - 1)
  payload = payload << np.uint64(max(n - m, 0)) >> np.uint64(max(m - n, 0))
  sign = bits >> np.uint64(8 * value.dtype.itemsize - 1)
  width = 8 * dtype.itemsize
  exponent = (1 << (width - 1)) - (1 << n)
  if quieted:
    exponent |= 1 << (n - 1)
  result = sign << np.uint64(width - 1) | np.uint64(exponent) | payload
  return np.ascontiguousarray(result.astype(f"u{dtype.itemsize}")).view(dtype)


def flush(value):
  """Subnormal numbers become zero of the same sign (.ftz)."""
  tiny = ml_dtypes.finfo(value.dtype).tiny
  small = (abs(value) < tiny) & (value != 0)
  if not small.any():
    return value
  return np.where(small, np.copysign(value.dtype.type(0), value), value)


def _odd(total, error):
  """float64 `total`, made odd where the exact value is total + error."""
  inexact = (error != 0) & np.isfinite(total) & np.isfinite(error)
  if not inexact.any():
    return total
  bits = np.ascontiguousarray(total).view(np.int64)
  away = (error > 0) == (total > 0)
  moved = np.where(bits & 1, bits, bits + np.where(away, 1, -1))
  return np.where(inexact, moved, bits).view(F64)


def add_exact(a, b):
  """Sum of float64 values, rounded to odd."""
  total = np.asarray(a + b)
  part = total - a
  return _odd(total, (a - (total - part)) + (b - part))


def fma_exact(a, b, c):
  """a * b + c in float64, rounded to odd; a * b must be exact in float64."""
  return add_exact(a * b, c)


def _fma_f64_one(a, b, c):
  plain = a * b + c
  if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
    return plain
  exact = Fraction(a) * Fraction(b) + Fraction(c)
  if not exact:
    # The sum of zeros and an exact cancellation have their sign by IEEE rules.
    return plain if plain == 0 else 0.0
  try:
    return float(exact)
  except OverflowError:
    return np.inf if exact > 0 else -np.inf


fma_f64 = np.vectorize(_fma_f64_one, otypes=[np.float64])


def _sign_of_error_one(quotient, divisor, dividend):
  if not (math.isfinite(divisor) and math.isfinite(dividend)) or not divisor:
    return 0
  if math.isinf(quotient):
    return -1 if quotient > 0 else 1
  error = Fraction(dividend) / Fraction(divisor) - Fraction(quotient)
  return (error > 0) - (error < 0)


# Sign of dividend / divisor - quotient; 0 where that is infinite or NaN.
sign_of_error = np.vectorize(_sign_of_error_one, otypes=[np.int8])


def redirect(nearest, error, mode):
  """A result that was rounded to nearest, rounded with rz, rm or rp instead.

  Args:
    nearest: the result, not NaN where `error` is not 0.
    error: sign of the exact result minus `nearest`.
    mode: the rounding mode.
  """
  down, up = error < 0, error > 0
  if mode == "rz":
    down &= ~np.signbit(nearest)
    up &= np.signbit(nearest)
  elif mode == "rm":
    up = np.zeros_like(up)
  else:
    down = np.zeros_like(down)
  ends = [nearest.dtype.type(s * np.inf) for s in (-1, 1)]
  result = np.where(down, np.nextafter(nearest, ends[0]), nearest)
  return np.where(up, np.nextafter(nearest, ends[1]), result)


def round_to(value, dtype, mode="rn"):
  """Rounds float64 values (exact or rounded to odd) to `dtype`.

  Modes: rn nearest even, rna nearest away, rz to zero, rm down, rp up.
  """
  value = np.asarray(value)
  if mode == "rna":
    return _round_away(value, dtype)
  if dtype == BF16:
    # ml_dtypes goes through float32, which must not round on its own.
    result = _to_f32_odd(value).astype(BF16)
  else:
    result = value.astype(dtype)
  if mode == "rn" or dtype == F64:
    return result
  wide = result.astype(F64)
  down, up = wide > value, wide < value
  if mode == "rz":
    down, up = down & (value > 0), up & (value < 0)
  elif mode == "rm":
    up = np.zeros_like(up)
  else:
    down = np.zeros_like(down)
  # A result of zero keeps the sign of what was rounded to it.
  lowest, highest = dtype.type(-np.inf), dtype.type(np.inf)
  result = np.where(down, np.nextafter(result, lowest), result)
  result = np.where(up, np.nextafter(result, highest), result)
  zero = (result == 0) & (value != 0)
  return np.where(zero, np.copysign(result, value.astype(dtype)), result)


def _round_away(value, dtype):
  """To nearest, ties away from zero."""
  below = round_to(value, dtype, "rz")
  above = np.nextafter(
      below, np.where(value < 0, dtype.type(-np.inf), dtype.type(np.inf))
  )
  low, high = below.astype(F64), above.astype(F64)
  closer = np.abs(value - low) < np.abs(high - value)
  exact = (low == value) | ~np.isfinite(value)
  return np.where(closer | exact, below, above)


def _to_f32_odd(value):
  """float64 to float32, rounded to odd."""
  result = value.astype(F32)
  wide = result.astype(F64)
  inexact = (wide != value) & (value == value)
  if not inexact.any():
    return result
  bits = np.ascontiguousarray(result).view(np.int32)
  # Toward zero first (the largest number for an overflow), then odd.
  larger = np.abs(wide) > np.abs(value)
  bits = np.where(larger & inexact, bits - 1, bits)
  return np.where(inexact, bits | 1, bits).astype(np.int32).view(F32)


def int_to_f64(value):
  """Integers of up to 64 bits to float64, rounded to odd."""
  if value.dtype.itemsize < 8:
    return value.astype(F64)
  low = value & value.dtype.type(0xFFFFFFFF)
  return add_exact((value - low).astype(F64), low.astype(F64))


def int_to_f64_rounded(value, mode):
  """64-bit integers to float64 in any rounding mode."""
  low = value & value.dtype.type(0xFFFFFFFF)
  a, b = (value - low).astype(F64), low.astype(F64)
  total = a + b
  part = total - a
  error = (a - (total - part)) + (b - part)
  down, up = error < 0, error > 0
  if mode == "rz":
    down, up = down & (total > 0), up & (total < 0)
  elif mode == "rm":
    up = np.zeros_like(up)
  elif mode == "rp":
    down = np.zeros_like(down)
  else:
    return total
  total = np.where(down, np.nextafter(total, -np.inf), total)
  return np.where(up, np.nextafter(total, np.inf), total)


def saturate(value):
  """Clamps to [0, 1]; NaN becomes +0 (.sat)."""
  zero, one = value.dtype.type(0), value.dtype.type(1)
  return np.where(value > zero, np.where(value < one, value, one), zero)


def relu(value):
  """Clamps negative values to +0; NaN stays (canonical)."""
  return np.where(value > 0, value, np.where(value != value, value, 0)).astype(
      value.dtype
  )
