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
"""Races between the lanes of one warp, in shared memory.

Lanes are threads: that they happen to execute an instruction together orders
nothing (PTX ISA 8). An error is

  a store        of several lanes of one instruction to the same bytes, with
                 different values
  an access      to bytes that another lane of the warp has written (or read, if
                 this one writes), with nothing that orders the two lanes in
                 between

What orders lanes: the instructions of a warp that have a mask of lanes (for
those in it), and everything that waits for other threads: bar, barrier.cluster,
mbarriers, atomics and loads that acquire. The latter are not asked what they
wait for: races.py tells whether warps wait for the right thing.

Time is counted in such events. A word of 4 bytes remembers its last write (of
parts of it four, by the number of the lane) and its last reads by lanes of even
and of odd number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import RaceError, Where
from .observers import Access, Observer
from .races import is_strong
from .step import WARP

# A stamp: time, thread in its CTA, instruction, and the bytes of the word.
_TIME_SHIFT, _THREAD_SHIFT, _PC_SHIFT = 34, 24, 4
_THREAD_MASK, _PC_MASK = (1 << 10) - 1, (1 << 20) - 1
_ALL_BYTES = 15
_WRITES, _READS = 4, 2

_WARP_WIDE = (
    "bar.warp.sync", "shfl.sync", "vote.sync", "match.", "redux.sync",
    "elect.sync",
)


class LaneRaces(Observer):
  """Raises RaceError for accesses of lanes of a warp that nothing orders."""

  def attach(self, machine: Any) -> None:
    self._machine = machine
    self._now = 1
    # Up to what time a thread has seen what each lane of its warp did.
    self._seen = np.zeros((machine.num_threads, WARP), np.int64)
    words = machine.shared.size // 4
    shape = machine.num_ctas, words
    self._writes = np.zeros((_WRITES, *shape), np.int64)
    self._reads = np.zeros((_READS, *shape), np.int64)
    self._narrow = False  # Whether there were writes of parts of a word.
    self._kinds: dict[int, str] = {}
    self._step: Any = None
    self._kind = ""
    self._flying = False

  # What orders lanes.

  def on_instruction(self, step) -> None:
    self._step = step
    kind = self._kinds.get(step.pc)
    if kind is None:
      kind = self._kinds[step.pc] = _kind(step.instruction)
    self._kind = kind
    if kind == "":
      return
    threads = step.threads
    if step.instruction.guard is not None:
      register, negated = step.instruction.guard
      mask = self._machine.context.slots[register.name].read(step, np.bool_)
      threads = threads[np.broadcast_to(mask ^ negated, (step.n,))]
    if kind == "strong":
      self._sync(threads)
    elif step.full and threads.size == step.n:
      self._sync(threads)
    elif threads.size:
      self._meet(threads)

  def _meet(self, threads) -> None:
    """Some lanes of each warp meet; those that come early do so, too."""
    active = np.zeros(self._seen.shape[0], np.bool_)
    active[threads] = True
    active = active.reshape(-1, WARP)
    warps = np.unique(threads // WARP)
    active = active[warps]
    seen = self._seen.reshape(-1, WARP, WARP)
    known = np.where(active[:, :, None], seen[warps], 0).max(axis=1)
    known = np.where(active, self._now, known)[:, None, :]
    seen[warps] = np.where(active[:, :, None], known, seen[warps])
    self._now += 1

  def _sync(self, threads) -> None:
    self._seen[threads] = self._now
    self._now += 1

  def on_barrier_pass(self, key, threads, done) -> None:
    self._sync(threads)

  def on_mbarrier_pass(self, cta, addr, threads, who) -> None:
    self._sync(threads)

  def on_advance(self, op) -> None:
    self._flying = True

  def on_advanced(self, op) -> None:
    self._flying = False

  # Accesses.

  def on_read(self, space, cta, addr, nbytes, who) -> None:
    if space == "shared" and self._counts(who):
      self._access(cta, addr, nbytes, who, None)

  def on_store(self, cta, addr, data, who) -> None:
    if self._counts(who):
      self._access(cta, addr, data.shape[-1], who, data)

  def _counts(self, who: Access) -> bool:
    return (
        not self._flying
        and self._kind != "strong"
        and np.ndim(who.threads) == 1
    )

  def _access(self, cta, addr, nbytes, who, data: np.ndarray | None) -> None:
    """Accesses of threads; data, uint8 [n, nbytes], if they write."""
    addr = np.ravel(addr)
    threads = np.broadcast_to(who.threads, addr.shape)
    ctas = np.broadcast_to(cta, addr.shape)
    per_cta = self._machine.threads_per_cta
    own = threads // per_cta == ctas
    cells = addr >> 2
    mask = _ALL_BYTES
    if nbytes < 4:
      mask = ((1 << nbytes) - 1) << (addr & 3)
    # A column for each word.
    cells = cells[:, None] + np.arange(max(nbytes >> 2, 1))
    mask = np.broadcast_to(mask, addr.shape)[:, None]
    threads, ctas, own = threads[:, None], ctas[:, None], own[:, None]
    stamps = (
        self._now << _TIME_SHIFT | (threads % per_cta) << _THREAD_SHIFT
        | self._step.pc << _PC_SHIFT | mask
    )
    # Only the warps of the CTA itself are told apart from others.
    stamps = np.where(own, stamps, 0)
    lane = threads % WARP
    slots = list(self._writes if self._narrow else self._writes[:1])
    num_writes = len(slots)
    if data is not None:
      slots.extend(self._reads)
    for number, slot in enumerate(slots):
      old = slot[ctas, cells]
      other = old >> _THREAD_SHIFT & _THREAD_MASK
      bad = (old & mask & _ALL_BYTES) != 0
      bad &= own & (other != threads % per_cta)
      bad &= other // WARP == threads % per_cta // WARP
      if bad.any():
        seen = self._seen[threads, other % WARP]
        bad &= old >> _TIME_SHIFT > seen
        if bad.any():
          self._report(
              bad, old, number < num_writes, cells, ctas, who,
              data is not None,
          )
    if data is None:
      self._reads[lane % _READS, ctas, cells] = stamps
      return
    if nbytes >= 4:
      self._writes[0, ctas, cells] = stamps
      if self._narrow:
        self._writes[1:, ctas, cells] = 0
      if (self._writes[0, ctas, cells] == stamps).all():
        return  # Nobody has stored to the same word.
    else:
      self._narrow = True
      self._writes[lane % _WRITES, ctas, cells] = stamps
    self._check_collision(ctas[:, 0], addr, data, who)

  def _check_collision(self, ctas, addr, data, who) -> None:
    """Stores of several lanes to one address must be of one value."""
    data = np.broadcast_to(data, (addr.size, data.shape[-1]))
    _, first, place = np.unique(
        ctas << 32 | addr, return_index=True, return_inverse=True
    )
    first = first[place]
    other = np.flatnonzero((data != data[first]).any(axis=1))
    if not other.size:
      return
    i = int(other[0])
    one, two = who.locate(int(first[i])), who.locate(i)
    values = [
        f"{int.from_bytes(data[n].tobytes(), 'little'):#x}"
        for n in (first[i], i)
    ]
    self._raise(
        f"Race: lanes {one.lane} and {two.lane} of a warp write {values[0]} and"
        f" {values[1]} to {self._place(int(ctas[i]), int(addr[i]))} in one"
        " instruction; which of them remains is not defined",
        one, two,
    )

  # Messages.

  def _place(self, cta: int, address: int) -> str:
    x, y, z = self._machine.cta_id[cta].tolist()
    return f"shared memory at {address:#x} of CTA ({x},{y},{z})"

  def _report(self, bad, old, old_write, cells, ctas, who, write) -> None:
    i, j = np.argwhere(bad)[0].tolist()
    cta, stamp = int(ctas[i, 0]), int(old[i, j])
    thread = cta * self._machine.threads_per_cta
    thread += stamp >> _THREAD_SHIFT & _THREAD_MASK
    number, warp, lane = self._machine.identify(thread)
    instruction = self._machine.kernel.body[stamp >> _PC_SHIFT & _PC_MASK]
    other = Where(instruction.line, instruction.text, number, warp, lane)
    self._raise(
        f"Race: {'write' if write else 'read'} of"
        f" {self._place(cta, 4 * int(cells[i, j]))} by {who.what}, and the"
        f" earlier {'write' if old_write else 'read'} by lane {lane} of the"
        " same warp, are not ordered; put a bar.warp.sync between them",
        other, who.locate(i),
    )

  def _raise(self, message: str, other: Where, where: Where) -> None:
    error = RaceError(f"{message}\n  the earlier at {other}", where)
    error.other = other
    raise error


def _kind(instruction: Any) -> str:
  opcode = instruction.opcode
  if opcode.startswith(_WARP_WIDE):
    return "warp"
  return "strong" if is_strong(opcode) else ""
