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
"""Tests of tmem.py."""

import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import observers, tmem
from jax.experimental.mosaic.gpu.simulator.errors import TmemFault


def place(shape, t, q, split):
  """Row and column of register q of thread t (PTX ISA 9.7.16.2.3)."""
  match shape:
    case "32x32b":
      return t, q
    case "16x64b":
      return t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * q
    case "16x128b":
      return t // 4 + 8 * (q % 2), t % 4 + 4 * (q // 2)
    case "16x256b":
      return t // 4 + 8 * (q // 2 % 2), 2 * (t % 4) + q % 2 + 8 * (q // 4)
    case "16x32bx2":
      return t % 16, q if t < 16 else split + q
  raise ValueError(shape)


PER_REPEAT = {
    "32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1,
}
CASES = [
    (shape, 1 << n)
    for shape, most in (
        ("32x32b", 7), ("16x64b", 7), ("16x128b", 6), ("16x256b", 5),
        ("16x32bx2", 7),
    )
    for n in range(most + 1)
]


class TransferTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(0)
    self.tensor = tmem.TensorMemory(2)
    self.tensor.data[:] = self.rng.integers(
        0, 1 << 32, self.tensor.data.shape, dtype=np.uint32
    )
    # Three warps in two CTAs.
    self.cta = np.array([0, 1, 1])
    self.quadrant = np.array([3, 0, 2])

  def addresses(self, shape, span):
    lane = 0 if shape == "32x32b" else 16 * self.rng.integers(0, 2, 3)
    column = self.rng.integers(0, 512 - span + 1, 3)
    return lane + 0 * column, column

  @parameterized.parameters(*CASES)
  def test_load_and_store(self, shape, repeat):
    count = repeat * PER_REPEAT[shape]
    split = 2 * repeat
    layout = tmem.shape(shape, repeat, split)
    self.assertEqual(layout.registers, count)
    lane, column = self.addresses(shape, layout.span)
    address = lane << 16 | column
    # A warp may also name its own lanes in full.
    address[0] += self.quadrant[0] * 32 << 16
    got = self.tensor.load(self.cta, self.quadrant, address, layout)
    expected = self.tensor.data.copy()
    values = self.rng.integers(0, 1 << 32, got.shape, dtype=np.uint32)
    for w in range(3):
      for t in range(32):
        for q in range(count):
          row, offset = place(shape, t, q, split)
          cell = (
              self.cta[w], 32 * self.quadrant[w] + lane[w] + row,
              column[w] + offset,
          )
          self.assertEqual(got[w, t, q], self.tensor.data[cell])
          expected[cell] = values[w, t, q]
    self.tensor.store(self.cta, self.quadrant, address, layout, values)
    np.testing.assert_array_equal(self.tensor.data, expected)

  @parameterized.parameters(
      ("32x32b", 8), ("16x64b", 16), ("16x128b", 4), ("16x256b", 4),
      ("16x32bx2", 8),
  )
  def test_pack_and_unpack(self, shape, repeat):
    split = repeat
    layout = tmem.shape(shape, repeat, split)
    lane, column = self.addresses(shape, 2 * layout.span)
    address = lane << 16 | column
    got = self.tensor.load(
        self.cta, self.quadrant, address, layout, pack=True
    )
    expected = self.tensor.data.copy()
    values = self.rng.integers(0, 1 << 32, got.shape, dtype=np.uint32)
    for w in range(3):
      for t in range(32):
        for q in range(layout.registers):
          row, offset = place(shape, t, q, split)
          cells = expected[
              self.cta[w], 32 * self.quadrant[w] + lane[w] + row
          ]
          at = column[w] + 2 * offset
          old = self.tensor.data[
              self.cta[w], 32 * self.quadrant[w] + lane[w] + row
          ]
          self.assertEqual(
              int(got[w, t, q]),
              int(old[at]) & 0xFFFF | (int(old[at + 1]) & 0xFFFF) << 16,
          )
          cells[at] = int(values[w, t, q]) & 0xFFFF | 0xFFFF_0000
          cells[at + 1] = int(values[w, t, q]) >> 16 | 0xFFFF_0000
    self.tensor.store(
        self.cta, self.quadrant, address, layout, values, unpack=True
    )
    np.testing.assert_array_equal(self.tensor.data, expected)

  def test_the_16x256b_pattern_of_mosaic(self):
    # A row of D in registers: row t // 4, 8 columns every 4 registers.
    layout = tmem.shape("16x256b", 8)
    self.tensor.data[0] = np.arange(128)[:, None] * 1000 + np.arange(512)
    got = self.tensor.load(
        np.array([0]), np.array([1]), np.array([64]), layout
    )[0]
    self.assertEqual(got[5, 0], (32 + 1) * 1000 + 64 + 2)
    self.assertEqual(got[5, 3], (32 + 9) * 1000 + 64 + 3)
    self.assertEqual(got[5, 4], (32 + 1) * 1000 + 64 + 10)

  def test_foreign_lanes(self):
    layout = tmem.shape("32x32b", 1)
    with self.assertRaisesRegex(
        TmemFault,
        r"address 0x200000 names lane 32; warp 2 of its warpgroup reaches only"
        r" lanes 64\.\.95",
    ):
      self.tensor.load(
          self.cta[2:], self.quadrant[2:], np.array([32 << 16]), layout
      )

  @parameterized.parameters(("32x32b", 16, "0"), ("16x256b", 8, "0 or 16"))
  def test_lane_alignment(self, shape, lane, allowed):
    with self.assertRaisesRegex(
        TmemFault,
        rf"has lane {lane} \(modulo 32\); this shape allows {allowed}",
    ):
      self.tensor.load(
          self.cta[:1], self.quadrant[:1], np.array([lane << 16]),
          tmem.shape(shape, 1),
      )

  def test_past_the_last_column(self):
    with self.assertRaisesRegex(
        TmemFault, r"columns 500\.\.515 pass the end of tensor memory"
    ):
      self.tensor.load(
          self.cta[:1], self.quadrant[:1], np.array([500]),
          tmem.shape("32x32b", 16),
      )
    with self.assertRaisesRegex(TmemFault, r"columns 504\.\.519"):
      self.tensor.load(
          self.cta[:1], self.quadrant[:1], np.array([504]),
          tmem.shape("32x32b", 8), pack=True,
      )

  def test_bad_shapes(self):
    with self.assertRaisesRegex(ValueError, "unknown shape '8x8b'"):
      tmem.shape("8x8b", 1)
    with self.assertRaisesRegex(ValueError, r"power of two in 1\.\.32"):
      tmem.shape("16x256b", 64)

  def test_observers_see_each_cell_once(self):
    statistics = observers.Statistics()
    checker = observers.UnwrittenReads()
    tensor = tmem.TensorMemory(2, [statistics, checker])
    layout = tmem.shape("16x128b", 4)
    address = np.zeros(3, int)
    values = np.zeros((3, 32, 8), np.uint32)
    tensor.store(self.cta, self.quadrant, address, layout, values)
    self.assertEqual(statistics.tmem_written_cells, 3 * 256)
    tensor.load(self.cta, self.quadrant, address, layout)
    with self.assertRaisesRegex(TmemFault, "lane 112 column 0 of CTA 0"):
      tensor.load(self.cta, self.quadrant, address + (16 << 16), layout)


class BlockTest(absltest.TestCase):

  def test_block(self):
    rng = np.random.default_rng(1)
    tensor = tmem.TensorMemory(2)
    values = rng.integers(0, 1 << 32, (64, 5), dtype=np.uint32)
    lanes = rng.permutation(128)[:64]
    tensor.write_block(1, lanes, 100, values)
    for i, lane in enumerate(lanes):
      np.testing.assert_array_equal(tensor.data[1, lane, 100:105], values[i])
    np.testing.assert_array_equal(tensor.read_block(1, lanes, 100, 5), values)
    self.assertEqual((tensor.data != tmem.POISON).sum(), 64 * 5)

  def test_outside(self):
    tensor = tmem.TensorMemory(1)
    with self.assertRaisesRegex(TmemFault, r"columns 510\.\.513 of CTA 0"):
      tensor.read_block(0, slice(0, 128), 510, 4)
    with self.assertRaisesRegex(TmemFault, "lane 143 of CTA 0 is outside"):
      tensor.read_block(0, np.arange(16, 144), 0, 4)


class AllocationTest(parameterized.TestCase):

  def test_first_fit(self):
    tensor = tmem.TensorMemory(1)
    self.assertEqual(tensor.allocate(0, 256), 0)
    self.assertEqual(tensor.allocate(0, 32), 256)
    self.assertEqual(tensor.allocate(0, 128), 288)
    tensor.deallocate(0, 256, 32)
    self.assertIsNone(tensor.allocate(0, 128))
    self.assertEqual(tensor.allocate(0, 64), 416)
    self.assertEqual(tensor.allocate(0, 32), 256)
    self.assertIsNone(tensor.allocate(0, 64))

  def test_new_columns_are_nan(self):
    tensor = tmem.TensorMemory(2)
    tensor.data[:] = 0
    tensor.allocate(1, 64)
    self.assertTrue(np.isnan(tensor.data[1, :, :64].view(np.float32)).all())
    self.assertTrue((tensor.data[1, :, 64:] == 0).all())
    self.assertTrue((tensor.data[0] == 0).all())

  def test_dealloc_wakes(self):
    woken = []
    tensor = tmem.TensorMemory(2, wake=woken.append)
    tensor.allocate(1, 512)
    self.assertIsNone(tensor.allocate(1, 32))
    tensor.deallocate(1, 0, 512)
    self.assertIn(tensor.key(1), woken)
    self.assertEqual(tensor.allocate(1, 32), 0)

  def test_pair_gets_the_same_columns(self):
    tensor = tmem.TensorMemory(4)
    tensor.allocate(2, 32)  # Taken in one CTA of the pair only.
    self.assertEqual(tensor.allocate(3, 128, pair=(2, 3)), 32)
    self.assertEqual(tensor.allocate(3, 64, pair=(2, 3)), 160)
    self.assertEqual(tensor.allocate(2, 128, pair=(2, 3)), 32)
    self.assertEqual(tensor.allocate(2, 64, pair=(2, 3)), 160)
    tensor.deallocate(2, 32, 128)
    # Still taken in the other CTA.
    self.assertEqual(tensor.allocate(2, 128, pair=(2, 3)), 224)
    tensor.deallocate(3, 32, 128)

  def test_pair_must_agree(self):
    tensor = tmem.TensorMemory(2)
    tensor.allocate(0, 64, pair=(0, 1))
    with self.assertRaisesRegex(
        TmemFault, "CTA 1 allocates 32 columns where the other CTA .* 64"
    ):
      tensor.allocate(1, 32, pair=(0, 1))

  @parameterized.parameters(0, 16, 48, 1024)
  def test_bad_counts(self, count):
    with self.assertRaisesRegex(
        TmemFault, rf"must be a power of two in 32\.\.512, got {count}"
    ):
      tmem.TensorMemory(1).allocate(0, count)

  def test_bad_dealloc(self):
    tensor = tmem.TensorMemory(1)
    tensor.allocate(0, 64)
    for address, count in ((0, 32), (32, 32), (64 << 16, 64)):
      with self.assertRaisesRegex(
          TmemFault,
          rf"dealloc of {count} columns at {address:#x} is no allocation of CTA"
          " 0; allocated: 64 at 0",
      ):
        tensor.deallocate(0, address, count)

  def test_relinquish(self):
    tensor = tmem.TensorMemory(2)
    tensor.relinquish(0)
    with self.assertRaisesRegex(TmemFault, "has given up its permit"):
      tensor.allocate(0, 32)
    tensor.allocate(1, 32)

  def test_one_group(self):
    tensor = tmem.TensorMemory(2)
    tensor.use_group(0, 2)
    tensor.use_group(0, 2)
    tensor.use_group(1, 1)
    with self.assertRaisesRegex(
        TmemFault, "cta_group::1 after cta_group::2 in CTA 0"
    ):
      tensor.use_group(0, 1)


if __name__ == "__main__":
  absltest.main()
