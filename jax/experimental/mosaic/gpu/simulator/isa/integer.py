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
"""Integer, logic, shift and comparison instructions."""

from __future__ import annotations

import numpy as np

from ..registers import ImmediateValue
from ..table import instruction
from .common import DTYPES, alternatives, elementwise, lanewise

INTS = alternatives("s16", "u16", "s32", "u32", "s64", "u64")
BITS = alternatives("b16", "b32", "b64")


# Arithmetic.


@instruction(
    f"<name:add|sub>.<type:{INTS}>", "d, a, b", section="9.7.1.1 (add)"
)
def add(op):
  function = {"add": np.add, "sub": np.subtract}[op.name]
  return elementwise(function, DTYPES[op.type], op.d, op.a, op.b)


@instruction("<name:add|sub>.sat.s32", "d, a, b", section="9.7.1.1 (add)")
def add_saturated(op):
  function = {"add": np.add, "sub": np.subtract}[op.name]

  def saturated(a, b):
    return _saturate_s32(function(a.astype(np.int64), b.astype(np.int64)))

  return elementwise(saturated, np.int32, op.d, op.a, op.b)


def _saturate_s32(value):
  info = np.iinfo(np.int32)
  return np.clip(value, info.min, info.max).astype(np.int32)


@instruction(
    "<name:add|min|max>.<type:s16x2|u16x2>", "d, a, b",
    section="9.7.1.1 (add), 9.7.1.13 (min)",
)
def packed_16(op):
  function = {"add": np.add, "min": np.minimum, "max": np.maximum}[op.name]
  return lanewise(function, DTYPES[op.type[:3]], op.d, op.a, op.b)


@instruction(f"mul.lo.<type:{INTS}>", "d, a, b", section="9.7.1.3 (mul)")
def mul_lo(op):
  return elementwise(np.multiply, DTYPES[op.type], op.d, op.a, op.b)


def _twice(dtype):
  """The integer type of twice the width."""
  return np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")


def _multiply_wide(dtype):
  wide = _twice(dtype)
  return lambda a, b: np.multiply(a.astype(wide), b.astype(wide))


def _multiply_high(dtype):
  """The upper half of the product of two integers of type `dtype`."""
  bits = 8 * dtype.itemsize
  if bits < 64:
    multiply = _multiply_wide(dtype)
    return lambda a, b: (multiply(a, b) >> bits).astype(dtype)

  def high_64(a, b):
    # Products of 32-bit halves; >> of a signed half keeps the sign.
    mask = dtype.type(0xFFFFFFFF)
    half = dtype.type(32)
    a0, a1 = (a & mask).astype(np.uint64), a >> half
    b0, b1 = (b & mask).astype(np.uint64), b >> half
    low = (a0 * b0) >> np.uint64(32)
    middle = a1 * b0.astype(dtype) + low.astype(dtype)
    middle2 = a0.astype(dtype) * b1 + (middle & mask)
    return a1 * b1 + (middle >> half) + (middle2 >> half)

  return high_64


@instruction(f"mul.hi.<type:{INTS}>", "d, a, b", section="9.7.1.3 (mul)")
def mul_hi(op):
  dtype = DTYPES[op.type]
  return elementwise(_multiply_high(dtype), dtype, op.d, op.a, op.b)


@instruction(
    "mul.wide.<type:s16|u16|s32|u32>", "d, a, b", section="9.7.1.3 (mul)"
)
def mul_wide(op):
  dtype = DTYPES[op.type]
  return elementwise(_multiply_wide(dtype), dtype, op.d, op.a, op.b)


@instruction(
    f"mad.<part:lo|hi>.<type:{INTS}>", "d, a, b, c", section="9.7.1.4 (mad)"
)
def mad(op):
  dtype = DTYPES[op.type]
  multiply = np.multiply if op.part == "lo" else _multiply_high(dtype)
  return elementwise(
      lambda a, b, c: multiply(a, b) + c, dtype, op.d, op.a, op.b, op.c
  )


@instruction("mad.hi.sat.s32", "d, a, b, c", section="9.7.1.4 (mad)")
def mad_hi_saturated(op):
  def function(a, b, c):
    high = (a.astype(np.int64) * b.astype(np.int64)) >> 32
    return _saturate_s32(high + c)

  return elementwise(function, np.int32, op.d, op.a, op.b, op.c)


@instruction(
    "mad.wide.<type:s16|u16|s32|u32>", "d, a, b, c", section="9.7.1.4 (mad)"
)
def mad_wide(op):
  dtype = DTYPES[op.type]
  wide = _twice(dtype)
  multiply = _multiply_wide(dtype)
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    product = multiply(a.read(step, dtype), b.read(step, dtype))
    d.write(step, product + c.read(step, wide))

  return execute


@instruction(
    "<name:mul24|mad24>.<part:lo|hi>.<type:s32|u32>", "d, a, b, c?",
    section="9.7.1.5 (mul24), 9.7.1.6 (mad24)",
)
def mul24(op):
  if (op.c is None) != (op.name == "mul24"):
    raise op.unsupported(f"{op.name} with this number of operands.")
  dtype = DTYPES[op.type]
  shift = 0 if op.part == "lo" else 16

  def function(a, b, *c):
    low = (x << dtype.type(8) >> dtype.type(8) for x in (a, b))
    x, y = (v.astype(np.int64) for v in low)
    result = ((x * y) >> shift).astype(dtype)
    return result + c[0] if c else result

  sources = [op.a, op.b] + ([] if op.c is None else [op.c])
  return elementwise(function, dtype, op.d, *sources)


@instruction(f"sad.<type:{INTS}>", "d, a, b, c", section="9.7.1.7 (sad)")
def sad(op):
  def function(a, b, c):
    return c + np.where(a < b, b - a, a - b)

  return elementwise(function, DTYPES[op.type], op.d, op.a, op.b, op.c)


def _magnitude(a):
  """|a| as unsigned, right for the smallest integer too."""
  if a.dtype.kind == "u":
    return a
  return np.where(a < 0, -a, a).astype(f"u{a.dtype.itemsize}")


@instruction(
    f"<name:div|rem>.<type:{INTS}>", "d, a, b",
    section="9.7.1.8 (div), 9.7.1.9 (rem)",
)
def div(op):
  """Rounds toward zero. By zero both give all ones, as on Hopper."""
  dtype = DTYPES[op.type]
  is_div = op.name == "div"

  def function(a, b):
    x, y = _magnitude(a), _magnitude(b)
    by_zero = y == 0
    y = np.where(by_zero, y.dtype.type(1), y)
    if is_div:
      result = (x // y).astype(dtype)
      result = np.where((a < 0) != (b < 0), -result, result)
      return np.where(by_zero, ~dtype.type(0), result)
    result = (x % y).astype(dtype)
    result = np.where(a < 0, -result, result)
    return np.where(by_zero, ~dtype.type(0), result)

  return elementwise(function, dtype, op.d, op.a, op.b)


@instruction(
    "<name:abs|neg>.<type:s16|s32|s64>", "d, a",
    section="9.7.1.10 (abs), 9.7.1.11 (neg)",
)
def absolute(op):
  function = {"abs": np.abs, "neg": np.negative}[op.name]
  return elementwise(function, DTYPES[op.type], op.d, op.a)


@instruction(
    f"<name:min|max>.<type:{INTS}>", "d, a, b",
    section="9.7.1.12 (min), 9.7.1.13 (max)",
)
def minimum(op):
  function = {"min": np.minimum, "max": np.maximum}[op.name]
  return elementwise(function, DTYPES[op.type], op.d, op.a, op.b)


@instruction(
    "<name:min|max>.relu.<type:s32|s16x2>", "d, a, b",
    section="9.7.1.12 (min), 9.7.1.13 (max)",
)
def minimum_relu(op):
  function = {"min": np.minimum, "max": np.maximum}[op.name]

  def relu(a, b):
    return np.maximum(function(a, b), a.dtype.type(0))

  if op.type == "s32":
    return elementwise(relu, np.int32, op.d, op.a, op.b)
  return lanewise(relu, np.int16, op.d, op.a, op.b)


@instruction(
    "dp4a.<atype:s32|u32>.<btype:s32|u32>", "d, a, b, c",
    section="9.7.1.23 (dp4a)",
)
def dp4a(op):
  signed = "s32" in (op.atype, op.btype)
  d, a, b, c = op.d, op.a, op.b, op.c
  types = [np.dtype("i1" if t == "s32" else "u1") for t in (op.atype, op.btype)]

  def execute(step):
    x, y = (
        np.ascontiguousarray(s.read(step, np.uint32))[..., None].view(t)
        for s, t in zip((a, b), types)
    )
    product = (x.astype(np.int64) * y).sum(axis=-1)
    accumulator = c.read(step, np.int32 if signed else np.uint32)
    d.write(step, (product + accumulator).astype(np.int64))

  return execute


# Arithmetic of several words: the carry is a register of its own.

_WORDS = "u32|s32|u64|s64"


def _add_carry(a, b, carry):
  """a + b + carry and the carry out, for unsigned integers."""
  partial = a + b
  total = partial + carry
  return total, (partial < a) | (total < partial)


@instruction(
    f"<name:add|sub>.<cc>.<type:{_WORDS}>", "d, a, b",
    section="9.7.2.1 (add.cc), 9.7.2.3 (sub.cc)",
)
@instruction(
    f"<name:addc|subc>[.<cc>].<type:{_WORDS}>", "d, a, b",
    section="9.7.2.2 (addc), 9.7.2.4 (subc)",
)
def add_with_carry(op):
  """Subtracts by adding ~b; the carry of sub is the borrow's opposite."""
  dtype = np.dtype(f"u{DTYPES[op.type].itemsize}")
  subtract, uses_carry = op.name.startswith("sub"), op.name.endswith("c")
  carry = op.context.carry
  d, a, b = op.d, op.a, op.b
  zero, one = dtype.type(0), dtype.type(1)

  def execute(step):
    x, y = a.read(step, dtype), b.read(step, dtype)
    if uses_carry:
      c = carry.read(step, np.bool_).astype(dtype)
    else:
      c = one if subtract else zero
    total, out = _add_carry(x, ~y if subtract else y, c)
    d.write(step, total)
    if op.cc:
      carry.write(step, out)

  return execute


@instruction(
    f"<name:mad>.<part:lo|hi>.<cc>.<type:{_WORDS}>", "d, a, b, c",
    section="9.7.2.5 (mad.cc)",
)
@instruction(
    f"<name:madc>.<part:lo|hi>[.<cc>].<type:{_WORDS}>", "d, a, b, c",
    section="9.7.2.6 (madc)",
)
def mad_with_carry(op):
  dtype = DTYPES[op.type]
  unsigned = np.dtype(f"u{dtype.itemsize}")
  multiply = np.multiply if op.part == "lo" else _multiply_high(dtype)
  uses_carry = op.name == "madc"
  carry = op.context.carry
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    product = np.asarray(multiply(a.read(step, dtype), b.read(step, dtype)))
    into = unsigned.type(0)
    if uses_carry:
      into = carry.read(step, np.bool_).astype(unsigned)
    total, out = _add_carry(
        product.view(unsigned), c.read(step, unsigned), into
    )
    d.write(step, total)
    if op.cc:
      carry.write(step, out)

  return execute


# Bits.


@instruction(
    f"<name:and|or|xor>.<type:pred|{BITS}>", "d, a, b",
    section="9.7.8.1 (and), 9.7.8.2 (or), 9.7.8.3 (xor)",
)
def logic(op):
  function = {
      "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor
  }[op.name]
  return elementwise(function, DTYPES[op.type], op.d, op.a, op.b)


@instruction(f"not.<type:pred|{BITS}>", "d, a", section="9.7.8.4 (not)")
def invert(op):
  return elementwise(np.invert, DTYPES[op.type], op.d, op.a)


@instruction(f"cnot.<type:{BITS}>", "d, a", section="9.7.8.5 (cnot)")
def cnot(op):
  dtype = DTYPES[op.type]
  return elementwise(lambda a: (a == 0).astype(dtype), dtype, op.d, op.a)


_ZERO, _ONES = np.uint32(0), np.uint32(0xFFFFFFFF)
# All functions of two bits, by their table: bit 2 b + c of it is the result.
_OF_TWO = (
    lambda b, c: _ZERO,
    lambda b, c: ~(b | c),
    lambda b, c: ~b & c,
    lambda b, c: ~b,
    lambda b, c: b & ~c,
    lambda b, c: ~c,
    lambda b, c: b ^ c,
    lambda b, c: ~(b & c),
    lambda b, c: b & c,
    lambda b, c: ~(b ^ c),
    lambda b, c: c,
    lambda b, c: ~b | c,
    lambda b, c: b,
    lambda b, c: b | ~c,
    lambda b, c: b | c,
    lambda b, c: _ONES,
)


@instruction("lop3.b32", "d, a, b, c, lut", section="9.7.8.6 (lop3)")
def lop3(op):
  lut = op.lut.value if isinstance(op.lut, ImmediateValue) else None
  if not isinstance(lut, int):
    raise op.unsupported("the table must be an integer constant.")
  lut &= 0xFF
  # The bits of the table are by a, b, c: the upper half is for a = 1.
  where_set, where_clear = _OF_TWO[lut >> 4], _OF_TWO[lut & 15]

  def function(a, b, c):
    return (a & where_set(b, c)) | (~a & where_clear(b, c))

  return elementwise(function, np.uint32, op.d, op.a, op.b, op.c)


def _shift(d, a, b, dtype, left):
  """Amounts are unsigned and clamp: a left shift by 32 gives 0."""
  function = np.left_shift if left else np.right_shift
  bits = 8 * dtype.itemsize
  fills = dtype.kind == "i"  # An arithmetic right shift fills with the sign.
  if isinstance(b, ImmediateValue):
    amount = b.read(None, np.uint32).item()
    if amount < bits or fills:
      by = np.array(min(amount, bits - 1), dtype)
      return elementwise(lambda x: function(x, by), dtype, d, a)
    return elementwise(np.zeros_like, dtype, d, a)

  def execute(step):
    value = a.read(step, dtype)
    amount = b.read(step, np.uint32)
    result = function(value, np.minimum(amount, bits - 1).astype(dtype))
    if not fills:
      result = np.where(amount < bits, result, dtype.type(0))
    d.write(step, result)

  return execute


@instruction(f"shl.<type:{BITS}>", "d, a, b", section="9.7.8.8 (shl)")
def shl(op):
  return _shift(op.d, op.a, op.b, DTYPES[op.type], left=True)


@instruction(f"shr.<type:{BITS}|{INTS}>", "d, a, b", section="9.7.8.9 (shr)")
def shr(op):
  return _shift(op.d, op.a, op.b, DTYPES[op.type], left=False)


@instruction(
    "shf.<side:l|r>.<mode:clamp|wrap>.b32", "d, a, b, c",
    section="9.7.8.7 (shf)",
)
def funnel_shift(op):
  left, wrap = op.side == "l", op.mode == "wrap"

  def function(a, b, c):
    both = b.astype(np.uint64) << np.uint64(32) | a
    amount = (c & np.uint32(31) if wrap else np.minimum(c, 32)).astype(
        np.uint64
    )
    if left:
      return ((both << amount) >> np.uint64(32)).astype(np.uint32)
    return (both >> amount).astype(np.uint32)

  return elementwise(function, np.uint32, op.d, op.a, op.b, op.c)


def _field(step, operand, bits):
  """The position or length of a bit field, int64.

  The ISA wants at most 255. The hardware takes the low 8 bits for fields of 32
  bits, and all for those of 64, which ptxas makes of several instructions.
  """
  value = operand.read(step, np.uint32)
  return (value & np.uint32(255) if bits == 32 else value).astype(np.int64)


@instruction(
    "bfe.<type:s32|u32|s64|u64>", "d, a, b, c", section="9.7.1.19 (bfe)"
)
def bfe(op):
  """Extracts c bits from bit b on; past the end the sign (or 0) fills."""
  dtype = DTYPES[op.type]
  bits = 8 * dtype.itemsize
  unsigned = np.dtype(f"u{dtype.itemsize}")
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    value = a.read(step, dtype)
    position, length = _field(step, b, bits), _field(step, c, bits)
    # To the top, then down again: the shift down fills as the type wants. A
    # field that ends above the top bit takes the top bit as its sign.
    top = np.clip(bits - position - length, 0, bits - 1)
    low = np.clip(position, 0, bits - 1)
    if dtype.kind == "u":
      result = value >> low.astype(dtype)
      result = np.where(position < bits, result, dtype.type(0))
      keep = np.minimum(length, bits - 1).astype(unsigned)
      mask = (unsigned.type(1) << keep) - unsigned.type(1)
      result = np.where(length < bits, result & mask, result)
    else:
      result = (value << top.astype(dtype)) >> (top + low).clip(
          0, bits - 1
      ).astype(dtype)
      result = np.where(
          position < bits, result, value >> dtype.type(bits - 1)
      )
    d.write(step, np.where(length == 0, dtype.type(0), result))

  return execute


@instruction("bfi.<type:b32|b64>", "f, a, b, c, d", section="9.7.1.20 (bfi)")
def bfi(op):
  """Puts the low d bits of a at bit c of b."""
  dtype = DTYPES[op.type]
  bits = 8 * dtype.itemsize
  f, a, b, c, d = op.f, op.a, op.b, op.c, op.d
  one, ones = dtype.type(1), ~dtype.type(0)

  def execute(step):
    source, into = a.read(step, dtype), b.read(step, dtype)
    position, length = _field(step, c, bits), _field(step, d, bits)
    keep = np.minimum(length, bits - 1).astype(dtype)
    mask = np.where(length < bits, (one << keep) - one, ones)
    by = np.minimum(position, bits - 1).astype(dtype)
    mask = np.where(position < bits, mask << by, dtype.type(0))
    f.write(step, into & ~mask | (source << by) & mask)

  return execute


@instruction(
    "bfind[.<shiftamt>].<type:s32|u32|s64|u64>", "d, a",
    section="9.7.1.17 (bfind)",
)
def bfind(op):
  """The highest bit that differs from the sign; all ones if there is none."""
  dtype = DTYPES[op.type]
  bits = 8 * dtype.itemsize

  def function(a):
    value = a ^ (a >> dtype.type(bits - 1)) if dtype.kind == "i" else a
    leading = _clz(value.view(f"u{dtype.itemsize}"))
    result = leading if op.shiftamt else bits - 1 - leading
    return np.where(leading == bits, 0xFFFFFFFF, result).astype(np.uint32)

  return elementwise(function, dtype, op.d, op.a)


def _clz(a):
  """Leading zeros of an unsigned integer, as int64."""
  bits = 8 * a.dtype.itemsize
  # frexp is exact for 32 bits; of 64 take the halves in turn.
  high = (a >> a.dtype.type(bits - 32)).astype(np.uint32)
  result = 32 - np.frexp(high.astype(np.float64))[1].astype(np.int64)
  if bits == 64:
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    low = 64 - np.frexp(low)[1].astype(np.int64)
    result = np.where(high == 0, low, result)
  return result


@instruction("clz.<type:b32|b64>", "d, a", section="9.7.1.16 (clz)")
def clz(op):
  return elementwise(_clz, DTYPES[op.type], op.d, op.a)


@instruction("popc.<type:b32|b64>", "d, a", section="9.7.1.15 (popc)")
def popc(op):
  return elementwise(np.bitwise_count, DTYPES[op.type], op.d, op.a)


@instruction("brev.<type:b32|b64>", "d, a", section="9.7.1.18 (brev)")
def brev(op):
  dtype = DTYPES[op.type]

  def function(a):
    data = np.ascontiguousarray(a)[..., None].view(np.uint8)
    bits = np.unpackbits(data, axis=-1, bitorder="little")[..., ::-1]
    data = np.packbits(bits, axis=-1, bitorder="little")
    return data.view(dtype)[..., 0]

  return elementwise(function, dtype, op.d, op.a)


@instruction(
    "bmsk.<mode:clamp|wrap>.b32", "d, a, b", section="9.7.1.22 (bmsk)"
)
def bmsk(op):
  """b ones from bit a on."""
  wrap = op.mode == "wrap"

  def function(a, b):
    a, b = a.astype(np.uint64), b.astype(np.uint64)
    if wrap:
      a, b = a & np.uint64(31), b & np.uint64(31)
    a, b = np.minimum(a, 32), np.minimum(b, 32)
    one = np.uint64(1)
    return (((one << b) - one) << a).astype(np.uint32)

  return elementwise(function, np.uint32, op.d, op.a, op.b)


# How the modes of prmt choose byte i of the result, given c & 3.
_PRMT_MODES = {
    "f4e": lambda i, c: c + i,
    "b4e": lambda i, c: (c - i) % 8,
    "rc8": lambda i, c: c,
    "ecl": lambda i, c: np.maximum(i, c),
    "ecr": lambda i, c: np.minimum(i, c),
    "rc16": lambda i, c: (c & 1) * 2 + i % 2,
}


@instruction(
    "prmt.b32[.<mode:f4e|b4e|rc8|ecl|ecr|rc16>]", "d, a, b, c",
    section="9.7.9.7 (prmt)",
)
def prmt(op):
  choose = None if op.mode is None else _PRMT_MODES[op.mode]
  selector = op.c.value if isinstance(op.c, ImmediateValue) else None
  if choose is None and isinstance(selector, int):
    nibbles = np.array([selector >> 4 * i & 15 for i in range(4)])
    return _prmt_constant(op, nibbles)

  def function(a, b, c):
    a, b, c = np.broadcast_arrays(a, b, c)
    both = np.stack([a, b], axis=-1)
    source = np.ascontiguousarray(both).view(np.uint8)  # [..., 8]
    i = np.arange(4)
    if choose is None:
      nibble = (c[..., None] >> (4 * i).astype(np.uint32)).astype(np.int64) & 15
    else:
      nibble = np.broadcast_to(
          choose(i, c[..., None].astype(np.int64) & 3), (*c.shape, 4)
      )
    result = np.take_along_axis(source, nibble & 7, axis=-1)
    sign = np.where(result & 0x80, 0xFF, 0).astype(np.uint8)
    result = np.where(nibble & 8, sign, result)
    return np.ascontiguousarray(result).view(np.uint32)[..., 0]

  return elementwise(function, np.uint32, op.d, op.a, op.b, op.c)


def _prmt_constant(op, nibbles):
  """prmt with a constant selector: the four nibbles of c."""
  index, signs = nibbles & 7, np.flatnonzero(nibbles & 8)
  d, a, b = op.d, op.a, op.b

  def execute(step):
    both = np.empty((step.n, 2), np.uint32)
    both[:, 0] = a.read(step, np.uint32)
    both[:, 1] = b.read(step, np.uint32)
    # `take` gives C order, which the view needs.
    result = both.view(np.uint8).take(index, axis=1)
    if signs.size:
      result[:, signs] = np.where(result[:, signs] & 0x80, 0xFF, 0)
    d.write(step, result.view(np.uint32)[:, 0])

  return execute


# Comparison and selection.

COMPARE_INT = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less,
    "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}
COMBINE = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    None: None,
}
_INT_COMPARISONS = "|".join(COMPARE_INT)


def setp(op, compare, dtype):
  """p = compare(a, b) combined with c; q = (not compare) combined with c."""
  combine = COMBINE[op.combine]
  if (op.c is None) != (combine is None):
    raise op.unsupported("expected a predicate operand c with .and/.or/.xor.")
  p, q, a, b, c = op.p, op.q, op.a, op.b, op.c
  if q is None and combine is None:
    return elementwise(compare, dtype, p, a, b)

  def execute(step):
    first = compare(a.read(step, dtype), b.read(step, dtype))
    second = None if q is None else ~first
    if combine is not None:
      other = c.read(step, np.bool_)
      first = combine(first, other)
      if second is not None:
        second = combine(second, other)
    if second is not None:
      q.write(step, second)
    p.write(step, first)

  return execute


@instruction(
    f"setp.<compare:{_INT_COMPARISONS}>[.<combine:and|or|xor>]"
    f".<type:{BITS}|{INTS}>",
    "p[|q], a, b, !c?", section="9.7.6.2 (setp)",
)
def setp_int(op):
  return setp(op, COMPARE_INT[op.compare], DTYPES[op.type])


# What `set` writes for true, by destination type.
SET_TRUE = {
    "u32": np.uint32(0xFFFFFFFF), "s32": np.int32(-1), "f32": np.float32(1),
    "u16": np.uint16(0xFFFF), "s16": np.int16(-1),
}


def set_value(op, compare, dtype):
  """d = true of the destination type where compare(a, b) [combined with c]."""
  combine = COMBINE[op.combine]
  if (op.c is None) != (combine is None):
    raise op.unsupported("expected a predicate operand c with .and/.or/.xor.")
  true = SET_TRUE[op.to]
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    value = compare(a.read(step, dtype), b.read(step, dtype))
    if combine is not None:
      value = combine(value, c.read(step, np.bool_))
    d.write(step, np.where(value, true, true.dtype.type(0)))

  return execute


@instruction(
    f"set.<compare:{_INT_COMPARISONS}>[.<combine:and|or|xor>]"
    f".<to:u32|s32|f32>.<type:{BITS}|{INTS}>",
    "d, a, b, !c?", section="9.7.6.1 (set)",
)
def set_int(op):
  return set_value(op, COMPARE_INT[op.compare], DTYPES[op.type])


@instruction(
    f"selp.<type:{BITS}|{INTS}|f32|f64>", "d, a, b, !c",
    section="9.7.6.3 (selp)",
)
def selp(op):
  # As bits, so that a NaN keeps its payload; a constant needs its type.
  dtype = np.dtype(f"u{DTYPES[op.type].itemsize}")
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    d.write(
        step,
        np.where(
            c.read(step, np.bool_), a.read(step, dtype), b.read(step, dtype)
        ),
    )

  return execute


@instruction(
    f"slct[.<ftz>].<type:{BITS}|{INTS}|f32|f64>.<ctype:s32|f32>",
    "d, a, b, c", section="9.7.6.4 (slct)",
)
def slct(op):
  """a where c >= 0 (a subnormal counts as 0 with .ftz), else b."""
  dtype = np.dtype(f"u{DTYPES[op.type].itemsize}")
  ctype = DTYPES[op.ctype]
  tiny = np.finfo(np.float32).tiny if op.ftz else 0
  d, a, b, c = op.d, op.a, op.b, op.c

  def execute(step):
    value = c.read(step, ctype)
    choose = value > -tiny if tiny else value >= 0
    d.write(step, np.where(choose, a.read(step, dtype), b.read(step, dtype)))

  return execute
