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
"""What a Hopper GPU computed, and a test that the simulator agrees."""

from patches.model import Patch

_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: compare with an H200",
    body="""
Small PTX programs for what a Hopper GPU shares with Blackwell, what an
H200 computed for random inputs, and a test that the simulator
reproduces it bit for bit (approximate functions within the error that
the ISA states): arithmetic, conversions, shuffles, votes, matrix
fragments, barriers, TMA. Programs that fault on the GPU must be refused
by the simulator.

tests/mosaic/simulator/silicon/run_on_gpu.py records them again. The
recordings are small .npz files.

Verified: recorded on an H200.
""",
    new_files=(
        _TESTS + "silicon/",
    ),
    tests=(
        _TESTS + "silicon_test.py",
    ),
)
