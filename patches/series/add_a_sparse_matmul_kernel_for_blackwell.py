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
"""A sparse matmul kernel for real sizes, on top of all other patches."""

from patches.model import Patch

PATCH = Patch(
    subject="[Pallas:MGPU] Add a sparse matmul kernel for Blackwell",
    body="""
A function that multiplies a compressed 2:4-sparse matrix with a dense
one, of any size, in f16, bf16, fp8 and mxfp8. Its Pallas kernel is
persistent and warp-specialised: a warp copies steps along K to a ring
of stages in shared memory, a warp issues the MMAs, and a warpgroup
stores the accumulators, of which there are two where tensor memory has
room. Each CTA, or pair of CTAs, multiplies several tiles of 128 rows
with the same columns of B, so that B is loaded once for all of them.

A configuration that does not fit into shared or tensor memory is
refused with the sizes of all operands.

The default configuration comes from a model of a B200 on paper, which
counts tensor core cycles, bytes and instructions of a tile.

Verified: run on the simulator with its race checker, in several orders
of what is asynchronous and in both lowering semantics, and compiled
with ptxas for sm_100a. It was not run, and its speed not measured, on
a Blackwell GPU.
""",
    new_files=(
        "jax/experimental/mosaic/gpu/examples/sparse_matmul_blackwell.py",
        "jax/experimental/mosaic/gpu/examples/sparse_matmul_model.py",
    ),
    tests=(
        "tests/mosaic/sparse_matmul_kernel_test.py",
        "tests/mosaic/sparse_matmul_model_test.py",
    ),
    # Earlier releases have no plgpu.store.
    versions=("0.12.0.1", "0.12.0"),
)
