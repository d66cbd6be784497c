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
"""What the operands of a ``tcgen05_mma`` in TMEM stand for, in NumPy."""

from __future__ import annotations

from jax._src.pallas.mosaic_gpu import helpers
import numpy as np

_ROWS = 128  # Lanes of TMEM.


def _check_tiles(
    tiles: np.ndarray, shape: tuple[int, ...], columns: int, *tile: int
) -> None:
  if shape[0] % _ROWS or shape[1] % columns:
    raise ValueError(
        f"Expected a TMEM reference of a multiple of {_ROWS} rows and"
        f" {columns} columns, got shape {shape}"
    )
  expected = (shape[0] // _ROWS, shape[1] // columns, *tile)
  if tiles.shape != expected:
    raise ValueError(
        f"Expected an SMEM reference of shape {expected} for a TMEM reference"
        f" of shape {shape}, got shape {tiles.shape}"
    )


def unpack_metadata(tiles: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Returns what a copy of sparse metadata writes to TMEM.

  Args:
    tiles: Metadata of shape (M // 128, entries // 64, 128, 64).
    shape: The shape of the TMEM reference: (M, entries).

  Returns:
    The entries that each lane holds. Which ones that are depends on the element
    type of A, which only the MMA knows.
  """
  _check_tiles(tiles, shape, 64, _ROWS, 64)
  return tiles.swapaxes(1, 2).reshape(shape)


def unpack_scales(tiles: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
  """Returns what a copy of block scales writes to TMEM.

  Args:
    tiles: Scales of shape (MN // 128, scales // 4, 32, 16), or (1, scales // 4,
      64, 16) for B with M = 64 per block.
    shape: The shape of the TMEM reference: (MN, scales), with M = 64 per block
      (256, scales).

  Returns:
    The scales of each row. With M = 64 per block, those of the second half of
    the columns of B begin at row 128.
  """
  if tiles.shape[:1] + tiles.shape[2:] == (1, 64, 16):
    # Each half of the columns has lanes of its own.
    tiles = tiles.reshape(-1, 2, 32, 16).swapaxes(0, 1)
  _check_tiles(tiles, shape, 4, 32, 16)
  # Row 32 * i + r of four scales lies at 4 * i of row r.
  parts = tiles.reshape(*tiles.shape[:3], 4, 4)
  return parts.transpose(0, 3, 2, 1, 4).reshape(shape)


def decompress(values: np.ndarray, metadata: np.ndarray) -> np.ndarray:
  """Returns the dense A.

  Args:
    values: The elements that are stored, of shape (M, K // 2).
    metadata: Their positions, of shape (M, entries), as they lie in TMEM.

  Raises:
    ValueError: If the metadata holds pairs of positions that mean nothing.
  """
  m, stored = values.shape
  entries = metadata.shape[1]
  positions = helpers.sparse_metadata_by_lane(
      metadata, values.dtype
  ).astype(np.intp).reshape(m, entries // 2, 2)
  # The elements along K that a pair of entries describes: 4, or 8 if its
  # positions are those of pairs of elements, or 2 if they are those of halves.
  group = 4 * stored // entries
  first, second = positions[..., 0], positions[..., 1]
  if group == 2:
    valid = (first % 2 == 0) & (second == first + 1)
    allowed = "(0, 1) or (2, 3)"
    index = positions[..., :1] // 2
  else:
    valid, allowed = first != second, "two different ones"
    width = group // 4
    index = positions[..., None] * width + np.arange(width)
    index = index.reshape(m, entries // 2, group // 2)
  if not valid.all():
    row, pair = np.argwhere(~valid)[0]
    raise ValueError(
        f"Expected the sparse metadata of A ({values.dtype}) to hold pairs of"
        f" positions that are {allowed}, got"
        f" {tuple(positions[row, pair].tolist())} at row {row}, pair {pair}."
        " Copy metadata from plgpu.format_tcgen05_sparse_metadata to TMEM"
        " before the MMA"
    )
  dense = np.zeros((m, entries // 2, group), values.dtype)
  np.put_along_axis(
      dense, index, values.reshape(m, entries // 2, group // 2), axis=2
  )
  return dense.reshape(m, 2 * stored)


def multiply(
    a: np.ndarray,
    b: np.ndarray,
    acc_dtype: np.dtype,
    *,
    a_scale: np.ndarray | None = None,
    b_scale: np.ndarray | None = None,
    a_sparse_metadata: np.ndarray | None = None,
) -> np.ndarray:
  """Returns the product of A and B as what is added to the accumulator.

  Args:
    a: A of shape (M, K), or (M, K // 2) with sparse metadata.
    b: B of shape (K, N).
    acc_dtype: The element type of the accumulator.
    a_scale: Block scales of at least M rows.
    b_scale: Block scales of at least N rows (with M = 64, as `unpack_scales`
      returns them).
    a_sparse_metadata: Metadata of shape (M, entries), as it lies in TMEM.
  """
  if a_sparse_metadata is not None:
    a = decompress(a, a_sparse_metadata)
  if np.issubdtype(acc_dtype, np.integer):
    dtype = acc_dtype
  else:
    # A scale and an element can exceed float32 where the product doesn't.
    dtype = np.float32 if a_scale is None else np.float64
  a, b = a.astype(dtype), b.astype(dtype)
  if a_scale is not None and b_scale is not None:
    (m, k), n = a.shape, b.shape[1]
    rows = np.arange(n)
    if m == 64:  # As `unpack_scales` returns them.
      rows[n // 2 :] += _ROWS - n // 2
    a *= _spread(a_scale[:m], k)
    b *= _spread(b_scale[rows], k).T
  return (a @ b).astype(acc_dtype)


def _spread(scales: np.ndarray, k: int) -> np.ndarray:
  return scales.astype(np.float64).repeat(k // scales.shape[1], axis=1)
