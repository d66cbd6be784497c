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
"""Block scales that do not fit are refused while tracing."""

from patches.model import Edit, Patch

_PRIMITIVES = "jax/_src/pallas/mosaic_gpu/primitives.py"

PATCH = Patch(
    subject="[Pallas:MGPU] Check block scales while tracing",
    body="""
As for sparse metadata: a shape, element type or layout of block scales
that does not fit to the matmul is found while tracing, in words like
those of the lowering. So are types of A that have no block scaling, and
numbers of scales that do not fit K: a scale is for 32 elements (with
4-bit types, 16, or with E8M0 scales 16 or 32), and for twice as many if
A is sparse. B has rows of scales that fill whole tiles of 128, and with
two CTAs and M=64 another layout.

Verified: by the tests, which need no GPU.
""",
    edits=(
        Edit(
            file=_PRIMITIVES,
            scope="tcgen05_mma",
            anchor="if is_sparse: _check_mma_sparse_metadata($$$)",
            action="after",
            code="""
if a_scale is not None and b_scale is not None:
  _check_mma_scales(
      a_scale,
      b_scale,
      (lhs_m, acc_n, rhs_k),
      a.dtype,
      is_sparse=is_sparse,
      is_collective=collective_axis is not None,
  )
""",
        ),
        Edit(
            file=_PRIMITIVES,
            anchor="def _check_mma_sparse_metadata($$$ARGS) -> None: $$$BODY",
            action="after",
            code='''
def _check_mma_scales(
    a_scale: _Ref,
    b_scale: _Ref,
    mnk: tuple[Any, Any, Any],
    a_dtype: jnp.dtype,
    *,
    is_sparse: bool,
    is_collective: bool,
) -> None:
  if not (_is_tmem_ref(a_scale) and _is_tmem_ref(b_scale)):
    return  # An error of the abstract eval.
  m, n, k = mnk
  e8m0, e4m3 = jnp.dtype(jnp.float8_e8m0fnu), jnp.dtype(jnp.float8_e4m3fn)
  # The elements along K that a scale may be for, by the type of scales.
  if a_dtype == jnp.float4_e2m1fn:
    blocks = {e8m0: (16, 32), e4m3: (16,)}
  elif a_dtype in (jnp.float8_e4m3fn, jnp.float8_e5m2):
    blocks = {e8m0: (32,)}
  else:
    raise ValueError(
        f"MMA with element type {a_dtype} does not support block scaling"
    )
  _check_mma_operand("A scale dtype", a_scale.dtype, *blocks)
  _check_mma_operand("B scale dtype", b_scale.dtype, a_scale.dtype)
  k_scales = a_scale.shape[-1]
  if k % k_scales:
    raise ValueError(
        f"K={k} is not divisible by A scale second dimension {k_scales}"
    )
  _check_mma_operand(
      "Scale block size",
      k // k_scales,
      *(block * (1 + is_sparse) for block in blocks[a_scale.dtype]),
  )
  rows = 128 if m == 64 else m  # The scales of M=64 are padded.
  _check_mma_operand("A scale shape", a_scale.shape, (rows, k_scales))
  if b_scale.shape[0] % 128 or b_scale.shape[0] < n:
    raise ValueError(
        f"B scale shape[0] must be a multiple of 128 and >= N={n}, got"
        f" {b_scale.shape[0]}"
    )
  _check_mma_operand(
      "B scale shape", b_scale.shape, (b_scale.shape[0], k_scales)
  )
  layouts = gpu_core.TMEMLayout
  _check_mma_layout("A scale", a_scale, layouts.SCALES_LAYOUT)
  _check_mma_layout(
      "B scale",
      b_scale,
      layouts.SCALES_M64_COLLECTIVE_LAYOUT
      if is_collective and m == 64
      else layouts.SCALES_LAYOUT,
  )
''',
        ),
    ),
    tests=("tests/mosaic/pallas_mma_scales_test.py",),
)
