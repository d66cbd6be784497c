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
"""Memory spaces of sparse metadata: checked, and named in the errors."""

from patches.model import Edit, Patch

_PRIMITIVES = "jax/_src/pallas/mosaic_gpu/primitives.py"

PATCH = Patch(
    subject="[Pallas:MGPU] Check the memory space of sparse metadata",
    body="""
tcgen05_mma checked while tracing that block scales are in TMEM, but not
that sparse metadata is: a reference to SMEM ended in an AttributeError
with Lane semantics, and with Warpgroup semantics in a verification
error that asks to file a bug.

The copy of sparse metadata to TMEM did check its operands, but called
itself async_copy_scales_to_tmem in the errors.

Verified: by the tests, which need no GPU.
""",
    edits=(
        Edit(
            file=_PRIMITIVES,
            scope="_tcgen05_mma_abstract_eval",
            anchor="return [], {gpu_core._memory_effect}",
            action="before",
            code="""
if sparse:
  a_sparse_metadata = scales_and_transforms_leaves[2 if scaled else 0]
  if a_sparse_metadata.memory_space != gpu_core.TMEM:
    raise ValueError("a_sparse_metadata must be a TMEM Ref")
""",
        ),
        Edit(
            file=_PRIMITIVES,
            anchor="import enum",
            action="after",
            code="import functools",
            versions=("0.11.1",),
        ),
        Edit(
            file=_PRIMITIVES,
            scope="_async_copy_to_tmem_abstract_eval",
            code='''
def _async_copy_to_tmem_abstract_eval(
    name: str, smem_ref, tmem_ref, *_args, **_kwargs
):
  if smem_ref.memory_space != gpu_core.MemorySpace.SMEM:
    raise ValueError(f"{name} source must be an SMEM ref")
  if tmem_ref.memory_space != gpu_core.MemorySpace.TMEM:
    raise ValueError(f"{name} target must be a TMEM ref")
  return (), {state_types.ReadEffect(0), state_types.WriteEffect(1)}


async_copy_scales_to_tmem_p.def_effectful_abstract_eval(
    functools.partial(
        _async_copy_to_tmem_abstract_eval, "async_copy_scales_to_tmem"
    )
)
async_copy_sparse_metadata_to_tmem_p.def_effectful_abstract_eval(
    functools.partial(
        _async_copy_to_tmem_abstract_eval, "async_copy_sparse_metadata_to_tmem"
    )
)
''',
        ),
    ),
    tests=("tests/mosaic/pallas_sparse_metadata_space_test.py",),
)
