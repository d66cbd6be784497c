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
"""Kernels that were there before the simulator."""

from patches.model import Patch

_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: run JAX's own kernels",
    body="""
Runs the Blackwell kernels that JAX ships (blackwell_matmul_mgpu,
blackwell_ragged_dot_mgpu) and kernels after the patterns of the
Blackwell matmul tutorial, over a grid of their tuning parameters and in
several orders, and checks that no correct kernel is reported. Then each
wait, fence, commit and barrier is removed, one at a time, and the
simulator must report it, or the test says why it is redundant.

Verified: on the simulator.
""",
    new_files=(
        _TESTS + "race_kernels.py",
    ),
    tests=(
        _TESTS + "shipped_kernels_test.py",
        _TESTS + "tutorial_patterns_test.py",
        _TESTS + "removed_waits_test.py",
    ),
    # One of the kernels is the one of the patch before.
    versions=("0.12.0.1", "0.12.0"),
)
