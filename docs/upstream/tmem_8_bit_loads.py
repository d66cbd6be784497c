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
"""Layout inference chooses a layout that 8-bit loads from TMEM do not have.

Run it without a GPU, on the simulator: see tmem_8_bit_loads.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu


def run(dtype, semantics: plgpu.LoweringSemantics) -> str:
  """Copies to packed 8-bit TMEM, and loads it without naming a layout."""
  ty = jax.ShapeDtypeStruct((128, 64), dtype)

  def body(src, dst, smem, tmem, loaded, copied):
    plgpu.copy_gmem_to_smem(src, smem, loaded)
    plgpu.barrier_wait(loaded)
    plgpu.async_copy_smem_to_tmem(smem, tmem)
    plgpu.tcgen05_commit_arrive(copied)
    plgpu.barrier_wait(copied)
    plgpu.store(dst, plgpu.async_load_tmem(tmem), optimized=False)

  transforms = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(64)
  x = np.random.default_rng(0).integers(-8, 8, ty.shape).astype(dtype)

  def call():
    kernel = plgpu.kernel(
        body,
        out_type=ty,
        scratch_types=[
            plgpu.SMEM(ty.shape, dtype, transforms=transforms),
            plgpu.TMEM(ty.shape, dtype, packed=True),
            plgpu.Barrier(),
            plgpu.Barrier(orders_tensor_core=True),
        ],
        compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
    )
    with pristine.simulate():
      result = np.asarray(jax.jit(kernel)(x))
    wrong = result.view(np.uint8) != x.view(np.uint8)
    if wrong.any():
      raise ValueError(f"{wrong.sum()} of {wrong.size} elements are wrong")

  return pristine.error_of(call)


def findings() -> Iterator[pristine.Finding]:
  semantics = plgpu.LoweringSemantics
  for dtype in (jnp.int8, jnp.float8_e4m3fn):
    name = jnp.dtype(dtype).name
    # As a control: these work with Lane semantics.
    if (error := run(dtype, semantics.Lane)) != "no error":
      raise RuntimeError(f"{name} with Lane semantics: {error}")
    yield pristine.Finding(
        f"{name} (128, 64), Warpgroup semantics",
        "no error",
        run(dtype, semantics.Warpgroup),
    )


if __name__ == "__main__":
  pristine.main(findings)
