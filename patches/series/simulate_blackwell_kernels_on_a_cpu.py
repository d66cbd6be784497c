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
"""The simulator: a package of its own, on top of the other patches."""

from patches.model import Patch

PATCH = Patch(
    subject="[Mosaic GPU] Simulate Blackwell kernels on a CPU",
    body="""
Adds a package that runs the PTX of Mosaic GPU kernels on NumPy, so that
kernels with tcgen05 instructions can be run, and their numbers tested,
on machines without a Blackwell GPU. Unlike the interpreter of Pallas,
it sees what the lowering emitted: descriptors, TMEM columns, swizzles,
barriers. It is strict: reads of memory that was never written, accesses
outside of allocations, misuse of barriers and unknown instructions are
errors that name the instruction, the CTA and the warp.

Kernels run by themselves inside of simulator.simulate(), through a
lowering of the mosaic_gpu primitive for the CPU that is registered when
the package is imported. Nothing else in JAX depends on it.

Verified: unit tests of every part against NumPy; what a Hopper GPU has
in common with Blackwell against recordings from an H200. It was not
compared with a Blackwell GPU.
""",
    new_files=(
        "jax/experimental/mosaic/gpu/simulator/",
        "tests/mosaic/simulator/",
        "docs/simulator.md",
    ),
    tests=(
        "tests/mosaic/simulator/api_test.py",
        "tests/mosaic/simulator/executor_test.py",
        "tests/mosaic/simulator/mma_test.py",
        "tests/mosaic/simulator/races_test.py",
    ),
)
