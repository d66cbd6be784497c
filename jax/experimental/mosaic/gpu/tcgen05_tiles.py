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
"""The tiles of one ``tcgen05.mma`` call and where their operands lie in TMEM.

A call of ``tcgen05.mma`` covers an (M, N, K) matmul with tiles of at most 128
rows of A (per CTA), 256 columns of B and one K group, which takes an
instruction for each step along K. This module says which tiles those are and,
for every operand, the TMEM column at which a tile begins. It works on plain
integers, so that the arithmetic can be tested without MLIR and without a GPU.
Columns are relative to the operand's address; M, N and K count elements and are
per CTA unless a name says otherwise.

See https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-tensor-memory
and https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-matrix-shape
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses

# TMEM has 128 lanes of 512 32-bit columns.
TMEM_ROWS = 128
TMEM_COLUMNS = 512
# The widest N of an instruction, over all CTAs that take part in it.
MAX_INSTRUCTION_N = 256
# Sparse metadata is made of 2-bit entries: 16 of them fill a column.
METADATA_ENTRIES_PER_COLUMN = 16
# Instructions name a pair of metadata columns, the first one being even.
METADATA_ENTRIES_PER_COLUMN_PAIR = 2 * METADATA_ENTRIES_PER_COLUMN
# A metadata tile is what one 128x128b tcgen05.cp moves: 16 bytes for each lane.
METADATA_TILE_ENTRIES = 64
METADATA_TILE_BYTES = TMEM_ROWS * METADATA_TILE_ENTRIES * 2 // 8
# Four scales of a row share a column, and 128 rows take four columns.
SCALES_PER_COLUMN = 4
SCALE_COLUMNS_PER_ROW_TILE = 4


def row_tiles(rows: int) -> int:
  """The number of 128-row tiles of a TMEM reference with ``rows`` rows."""
  if rows % TMEM_ROWS:
    raise ValueError(f"Expected a multiple of {TMEM_ROWS} rows, got {rows}")
  return rows // TMEM_ROWS


def row_tile_column(row: int, columns_per_row_tile: int) -> int:
  """The column at which the row tile that begins at ``row`` lies.

  Row tiles follow each other: all columns of rows 0-127 come before the first
  column of rows 128-255.

  Args:
    row: The first row of the tile, a multiple of 128.
    columns_per_row_tile: TMEM columns taken by 128 rows of the reference.
  """
  return row_tiles(row) * columns_per_row_tile


def metadata_entries(k: int, group_elems: int) -> int:
  """The number of 2-bit metadata entries in a row of A.

  Args:
    k: Elements of A along K, before compression.
    group_elems: Elements of A described by one pair of entries.
  """
  if k % group_elems:
    raise ValueError(f"Expected K to be a multiple of {group_elems}, got {k}")
  return k // group_elems * 2


def metadata_columns(entries: int) -> int:
  """TMEM columns taken by ``entries`` metadata entries of a row."""
  if entries % METADATA_ENTRIES_PER_COLUMN:
    raise ValueError(
        "Expected a multiple of"
        f" {METADATA_ENTRIES_PER_COLUMN} sparse metadata entries, got {entries}"
    )
  return entries // METADATA_ENTRIES_PER_COLUMN


def metadata_copies(rows: int, entries: int) -> Iterator[tuple[int, int]]:
  """The tiles to copy for sparse metadata of shape ``(rows, entries)``.

  Yields:
    Pairs of (byte offset in SMEM, TMEM column), one for each tile. SMEM holds
    the tiles in row-major order, see ``format_tcgen05_sparse_metadata``.
  """
  k_tiles, rem = divmod(entries, METADATA_TILE_ENTRIES)
  if rem:
    raise ValueError(
        "Expected a multiple of"
        f" {METADATA_TILE_ENTRIES} sparse metadata entries, got {entries}"
    )
  tile_columns = metadata_columns(METADATA_TILE_ENTRIES)
  for m_tile in range(row_tiles(rows)):
    for k_tile in range(k_tiles):
      offset = (m_tile * k_tiles + k_tile) * METADATA_TILE_BYTES
      column = row_tile_column(
          m_tile * TMEM_ROWS, metadata_columns(entries)
      ) + k_tile * tile_columns
      yield offset, column


def scale_column(rows: int, row: int, scale: int) -> int:
  """The column of four block scales of a row tile.

  In TMEM, row tiles are minor: the first four scales of all rows come before
  the next four of any.

  Args:
    rows: Rows of the whole reference to scales, a multiple of 128.
    row: The first row of the tile, a multiple of 128.
    scale: The first of the scales along K, a multiple of 4.
  """
  if scale % SCALES_PER_COLUMN:
    raise ValueError(
        f"Expected a multiple of {SCALES_PER_COLUMN} scales, got {scale}"
    )
  tile = scale // SCALES_PER_COLUMN * row_tiles(rows) + row_tiles(row)
  return tile * SCALE_COLUMNS_PER_ROW_TILE


@dataclasses.dataclass(frozen=True)
class Tile:
  """One (M, N, K) tile of a call.

  Attributes:
    mi: Index of the tile along M.
    ni: Index of the tile along N.
    ki: Index of the K group.
    n: Columns of B in the tile, per CTA. The last tile may be the shortest.
  """

  mi: int
  ni: int
  ki: int
  n: int


@dataclasses.dataclass(frozen=True)
class MmaTiles:
  """How a call is split into tiles.

  Attributes:
    m: Rows of A and D, per CTA.
    n: Columns of B, per CTA.
    k: The contraction dimension, before compression of A.
    k_group: Elements along K that are issued as one group.
    num_cta: The number of CTAs that take part in each instruction.
    n_lane_groups: Into how many groups of lanes the columns of D are folded (2
      for M=64 with a single CTA).
  """

  m: int
  n: int
  k: int
  k_group: int
  num_cta: int = 1
  n_lane_groups: int = 1

  def __post_init__(self):
    if self.m % self.m_tile:
      raise ValueError(f"M must be a multiple of {self.m_tile}, got: {self.m}")
    if self.k % self.k_group:
      raise ValueError(f"K must be a multiple of {self.k_group}, got: {self.k}")
    if self.n % self.n_lane_groups:
      raise ValueError(
          f"N must be a multiple of {self.n_lane_groups}, got: {self.n}"
      )
    if self.n_lane_groups != 1 and self.n % self.n_tile:
      # A short tile would have to be last in every lane group.
      raise ValueError(f"N must be a multiple of {self.n_tile}, got: {self.n}")

  @property
  def m_tile(self) -> int:
    return min(self.m, TMEM_ROWS)

  @property
  def n_tile(self) -> int:
    """Columns of B in each tile but the last, which takes what is left."""
    return min(self.n // self.n_lane_groups, MAX_INSTRUCTION_N // self.num_cta)

  @property
  def m_tiles(self) -> int:
    return self.m // self.m_tile

  @property
  def n_tiles(self) -> int:
    return -(-self.n // self.n_tile)

  @property
  def k_groups(self) -> int:
    return self.k // self.k_group

  def __iter__(self) -> Iterator[Tile]:
    for mi in range(self.m_tiles):
      for ni in range(self.n_tiles):
        for ki in range(self.k_groups):
          yield Tile(mi, ni, ki, min(self.n_tile, self.n - ni * self.n_tile))

  def d_lane_group(self, tile: Tile) -> int:
    """The group of lanes that holds the tile of D."""
    return tile.ni // (self.n_tiles // self.n_lane_groups)

  def d_column(self, tile: Tile) -> int:
    """The column of a tile of D, which has one element in each column.

    16-bit accumulators take as many columns as 32-bit ones: only the lower half
    of a column is used.
    """
    n_total = self.n * self.num_cta  # Each CTA holds the columns of all.
    ni = tile.ni % (self.n_tiles // self.n_lane_groups)
    return tile.mi * n_total + ni * self.n_tile * self.num_cta

  def metadata_column(self, tile: Tile, group_elems: int) -> int:
    """The column of the sparse metadata of a tile.

    Metadata describes A, so it follows M and K, and never N.

    Args:
      tile: The tile.
      group_elems: Elements of A described by one pair of entries.
    """
    row_tile = row_tile_column(
        tile.mi * TMEM_ROWS,
        metadata_columns(metadata_entries(self.k, group_elems)),
    )
    group = metadata_columns(metadata_entries(self.k_group, group_elems))
    return row_tile + tile.ki * group

  def a_column(self, tile: Tile, packing: int, compression: int) -> int:
    """The column of a tile of A, if A is in TMEM.

    Args:
      tile: The tile.
      packing: Elements of A in a column.
      compression: Elements along K for each one that A stores: 2 if sparse.
    """
    columns = self.k // compression // packing
    group = self.k_group // compression // packing
    return row_tile_column(tile.mi * TMEM_ROWS, columns) + tile.ki * group

  def a_scale_column(self, tile: Tile, scale_block: int) -> int:
    """The column of the scales of A.

    Args:
      tile: The tile.
      scale_block: Elements along K that share a scale.
    """
    # The scales of fewer rows are padded.
    rows = max(self.m, TMEM_ROWS)
    scale = tile.ki * self.k_group // scale_block
    return scale_column(rows, tile.mi * TMEM_ROWS, scale)

  def b_scale_column(self, tile: Tile, scale_block: int, columns: int) -> int:
    """The column of the scales of B.

    Args:
      tile: The tile.
      scale_block: Elements along K that share a scale.
      columns: TMEM columns taken by four scales of all rows: 4 for each 128
        rows, but if two CTAs have M=64 each, 4 for all 256.
    """
    rows = columns // SCALE_COLUMNS_PER_ROW_TILE * TMEM_ROWS
    # Each CTA has the scales of the columns of all.
    row = tile.ni * self.n_tile * self.num_cta
    scale = tile.ki * self.k_group // scale_block
    return scale_column(rows, row, scale)


def check_columns(columns: Mapping[str, int]) -> None:
  """Checks that the TMEM operands of a call fit next to each other.

  Args:
    columns: The number of TMEM columns of each operand, by name.

  Raises:
    ValueError: If they need more than the 512 columns of TMEM.
  """
  total = sum(columns.values())
  if total <= TMEM_COLUMNS:
    return
  operands = ", ".join(f"{name}: {cols}" for name, cols in columns.items())
  raise ValueError(
      f"MMA operands take {total} TMEM columns ({operands}), but only"
      f" {TMEM_COLUMNS} are available. Use a smaller M, N or K in each call"
  )
