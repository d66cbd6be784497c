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
"""What a snippet is, and the PTX around it; needs nothing but NumPy."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np

POISON = 0xA5  # Every byte of an output before the run.

# Registers that every snippet may use.
REGISTERS = """
  .reg .pred %p<16>;
  .reg .b16 %h<64>;
  .reg .b32 %r<128>;
  .reg .b64 %rd<64>;
  .reg .b32 %thread, %smem, %size;
  .reg .b64 %maps;"""


@dataclasses.dataclass(frozen=True)
class Map:
  """A TMA map of a buffer, in the order of mosaic_gpu_init_tma_desc.

  Attributes:
    buffer: index into the snippet's buffers.
    element: u8, u16, u32, s32, u64, s64, f16, bf16, f32, int4 or int2.
    sizes, strides, box: slowest dimension first, in elements.
    swizzle: bytes; 16 for none.
  """

  buffer: int
  element: str
  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  box: tuple[int, ...]
  swizzle: int = 16


@dataclasses.dataclass(frozen=True)
class Im2colMap:
  """A TMA map in im2col mode, for mosaic_gpu_init_tma_im2col_desc.

  Attributes:
    buffer, element, sizes, strides, swizzle: as those of a tiled map.
    lower, upper, steps: for the dimensions between images and channels.
    pixels, channels: what a load takes.
  """

  buffer: int
  element: str
  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  lower: tuple[int, ...]
  upper: tuple[int, ...]
  steps: tuple[int, ...]
  pixels: int
  channels: int
  swizzle: int = 16


@dataclasses.dataclass(frozen=True)
class Snippet:
  """A kernel, its launch and its data.

  Attributes:
    name: unique in its family.
    body: PTX with %in0, %in1, ... as addresses of the buffers, %thread as the
      number of the thread in the grid, %smem as the address of dynamic shared
      memory and %maps as that of the TMA maps.
    buffers: contents of global memory before the launch.
    outputs: indices of the buffers to keep.
    compare: how to compare each output: "bits", "record" (kept, not compared)
      or "near:<type>:<units in the last place>:<absolute bound>", of which one
      must hold.
    modelled: whether the simulator has the instructions. If not, `expected`.
    expected: for each output what it must be, without the simulator.
    faults: whether the GPU is to report an error, and the simulator too.
  """

  name: str
  body: str
  buffers: tuple[np.ndarray, ...]
  outputs: tuple[int, ...]
  compare: tuple[str, ...]
  grid: tuple[int, int, int] = (1, 1, 1)
  cluster: tuple[int, int, int] = (1, 1, 1)
  block: tuple[int, int, int] = (32, 1, 1)
  shared: int = 0
  maps: tuple[Map | Im2colMap, ...] = ()
  modelled: bool = True
  expected: tuple[np.ndarray, ...] = ()
  faults: bool = False

  def ptx(self, target: str) -> str:
    """The text for a GPU or for the simulator; only .target differs."""
    params = [f".param .u64 p{i}" for i in range(len(self.buffers))]
    if self.maps:
      params.append(f".param .align 64 .b8 maps[{128 * len(self.maps)}]")
    loads = [
        f"  .reg .b64 %in{i};\n  ld.param.b64 %in{i}, [p{i}];"
        for i in range(len(self.buffers))
    ]
    if self.maps:
      loads.append("  mov.b64 %maps, maps;\n  cvta.param.u64 %maps, %maps;")
    memory = ""
    if self.shared:
      memory = ".extern .shared .align 1024 .b8 smem[];\n"
      loads.append("  mov.u32 %smem, smem;")
    cluster = ""
    if np.prod(self.cluster) > 1:
      cluster = (
          ".explicitcluster\n.reqnctapercluster"
          f" {', '.join(map(str, self.cluster))}\n"
      )
    block = int(np.prod(self.block))
    return (
        f".version 9.0\n.target {target}\n.address_size 64\n{memory}"
        f".visible .entry snippet(\n  {', '.join(params)}\n)\n{cluster}"
        f".maxntid {block}, 1, 1\n"
        f"{{{REGISTERS}\n" + "\n".join(loads) + "\n"
        "  mov.u32 %r0, %ctaid.x;\n"
        "  mov.u32 %size, %ntid.x;\n"
        "  mov.u32 %thread, %tid.x;\n"
        "  mad.lo.u32 %thread, %r0, %size, %thread;\n"
        f"{self.body}\n  ret;\n}}\n"
    )

  def digest(self) -> str:
    """Names everything that a result depends on."""
    state = hashlib.sha256(self.ptx("").encode())
    launch = [self.grid, self.cluster, self.block, self.shared, self.outputs]
    state.update(json.dumps(launch).encode())
    maps = [dataclasses.astuple(m) for m in self.maps]
    state.update(json.dumps(maps).encode())
    for buffer in self.buffers:
      state.update(f"{buffer.dtype} {buffer.shape}".encode())
      state.update(np.ascontiguousarray(buffer).tobytes())
    return state.hexdigest()[:16]


def poison(count: int, dtype="u4") -> np.ndarray:
  dtype = np.dtype(dtype)
  return np.full(count * dtype.itemsize, POISON, np.uint8).view(dtype)


# Deterministic data. NumPy promises nothing about the streams of its
# distributions, so the numbers are SplitMix64's.


def random(seed: str | int, count: int, bits: int = 32) -> np.ndarray:
  """Random unsigned integers of `bits` bits (8, 16, 32 or 64)."""
  if isinstance(seed, str):
    seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "little")
  golden = np.uint64(0x9E3779B97F4A7C15)
  with np.errstate(over="ignore"):
    z = np.uint64(seed) + golden * np.arange(1, count + 1, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  z ^= z >> np.uint64(31)
  return (z >> np.uint64(64 - bits)).astype(f"u{bits // 8}")


def _array(values: Sequence[int], bits: int) -> np.ndarray:
  return np.array([v & ((1 << bits) - 1) for v in values], f"u{bits // 8}")


def int_edges(bits: int) -> np.ndarray:
  top = 1 << (bits - 1)
  return _array(
      [0, 1, -1, 2, -2, 3, 7, top, top - 1, top + 1, 5 << (bits // 2),
       0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 100, -100, bits, bits - 1],
      bits,
  )


def int_values(seed: str, bits: int, count: int) -> np.ndarray:
  """Integers of all magnitudes."""
  values = random(seed, count, bits)
  shift = random(seed + "shift", count, 32) % np.uint32(bits)
  signed = values.view(f"i{bits // 8}") >> shift.astype(f"i{bits // 8}")
  return signed.view(values.dtype)


_FORMATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}


def float_edges(type_: str) -> np.ndarray:
  """Zeros, subnormals, limits, infinities, NaNs (quiet and signalling)."""
  bits, mantissa = _FORMATS[type_]
  sign = 1 << (bits - 1)
  hidden = 1 << mantissa
  exponents = (1 << (bits - 1 - mantissa)) - 1
  inf = exponents << mantissa
  one = (exponents >> 1) << mantissa
  values = [
      0, sign, 1, sign | 1, hidden - 1, sign | (hidden - 1), hidden,
      sign | hidden, one, sign | one, one + 1, one - 1, one | hidden >> 1,
      sign | one + hidden, one - hidden, inf - 1, sign | inf - 1, inf,
      sign | inf, inf | hidden >> 1, inf | 1, sign | inf | hidden >> 1 | 5,
      hidden >> 1, sign | hidden + 1, one + hidden * (mantissa + 1),
  ]
  return _array(values, bits)


def float_values(seed: str, type_: str, count: int) -> np.ndarray:
  """A third any bits, a third near 1, a third of medium size."""
  bits, mantissa = _FORMATS[type_]
  values = random(seed, count, bits)
  kind = random(seed + "kind", count, 32) % np.uint32(3)
  bias = (1 << (bits - 2 - mantissa)) - 1
  width = bits - 1 - mantissa
  spread = (1 << min(width - 2, 5)) - 1
  exponent = random(seed + "exponent", count, 64) % np.uint64(2 * spread + 1)
  exponent = exponent.astype(np.int64) - spread
  near = np.where(kind == 1, bias + exponent // 8, bias + exponent)
  scaled = near.astype(np.uint64) << np.uint64(mantissa)
  keep = np.uint64((1 << mantissa) - 1 | 1 << (bits - 1))
  scaled |= values.astype(np.uint64) & keep
  return np.where(kind == 0, values.astype(np.uint64), scaled).astype(
      values.dtype
  )


def float_mixture(seed: str, type_: str, count: int) -> np.ndarray:
  """Edge values and others in turn, at random."""
  edges = float_edges(type_)
  pick = random(seed + "pick", count)
  values = float_values(seed, type_, count)
  edge = edges[(pick >> np.uint32(1)) % edges.size]
  return np.where(pick & np.uint32(1), edge, values)


def underflows(seed: str, type_: str, count: int) -> list[np.ndarray]:
  """Factors whose product is about the smallest normal number."""
  bits, mantissa = _FORMATS[type_]
  bias = (1 << (bits - 2 - mantissa)) - 1
  raw = [random(f"{seed}{i}", count, 64) for i in range(3)]
  first = 1 + raw[2] % np.uint64(bias)
  # Exponents that add up to that of the smallest normal number, or 1 less.
  less = raw[2] >> np.uint64(40) & np.uint64(1)
  second = np.uint64(bias + 1) - first - less
  keep = np.uint64((1 << mantissa) - 1 | 1 << (bits - 1))
  # Near 1 or 2 it matters how the product is rounded.
  ends = np.where(raw[2] >> np.uint64(50) & np.uint64(1),
                  np.uint64((1 << mantissa) - 4), np.uint64(0))
  near = (raw[2] >> np.uint64(52) & np.uint64(1)).astype(bool)
  result = []
  for values, exponent in zip(raw, (first, second)):
    fraction = np.where(near, (values & np.uint64(3)) + ends, values & keep)
    sign = values & np.uint64(1 << (bits - 1))
    word = exponent << np.uint64(mantissa) | fraction & keep | sign
    result.append(word.astype(f"u{bits // 8}"))
  return result


def combinations(edges: Sequence[np.ndarray]) -> list[np.ndarray]:
  """All combinations of the edge values of each operand."""
  grids = np.meshgrid(*edges, indexing="ij")
  return [g.ravel() for g in grids]


def fill_up(
    edges: Sequence[np.ndarray], values: Sequence[np.ndarray], multiple=128
) -> list[np.ndarray]:
  """Edges, then values, cut to the largest multiple of `multiple`."""
  columns = [np.concatenate(pair) for pair in zip(edges, values)]
  count = columns[0].size // multiple * multiple
  return [c[:count] for c in columns]


def _bits(type_: str) -> int:
  return int("".join(c for c in type_ if c.isdigit()))


_LETTERS = "abcefg"
_OUT = "xyzuvw"


def each(
    name: str,
    body: str,
    inputs: Sequence[np.ndarray],
    out: str,
    compare: str | Sequence[str] = "bits",
    block: int = 128,
) -> Snippet:
  """A snippet that runs `body` for every element of `inputs`.

  The body finds its elements in %a, %b, %c, %e, %f, %g and leaves results in
  %x, %y, ... of the types in `out`, e.g. "b32 b64 pred". Registers of 8-bit
  elements have 16 bits. A pred is left in %px, %py, ... and kept as b32.
  """
  size = inputs[0].size
  outs = out.split()
  lines, tail = ["  .reg .b64 %at;"], []
  buffers = [np.ascontiguousarray(i) for i in inputs]

  def point(i, nbytes):
    return f"  mad.wide.u32 %at, %thread, {nbytes}, %in{i};"

  for i, (letter, array) in enumerate(zip(_LETTERS, inputs)):
    if array.shape != (size,):
      raise ValueError(f"{name}: expected shape {(size,)}, got {array.shape}")
    nbytes = array.dtype.itemsize
    lines += [
        f"  .reg .b{max(8 * nbytes, 16)} %{letter};",
        point(i, nbytes),
        f"  ld.global.b{8 * nbytes} %{letter}, [%at];",
    ]
  for i, (letter, type_) in enumerate(zip(_OUT, outs), len(inputs)):
    bits = 32 if type_ == "pred" else _bits(type_)
    lines.append(f"  .reg .b{max(bits, 16)} %{letter};")
    if type_ == "pred":
      lines.append(f"  .reg .pred %p{letter};")
      tail.append(f"  selp.b32 %{letter}, 1, 0, %p{letter};")
    tail += [point(i, bits // 8), f"  st.global.b{bits} [%at], %{letter};"]
    buffers.append(poison(size, f"u{bits // 8}"))
  block = min(block, size)
  if size % block:
    raise ValueError(f"{name}: {size} elements in blocks of {block}")
  compare = [compare] * len(outs) if isinstance(compare, str) else compare
  return Snippet(
      name,
      "\n".join([*lines, *("  " + l for l in body.splitlines()), *tail]),
      tuple(buffers),
      tuple(range(len(inputs), len(buffers))),
      tuple(compare),
      grid=(size // block, 1, 1),
      block=(block, 1, 1),
  )
