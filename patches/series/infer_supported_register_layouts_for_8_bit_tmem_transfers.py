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
"""Layout inference: which register layouts 8-bit TMEM transfers have."""

from patches.model import Edit, Patch

_CONSTRAINTS = "jax/experimental/mosaic/gpu/constraints.py"
_SCOPE = "IsTransferableTmemRegisters.is_valid_tmem_transfer"

PATCH = Patch(
    subject=(
        "[Mosaic GPU] Infer supported register layouts for 8-bit TMEM transfers"
    ),
    body="""
The register layouts of wgmma and of tcgen05 accumulators only exist in
TMEM transfers for 16 and 32-bit types: the lowering of loads and stores
refuses others. Layout inference did not know this. It tries the layout
of accumulators first, so it chose that for every packed reference of 8
or 4-bit elements that has 128 rows or more, and a load failed in its
lowering ("Loads from TMEM layout ... are not supported"), although the
native layout of the reference was there to be chosen. Those of 64 rows
lowered.

Unpacked references of such types have no other layout. For these, the
lowering still says so.

Verified: loads run on a simulator of the PTX (not on a Blackwell GPU),
and compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_CONSTRAINTS,
            scope=_SCOPE,
            anchor="packing = tmem_layout.vector_length",
            action="after",
            code="""
# Below 16 bits, the lowering only knows the layout of a packed reference.
is_packed_subword = self.bitwidth < 16 and packing * self.bitwidth == 32
""",
        ),
        Edit(
            file=_CONSTRAINTS,
            scope=_SCOPE,
            anchor="reg_layout == fa.TCGEN05_LAYOUT and $REST",
            code="not is_packed_subword\nand $$$SELF",
        ),
        Edit(
            file=_CONSTRAINTS,
            scope=_SCOPE,
            anchor="reg_layout == fa.WGMMA_LAYOUT and $REST",
            code="not is_packed_subword\nand $$$SELF",
        ),
        Edit(
            file=_CONSTRAINTS,
            scope=_SCOPE,
            anchor=(
                "reg_layout == tcgen05.fa_m64_collective_layout(columns) and"
                " $REST"
            ),
            code="not is_packed_subword\nand $$$SELF",
        ),
    ),
    tests=("tests/mosaic/pallas_tmem_8_bit_test.py",),
)
