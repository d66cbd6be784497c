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
"""Integer instructions against Python's unbounded integers."""

from __future__ import annotations

import zlib

import numpy as np
import snippets
from absl.testing import absltest, parameterized

DTYPES = {
    f"{k}{n}": np.dtype(f"{name}{n}")
    for k, name in (("s", "int"), ("u", "uint"), ("b", "uint"))
    for n in (8, 16, 32, 64)
}
INTS = ("s16", "u16", "s32", "u32", "s64", "u64")
BITS = ("b16", "b32", "b64")


def wrap(values, dtype) -> np.ndarray:
  """Python integers to an integer type, modulo its size."""
  dtype = np.dtype(dtype)
  bits = 8 * dtype.itemsize
  unsigned = [int(v) & ((1 << bits) - 1) for v in values]
  return np.array(unsigned, f"uint{bits}").view(dtype)


def truncated_div(a: int, b: int) -> int:
  quotient = abs(a) // abs(b)
  return -quotient if (a < 0) != (b < 0) else quotient


def bits_of(value: int, width: int) -> int:
  return value & ((1 << width) - 1)


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))

  def check(self, body, inputs, out, reference):
    """Compares with `reference` of Python integers, element by element."""
    actual = snippets.each(body, *inputs, out=out)
    expected = wrap(
        [reference(*row) for row in zip(*(i.tolist() for i in inputs))], out
    )
    np.testing.assert_array_equal(actual, expected)

  def operands(self, dtype, count=2):
    return [snippets.ints(self.rng, dtype) for _ in range(count)]


class ArithmeticTest(_Base):

  @parameterized.product(
      type_=INTS,
      case=(
          ("add", lambda a, b: a + b),
          ("sub", lambda a, b: a - b),
          ("mul.lo", lambda a, b: a * b),
          ("min", min),
          ("max", max),
          ("div", truncated_div),
          ("rem", lambda a, b: a - b * truncated_div(a, b)),
      ),
  )
  def test_binary(self, type_, case):
    name, reference = case
    dtype = DTYPES[type_]
    self.check(
        f"{name}.{type_} %x, %a, %b;", self.operands(dtype), dtype, reference
    )

  @parameterized.parameters(*INTS)
  def test_mul_hi(self, type_):
    dtype = DTYPES[type_]
    bits = 8 * dtype.itemsize
    self.check(
        f"mul.hi.{type_} %x, %a, %b;", self.operands(dtype), dtype,
        lambda a, b: a * b >> bits,
    )

  @parameterized.product(type_=INTS, part=("lo", "hi"))
  def test_mad(self, type_, part):
    dtype = DTYPES[type_]
    shift = 8 * dtype.itemsize if part == "hi" else 0
    self.check(
        f"mad.{part}.{type_} %x, %a, %b, %c;", self.operands(dtype, 3), dtype,
        lambda a, b, c: (a * b >> shift) + c,
    )

  @parameterized.parameters("s16", "u16", "s32", "u32")
  def test_wide(self, type_):
    dtype = DTYPES[type_]
    wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
    a, b = self.operands(dtype)
    c = snippets.ints(self.rng, wide)
    self.check(
        f"mul.wide.{type_} %x, %a, %b;", [a, b], wide, lambda a, b: a * b
    )
    self.check(
        f"mad.wide.{type_} %x, %a, %b, %c;", [a, b, c], wide,
        lambda a, b, c: a * b + c,
    )

  def test_division_by_zero_is_defined(self):
    a = snippets.ints(self.rng, np.int32)
    zero = "mov.b32 %r0, 0;"
    np.testing.assert_array_equal(
        snippets.each(f"{zero} div.s32 %x, %a, %r0;", a, out=np.int32),
        np.full_like(a, -1),
    )
    np.testing.assert_array_equal(
        snippets.each(f"{zero} rem.s32 %x, %a, %r0;", a, out=np.int32),
        np.full_like(a, -1),
    )

  def test_long_fields_do_not_wrap(self):
    """Positions and lengths beyond 255 wrap in 32 bits only."""
    a = snippets.ints(self.rng, np.int64)
    length = "mov.b32 %r0, 256;"
    np.testing.assert_array_equal(
        snippets.each(f"{length} bfe.s64 %x, %a, 0, %r0;", a, out=np.int64), a
    )
    b = snippets.ints(self.rng, np.int64)
    np.testing.assert_array_equal(
        snippets.each(
            f"{length} bfi.b64 %x, %a, %b, 0, %r0;", a, b, out=np.int64
        ),
        a,
    )
    c = a.astype(np.int32)
    np.testing.assert_array_equal(
        snippets.each(f"{length} bfe.s32 %x, %a, 0, %r0;", c, out=np.int32),
        np.zeros_like(c),
    )

  @parameterized.parameters("add", "sub")
  def test_saturating(self, name):
    sign = 1 if name == "add" else -1
    self.check(
        f"{name}.sat.s32 %x, %a, %b;", self.operands(np.int32), np.int32,
        lambda a, b: min(max(a + sign * b, -(2**31)), 2**31 - 1),
    )

  @parameterized.parameters("s16", "s32", "s64")
  def test_abs_and_neg(self, type_):
    dtype = DTYPES[type_]
    a = self.operands(dtype, 1)
    self.check(f"abs.{type_} %x, %a;", a, dtype, abs)
    self.check(f"neg.{type_} %x, %a;", a, dtype, lambda a: -a)

  @parameterized.product(name=("add", "min", "max"), type_=("s16x2", "u16x2"))
  def test_packed(self, name, type_):
    a, b = (snippets.ints(self.rng, np.uint32) for _ in range(2))
    half = DTYPES[type_[:3]]
    x, y = a.view(half).astype(np.int64), b.view(half).astype(np.int64)
    reference = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
    np.testing.assert_array_equal(
        snippets.each(f"{name}.{type_} %x, %a, %b;", a, b, out=np.uint32),
        reference(x, y).astype(half).view(np.uint32),
    )

  @parameterized.parameters("s32", "u32")
  def test_mul24_and_sad(self, type_):
    dtype = DTYPES[type_]

    def low24(v):
      v = bits_of(v, 24)
      return v - 2**24 if type_ == "s32" and v >= 2**23 else v

    for part, shift in (("lo", 0), ("hi", 16)):
      self.check(
          f"mul24.{part}.{type_} %x, %a, %b;", self.operands(dtype), dtype,
          lambda a, b, shift=shift: low24(a) * low24(b) >> shift,
      )
    self.check(
        f"sad.{type_} %x, %a, %b, %c;", self.operands(dtype, 3), dtype,
        lambda a, b, c: c + abs(a - b),
    )

  def test_dp4a(self):
    a, b, c = (snippets.ints(self.rng, np.int32) for _ in range(3))
    product = (
        a.view(np.int8).astype(int) * b.view(np.uint8).astype(int)
    ).reshape(-1, 4).sum(1)
    np.testing.assert_array_equal(
        snippets.each("dp4a.s32.u32 %x, %a, %b, %c;", a, b, c, out=np.int32),
        (product + c).astype(np.int32),
    )

  def test_carry(self):
    a, b = self.operands(np.uint64)
    split = (
        "mov.b64 {%r0, %r1}, %a; mov.b64 {%r2, %r3}, %b;"
    )
    self.check(
        f"{split} add.cc.u32 %r4, %r0, %r2; addc.u32 %r5, %r1, %r3;"
        " mov.b64 %x, {%r4, %r5};",
        [a, b], np.uint64, lambda a, b: a + b,
    )
    self.check(
        f"{split} sub.cc.u32 %r4, %r0, %r2; subc.u32 %r5, %r1, %r3;"
        " mov.b64 %x, {%r4, %r5};",
        [a, b], np.uint64, lambda a, b: a - b,
    )
    c = snippets.ints(self.rng, np.uint32)
    # 64 x 32 bits to 96, the upper 64 of which are compared.
    self.check(
        "mov.b64 {%r0, %r1}, %a; mov.b32 %r9, 7;"
        " mad.lo.cc.u32 %r4, %r0, %b, %r9; madc.hi.u32 %r5, %r0, %b, 0;"
        " mad.lo.cc.u32 %r5, %r1, %b, %r5; madc.hi.u32 %r6, %r1, %b, 0;"
        " mov.b64 %x, {%r5, %r6};",
        [a, c], np.uint64, lambda a, c: (a * c + 7) >> 32,
    )


class BitsTest(_Base):

  @parameterized.product(
      type_=BITS,
      case=(
          ("and", lambda a, b: a & b),
          ("or", lambda a, b: a | b),
          ("xor", lambda a, b: a ^ b),
      ),
  )
  def test_logic(self, type_, case):
    dtype = DTYPES[type_]
    self.check(
        f"{case[0]}.{type_} %x, %a, %b;", self.operands(dtype), dtype, case[1]
    )

  @parameterized.parameters(*BITS)
  def test_not(self, type_):
    dtype = DTYPES[type_]
    a = self.operands(dtype, 1)
    self.check(f"not.{type_} %x, %a;", a, dtype, lambda a: ~a)
    self.check(f"cnot.{type_} %x, %a;", a, dtype, lambda a: int(a == 0))

  def test_logic_of_predicates(self):
    a, b = (self.rng.integers(0, 2, 128, np.uint8) for _ in range(2))
    x, y, z, u = snippets.each(
        "setp.ne.b16 %p, %a, 0; setp.ne.b16 %q, %b, 0;"
        " and.pred %px, %p, %q; or.pred %py, %p, %q; xor.pred %pz, %p, %q;"
        " not.pred %pu, %p;",
        a, b, out=[np.bool_] * 4,
    )
    np.testing.assert_array_equal(x, (a & b) != 0)
    np.testing.assert_array_equal(y, (a | b) != 0)
    np.testing.assert_array_equal(z, a != b)
    np.testing.assert_array_equal(u, a == 0)

  @parameterized.parameters(
      0x96, 0xE8, 0xCA, 0xFF, 0x01, 0x40, 0x1B, 0x2D, 0x3C, 0x57, 0xA9, 0xFE
  )
  def test_lop3(self, lut):
    inputs = self.operands(np.uint32, 3)

    def reference(a, b, c):
      return sum(
          (lut >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
          for i in range(32)
      )

    self.check(
        f"lop3.b32 %x, %a, %b, %c, {lut};", inputs, np.uint32, reference
    )

  @parameterized.product(
      case=(
          ("shl", "b16"), ("shl", "b32"), ("shl", "b64"), ("shr", "u16"),
          ("shr", "u32"), ("shr", "b64"), ("shr", "s16"), ("shr", "s32"),
          ("shr", "s64"),
      ),
      amount=(None, 0, 5, 31, 32, 63, 64, 2**32 - 1),
  )
  def test_shift(self, case, amount):
    name, type_ = case
    dtype = DTYPES[type_]
    bits = 8 * dtype.itemsize
    a = snippets.ints(self.rng, dtype)
    b = self.rng.choice([0, 1, 7, 15, 16, 31, 32, 63, 64, 2**31], 128)
    b = b.astype(np.uint32)

    def shift(a, by):
      by = min(by, bits)
      return a << by if name == "shl" else a >> by

    if amount is None:
      self.check(f"{name}.{type_} %x, %a, %b;", [a, b], dtype, shift)
    else:
      self.check(
          f"{name}.{type_} %x, %a, {amount};", [a], dtype,
          lambda a: shift(a, amount),
      )

  @parameterized.product(side=("l", "r"), mode=("clamp", "wrap"))
  def test_funnel_shift(self, side, mode):
    a, b = self.operands(np.uint32)
    c = self.rng.choice([0, 1, 9, 31, 32, 33, 200], 128).astype(np.uint32)

    def reference(a, b, c):
      by = c % 32 if mode == "wrap" else min(c, 32)
      both = b << 32 | a
      return (both << by) >> 32 if side == "l" else both >> by

    self.check(
        f"shf.{side}.{mode}.b32 %x, %a, %b, %c;", [a, b, c], np.uint32,
        reference,
    )

  @parameterized.parameters("s32", "u32", "s64", "u64")
  def test_bfe(self, type_):
    """Written as the pseudo code of the ISA."""
    dtype = DTYPES[type_]
    bits = 8 * dtype.itemsize
    a = snippets.ints(self.rng, dtype)
    b, c = (
        self.rng.choice([0, 1, 5, 16, 31, 32, 40, 63, 64, 255], 128).astype(
            np.uint32
        )
        for _ in range(2)
    )

    def reference(a, position, length):
      value = bits_of(a, bits)
      sign = 0
      if type_[0] == "s" and length:
        sign = value >> min(position + length - 1, bits - 1) & 1
      result = 0
      for i in range(bits):
        inside = i < length and position + i < bits
        result |= (value >> (position + i) & 1 if inside else sign) << i
      return result

    self.check(
        f"bfe.{type_} %x, %a, %b, %c;", [a, b, c], dtype, reference
    )

  @parameterized.parameters("b32", "b64")
  def test_bfi(self, type_):
    dtype = DTYPES[type_]
    bits = 8 * dtype.itemsize
    a, b = self.operands(dtype)
    c, d = (
        self.rng.choice([0, 1, 5, 16, 31, 32, 40, 63, 64, 255], 128).astype(
            np.uint32
        )
        for _ in range(2)
    )

    def reference(a, b, position, length):
      for i in range(length):
        if position + i < bits:
          b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
      return b

    self.check(
        f"bfi.{type_} %x, %a, %b, %c, %e;", [a, b, c, d], dtype, reference
    )

  @parameterized.parameters(32, 64)
  def test_counts(self, bits):
    dtype = np.dtype(f"uint{bits}")
    a = snippets.ints(self.rng, dtype)
    a[:3] = 0, 1, np.iinfo(dtype).max
    self.check(
        f"clz.b{bits} %x, %a;", [a], np.uint32,
        lambda a: bits - a.bit_length(),
    )
    self.check(
        f"popc.b{bits} %x, %a;", [a], np.uint32, lambda a: a.bit_count()
    )
    self.check(
        f"brev.b{bits} %x, %a;", [a], dtype,
        lambda a: int(f"{a:0{bits}b}"[::-1], 2),
    )
    self.check(
        f"bfind.u{bits} %x, %a;", [a], np.uint32, lambda a: a.bit_length() - 1
    )
    self.check(
        f"bfind.shiftamt.u{bits} %x, %a;", [a], np.uint32,
        lambda a: bits - a.bit_length() if a else -1,
    )
    signed = a.view(f"int{bits}")
    self.check(
        f"bfind.s{bits} %x, %a;", [signed], np.uint32,
        lambda a: (~a if a < 0 else a).bit_length() - 1,
    )

  def test_bmsk(self):
    a, b = (
        self.rng.choice([0, 1, 5, 31, 32, 40], 128).astype(np.uint32)
        for _ in range(2)
    )
    self.check(
        "bmsk.clamp.b32 %x, %a, %b;", [a, b], np.uint32,
        lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32),
    )

  def test_prmt(self):
    a, b, c = self.operands(np.uint32, 3)

    def reference(a, b, c):
      source = (b << 32 | a).to_bytes(8, "little")
      result = []
      for i in range(4):
        nibble = c >> 4 * i & 15
        byte = source[nibble & 7]
        if nibble & 8:
          byte = 255 if byte & 128 else 0
        result.append(byte)
      return int.from_bytes(bytes(result), "little")

    self.check(
        "prmt.b32 %x, %a, %b, %c;", [a, b, c], np.uint32, reference
    )
    for selector in (0x5410, 0x7632, 0xF31C, 0x0123):
      self.check(
          f"prmt.b32 %x, %a, %b, {selector};", [a, b], np.uint32,
          lambda a, b, c=selector: reference(a, b, c),
      )

  @parameterized.parameters(
      ("f4e", lambda i, c: i + c),
      ("b4e", lambda i, c: (c - i) % 8),
      ("rc8", lambda i, c: c),
      ("ecl", max),
      ("ecr", min),
      ("rc16", lambda i, c: 2 * (c % 2) + i % 2),
  )
  def test_prmt_modes(self, mode, choose):
    a, b, c = self.operands(np.uint32, 3)

    def reference(a, b, c):
      source = (b << 32 | a).to_bytes(8, "little")
      picked = bytes(source[choose(i, c & 3)] for i in range(4))
      return int.from_bytes(picked, "little")

    self.check(
        f"prmt.b32.{mode} %x, %a, %b, %c;", [a, b, c], np.uint32, reference
    )


class CompareTest(_Base):

  @parameterized.product(
      type_=("s16", "u16", "s32", "u32", "s64", "u64", "b32"),
      case=(
          ("eq", lambda a, b: a == b), ("ne", lambda a, b: a != b),
          ("lt", lambda a, b: a < b), ("le", lambda a, b: a <= b),
          ("gt", lambda a, b: a > b), ("ge", lambda a, b: a >= b),
      ),
  )
  def test_setp(self, type_, case):
    if type_ == "b32" and case[0] not in ("eq", "ne"):
      self.skipTest("bits have no order")
    dtype = DTYPES[type_]
    a, b = self.operands(dtype)
    b[::3] = a[::3]
    for actual in snippets.each(
        f"setp.{case[0]}.{type_} %px, %a, %b;"
        f"setp.{case[0]}.{type_} %p|%q, %a, %b; not.pred %py, %q;",
        a, b, out=[np.bool_, np.bool_],
    ):
      np.testing.assert_array_equal(actual, case[1](a, b))

  @parameterized.parameters(
      ("lo", np.less), ("ls", np.less_equal), ("hi", np.greater),
      ("hs", np.greater_equal),
  )
  def test_setp_unsigned_names(self, name, reference):
    a, b = self.operands(np.uint32)
    b[::3] = a[::3]
    np.testing.assert_array_equal(
        snippets.each(f"setp.{name}.u32 %px, %a, %b;", a, b, out=np.bool_),
        reference(a, b),
    )

  @parameterized.product(
      combine=(
          ("and", np.logical_and), ("or", np.logical_or),
          ("xor", np.logical_xor),
      ),
      negated=(False, True),
  )
  def test_setp_combined(self, combine, negated):
    a, b = self.operands(np.int32)
    c = self.rng.integers(0, 2, 128, np.uint8)
    sign = "!" if negated else ""
    x, y = snippets.each(
        "setp.ne.b16 %p, %c, 0;"
        f"setp.lt.{combine[0]}.s32 %px|%py, %a, %b, {sign}%p;",
        a, b, c, out=[np.bool_, np.bool_],
    )
    other = (c == 0) if negated else (c != 0)
    np.testing.assert_array_equal(x, combine[1](a < b, other))
    np.testing.assert_array_equal(y, combine[1](a >= b, other))

  def test_set(self):
    a, b = self.operands(np.int32)
    x, y = snippets.each(
        "set.lt.u32.s32 %x, %a, %b; set.gt.f32.s32 %y, %a, %b;", a, b,
        out=[np.uint32, np.float32],
    )
    np.testing.assert_array_equal(x, np.where(a < b, 0xFFFFFFFF, 0))
    np.testing.assert_array_equal(y, np.where(a > b, 1.0, 0.0))

  @parameterized.parameters("b16", "u32", "b32", "f32", "b64", "f64")
  def test_selp(self, type_):
    dtype = np.dtype(f"uint{type_[1:]}")
    a, b = self.operands(dtype)
    c = self.rng.integers(0, 2, 128, np.uint8)
    np.testing.assert_array_equal(
        snippets.each(
            f"setp.ne.b16 %p, %c, 0; selp.{type_} %x, %a, %b, %p;", a, b, c,
            out=dtype,
        ),
        np.where(c != 0, a, b),
    )

  def test_slct(self):
    a, b, c = self.operands(np.int32, 3)
    f = snippets.floats(self.rng, np.float32)
    np.testing.assert_array_equal(
        snippets.each("slct.s32.s32 %x, %a, %b, %c;", a, b, c, out=np.int32),
        np.where(c >= 0, a, b),
    )
    np.testing.assert_array_equal(
        snippets.each("slct.b32.f32 %x, %a, %b, %c;", a, b, f, out=np.int32),
        np.where(f >= 0, a, b),
    )


class MoveTest(_Base):

  def test_pack_and_unpack(self):
    a = snippets.ints(self.rng, np.uint64)
    x, y, z, u = snippets.each(
        "mov.b64 {%x, %y}, %a; mov.b64 {%h0, %h1, %h2, %h3}, %a;"
        " mov.b32 %z, {%h3, %h0}; mov.b64 {_, %r0}, %a; mov.b64 %u, {%r0, %x};",
        a, out=[np.uint32, np.uint32, np.uint32, np.uint64],
    )
    words = a.view(np.uint32).reshape(-1, 2)
    halves = a.view(np.uint16).reshape(-1, 4).astype(np.uint32)
    np.testing.assert_array_equal(x, words[:, 0])
    np.testing.assert_array_equal(y, words[:, 1])
    np.testing.assert_array_equal(z, halves[:, 0] << 16 | halves[:, 3])
    np.testing.assert_array_equal(u, a << np.uint64(32) | a >> np.uint64(32))

  def test_b128(self):
    a, b = self.operands(np.uint64)
    x, y, z = snippets.each(
        "mov.b128 %rq0, {%a, %b}; mov.b128 %rq1, %rq0;"
        " mov.b128 {%x, %y}, %rq1; mov.b128 {_, %r0, _, %z}, %rq1;",
        a, b, out=[np.uint64, np.uint64, np.uint32],
    )
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, b)
    np.testing.assert_array_equal(z, (b >> np.uint64(32)).astype(np.uint32))

  def test_bytes(self):
    a = snippets.ints(self.rng, np.uint32)
    actual = snippets.each(
        ".reg .b8 %k<4>; mov.b32 {%k0, %k1, %k2, %k3}, %a;"
        " mov.b32 %x, {%k3, %k2, %k1, %k0};", a, out=np.uint32,
    )
    np.testing.assert_array_equal(actual, a.byteswap())

  def test_source_may_be_a_destination(self):
    a, b = self.operands(np.uint32)
    x, y = snippets.each(
        "mov.b64 %rd0, {%a, %b}; mov.b64 {%b, %a}, %rd0;"
        " mov.b32 %x, %a; mov.b32 %y, %b;", a, b, out=[np.uint32, np.uint32],
    )
    np.testing.assert_array_equal(x, b)
    np.testing.assert_array_equal(y, a)

  def test_constants(self):
    a = snippets.ints(self.rng, np.uint32)
    x, y, z, u, v = snippets.each(
        "mov.b32 %x, -3; mov.f32 %y, 0f40490FDB; mov.b32 %z, 0f3F800000;"
        " mov.f64 %u, 0d400921FB54442D18; mov.b32 %v, 0x12U;", a,
        out=[np.int32, np.float32, np.uint32, np.float64, np.uint32],
    )
    np.testing.assert_array_equal(x, -3)
    np.testing.assert_array_equal(y, np.float32(np.pi))
    np.testing.assert_array_equal(z, 0x3F800000)
    np.testing.assert_array_equal(u, np.pi)
    np.testing.assert_array_equal(v, 0x12)

  def test_predicate_constants(self):
    a = snippets.ints(self.rng, np.uint32)
    x, y = snippets.each(
        "mov.pred %px, -1; mov.pred %py, 0;", a, out=[np.bool_, np.bool_]
    )
    self.assertTrue(x.all())
    self.assertFalse(y.any())


if __name__ == "__main__":
  absltest.main()
