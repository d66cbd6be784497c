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
"""References of more than 128 rows: their layout and slices."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Slice TMEM references by row tiles",
    body="""
The default TMEM layout already describes references whose number of
rows is a multiple of 128: row tiles follow each other along the
columns. But it could not be inferred for such a reference, and the
reference could not be sliced.

This infers it, and allows slices of whole row tiles (static, or dynamic
and known to be divisible by 128). Columns can still only be sliced
within a single row tile, where they are contiguous. The row tiles of
scales interleave in TMEM, so those can't be sliced along rows. A store
to several row tiles would put them into the wrong columns, so it is
refused for now.

Verified: slices run on a simulator of the PTX (not on a Blackwell GPU)
and compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            anchor="from . import utils",
            action="before",
            code="from . import tcgen05_tiles",
        ),
        Edit(
            file=_TCGEN05,
            scope="_infer_tmem_layout",
            anchor="shape[0] == TMEM_ROWS",
            code="shape[0] % TMEM_ROWS == 0",
        ),
        Edit(
            file=_TCGEN05,
            scope="_infer_tmem_layout",
            within=(
                "if $A: $$$B\n"
                "elif shape[0] == TMEM_ROWS // 2: $$$C\n"
                "else: $$$D"
            ),
            anchor="ValueError($MESSAGE)",
            code="""
ValueError(
    f"Unsupported shape: {shape}. TMEM references must have"
    f" {TMEM_ROWS // 2} rows or a multiple of {TMEM_ROWS} rows, but got"
    f" {shape[0]}."
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.slice",
            anchor="if base_idx[0] != 0 or slice_shape[0] != self.shape[0]:"
            " $$$",
            code="""
if base_idx[0] != 0 or slice_shape[0] != self.shape[0]:
  row_tiles = self._slice_row_tiles(base_idx[0], slice_shape[0])
  return row_tiles.slice(
      slice(None), utils.DynamicSlice(base_idx[1], slice_shape[1])
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.slice",
            anchor='raise NotImplementedError("Cannot slice TMEM with multiple'
            ' tiles along rows.")',
            code="""
instead = (
    "Allocate a TMEM reference for each part instead."
    if self.layout == scales_layout()
    else (
        f"Slice one row tile of the {self.shape} reference first, then its"
        " columns."
    )
)
raise NotImplementedError(
    f"Cannot slice TMEM with multiple tiles along rows. {instead}"
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.store",
            anchor="packing = self.packing",
            action="before",
            code="""
if (
    self.shape[0] > TMEM_ROWS
    and self.layout == tmem_default_layout(self.packing)
):
  raise NotImplementedError("Storing multiple row tiles")
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            anchor="def slice(self, *idxs) -> TMEMRef: $$$BODY",
            action="after",
            code='''
def _slice_row_tiles(self, row: ir.Value | int, num_rows: int) -> TMEMRef:
  """Returns the reference to ``num_rows`` rows from ``row`` on.

  Only whole row tiles can be sliced: each lies in columns of its own.
  """
  tile_rows = self.layout.base_tile_shape[0]
  if tile_rows != TMEM_ROWS or self.layout == scales_layout():
    raise NotImplementedError(
        "TMEM cannot be sliced along rows: the rows of a reference with"
        f" layout {self.layout} are not contiguous. Allocate a TMEM"
        " reference for each part instead."
    )
  divisible = (
      row % tile_rows == 0
      if isinstance(row, int)
      else utils.is_known_divisible(row, tile_rows)
  )
  if num_rows % tile_rows or not divisible:
    start = f"row {row}" if isinstance(row, int) else "a dynamic row"
    raise NotImplementedError(
        f"TMEM cannot be sliced along rows, except by tiles of {tile_rows}"
        f" rows: got {num_rows} rows from {start} on, of which both must be"
        f" (known to be) multiples of {tile_rows}."
    )
  i32 = ir.IntegerType.get_signless(32)
  tile_cols = self.layout.cols_in_shape(
      (tile_rows, self.shape[1]), utils.bitwidth(self.dtype)
  )
  if isinstance(row, int):
    column = tcgen05_tiles.row_tile_column(row, tile_cols)
    column = arith.constant(i32, column)
  else:
    if row.type == ir.IndexType.get():
      row = arith.index_cast(i32, row)
    stride = tcgen05_tiles.row_tile_column(tile_rows, tile_cols)
    column = arith.divui(row, arith.constant(i32, tile_rows))
    column = arith.muli(column, arith.constant(i32, stride))
  return dataclasses.replace(
      self,
      address=arith.addi(self.address, column),
      shape=(num_rows, self.shape[1]),
  )
''',
        ),
    ),
    new_files=("tests/mosaic/gpu_tmem_test_util.py",),
    tests=("tests/mosaic/gpu_tmem_slice_test.py",),
)
