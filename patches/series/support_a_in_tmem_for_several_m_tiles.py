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
"""A in TMEM: the address of each M tile, and copies of several row tiles."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Support A in TMEM for several M tiles",
    body="""
With A in TMEM, mma() took just 128 rows. The rows beyond continue in
further columns like those of every reference, so the address of a tile
is the M tile times the columns of a row plus the K group times the
columns of a group. An element takes 1 / packing columns, and half of
that along the uncompressed K if A is sparse.

The copy from SMEM does the same for each 128 rows.

Block-scaled sparse calls with A in TMEM are allowed, too: the PTX ISA
has that form, and ptxas takes it.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if is_scaled and is_sparse: $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="m_groups = tiles.m_tiles",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if m != 128: $$$",
            code="""
if m % TMEM_ROWS:
  raise NotImplementedError(
      f"Only multiples of {TMEM_ROWS} rows are supported for MMA with A in"
      f" TMEM, but got M={m}"
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor='if m_groups != 1: raise NotImplementedError("A address'
            ' calculation for multiple M tiles")',
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="a_k_group_elems = k_group_elems // (1 + is_sparse)",
            code="a_column = tiles.a_column(tile, a.packing, 1 + is_sparse)",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="a_mk = a.slice($$$INDICES).address",
            code="a_mk = arith.addi(a.address, utils.c(a_column, i32))",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_smem_to_tmem",
            anchor="if tmem_ref.shape[0] != TMEM_ROWS: $$$",
            code="""
if tmem_ref.shape[0] % TMEM_ROWS:
  raise ValueError(
      f"TMEM reference must have a multiple of {TMEM_ROWS} rows, but got"
      f" {tmem_ref.shape[0]}"
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_smem_to_tmem",
            anchor="smem_base_ptr = utils.memref_ptr(smem_ref)",
            action="after",
            code="""
row_tile_byte_stride = stride_byte_offset * (TMEM_ROWS // 8)
row_tile_cols = tmem_ref.layout.cols_in_shape(
    (TMEM_ROWS, tmem_ref.shape[1]), bitwidth
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_smem_to_tmem",
            anchor="for smem_minor_tile in range(num_smem_minor_tiles):\n"
            "  for cp_idx in range(cps_per_smem_minor_tile):\n    $$$BODY",
            code="""
for row in range(0, tmem_ref.shape[0], TMEM_ROWS):
  row_tile_offset = row // TMEM_ROWS * row_tile_byte_stride
  row_tile_col = tcgen05_tiles.row_tile_column(row, row_tile_cols)
  for smem_minor_tile in range(num_smem_minor_tiles):
    for cp_idx in range(cps_per_smem_minor_tile):
      $$$BODY
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_smem_to_tmem",
            anchor="utils.getelementptr(smem_base_ptr, [smem_byte_offset], i8)",
            code="""
utils.getelementptr(
    smem_base_ptr, [row_tile_offset + smem_byte_offset], i8
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_smem_to_tmem",
            anchor="arith.addi(tmem_ref.address, arith.constant(i32, tmem_col))",
            code="""
arith.addi(
    tmem_ref.address, arith.constant(i32, row_tile_col + tmem_col)
)
""",
        ),
    ),
    tests=("tests/mosaic/gpu_a_in_tmem_test.py",),
)
