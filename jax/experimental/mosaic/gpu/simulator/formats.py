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
"""Number formats of matrix operands and scale factors, as float64 tables.

Element formats of PTX ISA 9.7.16.3 and scale factors of 9.7.16.10. Every value
of every format here, and every product of two, is exact in float64.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Format:
  """A format of up to 16 bits.

  Attributes:
    bits: width of an element.
    exponent, mantissa: widths of the fields; exponent 0 is an integer.
    bias: exponent bias.
    signed: whether the top bit is a sign.
    specials: "ieee" (all-ones exponent is inf or NaN), "nan" (all ones in
      exponent and mantissa is NaN), or "" (all finite).
  """

  bits: int
  exponent: int
  mantissa: int
  bias: int = 0
  signed: bool = True
  specials: str = ""


FORMATS = {
    "f16": Format(16, 5, 10, 15, specials="ieee"),
    "bf16": Format(16, 8, 7, 127, specials="ieee"),
    "tf32": Format(32, 8, 10, 127, specials="ieee"),
    "e4m3": Format(8, 4, 3, 7, specials="nan"),
    "e5m2": Format(8, 5, 2, 15, specials="ieee"),
    "e2m3": Format(6, 2, 3, 1),
    "e3m2": Format(6, 3, 2, 3),
    "e2m1": Format(4, 2, 1, 1),
    "u8": Format(8, 0, 8, signed=False),
    "s8": Format(8, 0, 7),
    # Scale factors. The sign bit of ue4m3 is ignored.
    "ue8m0": Format(8, 8, 0, 127, signed=False, specials="nan"),
    "ue4m3": Format(8, 4, 3, 7, specials="nan"),
}


@functools.cache
def table(name: str) -> np.ndarray:
  """float64 value of every bit pattern (1 << bits of them)."""
  fmt = FORMATS[name]
  raw = np.arange(1 << fmt.bits)
  if not fmt.exponent:
    values = raw.astype(np.float64)
    if fmt.signed:
      values -= (raw >> fmt.bits - 1) * float(1 << fmt.bits)
  elif not fmt.mantissa:  # ue8m0: a bare power of two.
    values = np.ldexp(1.0, raw - fmt.bias)
    values[-1] = np.nan
  else:
    ones = (1 << fmt.exponent) - 1
    exponent = raw >> fmt.mantissa & ones
    mantissa = raw & (1 << fmt.mantissa) - 1
    normal = exponent > 0
    significand = mantissa + np.where(normal, 1 << fmt.mantissa, 0)
    power = np.maximum(exponent, 1) - fmt.bias - fmt.mantissa
    values = np.ldexp(significand.astype(np.float64), power)
    if fmt.specials == "ieee":
      values[(exponent == ones) & (mantissa == 0)] = np.inf
      values[(exponent == ones) & (mantissa != 0)] = np.nan
    elif fmt.specials == "nan":
      last = (1 << fmt.mantissa) - 1
      values[(exponent == ones) & (mantissa == last)] = np.nan
    negative = (raw >> fmt.bits - 1 & 1).astype(np.bool_)
    if name != "ue4m3":
      values = np.where(negative, -values, values)
  values.flags.writeable = False
  return values


def decode(name: str, raw: np.ndarray) -> np.ndarray:
  """float64 values of bit patterns, an unsigned integer array."""
  if name == "tf32":
    # A float32 of which the tensor core takes the upper 10 mantissa bits. What
    # becomes of the others is not documented; they are cut off here.
    return (raw & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
  return table(name).take(raw)


def unpack_nibbles(data: np.ndarray) -> np.ndarray:
  """uint8 [..., n] -> uint8 [..., 2n], the low nibble first."""
  result = np.empty((*data.shape[:-1], 2 * data.shape[-1]), np.uint8)
  result[..., 0::2] = data & 15
  result[..., 1::2] = data >> 4
  return result
