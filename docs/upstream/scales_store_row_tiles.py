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
"""A store to scales of 256 rows puts them into the wrong columns of TMEM.

Run it without a GPU, on the simulator: see scales_store_row_tiles.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.lib.mlir import ir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless, tcgen05
from jax.experimental.mosaic.gpu import fragmented_array as fa

E8M0 = jnp.float8_e8m0fnu


def columns_of(scales: np.ndarray, copied: bool) -> np.ndarray:
  """Brings scales to TMEM, and returns its columns as 32-bit words.

  Args:
    scales: Bytes of shape (rows, scales of a row).
    copied: Whether the copy from SMEM brings them, or a store from registers.
  """
  rows, count = scales.shape
  layout = tcgen05.scales_layout()
  columns = rows // 128 * count
  # What the copy takes: 32 rows of four times four scales for each 128 rows.
  tiles = scales.reshape(rows // 128, 4, 32, count // 4, 4)
  tiles = tiles.transpose(0, 3, 2, 1, 4).reshape(-1, count // 4, 32, 16)
  x = (tiles if copied else scales).view(E8M0)

  def body(ctx, x, out, scratch):
    smem, loaded, done, tmem = scratch
    e8m0 = ir.Float8E8M0FNUType.get()
    ref = tcgen05.TMEMRef(tmem.address, scales.shape, e8m0, layout)
    if copied:
      ctx.async_copy(src_ref=x, dst_ref=smem, barrier=loaded)
      loaded.wait()
      with mgpu.single_thread():
        tcgen05.async_copy_scales_smem_to_tmem(smem, ref)
        tcgen05.commit_arrive(done)
      done.wait(orders_tensor_core=True)
    else:
      ref.store(
          fa.FragmentedArray.load_untiled(
              x, layout=layout.as_tiled_layout(), optimized=False
          )
      )
      tcgen05.commit_tmem()
    words = tmem.slice(slice(None), slice(0, columns))
    words.load(tcgen05.TMEM_NATIVE_LAYOUT, is_signed=False).store_untiled(
        out, optimized=False
    )

  with pristine.simulate():
    kernel = deviceless.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1), jax.ShapeDtypeStruct(x.shape, E8M0),
        jax.ShapeDtypeStruct((128, columns), jnp.uint32),
        [
            jax.ShapeDtypeStruct(x.shape if copied else (128,), E8M0),
            mgpu.Barrier(1),
            mgpu.Barrier(1),
            mgpu.TMEM((128, 32), jnp.uint32),
        ],
    )
    return np.asarray(kernel(x))


def findings() -> Iterator[pristine.Finding]:
  rng = np.random.default_rng(0)
  for shape in ((256, 8), (256, 16)):
    scales = rng.integers(1, 255, shape).astype(np.uint8)
    copied, stored = (columns_of(scales, copied) for copied in (True, False))
    # A word is known by the scales that it holds.
    where = {int(w): i for i, w in enumerate(stored[0])}
    yield pristine.Finding(
        f"scales {shape}: where a store puts what the copy puts into columns"
        f" 0 to {copied.shape[1] - 1}",
        str(list(range(copied.shape[1]))),
        str([where[int(w)] for w in copied[0]]),
    )
    wrong = copied != stored
    yield pristine.Finding(
        f"scales {shape}: words of TMEM that differ between store and copy",
        f"0 of {wrong.size}",
        f"{wrong.sum()} of {wrong.size}",
    )


if __name__ == "__main__":
  pristine.main(findings)
