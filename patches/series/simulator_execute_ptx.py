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
"""The second part of the simulator: a table of instructions and warps."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: execute PTX",
    body="""
A parser of PTX, the table that an instruction is looked up in, and a
machine that executes warps with divergence: registers, predicates,
integer arithmetic, control flow, shuffles and votes, loads and stores,
barriers. An instruction is decoded once and executed for all lanes at a
time. What is not in the table stops the run, with its line.

Instructions are added in the modules of isa/, see docs/simulator.md.

Verified: unit tests against NumPy; what a Hopper GPU shares, against
recordings from an H200 (a later patch).
""",
    new_files=(
        _SIMULATOR + "ptx.py",
        _SIMULATOR + "table.py",
        _SIMULATOR + "registers.py",
        _SIMULATOR + "step.py",
        _SIMULATOR + "scheduler.py",
        _SIMULATOR + "barriers.py",
        _SIMULATOR + "asynchrony.py",
        _SIMULATOR + "mbarrier.py",
        _SIMULATOR + "machine.py",
        _SIMULATOR + "isa/__init__.py",
        _SIMULATOR + "isa/common.py",
        _SIMULATOR + "isa/special.py",
        _SIMULATOR + "isa/rounding.py",
        _SIMULATOR + "isa/integer.py",
        _SIMULATOR + "isa/move.py",
        _SIMULATOR + "isa/control.py",
        _SIMULATOR + "isa/warp.py",
        _SIMULATOR + "isa/units.py",
        _SIMULATOR + "isa/memory.py",
        _SIMULATOR + "isa/mbarrier.py",
        _TESTS + "snippets.py",
    ),
    tests=(
        _TESTS + "ptx_test.py",
        _TESTS + "isa_integer_test.py",
        _TESTS + "isa_warp_test.py",
        _TESTS + "mbarrier_test.py",
    ),
)
