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
"""The reason in an error message."""

from patches.model import Edit, Patch

PATCH = Patch(
    subject="[Mosaic GPU] Say why sparse MMA with M=64 is refused",
    body="""
The instruction exists, but where the metadata of 64 rows lies in TMEM
is only shown in figures of the PTX ISA, and no open library uses it.
The error now says so, and what to do instead.

Verified: by the test of the message.
""",
    edits=(
        Edit(
            file="jax/experimental/mosaic/gpu/tcgen05.py",
            scope="mma",
            anchor='NotImplementedError("Sparse MMA not supported for M=64")',
            code="""
NotImplementedError(
    "Sparse MMA not supported for M=64: the layout of its metadata is"
    " not documented in text. Use M=128, with padding if need be."
)
""",
        ),
    ),
    tests=("tests/mosaic/gpu_sparse_m64_test.py",),
)
