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
"""cvt against exact rationals and the formats' definitions."""

from __future__ import annotations

import itertools
import zlib
from fractions import Fraction

import exact
import numpy as np
import snippets
from absl.testing import absltest, parameterized

# Exponent bits, mantissa bits, bias, and the largest code of a number.
NARROW = {
    "e4m3": (4, 3, 7, 0x7E),
    "e5m2": (5, 2, 15, 0x7B),
    "e2m3": (2, 3, 1, 0x1F),
    "e3m2": (3, 2, 3, 0x1F),
    "e2m1": (2, 1, 1, 0x7),
}
INTS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")


def int_dtype(type_):
  return np.dtype(f"{'int' if type_[0] == 's' else 'uint'}{type_[1:]}")


def decode(code: int, name: str) -> Fraction:
  """The magnitude of a code without its sign."""
  _, mantissa_bits, bias, _ = NARROW[name]
  mantissa = code & ((1 << mantissa_bits) - 1)
  exponent = code >> mantissa_bits
  if exponent:
    mantissa += 1 << mantissa_bits
  return mantissa * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def encode(value: float, name: str, relu: bool = False) -> int:
  """Nearest code, ties to the even one; clamps. By search of all codes."""
  exponent_bits, mantissa_bits, _, largest = NARROW[name]
  sign_bit = 1 << (exponent_bits + mantissa_bits)
  if np.isnan(value):
    return 0x7F if name in ("e4m3", "e5m2") else largest
  if np.signbit(value) and relu:
    return 0
  if np.isinf(value):
    best = largest
  else:
    magnitude = abs(Fraction(value))
    best = min(
        range(largest + 1),
        key=lambda c: (abs(decode(c, name) - magnitude), c & 1),
    )
  return best | (sign_bit if np.signbit(value) else 0)


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(np.errstate(all="ignore"))
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))


class IntTest(_Base):

  @parameterized.product(to=INTS, type_=INTS)
  def test_int_to_int(self, to, type_):
    a = snippets.ints(self.rng, int_dtype(type_))
    target = int_dtype(to)
    # Narrow results lie, extended, in a wider register.
    actual = snippets.each(f"cvt.{to}.{type_} %x, %a;", a, out=target)
    np.testing.assert_array_equal(actual, a.astype(target))
    info = np.iinfo(target)
    expected = [min(max(v, info.min), info.max) for v in a.tolist()]
    actual = snippets.each(f"cvt.sat.{to}.{type_} %x, %a;", a, out=target)
    np.testing.assert_array_equal(actual, expected)

  def test_extends(self):
    a = snippets.ints(self.rng, np.int32)
    x, y, z = snippets.each(
        "cvt.s32.s8 %x, %a; cvt.u32.u8 %y, %a; cvt.s64.s32 %z, %a;", a,
        out=[np.int32, np.uint32, np.int64],
    )
    np.testing.assert_array_equal(x, a.astype(np.int8))
    np.testing.assert_array_equal(y, a.astype(np.uint8))
    np.testing.assert_array_equal(z, a)

  @parameterized.product(
      to=FLOATS, type_=("s8", "u16", "s32", "u32", "s64", "u64"),
      mode=("rn", "rz", "rm", "rp"),
  )
  def test_int_to_float(self, to, type_, mode):
    a = snippets.ints(self.rng, int_dtype(type_))
    form = exact.FORMATS[to]
    actual = snippets.each(
        f"cvt.{mode}.{to}.{type_} %x, %a;", a, out=form.dtype
    )
    expected = [
        exact.round_fraction(Fraction(v), form, mode) for v in a.tolist()
    ]
    np.testing.assert_array_equal(
        actual.astype(np.float64), np.array(expected)
    )

  @parameterized.product(
      to=("s8", "u8", "s16", "s32", "u32", "s64", "u64"), type_=FLOATS,
      mode=("rni", "rzi", "rmi", "rpi"),
  )
  def test_float_to_int(self, to, type_, mode):
    a = snippets.floats(self.rng, exact.FORMATS[type_].dtype)
    a[:8] = np.array([0.5, 1.5, -0.5, -1.5, 2.5, 126.5, -2.5, 3e38]).astype(
        a.dtype
    )
    target = int_dtype(to)
    actual = snippets.each(f"cvt.{mode}.{to}.{type_} %x, %a;", a, out=target)
    info = np.iinfo(target)
    expected = []
    for v in a.astype(np.float64).tolist():
      if np.isnan(v):
        # As on Hopper: the top bit where 64 bits are on either side, else 0.
        top = 1 << info.bits - 1 if "f64" == type_ or info.bits == 64 else 0
        expected.append(top if info.min == 0 else -top)
        continue
      if np.isinf(v):
        expected.append(info.max if v > 0 else info.min)
        continue
      whole = {
          "rni": round, "rzi": int, "rmi": lambda f: f.__floor__(),
          "rpi": lambda f: f.__ceil__(),
      }[mode](Fraction(v))
      expected.append(min(max(whole, info.min), info.max))
    np.testing.assert_array_equal(actual, np.array(expected, object))


class FloatTest(_Base):

  @parameterized.product(
      case=(
          ("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64"),
          ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16"),
      ),
      mode=("rn", "rz", "rm", "rp"),
  )
  def test_narrowing(self, case, mode):
    to, type_ = case
    form = exact.FORMATS[to]
    a = snippets.floats(self.rng, exact.FORMATS[type_].dtype)
    # Near ties of the narrower format.
    wide = snippets.floats(self.rng, form.dtype, special=False)
    with np.errstate(all="ignore"):
      ties = (
          wide.astype(np.float64)
          + np.nextafter(wide, form.dtype.type(np.inf)).astype(np.float64)
      ) / 2
    a[::4] = ties.astype(a.dtype)[::4]
    actual = snippets.each(
        f"cvt.{mode}.{to}.{type_} %x, %a;", a, out=form.dtype
    )
    finite = np.isfinite(a)
    expected = exact.apply(lambda v: v, form, mode, a)
    np.testing.assert_array_equal(
        actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    )
    np.testing.assert_array_equal(
        actual[~finite].astype(np.float64), a[~finite].astype(np.float64)
    )

  @parameterized.parameters(
      ("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16")
  )
  def test_widening(self, to, type_):
    a = snippets.floats(self.rng, exact.FORMATS[type_].dtype)
    dtype = exact.FORMATS[to].dtype
    actual = snippets.each(f"cvt.{to}.{type_} %x, %a;", a, out=dtype)
    self.assertTrue(snippets.equal_bits(actual, a.astype(dtype)))

  @parameterized.parameters(
      ("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)
  )
  def test_round_to_integer(self, mode, reference):
    a = snippets.floats(self.rng, np.float32)
    a[:4] = 0.5, -0.5, 1.5, -0.25
    actual = snippets.each(f"cvt.{mode}.f32.f32 %x, %a;", a, out=np.float32)
    self.assertTrue(snippets.equal_bits(actual, reference(a)))

  @parameterized.product(
      half=("f16", "bf16"), mode=("rn", "rz"), relu=(False, True)
  )
  def test_pack_halves(self, half, mode, relu):
    a, b = (snippets.floats(self.rng, np.float32) for _ in range(2))
    form = exact.FORMATS[half]
    modifier = ".relu" if relu else ""
    actual = snippets.each(
        f"cvt.{mode}{modifier}.{half}x2.f32 %x, %a, %b;", a, b, out=np.uint32
    ).view(form.dtype)
    for source, result in ((a, actual[1::2]), (b, actual[::2])):
      finite = np.isfinite(source)
      expected = exact.apply(lambda v: v, form, mode, source)
      expected = np.where(finite, expected, source.astype(form.dtype))
      if relu:
        expected = np.where(expected < 0, form.dtype.type(0), expected)
      np.testing.assert_array_equal(
          result.astype(np.float32), expected.astype(np.float32)
      )

  def test_saturating_modifiers(self):
    a = np.array([1e6, -1e6, np.nan, 0.3] * 8, np.float32)
    x, y = snippets.each(
        "cvt.rn.satfinite.f16.f32 %x, %a; cvt.sat.f32.f32 %y, %a;", a,
        out=[np.float16, np.float32],
    )
    np.testing.assert_array_equal(
        x[:4], np.array([65504, -65504, np.nan, 0.3], np.float16)
    )
    np.testing.assert_array_equal(y[:4], np.array([1, 0, 0, 0.3], np.float32))

  @parameterized.parameters("rn", "rna", "rz")
  def test_tf32(self, mode):
    a = snippets.floats(self.rng, np.float32)
    bits = a.view(np.uint32)
    bits[::3] = bits[::3] & 0xFFFFE000 | 0x1000  # Ties.
    actual = snippets.each(f"cvt.{mode}.tf32.f32 %x, %a;", a, out=np.float32)
    finite = np.isfinite(a)
    expected = exact.apply(lambda v: v, exact.FORMATS["tf32"], mode, a)
    np.testing.assert_array_equal(actual[finite], expected[finite])
    np.testing.assert_array_equal(actual[~finite], a[~finite])


class NarrowTest(_Base):

  def values(self, name):
    """Random values, every tie of the format, and special values."""
    codes = np.array(
        [float(decode(c, name)) for c in range(NARROW[name][3] + 1)]
    )
    ties = (codes[1:] + codes[:-1]) / 2
    values = np.concatenate([
        codes, ties, np.nextafter(ties, 0), np.nextafter(ties, 1e9),
        [codes[-1] * 1.04, codes[-1] * 1.2, 1e30, np.inf, np.nan, 1e-30],
    ]).astype(np.float32)
    values = np.concatenate([values, -values])
    values = np.resize(values, -(-values.size // 64) * 64)
    return self.rng.permutation(values)

  @parameterized.product(name=tuple(NARROW), relu=(False, True))
  def test_from_f32(self, name, relu):
    a = self.values(name)
    b = self.rng.permutation(a)
    modifier = ".relu" if relu else ""
    if name == "e2m1":
      actual = snippets.each(
          f".reg .b8 %k; cvt.rn.satfinite{modifier}.e2m1x2.f32 %k, %a, %b;"
          " mov.b16 %x, {%k, %k};",
          a, b, out=np.uint16, threads=64,
      )
      expected = [
          (encode(x, name, relu) << 4 | encode(y, name, relu)) * 0x101
          for x, y in zip(a.tolist(), b.tolist())
      ]
    else:
      actual = snippets.each(
          f"cvt.rn.satfinite{modifier}.{name}x2.f32 %x, %a, %b;", a, b,
          out=np.uint16, threads=64,
      )
      expected = [
          encode(x, name, relu) << 8 | encode(y, name, relu)
          for x, y in zip(a.tolist(), b.tolist())
      ]
    np.testing.assert_array_equal(actual, expected)

  @parameterized.parameters("e4m3", "e5m2")
  def test_from_f16x2(self, name):
    a = self.values(name).astype(np.float16)
    a = np.resize(a, -(-a.size // 128) * 128)
    actual = snippets.each(
        f"cvt.rn.satfinite.{name}x2.f16x2 %x, %a;", a.view(np.uint32),
        out=np.uint16, threads=64,
    )
    np.testing.assert_array_equal(
        actual.view(np.uint8), [encode(v, name) for v in a.tolist()]
    )

  @parameterized.parameters(*NARROW)
  def test_to_f16x2(self, name):
    exponent_bits, mantissa_bits, _, largest = NARROW[name]
    sign = exponent_bits + mantissa_bits
    codes = np.resize(
        [
            code | negative << sign
            for code, negative in itertools.product(range(largest + 1), (0, 1))
        ],
        256,
    ).astype(np.uint8)
    self.rng.shuffle(codes)
    if name == "e2m1":
      packed = (codes[1::2] << 4 | codes[::2]).astype(np.uint8)
      body = ".reg .b8 %k, %l; mov.b16 {%k, %l}, %a;"
      body += " cvt.rn.f16x2.e2m1x2 %x, %k;"
    else:
      packed = codes.view(np.uint16)
      body = f"cvt.rn.f16x2.{name}x2 %x, %a;"
    actual = snippets.each(body, packed, out=np.uint32).view(np.float16)
    mask = (1 << sign) - 1
    expected = [
        float(decode(c & mask, name)) * (-1 if c >> sign else 1)
        for c in codes.tolist()
    ]
    np.testing.assert_array_equal(actual, expected)

  @parameterized.parameters(
      ("cvt.rn.f32.f64", 0x7FF0000000000001, np.uint32, 0x7FC00000),
      ("cvt.rz.bf16.f64", 0xFFFD800000000000, np.uint16, 0xFFEC),
      ("cvt.f64.f16", 0x7C01, np.uint64, 0x7FF8040000000000),
      ("cvt.f64.f32", 0x7F800001, np.uint64, 0x7FF8000020000000),
      ("cvt.ftz.f64.f32", 0x7F800001, np.uint64, 0x7FFFFFFFE0000000),
      ("cvt.f32.bf16", 0x7F81, np.uint32, 0x7F810000),
      ("cvt.f32.f16", 0x7C01, np.uint32, 0x7FFFFFFF),
      ("cvt.rna.tf32.f32", 0x7F804429, np.uint32, 0x7F804000),
      ("cvt.rn.tf32.f32", 0x7F804429, np.uint32, 0x7FFFE000),
      ("cvt.rna.satfinite.tf32.f32", 0x7F800001, np.uint32, 0x7F7FE000),
      ("cvt.rna.satfinite.tf32.f32", 0xFFC00005, np.uint32, 0xFFBFE000),
      # To f16, .ftz flushes nothing.
      ("cvt.rp.ftz.f16.f32", 0x00000001, np.uint16, 0x0001),
  )
  def test_as_hopper_does(self, opcode, value, out, expected):
    bits = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[opcode.split(".")[-1]]
    a = np.full(32, value, f"u{bits // 8}")
    x = snippets.each(f"{opcode} %x, %a;", a, out=out)
    self.assertEqual(hex(x[0]), hex(expected))

  def test_nan_of_e4m3(self):
    a = np.resize(np.array([0x7FFF, 0xFF38, 0x387F], np.uint16), 32)
    actual = snippets.each("cvt.rn.f16x2.e4m3x2 %x, %a;", a, out=np.uint32)
    np.testing.assert_array_equal(
        actual.view(np.float16).reshape(-1, 2)[:3],
        [[np.nan, np.nan], [1, np.nan], [np.nan, 1]],
    )

  @parameterized.parameters("rz", "rp")
  def test_ue8m0(self, mode):
    a = np.abs(snippets.floats(self.rng, np.float32, special=False))
    a[:8] = [1, 2, 3, 0.75, 2.0**-127, 2.0**-127 * 1.01, np.nan, np.inf]
    a[8:11] = [2.0**127 * 1.5, 1e-42, 0.0]
    b = self.rng.permutation(a)
    actual = snippets.each(
        f"cvt.{mode}.satfinite.ue8m0x2.f32 %x, %a, %b;", a, b, out=np.uint16
    )

    def code(v):
      if np.isnan(v):
        return 255
      powers = np.exp2(np.arange(-127.0, 128.0))  # Code 0 to 254.
      if mode == "rz":
        return max(int(np.searchsorted(powers, v, "right")) - 1, 0)
      return min(int(np.searchsorted(powers, v, "left")), 254)

    expected = [code(x) << 8 | code(y) for x, y in zip(a, b)]
    np.testing.assert_array_equal(actual, expected)
    back = snippets.each(
        "cvt.rn.bf16x2.ue8m0x2 %x, %a;", actual, out=np.uint32
    ).view(exact.FORMATS["bf16"].dtype).astype(np.float64)
    codes = actual.view(np.uint8)
    np.testing.assert_array_equal(
        back, np.where(codes == 255, np.nan, np.exp2(codes - 127.0))
    )

  def test_ue8m0_of_a_negative_number(self):
    a = np.full(32, 1.5, np.float32)
    a[7] = -2
    with self.assertRaisesRegex(Exception, "negative number.*\n.*lane 7"):
      snippets.each(
          "cvt.rz.satfinite.ue8m0x2.f32 %x, %a, %a;", a, out=np.uint16
      )


if __name__ == "__main__":
  absltest.main()
