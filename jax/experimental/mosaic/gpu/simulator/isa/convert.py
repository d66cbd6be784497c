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
"""Conversions: cvt. PTX ISA 9.7.9.21."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .. import errors
from ..table import instruction
from . import rounding
from .common import DTYPES, elementwise
from .rounding import F32, F64

_SECTION = "9.7.9.21 (cvt)"
_INTS = "s8|u8|s16|u16|s32|u32|s64|u64"
_FLOATS = "f16|bf16|f32|f64"

_TO_INTEGER = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil
}


def _clamp_to_int(value, dtype, nan):
  """Float64 integers to an integer type: clamps; NaN gives `nan`."""
  info = np.iinfo(dtype)
  low, high = float(info.min), float(info.max)  # The latter rounds up at 64.
  inside = (value > low) & (value < high)
  result = np.where(inside, value, 0).astype(dtype)
  result = np.where(value >= high, dtype.type(info.max), result)
  result = np.where(value <= low, dtype.type(info.min), result)
  return np.where(value != value, nan, result)


@instruction(
    f"cvt[.<sat>].<to:{_INTS}>.<type:{_INTS}>", "d, a", section=_SECTION
)
def int_to_int(op):
  to, dtype = DTYPES[op.to], DTYPES[op.type]
  if not op.sat:
    return elementwise(lambda a: a.astype(to), dtype, op.d, op.a)
  low = max(np.iinfo(to).min, np.iinfo(dtype).min)
  high = min(np.iinfo(to).max, np.iinfo(dtype).max)

  def function(a):
    return np.clip(a, dtype.type(low), dtype.type(high)).astype(to)

  return elementwise(function, dtype, op.d, op.a)


@instruction(
    f"cvt.<mode:rn|rz|rm|rp>[.<ftz>][.<sat>].<to:{_FLOATS}>.<type:{_INTS}>",
    "d, a", section=_SECTION,
)
def int_to_float(op):
  to, dtype = DTYPES[op.to], DTYPES[op.type]

  def function(a):
    if op.mode == "rn" and to in (F32, F64):
      result = a.astype(to)
    elif to == F64 and dtype.itemsize == 8:
      result = rounding.int_to_f64_rounded(a, op.mode)
    else:
      result = rounding.round_to(rounding.int_to_f64(a), to, op.mode)
    return rounding.saturate(result) if op.sat else result

  return elementwise(function, dtype, op.d, op.a)


@instruction(
    "cvt.<mode:rni|rzi|rmi|rpi>[.<ftz>][.<sat>]"
    f".<to:{_INTS}>.<type:{_FLOATS}>",
    "d, a", section=_SECTION,
)
def float_to_int(op):
  to, dtype = DTYPES[op.to], DTYPES[op.type]
  to_integer = _TO_INTEGER[op.mode]
  # A NaN gives 0, but only the top bit where 64 bits are on either side.
  nan = to.type(0)
  if dtype == F64 or to.itemsize == 8:
    unsigned = np.dtype(f"u{to.itemsize}")
    nan = unsigned.type(1 << (8 * to.itemsize - 1)).view(to)

  def function(a):
    if op.ftz:
      a = rounding.flush(a)
    return _clamp_to_int(to_integer(a.astype(F64)), to, nan)

  return elementwise(function, dtype, op.d, op.a)


@instruction(
    "cvt[.<mode:rn|rz|rm|rp|rna|rni|rzi|rmi|rpi>][.<ftz>][.<relu>]"
    f"[.<satfinite>][.<sat>].<to:{_FLOATS}>.<type:{_FLOATS}>",
    "d, a", section=_SECTION,
)
def float_to_float(op):
  to, dtype = DTYPES[op.to], DTYPES[op.type]
  narrows = to != dtype and to.itemsize <= dtype.itemsize
  if narrows and op.mode not in ("rn", "rz", "rm", "rp", "rna"):
    raise op.unsupported("a narrowing conversion needs a rounding mode.")
  if not narrows and op.mode in ("rna",):
    raise op.unsupported(".rna only where the conversion narrows.")
  return elementwise(_float_to_float(op, dtype, to), dtype, op.d, op.a)


def _float_to_float(op, dtype, to):
  """The conversion with the modifiers of `op`."""
  narrows = to != dtype and to.itemsize <= dtype.itemsize
  largest = np.asarray(ml_dtypes.finfo(to).max, to)
  ftz = op.__dict__.get("ftz")
  sat = op.__dict__.get("sat")

  def make_nan(a, result):
    nan = a != a
    if not nan.any():
      return result
    if F64 in (dtype, to):
      # The payload stays, but .ftz makes a NaN of f32 canonical first.
      source = rounding.canonical_nan(a) if ftz and dtype == F32 else a
      made = rounding.convert_nan(source, to)
    elif (dtype, to) == (rounding.BF16, F32):
      made = rounding.convert_nan(a, to, quieted=False)
    else:
      return rounding.canonical_nan(result)
    return np.where(nan, made, result)

  def function(a):
    # To f16, .ftz is without effect.
    if ftz and dtype == F32 and to != rounding.F16:
      a = rounding.flush(a)
    if op.mode in _TO_INTEGER:
      # Rounding to an integer keeps the sign of a zero.
      result = _TO_INTEGER[op.mode](a.astype(F64)).astype(to)
    elif not narrows:
      result = a.astype(to)
    elif op.mode == "rn" and dtype != F64:
      result = a.astype(to)
    else:
      result = rounding.round_to(a.astype(F64), to, op.mode)
    if op.satfinite:
      result = np.where(np.isinf(result), np.copysign(largest, result), result)
    result = make_nan(a, result)
    if ftz and to == F32:
      result = rounding.flush(result)
    if op.relu:
      result = rounding.relu(result)
    return rounding.saturate(result) if sat else result

  return function


@instruction(
    "cvt.<mode:rn|rz>[.<relu>][.<satfinite>].<to:f16x2|bf16x2>.f32",
    "d, a, b", section=_SECTION,
)
def pack_halves(op):
  """a goes to the upper half, b to the lower."""
  function = _float_to_float(op, F32, DTYPES[op.to.removesuffix("x2")])
  d, a, b = op.d, op.a, op.b

  def execute(step):
    pair = np.empty((step.n, 2), F32)
    pair[:, 0] = b.read(step, F32)
    pair[:, 1] = a.read(step, F32)
    d.write(step, function(pair).view(np.uint32)[:, 0])

  return execute


@instruction(
    "cvt.<mode:rna|rn|rz>[.<relu>][.<satfinite>].tf32.f32", "d, a",
    section=_SECTION,
)
def to_tf32(op):
  """Keeps 10 bits of the mantissa; the others become zero."""
  half = np.uint32(1 << 12)
  keep = np.uint32(0xFFFFE000)
  infinity, canonical = np.uint32(0x7F800000), np.uint32(0x7FFFE000)

  def function(a):
    bits = np.ascontiguousarray(a).view(np.uint32)
    if op.mode == "rn":
      rounded = bits + (half - np.uint32(1)) + (bits >> np.uint32(13) & 1)
    else:
      rounded = bits + half if op.mode == "rna" else bits
    nan = a != a
    result = np.where(np.isfinite(a), rounded, bits) & keep
    if op.mode != "rna":
      result = np.where(nan, canonical, result)
    if op.satfinite:
      # Also of a NaN, which becomes another one or the largest number.
      special = result & infinity == infinity
      result = np.where(special, result - np.uint32(1 << 13), result)
    if op.relu:
      result = np.where(~nan & (a <= 0), np.uint32(0), result)
    return result.view(F32)

  return elementwise(function, F32, op.d, op.a)


# 8-, 6- and 4-bit floating point.

_NARROW = {
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}
_FP8 = "e4m3x2|e5m2x2"
_FP6 = "e2m3x2|e3m2x2"
_NARROW_TYPES = f"{_FP8}|{_FP6}|e2m1x2"


def _to_narrow(value, name, relu):
  """float32 to the code of a narrow type, uint8; clamps to the largest."""
  dtype = _NARROW[name]
  largest = np.float32(ml_dtypes.finfo(dtype).max)
  nan = value != value
  clamped = np.clip(np.where(nan, np.float32(0), value), -largest, largest)
  code = clamped.astype(dtype).view(np.uint8)
  # A NaN is kept where the type has one; else it becomes the largest number.
  nan_code = 0x7F if name in ("e4m3", "e5m2") else (
      np.asarray(largest).astype(dtype).view(np.uint8).item()
  )
  code = np.where(nan, np.uint8(nan_code), code)
  if relu:
    code = np.where(~nan & np.signbit(value), np.uint8(0), code)
  return code


@instruction(
    f"cvt.rn.satfinite[.<relu>].<to:{_NARROW_TYPES}>.f32", "d, a, b",
    section=_SECTION,
)
@instruction(
    f"cvt.rn.satfinite[.<relu>].<to:{_NARROW_TYPES}>.<type:f16x2|bf16x2>",
    "d, a", section=_SECTION,
)
def to_narrow(op):
  """a goes to the upper element, b (or a's lower half) to the lower one."""
  name = op.to.removesuffix("x2")
  shift = 4 if name == "e2m1" else 8
  width = np.uint8 if name == "e2m1" else np.uint16
  sources = _pair_source(op)

  def execute(step):
    high, low = (_to_narrow(v, name, op.relu) for v in sources(step))
    code = high.astype(np.uint16) << np.uint16(shift) | low
    op.d.write(step, code.astype(width))

  return execute


def _pair_source(op):
  """A function of the step that gives (upper, lower) as float32."""
  if op.__dict__.get("b") is not None:
    return lambda step: (op.a.read(step, F32), op.b.read(step, F32))
  half = DTYPES[op.type.removesuffix("x2")]

  def read(step):
    bits = np.ascontiguousarray(op.a.read(step, np.uint32))
    pair = bits[..., None].view(half).astype(F32)
    return pair[..., 1], pair[..., 0]

  return read


@instruction(
    f"cvt.rn[.<relu>].<to:f16x2|bf16x2>.<type:{_NARROW_TYPES}>", "d, a",
    section=_SECTION,
)
def from_narrow(op):
  name = op.type.removesuffix("x2")
  half = DTYPES[op.to.removesuffix("x2")]
  shift, mask = (4, 15) if name == "e2m1" else (8, 255)
  width = np.uint8 if name == "e2m1" else np.uint16
  # At most 256 codes: a table of the results.
  codes = np.arange(256, dtype=np.uint8)
  if name[:2] != "e4" and name != "e5m2":
    codes &= {"e2m1": 15}.get(name, 63)
  values = codes.view(_NARROW[name]).astype(F32).astype(half)
  values = rounding.canonical_nan(values)
  if op.relu:
    values = rounding.relu(values)

  def execute(step):
    code = op.a.read(step, width)
    pair = np.stack(
        [values[code & mask], values[code >> shift & mask]], axis=-1
    )
    op.d.write(step, np.ascontiguousarray(pair).view(np.uint32)[..., 0])

  return execute


def _to_ue8m0(value, up, where):
  """float32 to the code of a power of two: exponent + 127; NaN gives 255."""
  if (value < 0).any():
    raise errors.UnsupportedPtxError(
        "Conversion of a negative number to ue8m0; expected a scale >= 0.",
        where(int(np.flatnonzero(np.ravel(value < 0))[0])),
    )
  bits = np.ascontiguousarray(value).view(np.uint32)
  exponent = bits >> np.uint32(23) & np.uint32(255)
  if up:
    mantissa = bits & np.uint32(0x7FFFFF)
    # 2**-127 has exponent 0 and the upper bit of the mantissa.
    above = np.where(exponent == 0, mantissa > 0x400000, mantissa != 0)
    exponent = exponent + above
  code = np.minimum(exponent, 254)
  return np.where(value != value, 255, code).astype(np.uint8)


@instruction(
    "cvt.<mode:rz|rp>.satfinite.ue8m0x2.f32", "d, a, b", section=_SECTION
)
@instruction(
    "cvt.<mode:rz|rp>.satfinite.ue8m0x2.<type:bf16x2>", "d, a",
    section=_SECTION,
)
def to_ue8m0(op):
  sources = _pair_source(op)

  def execute(step):
    high, low = (
        _to_ue8m0(v, op.mode == "rp", step.where) for v in sources(step)
    )
    op.d.write(step, high.astype(np.uint16) << np.uint16(8) | low)

  return execute


@instruction("cvt.rn.bf16x2.ue8m0x2", "d, a", section=_SECTION)
def from_ue8m0(op):
  codes = np.arange(256)
  values = np.where(codes == 255, np.nan, np.exp2(codes - 127.0))
  values = rounding.canonical_nan(values.astype(F32).astype(rounding.BF16))

  def execute(step):
    code = op.a.read(step, np.uint16)
    pair = np.stack([values[code & 255], values[code >> 8]], axis=-1)
    op.d.write(step, np.ascontiguousarray(pair).view(np.uint32)[..., 0])

  return execute
