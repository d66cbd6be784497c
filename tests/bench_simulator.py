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
"""How fast the simulator is: `make bench`.

Prints a table, and the same numbers as JSON with --json FILE. All times are
seconds of the processor (all threads), which depend less on what else the
machine does, but still are of one run and one machine: look at the ratios.
Compiling is not measured, and all results are compared with NumPy's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

import jax
from jax import lax
from jax.experimental.mosaic.gpu import simulator, sparsity

TILE = 128
SECONDS_FOR_1024 = 20.0


def matmul(m: int, n: int, k: int, sparse: bool = False, interpret=None):
  """A plain f16 matmul: a CTA for each tile, one step of K after the other.

  With `sparse`, it takes the values and the formatted metadata of A.
  """
  tile_k = 128 if sparse else 64
  swizzle = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

  def body(*refs):
    a, meta, b = refs[:3] if sparse else (refs[0], None, refs[1])
    out, a_smem, b_smem, acc, out_smem, loaded, done = refs[2 + sparse:][:7]
    rows = pl.ds(lax.axis_index("row") * TILE, TILE)
    columns = pl.ds(lax.axis_index("column") * TILE, TILE)

    def step(i, _):
      at = pl.ds(i * tile_k, tile_k)
      a_at = pl.ds(i * 64, 64)
      plgpu.copy_gmem_to_smem(a.at[rows, a_at], a_smem, loaded)
      plgpu.copy_gmem_to_smem(b.at[at, columns], b_smem, loaded)
      options = {}
      if sparse:
        meta_smem, meta_tmem = refs[-2:]
        plgpu.copy_gmem_to_smem(
            meta.at[pl.ds(lax.axis_index("row"), 1), pl.ds(i, 1)], meta_smem,
            loaded,
        )
        plgpu.barrier_wait(loaded)
        plgpu.async_copy_sparse_metadata_to_tmem(meta_smem, meta_tmem)
        options = dict(a_sparse_metadata=meta_tmem)
      else:
        plgpu.barrier_wait(loaded)
      plgpu.tcgen05_mma(
          acc, a_smem, b_smem, done, accumulate=i > 0, **options
      )
      plgpu.barrier_wait(done)

    lax.fori_loop(0, k // tile_k, step, None)
    out_smem[...] = plgpu.async_load_tmem(acc).astype(jnp.float16)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_smem, out.at[rows, columns])
    plgpu.wait_smem_to_gmem(0)

  scratch = [
      plgpu.SMEM((TILE, 64), jnp.float16, transforms=swizzle),
      plgpu.SMEM((tile_k, TILE), jnp.float16, transforms=swizzle),
      plgpu.TMEM((TILE, TILE), jnp.float32),
      plgpu.SMEM((TILE, TILE), jnp.float16, transforms=swizzle),
      plgpu.Barrier(num_arrivals=2 + sparse),
      plgpu.Barrier(orders_tensor_core=True),
  ]
  if sparse:
    layout = plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT
    scratch += [
        plgpu.SMEM((1, 1, TILE, 64), jnp.uint2),
        plgpu.TMEM((TILE, 64), jnp.uint2, layout=layout),
    ]
  return jax.jit(plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((m, n), jnp.float16),
      grid=(m // TILE, n // TILE),
      grid_names=("row", "column"),
      scratch_types=scratch,
      interpret=interpret,
  ))


def measure(
    m: int, n: int, k: int, *, sparse: bool = False, interpret: bool = False,
    repeats: int = 2,
) -> float:
  """Processor seconds of a compiled matmul: the best of `repeats`."""
  rng = np.random.default_rng(0)
  a = rng.integers(-3, 4, (m, k)).astype(np.float16)
  b = rng.integers(-3, 4, (k, n)).astype(np.float16)
  operands = [jnp.asarray(a), jnp.asarray(b)]
  if sparse:
    a = np.asarray(sparsity.prune(a))
    values, positions = sparsity.compress(a)
    metadata = plgpu.format_tcgen05_sparse_metadata(positions, jnp.float16)
    operands = [values, metadata, operands[1]]
  expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)

  def timed(kernel: Callable) -> float:
    begin = time.process_time()
    result = np.asarray(kernel(*operands))
    seconds = time.process_time() - begin
    np.testing.assert_array_equal(result, expected)
    return seconds

  if interpret:
    kernel = matmul(m, n, k, sparse, plgpu.InterpretGPUParams())
    return min(timed(kernel) for _ in range(repeats + 1))
  with simulator.simulate():
    kernel = matmul(m, n, k, sparse)
    # The first call compiles the kernel.
    return min(timed(kernel) for _ in range(repeats + 1))


def exponent(sizes: list[int], seconds: list[float]) -> float:
  """e of the power law seconds ~ size ** e, by least squares."""
  return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--json", metavar="FILE", help="also write JSON there")
  parser.add_argument(
      "--quick", action="store_true", help="smaller shapes, for a test"
  )
  args = parser.parse_args()
  unit = TILE if args.quick else 2 * TILE
  results: dict[str, object] = {}

  print("against JAX's GPU interpret mode, the same kernel")
  rows = []
  for shape in [(unit, unit, unit), (2 * unit, unit, 2 * unit)]:
    here = measure(*shape)
    there = measure(*shape, interpret=True, repeats=1)
    rows.append(
        dict(shape=shape, simulator=here, interpreter=there,
             ratio=there / here)
    )
    print(
        f"  {'x'.join(map(str, shape)):>14}  simulator {here:7.2f} s"
        f"  interpreter {there:7.2f} s  {there / here:5.1f} times as long"
    )
  results["interpreter"] = rows

  for name, sizes, shape_of in (
      ("CTAs", [1, 4, 16, 64][: 3 if args.quick else 4],
       lambda n: (TILE * math.isqrt(n), TILE * math.isqrt(n), unit)),
      ("K", [unit * i for i in (1, 2, 4, 8)], lambda k: (unit, unit, k)),
  ):
    seconds = [measure(*shape_of(size)) for size in sizes]
    power = exponent(sizes[1:], seconds[1:])
    results[name] = dict(sizes=sizes, seconds=seconds, exponent=power)
    print(f"time against {name}: ~ {name} ** {power:.2f}")
    for size, s in zip(sizes, seconds):
      print(f"  {size:>14}  {s:7.2f} s  {s / seconds[0]:6.1f} times the first")

  size = 2 * unit if args.quick else 1024
  print(f"{size} x {size} x {size}, f16")
  times = {}
  for name, sparse in (("dense", False), ("sparse", True)):
    times[name] = measure(size, size, size, sparse=sparse, repeats=1)
    print(f"  {name:>14}  {times[name]:7.2f} s")
  ratio = times["sparse"] / times["dense"]
  print(f"  sparse takes {ratio:.2f} times as long as dense")
  results["large"] = dict(size=size, **times)

  ok = all(row["ratio"] > 1 for row in rows) and all(
      s < SECONDS_FOR_1024 for s in times.values()
  )
  results["ok"] = ok
  if args.json:
    with open(args.json, "w") as f:
      json.dump(results, f, indent=1)
  print("bench: OK" if ok else "bench: slower than wanted")
  return 0 if ok else 1


if __name__ == "__main__":
  sys.exit(main())
