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
"""Compares ways to issue a matmul of several tiles, by their machine code.

* ``one``: a single call of ``tcgen05.mma``.
* ``loop``: what one would write without the patches, a call for each tile. The
  TMEM references of the tiles are made by hand.
* ``pristine``: a single call in JAX without the patches, if that accepts it.

The table gives the instructions between the first and the last MMA that are not
MMAs, uniform spills and fills in the whole kernel, and for calls in a loop all
instructions of an iteration that are not MMAs.

Nothing here is run: the kernels are compiled for a B200, and the instructions
of their SASS are counted. All branches between MMAs are never taken, so that
the counts are those of an execution, too.

Also measures how long it takes to trace and lower the calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import dataclasses
import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from unittest import mock

_TESTS = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(_TESTS / "mosaic"), str(_TESTS.parent)]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # pylint: disable=g-import-not-at-top
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp

_NAME = "jax.experimental.mosaic.gpu.deviceless"
_WORKER = "BENCH_SASS_DEVICELESS"
if path := os.environ.get(_WORKER):
  # JAX without the patches.
  _spec = importlib.util.spec_from_file_location(_NAME, path)
  mgpu.deviceless = sys.modules[_NAME] = importlib.util.module_from_spec(_spec)
  _spec.loader.exec_module(mgpu.deviceless)

from jax.experimental.mosaic.gpu import deviceless
import gpu_tiles_test_util as test_util
import sass_util

Matmul = test_util.Matmul
E4M3, E2M1 = jnp.float8_e4m3fn, jnp.float4_e2m1fn
E8M0 = jnp.float8_e8m0fnu

CALLS = {
    "f16": [
        Matmul(128, 128, 256), Matmul(256, 128, 256),
        Matmul(512, 96, 256, b_swizzle=64), Matmul(256, 240, 128, b_swizzle=32),
        Matmul(128, 384, 128), Matmul(384, 128, 256),
        Matmul(512, 112, 128, b_swizzle=32), Matmul(256, 64, 512, a_swizzle=64),
        Matmul(384, 32, 384, b_swizzle=64),
        Matmul(256, 192, 128, a_swizzle=32, b_swizzle=64),
    ],
    "f16, in a loop": [
        Matmul(256, 128, 128, accumulate="loop"),
        Matmul(384, 128, 128, accumulate="loop"),
        Matmul(256, 128, 256, accumulate="loop"),
        Matmul(256, 128, 256, a_in_tmem=True, accumulate="loop"),
        Matmul(512, 96, 256, b_swizzle=64, accumulate="loop"),
        Matmul(256, 128, 256, sparse=False, accumulate="loop"),
    ],
    "f16, dense": [
        Matmul(256, 128, 128, sparse=False),
        Matmul(256, 128, 256, sparse=False),
        Matmul(128, 384, 128, sparse=False),
        Matmul(128, 512, 128, sparse=False),
        Matmul(512, 128, 128, sparse=False),
        Matmul(384, 16, 288, sparse=False, a_swizzle=64, b_swizzle=32),
    ],
    "f16, copied A": [
        Matmul(256, 128, 256, a_in_tmem=True),
        Matmul(256, 128, 256, sparse=False, a_in_tmem=True),
    ],
    "f16, two CTAs": [
        Matmul(256, 64, 256, collective=True),
        Matmul(256, 64, 512, collective=True),
        Matmul(512, 32, 256, b_swizzle=64, collective=True),
        Matmul(256, 64, 256, sparse=False, collective=True),
    ],
    "8 bits": [
        Matmul(256, 192, 256, dtype=E4M3, b_swizzle=64),
        Matmul(512, 96, 512, dtype=E4M3, b_swizzle=32),
        Matmul(256, 128, 256, dtype=E4M3, sparse=False),
        Matmul(256, 128, 512, dtype=jnp.int8, acc_dtype=jnp.int32),
    ],
    "mxfp8": [
        Matmul(256, 128, 256, dtype=E4M3, scale_dtype=E8M0, scale_block=64),
        Matmul(
            256, 192, 512, dtype=E4M3, b_swizzle=64, scale_dtype=E8M0,
            scale_block=64,
        ),
        Matmul(
            256, 128, 256, dtype=E4M3, sparse=False, scale_dtype=E8M0,
            scale_block=32,
        ),
    ],
    "mxfp4": [
        Matmul(
            256, 128, 512, dtype=E2M1, b_k_major=True, scale_dtype=E8M0,
            scale_block=64,
        ),
        Matmul(
            256, 32, 1024, dtype=E2M1, b_k_major=True, scale_dtype=E8M0,
            scale_block=64,
        ),
    ],
    "nvfp4": [
        Matmul(
            256, 64, 512, dtype=E2M1, b_k_major=True, scale_dtype=E4M3,
            scale_block=32,
        ),
        Matmul(
            256, 32, 1024, dtype=E2M1, b_k_major=True, scale_dtype=E4M3,
            scale_block=32,
        ),
        Matmul(
            384, 32, 256, dtype=E2M1, b_k_major=True, scale_dtype=E4M3,
            scale_block=16, sparse=False,
        ),
    ],
}


def describe(matmul: Matmul) -> str:
  """The shape, and the fields that the heading of the table leaves open."""
  text = f"({matmul.m}, {matmul.n}, {matmul.k})"
  for name in ("a_swizzle", "b_swizzle"):
    if (swizzle := getattr(matmul, name)) != 128:
      text += f" {name[0]}{swizzle}"
  if not matmul.sparse:
    text += " dense"
  if matmul.dtype == jnp.int8:
    text += " int8"
  if matmul.a_in_tmem:
    text += " A in TMEM"
  return text


def _part(ref, m: int, n: int, column: int) -> tcgen05.TMEMRef:
  """A TMEM reference to what begins at a column of TMEM, made by hand."""
  i32 = ir.IntegerType.get_signless(32)
  address = arith.addi(ref.address, arith.constant(i32, column))
  return tcgen05.TMEMRef(address, (m, n), ref.dtype, ref.layout)


def loop_of_calls(mma, d, a, b, **kwargs) -> None:
  """Issues a call for each tile of at most 128 rows and 256 columns."""
  if "a_scale" in kwargs:
    raise NotImplementedError("Scales of a tile do not lie next to each other")
  m, n_total = d.shape
  n_tile = min(n_total, 256)
  in_tmem = isinstance(a, tcgen05.TMEMRef)
  metadata = kwargs.pop("a_sparse_metadata", None)
  bits = mgpu.utils.bitwidth
  for row in range(0, m, 128):
    for column in range(0, n_total, n_tile):
      n = min(n_tile, n_total - column)
      tile = row // 128
      d_tile = _part(d, 128, n, tile * n_total + column)
      if in_tmem:
        k = a.shape[1]
        a_tile = _part(a, 128, k, tile * k * bits(a.dtype) // 32)
      else:
        rows = ir.MemRefType(a.type).shape[2]
        a_tile = mgpu.memref_slice(a, mgpu.ds(row // rows, 128 // rows))
      b_tile = b
      if n != n_total:
        columns = ir.MemRefType(b.type).shape[3]
        b_tile = mgpu.memref_slice(
            b, (slice(None), mgpu.ds(column // columns, n // columns))
        )
      if metadata is not None:
        entries = metadata.shape[1]
        kwargs["a_sparse_metadata"] = _part(
            metadata, 128, entries, tile * entries // 16
        )
      mma(d_tile, a_tile, b_tile, **kwargs)


def as_loop():
  """Lets `Matmul` issue a call for each tile."""
  return mock.patch.object(
      tcgen05, "mma", functools.partial(loop_of_calls, tcgen05.mma)
  )


def measure(matmul: Matmul) -> dict[str, int]:
  compiled = deviceless.compile_kernel(matmul.kernel(), *matmul.arg_types())
  if compiled.sass is None:
    raise RuntimeError("Needs the nvidia-cuda-nvdisasm wheel")
  cost = sass_util.issue_cost(compiled.sass)
  if matmul.accumulate != "loop":
    # What branches back then is a loop that waits, laid out elsewhere.
    cost = dataclasses.replace(cost, per_iteration=None)
  [stack] = re.findall(r"(\d+) bytes stack frame", compiled.ptxas) or [0]
  return dataclasses.asdict(cost) | {
      "registers": compiled.registers, "stack": int(stack),
      "spill_bytes": compiled.spill_bytes,
  }


def try_measure(matmul: Matmul) -> dict[str, int | str]:
  try:
    return measure(matmul)
  except (ValueError, NotImplementedError) as e:
    return {"refused": str(e).splitlines()[0]}


def _all() -> Iterator[tuple[str, Matmul]]:
  for group, matmuls in CALLS.items():
    for matmul in matmuls:
      yield f"{group}: {describe(matmul)}", matmul


def _pristine() -> dict[str, dict[str, int | str]]:
  """Measures in a process that imports JAX without the patches."""
  import patches  # pylint: disable=g-import-not-at-top
  from patches import trees  # pylint: disable=g-import-not-at-top

  env = os.environ | {
      "PYTHONPATH": str(trees.pristine(patches.BASE)),
      "PYTHONDONTWRITEBYTECODE": "1", _WORKER: deviceless.__file__,
  }
  process = subprocess.run(
      [sys.executable, __file__], env=env, check=True, stdout=subprocess.PIPE,
  )
  return json.loads(process.stdout)


def trace_times(matmul: Matmul, repeats: int = 15) -> dict[str, float]:
  """CPU seconds to trace and lower, with one call and with a loop."""
  def seconds():
    start = time.process_time()
    with deviceless.as_blackwell():
      jax.make_jaxpr(matmul.kernel())(*matmul.arg_types())
    return time.process_time() - start

  times = {"one": [], "loop": []}
  for _ in range(repeats):  # Alternating, as other work on the machine varies.
    times["one"].append(seconds())
    with as_loop():
      times["loop"].append(seconds())
  # Other work on the machine only ever adds to it.
  return {name: min(values) for name, values in times.items()}


def import_times(repeats: int = 5) -> dict[str, float]:
  """CPU seconds to import Mosaic GPU, with and without the patches."""
  import patches  # pylint: disable=g-import-not-at-top
  from patches import trees  # pylint: disable=g-import-not-at-top

  code = (
      "import time; start = time.process_time();"
      " import jax.experimental.mosaic.gpu; print(time.process_time() - start)"
  )
  # Bytecode for both, whether or not they were installed with it.
  cache = tempfile.TemporaryDirectory(prefix="bytecode-")
  env = os.environ | {"PYTHONPYCACHEPREFIX": cache.name}
  env.pop("PYTHONDONTWRITEBYTECODE", None)
  environments = {
      "patched": env,
      "pristine": env | {"PYTHONPATH": str(trees.pristine(patches.BASE))},
  }
  times = {name: [] for name in environments}
  for _ in range(repeats + 1):
    for name, env in environments.items():
      out = subprocess.run(
          [sys.executable, "-c", code], env=env, check=True, text=True,
          stdout=subprocess.PIPE,
      ).stdout
      times[name].append(float(out))
  cache.cleanup()
  # The first ones had to compile.
  return {name: statistics.median(t[1:]) for name, t in times.items()}


def _cell(result) -> str:
  if "refused" in result:
    return "-"
  per = result["others"] / result["mmas"]
  text = f"{result['others']} ({per:.2f}), {result['spills']}"
  if result["per_iteration"] is not None:
    text += f", {result['per_iteration']} an iteration"
  return text


def main() -> None:
  if os.environ.get(_WORKER):
    results = {name: try_measure(matmul) for name, matmul in _all()}
    json.dump(results, sys.stdout)
    return
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--json", type=pathlib.Path)
  args = parser.parse_args()
  pristine = _pristine()
  results = {}
  print("| call | MMAs | one | loop | pristine | size: one / loop |")
  print("| --- | --- | --- | --- | --- | --- |")
  for name, matmul in _all():
    row = {"one": try_measure(matmul), "pristine": pristine[name]}
    with as_loop():
      row["loop"] = try_measure(matmul)
    one, loop = row["one"], row["loop"]
    size = "-"
    if "size" in one and "size" in loop:
      size = f"{one['size'] / loop['size']:.2f}"
    print(
        f"| {name} | {one.get('mmas', '-')} | {_cell(one)} | {_cell(loop)} |"
        f" {_cell(row['pristine'])} | {size} |", flush=True,
    )
    results[name] = row
  measured = [r for r in results.values() if "mmas" in r["one"]]
  both = [r for r in measured if "mmas" in r["loop"]]
  summary = {
      "calls": len(measured),
      "most others per MMA": max(
          r["one"]["others"] / r["one"]["mmas"] for r in measured
      ),
      "uniform spills": sum(r["one"]["spills"] for r in measured),
      "others, one / loop": math.exp(statistics.mean(
          math.log((r["one"]["others"] + 1) / (r["loop"]["others"] + 1))
          for r in both
      )),
      "size, one / loop": math.exp(statistics.mean(
          math.log(r["one"]["size"] / r["loop"]["size"]) for r in both
      )),
      "larger than the loop": [
          name for name, r in results.items()
          if r in both and r["one"]["others"] > r["loop"]["others"]
      ],
  }
  tracing = {
      describe(m): trace_times(m)
      for m in (
          Matmul(128, 64, 256), Matmul(256, 64, 256), Matmul(384, 64, 256),
          Matmul(512, 64, 256),
      )
  }
  print("\nSeconds to trace and lower:")
  for name, times in tracing.items():
    print(
        f"{name}: {times['one']:.3f}, loop {times['loop']:.3f}, ratio"
        f" {times['one'] / times['loop']:.2f}"
    )
  imports = import_times()
  print("\nSeconds to import:", imports)
  print(json.dumps(summary, indent=2))
  if args.json:
    args.json.write_text(json.dumps({
        "calls": results, "summary": summary, "tracing": tracing,
        "imports": imports,
    }, indent=2))


if __name__ == "__main__":
  main()
