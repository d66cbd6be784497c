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
"""Tests of mma.py and formats.py.

Operands are put into garbage-filled memory element by element, with the
formulas of the PTX ISA written as scalar code; results are compared with dense
matrix products. Values are small integers times powers of two, so all results
are exact.
"""

import dataclasses
import functools

import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import (
    formats,
    memory,
    mma,
    observers,
    tmem,
)
from jax.experimental.mosaic.gpu.simulator.descriptors import (
    InstrDescriptor,
    SmemDescriptor,
)
from jax.experimental.mosaic.gpu.simulator.errors import (
    MemoryFault,
    TmemFault,
    UnsupportedPtxError,
)

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "u8": np.uint8,
    "s8": np.int8,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
}
BITS = {name: 16 if "f16" in name else 8 for name in DTYPES} | {"e2m1": 4}
PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))


def raw_bits(values, name):
  """Bit patterns of values that the format represents exactly."""
  cast = np.asarray(values).astype(DTYPES[name])
  np.testing.assert_array_equal(cast.astype(np.float64), values)
  return cast.view(np.uint16 if BITS[name] == 16 else np.uint8)


def random_values(rng, shape, name):
  """Random values that the format represents, float64."""
  if name == "u8":
    return rng.integers(0, 256, shape).astype(np.float64)
  if name == "s8":
    return rng.integers(-128, 128, shape).astype(np.float64)
  if name == "e2m1":
    choices = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return rng.choice(np.concatenate([choices, -choices[1:]]), shape)
  return rng.integers(-3, 4, shape) * rng.choice([0.5, 1.0, 2.0], shape)


def shared_address(d, mn_major, mn, k, bits):
  """Byte address of element (mn, k), PTX ISA canonical layouts."""
  if mn_major:
    byte = mn * bits // 8
    address = (
        d.start + byte // d.width * d.leading + k // 8 * d.stride
        + k % 8 * d.width + byte % d.width
    )
  else:
    byte = k * bits // 8
    if d.width == 0:
      address = (
          d.start + mn // 8 * d.stride + mn % 8 * 16 + byte // 16 * d.leading
          + byte % 16
      )
    else:
      address = d.start + mn // 8 * d.stride + mn % 8 * d.width + byte
  mask = {0: 0, 32: 1, 64: 3, 128: 7}[d.width]
  return address ^ ((address // 128 % 8 & mask) * 16)


@functools.cache
def address_table(d, mn_major, mn, k, bits):
  """shared_address of every element, one at a time."""
  return np.array([
      [shared_address(d, mn_major, i, j, bits) for j in range(k)]
      for i in range(mn)
  ])


def put_shared(shared, cta, d, mn_major, raw, bits):
  """Stores bit patterns [mn, k]."""
  data = shared.data[cta]
  at = address_table(d, mn_major, *raw.shape, bits)
  if bits == 16:
    data[at] = raw & 255
    data[at + 1] = raw >> 8
  elif bits == 8:
    data[at] = raw
  else:
    # Two elements a byte, the even one low.
    np.testing.assert_array_equal(at[:, 0::2], at[:, 1::2])
    data[at[:, 0::2]] = raw[:, 0::2] | raw[:, 1::2] << 4


def lane_of_row(m_cta, row, lane):
  return row if m_cta == 128 else 32 * (row // 16) + row % 16 + lane


def put_tmem_a(tensor, cta, lane_of, column, raw, bits):
  per_cell = 32 // bits
  for i in range(raw.shape[0]):
    for k in range(raw.shape[1]):
      shift = bits * (k % per_cell)
      cell = int(tensor.data[cta, lane_of(i), column + k // per_cell])
      cell &= ~(((1 << bits) - 1) << shift)
      cell |= int(raw[i, k]) << shift
      tensor.data[cta, lane_of(i), column + k // per_cell] = cell


def put_metadata(tensor, cta, column, selector, entries, bits):
  """entries [128, k / 2] of 2-bit positions (of pairs for 4-bit types)."""
  for r in range(128):
    for e in range(entries.shape[1]):
      if bits == 16:
        lane = 16 * (r // 16) + 8 * (e // 8) + r % 8
        at, bit = column + selector, 16 * (r // 8 % 2) + 2 * (e % 8)
      else:
        lane, at, bit = r, column + e // 16, 2 * (e % 16)
      cell = int(tensor.data[cta, lane, at]) & ~(3 << bit)
      tensor.data[cta, lane, at] = cell | int(entries[r, e]) << bit


def sparsify(rng, m, k, name, unordered=False):
  """(stored values [m, k / 2], entries, dense values [m, k])."""
  unit = 2 if name == "e2m1" else 1
  stored = random_values(rng, (m, k // 2), name)
  groups = k // (4 * unit)
  entries = np.zeros((m, 2 * groups), np.int64)
  dense = np.zeros((m, k))
  for i in range(m):
    for g in range(groups):
      pair = PAIRS[rng.integers(6)]
      if unordered and rng.integers(2):
        pair = pair[::-1]
      for e in range(2):
        entries[i, 2 * g + e] = pair[e]
        for u in range(unit):
          dense[i, (4 * g + pair[e]) * unit + u] = (
              stored[i, (2 * g + e) * unit + u]
          )
  return stored, entries, dense


def f32_bits(values):
  return np.asarray(values).astype(np.float32).view(np.uint32)


class Bench:
  """Memories full of garbage, and a D with known contents."""

  def __init__(self, seed, num_ctas=1, rules=()):
    self.rng = np.random.default_rng(seed)
    self.shared = memory.SharedMemory(num_ctas, 200 * 1024, rules)
    self.shared.data[:] = self.rng.integers(0, 256, self.shared.data.shape)
    self.tmem = tmem.TensorMemory(num_ctas, rules)
    self.tmem.data[:] = self.rng.integers(
        0, 1 << 32, self.tmem.data.shape, dtype=np.uint32
    )

  def run(self, instruction, ctas=(0,)):
    instruction.validate()
    mma.execute(instruction, ctas, self.shared, self.tmem)


A_START, B_START = 1024, 64 * 1024


def operand(start, mn_major, width, mn, bits):
  """A descriptor whose strides leave gaps."""
  if not mn_major:
    if width == 0:
      return SmemDescriptor(start, 32 * mn + 48, 128 + 16, 0)
    return SmemDescriptor(start, 16, 2 * 8 * width, width)
  tile = 8 * width
  tiles = -(-mn * bits // 8 // width)
  return SmemDescriptor(start, 2 * tile, (2 * tiles + 1) * tile, width)


class DenseAndSparseTest(parameterized.TestCase):

  def check(
      self, kind, a_type, b_type, d_type, sparse, m, n, width=128,
      a_mn_major=False, b_mn_major=False, a_in_tmem=False, accumulate=True,
      lane=0, negate_a=False, negate_b=False, scale_d=0, selector=0, seed=0,
      unordered=False, rules=(), a_offset=0,
  ):
    bench = Bench(seed, rules=rules)
    rng = bench.rng
    a_bits, b_bits = BITS[a_type], BITS[b_type]
    k = 32 * 8 // a_bits * (2 if sparse else 1)
    if sparse:
      a, entries, dense = sparsify(rng, m, k, a_type, unordered)
    else:
      a = dense = random_values(rng, (m, k), a_type)
    b = random_values(rng, (n, k), b_type)
    d_column, a_column, meta_column = 8, 300, 400

    a_desc = operand(A_START + a_offset, a_mn_major, width, m, a_bits)
    b_desc = operand(B_START, b_mn_major, width, n, b_bits)
    rows = [lane_of_row(m, i, lane) for i in range(m)]
    if a_in_tmem:
      put_tmem_a(
          bench.tmem, 0, rows.__getitem__, a_column, raw_bits(a, a_type),
          a_bits,
      )
    else:
      put_shared(
          bench.shared, 0, a_desc, a_mn_major, raw_bits(a, a_type), a_bits
      )
    put_shared(
        bench.shared, 0, b_desc, b_mn_major, raw_bits(b, b_type), b_bits
    )
    if sparse:
      put_metadata(bench.tmem, 0, meta_column, selector, entries, a_bits)
    before = bench.tmem.data.copy()
    expected = before[0].copy()
    product = dense @ b.T
    if negate_a != negate_b:
      product = -product
    # If it does not accumulate, the garbage in D (NaN, too) must not count.
    old = rng.integers(-99, 99, (m, n)).astype(np.float64) * accumulate
    for i, row in enumerate(rows):
      cells = bench.tmem.data[0, row, d_column : d_column + n]
      total = old[i] * 2.0**-scale_d + product[i]
      if d_type == "f32":
        if accumulate:
          cells[:] = f32_bits(old[i])
        cell = f32_bits(total)
      elif d_type == "s32":
        integers = cells.view(np.int32).astype(np.int64) * accumulate
        cell = (integers + product[i].astype(np.int64)) & 0xFFFF_FFFF
      else:
        if accumulate:
          low = old[i].astype(np.float16).view(np.uint16)
          cells[:] = cells & 0xFFFF_0000 | low
        cell = 0xFFFF_0000 | total.astype(np.float16).view(np.uint16).astype(
            np.uint32
        )
      expected[row, d_column : d_column + n] = cell

    codes = {"f16": 0, "bf16": 1, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
    idesc = (
        selector | int(sparse) << 2
        | {"f16": 0, "f32": 1, "s32": 2}[d_type] << 4
        | codes[a_type] << 7 | codes[b_type] << 10
        | int(negate_a) << 13 | int(negate_b) << 14
        | int(a_mn_major) << 15 | int(b_mn_major) << 16
        | n >> 3 << 17 | m >> 4 << 24
    )
    bench.run(
        mma.MmaInstruction(
            InstrDescriptor.decode(kind, idesc),
            1,
            d=lane << 16 | d_column,
            a=lane << 16 | a_column if a_in_tmem else a_desc.encode(),
            b=b_desc.encode(),
            a_in_tmem=a_in_tmem,
            accumulate=accumulate,
            metadata=meta_column if sparse else None,
            scale_d=scale_d,
        )
    )
    np.testing.assert_array_equal(bench.tmem.data[0], expected)

  @parameterized.product(
      types=(
          ("f16", "f16", "f16", "f32"), ("f16", "bf16", "bf16", "f32"),
          ("f16", "f16", "f16", "f16"), ("f8f6f4", "e4m3", "e4m3", "f32"),
          ("f8f6f4", "e5m2", "e4m3", "f16"), ("i8", "s8", "s8", "s32"),
          ("i8", "u8", "s8", "s32"),
      ),
      sparse=(False, True),
      majors=((False, False), (True, True), (False, True)),
      width=(64, 128),
  )
  def test_types_and_majors(self, types, sparse, majors, width):
    self.check(*types, sparse, 128, 48, width, *majors)

  @parameterized.product(
      a_mn_major=(False, True), kind=(("f16", "f16"), ("i8", "s8"))
  )
  def test_swizzle_32(self, a_mn_major, kind):
    d_type = "f32" if kind[0] == "f16" else "s32"
    self.check(
        kind[0], kind[1], kind[1], d_type, False, 128, 32, 32, a_mn_major
    )
    self.check(
        kind[0], kind[1], kind[1], d_type, True, 128, 32, 32, a_mn_major, True
    )

  @parameterized.parameters(False, True)
  def test_no_swizzle(self, sparse):
    self.check("f16", "f16", "f16", "f32", sparse, 128, 40 + 8 * sparse, 0)
    self.check("f8f6f4", "e4m3", "e5m2", "f32", sparse, 128, 16, 0)

  @parameterized.product(
      n=(8, 24, 64, 256), sparse=(False, True), kind=("f16", "f8f6f4")
  )
  def test_n(self, n, sparse, kind):
    types = ("f16", "f16") if kind == "f16" else ("e4m3", "e4m3")
    self.check(kind, *types, "f32", sparse, 128, n, seed=n)

  @parameterized.product(
      lane=(0, 16),
      kind=(("f16", "bf16", "f32"), ("i8", "s8", "s32")),
      a_in_tmem=(False, True),
      n=(16, 256),
  )
  def test_m64(self, lane, kind, a_in_tmem, n):
    self.check(
        kind[0], kind[1], kind[1], kind[2], False, 64, n, lane=lane,
        a_in_tmem=a_in_tmem,
    )

  @parameterized.product(
      kind=(
          ("f16", "f16", "f32"), ("f16", "bf16", "f32"),
          ("f8f6f4", "e5m2", "f32"), ("i8", "s8", "s32"),
      ),
      sparse=(False, True),
  )
  def test_a_in_tensor_memory(self, kind, sparse):
    self.check(
        kind[0], kind[1], kind[1], kind[2], sparse, 128, 32, a_in_tmem=True
    )

  @parameterized.parameters(False, True)
  def test_overwrite_ignores_old_d(self, sparse):
    self.check("f16", "f16", "f16", "f32", sparse, 128, 32, accumulate=False)
    self.check("i8", "s8", "s8", "s32", sparse, 128, 32, accumulate=False)

  @parameterized.parameters((True, False), (False, True), (True, True))
  def test_negate(self, a, b):
    self.check(
        "f16", "f16", "f16", "f32", True, 128, 16, negate_a=a, negate_b=b
    )

  @parameterized.parameters("f32", "f16")
  def test_scale_input_d(self, d_type):
    self.check("f16", "f16", "f16", d_type, False, 128, 16, scale_d=3)

  def test_selector_and_unordered_metadata(self):
    self.check("f16", "f16", "f16", "f32", True, 128, 16, selector=1)
    self.check("f16", "f16", "f16", "f32", True, 128, 16, unordered=True)
    self.check("i8", "s8", "s8", "s32", True, 128, 16, unordered=True)

  @parameterized.parameters(32, 64, 96)
  def test_k_step_inside_the_swizzled_row(self, offset):
    self.check(
        "f16", "f16", "f16", "f32", False, 128, 16, a_offset=offset
    )

  @parameterized.parameters(*range(6))
  def test_random(self, seed):
    rng = np.random.default_rng(seed + 100)
    kind, a, b, d = [
        ("f16", "f16", "f16", "f32"), ("f16", "bf16", "bf16", "f32"),
        ("f8f6f4", "e4m3", "e5m2", "f32"), ("i8", "s8", "u8", "s32"),
    ][rng.integers(4)]
    self.check(
        kind, a, b, d, bool(rng.integers(2)), 128, 32 * int(rng.integers(1, 9)),
        int(rng.choice([64, 128])), bool(rng.integers(2)),
        bool(rng.integers(2)), accumulate=bool(rng.integers(2)), seed=seed,
    )


class PairTest(parameterized.TestCase):
  """cta_group::2."""

  @parameterized.product(
      m=(128, 256),
      sparse=(False, True),
      kind=(("f16", "f16", "f32"), ("f8f6f4", "e4m3", "f32"),
            ("i8", "s8", "s32")),
      b_mn_major=(False, True),
      a_in_tmem=(False, True),
      n=(64, 256),
  )
  def test_pair(self, m, sparse, kind, b_mn_major, a_in_tmem, n):
    if sparse and m == 128:
      self.skipTest("The metadata layout of 64 rows per CTA is not known.")
    name, a_type, d_type = kind
    bits = BITS[a_type]
    bench = Bench(m + n, 4)
    rng = bench.rng
    k = 32 * 8 // bits * (2 if sparse else 1)
    if sparse:
      a, entries, dense = sparsify(rng, m, k, a_type)
    else:
      a = dense = random_values(rng, (m, k), a_type)
    b = random_values(rng, (n, k), a_type)
    half_m, half_n = m // 2, n // 2
    a_desc = operand(A_START, False, 128, half_m, bits)
    b_desc = operand(B_START, b_mn_major, 128, half_n, bits)
    ctas = (2, 3)
    d_column, a_column, meta_column = 64, 400, 420
    for c, cta in enumerate(ctas):
      rows = slice(c * half_m, (c + 1) * half_m)
      columns = slice(c * half_n, (c + 1) * half_n)
      raw = raw_bits(a[rows], a_type)
      if a_in_tmem:
        put_tmem_a(bench.tmem, cta, lambda i: i, a_column, raw, bits)
        if m == 128:
          put_tmem_a(bench.tmem, cta, lambda i: i + 64, a_column, raw, bits)
      else:
        put_shared(bench.shared, cta, a_desc, False, raw, bits)
      raw = raw_bits(b[columns], a_type)
      put_shared(bench.shared, cta, b_desc, b_mn_major, raw, bits)
      if sparse:
        put_metadata(
            bench.tmem, cta, meta_column, 0, entries[rows], bits
        )
    expected = bench.tmem.data.copy()
    product = dense @ b.T
    cells = (
        f32_bits(product)
        if d_type == "f32"
        else product.astype(np.int64) & 0xFFFF_FFFF
    )
    for i in range(m):
      for j in range(n):
        cell = cells[i, j]
        if m == 256:
          cta, lane, column = ctas[i // 128], i % 128, j
        else:
          cta, lane = ctas[i // 64], i % 64 + 64 * (j >= half_n)
          column = j % half_n
        expected[cta, lane, d_column + column] = cell
    idesc = (
        int(sparse) << 2 | (1 if d_type == "f32" else 2) << 4
        | (0x480 if a_type == "s8" else 0) | int(b_mn_major) << 16
        | n >> 3 << 17 | m >> 4 << 24
    )
    instruction = mma.MmaInstruction(
        InstrDescriptor.decode(name, idesc), 2, d_column,
        a_column if a_in_tmem else a_desc.encode(), b_desc.encode(), a_in_tmem,
        metadata=meta_column if sparse else None,
    )
    bench.run(instruction, ctas)
    np.testing.assert_array_equal(bench.tmem.data, expected)

  def test_a_must_be_repeated(self):
    bench = Bench(0, 2)
    b = operand(B_START, False, 128, 32, 16)
    idesc = 1 << 4 | 64 >> 3 << 17 | 128 >> 4 << 24
    instruction = mma.MmaInstruction(
        InstrDescriptor.decode("f16", idesc), 2, 0, 400, b.encode(), True
    )
    with self.assertRaisesRegex(
        TmemFault, "lanes 64-127 must repeat lanes 0-63"
    ):
      bench.run(instruction, (0, 1))

  def test_sparse_with_64_rows(self):
    bench = Bench(0, 2)
    idesc = 1 << 2 | 1 << 4 | 64 >> 3 << 17 | 128 >> 4 << 24
    instruction = mma.MmaInstruction(
        InstrDescriptor.decode("f16", idesc), 2, 0, 0, 0, metadata=4
    )
    with self.assertRaisesRegex(
        UnsupportedPtxError, "sparse MMA with 64 rows per CTA"
    ):
      bench.run(instruction, (0, 1))


class ScaledTest(parameterized.TestCase):
  """Block scaling."""

  @parameterized.product(
      kind=(
          ("mxf8f6f4", "e4m3", "ue8m0", 1, 3),
          ("mxf8f6f4", "e5m2", "ue8m0", 1, 0),
          ("mxf4nvf4", "e2m1", "ue8m0", 2, 2),
          ("mxf4nvf4", "e2m1", "ue4m3", 4, 0),
          ("mxf4", "e2m1", "ue8m0", 2, 0),
      ),
      sparse=(False, True),
      shape=((1, 128, 32), (1, 128, 256), (1, 128, 40), (2, 256, 64),
             (2, 256, 256), (2, 128, 64), (2, 128, 256)),
  )
  def test_scaled(self, kind, sparse, shape):
    name, a_type, scale_type, count, sf_id = kind
    group, m, n = shape
    if sparse and group == 2 and m == 128:
      self.skipTest("PTX has no such shape.")
    bits = BITS[a_type]
    bench = Bench(n, 2)
    rng = bench.rng
    k = 32 * 8 // bits * (2 if sparse else 1)
    if sparse:
      a, entries, dense = sparsify(rng, m, k, a_type)
    else:
      a = dense = random_values(rng, (m, k), a_type)
    b = random_values(rng, (n, k), a_type)
    # Powers of two are in both scale formats.
    scale_a = 2.0 ** rng.integers(-3, 4, (m, count))
    scale_b = 2.0 ** rng.integers(-3, 4, (n, count))
    m_cta, n_cta = m // group, n // group
    a_desc = operand(A_START, False, 128, m_cta, bits)
    b_desc = operand(B_START, False, 128, n_cta, bits)
    d_column, meta_column, sfa, sfb = 0, 300, 320, 340
    ctas = tuple(range(group))

    def put_byte(cta, lane, column, byte, value):
      cell = int(bench.tmem.data[cta, lane, column]) & ~(255 << 8 * byte)
      bench.tmem.data[cta, lane, column] = cell | int(value) << 8 * byte

    raw_sfa, raw_sfb = raw_bits(scale_a, scale_type), raw_bits(
        scale_b, scale_type
    )
    for cta in ctas:
      rows = slice(cta * m_cta, (cta + 1) * m_cta)
      put_shared(
          bench.shared, cta, a_desc, False, raw_bits(a[rows], a_type), bits
      )
      put_shared(
          bench.shared, cta, b_desc, False,
          raw_bits(b[cta * n_cta : (cta + 1) * n_cta], a_type), bits,
      )
      if sparse:
        put_metadata(bench.tmem, cta, meta_column, 0, entries[rows], bits)
      for j in range(count):
        for i in range(m_cta):
          for q in range(4):
            put_byte(
                cta, 32 * q + i % 32, sfa + i // 32, sf_id + j,
                raw_sfa[cta * m_cta + i, j],
            )
        for i in range(n):
          if m_cta == 128:
            for q in range(4):
              put_byte(
                  cta, 32 * q + i % 32, sfb + i // 32, sf_id + j,
                  raw_sfb[i, j],
              )
          else:
            h, r = i // (n // 2), i % (n // 2)
            for q in range(2):
              put_byte(
                  cta, 64 * h + 32 * q + r % 32, sfb + r // 32, sf_id + j,
                  raw_sfb[i, j],
              )
    block = k // count
    product = np.zeros((m, n))
    for j in range(count):
      part = slice(j * block, (j + 1) * block)
      scale = np.outer(scale_a[:, j], scale_b[:, j])
      product += scale * (dense[:, part] @ b[:, part].T)
    expected = bench.tmem.data.copy()
    cells = f32_bits(product)
    for i in range(m):
      for j in range(n):
        cta, lane, column = i // m_cta, i % m_cta, j
        if m_cta == 64:
          lane, column = lane + 64 * (j >= n // 2), j % (n // 2)
        expected[cta, lane, d_column + column] = cells[i, j]
    codes = {"e4m3": 0, "e5m2": 1, "e2m1": 1}
    idesc = (
        int(sparse) << 2 | sf_id << 4 | codes[a_type] << 7
        | codes[a_type] << 10 | n >> 3 << 17
        | int(scale_type == "ue8m0") << 23 | m >> 7 << 27 | sf_id << 29
    )
    instruction = mma.MmaInstruction(
        InstrDescriptor.decode(name, idesc), group, d_column, a_desc.encode(),
        b_desc.encode(), metadata=meta_column if sparse else None,
        scale_a=sfa, scale_b=sfb, scale_vector=count,
    )
    bench.run(instruction, ctas)
    np.testing.assert_array_equal(bench.tmem.data, expected)

  def make(self, **changes):
    idesc = 32 >> 3 << 17 | 1 << 23 | 1 << 27
    a = operand(A_START, False, 128, 128, 8)
    b = operand(B_START, False, 128, 32, 8)
    instruction = mma.MmaInstruction(
        InstrDescriptor.decode("mxf8f6f4", idesc), 1, 0, a.encode(),
        b.encode(), scale_a=320, scale_b=340, scale_vector=1,
    )
    return dataclasses.replace(instruction, **changes)

  def test_replicas_must_agree(self):
    bench = Bench(0)
    bench.tmem.data[0, :, 320:344] = 0x7F7F7F7F
    bench.run(self.make())
    bench.tmem.data[0, 64 + 5, 322] = 0x7F7F7F01
    with self.assertRaisesRegex(
        TmemFault,
        r"scale factors of A: the replicas of row 69 \(lane 5, column 322 of"
        r" CTA 0\) in lanes 0\.\. and 64\.\. differ: \[127\] and \[1\]; copy"
        " the scales to all four subpartitions",
    ):
      bench.run(self.make())

  def test_nan_scale(self):
    bench = Bench(0)
    bench.shared.data[:] = 0x38  # 1.0
    bench.tmem.data[0, :, 320:344] = 0x7F7F7F7F
    for quarter in range(4):
      bench.tmem.data[0, 32 * quarter + 3, 321] = 0xFF
    bench.run(self.make())
    d = bench.tmem.data[0, :, :32].view(np.float32)
    self.assertTrue(np.isnan(d[35]).all())
    np.testing.assert_array_equal(np.delete(d, 35, 0), 32.0)

  def test_missing_scales(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "needs the address of the scale factors of A"
    ):
      Bench(0).run(self.make(scale_a=None))

  def test_scale_lane(self):
    with self.assertRaisesRegex(TmemFault, "must name lane 0"):
      Bench(0).run(self.make(scale_b=32 << 16))

  def test_scale_id(self):
    idesc = 32 >> 3 << 17 | 1 << 23 | 1 << 27 | 1 << 4 | 1 << 7 | 1 << 10
    with self.assertRaisesRegex(
        UnsupportedPtxError, "scale factor id 1 of B must be a multiple of 2"
    ):
      Bench(0).run(
          self.make(
              descriptor=InstrDescriptor.decode("mxf4", idesc), scale_vector=2
          )
      )

  def test_ue4m3_needs_4x(self):
    idesc = 32 >> 3 << 17 | 1 << 27 | 1 << 7 | 1 << 10
    with self.assertRaisesRegex(
        UnsupportedPtxError, "UE4M3 scales need scale_vec::4X, got 2X"
    ):
      Bench(0).run(
          self.make(
              descriptor=InstrDescriptor.decode("mxf4nvf4", idesc),
              scale_vector=2,
          )
      )


class RuleTest(parameterized.TestCase):
  """Numerics at the edges, and errors."""

  def make(self, sparse=False, n=32, kind="f16", bits=0, **changes):
    idesc = (
        int(sparse) << 2 | (2 if kind == "i8" else 1) << 4 | n >> 3 << 17
        | 8 << 24 | bits
    )
    changes = {
        "a": operand(A_START, False, 128, 128, 16).encode(),
        "b": operand(B_START, False, 128, n, 16).encode(),
        "metadata": 400 if sparse else None,
        "d": 0,
    } | changes
    return mma.MmaInstruction(
        InstrDescriptor.decode(kind, idesc), 1, **changes
    )

  def test_random_floats(self):
    bench = Bench(7)
    a = bench.rng.standard_normal((128, 16)).astype(np.float16)
    b = bench.rng.standard_normal((32, 16)).astype(np.float16)
    put_shared(bench.shared, 0, operand(A_START, False, 128, 128, 16), False,
               a.view(np.uint16), 16)
    put_shared(bench.shared, 0, operand(B_START, False, 128, 32, 16), False,
               b.view(np.uint16), 16)
    bench.run(self.make())
    np.testing.assert_allclose(
        bench.tmem.data[0, :, :32].view(np.float32),
        a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-6, atol=1e-7,
    )

  def test_infinity_at_dropped_positions_does_not_count(self):
    bench = Bench(8)
    a, entries, _ = sparsify(bench.rng, 128, 32, "f16")
    a[:] = 1
    entries[:] = np.tile([0, 1], 8)
    b = np.ones((32, 32))
    b[:, 2::4] = np.inf
    b[:, 3::4] = np.nan
    put_shared(bench.shared, 0, operand(A_START, False, 128, 128, 16), False,
               raw_bits(a, "f16"), 16)
    put_shared(bench.shared, 0, operand(B_START, False, 128, 32, 16), False,
               raw_bits(b, "f16"), 16)
    put_metadata(bench.tmem, 0, 400, 0, entries, 16)
    bench.run(self.make(True))
    np.testing.assert_array_equal(
        bench.tmem.data[0, :, :32].view(np.float32), 16.0
    )

  def test_overflow_is_infinity(self):
    bench = Bench(9)
    bench.shared.data.view(np.float16)[:] = 60000
    bench.run(self.make())
    np.testing.assert_array_equal(
        bench.tmem.data[0, :, :32].view(np.float32),
        np.float32(16 * float(np.float16(60000)) ** 2),
    )
    f16 = self.make()
    f16 = dataclasses.replace(
        f16, descriptor=dataclasses.replace(f16.descriptor, d_type="f16")
    )
    bench.run(f16)
    low = (bench.tmem.data[0, :, :32] & 0xFFFF).astype(np.uint16)
    self.assertTrue(np.isposinf(low.view(np.float16)).all())

  @parameterized.parameters(False, True)
  def test_integer_overflow(self, saturate):
    bench = Bench(10)
    bench.shared.data[:] = 100
    bench.tmem.data[0, :, :32] = 2**31 - 5
    bench.run(
        self.make(kind="i8", bits=1 << 7 | 1 << 10 | int(saturate) << 3,
                  accumulate=True)
    )
    exact = 2**31 - 5 + 32 * 100 * 100
    expected = 2**31 - 1 if saturate else exact
    np.testing.assert_array_equal(bench.tmem.data[0, :, :32], expected)

  def test_disabled_lanes(self):
    bench = Bench(11)
    bench.shared.data.view(np.float16)[:] = 1
    before = bench.tmem.data.copy()
    words = (0x80000001, 0, 0xFFFFFFFF, 2)
    bench.run(self.make(disabled_lanes=words))
    for lane in range(128):
      off = words[lane // 32] >> lane % 32 & 1
      want = before[0, lane, :32] if off else f32_bits(np.full(32, 16.0))
      np.testing.assert_array_equal(bench.tmem.data[0, lane, :32], want)

  def test_disabled_lanes_count(self):
    with self.assertRaisesRegex(UnsupportedPtxError, "needs 4 words, got 3"):
      Bench(0).run(self.make(disabled_lanes=(0, 0, 0)))

  def test_odd_metadata_address(self):
    with self.assertRaisesRegex(
        TmemFault, "metadata address 0x191 is odd; the hardware reads pairs"
    ):
      Bench(0).run(self.make(True, metadata=401))

  def test_equal_positions(self):
    bench = Bench(12)
    entries = np.tile([0, 1], (128, 8))
    entries[77, 6:8] = 2
    put_metadata(bench.tmem, 0, 400, 0, entries, 16)
    with self.assertRaisesRegex(
        UnsupportedPtxError,
        "metadata: both entries of group 3 of row 77 of CTA 0 name position 2",
    ):
      bench.run(self.make(True))

  def test_sparse_bit(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "the sparse bit of the instruction descriptor is 1"
    ):
      Bench(0).run(self.make(True, metadata=None))

  def test_sparse_m64(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "sparse MMA with 64 rows per CTA"
    ):
      idesc = 1 << 2 | 1 << 4 | 4 << 17 | 4 << 24
      descriptor = InstrDescriptor.decode("f16", idesc)
      Bench(0).run(dataclasses.replace(self.make(True), descriptor=descriptor))

  def test_operand_outside_shared_memory(self):
    far = SmemDescriptor(199 * 1024, 0, 2048, 128).encode()
    with self.assertRaisesRegex(
        MemoryFault,
        "tcgen05.mma operand B: read of 16 bytes of shared memory at .* is"
        " outside its 204800 bytes",
    ):
      Bench(0).run(self.make(b=far))

  def test_d_outside_tensor_memory(self):
    with self.assertRaisesRegex(
        TmemFault, r"operand D: columns 500\.\.531 of CTA 0 pass the end"
    ):
      Bench(0).run(self.make(d=500))

  def test_a_outside_tensor_memory(self):
    with self.assertRaisesRegex(
        TmemFault, r"operand A: columns 508\.\.515 of CTA 0 pass the end"
    ):
      Bench(0).run(self.make(a=508, a_in_tmem=True))

  def test_d_outside_allocation(self):
    bench = Bench(0, rules=[observers.TmemRules()])
    bench.tmem.allocate(0, 32)
    bench.run(self.make())
    with self.assertRaisesRegex(
        TmemFault, "operand D: write of tensor memory column 32 of CTA 0"
    ):
      bench.run(self.make(d=1))

  def test_accumulating_unwritten_d(self):
    checker = observers.UnwrittenReads()
    bench = Bench(0, rules=[checker])
    bench.shared.write_chunks(
        0, np.arange(0, 200 * 1024, 16),
        np.zeros((200 * 64, 16), np.uint8),
    )
    with self.assertRaisesRegex(TmemFault, "operand D: read of tensor memory"):
      bench.run(self.make(accumulate=True))
    bench.run(self.make())
    bench.run(self.make(accumulate=True))

  def test_lanes(self):
    with self.assertRaisesRegex(
        TmemFault, "of D names lane 16; layout D allows 0"
    ):
      Bench(0).run(self.make(d=16 << 16))
    with self.assertRaisesRegex(TmemFault, "must be the lane 0 of D"):
      Bench(0).run(self.make(a=16 << 16, a_in_tmem=True))

  def test_scale_d_is_for_f16(self):
    with self.assertRaisesRegex(UnsupportedPtxError, "not possible with kind"):
      Bench(0).run(self.make(kind="i8", scale_d=1))
    with self.assertRaisesRegex(UnsupportedPtxError, "must be in 0..15"):
      Bench(0).run(self.make(scale_d=16))

  def test_a_in_tensor_memory_is_k_major(self):
    with self.assertRaisesRegex(UnsupportedPtxError, "must be K-major"):
      Bench(0).run(self.make(bits=1 << 15, a=0, a_in_tmem=True))

  def test_counts(self):
    statistics = observers.Statistics()
    instruction = self.make(True)
    statistics.on_mma(instruction, (0,))
    self.assertEqual(statistics.mma_instructions, {"f16 sparse": 1})
    self.assertEqual(statistics.flops, 2 * 128 * 32 * 32)
    self.assertEqual(statistics.shared_operand_bytes, 128 * 32 + 32 * 64)


class FormatsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("f16", np.float16), ("bf16", ml_dtypes.bfloat16),
      ("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2),
      ("e2m3", ml_dtypes.float6_e2m3fn), ("e3m2", ml_dtypes.float6_e3m2fn),
      ("e2m1", ml_dtypes.float4_e2m1fn), ("u8", np.uint8), ("s8", np.int8),
      ("ue8m0", ml_dtypes.float8_e8m0fnu),
  )
  def test_table(self, name, dtype):
    bits = formats.FORMATS[name].bits
    raw = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    with np.errstate(invalid="ignore"):
      want = raw.view(dtype).astype(np.float64)
    np.testing.assert_array_equal(formats.decode(name, raw), want)

  def test_ue4m3_ignores_the_sign(self):
    raw = np.arange(256, dtype=np.uint8)
    want = (raw & 127).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    np.testing.assert_array_equal(formats.decode("ue4m3", raw), want)

  def test_nibbles(self):
    got = formats.unpack_nibbles(np.array([[0x21, 0x43]], np.uint8))
    np.testing.assert_array_equal(got, [[1, 2, 3, 4]])


if __name__ == "__main__":
  absltest.main()
