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
"""An example kernel of one multi-tile sparse tcgen05.mma call."""

from patches.model import Patch

PATCH = Patch(
    subject="[Mosaic GPU] Add a sparse matmul example for Blackwell",
    body="""
Prunes a dense matrix to 2:4 sparsity, compresses it and multiplies it
with a dense one in a kernel that issues a single tcgen05.mma over
several tiles. As a script it runs a number of shapes and types, on a
Blackwell GPU or on the simulator, and prints what each takes.

Verified: run on the simulator (not on a Blackwell GPU), and compiled
with ptxas for sm_100a.
""",
    new_files=(
        "jax/experimental/mosaic/gpu/examples/sparse_mma_tiles_blackwell.py",
    ),
    tests=("tests/mosaic/sparse_mma_tiles_blackwell_test.py",),
)
