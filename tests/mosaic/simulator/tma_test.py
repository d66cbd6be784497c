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
"""Tests of tma.py."""

import itertools
import math

import ml_dtypes
import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import memory, observers, tma
from jax.experimental.mosaic.gpu.simulator.errors import (
    MemoryFault,
    UnsupportedPtxError,
)

U8, U16, U32, U64, F16, F32, BF16, INT2, S32, S64 = range(1, 11)
MASK = {0: 0, 16: 0, 32: 1, 64: 3, 128: 7}


def swizzled(address, width):
  return address ^ ((address // 128 % 8 & MASK[width]) * 16)


class Case:
  """A tensor with padded rows in the middle of a buffer of garbage."""

  def __init__(self, seed, dtype, code, sizes, window, swizzle, rules=()):
    self.rng = np.random.default_rng(seed)
    self.size = np.dtype(dtype).itemsize
    self.sizes, self.window, self.swizzle = sizes, window, swizzle
    # Row-major strides; all but the innermost are padded to 16 bytes and more.
    strides = [1]
    for n in reversed(sizes[1:]):
      pitch = -(-strides[0] * n * self.size // 16) * 16 + 16
      strides.insert(0, pitch // self.size)
    self.strides = strides
    count = strides[0] * sizes[0] * self.size + 64
    self.buffer = self.rng.integers(0, 256, count, dtype=np.uint8)
    self.memory = memory.GlobalMemory(rules)
    self.address = self.memory.add_buffer("x", self.buffer)
    self.map = tma.TensorMap.from_runtime_args(
        self.address + 32, code, sizes, strides, swizzle, window
    )
    self.shared = memory.SharedMemory(2, 128 * 1024, rules)
    self.shared.data[:] = self.rng.integers(0, 256, self.shared.data.shape)

  def element(self, index, stored=False):
    """Slice of the buffer with an element, None outside of the tensor.

    What is `stored` fills up the last 16 bytes of a row.
    """
    sizes = list(self.sizes)
    if stored:
      sizes[-1] = -(-sizes[-1] * self.size // 16) * 16 // self.size
    if any(not 0 <= i < n for i, n in zip(index, sizes)):
      return None
    at = 32 + sum(i * s for i, s in zip(index, self.strides)) * self.size
    return slice(at, at + self.size)

  def elements(self, start):
    """(index in the tensor, byte offset in the dense tile), one by one."""
    for n, local in enumerate(np.ndindex(*self.window)):
      yield tuple(s + i for s, i in zip(start, local)), n * self.size


CASES = (
    (np.uint8, U8, (40, 200), (16, 128), 128),
    (np.uint8, U8, (40, 200), (16, 64), 64),
    (np.uint8, U8, (40, 200), (16, 32), 32),
    (np.float16, F16, (6, 4, 30, 64), (2, 2, 8, 64), 128),
    (np.float16, F16, (5, 3, 20, 40), (2, 3, 8, 32), 64),
    (np.float16, F16, (5, 3, 20, 40), (2, 3, 8, 16), 32),
    (np.float32, F32, (3, 2, 3, 9, 44), (2, 1, 2, 8, 32), 128),
    (np.float32, F32, (12, 44), (5, 20), 16),
    (np.float64, U64, (300,), (32,), 16),
    (np.uint16, U16, (9, 10, 24), (3, 4, 8), 16),
)


class TileTest(parameterized.TestCase):

  @parameterized.product(case=CASES, where=("inside", "past", "before", "out"))
  def test_load_and_store(self, case, where):
    dtype, code, sizes, window, swizzle = case
    c = Case(len(sizes), dtype, code, sizes, window, swizzle)
    start = {
        "inside": [(n - w) // 2 for n, w in zip(sizes, window)],
        "past": [n - w // 2 - 1 for n, w in zip(sizes, window)],
        "before": [-(w // 2) for w in window],
        "out": [n + 3 for n in sizes],
    }[where]
    # Innermost coordinates must be multiples of 16 bytes.
    start[-1] -= start[-1] % (16 // c.size)
    coordinates = tuple(reversed(start))
    dst = 1024 + 128 * 5
    nbytes = math.prod(window) * c.size
    self.assertEqual(c.map.tile_bytes, nbytes)

    expected = c.shared.data.copy()
    for index, offset in c.elements(start):
      part = c.element(index)
      for byte in range(c.size):
        value = 0 if part is None else c.buffer[part.start + byte]
        expected[1, swizzled(dst + offset + byte, swizzle)] = value
    tile = tma.read_tile(c.map, coordinates, c.memory)
    tma.put_tile(c.map, 1, dst, tile, c.shared)
    np.testing.assert_array_equal(c.shared.data, expected)

    new = c.rng.integers(0, 256, nbytes, dtype=np.uint8)
    for byte in range(nbytes):
      c.shared.data[0, swizzled(dst + byte, swizzle)] = new[byte]
    expected = c.buffer.copy()
    for index, offset in c.elements(start):
      part = c.element(index, stored=True)
      if part is not None:
        expected[part] = new[offset : offset + c.size]
    tile = tma.take_tile(c.map, 0, dst, nbytes, c.shared)
    np.testing.assert_array_equal(tile, new)
    if min(coordinates) < 0:
      with self.assertRaisesRegex(MemoryFault, "must not be negative"):
        tma.write_tile(c.map, coordinates, tile, c.memory)
      return
    tma.write_tile(c.map, coordinates, tile, c.memory)
    np.testing.assert_array_equal(c.buffer, expected)

  @parameterized.product(
      operation=("add", "min", "max"),
      kind=((np.uint32, U32), (np.int32, S32), (np.int64, S64),
            (np.float16, F16), (ml_dtypes.bfloat16, BF16)),
  )
  def test_reductions(self, operation, kind):
    dtype, code = kind
    c = Case(1, dtype, code, (6, 40), (4, 16), 16)
    start = (4, 32)  # Partly outside.
    old = c.rng.integers(-50, 50, 6 * 40).astype(dtype)
    tile = c.rng.integers(-50, 50, (4, 16)).astype(dtype)
    for n, index in enumerate(np.ndindex(6, 40)):
      c.buffer[c.element(index)] = old[n : n + 1].view(np.uint8)
    expected = c.buffer.copy()
    for n, (index, _) in enumerate(c.elements(start)):
      part = c.element(index)
      if part is None:
        continue
      x = old.reshape(6, 40)[index]
      y = tile.reshape(-1)[n]
      if operation == "add":
        with np.errstate(over="ignore"):  # Unsigned sums wrap.
          z = x + y
      else:
        z = min(x, y) if operation == "min" else max(x, y)
      expected[part] = np.array([z], dtype).view(np.uint8)
    tma.write_tile(
        c.map, tuple(reversed(start)), tile.reshape(-1).view(np.uint8),
        c.memory, reduction=operation,
    )
    np.testing.assert_array_equal(c.buffer, expected)

  def test_bitwise_and_wrapping_reductions(self):
    element = tma.ELEMENT_TYPES[U32]

    def run(operation, old, new):
      words = [np.array(v, np.uint32).view(np.uint8) for v in (old, new)]
      return tma.reduce(operation, element, *words).view(np.uint32).tolist()

    self.assertEqual(run("and", [12, 10], [10, 6]), [8, 2])
    self.assertEqual(run("or", [12, 10], [10, 6]), [14, 14])
    self.assertEqual(run("xor", [12, 10], [10, 6]), [6, 12])
    self.assertEqual(run("inc", [3, 4, 5], [4, 4, 4]), [4, 0, 0])
    self.assertEqual(run("dec", [3, 0, 5], [4, 4, 4]), [2, 4, 4])
    self.assertEqual(run("add", [0xFFFFFFFF], [2]), [1])

  def test_impossible_reduction(self):
    data = np.zeros(4, np.uint8)
    with self.assertRaisesRegex(
        UnsupportedPtxError, r"reduction \.xor of f32 is not possible"
    ):
      tma.reduce("xor", tma.ELEMENT_TYPES[F32], data, data)

  @parameterized.parameters(16, 64)
  def test_gather_and_scatter(self, swizzle):
    c = Case(2, np.float16, F16, (50, 70), (1, 32), swizzle)
    rows, column, dst = [7, 49, 3, 60], 48, 2048
    tile = tma.read_rows(c.map, column, rows, c.memory)
    tma.put_tile(c.map, 0, dst, tile, c.shared)
    for r, row in enumerate(rows):
      for i in range(32):
        part = c.element((row, column + i))
        want = [0, 0] if part is None else c.buffer[part].tolist()
        at = swizzled(dst + r * 64 + 2 * i, swizzle)
        self.assertEqual(c.shared.data[0, at : at + 2].tolist(), want)
    new = c.rng.integers(0, 256, 256, dtype=np.uint8)
    expected = c.buffer.copy()
    for r, i in itertools.product(range(4), range(32)):
      part = c.element((rows[r], column + i), stored=True)
      if part is not None:
        expected[part] = new[r * 64 + 2 * i : r * 64 + 2 * i + 2]
    tma.write_rows(c.map, column, rows, new, c.memory)
    np.testing.assert_array_equal(c.buffer, expected)

  def test_gather_needs_rows(self):
    c = Case(2, np.float16, F16, (50, 70), (2, 32), 64)
    with self.assertRaisesRegex(MemoryFault, "rank 2 with one row a window"):
      tma.read_rows(c.map, 0, [0, 1, 2, 3], c.memory)

  def test_int2(self):
    # 64 elements of 2 bits are 16 bytes.
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, (4, 128, 16), dtype=np.uint8)
    globals_ = memory.GlobalMemory()
    address = globals_.add_buffer("m", data.reshape(-1))
    tensor_map = tma.TensorMap.from_runtime_args(
        address, INT2, (4, 128, 64), (128 * 64, 64, 1), 16, (2, 128, 64)
    )
    self.assertEqual(tensor_map.tile_bytes, 4096)
    tile = tma.read_tile(tensor_map, (0, 0, 1), globals_)
    np.testing.assert_array_equal(tile, data[1:3].reshape(-1))

  def test_rank(self):
    c = Case(0, *CASES[0])
    with self.assertRaisesRegex(
        MemoryFault, "3 coordinates for a tensor map of rank 2"
    ):
      tma.read_tile(c.map, (0, 0, 0), c.memory)

  def test_tensor_larger_than_its_buffer(self):
    c = Case(0, *CASES[0])
    big = tma.TensorMap.from_runtime_args(
        c.address, U8, (100, 200), c.strides, 128, (16, 128)
    )
    with self.assertRaisesRegex(
        MemoryFault, "global memory at .* is outside every buffer; .* 'x'"
    ):
      tma.read_tile(big, (0, 80), c.memory)

  def test_misaligned_tile(self):
    c = Case(0, *CASES[0])
    with self.assertRaisesRegex(
        MemoryFault, "must start at a multiple of 128 bytes, got 0x440"
    ):
      tma.put_tile(c.map, 0, 1024 + 64, np.zeros(2048, np.uint8), c.shared)

  def test_outside_shared_memory(self):
    c = Case(0, *CASES[0])
    with self.assertRaisesRegex(MemoryFault, "is outside its 131072 bytes"):
      tma.put_tile(
          c.map, 0, 128 * 1024 - 128, np.zeros(2048, np.uint8), c.shared
      )

  def test_window_narrower_than_the_swizzle(self):
    """Rows begin at multiples of the swizzle; what lies between is kept."""
    c = Case(0, np.uint8, U8, (40, 200), (16, 48), 128)
    tile = c.rng.integers(0, 256, 16 * 48, dtype=np.uint8)
    expected = c.shared.data.copy()
    for row, column in np.ndindex(16, 48):
      place = swizzled(1024 + 128 * row + column, 128)
      expected[0, place] = tile[48 * row + column]
    tma.put_tile(c.map, 0, 1024, tile, c.shared)
    np.testing.assert_array_equal(c.shared.data, expected)
    np.testing.assert_array_equal(
        tma.take_tile(c.map, 0, 1024, tile.size, c.shared), tile
    )

  def test_innermost_coordinate(self):
    c = Case(0, np.float16, F16, (40, 64), (16, 16), 32)
    for coordinate in (1, 4, -4, 12):
      with self.assertRaisesRegex(MemoryFault, "a multiple of 16"):
        tma.read_tile(c.map, (coordinate, 0), c.memory)
    tma.read_tile(c.map, (-8, -3), c.memory)

  def test_stores_at_the_end_of_a_buffer(self):
    """The padding that a store would write need not belong to the buffer."""
    data = np.zeros(43, np.uint16)
    memories = memory.GlobalMemory()
    address = memories.add_buffer("x", data.view(np.uint8))
    one = tma.TensorMap.from_runtime_args(address, U16, (43,), (1,), 16, (16,))
    tma.write_tile(one, (32,), np.full(32, 7, np.uint8), memories)
    np.testing.assert_array_equal(data[32:], 0x0707)
    np.testing.assert_array_equal(data[:32], 0)

  def test_nan_of_reductions(self):
    for code, nan, canonical in ((F16, 0x7C01, 0x7FFF), (BF16, 0xFFC5, 0x7FFF)):
      old = np.array([nan], np.uint16).view(np.uint8)
      result = tma.reduce("add", tma.ELEMENT_TYPES[code], old, old)
      self.assertEqual(result.view(np.uint16).item(), canonical)

  def test_checkers_see_the_tile(self):
    checker = observers.UnwrittenReads()
    c = Case(5, np.float16, F16, (20, 64), (16, 64), 128, [checker])
    out = c.memory.add_buffer("out", np.zeros(4096, np.uint8), False)
    out_map = tma.TensorMap.from_runtime_args(
        out, F16, (20, 64), (64, 1), 128, (16, 64)
    )
    with self.assertRaisesRegex(
        MemoryFault, "tile: read of 16 bytes of shared"
    ):
      tma.take_tile(
          c.map, 0, 1024, 2048, c.shared, observers.Access(what="tile")
      )
    tma.put_tile(
        c.map, 0, 1024, tma.read_tile(c.map, (0, 0), c.memory), c.shared
    )
    tile = tma.take_tile(c.map, 0, 1024, 2048, c.shared)
    tma.write_tile(out_map, (0, 10), tile, c.memory)
    with self.assertRaisesRegex(
        MemoryFault, "at offset 1152 of global buffer 'out' that were never"
    ):
      tma.read_tile(out_map, (0, 9), c.memory)
    self.assertLen(tma.read_tile(out_map, (0, 10), c.memory), 2048)


class Im2colTest(parameterized.TestCase):

  # Sizes and bounds, slowest dimension first, and their steps; where the first
  # window begins and the offsets of the pixel in it, as in the instruction.
  @parameterized.parameters(
      (((7,), (-2,), (-1,)), (1,), (3, 0), (1,)),
      (((5, 7), (-1, -2), (-1, 1)), (1, 1), (-1, 2, 1), (0, 1)),
      (((5, 7), (-1, -2), (0, 1)), (2, 3), (4, 1, 0), (1, 2)),
      (((3, 4, 5), (0, -1, -3), (-1, 1, 2)), (1, 2, 1), (0, 1, 1, 0),
       (1, 2, 0)),
  )
  def test_load(self, image, steps, coordinates, offsets):
    sizes, lower, upper = image
    images, channels, pixels, taken = 2, 24, 50, 16
    rng = np.random.default_rng(sum(sizes))
    x = rng.integers(1, 60000, (images, *sizes, channels)).astype(np.uint16)
    memories = memory.GlobalMemory()
    address = memories.add_buffer("x", x.reshape(-1).view(np.uint8))
    strides = [s // 2 for s in x.strides]
    tensor_map = tma.TensorMap.from_runtime_im2col_args(
        address, U16, x.shape, strides, 16, lower, upper, taken, pixels, steps
    )
    self.assertEqual(tensor_map.tile_bytes, pixels * taken * 2)
    self.assertEqual(tma.TensorMap.decode(tensor_map.encode()), tensor_map)

    # All windows of all images, in order, from the first one asked for.
    grids = [
        range(low, n + high, step)
        for n, low, high, step in zip(sizes, lower, upper, steps)
    ]
    windows = list(itertools.product(range(9), *grids))
    *start, image_number = coordinates
    start = (image_number, *reversed(start))
    first = windows.index(start)
    channel = 16  # The last 8 channels of a row are outside.
    want = np.zeros((pixels, taken), np.uint16)
    for row, (n, *corner) in enumerate(windows[first : first + pixels]):
      pixel = [c + o for c, o in zip(corner, reversed(offsets))]
      if n < images and all(0 <= p < s for p, s in zip(pixel, sizes)):
        want[row, :8] = x[(n, *pixel)][channel:]
    self.assertBetween((want != 0).any(axis=1).sum(), 5, pixels - 8)
    got = tma.read_pixels(
        tensor_map, (channel, *coordinates), offsets, memories
    )
    np.testing.assert_array_equal(got.view(np.uint16), want.reshape(-1))

  def make(self, **changes):
    args = dict(
        base=0x10000, element_type=F16, sizes=(2, 5, 7, 32),
        strides=(5 * 7 * 32, 7 * 32, 32, 1), swizzle=32, lower=(-1, -1),
        upper=(1, 1), channels=16, pixels=64, steps=(1, 1),
    )
    return tma.TensorMap.from_runtime_im2col_args(**(args | changes))

  @parameterized.parameters(
      (dict(lower=(-1,)), "bounds and steps for all dimensions but images"),
      (dict(sizes=(5, 32), strides=(32, 1), lower=(), upper=(), steps=()),
       r"rank must be in 3\.\.5, got 2"),
      (dict(element_type=0), "no elements below a byte"),
      (dict(channels=257), r"channels of a pixel must be in 1\.\.256, got 257"),
      (dict(channels=4), "innermost window is 8 bytes"),
      (dict(channels=32), "it must not pass 32"),
      (dict(pixels=1025), r"pixels of a load must be in 1\.\.1024, got 1025"),
      (dict(lower=(-1, -129)), r"lower bounds must be in -128\.\.127"),
      (dict(upper=(128, 0)), r"upper bounds must be in -128\.\.127"),
      (dict(lower=(2, 0), upper=(-3, 0)), "leave no place for a window"),
      (dict(steps=(0, 1)), r"steps must be in 1\.\.8"),
      (dict(steps=(1, 9)), r"steps must be in 1\.\.8"),
  )
  def test_rules(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      self.make(**changes)

  @parameterized.parameters(
      ((0, 8, 0, 0), (0, 0), "must be in the bounding box"),
      ((0, 0, -2, 0), (0, 0), "must be in the bounding box"),
      ((0, 0, 0, 0), (256, 0), "expected im2col offsets below 256, got"),
      ((4, 0, 0, 0), (0, 0), "it must be a multiple of 16"),
      ((0, 0, 0), (0, 0), "3 coordinates for a tensor map of rank 4"),
  )
  def test_faults(self, coordinates, offsets, message):
    data = np.ones(2 * 5 * 7 * 32 * 2, np.uint8)
    memories = memory.GlobalMemory()
    tensor_map = self.make(base=memories.add_buffer("x", data))
    with self.assertRaisesRegex(MemoryFault, message):
      tma.read_pixels(tensor_map, coordinates, offsets, memories)


class TensorMapTest(parameterized.TestCase):

  def make(self, base=0x10000, code=F16, sizes=(8, 64), strides=(64, 1),
           swizzle=128, window=(8, 64)):
    return tma.TensorMap.from_runtime_args(
        base, code, sizes, strides, swizzle, window
    )

  def test_order_and_units(self):
    got = self.make(0x40, F32, (3, 5, 12), (100, 20, 1), 16, (1, 2, 4))
    self.assertEqual(got.sizes, (12, 5, 3))
    self.assertEqual(got.strides, (4, 80, 400))
    self.assertEqual(got.box, (4, 2, 1))
    self.assertEqual(got.swizzle, 0)

  def test_round_trip(self):
    for got in (
        self.make(),
        self.make(0x40, S64, (3, 5, 2, 2, 12), (1000, 200, 50, 20, 1), 16,
                  (1, 2, 1, 1, 4)),
    ):
      blob = got.encode()
      self.assertLen(blob, 128)
      self.assertEqual(tma.TensorMap.decode(blob), got)

  def test_garbage_is_no_map(self):
    with self.assertRaisesRegex(MemoryFault, "there is no tensor map at this"):
      tma.TensorMap.decode(bytes(128))

  @parameterized.parameters(
      (dict(base=0x10008), "base address 0x10008 must be a multiple of 16"),
      (dict(code=11), r"must be in 0\.\.10, got 11"),
      (dict(sizes=(1,) * 6, strides=(8,) * 5 + (1,), window=(8,) * 6),
       r"rank must be in 1\.\.5, got 6"),
      (dict(sizes=(8,)), "must have one rank"),
      (dict(strides=(64, 2)), "must have stride 1"),
      (dict(strides=(60, 1)), "must be a multiple of 16 bytes"),
      (dict(swizzle=48), "swizzle must be 16"),
      (dict(window=(257, 64)), r"window must be in 1\.\.256"),
      (dict(sizes=(0, 64)), "each size must be in"),
      (dict(window=(8, 4)), "innermost window is 8 bytes; it must be a multip"),
      (dict(window=(8, 72)), "with swizzle it must not pass 128"),
      (dict(code=INT2, sizes=(8, 63)), "must be whole bytes"),
  )
  def test_rules(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      self.make(**changes)


if __name__ == "__main__":
  absltest.main()
