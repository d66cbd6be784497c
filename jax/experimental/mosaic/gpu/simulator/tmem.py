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
"""Tensor memory: 128 lanes x 512 columns of 32-bit cells in each CTA.

PTX ISA 9.7.16.1 (addresses), 9.7.16.7 (allocation), 9.7.16.8 (ld, st). An
address has the lane in bits 31-16 and the column in bits 15-0.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from .errors import TmemFault
from .observers import NOBODY, Access, Observer, listeners

LANES = 128
COLUMNS = 512
ALLOCATION_UNIT = 32
# In the high half of a cell that the ISA leaves unspecified (f16 accumulators,
# .unpack::16b); and in cells nobody wrote: NaN in every floating point type.
UNSPECIFIED_HALF = np.uint32(0xFFFF_0000)
POISON = 0xFFFF_FFFF


def split_address(address: int) -> tuple[int, int]:
  """(lane, column) of a tensor memory address."""
  return address >> 16 & 0xFFFF, address & 0xFFFF


@dataclasses.dataclass(frozen=True, eq=False)
class Shape:
  """Which cell each thread and register of tcgen05.ld / st means.

  Attributes:
    rows, columns: int64 [32, registers]: lane and column relative to the base,
      of thread t of the warp and register q.
    span: columns covered.
    half_warp: base lane may be 16 (shapes of 16 lanes), else only 0.
  """

  rows: np.ndarray
  columns: np.ndarray
  span: int
  half_warp: bool

  @property
  def registers(self) -> int:
    return self.rows.shape[1]


_REGISTERS_PER_REPEAT = {
    "32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1,
}
_MAX_REPEAT = {
    "32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128,
}


@functools.cache
def shape(name: str, repeat: int, offset: int = 0) -> Shape:
  """The shape `name`.x`repeat`; `offset` is the immediate of 16x32bx2."""
  if name not in _MAX_REPEAT:
    raise ValueError(
        f"unknown shape {name!r}; expected one of {sorted(_MAX_REPEAT)}"
    )
  if repeat & (repeat - 1) or not 1 <= repeat <= _MAX_REPEAT[name]:
    raise ValueError(
        f"{name}.x{repeat}: the repetition must be a power of two in"
        f" 1..{_MAX_REPEAT[name]}"
    )
  t = np.arange(32)[:, None]
  q = np.arange(repeat * _REGISTERS_PER_REPEAT[name])[None, :]
  match name:
    case "32x32b":
      rows, columns = t + 0 * q, q + 0 * t
    case "16x64b":
      rows, columns = t // 4 + 8 * (t % 2) + 0 * q, t // 2 % 2 + 2 * q
    case "16x128b":
      rows, columns = t // 4 + 8 * (q % 2), t % 4 + 4 * (q // 2)
    case "16x256b":
      rows = t // 4 + 8 * (q // 2 % 2)
      columns = 2 * (t % 4) + q % 2 + 8 * (q // 4)
    case _:  # 16x32bx2
      rows, columns = t % 16 + 0 * q, np.where(t < 16, q, offset + q)
  return Shape(rows, columns, int(columns.max()) + 1, name != "32x32b")


@dataclasses.dataclass
class _Allocator:
  """Allocation state of a CTA."""

  ranges: dict[int, int] = dataclasses.field(default_factory=dict)
  relinquished: bool = False
  cta_group: int | None = None
  pair_allocs: int = 0  # cta_group::2 allocations this CTA took part in.


class TensorMemory:
  """The tensor memory of every resident CTA, and its allocator."""

  space = "tensor"

  def __init__(
      self,
      num_ctas: int,
      observers: Sequence[Observer] = (),
      wake: Callable[[Hashable], None] = lambda key: None,
  ):
    self.num_ctas = num_ctas
    self.data = np.full((num_ctas, LANES, COLUMNS), POISON, np.uint32)
    self._flat = self.data.reshape(-1)
    self._wake = wake
    self._allocators = [_Allocator() for _ in range(num_ctas)]
    self._pair_log: dict[int, list[tuple[int, int]]] = {}
    self.attach(observers)

  def attach(self, observers: Sequence[Observer]) -> None:
    """Replaces the observers of this memory."""
    for observer in observers:
      observer.on_attach(self)
    self._on_read = listeners(observers, "on_tmem_read")
    self._on_write = listeners(observers, "on_tmem_write")
    self._on_alloc = listeners(observers, "on_alloc")
    self._on_dealloc = listeners(observers, "on_dealloc")

  # Allocation.

  def key(self, cta: int) -> tuple[str, int]:
    """What a blocked allocation parks on; woken by dealloc."""
    return "tmem", int(cta)

  def use_group(self, cta: int, cta_group: int, who: Access = NOBODY) -> None:
    """All tcgen05 instructions of a kernel must name one cta_group."""
    state = self._allocators[cta]
    if state.cta_group is None:
      state.cta_group = cta_group
    elif state.cta_group != cta_group:
      raise TmemFault(
          f"{who.what}: cta_group::{cta_group} after cta_group::"
          f"{state.cta_group} in CTA {cta}; all tcgen05 instructions of a"
          " kernel must use the same",
          who.locate(),
      )

  def allocate(
      self, cta: int, count: int, who: Access = NOBODY,
      pair: tuple[int, int] | None = None,
  ) -> int | None:
    """First free column of `count` free ones, or None if that must wait.

    Their contents are undefined then, which is NaN here.

    Args:
      cta: the CTA whose warp executes the instruction.
      count: columns.
      who: for messages.
      pair: for cta_group::2, the CTA pair. Both CTAs execute it; the first one
        to come allocates the same columns in both.
    """
    if count & (count - 1) or not ALLOCATION_UNIT <= count <= COLUMNS:
      raise TmemFault(
          f"{who.what}: the number of columns must be a power of two in"
          f" {ALLOCATION_UNIT}..{COLUMNS}, got {count}",
          who.locate(),
      )
    state = self._allocators[cta]
    if state.relinquished:
      raise TmemFault(
          f"{who.what}: CTA {cta} has given up its permit to allocate"
          " (tcgen05.relinquish_alloc_permit)",
          who.locate(),
      )
    ctas = (cta,) if pair is None else pair
    if pair is not None:
      log = self._pair_log.setdefault(pair[0], [])
      if state.pair_allocs < len(log):
        column, other = log[state.pair_allocs]
        if other != count:
          raise TmemFault(
              f"{who.what}: CTA {cta} allocates {count} columns where the other"
              f" CTA of its pair allocated {other}",
              who.locate(),
          )
        state.pair_allocs += 1
        return column
    used = np.zeros(COLUMNS // ALLOCATION_UNIT, np.bool_)
    for member in ctas:
      for start, size in self._allocators[member].ranges.items():
        first, last = start // ALLOCATION_UNIT, start + size
        used[first : last // ALLOCATION_UNIT] = True
    units = count // ALLOCATION_UNIT
    for first in range(COLUMNS // ALLOCATION_UNIT - units + 1):
      if not used[first : first + units].any():
        break
    else:
      return None
    column = first * ALLOCATION_UNIT
    for member in ctas:
      self._allocators[member].ranges[column] = count
      self.data[member, :, column : column + count] = POISON
      for hook in self._on_alloc:
        hook(member, column, count, who)
    if pair is not None:
      self._pair_log[pair[0]].append((column, count))
      state.pair_allocs += 1
    return column

  def deallocate(
      self, cta: int, address: int, count: int, who: Access = NOBODY
  ) -> None:
    """Frees one allocation of this CTA, whole."""
    lane, column = split_address(address)
    ranges = self._allocators[cta].ranges
    if lane or ranges.get(column) != count:
      owned = ", ".join(f"{n} at {c}" for c, n in sorted(ranges.items()))
      raise TmemFault(
          f"{who.what}: dealloc of {count} columns at {address:#x} is no"
          f" allocation of CTA {cta}; allocated: {owned or 'none'}",
          who.locate(),
      )
    del ranges[column]
    for hook in self._on_dealloc:
      hook(cta, column, count, who)
    # In a pair a blocked allocation may wait for either CTA.
    for other in (cta, cta ^ 1):
      self._wake(self.key(other))

  def relinquish(self, cta: int) -> None:
    self._allocators[cta].relinquished = True

  def describe(self, cta: int) -> str:
    ranges = sorted(self._allocators[cta].ranges.items())
    owned = ", ".join(f"{c}..{c + n - 1}" for c, n in ranges)
    return f"tensor memory of CTA {cta} (allocated columns: {owned or 'none'})"

  # Access by warps.

  def _cells(
      self, cta, quadrant, address, layout: Shape, span: int, who: Access
  ) -> tuple[np.ndarray, np.ndarray]:
    """Base lane [w] and column [w] of the accesses of w warps, checked."""
    address = np.asarray(address, np.int64)
    lane, column = address >> 16 & 0xFFFF, address & 0xFFFF
    within = lane & 31
    bad = (lane >> 5 != 0) & (lane >> 5 != quadrant)
    if bad.any():
      i = int(np.flatnonzero(bad)[0])
      raise TmemFault(
          f"{who.what}: address {int(address[i]):#x} names lane {lane[i]}; warp"
          f" {int(quadrant[i])} of its warpgroup reaches only lanes"
          f" {32 * int(quadrant[i])}..{32 * int(quadrant[i]) + 31}",
          who.locate(32 * i),
      )
    bad = (within != 0) & ((within != 16) | (not layout.half_warp))
    if bad.any():
      i = int(np.flatnonzero(bad)[0])
      allowed = "0 or 16" if layout.half_warp else "0"
      raise TmemFault(
          f"{who.what}: address {int(address[i]):#x} has lane"
          f" {int(within[i])} (modulo 32); this shape allows {allowed}",
          who.locate(32 * i),
      )
    if (column + span > COLUMNS).any():
      i = int(np.flatnonzero(column + span > COLUMNS)[0])
      raise TmemFault(
          f"{who.what}: columns {int(column[i])}..{int(column[i]) + span - 1}"
          f" pass the end of tensor memory ({COLUMNS} columns)",
          who.locate(32 * i),
      )
    return 32 * quadrant + within, column

  def load(
      self, cta, quadrant, address, layout: Shape, who: Access = NOBODY,
      pack: bool = False,
  ) -> np.ndarray:
    """tcgen05.ld: uint32 [w, 32, registers].

    Args:
      cta: resident CTA of each warp, int [w].
      quadrant: rank of each warp in its warpgroup of four, int [w].
      address: int [w].
      layout: `shape(...)`.
      who: for messages (index of the thread, 32 per warp).
      pack: .pack::16b, two 16-bit elements of adjacent columns per register.
    """
    scale = 2 if pack else 1
    lane, column = self._cells(
        cta, quadrant, address, layout, layout.span * scale, who
    )
    row = (cta * LANES + lane)[:, None, None] + layout.rows
    columns = column[:, None, None] + layout.columns * scale
    if self._on_read:
      self._report(self._on_read, cta, lane, layout, columns, who)
      if pack:
        self._report(self._on_read, cta, lane, layout, columns + 1, who)
    cells = row * COLUMNS + columns
    if not pack:
      return self._flat.take(cells)
    low, high = self._flat.take(cells), self._flat.take(cells + 1)
    return low & np.uint32(0xFFFF) | high << np.uint32(16)

  def store(
      self, cta, quadrant, address, layout: Shape, values: np.ndarray,
      who: Access = NOBODY, unpack: bool = False,
  ) -> None:
    """tcgen05.st of values, uint32 [w, 32, registers]; see `load`."""
    scale = 2 if unpack else 1
    lane, column = self._cells(
        cta, quadrant, address, layout, layout.span * scale, who
    )
    row = (cta * LANES + lane)[:, None, None] + layout.rows
    columns = column[:, None, None] + layout.columns * scale
    if self._on_write:
      self._report(self._on_write, cta, lane, layout, columns, who)
      if unpack:
        self._report(self._on_write, cta, lane, layout, columns + 1, who)
    cells = row * COLUMNS + columns
    if unpack:
      self._flat[cells] = values & np.uint32(0xFFFF) | UNSPECIFIED_HALF
      self._flat[cells + 1] = values >> np.uint32(16) | UNSPECIFIED_HALF
    else:
      self._flat[cells] = values

  def _report(self, hooks, cta, lane, layout, columns, who) -> None:
    lanes = lane[:, None, None] + layout.rows
    for hook in hooks:
      hook(np.asarray(cta)[:, None, None], lanes, columns, who)

  # Access by the tensor core.

  def _check_block(self, cta, lanes, column, count, who: Access) -> None:
    if column < 0 or column + count > COLUMNS:
      raise TmemFault(
          f"{who.what}: columns {column}..{column + count - 1} of CTA {cta}"
          f" pass the end of tensor memory ({COLUMNS} columns)",
          who.locate(),
      )
    last = lanes.stop - 1 if isinstance(lanes, slice) else int(lanes.max())
    if last >= LANES:
      raise TmemFault(
          f"{who.what}: lane {last} of CTA {cta} is outside tensor memory"
          f" ({LANES} lanes)",
          who.locate(),
      )

  def _report_block(self, hooks, cta, lanes, column, count, who) -> None:
    if isinstance(lanes, slice):
      lanes = np.arange(lanes.start, lanes.stop)
    columns = np.arange(column, column + count)
    for hook in hooks:
      hook(np.int64(cta), lanes[:, None], columns[None, :], who)

  def read_block(
      self, cta: int, lanes: slice | np.ndarray, column: int, count: int,
      who: Access = NOBODY,
  ) -> np.ndarray:
    """uint32 [lanes, count]: some lanes of consecutive columns of a CTA."""
    self._check_block(cta, lanes, column, count, who)
    if self._on_read:
      self._report_block(self._on_read, cta, lanes, column, count, who)
    return self.data[cta, lanes, column : column + count]

  def write_block(
      self, cta: int, lanes: slice | np.ndarray, column: int,
      values: np.ndarray, who: Access = NOBODY,
  ) -> None:
    """Writes values, uint32 [lanes, count]; see `read_block`."""
    count = values.shape[1]
    self._check_block(cta, lanes, column, count, who)
    if self._on_write:
      self._report_block(self._on_write, cta, lanes, column, count, who)
    self.data[cta, lanes, column : column + count] = values
