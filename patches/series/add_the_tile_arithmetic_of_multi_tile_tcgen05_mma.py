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
"""The module that the later patches take their formulas from."""

from patches.model import Patch

PATCH = Patch(
    subject="[Mosaic GPU] Add the tile arithmetic of multi-tile tcgen05.mma",
    body="""
A tcgen05.mma instruction takes at most 128 rows of A per CTA, 256
columns of B and one step along K; mma() issues a K group of several
steps at a time. This adds, as plain integers, which (M, N, K group)
tiles a larger matmul consists of and at which TMEM column the
accumulator and the sparse metadata of each tile lie. Changes to
tcgen05.py follow and take their offsets from here.

TMEM has 128 lanes, so the rows of a reference beyond 128 continue in
further columns: all columns of rows 0-127, then those of rows 128-255.
Metadata describes A only: it follows M and K and is shared by all N
tiles. N is split into tiles of 256 and a shorter last one, rather than
into equal parts, which would break the instruction's N % 16 rule (272
would give 136 + 136).

Verified: property tests against enumerations of the TMEM cells.
""",
    new_files=("jax/experimental/mosaic/gpu/tcgen05_tiles.py",),
    tests=("tests/mosaic/tcgen05_tiles_test.py",),
)
