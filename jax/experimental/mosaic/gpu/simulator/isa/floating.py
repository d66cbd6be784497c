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
"""Floating-point arithmetic: f16, bf16, f32, f64 and their packed forms.

PTX ISA 9.7.3, 9.7.4 and 9.7.5. Results of .rn, .rz, .rm and .rp are correctly
rounded. Approximations are computed in float64 and rounded once, so they differ
from the hardware's by its error, a few units in the last place; how many is in
tests/mosaic/simulator/silicon/approximate.py. NaNs and what else the ISA leaves
open are as an H200 has them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ..table import instruction
from . import rounding
from .common import DTYPES, elementwise, lanewise
from .integer import COMBINE, set_value, setp
from .rounding import BF16, F32, F64

HALVES = "f16|f16x2|bf16|bf16x2"


def _element(type_):
  """The dtype of an element, and whether the type is packed."""
  packed = type_.endswith("x2")
  return DTYPES[type_.removesuffix("x2")], packed


def _apply(op, function, type_, *sources, ftz=False, sat=False, relu=False):
  """d = function(*sources), with the modifiers all arithmetic shares."""
  dtype, packed = _element(type_)

  def finished(*args):
    if ftz:
      args = map(rounding.flush, args)
    result = rounding.canonical_nan(function(*args))
    if ftz:
      result = rounding.flush(result)
    if sat:
      result = rounding.saturate(result)
    if relu:
      result = rounding.relu(result)
    return result

  how = lanewise if packed else elementwise
  return how(finished, dtype, op.d, *sources)


def _rounded(function, dtype, mode, ftz=False):
  """A function of float64 whose (odd) result is rounded to dtype.

  With .ftz what lies below the normal numbers before it is rounded is flushed.
  """
  tiny = float(ml_dtypes.finfo(dtype).tiny)

  def run(*args):
    exact = function(*[a.astype(F64) for a in args])
    if ftz:
      exact = np.where(np.abs(exact) < tiny, np.copysign(0.0, exact), exact)
    return rounding.round_to(exact, dtype, mode)

  return run


def _sum_down(a, b):
  """add_exact for rounding down, where x - x is -0."""
  total = rounding.add_exact(a, b)
  negative = (total == 0) & (np.signbit(a) | np.signbit(b))
  return np.where(negative, -0.0, total)


def _exact(name, mode):
  add = _sum_down if mode == "rm" else rounding.add_exact
  return {
      "add": add,
      "sub": lambda a, b: add(a, -b),
      "mul": np.multiply,
      "fma": lambda a, b, c: add(a * b, c),
  }[name]


_NATIVE = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _arithmetic(name, dtype, mode, ftz=False):
  # NumPy computes f16 and bf16 in float32, which is wide enough that rounding
  # twice does no harm; only products of bf16 can fall below its range. Sums
  # below the normal numbers are exact, so .ftz matters for products only.
  if mode == "rn" and not (name == "mul" and (dtype == BF16 or ftz)):
    return _NATIVE[name]
  return _rounded(_exact(name, mode), dtype, mode, ftz)


def _double(function, priority):
  """A function of float64 with the hardware's NaNs.

  Of several NaN operands the first in `priority` (indices) becomes the result,
  made quiet; a NaN out of numbers is negative.
  """
  generated = np.uint64(0xFFF8000000000000).view(F64)

  def run(*args):
    result = function(*args)
    nan = result != result
    if not nan.any():
      return result
    result = np.where(nan, generated, result)
    for i in reversed(priority):
      result = np.where(args[i] != args[i], rounding.quiet(args[i]), result)
    return result

  return run


@instruction(
    "<name:add|sub|mul>[.<mode:rn|rz|rm|rp>][.<ftz>][.<sat>].<type:f32|f32x2>",
    "d, a, b", section="9.7.3.3 (add), 9.7.3.4 (sub), 9.7.3.5 (mul)",
)
@instruction(
    f"<name:add|sub|mul>[.<mode:rn>][.<ftz>][.<sat>].<type:{HALVES}|f64>",
    "d, a, b", section="9.7.4.1 (add), 9.7.4.2 (sub), 9.7.4.3 (mul)",
)
def add(op):
  if op.type[0] == "b" and (op.ftz or op.sat):
    raise op.unsupported(f"{op.type} takes neither .ftz nor .sat.")
  if op.type == "f64" and (op.ftz or op.sat):
    raise op.unsupported("f64 takes neither .ftz nor .sat.")
  if op.type == "f32x2" and op.sat:
    raise op.unsupported("f32x2 does not take .sat.")
  function = _arithmetic(
      op.name, _element(op.type)[0], op.mode or "rn", op.ftz
  )
  if op.type == "f64":
    function = _double(function, (1, 0))
  return _apply(op, function, op.type, op.a, op.b, ftz=op.ftz, sat=op.sat)


@instruction(
    "<name:add|sub>[.<mode:rn|rz|rm|rp>][.<sat>].f32.<atype:f16|bf16>",
    "d, a, c", section="9.7.5.1 (add), 9.7.5.2 (sub)",
)
def add_mixed(op):
  function = _arithmetic(op.name, F32, op.mode or "rn")
  atype = DTYPES[op.atype]
  d, a, c = op.d, op.a, op.c

  def execute(step):
    result = function(a.read(step, atype).astype(F32), c.read(step, F32))
    result = rounding.canonical_nan(result)
    d.write(step, rounding.saturate(result) if op.sat else result)

  return execute


@instruction(
    "<name:fma|mad>[.<mode:rn|rz|rm|rp>][.<ftz>][.<sat>].<type:f32|f32x2>",
    "d, a, b, c", section="9.7.3.6 (fma), 9.7.3.7 (mad)",
)
@instruction(
    "<name:fma|mad>.<mode:rn>.<type:f64>", "d, a, b, c",
    section="9.7.3.6 (fma), 9.7.3.7 (mad)",
)
@instruction(
    f"<name:fma>.<mode:rn>[.<ftz>][.<sat>][.<relu>].<type:{HALVES}>",
    "d, a, b, c", section="9.7.4.4 (fma)",
)
def fma(op):
  dtype, _ = _element(op.type)
  modifiers = op.__dict__
  mode = op.mode or "rn"
  if op.type == "f64":
    function = _double(rounding.fma_f64, (1, 2, 0))
  else:
    function = _rounded(
        _exact("fma", mode), dtype, mode, modifiers.get("ftz")
    )
  return _apply(
      op, function, op.type, op.a, op.b, op.c, ftz=modifiers.get("ftz"),
      sat=modifiers.get("sat"), relu=modifiers.get("relu"),
  )


@instruction(
    "fma[.<mode:rn|rz|rm|rp>][.<sat>].f32.<atype:f16|bf16>", "d, a, b, c",
    section="9.7.5.3 (fma)",
)
def fma_mixed(op):
  mode = op.mode or "rn"
  function = _rounded(_exact("fma", mode), F32, mode)
  atype = DTYPES[op.atype]
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    result = function(
        a.read(step, atype), b.read(step, atype), c.read(step, F32)
    )
    result = rounding.canonical_nan(result)
    d.write(step, rounding.saturate(result) if op.sat else result)

  return execute


@instruction(
    "div.<how:rn|rz|rm|rp|approx|full>[.<ftz>].<type:f32>", "d, a, b",
    section="9.7.3.8 (div)",
)
@instruction(
    "div.<how:rn|rz|rm|rp>.<type:f64>", "d, a, b", section="9.7.3.8 (div)"
)
def div(op):
  ftz = op.__dict__.get("ftz")
  function = _divide_approximately if op.how == "approx" else np.divide
  if op.how in _DIRECTED:
    function = _directed("div", op.how, ftz)
  return _apply(op, function, op.type, op.a, op.b, ftz=ftz)


_DIRECTED = ("rz", "rm", "rp")


def _directed(name, mode, ftz):
  """div, rcp or sqrt in a directed rounding mode.

  With .ftz what lies below the normal numbers before it is rounded is flushed.
  """
  nearest, error = {
      "div": (np.divide, lambda q, a, b: rounding.sign_of_error(q, b, a)),
      "rcp": (
          lambda a: a.dtype.type(1) / a,
          lambda q, a: rounding.sign_of_error(q, a, np.ones_like(a)),
      ),
      "sqrt": (np.sqrt, lambda q, a: rounding.sign_of_error(q, q, a)),
  }[name]

  def function(*args):
    args = np.broadcast_arrays(*args)
    result = nearest(*args)
    sign = error(result, *args)
    redirected = rounding.redirect(result, sign, mode)
    if ftz:
      tiny, size = ml_dtypes.finfo(result.dtype).tiny, np.abs(result)
      smaller = np.where(np.signbit(result), sign > 0, sign < 0)
      flushed = (size < tiny) | ((size == tiny) & smaller)
      redirected = np.where(flushed, result * 0, redirected)
    return redirected

  return function


def _divide_approximately(a, b):
  """a / b as the product with 1 / b, which is 0 for |b| > 2**126."""
  huge = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
  zero = np.copysign(np.float32(0), b)
  return np.where(huge, a * zero, a / b)


def _sine(x, quarters):
  """Sine of the angle x plus a number of right angles.

  Like the hardware it goes by way of turns in float32, x times 1 / (2 pi)
  rounded toward zero, and flushes what is subnormal then.
  """
  exact = x * np.float64(np.float32(0.15915494))
  turns = rounding.flush(rounding.round_to(exact, F32, "rz")).astype(F64)
  part = np.where(np.abs(turns) < 0.5, turns, turns - np.rint(turns))
  part = np.where(part == 0, np.copysign(0.0, turns), part)
  nearest = np.rint(4 * part)
  # A zero keeps its sign.
  rest = np.where(nearest == 0, part, part - nearest / 4) * (2 * np.pi)
  sine, cosine = np.sin(rest), np.cos(rest)
  quadrant = np.where(np.isfinite(nearest), nearest, 0).astype(np.int64)
  return np.choose(
      (quadrant + quarters) % 4, [sine, cosine, -sine, -cosine]
  )


# Functions of one operand, computed in float64.
_FUNCTIONS = {
    "rcp": lambda x: 1.0 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": lambda x: _sine(x, 0),
    "cos": lambda x: _sine(x, 1),
    "tanh": np.tanh,
}


@instruction(
    "<name:rcp|sqrt>.<how:approx|rn|rz|rm|rp>[.<ftz>].<type:f32>", "d, a",
    section="9.7.3.13 (rcp), 9.7.3.15 (sqrt)",
)
@instruction(
    "<name:rcp|sqrt>.<how:rn|rz|rm|rp>.<type:f64>", "d, a",
    section="9.7.3.13 (rcp), 9.7.3.15 (sqrt)",
)
@instruction(
    "<name:rsqrt|ex2|lg2|sin|cos>.approx[.<ftz>].<type:f32>", "d, a",
    section="9.7.3.16 (rsqrt) to 9.7.3.21 (ex2)",
)
@instruction(
    "<name:rsqrt>.approx.<type:f64>", "d, a", section="9.7.3.16 (rsqrt)"
)
@instruction(
    "<name:tanh>.approx.<type:f32>", "d, a", section="9.7.3.22 (tanh)"
)
@instruction(
    f"<name:tanh>.approx.<type:{HALVES}>", "d, a", section="9.7.4.10 (tanh)"
)
@instruction(
    "<name:ex2>.approx[.<atype:ftz>].<type:f16|f16x2>", "d, a",
    section="9.7.4.11 (ex2)",
)
@instruction(
    "<name:ex2>.approx.<ftz>.<type:bf16|bf16x2>", "d, a",
    section="9.7.4.11 (ex2)",
)
def function_of_one(op):
  dtype, _ = _element(op.type)
  function = _rounded(_FUNCTIONS[op.name], dtype, "rn")
  modifiers = op.__dict__
  ftz = modifiers.get("ftz")
  if modifiers.get("how") in _DIRECTED:
    function = _directed(op.name, op.how, ftz)
  return _apply(op, function, op.type, op.a, ftz=ftz)


# Sign, minimum and maximum.


@instruction(
    f"<name:abs|neg>[.<ftz>].<type:f32|f64|{HALVES}>", "d, a",
    section="9.7.3.9 (abs), 9.7.3.10 (neg), 9.7.4.5 (neg)",
)
def sign(op):
  """A NaN becomes the canonical one; one of f64 only becomes quiet."""
  dtype, packed = _element(op.type)
  if op.ftz and dtype in (F64, BF16):
    raise op.unsupported(f"{op.type} does not take .ftz.")
  bits = np.dtype(f"u{dtype.itemsize}")
  top = bits.type(1 << (8 * dtype.itemsize - 1))

  def function(a):
    if op.ftz:
      a = rounding.flush(a)
    raw = np.ascontiguousarray(a).view(bits)
    result = (raw & ~top if op.name == "abs" else raw ^ top).view(dtype)
    if dtype == F64:
      return np.where(a != a, rounding.quiet(a), result)
    return rounding.canonical_nan(result)

  how = lanewise if packed else elementwise
  return how(function, dtype, op.d, op.a)


def _extreme(name, nan):
  """min or max of two: -0 < +0; one NaN loses, or wins with .NaN."""
  smaller = name == "min"

  def function(a, b):
    a, b = np.broadcast_arrays(a, b)
    a_first = (a < b) if smaller else (a > b)
    # Of two zeros, min takes a negative one and max a positive one.
    a_first |= (a == b) & (np.signbit(a) == smaller)
    result = np.where(a_first, a, b)
    a_nan, b_nan = a != a, b != b
    if a.dtype == F64:
      a, b = rounding.quiet(a), rounding.quiet(b)
    if nan:
      return np.where(a_nan, a, np.where(b_nan, b, result))
    return np.where(a_nan, b, np.where(b_nan, a, result))

  return function


@instruction(
    "<name:min|max>[.<ftz>][.<nan:NaN>][.<xorsign:xorsign.abs>]"
    f".<type:f32|f64|{HALVES}>",
    "d, a, b", section="9.7.3.11 (min), 9.7.3.12 (max), 9.7.4.7 (min)",
)
@instruction(
    "<name:min|max>[.<ftz>][.<nan:NaN>][.<abs>].<type:f32>", "d, a, b, c",
    section="9.7.3.11 (min), 9.7.3.12 (max)",
)
def minimum(op):
  dtype, _ = _element(op.type)
  modifiers = op.__dict__
  if dtype == F64 and (op.ftz or op.nan or modifiers.get("xorsign")):
    raise op.unsupported("f64 takes no modifiers.")
  if dtype == BF16 and op.ftz:
    raise op.unsupported("bf16 does not take .ftz.")
  two = _extreme(op.name, op.nan)
  function = two
  sources = [op.a, op.b]
  if modifiers.get("xorsign"):

    def function(a, b):
      sign = np.where(np.signbit(a) != np.signbit(b), -1, 1).astype(dtype)
      return np.copysign(two(abs(a), abs(b)), sign)

  elif modifiers.get("c") is not None:
    sources.append(op.c)
    absolute = abs if op.abs else (lambda x: x)

    def function(a, b, c):
      return two(two(absolute(a), absolute(b)), absolute(c))

  return _apply(op, function, op.type, *sources, ftz=op.ftz)


@instruction(
    "copysign.<type:f32|f64>", "d, a, b", section="9.7.3.2 (copysign)"
)
def copysign(op):
  # The sign of the first operand, the magnitude of the second.
  return elementwise(
      lambda a, b: np.copysign(b, a), DTYPES[op.type], op.d, op.a, op.b
  )


def _is_subnormal(a):
  return (np.abs(a) < np.finfo(a.dtype).tiny) & (a != 0)


_TESTS = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: a == a,
    "notanumber": np.isnan,
    # Zeros count as normal.
    "normal": lambda a: np.isfinite(a) & ~_is_subnormal(a),
    "subnormal": _is_subnormal,
}


@instruction(
    f"testp.<test:{'|'.join(_TESTS)}>.<type:f32|f64>", "p, a",
    section="9.7.3.1 (testp)",
)
def testp(op):
  return elementwise(_TESTS[op.test], DTYPES[op.type], op.p, op.a)


# Comparison. The forms with `u` are true if an operand is NaN.


def _ordered(a, b):
  return (a == a) & (b == b)


COMPARE = {
    "eq": np.equal,
    "ne": lambda a, b: (a != b) & _ordered(a, b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": lambda a, b: (a == b) | ~_ordered(a, b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": _ordered,
    "nan": lambda a, b: ~_ordered(a, b),
}
_COMPARISONS = "|".join(COMPARE)


def _flushed(compare, ftz):
  if not ftz:
    return compare
  return lambda a, b: compare(rounding.flush(a), rounding.flush(b))


@instruction(
    f"setp.<compare:{_COMPARISONS}>[.<combine:and|or|xor>][.<ftz>]"
    ".<type:f32|f64|f16|bf16>",
    "p[|q], a, b, !c?", section="9.7.6.2 (setp), 9.7.7.2 (setp)",
)
def setp_float(op):
  if op.ftz and op.type in ("f64", "bf16"):
    raise op.unsupported(f"{op.type} does not take .ftz.")
  compare = _flushed(COMPARE[op.compare], op.ftz)
  return setp(op, compare, DTYPES[op.type])


@instruction(
    f"setp.<compare:{_COMPARISONS}>[.<combine:and|or|xor>][.<ftz>]"
    ".<type:f16x2|bf16x2>",
    "p|q, a, b, !c?", section="9.7.7.2 (setp)",
)
def setp_packed(op):
  """p is of the lower elements, q of the upper ones."""
  if (op.c is None) != (op.combine is None):
    raise op.unsupported("expected a predicate operand c with .and/.or/.xor.")
  dtype, _ = _element(op.type)
  compare = _flushed(COMPARE[op.compare], op.ftz)
  combine = COMBINE[op.combine]

  def execute(step):
    a, b = (
        np.ascontiguousarray(s.read(step, np.uint32))[..., None].view(dtype)
        for s in (op.a, op.b)
    )
    result = compare(a, b)
    if combine is not None:
      result = combine(result, op.c.read(step, np.bool_)[..., None])
    op.p.write(step, result[..., 0])
    op.q.write(step, result[..., 1])

  return execute


@instruction(
    f"set.<compare:{_COMPARISONS}>[.<combine:and|or|xor>][.<ftz>]"
    ".<to:u32|s32|f32|u16|s16>.<type:f32|f64|f16|bf16>",
    "d, a, b, !c?", section="9.7.6.1 (set), 9.7.7.1 (set)",
)
def set_float(op):
  compare = _flushed(COMPARE[op.compare], op.ftz)
  return set_value(op, compare, DTYPES[op.type])
