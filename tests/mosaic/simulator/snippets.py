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
"""Runs a few lines of PTX in a kernel made around them."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jax.experimental.mosaic.gpu.simulator import machine, memory, ptx

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"

# What every snippet may use besides its inputs and outputs.
_REGISTERS = """
.reg .pred %p, %q, %s<8>;
.reg .b16 %h<16>;
.reg .b32 %r<32>, %thread;
.reg .b64 %rd<32>;
.reg .b128 %rq<4>;
"""

INPUTS = "abcefg"
OUTPUTS = "xyzuvw"


def kernel(body: str, num_params: int, directives: str = "") -> ptx.Kernel:
  """A kernel with pointers `%in0`, `%in1`, ... and the thread number."""
  params = ", ".join(f".param .u64 p{i}" for i in range(num_params))
  loads = "\n".join(
      f".reg .b64 %in{i};\nld.param.b64 %in{i}, [p{i}];"
      for i in range(num_params)
  )
  text = (
      f"{HEADER}\n.visible .entry snippet({params})\n{directives}\n{{"
      f"{_REGISTERS}{loads}\n"
      "mov.u32 %r31, %ctaid.x;\nmov.u32 %r30, %ntid.x;\n"
      "mov.u32 %thread, %tid.x;\nmad.lo.s32 %thread, %r31, %r30, %thread;\n"
      f"{body}\nret;\n}}\n"
  )
  return ptx.parse(text).entries["snippet"]


def run(
    body: str,
    *arrays: np.ndarray,
    threads: int = 32,
    ctas: int = 1,
    cluster: int = 1,
    shared: int = 0,
    directives: str = "",
    **kwargs,
) -> list[np.ndarray]:
  """Runs `body` with pointers to copies of `arrays`; returns the copies."""
  global_memory = memory.GlobalMemory()
  copies, params = [], []
  for i, array in enumerate(arrays):
    copy = np.ascontiguousarray(array).copy()
    address = global_memory.add_buffer(
        f"in{i}", copy.reshape(-1).view(np.uint8)
    )
    copies.append(copy)
    params.append(address.to_bytes(8, "little"))
  launch = machine.Launch(
      (ctas, 1, 1), (cluster, 1, 1), (threads, 1, 1), shared
  )
  kwargs.setdefault("max_steps", 100_000)
  machine.run(
      kernel(body, len(arrays), directives), launch, params, global_memory,
      **kwargs,
  )
  return copies


def _width(dtype: np.dtype) -> int:
  return np.dtype(dtype).itemsize * 8


def each(
    body: str,
    *inputs: np.ndarray,
    out: Sequence[np.dtype] | np.dtype,
    threads: int | None = None,
    **kwargs,
):
  """Runs `body` in a thread for each element of `inputs`.

  The body finds its elements in %a, %b, %c, %e, %f, %g, and leaves results of
  the dtypes `out` in %x, %y, %z, %u, %v, %w, except that it leaves a bool in
  predicate %px, %py, ... Registers are as wide as the elements, but 16 bits for
  those of 8. Returns the result, or a list where `out` is one.
  """
  size = inputs[0].size
  several = isinstance(out, list | tuple)
  outs = [np.dtype(o) for o in (out if several else [out])]
  lines, tail = [], []

  def register(name, dtype):
    lines.append(f".reg .b{max(_width(dtype), 16)} %{name};")

  def pointer(i, dtype):
    return (
        f"mad.wide.u32 %rd31, %thread, {np.dtype(dtype).itemsize}, %in{i};"
    )

  for i, (name, array) in enumerate(zip(INPUTS, inputs)):
    if array.shape != (size,):
      raise ValueError(f"expected shape {(size,)}, got {array.shape}")
    register(name, array.dtype)
    lines.append(pointer(i, array.dtype))
    lines.append(f"ld.global.b{_width(array.dtype)} %{name}, [%rd31];")
  for i, (name, dtype) in enumerate(zip(OUTPUTS, outs), len(inputs)):
    register(name, dtype)
    if dtype == np.bool_:
      lines.append(f".reg .pred %p{name};")
      tail.append(f"selp.b16 %{name}, 1, 0, %p{name};")
    tail.append(pointer(i, dtype))
    tail.append(f"st.global.b{_width(dtype)} [%rd31], %{name};")
  results = [
      np.full(size, 0xA5, np.uint8).repeat(o.itemsize).view(o) for o in outs
  ]
  threads = threads or min(size, 128)
  if size % threads:
    raise ValueError(f"{size} elements for CTAs of {threads} threads")
  copies = run(
      "\n".join([*lines, body, *tail]), *inputs, *results, threads=threads,
      ctas=size // threads, **kwargs,
  )
  results = copies[len(inputs) :]
  return results if several else results[0]


def ints(rng: np.random.Generator, dtype, size: int = 128) -> np.ndarray:
  """Random integers of all magnitudes, with the extremes among them."""
  info = np.iinfo(dtype)
  bits = 8 * np.dtype(dtype).itemsize
  values = rng.integers(info.min, info.max, size, dtype, endpoint=True)
  values = values >> rng.integers(0, bits, size).astype(dtype)
  special = [info.min, info.max, 1, info.min + 1, info.max - 1, 2, 3]
  values[: len(special)] = special
  return np.where(values == 0, np.asarray(5, dtype), values)[
      rng.permutation(size)
  ]


def floats(
    rng: np.random.Generator, dtype, size: int = 128, special: bool = True
) -> np.ndarray:
  """Random floats of many magnitudes; subnormals, inf and NaN among them."""
  dtype = np.dtype(dtype)
  limit = {2: 6, 4: 30, 8: 200}[dtype.itemsize]
  values = rng.standard_normal(size) * 2.0 ** rng.integers(-limit, limit, size)
  values = values.astype(dtype)
  if special:
    finfo = ml_dtypes.finfo(dtype)
    some = [
        np.inf, -np.inf, np.nan, 0.0, -0.0, float(finfo.max), float(finfo.tiny),
        float(finfo.smallest_subnormal) * 3, -float(finfo.smallest_subnormal),
        1.0, -1.0,
    ]
    values[: len(some)] = np.array(some).astype(dtype)
    values = values[rng.permutation(size)]
  return values


def equal_bits(a: np.ndarray, b: np.ndarray) -> bool:
  """Whether two arrays agree in every bit, but a NaN may be any NaN."""
  same = a.view(f"u{a.dtype.itemsize}") == b.view(f"u{b.dtype.itemsize}")
  return bool(np.all(same | ((a != a) & (b != b))))
