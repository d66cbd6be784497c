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
"""Sparse metadata gets a column for every M tile."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

# It spells these things out where later releases call functions.
_0_11_1 = ("0.11.1",)

PATCH = Patch(
    subject="[Mosaic GPU] Support sparse MMA over several M and N tiles",
    body="""
mma() refused sparse metadata for more than one tile ("A sparse metadata
address calculation for multiple tiles"). The metadata of an M tile lies
behind that of the tiles above it, so its column is the M tile times the
columns of a row plus the K group times the columns of a group; N does
not take part, because metadata describes A.

The copy from SMEM fills the same columns: one 128x128b tcgen05.cp for
every 128 rows and 64 entries, which are 2048 contiguous bytes in SMEM.

The metadata is checked before the instructions are issued, because the
hardware would give wrong results or fault: it must have the layout that
the copy writes, and a slice of it must begin at a pair of columns (32
entries).

Verified: run on a simulator of the PTX (not on a Blackwell GPU),
compiled with ptxas for sm_100a, and with the operands of every
tcgen05.mma decoded from the PTX.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="create_instr_descriptor",
            action="before",
            code="""
def sparse_group_elems(element_type: ir.Type) -> int:
  \"""Returns how many A elements a pair of metadata entries describes.\"""
  assert utils.bitwidth(element_type) != 32, "tf32 is unsupported"
  return 8 if utils.bitwidth(element_type) == 4 else 4
""",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="sparse_group_elems = 8 if utils.bitwidth(a_element_type)"
            " == 4 else 4",
            action="delete",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="k // sparse_group_elems * 2",
            code="k // sparse_group_elems(a_element_type) * 2",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="sparse_group_elems = 8 if"
            " utils.bitwidth(mma_a_element_type) == 4 else 4",
            action="delete",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="_do_mma",
            anchor="sparse_group_elems = 8 if elem_bitwidth == 4 else 4",
            action="delete",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="_do_mma",
            anchor="instr_k // sparse_group_elems * 2",
            code="instr_k // sparse_group_elems(a_element_type) * 2",
            versions=_0_11_1,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if a_sparse_metadata.dtype !="
            " ir.IntegerType.get_signless(2): $$$",
            action="after",
            code="""
if a_sparse_metadata.layout != sparse_meta_layout():
  raise ValueError(
      "A sparse metadata layout mismatch: expected sparse_meta_layout(),"
      f" got {a_sparse_metadata.layout}"
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if n_groups != 1 or m_groups != 1: $$$",
            code="""
group_elems = sparse_group_elems(mma_a_element_type)
a_sparse_column = tiles.metadata_column(tile, group_elems)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="cols_per_k_group = $COLUMNS",
            action="delete",
            with_comment=True,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="utils.c(ki * cols_per_k_group, i32)",
            code="utils.c(a_sparse_column, i32)",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.slice",
            anchor="if col_idx.type == ir.IndexType.get(): $$$",
            action="before",
            code="""
pair = tcgen05_tiles.METADATA_ENTRIES_PER_COLUMN_PAIR
if self.layout == sparse_meta_layout() and not utils.is_known_divisible(
    col_idx, pair
):
  start = base_idx[1] if isinstance(base_idx[1], int) else "a dynamic entry"
  raise ValueError(
      "Sparse metadata can only be sliced at (known) multiples of"
      f" {pair} entries, but the slice begins at {start}: the MMA reads pairs"
      " of TMEM columns, of which the first is even."
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="if expected_smem_shape[0] != 1: $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="k_tile_stride = strides[1]",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="if k_tile_stride % 16: $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="k_tile_byte_stride = k_tile_stride // 4",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="for k_tile in range(expected_smem_shape[1]): $$$BODY",
            code="""
for offset, column in tcgen05_tiles.metadata_copies(*tmem_ref.shape):
  load_ptr = utils.getelementptr(utils.memref_ptr(smem_ref), [offset], i8)
  store_ptr = arith.addi(tmem_ref.address, arith.constant(i32, column))
  # The "core matrix" here is the same as in MMA: 8x(16 bytes).
  desc = mma_utils.encode_descriptor(load_ptr, 0, 8 * 16, swizzle=None)
  _tcgen05_cp("128x128b", store_ptr, desc, collective=collective)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_sparse_metadata_smem_to_tmem",
            anchor="_tcgen05_cp($$$)",
            code="""
group = nvvm.CTAGroupKind.CTA_2 if collective else nvvm.CTAGroupKind.CTA_1
nvvm.tcgen05_cp(
    nvvm.Tcgen05CpShape.SHAPE_128x128b, _tmem_addr_to_ptr(store_ptr), desc,
    group=group,
)
""",
            versions=_0_11_1,
        ),
    ),
    tests=("tests/mosaic/gpu_sparse_tiles_test.py",),
)
