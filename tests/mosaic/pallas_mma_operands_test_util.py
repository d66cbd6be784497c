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
"""Traces kernels with operands that tcgen05_mma may refuse."""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp

E2M1, E4M3, E8M0 = jnp.float4_e2m1fn, jnp.float8_e4m3fn, jnp.float8_e8m0fnu
TMEM = plgpu.TMEM
Layouts = plgpu.TMEMLayout


def metadata(rows, entries, dtype=jnp.uint2, *,
              layout=Layouts.SPARSE_METADATA_LAYOUT):
  return TMEM((rows, entries), dtype, layout=layout)


def scale(rows, count, dtype=E8M0, *, layout=Layouts.SCALES_LAYOUT, **kwargs):
  return TMEM((rows, count), dtype, layout=layout, **kwargs)


def trace(
    shape, dtype, *, metadata=None, a_scale=None, b_scale=None,
    collective=False, at=lambda ref: ref, in_warp=False,
):
  """Traces a kernel with a matmul.

  Args:
    shape: M, N and K.
    dtype: The element type of A and B.
    metadata: The type of the sparse metadata, if A is sparse.
    a_scale: The type of the scales of A, if any.
    b_scale: The type of the scales of B, if any.
    collective: Whether two CTAs share the call.
    at: What to pass of each operand that describes A or B.
    in_warp: Whether a single warp makes the call.
  """
  m, n, k = shape
  types = dict(a_sparse_metadata=metadata, a_scale=a_scale, b_scale=b_scale)
  types = {name: ty for name, ty in types.items() if ty is not None}

  def body(out, acc, a, b, operands):
    del out
    operands = {name: at(ref) for name, ref in operands.items()}
    call = functools.partial(
        plgpu.tcgen05_mma, acc, a, b, **operands,
        collective_axis="x" if collective else None,
    )
    if in_warp:
      plgpu.warp_map(lambda warp: pl.when(warp == 0)(call))
    else:
      call()

  a_k = k if metadata is None else k // 2
  kernel = plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
      scratch_types=[
          TMEM((m, n * (1 + collective)), jnp.float32, collective=collective),
          plgpu.SMEM((m, a_k), dtype),
          plgpu.SMEM((k, n), dtype),
          types,
      ],
      **(dict(cluster=(2,), cluster_names=("x",)) if collective else {}),
  )
  jax.jit(kernel).trace()
