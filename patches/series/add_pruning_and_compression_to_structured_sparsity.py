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
"""From a dense matrix to the operands of a sparse MMA, in jnp."""

from patches.model import Patch

PATCH = Patch(
    subject="[Mosaic GPU] Add pruning and compression to structured sparsity",
    body="""
A sparse tcgen05.mma takes the kept elements of A and their positions,
and nothing in JAX makes them from a dense matrix. This adds functions
that prune to 2:4 sparsity by magnitude (4:8 in pairs for 4-bit types,
1:2 for float32), compress and decompress, in jnp, jittable and
differentiable in the values. Wider types are refused: no sparse MMA
takes them.

Verified: against loops over the elements, on the CPU.
""",
    new_files=("jax/experimental/mosaic/gpu/sparsity.py",),
    tests=("tests/mosaic/gpu_sparsity_test.py",),
)
