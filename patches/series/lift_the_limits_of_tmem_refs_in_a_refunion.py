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
"""RefUnions of TMEM: any number of rows, and columns that add up."""

from patches.model import Edit, Patch

PATCH = Patch(
    subject="[Pallas:MGPU] Lift the limits of TMEM refs in a RefUnion",
    body="""
With Lane semantics, references in a RefUnion had to have 128 rows, as
its base does. But the base is just a range of columns: the layout of a
reference says how many of them its rows take, and the union is sized by
that. References of several row tiles continue in further columns, and
those of 64 rows are folded over all lanes. With Warpgroup semantics
there was no such limit.

The columns of a union counted each reference aligned to four columns
where it is allocated, but the last one of a group unaligned where it is
split, and an assertion compares the two. So the last one could not have
two columns, like a (128, 4) reference to packed 16-bit elements.

Verified: stores and loads run on a simulator of the PTX (not on a
Blackwell GPU).
""",
    edits=(
        Edit(
            file="jax/_src/pallas/mosaic_gpu/core.py",
            scope="flatten_ref_union",
            anchor="union_cols = max(union_cols, col_offset)",
            code="""
col_offset = align_to(col_offset, TMEM_COL_ALIGNMENT)
union_cols = max(union_cols, col_offset)
""",
        ),
        Edit(
            file="jax/_src/pallas/mosaic_gpu/lowering.py",
            # The implementation, not its overloads.
            within=(
                "def _extract_aliased_ref(ref: ir.Value | tcgen05.TMEMRef,"
                " $$$ARGS) -> $RESULT: $$$BODY"
            ),
            anchor="if ref.shape[0] != transformed_shape[0]: $$$",
            action="delete",
        ),
    ),
    tests=("tests/mosaic/pallas_ref_union_test.py",),
)
