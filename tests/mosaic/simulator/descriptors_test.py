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
"""Tests of descriptors.py."""

from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator.descriptors import (
    DescriptorError,
    InstrDescriptor,
    SmemDescriptor,
    k_major_chunks,
    mn_major_chunks,
)
from jax.experimental.mosaic.gpu.simulator.errors import UnsupportedPtxError


class SmemDescriptorTest(parameterized.TestCase):

  def test_dump(self):
    # A of a sparse f16 kernel: high word 0x40000080, start 0x400.
    got = SmemDescriptor.decode(0x40000080_00000040)
    self.assertEqual(got, SmemDescriptor(0x400, 0, 2048, 128))
    # Its B: LBO 1024.
    got = SmemDescriptor.decode(0x40000080_00000840 | 4194304)
    self.assertEqual(got, SmemDescriptor(0x8400, 1024, 2048, 128))

  def test_constant_bits_are_ignored(self):
    value = SmemDescriptor(4096, 16, 1024, 64).encode()
    self.assertEqual(
        SmemDescriptor.decode(value | 1 << 46), SmemDescriptor.decode(value)
    )

  @parameterized.parameters(0, 32, 64, 128)
  def test_round_trip(self, width):
    d = SmemDescriptor(0x3FFF0, 0x3FFF0, 0x123450, width)
    self.assertEqual(
        SmemDescriptor.decode(d.encode() & (1 << 64) - 1).width, width
    )
    d = SmemDescriptor(0x3FFF0, 0x10010, 0x3FFF0, width)
    self.assertEqual(SmemDescriptor.decode(d.encode()), d)

  @parameterized.parameters(
      (1 << 49, UnsupportedPtxError, "matrix base offset 1; only 0"),
      (1 << 52, UnsupportedPtxError, "as an absolute address"),
      (1 << 53, DescriptorError, "bits 53-60 must be 0, got 0x1"),
      (1 << 61, UnsupportedPtxError, "32-byte atoms is not modelled"),
      (3 << 61, DescriptorError, "swizzle code 3 is not defined"),
  )
  def test_refused(self, value, error, message):
    with self.assertRaisesRegex(error, message):
      SmemDescriptor.decode(value)


class AddressTest(parameterized.TestCase):

  @parameterized.parameters(32, 64, 128)
  def test_k_major(self, width):
    d = SmemDescriptor(8192 + 16, 16, 4096, width)
    got = k_major_chunks(d, 40, 16)
    for row in range(40):
      a = 8192 + 16 + row // 8 * 4096 + row % 8 * width
      a ^= (a >> 7 & {32: 1, 64: 3, 128: 7}[width]) << 4
      self.assertEqual(got[row, 0], a)

  def test_k_major_without_swizzle(self):
    got = k_major_chunks(SmemDescriptor(16, 800, 160, 0), 16, 48)
    for row in range(16):
      for chunk in range(3):
        self.assertEqual(
            got[row, chunk], 16 + row // 8 * 160 + row % 8 * 16 + 800 * chunk
        )

  @parameterized.parameters(32, 64, 128)
  def test_mn_major(self, width):
    d = SmemDescriptor(8192, 2048, 512 * 9, width)
    got = mn_major_chunks(d, 256, 16)
    for k in range(16):
      for byte in range(0, 256, 16):
        a = (
            8192 + byte // width * 2048 + k // 8 * 512 * 9 + k % 8 * width
            + byte % width
        )
        a ^= (a >> 7 & {32: 1, 64: 3, 128: 7}[width]) << 4
        self.assertEqual(got[k, byte // 16], a)

  def test_k_major_past_the_swizzled_row(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError,
        "64 bytes along K from byte 96 of a swizzled row of 128 bytes pass its"
        " end",
    ):
      k_major_chunks(SmemDescriptor(1024 + 96, 0, 1024, 128), 8, 64)
    with self.assertRaisesRegex(UnsupportedPtxError, "use a wider swizzle"):
      k_major_chunks(SmemDescriptor(1024, 0, 1024, 32), 8, 64)

  @parameterized.parameters(True, False)
  def test_start_not_in_the_first_row(self, k_major):
    d = SmemDescriptor(1024 + 128, 0, 1024, 128)
    with self.assertRaisesRegex(
        UnsupportedPtxError,
        "start 0x480 is not in the first row of a 128-byte swizzle pattern",
    ):
      if k_major:
        k_major_chunks(d, 8, 32)
      else:
        mn_major_chunks(d, 128, 16)

  def test_mn_major_start_inside_a_row(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "is inside a swizzled row of 64 bytes"
    ):
      mn_major_chunks(SmemDescriptor(1024 + 32, 0, 1024, 64), 128, 16)

  def test_mn_major_without_swizzle(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "MN-major operand without"
    ):
      mn_major_chunks(SmemDescriptor(1024, 0, 1024, 0), 128, 16)

  def test_mn_major_odd_size(self):
    with self.assertRaisesRegex(DescriptorError, "8 bytes along M or N"):
      mn_major_chunks(SmemDescriptor(1024, 0, 1024, 64), 8, 32)


class InstrDescriptorTest(parameterized.TestCase):

  @parameterized.parameters(
      ("f16", 0x08210014,
       dict(sparse=True, transpose_b=True, n=128, m=128, selector=0, k=32)),
      ("f16", 136380437, dict(sparse=True, selector=1, d_type="f32")),
      ("f16", 0x10410010,
       dict(sparse=False, transpose_b=True, n=256, m=256, a_type="f16", k=16)),
      ("f16", 0x490 | 4 << 17 | 8 << 24, dict(a_type="bf16", b_type="bf16")),
      ("f8f6f4", 0x80 | 4 << 17 | 8 << 24,
       dict(d_type="f16", a_type="e5m2", b_type="e4m3", k=32)),
      ("i8", 0x428 | 4 << 17 | 8 << 24,
       dict(d_type="s32", a_type="u8", b_type="s8", saturate=True)),
      ("mxf8f6f4", 3 << 4 | 4 << 17 | 1 << 23 | 1 << 27 | 2 << 29,
       dict(m=128, sfa_id=2, sfb_id=3, scale_type="ue8m0", d_type="f32")),
      ("mxf4nvf4", 4 | 1 << 7 | 1 << 10 | 4 << 17 | 2 << 27,
       dict(m=256, scale_type="ue4m3", a_type="e2m1", sparse=True, k=128)),
  )
  def test_decode(self, kind, value, fields):
    got = InstrDescriptor.decode(kind, value)
    for name, want in fields.items():
      self.assertEqual(getattr(got, name), want, name)

  @parameterized.parameters(
      ("f16", 1 << 6, DescriptorError, "bits 6-6 must be 0, got 1"),
      ("f16", 1 << 23, DescriptorError, "bits 23-23 must be 0"),
      ("f16", 2 << 4, DescriptorError, "D type code 2 is not legal"),
      ("f16", 2 << 7, DescriptorError, "A type code 2 is not legal for"
       r" kind::f16; expected 0 \(f16\), 1 \(bf16\)"),
      ("f16", 1 << 7, DescriptorError, "A and B must have one type, got bf16"),
      ("f16", 1, DescriptorError, "selector without the sparse bit"),
      ("f16", 6, UnsupportedPtxError, "sparsity selector 2 is not modelled"),
      ("f16", 1 << 30, UnsupportedPtxError, "maximum shift of B"),
      ("f16", 1 << 3, DescriptorError, "saturate bit is only for kind::i8"),
      ("f8f6f4", 5, DescriptorError, "the sparsity selector must be 0, got 1"),
      ("f8f6f4", 5 << 7, UnsupportedPtxError, r"e2m1 \(padded storage\)"),
      ("f8f6f4", 5 << 7 | 1 << 15, DescriptorError, "e2m1 must be K-major"),
      ("i8", 2 << 4 | 1 << 13, DescriptorError, "not possible for integers"),
      ("mxf8f6f4", 1 << 23 | 1, DescriptorError, "bits 0-1 must be 0, got 1"),
      ("mxf8f6f4", 0, DescriptorError, "needs UE8M0 scales"),
      ("mxf4", 1 << 7 | 1 << 10 | 1 << 15, DescriptorError, "bits 15-16 must"),
      ("mxf4", 1 << 7 | 1 << 10 | 1 << 31, DescriptorError, "bits 31-31 must"),
      ("tf32", 1 << 4 | 2 << 7 | 2 << 10 | 1 << 15, UnsupportedPtxError,
       "MN-major A of type tf32"),
      ("tf32", 1 << 4, DescriptorError, "A type code 0 is not legal"),
      ("f64", 0, UnsupportedPtxError, "kind::f64 is not modelled"),
  )
  def test_refused(self, kind, value, error, message):
    with self.assertRaisesRegex(error, message):
      InstrDescriptor.decode(kind, value)

  @parameterized.parameters(
      ("f16", 0x10, 64, 8, 1), ("f16", 0x10, 128, 256, 1),
      ("f16", 0x10, 256, 16, 2), ("f16", 0x10, 128, 240, 2),
      ("f8f6f4", 0x10, 128, 8, 1), ("f8f6f4", 0x10010, 128, 16, 1),
      ("i8", 0x20, 64, 24, 1), ("i8", 0x20, 64, 48, 1),
      ("i8", 0x20, 256, 32, 2),
  )
  def test_legal_shapes(self, kind, value, m, n, group):
    value |= n >> 3 << 17 | m >> 4 << 24
    InstrDescriptor.decode(kind, value).check_shape(group)

  @parameterized.parameters(
      ("f16", 0x10, 32, 8, 1, r"M must be one of \(64, 128\), got 32"),
      ("f16", 0x10, 256, 8, 1, r"M must be one of \(64, 128\), got 256"),
      ("f16", 0x10, 64, 16, 2, r"M must be one of \(128, 256\), got 64"),
      ("f16", 0x10, 128, 0, 1, r"N must be one of 8, 16, \.\.\., 256, got 0"),
      ("f16", 0x10, 128, 264, 1, "got 264"),
      ("f16", 0x10, 256, 24, 2, "got 24"),
      ("f8f6f4", 0x10010, 128, 24, 1, "got 24"),
      ("i8", 0x20, 128, 40, 1, "got 40"),
      ("i8", 0x20, 256, 48, 2, "got 48"),
  )
  def test_illegal_shapes(self, kind, value, m, n, group, message):
    d = InstrDescriptor.decode(kind, value | n >> 3 << 17 | m >> 4 << 24)
    with self.assertRaisesRegex(DescriptorError, message):
      d.check_shape(group)

  def test_scaled_shapes(self):
    value = 4 << 17 | 1 << 23 | 4
    d = InstrDescriptor.decode("mxf8f6f4", value | 1 << 27)
    d.check_shape(1)
    with self.assertRaisesRegex(DescriptorError, r"one of \(256,\), got 128"):
      d.check_shape(2)
    InstrDescriptor.decode("mxf8f6f4", value | 2 << 27).check_shape(2)


if __name__ == "__main__":
  absltest.main()
