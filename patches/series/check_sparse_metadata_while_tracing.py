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
"""Sparse metadata that does not fit is refused while tracing."""

from patches.model import Edit, Patch

_PRIMITIVES = "jax/_src/pallas/mosaic_gpu/primitives.py"

PATCH = Patch(
    subject="[Pallas:MGPU] Check sparse metadata while tracing",
    body="""
A shape, element type or layout of sparse metadata that does not fit to
the matmul was only found while lowering, if at all in words about the
mistake: with Warpgroup semantics, wrong layouts ended in "Failed to
infer a possible set of layouts" and wrong types in a verification error
that asks to file a bug. tcgen05_mma now checks them as it checks the
shapes of its other operands, in words like those of the lowering.

For 4-bit types, metadata may have two shapes: how many elements a pair
of entries describes depends on the GPU. The lowering knows which.

Verified: by the tests, which need no GPU.
""",
    edits=(
        Edit(
            file=_PRIMITIVES,
            scope="tcgen05_mma",
            anchor="if (lhs_k * $FACTOR) != rhs_k: $$$",
            action="after",
            code="""
if is_sparse:
  _check_mma_sparse_metadata(a_sparse_metadata, lhs_m, rhs_k, a.dtype)
""",
        ),
        Edit(
            file=_PRIMITIVES,
            anchor="def tcgen05_mma($$$ARGS): $$$BODY",
            action="before",
            code='''
def _check_mma_operand(what: str, got: Any, *expected: Any) -> None:
  if got not in expected:
    alternatives = " or ".join(map(str, expected))
    raise ValueError(f"{what} mismatch: expected {alternatives}, got {got}")


def _check_mma_layout(
    what: str, ref: _Ref, expected: gpu_core.TMEMLayout
) -> None:
  layout = None
  if isinstance(ref, pallas_core.TransformedRef):
    for transform in ref.transforms:
      if isinstance(transform, gpu_core.ExtractAliasedRef):
        layout = transform.layout
    ref = ref.ref
  # Under a core_map, the avals are normal MemRefs, of unknown layout.
  if layout is None:
    layout = getattr(jax_core.typeof(ref), "layout", None)
  if layout is not None and layout != expected.to_mgpu():
    _check_mma_operand(f"{what} layout", layout, expected)


def _is_tmem_ref(ref: _Ref) -> bool:
  base = ref.ref if isinstance(ref, pallas_core.TransformedRef) else ref
  return jax_core.typeof(base).memory_space == gpu_core.TMEM


def _check_mma_sparse_metadata(
    metadata: _Ref, m: Any, k: Any, a_dtype: jnp.dtype
) -> None:
  if not _is_tmem_ref(metadata):
    return  # An error of the abstract eval.
  what = "A sparse metadata"
  # Two entries describe 4 elements of A, but 2 with tf32, and 8 (or 4, which
  # depends on the GPU) with 4-bit types.
  entries = {4: (k // 4, k // 2), 32: (k,)}.get(
      dtypes.itemsize_bits(a_dtype), (k // 2,)
  )
  _check_mma_operand(
      f"{what} shape", metadata.shape, *((m, count) for count in entries)
  )
  _check_mma_operand(
      f"{what} dtype", metadata.dtype, jnp.dtype(jnp.uint2), jnp.dtype(jnp.int2)
  )
  _check_mma_layout(
      what, metadata, gpu_core.TMEMLayout.SPARSE_METADATA_LAYOUT
  )
''',
        ),
    ),
    new_files=("tests/mosaic/pallas_mma_operands_test_util.py",),
    tests=("tests/mosaic/pallas_mma_metadata_test.py",),
)
