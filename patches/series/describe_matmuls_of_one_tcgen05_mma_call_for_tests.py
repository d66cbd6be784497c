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
"""What the tests of the series have in common."""

from patches.model import Edit, Patch

# Pallas has no store with `optimized` there.
_NO_STORE = ("0.11.1", "0.11.2")
_UTIL = "tests/mosaic/gpu_tiles_test_util.py"

PATCH = Patch(
    subject="[Mosaic GPU] Describe matmuls of one tcgen05.mma call for tests",
    body="""
The patches that follow need the same test again and again: a kernel
with a single mma() call of some shape, types and placement of operands,
run on random inputs. This adds a dataclass that describes such a
matmul. It makes the kernel and its inputs, compares the result with a
dense matmul in NumPy, and, without a GPU, decodes the operands of every
tcgen05.mma from the PTX and checks that each part of the matmul is
computed exactly once, from the columns where its operands lie.

It knows the operands that later patches add, so that it need not grow
with each of them.

Verified: by the tests that use it.
""",
    edits=(
        # There, the assignment does not insist on a fast way.
        Edit(
            file=_UTIL,
            scope="store",
            anchor="plgpu.store(dst, value, optimized=False)",
            code="dst[...] = value",
            versions=_NO_STORE,
        ),
        Edit(
            file=_UTIL,
            anchor="from jax.experimental.pallas import mosaic_gpu as plgpu",
            action="delete",
            versions=_NO_STORE,
        ),
    ),
    new_files=(_UTIL,),
    tests=("tests/mosaic/gpu_tiles_test_util_test.py",),
)
