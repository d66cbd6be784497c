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
"""The first part of the simulator: what its instructions work on."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: model the memories of an SM",
    body="""
This and the patches that follow add a package that runs the PTX of
Mosaic GPU kernels on NumPy, so that kernels with tcgen05 instructions
can be run, and their numbers tested, on machines without a Blackwell
GPU. Unlike the interpreter of Pallas, it sees what the lowering
emitted: descriptors, TMEM columns, swizzles, barriers.

The parts come from the bottom up, each with its tests, and none of them
changes what is there. They can be used once the last of them,
"Simulator: run kernels", is in.

Here: global, shared and tensor memory, of which each byte knows whether
it was written; swizzles; the descriptors of shared memory and of
instructions. Reads of what was never written and accesses outside of an
allocation are errors that name the instruction, the CTA and the warp.

Verified: unit tests against NumPy.
""",
    new_files=(
        _SIMULATOR + "errors.py",
        _SIMULATOR + "observers.py",
        _SIMULATOR + "buffers.py",
        _SIMULATOR + "memory.py",
        _SIMULATOR + "swizzle.py",
        _SIMULATOR + "tmem.py",
        _SIMULATOR + "formats.py",
        _SIMULATOR + "descriptors.py",
    ),
    tests=(
        _TESTS + "buffers_test.py",
        _TESTS + "memory_test.py",
        _TESTS + "swizzle_test.py",
        _TESTS + "tmem_test.py",
        _TESTS + "descriptors_test.py",
    ),
)
