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
"""Floating-point instructions against exact rationals."""

from __future__ import annotations

import math
import zlib
from fractions import Fraction

import exact
import ml_dtypes
import numpy as np
import snippets
from absl.testing import absltest, parameterized

SCALARS = ("f16", "bf16", "f32", "f64")
FUNCTIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
}


def flush(values: np.ndarray) -> np.ndarray:
  tiny = float(ml_dtypes.finfo(values.dtype).tiny)
  small = np.abs(values.astype(np.float64)) < tiny
  return np.where(small, np.copysign(np.zeros_like(values), values), values)


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))

  def floats(self, type_, special=True, size=128):
    return snippets.floats(
        self.rng, exact.FORMATS[type_].dtype, size, special
    )

  def close_operands(self, type_, count):
    """Operands whose results need rounding: like magnitudes, few ties."""
    dtype = exact.FORMATS[type_].dtype
    values = []
    for _ in range(count):
      mantissa = self.rng.standard_normal(128)
      values.append(
          (mantissa * 2.0 ** self.rng.integers(-4, 4, 128)).astype(dtype)
      )
    return values

  def assert_equal_where_finite(self, actual, expected, inputs):
    finite = np.all([np.isfinite(i) for i in inputs], axis=0)
    self.assertGreater(finite.sum(), 90)
    np.testing.assert_array_equal(
        actual[finite].view(f"u{actual.dtype.itemsize}"),
        expected[finite].view(f"u{actual.dtype.itemsize}"),
        err_msg=str(
            [(*(i[finite][j] for i in inputs), actual[finite][j],
              expected[finite][j])
             for j in np.flatnonzero(actual[finite] != expected[finite])[:3]]
        ),
    )


class ArithmeticTest(_Base):

  @parameterized.product(name=("add", "sub", "mul"), type_=SCALARS)
  def test_nearest(self, name, type_):
    form = exact.FORMATS[type_]
    for a, b in (
        (self.floats(type_), self.floats(type_)),
        self.close_operands(type_, 2),
    ):
      actual = snippets.each(
          f"{name}.rn.{type_} %x, %a, %b;", a, b, out=form.dtype
      )
      # Signs of zero: NumPy follows IEEE there, fractions have none.
      native = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
      with np.errstate(all="ignore"):
        ieee = native(a, b)
      expected = exact.apply(FUNCTIONS[name], form, "rn", a, b)
      expected = np.where(expected == 0, ieee, expected)
      self.assert_equal_where_finite(actual, expected, (a, b))
      other = ~(np.isfinite(a) & np.isfinite(b))
      self.assertTrue(snippets.equal_bits(actual[other], ieee[other]))

  @parameterized.product(
      name=("add", "sub", "mul", "fma"), mode=("rz", "rm", "rp")
  )
  def test_directed(self, name, mode):
    form = exact.FORMATS["f32"]
    count = 3 if name == "fma" else 2
    names = ", ".join(f"%{c}" for c in snippets.INPUTS[:count])
    for inputs in (
        [self.floats("f32", special=False) for _ in range(count)],
        self.close_operands("f32", count),
    ):
      actual = snippets.each(
          f"{name}.{mode}.f32 %x, {names};", *inputs, out=np.float32
      )
      expected = exact.apply(FUNCTIONS[name], form, mode, *inputs)
      self.assert_equal_where_finite(
          actual + np.float32(0), expected + np.float32(0), inputs
      )

  @parameterized.product(type_=SCALARS)
  def test_fma(self, type_):
    form = exact.FORMATS[type_]
    a, b, c = self.close_operands(type_, 3)
    # Results that cancel show whether the product was rounded.
    with np.errstate(all="ignore"):
      c[::2] = -(a * b)[::2]
      for inputs in (
          (a, b, c), [self.floats(type_) for _ in range(3)]
      ):
        actual = snippets.each(
            f"fma.rn.{type_} %x, %a, %b, %c;", *inputs, out=form.dtype
        )
        expected = exact.apply(FUNCTIONS["fma"], form, "rn", *inputs)
        zero = form.dtype.type(0)
        self.assert_equal_where_finite(
            actual + zero, expected + zero, inputs
        )

  def test_fma_of_infinities(self):
    a = np.array([np.inf, np.inf, 0, np.inf, 1, np.nan] * 16, np.float32)
    b = np.array([1, -1, np.inf, 2, np.inf, 1] * 16, np.float32)
    c = np.array([1, 5, 1, -np.inf, 1, 1] * 16, np.float32)
    actual = snippets.each(
        "fma.rn.f32 %x, %a, %b, %c;", a, b, c, out=np.float32, threads=96
    )
    np.testing.assert_array_equal(
        actual[:6], [np.inf, -np.inf, np.nan, np.nan, np.inf, np.nan]
    )

  @parameterized.product(
      name=("add", "mul", "fma"), type_=("f16x2", "bf16x2", "f32x2")
  )
  def test_packed(self, name, type_):
    scalar = type_[:-2]
    dtype = exact.FORMATS[scalar].dtype
    packed = np.dtype(f"uint{16 * dtype.itemsize}")
    count = 3 if name == "fma" else 2
    names = ", ".join(f"%{c}" for c in snippets.INPUTS[:count])
    elements = [self.floats(scalar, size=256) for _ in range(count)]
    actual = snippets.each(
        f"{name}.rn.{type_} %x, {names};",
        *(e.view(packed) for e in elements), out=packed,
    ).view(dtype)
    expected = snippets.each(
        f"{name}.rn.{scalar} %x, {names};", *elements, out=dtype
    )
    self.assertTrue(snippets.equal_bits(actual, expected))

  @parameterized.parameters("f16", "bf16")
  def test_mixed(self, half):
    a, b = self.floats(half, special=False), self.floats(half, special=False)
    c = self.floats("f32", special=False)
    form = exact.FORMATS["f32"]
    x, y = snippets.each(
        f"add.f32.{half} %x, %a, %c; fma.rn.f32.{half} %y, %a, %b, %c;",
        a, b, c, out=[np.float32, np.float32],
    )
    self.assert_equal_where_finite(
        x, exact.apply(FUNCTIONS["add"], form, "rn", a, c), (a, c)
    )
    self.assert_equal_where_finite(
        y, exact.apply(FUNCTIONS["fma"], form, "rn", a, b, c), (a, b, c)
    )

  @parameterized.parameters("add", "sub", "mul")
  def test_flushes_subnormals(self, name):
    a, b = self.floats("f32"), self.floats("f32")
    a[:64] *= np.float32(2.0**-110)
    b[:64] = a[:64] * np.float32(0.7)
    actual = snippets.each(f"{name}.ftz.f32 %x, %a, %b;", a, b, out=np.float32)
    native = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[name]
    with np.errstate(all="ignore"):
      expected = flush(native(flush(a), flush(b)))
    self.assertTrue(snippets.equal_bits(actual, expected))

  def test_saturates(self):
    a, b = self.close_operands("f32", 2)
    a[:2] = np.nan, -0.5
    actual = snippets.each("add.sat.f32 %x, %a, %b;", a, b, out=np.float32)
    expected = np.clip(np.nan_to_num(a + b), np.float32(0), np.float32(1))
    np.testing.assert_array_equal(actual, expected)

  def test_relu(self):
    a, b, c = self.close_operands("bf16", 3)
    actual = snippets.each(
        "fma.rn.relu.bf16 %x, %a, %b, %c;", a, b, c, out=a.dtype
    )
    expected = exact.apply(
        FUNCTIONS["fma"], exact.FORMATS["bf16"], "rn", a, b, c
    )
    np.testing.assert_array_equal(actual, np.maximum(expected, 0))

  def test_canonical_nan(self):
    a = np.full(32, 0xFFC00001, np.uint32)
    x = snippets.each("add.f32 %x, %a, %a;", a, out=np.uint32)
    np.testing.assert_array_equal(x, 0x7FFFFFFF)
    for type_ in ("f16", "bf16"):
      h = np.full(32, {"f16": 0xFE01, "bf16": 0xFFC1}[type_], np.uint16)
      x = snippets.each(f"add.{type_} %x, %a, %a;", h, out=np.uint16)
      np.testing.assert_array_equal(x, 0x7FFF)

  def test_refuses(self):
    a = self.floats("f64")
    with self.assertRaisesRegex(Exception, "f64 takes neither"):
      snippets.each("add.sat.f64 %x, %a, %a;", a, out=np.float64)
    with self.assertRaisesRegex(Exception, "expected a form of"):
      snippets.each("div.rz.ftz.f64 %x, %a, %a;", a, out=np.float64)


class FunctionsTest(_Base):

  @parameterized.product(
      name=("div", "rcp"), mode=("rz", "rm", "rp"), type_=("f32", "f64"),
      ftz=(False, True),
  )
  def test_directed_quotients(self, name, mode, type_, ftz):
    if ftz and type_ == "f64":
      self.skipTest("f64 has no .ftz")
    form = exact.FORMATS[type_]
    count = 2 if name == "div" else 1
    names = ", ".join(f"%{c}" for c in snippets.INPUTS[:count])
    # With overflows and subnormal numbers; b / a is about the smallest normal
    # number for the last ones.
    inputs = [self.floats(type_, special=False) for _ in range(count)]
    tiny = form.dtype.type(2.0**form.emin)
    odd = (1 + np.arange(16) * ml_dtypes.finfo(form.dtype).eps).astype(
        form.dtype
    )
    inputs[0][:16] = odd * tiny if name == "div" else 1 / tiny
    inputs[-1][:16] = odd[::-1] * (1 if name == "div" else 1 / tiny)
    if name == "div":
      inputs[0][16:20] = [form.largest] * 4
      inputs[1][16:20] = [0.5, -0.5, 1.5, -1.5]
    actual = snippets.each(
        f"{name}.{mode}{'.ftz' * ftz}.{type_} %x, {names};", *inputs,
        out=form.dtype,
    )
    if ftz:
      inputs = [flush(i) for i in inputs]
    divide = (lambda a, b: a / b) if name == "div" else lambda a: 1 / a
    expected = exact.apply(divide, form, mode, *inputs)
    if ftz:
      # What is below the normal numbers before it is rounded is flushed.
      toward_zero = exact.apply(divide, form, "rz", *inputs)
      expected = np.where(flush(toward_zero) == 0, 0, expected)
    np.testing.assert_array_equal(actual, expected)
    self.assertTrue(np.any(np.abs(actual.astype(np.float64)) <= tiny))

  @parameterized.product(mode=("rz", "rm", "rp"), type_=("f32", "f64"))
  def test_directed_roots(self, mode, type_):
    form = exact.FORMATS[type_]
    a = np.abs(self.floats(type_, special=False))
    a[:8] = np.arange(8, dtype=form.dtype) ** 2
    actual = snippets.each(f"sqrt.{mode}.{type_} %x, %a;", a, out=form.dtype)
    np.testing.assert_array_equal(actual[:8], np.arange(8))
    for root, square in zip(actual[8:].tolist(), a[8:].tolist()):
      # The exact root lies between the result and its neighbour.
      up = mode == "rp"
      end = form.dtype.type(-np.inf if up else np.inf)
      other = float(np.nextafter(form.dtype.type(root), end))
      low, high = sorted((Fraction(root), Fraction(other)))
      self.assertLessEqual(low**2, square)
      self.assertLessEqual(square, high**2)
      self.assertNotEqual(square, Fraction(other) ** 2)

  @parameterized.product(mode=("rz", "rm", "rp"), type_=("f32", "f64"))
  def test_directed_specials(self, mode, type_):
    dtype = exact.FORMATS[type_].dtype
    a = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.0], dtype)
    b = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0], dtype)
    run = lambda text, *args: snippets.each(text, *args, out=dtype)
    with np.errstate(all="ignore"):
      for got, want in (
          (run(f"div.{mode}.{type_} %x, %a, %b;", a, b), a / b),
          (run(f"rcp.{mode}.{type_} %x, %a;", a), 1 / a),
          (run(f"sqrt.{mode}.{type_} %x, %a;", a), np.sqrt(a)),
      ):
        self.assertTrue(snippets.equal_bits(got, want), (got, want))

  @parameterized.parameters(
      ("div.rn", "f32"), ("div.rn", "f64"), ("div.full", "f32"),
      ("div.approx.ftz", "f32"),
  )
  def test_div(self, name, type_):
    a = self.floats(type_, special=False)
    b = self.floats(type_, special=False)
    dtype = exact.FORMATS[type_].dtype
    actual = snippets.each(f"{name}.{type_} %x, %a, %b;", a, b, out=dtype)
    np.testing.assert_array_equal(
        actual,
        exact.apply(lambda a, b: a / b, exact.FORMATS[type_], "rn", a, b),
    )

  @parameterized.parameters(
      ("rcp.rn", "f32", lambda v: 1 / v), ("rcp.approx.ftz", "f32",
                                           lambda v: 1 / v),
      ("rcp.rn", "f64", lambda v: 1 / v), ("sqrt.rn", "f32", math.sqrt),
      ("sqrt.approx.ftz", "f32", math.sqrt), ("sqrt.rn", "f64", math.sqrt),
      ("rsqrt.approx", "f32", lambda v: 1 / math.sqrt(v)),
      ("rsqrt.approx", "f64", lambda v: 1 / math.sqrt(v)),
      ("ex2.approx.ftz", "f32", lambda v: 2.0**v),
      ("lg2.approx", "f32", math.log2), ("sin.approx", "f32", math.sin),
      ("cos.approx.ftz", "f32", math.cos), ("tanh.approx", "f32", math.tanh),
      ("ex2.approx", "f16", lambda v: 2.0**v),
      ("ex2.approx.ftz", "bf16", lambda v: 2.0**v),
      ("tanh.approx", "f16", math.tanh), ("tanh.approx", "bf16", math.tanh),
  )
  def test_functions(self, name, type_, reference):
    form = exact.FORMATS[type_]
    a = np.abs(self.rng.standard_normal(128) * 3 + 0.1).astype(form.dtype)
    actual = snippets.each(f"{name}.{type_} %x, %a;", a, out=form.dtype)
    expected = [reference(float(v)) for v in a]
    # Sine and cosine take the angle as float32 turns.
    absolute = 2.0**-20 if name[:3] in ("sin", "cos") else 0
    np.testing.assert_allclose(
        actual.astype(np.float64), expected, rtol=2.0 ** -form.precision,
        atol=absolute,
    )

  @parameterized.parameters(
      ("rcp.approx", [np.inf, -np.inf, 0.0, -0.0, np.nan],
       [0.0, -0.0, np.inf, -np.inf, np.nan]),
      ("rcp.approx.ftz", [1e-40, -1e-40], [np.inf, -np.inf]),
      ("sqrt.approx", [-1.0, -0.0, np.inf], [np.nan, -0.0, np.inf]),
      ("rsqrt.approx", [0.0, -0.0, np.inf, -1.0],
       [np.inf, -np.inf, 0.0, np.nan]),
      ("ex2.approx", [-np.inf, np.inf, 1000.0, -1000.0],
       [0.0, np.inf, np.inf, 0.0]),
      ("ex2.approx.ftz", [-130.0, 0.0], [0.0, 1.0]),
      ("lg2.approx", [0.0, -1.0, np.inf], [-np.inf, np.nan, np.inf]),
      ("sin.approx", [np.inf, -0.0, 1e-40, -1e38], [np.nan, -0.0, 0.0, -0.0]),
      ("cos.approx", [np.inf, 0.0, 2.0**24, 1e38], [np.nan, 1.0, 0.0, 1.0]),
      ("tanh.approx", [np.inf, -np.inf, -0.0], [1.0, -1.0, -0.0]),
  )
  def test_special_values(self, name, inputs, expected):
    a = np.resize(np.array(inputs, np.float32), 32)
    actual = snippets.each(f"{name}.f32 %x, %a;", a, out=np.float32)
    self.assertTrue(
        snippets.equal_bits(
            actual, np.resize(np.array(expected, np.float32), 32)
        ),
        msg=f"{actual[:len(inputs)]}",
    )

  @parameterized.product(
      name=("abs", "neg"),
      type_=("f16", "bf16", "f32", "f64", "f16x2", "bf16x2"),
  )
  def test_sign(self, name, type_):
    scalar = type_.removesuffix("x2")
    dtype = exact.FORMATS[scalar].dtype
    a = self.floats(scalar, size=256 if type_ != scalar else 128)
    word = np.dtype(np.uint32) if type_ != scalar else dtype
    actual = snippets.each(
        f"{name}.{type_} %x, %a;", a.view(word), out=word
    ).view(dtype)
    expected = np.abs(a) if name == "abs" else -a
    number = a == a
    self.assertTrue(snippets.equal_bits(actual[number], expected[number]))

  def test_hardware_nans(self):
    """Bits as an H200 has them."""

    def bits(body, dtype, *values):
      inputs = [np.full(32, v, dtype) for v in values]
      return int(snippets.each(body, *inputs, out=dtype)[0])

    self.assertEqual(bits("neg.f32 %x, %a;", np.uint32, 0x7FC00001), 0x7FFFFFFF)
    self.assertEqual(bits("abs.bf16 %x, %a;", np.uint16, 0xFF81), 0x7FFF)
    first, second, third = (
        0x7FF0000000000001, 0xFFF8000000000005, 0x7FF8000000000002
    )
    quiet = first | 1 << 51
    for body, values, expected in (
        ("abs.f64 %x, %a;", (second,), second),
        ("neg.f64 %x, %a;", (first,), quiet),
        ("add.f64 %x, %a, %b;", (first, second), second),
        ("mul.f64 %x, %a, %b;", (second, first), quiet),
        ("sub.f64 %x, %a, %b;", (first, 0), quiet),
        ("min.f64 %x, %a, %b;", (second, first), quiet),
        ("fma.rn.f64 %x, %a, %b, %c;", (first, second, third), second),
        ("fma.rn.f64 %x, %a, %b, %c;", (first, 0, third), third),
        ("mul.f64 %x, %a, %b;", (0x7FF0000000000000, 0), 0xFFF8000000000000),
    ):
      self.assertEqual(bits(body, np.uint64, *values), expected, body)

  def test_ftz_is_before_rounding(self):
    a = np.full(32, 2.0**-126, np.float32)
    b = np.full(32, 1 - 2.0**-24, np.float32)
    for opcode, expected in (
        ("mul.f32", 2.0**-126), ("mul.ftz.f32", 0.0), ("mul.rp.ftz.f32", 0.0)
    ):
      x = snippets.each(f"{opcode} %x, %a, %b;", a, b, out=np.float32)
      np.testing.assert_array_equal(x, np.float32(expected))

  def test_zero_sums_rounded_down(self):
    a = self.floats("f32", special=False)
    for body in (
        "neg.f32 %b, %a; add.rm.f32 %x, %a, %b;", "sub.rm.f32 %x, %a, %a;",
        "neg.f32 %b, %a; fma.rm.f32 %x, %a, 0f3F800000, %b;",
    ):
      x = snippets.each(".reg .b32 %b;" + body, a, out=np.float32)
      self.assertTrue(np.all(x == 0) and np.signbit(x).all())

  def test_division_by_huge_numbers(self):
    a = np.resize(np.float32([1e38, -3.0, np.inf]), 33)[:32]
    b = np.full(32, 2.0**126 * 1.5, np.float32)
    x = snippets.each("div.approx.f32 %x, %a, %b;", a, b, out=np.float32)
    np.testing.assert_array_equal(x[:3], [0, 0, np.nan])
    self.assertTrue(np.signbit(x[1]))
    b[:] = 2.0**126
    x = snippets.each("div.approx.f32 %x, %a, %b;", a, b, out=np.float32)
    np.testing.assert_array_equal(x, a / b)

  def test_copysign(self):
    a, b = self.floats("f32"), self.floats("f32")
    actual = snippets.each("copysign.f32 %x, %a, %b;", a, b, out=np.float32)
    self.assertTrue(snippets.equal_bits(actual, np.copysign(b, a)))

  @parameterized.parameters(
      ("finite", np.isfinite), ("infinite", np.isinf),
      ("number", lambda a: ~np.isnan(a)), ("notanumber", np.isnan),
      ("normal", lambda a: np.isfinite(a)
       & ((np.abs(a) >= 2.0**-126) | (a == 0))),
      ("subnormal", lambda a: (np.abs(a) < 2.0**-126) & (a != 0)),
  )
  def test_testp(self, name, reference):
    a = self.floats("f32")
    actual = snippets.each(f"testp.{name}.f32 %px, %a;", a, out=np.bool_)
    np.testing.assert_array_equal(actual, reference(a))


class ExtremesTest(_Base):

  @parameterized.product(
      name=("min", "max"), type_=SCALARS + ("f16x2",), nan=(False, True)
  )
  def test_two(self, name, type_, nan):
    if type_ == "f64" and nan:
      self.skipTest("f64 has no .NaN")
    scalar = type_.removesuffix("x2")
    dtype = exact.FORMATS[scalar].dtype
    size = 128 if type_ == scalar else 256
    a, b = self.floats(scalar, size=size), self.floats(scalar, size=size)
    a[:6] = [0.0, -0.0, np.nan, 1.0, np.nan, -0.0]
    b[:6] = [-0.0, 0.0, 1.0, np.nan, np.nan, -0.0]
    word = dtype if type_ == scalar else np.dtype(np.uint32)
    modifier = ".NaN" if nan else ""
    actual = snippets.each(
        f"{name}{modifier}.{type_} %x, %a, %b;", a.view(word), b.view(word),
        out=word,
    ).view(dtype)
    expected = []
    for x, y in zip(a.astype(float).tolist(), b.astype(float).tolist()):
      if math.isnan(x) or math.isnan(y):
        both = math.isnan(x) and math.isnan(y)
        number = y if math.isnan(x) else x
        expected.append(np.nan if nan or both else number)
      else:
        expected.append(
            {"min": min, "max": max}[name](
                x, y, key=lambda v: (v, math.copysign(1, v))
            )
        )
    self.assertTrue(
        snippets.equal_bits(actual, np.array(expected).astype(dtype))
    )

  def test_three(self):
    a, b, c = (self.floats("f32", special=False) for _ in range(3))
    x, y = snippets.each(
        "min.f32 %x, %a, %b, %c; max.abs.f32 %y, %a, %b, %c;", a, b, c,
        out=[np.float32, np.float32],
    )
    np.testing.assert_array_equal(x, np.minimum(np.minimum(a, b), c))
    np.testing.assert_array_equal(y, np.max(np.abs([a, b, c]), axis=0))

  def test_xorsign(self):
    a, b = (self.floats("f32", special=False) for _ in range(2))
    actual = snippets.each(
        "min.xorsign.abs.f32 %x, %a, %b;", a, b, out=np.float32
    )
    sign = np.where((a < 0) != (b < 0), -1, 1)
    np.testing.assert_array_equal(actual, sign * np.minimum(abs(a), abs(b)))


class CompareTest(_Base):

  @parameterized.product(
      type_=SCALARS,
      case=(
          ("eq", lambda a, b: a == b, False),
          ("ne", lambda a, b: a != b, False),
          ("lt", lambda a, b: a < b, False), ("le", lambda a, b: a <= b, False),
          ("gt", lambda a, b: a > b, False), ("ge", lambda a, b: a >= b, False),
          ("equ", lambda a, b: a == b, True),
          ("neu", lambda a, b: a != b, True),
          ("ltu", lambda a, b: a < b, True), ("leu", lambda a, b: a <= b, True),
          ("gtu", lambda a, b: a > b, True), ("geu", lambda a, b: a >= b, True),
          ("num", lambda a, b: True, False), ("nan", lambda a, b: False, True),
      ),
  )
  def test_setp(self, type_, case):
    name, reference, unordered = case
    a, b = self.floats(type_), self.floats(type_)
    b[::3] = a[::3]
    expected = [
        unordered if math.isnan(x) or math.isnan(y) else reference(x, y)
        for x, y in zip(a.astype(float).tolist(), b.astype(float).tolist())
    ]
    actual = snippets.each(
        f"setp.{name}.{type_} %px, %a, %b;", a, b, out=np.bool_
    )
    np.testing.assert_array_equal(actual, expected)

  def test_setp_ftz_and_combined(self):
    a = np.array([1e-40, 0.0, 1.0, -1e-40] * 8, np.float32)
    x, y = snippets.each(
        "mov.b32 %r0, 0; setp.eq.ftz.f32 %px, %a, 0f00000000;"
        " setp.lt.f32 %p, %a, 0f00000000;"
        " setp.eq.or.ftz.f32 %py, %a, 0f3F800000, %p;",
        a, out=[np.bool_, np.bool_],
    )
    np.testing.assert_array_equal(x[:4], [True, True, False, True])
    np.testing.assert_array_equal(y[:4], [False, False, True, True])

  def test_setp_packed(self):
    a, b = (self.floats("bf16", size=256) for _ in range(2))
    x, y = snippets.each(
        "setp.lt.bf16x2 %px|%py, %a, %b;", a.view(np.uint32),
        b.view(np.uint32), out=[np.bool_, np.bool_],
    )
    np.testing.assert_array_equal(x, (a < b)[::2])
    np.testing.assert_array_equal(y, (a < b)[1::2])

  def test_set(self):
    a, b = (self.floats("f32") for _ in range(2))
    actual = snippets.each(
        "set.gtu.u32.f32 %x, %a, %b;", a, b, out=np.uint32
    )
    np.testing.assert_array_equal(
        actual, np.where(~(a <= b), 0xFFFFFFFF, 0)
    )


if __name__ == "__main__":
  absltest.main()
