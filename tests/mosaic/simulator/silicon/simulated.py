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
"""Runs a snippet on the simulator, and compares with what a GPU gave."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from jax.experimental.mosaic.gpu.simulator import (
    errors,  # noqa: F401  (for the tests)
    machine,
    memory,
    ptx,
    tma,
)

from .snippet import Im2colMap, Snippet

_TARGET = "sm_90a"
_ELEMENTS = {e.name: i for i, e in enumerate(tma.ELEMENT_TYPES)}
_FLOATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64,
}


def run(snippet: Snippet) -> list[np.ndarray]:
  """The outputs of a snippet."""
  space = memory.GlobalMemory()
  buffers = [np.ascontiguousarray(b).copy() for b in snippet.buffers]
  addresses = [
      space.add_buffer(f"in{i}", b.reshape(-1).view(np.uint8))
      for i, b in enumerate(buffers)
  ]
  maps = []
  for m in snippet.maps:
    args = dataclasses.asdict(m)
    args["base"] = addresses[args.pop("buffer")]
    args["element_type"] = _ELEMENTS[args.pop("element")]
    if isinstance(m, Im2colMap):
      maps.append(tma.TensorMap.from_runtime_im2col_args(**args))
    else:
      args["window"] = args.pop("box")
      maps.append(tma.TensorMap.from_runtime_args(**args))
  params = [a.to_bytes(8, "little") for a in addresses]
  if maps:
    params.append(b"".join(m.encode() for m in maps))
  module = ptx.parse(snippet.ptx(_TARGET), targets=(_TARGET,))
  kernel = module.entries["snippet"]
  launch = machine.Launch(
      snippet.grid, snippet.cluster, snippet.block, snippet.shared
  )
  with np.errstate(all="ignore"):
    machine.run(kernel, launch, params, space, maps, max_steps=200_000)
  return [buffers[i] for i in snippet.outputs]


def _ordered(values: np.ndarray) -> np.ndarray:
  """Bits of floats as integers in the order of the numbers."""
  bits = values.view(f"i{values.dtype.itemsize}").astype(np.int64)
  low = np.int64(-1) << np.int64(8 * values.dtype.itemsize - 1)
  return np.where(bits < 0, low - bits, bits)


def ulps(got: np.ndarray, want: np.ndarray, type_: str) -> np.ndarray:
  """Distances in units in the last place; NaN must meet NaN, bit by bit."""
  dtype = _FLOATS[type_]
  got, want = (np.ascontiguousarray(v).view(dtype) for v in (got, want))
  distance = np.abs(_ordered(got) - _ordered(want))
  # Zeros of different sign are as far apart as NaN and a number.
  far = np.iinfo(np.int64).max
  nan = (got != got) | (want != want)
  zeros = (got == 0) & (want == 0)
  bits = f"u{got.dtype.itemsize}"
  same = got.view(bits) == want.view(bits)
  return np.where((nan | zeros) & ~same, far, np.where(same, 0, distance))


def difference(got: np.ndarray, want: np.ndarray, compare: str) -> str | None:
  """Says how two outputs differ, None if they are close enough."""
  if compare == "record":
    return None
  kind, _, rest = compare.partition(":")
  got, want = got.reshape(-1), want.reshape(-1)
  if kind == "bits":
    bad = np.flatnonzero(got != want)
    limit = "bit by bit"
  elif kind == "near":
    type_, ulp_bound, absolute = rest.split(":")
    distance = ulps(got, want, type_)
    a, b = (v.view(_FLOATS[type_]).astype(np.float64) for v in (got, want))
    with np.errstate(invalid="ignore"):
      far = ~(np.abs(a - b) <= float(absolute)) | (a == 0) | (b == 0)
    bad = np.flatnonzero((distance > int(ulp_bound)) & far)
    limit = f"within {ulp_bound} ulp or {absolute}"
  else:
    raise ValueError(f"No comparison is called {compare!r}.")
  if not bad.size:
    return None
  lines = [f"{bad.size} of {got.size} elements differ ({limit}):"]
  for i in bad[:6]:
    lines.append(f"  [{i}] simulator {got[i]:#x}, GPU {want[i]:#x}")
  return "\n".join(lines)
