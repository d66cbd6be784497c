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
"""A store to a TMEM reference of several row tiles interleaves them.

Run it without a GPU, on the simulator: see tmem_store_row_tiles.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless, tcgen05
from jax.experimental.mosaic.gpu import fragmented_array as fa


def run(rows: int, columns: int) -> str:
  """Stores a (rows, columns) reference, and loads its columns of TMEM."""
  row_tiles = rows // 128
  # Row tile i of the default layout lies in these columns, says the layout.
  layout = tcgen05.tmem_default_layout()
  assert layout.cols_in_shape((rows, columns), 32) == row_tiles * columns
  ty = jax.ShapeDtypeStruct((rows, columns), jnp.float32)

  def body(ctx, x, out, tmem):
    del ctx
    tmem.store(
        fa.FragmentedArray.load_untiled(
            x, layout=tcgen05.LAYOUT, optimized=False
        )
    )
    tcgen05.commit_tmem()
    whole = tcgen05.TMEMRef(
        tmem.address, (128, row_tiles * columns), tmem.dtype, layout
    )
    for i in range(row_tiles):
      tile = whole.slice(slice(None), mgpu.ds(i * columns, columns))
      tile.load().store_untiled(
          mgpu.memref_slice(out, mgpu.ds(i * 128, 128)), optimized=False
      )

  x = np.random.default_rng(0).normal(size=ty.shape).astype(np.float32)
  with pristine.simulate():
    kernel = deviceless.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1), ty, ty,
        mgpu.TMEM(ty.shape, jnp.float32, layout=layout),
    )
    wrong = np.asarray(kernel(x)) != x
  return f"{wrong.sum()} of {wrong.size} elements are wrong"


def findings() -> Iterator[pristine.Finding]:
  for rows, columns in ((256, 64), (384, 32)):
    yield pristine.Finding(
        f"store float32 ({rows}, {columns}), then load each row tile",
        f"0 of {rows * columns} elements are wrong",
        run(rows, columns),
    )


if __name__ == "__main__":
  pristine.main(findings)
