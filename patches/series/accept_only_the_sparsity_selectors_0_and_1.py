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
"""The sparsity selector of the instruction descriptor."""

from patches.model import Edit, Patch

PATCH = Patch(
    subject="[Mosaic GPU] Accept only the sparsity selectors 0 and 1",
    body="""
Sparse metadata is named by the first of a pair of TMEM columns, and the
selector says which of the two an instruction reads. The instruction
descriptor accepted a selector of 2. mma() never passes one.

Verified: by the test.
""",
    edits=(
        Edit(
            file="jax/experimental/mosaic/gpu/tcgen05.py",
            scope="create_instr_descriptor",
            anchor="assert 0 <= sparsity_selector < 3",
            code="""
if sparsity_selector not in (0, 1):
  raise ValueError(
      f"Expected a sparsity selector of 0 or 1, got {sparsity_selector}"
  )
""",
        ),
    ),
    tests=("tests/mosaic/gpu_sparsity_selector_test.py",),
)
