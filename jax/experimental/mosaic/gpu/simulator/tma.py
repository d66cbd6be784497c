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
"""Tensor maps and what TMA moves by them (PTX ISA 5.5, 9.7.9.27).

A tile lies densely in shared memory, dimension 0 fastest, at
swizzle(destination + offset); the swizzle is that of swizzle.py.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from .errors import MemoryFault, UnsupportedPtxError
from .isa import rounding
from .memory import GlobalMemory, SharedMemory
from .observers import NOBODY, Access
from .swizzle import swizzle

MAP_BYTES = 128
_MAGIC = b"MGPUTMAP"
# magic, base, element type, rank, swizzle, sizes, strides, box, and of im2col:
# whether it is, lower, upper, steps.
_LAYOUT = struct.Struct("<8sQBBH5Q5Q5H?3h3h3B")


@dataclasses.dataclass(frozen=True)
class ElementType:
  """An element type of the runtime's mosaic_gpu_init_tma_desc."""

  name: str
  bits: int
  dtype: np.dtype


def _element(name: str, bits: int, dtype) -> ElementType:
  return ElementType(name, bits, np.dtype(dtype))


# By the runtime's code. Elements of less than a byte are moved as bytes.
ELEMENT_TYPES = (
    _element("int4", 4, np.uint8),
    _element("u8", 8, np.uint8),
    _element("u16", 16, np.uint16),
    _element("u32", 32, np.uint32),
    _element("u64", 64, np.uint64),
    _element("f16", 16, np.float16),
    _element("f32", 32, np.float32),
    _element("bf16", 16, ml_dtypes.bfloat16),
    _element("int2", 2, np.uint8),
    _element("s32", 32, np.int32),
    _element("s64", 64, np.int64),
)


@dataclasses.dataclass(frozen=True)
class Im2col:
  """How a tensor map in im2col mode walks over images (PTX ISA 5.5.4).

  A window begins at lower, lower + step, ... below size + upper, in each of the
  dimensions between the channels and the images, the innermost one first.
  """

  lower: tuple[int, ...]
  upper: tuple[int, ...]
  steps: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TensorMap:
  """A tensor map. Dimension 0 is the innermost, as in PTX.

  Attributes:
    base: global address of element 0.
    element_type: code in ELEMENT_TYPES.
    sizes: elements (bytes, for int4 and int2) of each dimension.
    strides: bytes from one element to the next of each dimension.
    swizzle: 0 (none), 32, 64 or 128 bytes.
    box: elements of a tile in each dimension; in im2col mode (channels, pixels,
      1, ...).
    im2col: None for a tiled map.
  """

  base: int
  element_type: int
  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  swizzle: int
  box: tuple[int, ...]
  im2col: Im2col | None = None

  @classmethod
  def from_runtime_args(
      cls,
      base: int,
      element_type: int,
      sizes: Sequence[int],
      strides: Sequence[int],
      swizzle: int,
      window: Sequence[int],
      im2col: Im2col | None = None,
  ) -> TensorMap:
    """From the arguments of mosaic_gpu_init_tma_desc.

    Args:
      base: global address.
      element_type: the runtime's code, 0..10.
      sizes, strides: row-major (slowest dimension first), in elements.
      swizzle: bytes; 16 (or 0) for none.
      window: the tile, row-major, in elements.
      im2col: as the attribute.
    """
    if not 0 <= element_type < len(ELEMENT_TYPES):
      raise ValueError(
          "element type of a tensor map must be in"
          f" 0..{len(ELEMENT_TYPES) - 1}, got {element_type}"
      )
    if not len(sizes) == len(strides) == len(window):
      raise ValueError(
          "sizes, strides and window of a tensor map must have one rank, got"
          f" {sizes}, {strides} and {window}"
      )
    bits = ELEMENT_TYPES[element_type].bits
    sizes, strides, box = list(sizes), list(strides), list(window)
    if strides and strides[-1] != 1:
      raise ValueError(
          "the innermost dimension of a tensor map must have stride 1, got"
          f" strides {tuple(strides)}"
      )
    if bits < 8:
      per_byte = 8 // bits
      if sizes[-1] % per_byte or box[-1] % per_byte:
        raise ValueError(
            f"innermost size {sizes[-1]} and window {box[-1]} of"
            f" {ELEMENT_TYPES[element_type].name} must be whole bytes"
        )
      sizes[-1] //= per_byte
      box[-1] //= per_byte
    byte_strides = []
    for stride in strides[:-1]:
      if stride * bits % 8:
        raise ValueError(
            f"stride {stride} of {ELEMENT_TYPES[element_type].name} is no whole"
            " number of bytes"
        )
      byte_strides.append(stride * bits // 8)
    byte_strides.append(max(bits // 8, 1))
    return cls(
        base=base,
        element_type=element_type,
        sizes=tuple(reversed(sizes)),
        strides=tuple(reversed(byte_strides)),
        swizzle=0 if swizzle == 16 else swizzle,
        box=tuple(reversed(box)),
        im2col=im2col,
    )

  @classmethod
  def from_runtime_im2col_args(
      cls,
      base: int,
      element_type: int,
      sizes: Sequence[int],
      strides: Sequence[int],
      swizzle: int,
      lower: Sequence[int],
      upper: Sequence[int],
      channels: int,
      pixels: int,
      steps: Sequence[int],
  ) -> TensorMap:
    """From the arguments of mosaic_gpu_init_tma_im2col_desc.

    Args:
      base, element_type, sizes, strides, swizzle: as for a tiled map; the
        dimensions are images, one to three of space, and channels.
      lower, upper: bounds of where windows begin, row-major.
      channels: elements of a pixel that a load takes.
      pixels: rows of a load, one for each window.
      steps: from one window to the next, row-major.
    """
    if not len(sizes) - 2 == len(lower) == len(upper) == len(steps):
      raise ValueError(
          "an im2col tensor map needs bounds and steps for all dimensions but"
          f" images and channels, got sizes {sizes}, bounds {lower} and"
          f" {upper}, and steps {steps}"
      )
    window = (*[1] * (len(sizes) - 2), pixels, channels)
    im2col = Im2col(*(tuple(reversed(v)) for v in (lower, upper, steps)))
    return cls.from_runtime_args(
        base, element_type, sizes, strides, swizzle, window, im2col
    )

  def __post_init__(self):
    def require(condition: bool, message: str) -> None:
      if not condition:
        raise ValueError(f"tensor map: {message} ({self})")

    require(1 <= self.rank <= 5, f"rank must be in 1..5, got {self.rank}")
    require(
        self.base % 16 == 0,
        f"base address {self.base:#x} must be a multiple of 16",
    )
    require(
        self.swizzle in (0, 32, 64, 128),
        f"swizzle must be 16 (none), 32, 64 or 128 bytes, got {self.swizzle}",
    )
    if self.im2col is None:
      require(
          all(1 <= b <= 256 for b in self.box),
          "each dimension of the window must be in 1..256",
      )
    else:
      self._check_im2col(self.im2col, require)
    require(
        all(1 <= s <= 1 << 32 for s in self.sizes),
        "each size must be in 1..2**32",
    )
    require(
        all(s % 16 == 0 and 0 <= s < 1 << 40 for s in self.strides[1:]),
        "each stride but the innermost must be a multiple of 16 bytes below"
        " 2**40",
    )
    require(
        self.inner_bytes % 16 == 0,
        f"innermost window is {self.inner_bytes} bytes; it must be a multiple"
        " of 16",
    )
    require(
        not self.swizzle or self.inner_bytes <= self.swizzle,
        f"innermost window is {self.inner_bytes} bytes; with swizzle it must"
        f" not pass {self.swizzle}",
    )

  def _check_im2col(
      self, mode: Im2col, require: Callable[[bool, str], None]
  ) -> None:
    space = self.rank - 2
    require(space in (1, 2, 3), f"rank must be in 3..5, got {self.rank}")
    require(self.element.bits >= 8, "im2col takes no elements below a byte")
    require(
        1 <= self.box[0] <= 256,
        f"channels of a pixel must be in 1..256, got {self.box[0]}",
    )
    require(
        1 <= self.box[1] <= 1024,
        f"pixels of a load must be in 1..1024, got {self.box[1]}",
    )
    bound = 1 << 16 // space - 1
    for name in ("lower", "upper"):
      require(
          all(-bound <= b < bound for b in getattr(mode, name)),
          f"{name} bounds must be in {-bound}..{bound - 1}",
      )
    spans = zip(self.sizes[1:], mode.upper, mode.lower)
    require(
        all(n + high > low for n, high, low in spans),
        "the bounds leave no place for a window",
    )
    require(
        all(1 <= s <= 8 for s in mode.steps),
        f"steps must be in 1..8, got {mode.steps}",
    )

  @property
  def rank(self) -> int:
    return len(self.sizes)

  @property
  def element(self) -> ElementType:
    return ELEMENT_TYPES[self.element_type]

  @property
  def element_bytes(self) -> int:
    return self.element.dtype.itemsize

  @property
  def inner_bytes(self) -> int:
    return self.box[0] * self.element_bytes

  @property
  def tile_bytes(self) -> int:
    """Bytes of a whole tile: what a load counts on its mbarrier."""
    return math.prod(self.box) * self.element_bytes

  def encode(self) -> bytes:
    """The 128 bytes that stand for the driver's opaque encoding."""
    def pad(values, length=5):
      return tuple(values) + (0,) * (length - len(values))

    mode = self.im2col or Im2col((), (), ())
    im2col = [
        self.im2col is not None,
        *(v for values in dataclasses.astuple(mode) for v in pad(values, 3)),
    ]

    return _LAYOUT.pack(
        _MAGIC, self.base, self.element_type, self.rank, self.swizzle,
        *pad(self.sizes), *pad(self.strides), *pad(self.box), *im2col,
    ).ljust(MAP_BYTES, b"\0")

  @classmethod
  @functools.lru_cache(maxsize=1024)
  def decode(cls, blob: bytes) -> TensorMap:
    """The inverse of `encode`."""
    magic, base, element_type, rank, swizzle_bytes, *rest = _LAYOUT.unpack(
        blob[: _LAYOUT.size]
    )
    if magic != _MAGIC:
      raise MemoryFault(
          "there is no tensor map at this address (expected one of the maps"
          f" among the kernel's parameters), found bytes {blob[:16].hex()}..."
      )
    is_im2col, *bounds = rest[15:]
    mode = (tuple(bounds[i : i + rank - 2]) for i in (0, 3, 6))
    return cls(
        base, element_type, tuple(rest[:rank]), tuple(rest[5 : 5 + rank]),
        swizzle_bytes, tuple(rest[10 : 10 + rank]),
        Im2col(*mode) if is_im2col else None,
    )


# Global side.


def _clip(
    tensor_map: TensorMap,
    coordinates: Sequence[int],
    inner_size: int | None = None,
):
  """The part of a tile inside the tensor.

  Args:
    tensor_map: where the tensor is.
    coordinates: of the tile, dimension 0 first.
    inner_size: elements of dimension 0, if not those of the map.

  Returns:
    None if there is none, else (start, end, index): first and last + 1 element
    of each dimension, and the index of the part in a tile array
    [box[rank - 1], ..., box[1], inner bytes].
  """
  starts, ends, index = [], [], []
  sizes = tensor_map.sizes
  if inner_size is not None:
    sizes = (inner_size, *sizes[1:])
  for d, c in enumerate(coordinates):
    start = max(c, 0)
    end = min(c + tensor_map.box[d], sizes[d])
    if start >= end:
      return None
    starts.append(start)
    ends.append(end)
    scale = tensor_map.element_bytes if d == 0 else 1
    index.append(slice((start - c) * scale, (end - c) * scale))
  return starts, ends, tuple(reversed(index))


def _view(
    tensor_map: TensorMap, starts, ends, memory: GlobalMemory, verb: str,
    who: Access,
) -> np.ndarray:
  """Writable uint8 view of part of a tensor, innermost dimension last."""
  size = tensor_map.element_bytes
  strides = tensor_map.strides
  first = tensor_map.base + sum(s * b for s, b in zip(starts, strides))
  last = tensor_map.base + sum((e - 1) * b for e, b in zip(ends, strides))
  buffer = memory.buffer_at(first, last + size - first, who, verb)
  shape = [e - s for s, e in zip(starts, ends)]
  shape[0] *= size
  if memory.observed:
    # As pieces of the largest size up to 16 bytes that divides everything.
    piece = math.gcd(16, shape[0], first)
    offsets = np.arange(0, shape[0], piece)
    for count, stride in zip(shape[1:], strides[1:]):
      offsets = offsets + stride * np.arange(count).reshape(
          -1, *(1,) * offsets.ndim
      )
    memory.notify(verb, np.ravel(first + offsets), piece, who)
  return np.ndarray(
      shape=tuple(reversed(shape)),
      dtype=np.uint8,
      buffer=buffer.data,
      offset=first - buffer.address,
      strides=(*reversed(strides[1:]), 1),
  )


def _check_coordinates(tensor_map: TensorMap, coordinates, who) -> None:
  if len(coordinates) != tensor_map.rank:
    raise MemoryFault(
        f"{who.what}: {len(coordinates)} coordinates for a tensor map of rank"
        f" {tensor_map.rank}",
        who.locate(),
    )
  if coordinates[0] * tensor_map.element_bytes % 16:
    raise MemoryFault(
        f"{who.what}: the innermost coordinate {coordinates[0]} is"
        f" {coordinates[0] * tensor_map.element_bytes} bytes; it must be a"
        " multiple of 16 (on a GPU this is an illegal instruction)",
        who.locate(),
    )


def read_tile(
    tensor_map: TensorMap,
    coordinates: Sequence[int],
    memory: GlobalMemory,
    who: Access = NOBODY,
) -> np.ndarray:
  """uint8 [tile bytes]: a tile of a tensor, zeros outside the tensor."""
  _check_coordinates(tensor_map, coordinates, who)
  shape = (*reversed(tensor_map.box[1:]), tensor_map.inner_bytes)
  clipped = _clip(tensor_map, coordinates)
  if clipped is None:
    return np.zeros(tensor_map.tile_bytes, np.uint8)
  starts, ends, index = clipped
  source = _view(tensor_map, starts, ends, memory, "read", who)
  if source.shape == shape:
    return source.reshape(-1)
  tile = np.zeros(shape, np.uint8)
  tile[index] = source
  return tile.reshape(-1)


def write_tile(
    tensor_map: TensorMap,
    coordinates: Sequence[int],
    tile: np.ndarray,
    memory: GlobalMemory,
    who: Access = NOBODY,
    reduction: str | None = None,
) -> None:
  """Writes tile, uint8 [tile bytes]; elements outside the tensor are dropped.

  Like the hardware it drops whole 16-byte pieces of a row only: where the size
  of dimension 0 is no multiple of 16 bytes, the padding after a row is written
  up to that, if the buffer is as large.

  Args:
    tensor_map: where the tensor is.
    coordinates: of the tile, dimension 0 first; not negative.
    tile: the bytes.
    memory: global memory.
    who: for messages.
    reduction: combine with the old contents, one of `REDUCTIONS`.
  """
  _check_coordinates(tensor_map, coordinates, who)
  if min(coordinates) < 0:
    raise MemoryFault(
        f"{who.what}: the coordinates {tuple(coordinates)} of a store must not"
        " be negative (on a GPU this is an illegal instruction)",
        who.locate(),
    )
  clipped = _clip(tensor_map, coordinates, _written_size(tensor_map, memory))
  if clipped is None:
    return
  starts, ends, index = clipped
  shape = (*reversed(tensor_map.box[1:]), tensor_map.inner_bytes)
  source = tile.reshape(shape)[index]
  if reduction is not None:
    target = _view(tensor_map, starts, ends, memory, "read", who)
    source = reduce(reduction, tensor_map.element, target, source, who)
  target = _view(tensor_map, starts, ends, memory, "write", who)
  target[...] = source


# Images.


def _windows(
    tensor_map: TensorMap, coordinates: Sequence[int], who: Access
) -> np.ndarray:
  """Where the windows of an im2col load begin: int64 [pixels, rank - 1].

  They follow one another in the innermost dimension, and on to the next row,
  plane and image; the last column is the image.
  """
  mode = tensor_map.im2col
  assert mode is not None
  start = list(coordinates[1:])
  ends = [n + u for n, u in zip(tensor_map.sizes[1:], mode.upper)]
  for c, low, end in zip(start, mode.lower, ends):
    if not low <= c < end:
      raise MemoryFault(
          f"{who.what}: coordinates {tuple(coordinates)}; those in the image"
          f" must be in the bounding box, from {mode.lower} to below"
          f" {tuple(ends)}",
          who.locate(),
      )
  rows, count = [], 0
  while count < tensor_map.box[1]:
    row = np.arange(start[0], ends[0], mode.steps[0])
    rest = np.broadcast_to(np.array(start[1:]), (row.size, len(start) - 1))
    rows.append(np.column_stack([row, rest]))
    count += row.size
    start[0] = mode.lower[0]
    for d in range(1, len(ends)):
      start[d] += mode.steps[d]
      if start[d] < ends[d]:
        break
      start[d] = mode.lower[d]
    else:
      start[-1] += 1
  return np.concatenate(rows)[: tensor_map.box[1]]


def read_pixels(
    tensor_map: TensorMap,
    coordinates: Sequence[int],
    offsets: Sequence[int],
    memory: GlobalMemory,
    who: Access = NOBODY,
) -> np.ndarray:
  """An im2col load: uint8 [pixels * inner bytes], a row for each window.

  Args:
    tensor_map: in im2col mode.
    coordinates: channel, where the first window begins, and its image.
    offsets: of the pixel in its window, not negative, innermost first.
    memory: global memory.
    who: for messages.
  """
  _check_coordinates(tensor_map, coordinates, who)
  pixels = _windows(tensor_map, coordinates, who)
  limit = 1 << 16 // (tensor_map.rank - 2)
  if max(offsets) >= limit:
    raise MemoryFault(
        f"{who.what}: expected im2col offsets below {limit}, got"
        f" {tuple(offsets)}",
        who.locate(),
    )
  pixels[:, :-1] += np.array(offsets)
  inside = (pixels >= 0) & (pixels < np.array(tensor_map.sizes[1:]))
  which = np.flatnonzero(inside.all(axis=1))
  size = tensor_map.element_bytes
  first = max(coordinates[0], 0)
  last = min(coordinates[0] + tensor_map.box[0], tensor_map.sizes[0])
  tile = np.zeros((len(pixels), tensor_map.inner_bytes), np.uint8)
  if first < last and which.size:
    at = tensor_map.base + pixels[which] @ np.array(tensor_map.strides[1:])
    piece = math.gcd(16, (last - first) * size)
    columns = np.arange(first * size, last * size, piece)
    data = memory.read((at[:, None] + columns).ravel(), piece, who)
    begin = (first - coordinates[0]) * size
    tile[which, begin : begin + (last - first) * size] = data.reshape(
        which.size, -1
    )
  return tile.reshape(-1)


def _written_size(tensor_map: TensorMap, memory: GlobalMemory) -> int:
  """Elements of a row that a store can write: whole pieces of 16 bytes."""
  size = tensor_map.element_bytes
  row = tensor_map.sizes[0] * size
  padded = -(-row // 16) * 16
  if padded != row:
    outer = zip(tensor_map.sizes[1:], tensor_map.strides[1:])
    last = tensor_map.base + sum((n - 1) * s for n, s in outer)
    try:
      memory.buffer_at(last, padded, NOBODY, "write")
    except MemoryFault:
      return tensor_map.sizes[0]  # It would go past the end of the buffer.
  return padded // size


def _row_map(tensor_map: TensorMap, who: Access) -> None:
  if tensor_map.rank != 2 or tensor_map.box[1] != 1:
    raise MemoryFault(
        f"{who.what}: gather4 and scatter4 need a tensor map of rank 2 with one"
        f" row a window, got a window {tensor_map.box}",
        who.locate(),
    )


def read_rows(
    tensor_map: TensorMap,
    column: int,
    rows: Sequence[int],
    memory: GlobalMemory,
    who: Access = NOBODY,
) -> np.ndarray:
  """tile::gather4: uint8 [rows * inner bytes], the rows one after another."""
  _row_map(tensor_map, who)
  parts = [read_tile(tensor_map, (column, r), memory, who) for r in rows]
  return np.concatenate(parts)


def write_rows(
    tensor_map: TensorMap,
    column: int,
    rows: Sequence[int],
    tile: np.ndarray,
    memory: GlobalMemory,
    who: Access = NOBODY,
) -> None:
  """tile::scatter4: the inverse of `read_rows`."""
  _row_map(tensor_map, who)
  for row, part in zip(rows, tile.reshape(len(rows), -1), strict=True):
    write_tile(tensor_map, (column, row), part, memory, who)


# Reductions.


def _increment(old, new):
  return np.where(old >= new, 0, old + 1)


def _decrement(old, new):
  return np.where((old == 0) | (old > new), new, old - 1)


_ANY_INT = ("u32", "s32", "u64", "s64")
REDUCTIONS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "add": (np.add, (*_ANY_INT, "f16", "bf16", "f32")),
    "min": (np.fmin, (*_ANY_INT, "f16", "bf16")),
    "max": (np.fmax, (*_ANY_INT, "f16", "bf16")),
    "inc": (_increment, ("u32",)),
    "dec": (_decrement, ("u32",)),
    "and": (np.bitwise_and, _ANY_INT),
    "or": (np.bitwise_or, _ANY_INT),
    "xor": (np.bitwise_xor, _ANY_INT),
}


def reduce(
    operation: str,
    element: ElementType,
    old: np.ndarray,
    new: np.ndarray,
    who: Access = NOBODY,
) -> np.ndarray:
  """Element-wise old (op) new, on uint8 arrays [..., bytes]."""
  function, types = REDUCTIONS[operation]
  if element.name not in types:
    raise UnsupportedPtxError(
        f"{who.what}: reduction .{operation} of {element.name} is not possible;"
        f" expected one of {', '.join(types)}",
        who.locate(),
    )
  old = np.ascontiguousarray(old).view(element.dtype)
  new = np.ascontiguousarray(new).view(element.dtype)
  with np.errstate(all="ignore"):
    result = function(old, new).astype(element.dtype)
    if element.name in ("f16", "bf16", "f32"):
      result = rounding.canonical_nan(result)
  return np.ascontiguousarray(result).view(np.uint8)


# Shared side.


def _chunk_addresses(
    tensor_map: TensorMap, address: int, nbytes: int, who: Access
) -> np.ndarray:
  """Physical addresses of the 16-byte chunks of a tile.

  With a swizzle every row begins at a multiple of its width, also where the
  rows are shorter: the rest of the row is left alone.
  """
  if address % 128:
    raise MemoryFault(
        f"{who.what}: the tile in shared memory must start at a multiple of 128"
        f" bytes, got {address:#x}",
        who.locate(),
    )
  inner = tensor_map.inner_bytes
  pitch = tensor_map.swizzle or inner
  rows = np.arange(nbytes // inner) * pitch
  logical = address + (rows[:, None] + np.arange(0, inner, 16)).ravel()
  return swizzle(logical, tensor_map.swizzle)


def put_tile(
    tensor_map: TensorMap,
    cta: int,
    address: int,
    tile: np.ndarray,
    shared: SharedMemory,
    who: Access = NOBODY,
) -> None:
  """Writes a tile, uint8 [bytes], to shared memory, swizzled."""
  chunks = _chunk_addresses(tensor_map, address, tile.size, who)
  shared.write_chunks(cta, chunks, tile.reshape(-1, 16), who)


def take_tile(
    tensor_map: TensorMap,
    cta: int,
    address: int,
    nbytes: int,
    shared: SharedMemory,
    who: Access = NOBODY,
) -> np.ndarray:
  """Reads a tile of nbytes from shared memory: uint8 [nbytes]."""
  chunks = _chunk_addresses(tensor_map, address, nbytes, who)
  return shared.read_chunks(cta, chunks, who).reshape(-1)
