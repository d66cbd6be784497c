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
that does not fit to the matmul is found while tracing, with the
messages that the lowering has for the same mistakes. B has as many
scales as fill whole tiles of 128, and with two CTAs and M=64 another
layout.

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
  collective = collective_axis is not None
  _check_mma_scales(a_scale, b_scale, lhs_m, acc_n, a.dtype, collective)
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
    m: Any,
    n: Any,
    a_dtype: jnp.dtype,
    collective: bool,
) -> None:
  if not (_is_tmem_ref(a_scale) and _is_tmem_ref(b_scale)):
    return  # An error of the abstract eval.
  scale_dtypes = [jnp.dtype(jnp.float8_e8m0fnu)]
  if dtypes.itemsize_bits(a_dtype) == 4:
    scale_dtypes.append(jnp.dtype(jnp.float8_e4m3fn))
  _check_mma_operand("A scale dtype", a_scale.dtype, *scale_dtypes)
  _check_mma_operand("B scale dtype", b_scale.dtype, a_scale.dtype)
  k_scales = a_scale.shape[-1]
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
      if collective and m == 64
      else layouts.SCALES_LAYOUT,
  )
''',
        ),
    ),
    tests=("tests/mosaic/pallas_mma_scales_test.py",),
)
