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
"""Block scales of several row tiles: MMA, copies, loads and stores."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject="[Mosaic GPU] Support block-scaled MMA over several M and N tiles",
    body="""
Scales of more than 128 rows lie in TMEM with the row tiles as the minor
dimension: four columns for each 128 rows, then the next four scales of
all rows. The copy from SMEM knew this for up to 256 rows, and stepping
along K did, too. mma() now adds the column of the row tile (4 for each
M tile, 8 for each N tile of 256 columns), for dense and sparse calls,
and scales may have as many rows as TMEM holds.

Stores of scales of 256 rows or more took the registers in row-major
order, so that they ended up in the wrong columns. Loads and stores now
follow the order of TMEM.

This also tests calls of two CTAs with several M tiles: dense, sparse
and with scales.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if is_scaled and (m_groups != 1 or n_groups !="
            " n_lane_groups): $$$",
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="m_groups, n_groups = tiles.m_tiles, tiles.n_tiles",
            code="m_groups = tiles.m_tiles",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="if a_scale.shape != (TMEM_ROWS, k_scales): $$$",
            code="""
# The scales of M=64 are padded.
a_scale_shape = (max(m, TMEM_ROWS), k_scales)
if a_scale.shape != a_scale_shape:
  raise ValueError(
      f"A scale shape mismatch: expected {a_scale_shape}, got"
      f" {a_scale.shape}"
  )
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            within="if collective and m == 64: $$$A\nelif m == 128: $$$B\n"
            "else: $$$C",
            anchor="m == 128",
            code="m % TMEM_ROWS == 0",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor='if m_groups != 1: raise NotImplementedError("A scale'
            ' address calculation for multiple M tiles")',
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor='if n_groups != 1: raise NotImplementedError("B scale'
            ' address calculation for multiple N tiles")',
            action="delete",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="k_scales_per_group = $SCALES",
            code="assert b_scale_n_stride is not None",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="utils.c(ki * k_scales_per_group * a_scale_m_stride, i32)",
            code="utils.c(tiles.a_scale_column(tile, scale_block), i32)",
        ),
        Edit(
            file=_TCGEN05,
            scope="mma",
            anchor="utils.c(ki * k_scales_per_group * b_scale_n_stride, i32)",
            code="""
utils.c(
    tiles.b_scale_column(tile, scale_block, b_scale_n_stride), i32
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_scales_smem_to_tmem",
            anchor="if smem_shape[0] > 2: $$$",
            action="delete",
            with_comment=True,
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_scales_smem_to_tmem",
            anchor="arith.constant(i32, 4 * smem_shape[0] * k_tile + 4 *"
            " mn_tile)",
            code="arith.constant(i32, column)",
        ),
        Edit(
            file=_TCGEN05,
            scope="async_copy_scales_smem_to_tmem",
            within="for mn_tile, k_tile in np.ndindex(smem_shape[:2]): $$$",
            anchor="store_addr = $ADDRESS",
            action="before",
            code="""
column = tcgen05_tiles.scale_column(
    tmem_ref.shape[0], mn_tile * TMEM_ROWS, k_tile * 4
)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            anchor="if regs_shape[0] != 1: $$$",
            code="""
if regs_shape[0] != 1 and self.layout != scales_layout():
  raise NotImplementedError("Loading multiple row tiles")
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            anchor="result = fa.FragmentedArray(_registers=registers, $$$REST)",
            action="before",
            code="""
if self.layout == scales_layout():
  # Row tiles are minor in TMEM, but major in the registers.
  row_tile_dim, k_tile_dim, *tile_dims = regs_shape
  registers = registers.reshape(k_tile_dim, row_tile_dim, *tile_dims)
  registers = registers.swapaxes(0, 1)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.store",
            anchor="if x: pass\nelif value.layout =="
            " self.layout.as_tiled_layout() and packing * bitwidth == 32: $$$",
            selector="elif_clause",
            code="""
elif value.layout == self.layout.as_tiled_layout() and packing * bitwidth == 32:
  registers = value.registers
  if self.layout == scales_layout():
    # Row tiles are minor in TMEM, but major in the registers.
    registers = registers.swapaxes(0, 1)
  _store_32xcols_native(self.address, registers.reshape(-1), packing)
""",
        ),
    ),
    tests=(
        "tests/mosaic/gpu_scaled_tiles_test.py",
        "tests/mosaic/gpu_two_cta_tiles_test.py",
    ),
)
