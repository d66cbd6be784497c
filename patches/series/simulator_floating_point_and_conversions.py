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
"""Floating-point arithmetic with the rounding that instructions ask for."""

from patches.model import Patch

_SIMULATOR = "jax/experimental/mosaic/gpu/simulator/"
_TESTS = "tests/mosaic/simulator/"

PATCH = Patch(
    subject="[Mosaic GPU] Simulator: floating point and conversions",
    body="""
Floating-point instructions and conversions, down to 4 bits. What is
rounded by the ISA's rules is exact to the bit, with every rounding mode
and saturation, and NaNs as the hardware makes them. Approximate
functions are within the error that the ISA states.

Verified: unit tests against exact fractions; against recordings from an
H200 (a later patch).
""",
    new_files=(
        _SIMULATOR + "isa/floating.py",
        _SIMULATOR + "isa/convert.py",
        _TESTS + "exact.py",
    ),
    tests=(
        _TESTS + "isa_floating_test.py",
        _TESTS + "isa_convert_test.py",
    ),
)
