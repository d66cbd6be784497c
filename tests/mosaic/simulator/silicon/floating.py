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
"""Correctly rounded floating-point arithmetic, minimum, comparison."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet, each

_SIGN = {"f16": 15, "bf16": 15, "f32": 31, "f64": 63}
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def operands(seed: str, type_: str, arity: int, count: int = 768):
  """Edges with edges, then random values; packed types have two of them."""
  scalar = type_.removesuffix("x2")
  columns = _scalar_operands(seed, scalar, arity, count)
  if scalar == type_:
    return columns
  other = _scalar_operands(seed + "upper", scalar, arity, count)
  return [
      lower | upper[::-1].astype(np.uint32) << np.uint32(16)
      for lower, upper in zip(columns, other)
  ]


def _scalar_operands(seed, type_, arity, count):
  edges = snippet.float_edges(type_)
  if arity == 1:
    grids = [edges]
  elif arity == 2:
    grids = snippet.combinations([edges, edges[::-1]])
  else:
    some = [edges[i::2] for i in (0, 1)]
    grids = snippet.combinations([some[0], some[1][::2], some[1][1::2]])
  keep = [g[: count * 5 // 8] for g in grids]
  if arity > 1:
    small = snippet.underflows(f"{seed}small", type_, count // 8)
    if arity == 3:
      # With a sum that is 0, or as small.
      third = snippet.random(f"{seed}third", count // 8) % np.uint32(4)
      sign = third.astype(np.uint64) << np.uint64(_SIGN[type_])
      third = np.where(third < 2, sign, third - 1)
      small.append(third.astype(small[0].dtype))
    keep = [np.concatenate(pair) for pair in zip(keep, small)]
  random = [
      snippet.float_values(f"{seed}{i}", type_, count) for i in range(arity)
  ]
  return [c[:count] for c in snippet.fill_up(keep, random)]


def _form(opcode, type_, arity, count=768):
  letters = ", ".join(["%a", "%b", "%c"][:arity])
  inputs = operands(opcode, type_, arity, count)
  bits = 32 if type_.endswith("x2") else int(type_.strip("bf"))
  return each(opcode, f"{opcode} %x, {letters};", inputs, f"b{bits}")


def snippets() -> Iterator[Snippet]:
  for mode, ftz, sat in itertools.product(
      ("", ".rn", ".rz", ".rm", ".rp"), ("", ".ftz"), ("", ".sat")
  ):
    for name in ("add", "sub", "mul"):
      yield _form(f"{name}{mode}{ftz}{sat}.f32", "f32", 2)
    if mode:
      yield _form(f"fma{mode}{ftz}{sat}.f32", "f32", 3)
  for ftz in ("", ".ftz"):
    for name in ("div", "rcp", "sqrt"):
      arity = 2 if name == "div" else 1
      yield _form(f"{name}.rn{ftz}.f32", "f32", arity)
    for name in ("abs", "neg"):
      yield _form(f"{name}{ftz}.f32", "f32", 1, 256)
  for name, ftz, nan, xorsign in itertools.product(
      ("min", "max"), ("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")
  ):
    yield _form(f"{name}{ftz}{nan}{xorsign}.f32", "f32", 2)
  yield from _halves()
  yield from _double()
  yield from _comparison()


def _halves() -> Iterator[Snippet]:
  for t in _HALVES:
    is_f16 = t.startswith("f16")
    for name, mode, ftz, sat in itertools.product(
        ("add", "sub", "mul"), ("", ".rn"), ("", ".ftz"), ("", ".sat")
    ):
      if is_f16 or not (ftz or sat):
        yield _form(f"{name}{mode}{ftz}{sat}.{t}", t, 2, 512)
    for ftz, sat in itertools.product(("", ".ftz"), ("", ".sat", ".relu")):
      if is_f16 or not (ftz or sat == ".sat"):
        yield _form(f"fma.rn{ftz}{sat}.{t}", t, 3, 512)
    for name, ftz, nan, xorsign in itertools.product(
        ("min", "max"), ("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")
    ):
      if is_f16 or not ftz:
        yield _form(f"{name}{ftz}{nan}{xorsign}.{t}", t, 2, 512)
    for name, ftz in itertools.product(("abs", "neg"), ("", ".ftz")):
      if is_f16 or not ftz:
        yield _form(f"{name}{ftz}.{t}", t, 1, 128)


def _double() -> Iterator[Snippet]:
  for name in ("add", "sub", "mul", "min", "max"):
    yield _form(f"{name}.f64", "f64", 2)
  yield _form("fma.rn.f64", "f64", 3)
  yield _form("div.rn.f64", "f64", 2)
  for name in ("rcp.rn", "sqrt.rn", "abs", "neg"):
    yield _form(f"{name}.f64", "f64", 1, 256)


_COMPARISONS = (
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
)


def _comparison() -> Iterator[Snippet]:
  for t in ("f32", "f64", "f16", "bf16"):
    inputs = operands(f"setp{t}", t, 2, 512)
    for ftz in ("", ".ftz") if t in ("f32", "f16") else ("",):
      for i in range(0, len(_COMPARISONS), 5):
        group = _COMPARISONS[i : i + 5]
        body = "\n".join(
            f"setp.{c}{ftz}.{t} %p{d}, %a, %b;" for d, c in zip("xyzuv", group)
        )
        yield each(
            f"setp{ftz}.{t} {' '.join(group)}", body, inputs,
            " ".join(["pred"] * len(group)),
        )
  for t in ("f16x2", "bf16x2"):
    inputs = operands(f"setp{t}", t, 2, 512)
    body = "\n".join(
        f"setp.{c}.{t} %p{p}|%p{q}, %a, %b;"
        for c, p, q in (("lt", "x", "y"), ("geu", "z", "u"), ("eq", "v", "w"))
    )
    yield each(f"setp.{t}", body, inputs, "pred pred pred pred pred pred")
  for t in ("f32", "f64"):
    (a,) = operands(f"testp{t}", t, 1, 256)
    tests = ("finite", "infinite", "number", "notanumber", "normal",
             "subnormal")
    body = "\n".join(
        f"testp.{test}.{t} %p{d}, %a;" for d, test in zip("xyzuvw", tests)
    )
    yield each(f"testp.{t}", body, [a], "pred pred pred pred pred pred")
    two = operands(f"copysign{t}", t, 2, 256)
    yield each(f"copysign.{t}", f"copysign.{t} %x, %a, %b;", two, f"b{t[1:]}")
  inputs = operands("setf32", "f32", 2, 512)
  yield each(
      "set.f32",
      "set.lt.u32.f32 %x, %a, %b;\nset.neu.f32.f32 %y, %a, %b;\n"
      "set.ge.ftz.s32.f32 %z, %a, %b;",
      inputs, "b32 b32 b32",
  )
  yield each(
      "setp.f32 combined",
      "setp.lt.f32 %p0, %b, %a;\n"
      "setp.gt.and.f32 %px|%py, %a, 0f3F800000, %p0;\n"
      "setp.leu.or.f32 %pz|%pu, %a, %b, !%p0;\n"
      "setp.eq.xor.ftz.f32 %pv|%pw, %a, %b, %p0;",
      inputs, "pred pred pred pred pred pred",
  )
