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
"""One tcgen05.mma call covers several M tiles and any number of columns."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Issue several M tiles and a short last N tile",
    body="""
A tcgen05.mma instruction takes 128 rows of A per CTA and up to 256
columns of B. mma() could cover a single M tile, and two N tiles only
for N=512. Now M may be any multiple of 128 and N > 256 is split into
tiles of 256 and a last tile that takes the rest, as far as the operands
fit into the 512 columns of TMEM, which is checked: the accumulator
alone takes M / 128 times N columns.

With M=64 on one CTA, the columns are halved over the lanes. N between
257 and 511 is now accepted there, too: N=320 is two tiles of 160.

The offsets come from tcgen05_tiles.MmaTiles. Calls that were accepted
before emit the same PTX.

Several M tiles with A in TMEM or with block scales, and several tiles
with sparse metadata, are still refused.

Verified: run on a simulator of the PTX (not on a Blackwell GPU),
compiled with ptxas for sm_100a, and with the operands of every
tcgen05.mma decoded from the PTX.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="mma",
            within="if m == 128: $$$A\nelif m == 64: $$$B\nelse: $$$C",
            anchor="m == 128",
            code="m % TMEM_ROWS == 0",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor='ValueError(f"Only M=128 and M=64 are supported for MMA, but'
            ' got M={m}")',
            code="""
ValueError(
    "Only M=64 and multiples of 128 are supported for MMA, but got"
    f" M={m}"
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="m_group_elems = m",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if n > 256 and n.bit_count() != 1: $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor='ValueError("Only N <= 128 are supported for collective'
            ' MMA")',
            code="""
ValueError(
    f"Only N <= 128 per CTA are supported for collective MMA, but got N={n}:"
    " a second N tile would interleave the columns of both CTAs. Issue one"
    " MMA for each slice of B and of the accumulator instead."
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="n_group_elems = min(n // n_lane_groups, 256 // num_cta)",
            through="n_groups = n // n_group_elems",
            code="""
tiles = tcgen05_tiles.MmaTiles(
    m, n, k, k_group_elems, num_cta=num_cta, n_lane_groups=n_lane_groups
)
m_group_elems, n_group_elems = tiles.m_tile, tiles.n_tile
m_groups, n_groups = tiles.m_tiles, tiles.n_tiles
if is_scaled and (m_groups != 1 or n_groups != n_lane_groups):
  raise NotImplementedError(
      f"Block-scaled MMA with M={m} and N={n} takes several tiles, which is"
      " unsupported. Issue one MMA for each 128 rows of A and 256 columns of"
      " B instead."
  )
operands = {
    "D": d,
    "A": a if isinstance(a, TMEMRef) else None,
    "A sparse metadata": a_sparse_metadata,
    "A scale": a_scale,
    "B scale": b_scale,
}
tcgen05_tiles.check_columns({
    name: ref.layout.cols_in_shape(ref.shape, utils.bitwidth(ref.dtype))
    for name, ref in operands.items()
    if ref is not None
})
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="n_collective_group_elems = n_group_elems * num_cta",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="n_col_groups = n_groups // n_lane_groups",
            action="delete",
        ),
        # The comment names what went away.
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if is_scaled: $$$BODY\nelse:"
            " a_scale_m_stride = b_scale_n_stride = None",
            code="""
# B scales are padded when N is short, so it can't be derived from the
# instruction's N. Same for A scales when M is short.
if is_scaled:
  $$$BODY
else:
  a_scale_m_stride = b_scale_n_stride = None
""",
            with_comment=True,
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="for mi, ni, ki in np.ndindex(m_groups, n_groups, k_groups):"
            " $$$BODY",
            code="""
for tile in tiles:
  mi, ni, ki = tile.mi, tile.ni, tile.ki
  $$$BODY
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="assert a_desc_base is not None",
            action="after",
            code="""
assert a_m_group_stride is not None and a_k_group_stride is not None
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="ni_lane_group, ni_col ="
            " ni // n_col_groups, ni % n_col_groups",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="d_offset = ($OFFSET)",
            code="""
d_lane = tiles.d_lane_group(tile) * lanes_per_n_group
d_offset = (d_lane << 16) + tiles.d_column(tile)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if m_groups != 1: raise NotImplementedError("
            '"D address calculation for multiple M tiles")',
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="_do_mma(n=n_group_elems)",
            selector="keyword_argument",
            code="n=tile.n",
        ),
    ),
    tests=("tests/mosaic/gpu_mma_tiles_test.py",),
)
