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
"""Rounding of exact rationals to floating-point formats, for references."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import ml_dtypes
import numpy as np


@dataclasses.dataclass(frozen=True)
class Format:
  """A binary format: bits of precision and the range of exponents."""

  dtype: np.dtype
  precision: int
  emin: int  # Exponent of the smallest normal number.
  emax: int

  @property
  def largest(self) -> Fraction:
    return (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.emax


FORMATS = {
    "f16": Format(np.dtype(np.float16), 11, -14, 15),
    "bf16": Format(np.dtype(ml_dtypes.bfloat16), 8, -126, 127),
    "f32": Format(np.dtype(np.float32), 24, -126, 127),
    "f64": Format(np.dtype(np.float64), 53, -1022, 1023),
    "tf32": Format(np.dtype(np.float32), 11, -126, 127),
    "e4m3": Format(np.dtype(ml_dtypes.float8_e4m3fn), 4, -6, 8),
    "e5m2": Format(np.dtype(ml_dtypes.float8_e5m2), 3, -14, 15),
}


def round_fraction(value: Fraction, form: Format, mode: str = "rn") -> float:
  """Rounds to the format; mode rn, rna, rz, rm or rp. Overflow by IEEE."""
  if not value:
    return 0.0
  magnitude = abs(value)
  exponent = max(_exponent(magnitude), form.emin)
  unit = Fraction(2) ** (exponent - form.precision + 1)
  steps, rest = divmod(magnitude, unit)
  negative = value < 0
  up = {
      "rn": rest * 2 > unit or (rest * 2 == unit and steps % 2 == 1),
      "rna": rest * 2 >= unit,
      "rz": False,
      "rm": negative and rest > 0,
      "rp": not negative and rest > 0,
  }[mode]
  result = (steps + up) * unit
  if result > form.largest:
    toward_zero = mode == "rz" or mode == ("rp" if negative else "rm")
    result = form.largest if toward_zero else float("inf")
  return -float(result) if negative else float(result)


def _exponent(magnitude: Fraction) -> int:
  exponent = (
      magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
  )
  return exponent - (magnitude < Fraction(2) ** exponent)


def apply(function, form: Format, mode: str, *inputs: np.ndarray) -> np.ndarray:
  """Exact `function` of finite inputs, rounded; NaN where one is not finite."""
  result = []
  for row in zip(*(np.asarray(i, np.float64).tolist() for i in inputs)):
    if np.isfinite(row).all():
      exact = function(*(Fraction(v) for v in row))
      result.append(round_fraction(exact, form, mode))
    else:
      result.append(np.nan)
  return np.array(result).astype(form.dtype)
