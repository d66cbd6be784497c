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
"""Tests of the series as a whole, through Pallas."""

from patches.model import Patch

PATCH = Patch(
    subject="[Pallas:MGPU] Test tcgen05_mma over several tiles",
    body="""
Everything that tcgen05.mma can do over several M and N tiles, in both
lowering semantics, issued by a warpgroup or by a single warp: dense and
sparse, block scales, A in TMEM, two CTAs; by one call, or by calls for
parts of A that are sliced from the same references.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    tests=("tests/mosaic/pallas_tiles_test.py",),
)
