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
"""Tensor maps, and the copies that use them."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: TMA",
    body="""
Tensor maps as mosaic_gpu_init_tma_desc and its im2col sibling make
them, and the bulk copies of TMA: loads, multicast loads, stores,
reductions and prefetches, with swizzles, elements of less than a byte
and boxes that reach out of the array.

Verified: unit tests against NumPy; against recordings from an H200 (a
later patch).
""",
    new_files=(
        _SIMULATOR + "tma.py",
        _SIMULATOR + "isa/tma.py",
    ),
    tests=(
        _TESTS + "tma_test.py",
        _TESTS + "isa_tma_test.py",
    ),
)
