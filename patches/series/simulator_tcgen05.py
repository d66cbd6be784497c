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
"""Tensor memory and the tensor core of Blackwell."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: tcgen05",
    body="""
The tcgen05 instructions: allocation, loads, stores and copies of tensor
memory, MMAs of all kinds that Mosaic GPU emits (dense and sparse, with
block scales, A in shared or tensor memory, one and two CTAs), commits
and fences. It is strict where the hardware is silent: an odd column of
metadata, scales whose replicas differ, a warp that reads the lanes of
another one, or tensor memory that stays allocated, are errors.

With these the table of instructions is complete, so that its tests come
along.

What the PTX ISA only shows in figures (sparse MMAs with 64 rows, copies
that decompress) is refused.

Verified: unit tests against NumPy. The semantics come from the PTX ISA;
they were not compared with a Blackwell GPU.
""",
    new_files=(
        _SIMULATOR + "mma.py",
        _SIMULATOR + "isa/tcgen05.py",
    ),
    tests=(
        _TESTS + "mma_test.py",
        _TESTS + "table_test.py",
        _TESTS + "executor_test.py",
        _TESTS + "isa_tcgen05_test.py",
    ),
)
