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
"""The memory space of sparse metadata is not checked, or under a wrong name.

Run it without a GPU: see sparse_metadata_space.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu


def run(body, semantics: plgpu.LoweringSemantics, *scratch_types) -> str:
  """Traces and compiles a kernel of ``body``. Returns its error."""

  def call():
    kernel = plgpu.kernel(
        lambda out, *refs: body(*refs),
        out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
        scratch_types=scratch_types,
        compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
    )
    with pristine.simulate():
      jax.jit(kernel).lower()

  return pristine.error_of(call)


def mma(acc, a, b, metadata):
  plgpu.tcgen05_mma(acc, a, b, a_sparse_metadata=metadata)


def findings() -> Iterator[pristine.Finding]:
  transforms = plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)
  for semantics in plgpu.LoweringSemantics:
    yield pristine.Finding(
        f"tcgen05_mma with metadata in SMEM, {semantics.name}",
        "ValueError: a_sparse_metadata must be a TMEM Ref",
        run(
            mma,
            semantics,
            plgpu.TMEM((128, 128), jnp.float32),
            plgpu.SMEM((128, 128), jnp.float16, transforms=transforms),
            plgpu.SMEM((256, 128), jnp.float16, transforms=transforms),
            plgpu.SMEM((128, 128), jnp.uint2),
        ),
    )
  tmem = plgpu.TMEM(
      (128, 64), jnp.uint2, layout=plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT
  )
  yield pristine.Finding(
      "async_copy_sparse_metadata_to_tmem from TMEM",
      "ValueError: async_copy_sparse_metadata_to_tmem source must be an SMEM"
      " ref",
      run(
          plgpu.async_copy_sparse_metadata_to_tmem,
          plgpu.LoweringSemantics.Lane,
          tmem,
          tmem,
      ),
  )


if __name__ == "__main__":
  pristine.main(findings)
