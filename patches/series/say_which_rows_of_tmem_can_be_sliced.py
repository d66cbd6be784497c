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
"""The reason why rows of TMEM can't be sliced, in Warpgroup semantics."""

from patches.model import Edit, Patch

PATCH = Patch(
    subject="[Mosaic GPU] Say which rows of TMEM can be sliced",
    body="""
A slice of TMEM along rows that is not one of whole row tiles has no
layout. With Warpgroup semantics, layout inference finds that out before
the lowering can say so, and all that a user got to see was "Failed to
infer a possible set of layouts". The error is now the same as with Lane
semantics.

The tests store, load and slice several row tiles through Pallas, in
both semantics.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file="jax/experimental/mosaic/gpu/layout_inference.py",
            scope="_memref_subview_constraint_system",
            anchor="constraints = $CONSTRAINTS",
            action="before",
            code="""
if _is_tmem_ref(op.source) and len(tiling_multiple) == 2:
  tile_rows = tcgen05.TMEM_ROWS
  row, rows = op.static_offsets[0], op.static_sizes[0]
  if rows != op.source.type.shape[0] and tiling_multiple[0] % tile_rows:
    if row == ir.ShapedType.get_dynamic_size():
      row = op.offsets[0]
    raise NotImplementedError(
        f"TMEM cannot be sliced along rows, except by tiles of {tile_rows}"
        f" rows: got {rows} rows from row {row} on, of which both must be"
        f" (known to be) multiples of {tile_rows}."
    )
""",
        ),
    ),
    tests=("tests/mosaic/pallas_tmem_row_tiles_test.py",),
)
