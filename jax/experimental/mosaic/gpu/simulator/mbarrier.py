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
"""Mbarrier objects (PTX ISA 9.7.13.15).

The state of an object lives here, keyed by CTA and shared memory offset; its 8
bytes of shared memory are only marked, so that plain accesses are faults.

A phase completes when no arrivals are pending and the transaction count is 0.
The transaction count may be negative for a while: bytes of a copy can come in
before the thread that announces them runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from .errors import BarrierFault
from .memory import SharedMemory
from .observers import NOBODY, Access, Observer, listeners

MAX_COUNT = (1 << 20) - 1
_PENDING_BITS = 20


@dataclasses.dataclass(slots=True)
class Barrier:
  """State of one object.

  Attributes:
    expected: arrivals that each phase needs.
    pending: arrivals that the current phase still needs.
    tx: bytes announced minus bytes arrived.
    phase: completed phases; its lowest bit is the parity of the current one.
  """

  expected: int
  pending: int
  tx: int = 0
  phase: int = 0

  def __str__(self) -> str:
    return (
        f"phase {self.phase}, pending {self.pending} of {self.expected},"
        f" tx {self.tx}"
    )


class Mbarriers:
  """The mbarrier objects of all resident CTAs.

  `cta` is a resident CTA, `addr` an offset in its shared memory. The completion
  of a phase wakes the key ("mbarrier", cta, addr).
  """

  def __init__(
      self,
      shared: SharedMemory,
      wake: Callable[[Hashable], None] = lambda key: None,
      observers: Sequence[Observer] = (),
  ):
    self._shared = shared
    self._wake = wake
    self._on_init = listeners(observers, "on_mbarrier_init")
    self._on_arrive = listeners(observers, "on_mbarrier_arrive")
    self._on_phase = listeners(observers, "on_mbarrier_phase")
    self._on_pass = listeners(observers, "on_mbarrier_pass")
    self._barriers: dict[tuple[int, int], Barrier] = {}

  def key(self, cta: int, addr: int) -> tuple[str, int, int]:
    """What a thread that waits for the barrier parks on."""
    return "mbarrier", int(cta), int(addr)

  def get(self, cta: int, addr: int, who: Access = NOBODY) -> Barrier:
    """The object at an address."""
    barrier = self._barriers.get((cta, addr))
    if barrier is None:
      here = sorted(a for c, a in self._barriers if c == cta)
      known = ", ".join(hex(a) for a in here) or "none"
      raise BarrierFault(
          f"{who.what}: no mbarrier was initialised at {addr:#x} of CTA {cta};"
          f" mbarriers of this CTA: {known}",
          who.locate(),
      )
    return barrier

  def describe(self, cta: int, addr: int) -> str:
    barrier = self._barriers.get((cta, addr))
    return f"mbarrier {addr:#x} of CTA {cta} ({barrier or 'not initialised'})"

  def _fault(self, cta, addr, who: Access, problem: str) -> BarrierFault:
    return BarrierFault(
        f"{who.what}: {problem}; {self.describe(cta, addr)}", who.locate()
    )

  def _count(self, cta, addr, count: int, who: Access) -> None:
    if not 1 <= count <= MAX_COUNT:
      raise self._fault(
          cta, addr, who, f"count must be in 1..{MAX_COUNT}, got {count}"
      )

  # Instructions.

  def init(self, cta: int, addr: int, count: int, who=NOBODY) -> None:
    old = self._barriers.get((cta, addr))
    if old is None:
      barrier_access = Access(who.where, "barrier", who.what, who.threads)
      self._shared.check(cta, np.int64(addr), 8, barrier_access, 8, "init")
    elif old.pending != old.expected or old.tx:
      raise self._fault(
          cta, addr, who, "init of an mbarrier that is in use"
      )
    self._count(cta, addr, count, who)
    self._barriers[cta, addr] = Barrier(expected=count, pending=count)
    self._shared.reserve(cta, addr, True)
    for hook in self._on_init:
      hook(cta, addr, who)

  def inval(self, cta: int, addr: int, who=NOBODY) -> None:
    self.get(cta, addr, who)
    del self._barriers[cta, addr]
    self._shared.reserve(cta, addr, False)

  def arrive(
      self,
      cta: int,
      addr: int,
      count: int = 1,
      who: Access = NOBODY,
      *,
      expect_tx: int = 0,
      drop: bool = False,
      no_complete: bool = False,
  ) -> int:
    """Arrives `count` times; returns the state token of before.

    Args:
      cta, addr: the object.
      count: arrivals.
      who: for messages.
      expect_tx: bytes to announce first, without a check in between.
      drop: later phases expect `count` fewer arrivals, too.
      no_complete: the program promises not to complete the phase by this.
    """
    barrier = self.get(cta, addr, who)
    self._count(cta, addr, count, who)
    for hook in self._on_arrive:
      hook(cta, addr, barrier.phase, who)
    token = barrier.phase << _PENDING_BITS | barrier.pending
    if expect_tx:
      self._add_tx(cta, addr, barrier, expect_tx, who)
    if barrier.pending < count:
      raise self._fault(
          cta, addr, who,
          f"{count} arrival(s) where the current phase needs only"
          f" {barrier.pending} more",
      )
    barrier.pending -= count
    if drop:
      barrier.expected -= count
    if no_complete and barrier.pending == 0 and barrier.tx == 0:
      raise self._fault(
          cta, addr, who, "arrive.noComplete completes the phase"
      )
    self._check(cta, addr, barrier)
    return token

  def _add_tx(self, cta, addr, barrier: Barrier, nbytes: int, who) -> None:
    tx = barrier.tx + nbytes
    if not -MAX_COUNT <= tx <= MAX_COUNT:
      raise self._fault(
          cta, addr, who,
          f"the transaction count would become {tx}, outside"
          f" -{MAX_COUNT}..{MAX_COUNT}",
      )
    barrier.tx = tx

  def expect_tx(self, cta: int, addr: int, nbytes: int, who=NOBODY) -> None:
    barrier = self.get(cta, addr, who)
    self._add_tx(cta, addr, barrier, nbytes, who)
    # A copy may have come in early, so this can bring the count to zero; with
    # arrivals pending it never completes the phase.
    self._check(cta, addr, barrier)

  def complete_tx(self, cta: int, addr: int, nbytes: int, who=NOBODY) -> None:
    barrier = self.get(cta, addr, who)
    for hook in self._on_arrive:
      hook(cta, addr, barrier.phase, who)
    self._add_tx(cta, addr, barrier, -nbytes, who)
    self._check(cta, addr, barrier)

  def add_pending(self, cta: int, addr: int, count: int, who=NOBODY) -> None:
    """More arrivals needed in this phase (cp.async.mbarrier.arrive)."""
    barrier = self.get(cta, addr, who)
    if barrier.pending + count > MAX_COUNT:
      raise self._fault(
          cta, addr, who, f"more than {MAX_COUNT} arrivals would be pending"
      )
    barrier.pending += count

  def _check(self, cta: int, addr: int, barrier: Barrier) -> None:
    if barrier.pending == 0 and barrier.tx == 0:
      for hook in self._on_phase:
        hook(cta, addr, barrier.phase)
      barrier.phase += 1
      barrier.pending = barrier.expected
      self._wake(self.key(cta, addr))

  # Waiting.

  def passed(self, cta: int, addr: int, parity: int, who=NOBODY) -> bool:
    """Whether the phase with this parity has completed."""
    if parity not in (0, 1):
      raise self._fault(
          cta, addr, who, f"the phase parity must be 0 or 1, got {parity}"
      )
    return (self.get(cta, addr, who).phase & 1) != parity

  def passed_token(self, cta: int, addr: int, token: int, who=NOBODY) -> bool:
    """Whether the phase of an `arrive` that returned `token` has completed."""
    phase = self.get(cta, addr, who).phase
    if not phase - 1 <= token >> _PENDING_BITS <= phase:
      raise self._fault(
          cta, addr, who,
          f"state token of phase {token >> _PENDING_BITS} is neither of the"
          " current nor of the preceding phase",
      )
    return phase != token >> _PENDING_BITS

  def tell_passed(self, cta, addr, done, threads, who: Access) -> None:
    """Tells observers which threads have found their phase completed.

    Args:
      cta, addr, done, threads: arrays [n].
      who: for messages.
    """
    if not self._on_pass:
      return
    places = cta[done] << 32 | addr[done]
    for place in np.unique(places).tolist():
      here = threads[done][places == place]
      for hook in self._on_pass:
        hook(place >> 32, place & 0xFFFF_FFFF, here, who)

  def __iter__(self) -> Any:
    """(cta, addr, Barrier) of every object."""
    return ((c, a, b) for (c, a), b in self._barriers.items())


def pending_count(token: int) -> int:
  """mbarrier.pending_count of a state token."""
  return token & MAX_COUNT
