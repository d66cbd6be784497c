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
"""div, rcp and sqrt rounded to zero, down and up.

Also to nearest where the result is about the smallest normal number.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from . import snippet
from .floating import operands
from .snippet import Snippet, each

_FORMATS = {"f32": (32, 23), "f64": (64, 52)}


def _tiny_results(name: str, type_: str, count: int = 128) -> list[np.ndarray]:
  """Operands whose result is about the smallest normal number."""
  bits, mantissa = _FORMATS[type_]
  bias = (1 << (bits - 2 - mantissa)) - 1
  one = np.uint64(1 << mantissa)
  raw = snippet.random(f"tiny {name}{type_}", count, 64)
  near = raw % np.uint64(5) - np.uint64(2)
  sign = (raw >> np.uint64(8) & np.uint64(1)) << np.uint64(bits - 1)
  if name == "rcp":
    half = raw >> np.uint64(9) & np.uint64(1)  # The result is half of it.
    x = (np.uint64(2 * bias - 1) + half) * one + near
    return [(x | sign).astype(f"u{bits // 8}")]
  # a is as b, but for the exponent and the last bits.
  fraction = raw >> np.uint64(10) & np.uint64((1 << mantissa) - 1)
  exponent = np.uint64(bias) + raw % np.uint64(bias - 2)
  b = exponent * one + fraction
  a = b - np.uint64(bias - 1) * one + near
  return [v.astype(f"u{bits // 8}") for v in (a | sign, b)]


def snippets() -> Iterator[Snippet]:
  for type_, mode, ftz in itertools.product(
      ("f32", "f64"), ("rn", "rz", "rm", "rp"), ("", ".ftz")
  ):
    if type_ == "f64" and ftz:
      continue
    for name in ("div", "rcp", "sqrt"):
      opcode = f"{name}.{mode}{ftz}.{type_}"
      tiny = [] if name == "sqrt" else _tiny_results(name, type_)
      columns = operands(name, type_, 2 if name == "div" else 1, 640)
      if mode == "rn":
        columns = tiny
      elif tiny:
        columns = [np.concatenate(pair) for pair in zip(columns, tiny)]
      if not columns:
        continue
      letters = ", ".join(["%a", "%b"][: len(columns)])
      yield each(opcode, f"{opcode} %x, {letters};", columns, f"b{type_[1:]}")
