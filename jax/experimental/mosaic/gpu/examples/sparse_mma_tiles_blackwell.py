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
"""Multiplies a 2:4-sparse matrix with a dense one in one tcgen05.mma call.

A dense matrix A is pruned to the largest two of every four elements of a row and
compressed to its values and their positions. The kernel copies both, and a dense
B, to shared memory and issues a single ``tcgen05.mma`` call that covers several
tiles of 128 rows or 256 columns.

Run it as a script to try several shapes. It runs on a Blackwell GPU if there is
one, and on the simulator otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import tcgen05
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith
import numpy as np

TILE_M = 128
TILE_N = 256
A_SWIZZLE = 128


@dataclasses.dataclass(frozen=True)
class Problem:
  """A matmul of shape (M, K) x (K, N), and how the kernel lays it out.

  Attributes:
    m: Rows of A, a multiple of 128.
    n: Columns of B, a multiple of 16.
    k: Columns of A before pruning, a multiple of 128 (8-bit types: 256).
    dtype: The element type of A and B.
  """

  m: int
  n: int
  k: int
  dtype: Any

  @property
  def bits(self) -> int:
    return jnp.dtype(self.dtype).itemsize * 8

  @property
  def acc_dtype(self) -> Any:
    is_int = jnp.issubdtype(self.dtype, jnp.integer)
    return jnp.int32 if is_int else jnp.float32

  @property
  def tiles(self) -> tuple[int, int]:
    return self.m // TILE_M, -(-self.n // TILE_N)

  @property
  def b_swizzle(self) -> int:
    return plgpu.find_swizzle(self.n * self.bits, "B")

  @property
  def columns(self) -> dict[str, int]:
    """TMEM columns by what they hold."""
    row_tiles = self.m // TILE_M
    return {
        "accumulator": row_tiles * self.n,
        # A 32-bit column holds the positions of 16 values.
        "metadata": row_tiles * self.k // 2 // 16,
    }


def make_kernel(p: Problem):
  """Returns a function of the values, the formatted metadata and B.

  Its arguments have the shapes (M, K // 2), (M // 128, K // 128, 128, 64) and
  (K, N), and its result (M, N).
  """
  a_tiling = (8, 8 * A_SWIZZLE // p.bits)
  b_tiling = (8, 8 * p.b_swizzle // p.bits)
  struct = jax.ShapeDtypeStruct
  values = struct((p.m, p.k // 2), p.dtype)
  metadata = struct((p.m // TILE_M, p.k // 128, TILE_M, 64), jnp.uint2)
  b = struct((p.k, p.n), p.dtype)

  def body(ctx, values_gmem, metadata_gmem, b_gmem, out_gmem, scratch):
    a_smem, metadata_smem, b_smem, loaded, done, tmem = scratch
    ctx.async_copy(
        src_ref=values_gmem, dst_ref=a_smem, swizzle=A_SWIZZLE,
        gmem_transform=mgpu.TileTransform(a_tiling), barrier=loaded[0],
    )
    ctx.async_copy(
        src_ref=metadata_gmem, dst_ref=metadata_smem, barrier=loaded[1]
    )
    ctx.async_copy(
        src_ref=b_gmem, dst_ref=b_smem, swizzle=p.b_swizzle,
        gmem_transform=mgpu.TileTransform(b_tiling), barrier=loaded[2],
    )
    for i in range(3):
      loaded[i].wait()
    # Both views are slices of one allocation: on its own, each would be rounded
    # up to a power of two columns.
    i32 = ir.IntegerType.get_signless(32)
    acc = tcgen05.TMEMRef(
        tmem.address, (p.m, p.n), mgpu.utils.dtype_to_ir_type(p.acc_dtype),
        tcgen05.tmem_default_layout(),
    )
    metadata_tmem = tcgen05.TMEMRef(
        arith.addi(
            tmem.address, arith.constant(i32, p.columns["accumulator"])
        ),
        (p.m, p.k // 2),
        ir.IntegerType.get_signless(2),
        tcgen05.sparse_meta_layout(),
    )
    with mgpu.single_thread():
      tcgen05.async_copy_sparse_metadata_smem_to_tmem(
          metadata_smem, metadata_tmem
      )
      tcgen05.mma(
          acc, a_smem, b_smem, a_swizzle=A_SWIZZLE, b_swizzle=p.b_swizzle,
          a_sparse_metadata=metadata_tmem, accumulate=False,
      )
      tcgen05.commit_arrive(done)
    done.wait(orders_tensor_core=True)
    is_signed = True if p.acc_dtype == jnp.int32 else None
    # One row tile after the other, so that the registers hold no more than that.
    for row in range(0, p.m, TILE_M):
      rows = mgpu.ds(row, TILE_M)
      tile = acc.slice(rows, slice(None)).load(is_signed=is_signed)
      tile.store_untiled(mgpu.memref_slice(out_gmem, rows), optimized=False)

  with mlir.make_ir_context(), ir.Location.unknown():
    return mgpu.as_gpu_kernel(
        body,
        grid=(1, 1, 1),
        block=(128, 1, 1),
        in_shape=(values, metadata, b),
        out_shape=struct((p.m, p.n), p.acc_dtype),
        smem_scratch_shape=[
            struct(mgpu.tile_shape(values.shape, a_tiling), p.dtype),
            metadata,
            struct(mgpu.tile_shape(b.shape, b_tiling), p.dtype),
            mgpu.Barrier(1, num_barriers=3),
            mgpu.Barrier(1),
            mgpu.TMEM((TILE_M, 512), jnp.float32),
        ],
    )


PROBLEMS = (
    Problem(256, 128, 256, jnp.float16),
    Problem(256, 240, 128, jnp.float16),
    Problem(512, 96, 256, jnp.float16),
    Problem(128, 384, 128, jnp.float16),
    Problem(256, 128, 256, jnp.bfloat16),
    Problem(256, 128, 256, jnp.float8_e4m3fn),
    Problem(256, 128, 256, jnp.int8),
)


def _random(rng: np.random.Generator, shape, dtype) -> np.ndarray:
  if jnp.issubdtype(dtype, jnp.integer):
    return rng.integers(-128, 128, shape).astype(dtype)
  return rng.normal(size=shape).astype(dtype)


def _run(p: Problem, rng: np.random.Generator) -> bool:
  """Runs a problem, prints what there is to know, returns if it is right."""
  # `--pristine` imports this file in a JAX that has no such module.
  from jax.experimental.mosaic.gpu import sparsity  # pylint: disable=g-import-not-at-top
  a = _random(rng, (p.m, p.k), p.dtype)
  b = _random(rng, (p.k, p.n), p.dtype)
  pruned = sparsity.prune(jnp.asarray(a))
  values, positions = sparsity.compress(pruned)
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, p.dtype)
  args = (values, metadata, b)

  kernel = make_kernel(p)
  result = np.asarray(kernel(*args)).astype(np.float64)
  expected = np.asarray(pruned).astype(np.float64) @ b.astype(np.float64)
  error = np.abs(result - expected).max()
  # The tensor core rounds its sums to about 22 bits.
  exact = p.acc_dtype == jnp.int32
  bound = 0 if exact else np.abs(expected).max() * 1e-5

  from jax.experimental.mosaic.gpu import deviceless  # pylint: disable=g-import-not-at-top
  compiled = deviceless.compile_kernel(kernel, *args)
  mmas = len(re.findall(r"^\s*tcgen05\.mma", compiled.ptx, re.MULTILINE))
  columns = ", ".join(f"{name} {n}" for name, n in p.columns.items())
  ok = bool(error <= bound)
  print(
      f"{jnp.dtype(p.dtype).name:14} M={p.m:3} N={p.n:3} K={p.k:3}"
      f"  tiles {p.tiles[0]} x {p.tiles[1]}"
      f"  MMAs {mmas:2}"
      f"  TMEM {sum(p.columns.values()):3} of 512 ({columns})"
      f"  registers {compiled.registers:3}, spilled {compiled.spill_bytes} bytes"
      f"  largest error {error:.2e} (allowed {bound:.2e})"
      f"  {'ok' if ok else 'WRONG'}"
  )
  return ok


def _refusals(tree: str) -> list[str | None]:
  """Returns the errors of the JAX in ``tree``, None where there is none."""
  code = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("example", sys.argv[1])
example = sys.modules["example"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
errors = []
for problem in example.PROBLEMS:
  try:
    example.make_kernel(problem)
    errors.append(None)
  except Exception as e:
    errors.append(f"{type(e).__name__}: {e}")
print(json.dumps(errors))
"""
  process = subprocess.run(
      [sys.executable, "-c", code, __file__],
      env={**os.environ, "PYTHONPATH": tree, "JAX_PLATFORMS": "cpu"},
      stdout=subprocess.PIPE, text=True, check=True,
  )
  return json.loads(process.stdout)


def _has_blackwell() -> bool:
  capability = getattr(jax.local_devices()[0], "compute_capability", "0.0")
  return capability.startswith("10.")


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument(
      "--pristine",
      metavar="TREE",
      help="JAX without the patches, to show what it says of the same calls",
  )
  args = parser.parse_args()
  if _has_blackwell():
    device = contextlib.nullcontext()
    print(f"running on {jax.local_devices()[0].device_kind}")
  else:
    from jax.experimental.mosaic.gpu import simulator  # pylint: disable=g-import-not-at-top
    device = simulator.simulate()
    print("running on the simulator of a B200: no Blackwell GPU here")
  ok = True
  if args.pristine:
    for p, error in zip(PROBLEMS, _refusals(args.pristine), strict=True):
      print(
          f"without the patches: {jnp.dtype(p.dtype).name} M={p.m} N={p.n}"
          f" K={p.k}: {error or 'accepted'}"
      )
      ok &= error is not None
  rng = np.random.default_rng(0)
  with device:
    for p in PROBLEMS:
      ok &= _run(p, rng)
  print("demo: OK" if ok else "demo: FAILED")
  return 0 if ok else 1


if __name__ == "__main__":
  sys.exit(main())
