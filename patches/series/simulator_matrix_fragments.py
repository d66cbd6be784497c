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
"""Fragments of matrices, and tests of all memory instructions."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: matrix fragments",
    body="""
ldmatrix, stmatrix and mma.sync. With them come the tests of loads,
stores, atomics and barriers, some of which move fragments, too.

Verified: unit tests against NumPy; against recordings from an H200 (a
later patch).
""",
    new_files=(
        _SIMULATOR + "isa/matrix.py",
        _TESTS + "device_snippets.py",
    ),
    tests=(
        _TESTS + "isa_memory_test.py",
        _TESTS + "isa_mbarrier_test.py",
    ),
)
