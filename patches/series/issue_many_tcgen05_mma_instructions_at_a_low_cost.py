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
"""Calls over several tiles neither spill uniform registers nor waste them."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Issue many tcgen05.mma instructions at a low cost",
    body="""
One thread issues all instructions of an mma() call. In SASS they take
their operands from aligned pairs of uniform registers: both SMEM
descriptors; the address of the metadata with the instruction
descriptor; the addresses of both scales. As long as each instruction
is an inline_asm of its own that is given 32-bit words, ptxas makes both
words of each pair anew, and far ahead. A sparse f16 call with M=256,
N=128 and K=256 then has 93 other instructions between the first and the
last of its 16 MMAs, 40 of which spill and fill uniform registers.

Calls over several tiles now emit one block of PTX that adds 64-bit
offsets to 64-bit pairs, each one UIADD3.64, and, as soon as registers
would spill, has branches that are never taken between groups of MMAs,
across which ptxas does not schedule. The call above has 21 other
instructions and no spills. There are at most 3.1 others to an MMA, with
nvfp4 up to 3.62. Calls of a single tile emit the same PTX as before.

A loop whose operands are the same in each iteration gets no branches,
as ptxas then makes the operands before the loop. With 16 MMAs of f16
they do not fit into registers: 26 spills remain, as in a loop written
by hand.

Verified: run on a simulator of the PTX (not on a Blackwell GPU),
compiled with ptxas for sm_100a and the SASS counted. That the MMAs are
issued faster was not measured.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            anchor="from . import tcgen05_tiles",
            action="before",
            code="from . import tcgen05_issue",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="for tile in tiles: $$$",
            action="before",
            code="""
sequence = None
if tiles.m_tiles * tiles.n_tiles > n_lane_groups:
  sequence = tcgen05_issue.MmaSequence(
      d.address,
      [
          ref.address
          for name, ref in operands.items()
          if name != "D" and ref is not None
      ],
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="for tile in tiles: $$$",
            action="after",
            code="""
if sequence is not None:
  sequence.emit()
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="_do_mma(scale_block=scale_block)",
            selector="keyword_argument",
            code="scale_block=scale_block,\nsequence=sequence",
        ),
        Edit(
            file=_TCGEN05,
            scope="_do_mma",
            anchor="def f(collective: bool): pass",
            selector="typed_parameter",
            code=(
                "collective: bool,\n"
                "sequence: tcgen05_issue.MmaSequence | None = None"
            ),
        ),
        Edit(
            file=_TCGEN05,
            scope="_do_mma",
            anchor="a_offset_low, a_offset_high = $$$",
            action="before",
            code="""
if sequence is not None:
  if a_in_tmem:
    a_operand = arith.addi(a_enc_addr_base, utils.c(a_offset, i32))
  else:
    a_operand = (a_enc_addr_base, a_offset)
  sequence.add(
      f"tcgen05.mma{sparse_mod}.cta_group::{num_cta}.kind::{kind}",
      d_addr,
      a_operand,
      (b_enc_addr_base, b_offset),
      i_desc,
      accumulate,
      metadata=sparse_addr[0] if is_sparse else None,
      scales=scales_addrs,
  )
  accumulate = arith.constant(i1, 1)
  continue
""",
        ),
    ),
    new_files=(
        "jax/experimental/mosaic/gpu/tcgen05_issue.py",
        "tests/mosaic/sass_util.py",
    ),
    tests=("tests/mosaic/gpu_mma_issue_test.py",),
)
