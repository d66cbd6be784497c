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
"""Sparse metadata of 4-bit types and tf32 can be formatted, too."""

from patches.model import Edit, Patch

_HELPERS = "jax/_src/pallas/mosaic_gpu/helpers.py"

PATCH = Patch(
    subject="[Pallas:MGPU] Format sparse metadata of 4-bit types and tf32",
    body="""
format_tcgen05_sparse_metadata knew 8 and 16-bit operands. In TMEM,
metadata of 4-bit types lies like that of 8-bit types, and metadata of
tf32 like that of 16-bit types. They differ in how many elements along K
a pair of entries describes: 8 with 4-bit types (on sm_100), 2 with
tf32, otherwise 4.

Metadata that does not consist of whole tiles of 128 rows and 64 entries
failed in a reshape that did not say what is wrong. Types that have no
such format are refused first, as the sizes depend on the type.

Verified: results used in kernels that run on a simulator of the PTX
(not on a Blackwell GPU).
""",
    edits=(
        Edit(
            file=_HELPERS,
            kind="text",
            anchor="    meta: Metadata of shape (M, K // 4, 2).",
            code="""
    meta: Metadata of shape (M, groups, 2). A group is 4 elements of A along K,
      but 8 (4 pairs of neighbours) with 4-bit types, and 2 (as 4 halves) with
      32-bit types.
""",
        ),
        Edit(
            file=_HELPERS,
            scope="format_tcgen05_sparse_metadata",
            anchor="bitsize = dtypes.itemsize_bits(operand_dtype)",
            code="""
if m % 128:
  raise ValueError(
      f"Expected metadata of a multiple of 128 rows (M), got: {m}"
  )
if k % 64:
  raise ValueError(
      "Expected metadata of a multiple of 64 entries in a row, which describe"
      f" {32 * group_elems} elements of A along K, got: {k} entries"
  )
""",
        ),
        Edit(
            file=_HELPERS,
            scope="format_tcgen05_sparse_metadata",
            anchor="if meta.ndim != 3: $$$",
            action="before",
            code="""
bitsize = dtypes.itemsize_bits(operand_dtype)
# The elements of A along K that a pair of entries describes.
group_elems = {4: 8, 8: 4, 16: 4, 32: 2}.get(bitsize)
if group_elems is None:
  raise NotImplementedError(
      f"Sparse metadata format not implemented for {operand_dtype=}"
  )
""",
        ),
        Edit(
            file=_HELPERS,
            scope="format_tcgen05_sparse_metadata",
            within="if meta.ndim != 3: $$$",
            anchor="raise ValueError($$$)",
            code="""
raise ValueError(
    "Expected metadata to be 3-dimensional (M, groups, 2), a group being"
    f" {group_elems} elements of A along K, but it is {meta.ndim}D"
)
""",
        ),
        Edit(
            file=_HELPERS,
            scope="format_tcgen05_sparse_metadata",
            anchor="if bitsize == 8:\n  $NARROW\nelif bitsize == 16:\n  $WIDE\n"
            "else:\n  $OTHERS",
            code="""
if bitsize in (4, 8):
  $NARROW
else:
  $WIDE
""",
        ),
    ),
    tests=("tests/mosaic/pallas_sparse_metadata_format_test.py",),
)
