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
"""With Warpgroup semantics, TMEM allocations have the wrong width.

Run it without a GPU, on the simulator: see warpgroup_tmem_columns.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax
import jax.numpy as jnp
import numpy as np
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless, tcgen05

dialect = mgpu.dialect


def as_gpu_kernel(body, in_type, out_type, scratch) -> Callable[..., Any]:
  return deviceless.as_gpu_kernel(
      body, (1, 1, 1), (128, 1, 1), in_type, out_type, scratch,
      thread_semantics=mgpu.LoweringSemantics.Warpgroup,
  )


def store_and_load(columns: int, dtype: Any, **tmem: Any) -> str:
  """Stores to a (128, columns) reference, and loads it back.

  Args:
    columns: The logical columns, that is, elements of a row.
    dtype: The type of the elements.
    **tmem: Arguments of the allocation.
  """
  ty = jax.ShapeDtypeStruct((128, columns), dtype)

  def body(ctx, x, out, tmem):
    del ctx
    value = dialect.vector_load(x, optimized=False)
    dialect.async_store_tmem(value, tmem)
    tcgen05.commit_tmem()
    value = dialect.async_load_tmem(tmem)
    dialect.vector_store(value, out, optimized=False)

  bits = np.uint8 if jnp.dtype(dtype).itemsize == 1 else np.uint16
  x = np.random.default_rng(0).integers(1, 200, ty.shape).astype(bits)

  def run():
    with pristine.simulate():
      kernel = as_gpu_kernel(body, ty, ty, mgpu.TMEM(ty.shape, dtype, **tmem))
      wrong = np.asarray(kernel(x.view(dtype))).view(bits) != x
    if wrong.any():
      raise ValueError(f"{wrong.sum()} of {wrong.size} elements are wrong")

  return pristine.error_of(run)


def allocated_for_sparse_mma(m: int, n: int, k: int) -> list[int]:
  """The columns that are allocated for D and the metadata of a sparse MMA."""

  def body(ctx, out, scratch):
    del ctx, out
    a, b, metadata, acc = scratch
    dialect.tcgen05_mma(
        acc, a, b, a_sparse_metadata=metadata,
        accumulate=arith.constant(ir.IntegerType.get_signless(1), 0),
    )

  scratch = [
      jax.ShapeDtypeStruct((m, k // 2), jnp.float16),
      jax.ShapeDtypeStruct((k, n), jnp.float16),
      mgpu.TMEM((m, k // 2), jnp.uint2),
      mgpu.TMEM((m, n), jnp.float32),
  ]
  with pristine.simulate():
    kernel = as_gpu_kernel(
        body, (), jax.ShapeDtypeStruct((1,), jnp.int32), scratch
    )
    ptx = deviceless.compile_kernel(kernel).ptx
  constants = dict(re.findall(r"mov\.b32\s+(%r\d+), (\d+);", ptx))
  columns = re.findall(r"tcgen05\.alloc\S* \[%r\d+\], (%r\d+);", ptx)
  return sorted(int(constants[register]) for register in columns)


def findings() -> Iterator[pristine.Finding]:
  scales = jnp.float8_e8m0fnu
  layout = tcgen05.scales_layout()
  yield pristine.Finding(
      "store and load scales (128, 64), of which each takes a column",
      "no error",
      store_and_load(64, scales, layout=layout),
  )
  yield pristine.Finding(
      "store and load float16 (128, 64), packing=2, not packed by its layout",
      "no error",
      store_and_load(64, jnp.float16, packing=2),
  )
  columns = allocated_for_sparse_mma(128, 128, 512)
  yield pristine.Finding(
      "columns allocated for sparse metadata (128, 256), 16 to a column, and"
      " float32 (128, 128)",
      "[32, 128]",
      str(columns),
  )


if __name__ == "__main__":
  pristine.main(findings)
