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
"""f32 operands: kind::tf32, dense and 1:2 sparse."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Support tf32 in tcgen05.mma, dense and sparse",
    body="""
mma() let f32 operands through its type checks, but had no encoding for
them in the instruction descriptor and no instruction kind. This adds
kind::tf32. The operands have to be K-major, because the MN-major form
takes another swizzle (128 bytes with 32-byte atoms).

Sparse A keeps one of every two elements along K. Two metadata entries
describe such a pair: (0, 1) if the first element is kept and (2, 3) if
the second is, as if each element were two 16-bit halves. The layout in
TMEM is that of 16-bit types, one column for each instruction of K=16.
Several tiles, A in TMEM and two CTAs work as for other types.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a. The sparse layout was derived from
public descriptions of it.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="create_instr_descriptor.get_input_encoding",
            anchor="if x: pass\nelif ty == ir.BF16Type.get(): $$$",
            selector="elif_clause",
            action="after",
            code="""
elif ty == ir.FloatTF32Type.get():
  assert acc_dtype == f32
  return 2
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="sparse_group_elems",
            anchor="assert utils.bitwidth(element_type) != 32, $MESSAGE",
            code="""
if utils.bitwidth(element_type) == 32:
  return 2
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if a_element_type == f32 and is_sparse: $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if is_scaled and utils.bitwidth(mma_a_element_type) == 4:"
            " $$$",
            action="before",
            code="""
if a_element_type == f32 and (
    a_fastest != mma_utils.Dim.K or b_fastest != mma_utils.Dim.K
):
  raise NotImplementedError(
      "MMA with element type f32 (tf32) only supports K-fastest operands:"
      " others need a swizzle with 32-byte atoms. Transpose the input"
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="_do_mma",
            anchor="if isinstance(a_element_type, (ir.F16Type, ir.BF16Type)):"
            " $$$A\nelif isinstance(a_element_type, (ir.Float8E5M2Type,"
            " ir.Float8E4M3FNType)): $$$B\nelif $C: $$$D\nelse: $$$E",
            code="""
if isinstance(a_element_type, ir.FloatTF32Type):
  kind = "tf32"
elif isinstance(a_element_type, (ir.F16Type, ir.BF16Type)):
  $$$A
elif isinstance(a_element_type, (ir.Float8E5M2Type, ir.Float8E4M3FNType)):
  $$$B
elif $C:
  $$$D
else:
  $$$E
""",
        ),
    ),
    tests=("tests/mosaic/gpu_tf32_test.py",),
)
