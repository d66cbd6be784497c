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
"""Approximations: within a stated number of units in the last place.

Of every function there is a snippet with edge values (zeros, infinities, NaN,
subnormal numbers) and some with random operands of a range. The simulator
rounds the exact result, so the bounds are also those of the GPU's own error.
Zeros (with their sign), infinities and NaNs must agree in every bit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet, each

# Largest distance between the results of an H200 and the simulator's: in units
# in the last place, or absolute for functions that have zeros. All are as
# measured, but for that of tanh in f32 (120) and of sin and cos (2**-21.5).
BOUNDS: dict[str, tuple[int, float]] = {
    "ex2.f32": (2, 0),
    "lg2.f32": (1, 2.0**-22),
    "rcp.f32": (1, 0),
    "rsqrt.f32": (1, 0),
    "sqrt.f32": (1, 0),
    "sin.f32": (1, 2.0**-21),
    "cos.f32": (1, 2.0**-21),
    "tanh.f32": (128, 0),
    "div.f32": (2, 0),
    "tanh.f16": (1, 0),
    "tanh.bf16": (1, 0),
    "ex2.f16": (1, 0),
    "ex2.bf16": (1, 0),
    "rsqrt.f64": (1, 0),
}
COUNT = 2048


def _uniform(seed: str, low: float, high: float, count=COUNT) -> np.ndarray:
  unit = snippet.random(seed, count) / 2.0**32
  return (low + (high - low) * unit).astype(np.float32).view(np.uint32)


def _any(seed: str, count=COUNT) -> np.ndarray:
  """Positive normal numbers of all sizes (exponents 1 to 253)."""
  values = snippet.random(seed, count)
  exponent = 1 + (values >> np.uint32(23)) % np.uint32(253)
  return (values & np.uint32(0x7FFFFF)) | exponent << np.uint32(23)


def _signed(values: np.ndarray) -> np.ndarray:
  return values | (values & np.uint32(1)) << np.uint32(31)


# Function: ranges of operands, by name.
_RANGES = {
    "ex2": {
        "small": lambda s: _uniform(s, -1, 1),
        "medium": lambda s: _uniform(s, -100, 100),
        "large": lambda s: _uniform(s, -160, 140),
    },
    "lg2": {
        "all": _any,
        "near 1": lambda s: _uniform(s, 0.9, 1.1),
        "medium": lambda s: _uniform(s, 0.1, 10),
    },
    "rcp": {"all": lambda s: _signed(_any(s))},
    "rsqrt": {"all": _any},
    "sqrt": {"all": _any},
    "sin": {
        "small": lambda s: _uniform(s, -3.14159, 3.14159),
        "large": lambda s: _uniform(s, -50, 50),
    },
    "cos": {
        "small": lambda s: _uniform(s, -3.14159, 3.14159),
        "large": lambda s: _uniform(s, -50, 50),
    },
    "tanh": {
        "small": lambda s: _uniform(s, -1, 1),
        "large": lambda s: _uniform(s, -10, 10),
    },
}


def _bound(name: str, type_: str) -> str:
  """How to compare results of an opcode (and more text)."""
  ulps, absolute = BOUNDS[f"{name.partition('.')[0]}.{type_}"]
  return f"near:{type_}:{ulps}:{absolute}"


def snippets() -> Iterator[Snippet]:
  edges = np.resize(snippet.float_edges("f32"), 32)
  for function, ranges in _RANGES.items():
    for ftz in ("",) if function == "tanh" else ("", ".ftz"):
      opcode = f"{function}.approx{ftz}.f32"
      yield each(f"{opcode} special", f"{opcode} %x, %a;", [edges], "b32",
                 _bound(f"{opcode} special", "f32"))
      for name, make in ranges.items():
        key = f"{opcode} {name}"
        yield each(key, f"{opcode} %x, %a;", [make(key)], "b32",
                   _bound(key, "f32"))
  tiny = snippet.random("tiny", 512) & np.uint32(0x807FFFFF)
  for opcode in ("rcp.approx.f32", "rsqrt.approx.f32", "sqrt.approx.f32",
                 "lg2.approx.f32", "ex2.approx.f32", "sin.approx.f32",
                 "rcp.approx.ftz.f32", "rsqrt.approx.ftz.f32",
                 "sqrt.approx.ftz.f32", "lg2.approx.ftz.f32"):
    operand = tiny if opcode[:3] in ("rcp", "ex2", "sin") else (
        tiny & np.uint32(0x7FFFFFFF)
    )
    key = f"{opcode} subnormal"
    yield each(key, f"{opcode} %x, %a;", [operand], "b32", _bound(key, "f32"))
  yield from _division()
  yield from _halves()
  yield from _double()


def _division() -> Iterator[Snippet]:
  edges = snippet.float_edges("f32")
  two = [c[:512] for c in snippet.combinations([edges, edges])]
  for how in ("approx", "full"):
    for ftz in ("", ".ftz"):
      opcode = f"div.{how}{ftz}.f32"
      body = f"{opcode} %x, %a, %b;"
      key = f"{opcode} special"
      yield each(key, body, two, "b32", _bound(key, "f32"))
      for name, low, high in (("small", -10, 10), ("large", -1e20, 1e20)):
        key = f"{opcode} {name}"
        operands = [_uniform(f"{key}{i}", low, high) for i in (0, 1)]
        yield each(key, body, operands, "b32", _bound(key, "f32"))
      # Divisors of 2**126 to 2**128.
      key = f"{opcode} huge divisor"
      divisor = _uniform(f"{key}0", 2.0**126, 2.0**127.99, 512)
      dividend = _signed(_any(f"{key}1", 512))
      yield each(key, body, [dividend, divisor], "b32", _bound(key, "f32"))


def _halves() -> Iterator[Snippet]:
  for t in ("f16", "bf16"):
    random = snippet.float_values(f"half{t}", t, COUNT)
    edges = np.resize(snippet.float_edges(t), 32)
    for opcode in (f"tanh.approx.{t}", f"ex2.approx.{t}",
                   f"ex2.approx.ftz.{t}"):
      if opcode == "ex2.approx.bf16" or opcode == "ex2.approx.ftz.f16":
        continue
      for key, operand in ((f"{opcode} special", edges), (opcode, random)):
        yield each(key, f"{opcode} %x, %a;", [operand], "b16", _bound(key, t))
    two = random[::2] | random[1::2].astype(np.uint32) << np.uint32(16)
    for opcode in (f"tanh.approx.{t}x2", "ex2.approx.f16x2" if t == "f16" else
                   "ex2.approx.ftz.bf16x2"):
      yield each(opcode, f"{opcode} %x, %a;", [two], "b32", _bound(opcode, t))


def _double() -> Iterator[Snippet]:
  values = snippet.float_values("rsqrt64", "f64", 512)
  values &= np.uint64(0x7FFFFFFFFFFFFFFF)
  edges = np.resize(snippet.float_edges("f64"), 32)
  key = "rsqrt.approx.f64"
  for name, operand in ((key, values), (f"{key} special", edges)):
    yield each(name, f"{key} %x, %a;", [operand], "b64", _bound(name, "f64"))
