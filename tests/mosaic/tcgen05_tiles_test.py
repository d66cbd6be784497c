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
"""Tests of the tile arithmetic, against enumerations of the TMEM cells."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental.mosaic.gpu import tcgen05_tiles as tiles_lib


def _calls():
  """All calls on a coarse grid that the formulas are meant for."""
  for m, n, k_groups, num_cta in itertools.product(
      (128, 256, 384, 512),
      (16, 96, 112, 128, 240, 256, 272, 384, 496, 512),
      (1, 2, 5),
      (1, 2),
  ):
    if num_cta == 1 or n <= 128:
      yield tiles_lib.MmaTiles(m, n, k_groups * 128, 128, num_cta=num_cta)


def _d_cells(m, n_total):
  """The column of the first element of each (row tile, column) of D.

  Independent of the module under test: walks through D the way TMEM is filled,
  128 rows at a time, one column for each element.
  """
  columns = {}
  for row in range(0, m, 128):
    for col in range(n_total):
      columns[row, col] = len(columns)
  return columns


def _a_cells(m, stored_k, packing):
  """The column of each (row tile, element along K) of A."""
  columns, used = {}, 0
  for row in range(0, m, 128):
    for k in range(stored_k):
      columns[row, k] = used + k // packing
    used += stored_k // packing
  return columns


def _scale_cells(rows, scales):
  """The column of each (row tile, scale), of the first 32 rows of the tile."""
  columns, used = {}, 0
  for scale in range(0, scales, 4):
    for row in range(0, rows, 128):
      for i in range(4):
        columns[row, scale + i] = used
      used += 4  # One for each 32 rows.
  return columns


def _metadata_cells(m, entries):
  """The column of each (row tile, entry) of the metadata."""
  columns, used = {}, 0
  for row in range(0, m, 128):
    for entry in range(entries):
      columns[row, entry] = used + entry // 16
    used += -(-entries // 16)
  return columns


class MmaTilesTest(parameterized.TestCase):

  def test_every_element_is_covered_once(self):
    for call in _calls():
      with self.subTest(repr(call)):
        covered = [
            (t.mi, n, t.ki)
            for t in call
            for n in range(t.ni * call.n_tile, t.ni * call.n_tile + t.n)
        ]
        self.assertCountEqual(
            covered,
            itertools.product(
                range(call.m // 128), range(call.n), range(call.k // 128)
            ),
        )

  def test_instructions_are_legal(self):
    for call in _calls():
      for tile in call:
        self.assertEqual(call.m_tile, 128)
        self.assertBetween(tile.n * call.num_cta, 8, 256)
        self.assertEqual(tile.n % 16, 0)

  def test_only_the_last_n_tile_is_short(self):
    for call in _calls():
      widths = [t.n for t in call if t.mi == 0 and t.ki == 0]
      self.assertEqual(widths[:-1], [256 // call.num_cta] * (len(widths) - 1))
      self.assertEqual(sum(widths), call.n)

  def test_k_ascends_for_each_element_of_d(self):
    for call in _calls():
      last = {}
      for tile in call:
        self.assertEqual(tile.ki, last.get((tile.mi, tile.ni), -1) + 1)
        last[tile.mi, tile.ni] = tile.ki

  def test_d_columns(self):
    for call in _calls():
      with self.subTest(repr(call)):
        cells = _d_cells(call.m, call.n * call.num_cta)
        for tile in call:
          first = cells[tile.mi * 128, tile.ni * call.n_tile * call.num_cta]
          self.assertEqual(call.d_column(tile), first)
          self.assertEqual(call.d_lane_group(tile), 0)

  @parameterized.product(group_elems=(4, 8))
  def test_metadata_columns(self, group_elems):
    for call in _calls():
      with self.subTest(repr(call)):
        entries = call.k // group_elems * 2
        cells = _metadata_cells(call.m, entries)
        for tile in call:
          first = cells[tile.mi * 128, tile.ki * 128 // group_elems * 2]
          self.assertEqual(call.metadata_column(tile, group_elems), first)

  @parameterized.product(packing=(1, 2, 4), compression=(1, 2))
  def test_a_columns(self, packing, compression):
    for call in _calls():
      with self.subTest(repr(call)):
        cells = _a_cells(call.m, call.k // compression, packing)
        for tile in call:
          first = cells[tile.mi * 128, tile.ki * 128 // compression]
          self.assertEqual(
              call.a_column(tile, packing, compression), first
          )

  @parameterized.product(scale_block=(16, 32))
  def test_scale_columns(self, scale_block):
    for call in _calls():
      with self.subTest(repr(call)):
        scales = call.k // scale_block
        n_total = call.n * call.num_cta
        b_row_tiles = -(-n_total // 128)
        a_cells = _scale_cells(call.m, scales)
        b_cells = _scale_cells(b_row_tiles * 128, scales)
        for tile in call:
          scale = tile.ki * 128 // scale_block
          self.assertEqual(
              call.a_scale_column(tile, scale_block),
              a_cells[tile.mi * 128, scale],
          )
          column = tile.ni * call.n_tile * call.num_cta
          self.assertEqual(
              call.b_scale_column(tile, scale_block, 4 * b_row_tiles),
              b_cells[column, scale],
          )

  def test_scale_columns_of_64_rows(self):
    # A's scales are padded to 128 rows; B's take half the columns.
    call = tiles_lib.MmaTiles(64, 128, 256, 128, num_cta=2)
    self.assertEqual(
        [(call.a_scale_column(t, 32), call.b_scale_column(t, 32, 4))
         for t in call],
        [(0, 0), (4, 4)],
    )

  def test_metadata_does_not_depend_on_n(self):
    call = tiles_lib.MmaTiles(256, 384, 256, 128)
    columns = {}
    for tile in call:
      columns.setdefault((tile.mi, tile.ki), set()).add(
          call.metadata_column(tile, 4)
      )
    self.assertEqual(
        columns, {(0, 0): {0}, (0, 1): {4}, (1, 0): {8}, (1, 1): {12}}
    )

  def test_lane_groups_share_columns(self):
    # M=64 folds the second half of N into the other lanes.
    call = tiles_lib.MmaTiles(64, 256, 128, 128, n_lane_groups=2)
    self.assertEqual(
        [(t.n, call.d_lane_group(t), call.d_column(t)) for t in call],
        [(128, 0, 0), (128, 1, 0)],
    )

  @parameterized.parameters(
      ((192, 128, 128, 128), "M must be a multiple of 128, got: 192"),
      ((128, 128, 192, 128), "K must be a multiple of 128, got: 192"),
      ((64, 15, 128, 128, 1, 2), "N must be a multiple of 2, got: 15"),
      ((64, 640, 128, 128, 1, 2), "N must be a multiple of 256, got: 640"),
  )
  def test_errors(self, args, message):
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      tiles_lib.MmaTiles(*args)


class MetadataTest(parameterized.TestCase):

  @parameterized.product(
      row_tiles=(1, 2, 3, 4), k_tiles=(1, 2, 5)
  )
  def test_copies(self, row_tiles, k_tiles):
    entries = 64 * k_tiles
    copies = list(tiles_lib.metadata_copies(128 * row_tiles, entries))
    cells = _metadata_cells(128 * row_tiles, entries)
    # SMEM is a contiguous (row tiles, K tiles, 128, 64) array of 2-bit entries.
    expected = []
    for tile, (m, k) in enumerate(
        itertools.product(range(row_tiles), range(k_tiles))
    ):
      expected.append((tile * 128 * 64 // 4, cells[128 * m, 64 * k]))
    self.assertEqual(copies, expected)

  def test_copies_fill_what_the_mma_reads(self):
    call = tiles_lib.MmaTiles(384, 128, 640, 128)
    filled = {
        column + i
        for _, column in tiles_lib.metadata_copies(384, 320)
        for i in range(4)
    }
    read = {
        call.metadata_column(tile, 4) + i for tile in call for i in range(4)
    }
    self.assertEqual(filled, set(range(60)))
    self.assertEqual(read, filled)

  def test_errors(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected K to be a multiple of 4, got 130"
    ):
      tiles_lib.metadata_entries(130, 4)
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a multiple of 16 sparse metadata entries, got 24",
    ):
      tiles_lib.metadata_columns(24)
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a multiple of 64 sparse metadata entries, got 96",
    ):
      list(tiles_lib.metadata_copies(128, 96))


class ColumnsTest(parameterized.TestCase):

  def test_scale_column_of_a_part_of_a_column(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected a multiple of 4 scales, got 6"
    ):
      tiles_lib.scale_column(128, 0, 6)

  @parameterized.parameters((0, 96, 0), (128, 96, 96), (384, 240, 720))
  def test_row_tile_column(self, row, columns, expected):
    self.assertEqual(tiles_lib.row_tile_column(row, columns), expected)

  def test_row_tile_of_unaligned_row(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected a multiple of 128 rows, got 64"
    ):
      tiles_lib.row_tile_column(64, 96)

  @parameterized.parameters(
      # The largest N for K=128.
      (128, 496), (256, 240), (384, 160), (512, 112),
  )
  def test_budget(self, m, n):
    def columns(n):
      return {"D": m // 128 * n, "A sparse metadata": m // 128 * 128 // 32}

    tiles_lib.check_columns(columns(n))
    with self.assertRaises(ValueError):
      tiles_lib.check_columns(columns(n + 16))

  def test_budget_message(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "MMA operands take 528 TMEM columns (D: 512, A sparse metadata: 16),"
        " but only 512 are available. Use a smaller M, N or K in each call",
    ):
      tiles_lib.check_columns({"D": 512, "A sparse metadata": 16})


if __name__ == "__main__":
  absltest.main()
