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
"""The last TMEM reference of a RefUnion must end at a multiple of 4 columns.

Run it without a GPU, on the simulator: see ref_union_alignment.md.
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

NATIVE = plgpu.Layout.TCGEN05_TMEM_NATIVE


def run(columns: int, semantics: plgpu.LoweringSemantics) -> str:
  """Stores to a (128, columns) reference in a union, and loads it back."""
  ty = jax.ShapeDtypeStruct((128, columns), jnp.float32)

  def body(src, dst, union):
    [tmem] = union
    plgpu.async_store_tmem(
        tmem, plgpu.load(src, layout=NATIVE, optimized=False)
    )
    plgpu.commit_tmem()
    value = plgpu.async_load_tmem(tmem, layout=NATIVE)
    plgpu.store(dst, value, optimized=False)
    plgpu.wait_load_tmem()

  x = np.random.default_rng(0).normal(size=ty.shape).astype(np.float32)

  def call():
    kernel = plgpu.kernel(
        body,
        out_type=ty,
        scratch_types=[plgpu.RefUnion(plgpu.TMEM(ty.shape, jnp.float32))],
        compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
    )
    with pristine.simulate():
      wrong = np.asarray(jax.jit(kernel)(x)) != x
    if wrong.any():
      raise ValueError(f"{wrong.sum()} of {wrong.size} elements are wrong")

  return pristine.error_of(call)


def findings() -> Iterator[pristine.Finding]:
  for columns in (2, 6):
    for semantics in plgpu.LoweringSemantics:
      yield pristine.Finding(
          f"a union of one float32 (128, {columns}), {semantics.name}",
          "no error",
          run(columns, semantics),
      )


if __name__ == "__main__":
  pristine.main(findings)
