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
"""A happens-before race checker (PTX ISA 8, 9.7.13 and 9.7.16.6).

Two accesses to one place, of which one writes, must be ordered by
synchronization, whatever the order in which they happened this time.

Everything that accesses memory belongs to an *agent*, whose events are counted:

  a warp            its ld, st, tcgen05.alloc, ... in program order
  a tensor queue    tcgen05.cp, mma and commit of one thread. They take effect
                    in order (9.7.16.6.2; cp after mma is not in that list, but
                    NVIDIA's own libraries overwrite scale factors so, and
                    Triton's tutorial of tcgen05_copy says that all are)
  an mbarrier       copies that complete on it; the event is the phase
  bulk reads,       of the bulk stores of one thread: events that
  bulk writes       wait_group.read and wait_group wait for
  loads, stores     tcgen05.ld and tcgen05.st of one warp, for tcgen05.wait

A vector clock says, for every agent, how many of its events happened before.
Each warp has five of them, the first four of which go along with every
synchronization (bar, mbarrier, barrier.cluster, atomics):

  SEEN      what is ordered before this warp
  FENCED    of that, what also lies behind a proxy fence: the async proxy must
            not meet an ordinary write that is not (8.8, 9.7.13.5)
  RELEASED  of that, what lies behind fence.proxy.async::generic.release; its
            acquire counterpart moves it to FENCED
  BEFORE    tcgen05 operations behind a tcgen05.fence::before_thread_sync (or a
            tcgen05.commit, which implies it)
  TENSOR    tcgen05 operations that are ordered before tcgen05 instructions of
            this warp: its own, and BEFORE as of its last
            tcgen05.fence::after_thread_sync

An asynchronous operation runs with the clocks of its issuer at the issue.
Completion (of a phase, ...) hands on those, and the operation itself.

A tcgen05.ld is complete for the one who frees tensor memory when its registers
were used, and for the one who overwrites it only after tcgen05.wait::ld.

Not checked: the lanes of a warp against each other (see lanes.py), an mbarrier
wait with .relaxed (it orders here), scopes (.cta orders as .gpu does), generic
reads before asynchronous writes (except those of
clusterlaunchcontrol.try_cancel) for a missing proxy fence, and writes after
reads in global memory.

Shared and global memory are tracked in words of 4 bytes, with a mask of the
bytes; tensor memory in columns of 16 lanes. A place remembers its last write
and a few of its last reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np

from . import ptx
from .asynchrony import AsyncOp, Stage
from .errors import RaceError, Where
from .observers import Access, Observer

SEEN, FENCED, RELEASED, BEFORE, TENSOR = range(5)
_HANDED_ON = 4

# A stamp: agent, event, site (what and where) and the bytes of the word.
_AGENT_SHIFT, _EVENT_SHIFT, _SITE_SHIFT = 48, 24, 4
_EVENT_MASK = (1 << 24) - 1
_SITE_MASK = (1 << 20) - 1
_ALL_BYTES = 15

# What a place remembers: the last write, and the last read of each of these.
_WRITE, _TENSOR_READ, _BULK_READ, _WARP_READ = 0, 1, 2, 3
_WARP_READS = 4
_SLOTS = _WARP_READ + _WARP_READS

_LANES_OF_CELL = 16
_CELLS = 128 // _LANES_OF_CELL * 512  # Of the tensor memory of a CTA.


@dataclasses.dataclass(frozen=True)
class _Site:
  """What accessed a place: an instruction, or an asynchronous operation."""

  verb: str
  where: Where


@dataclasses.dataclass
class _Flight:
  """An asynchronous operation in flight.

  Attributes:
    op: the operation.
    clocks: of the issuer, at the issue, int32 [5, agents].
    agent, event: of its accesses; an agent of -1 is known only when it signals.
    read_agent: of its reads of shared memory, if another.
    cluster, warp: of the issuer.
  """

  op: AsyncOp
  clocks: np.ndarray
  agent: int
  event: int
  read_agent: int
  cluster: int
  warp: int
  slot: int = _TENSOR_READ


@dataclasses.dataclass
class _Barrier:
  """An mbarrier.

  Attributes:
    agent: stands for the copies that complete on it.
    maker, made, site: the warp, event and site of its mbarrier.init.
    fenced: event of the maker's fence after that, 0 if there was none.
    pending: what has arrived in the current phase, [4, agents].
    done: what had arrived in all completed phases.
    remote: the last arrivals from other CTAs: {(agent, site): event}.
  """

  agent: int
  maker: int
  made: int
  site: int
  pending: np.ndarray
  done: np.ndarray
  fenced: int = 0
  remote: dict[tuple[int, int], int] = dataclasses.field(default_factory=dict)


class Races(Observer):
  """Raises RaceError for accesses that nothing orders."""

  def __init__(self, last_stores: bool = False):
    """Makes the observer.

    Args:
      last_stores: Whether bulk stores must have read shared memory before their
        CTA exits.
    """
    self._last_stores = last_stores
    self._machine: Any = None
    self._op: _Flight | None = None

  # One batch of clusters.

  def attach(self, machine: Any) -> None:
    self._machine = machine
    self._op = None
    self._loader: np.ndarray | None = None  # Clocks of a warp that loads.
    clusters = machine.num_clusters
    self._warps = machine.warps_per_cta * machine.cluster_size  # Of a cluster.
    w = self._warps
    # Agents of a cluster: warps, their loads until waited for, their loads
    # until used, their stores, and then the others as they come.
    self._waited_loads, self._used_loads, self._stores = w, 2 * w, 3 * w
    self._agents = [4 * w] * clusters
    self._names: list[dict[Hashable, int]] = [{} for _ in range(clusters)]
    capacity = 4 * w + 32
    self._clocks = np.zeros((5, clusters, w, capacity), np.int32)
    self._is_tensor = np.zeros((clusters, capacity), np.bool_)
    self._is_tensor[:, w : 4 * w] = True
    each = np.arange(w)
    self._clocks[SEEN, :, each, each] = 1
    # What went along with the last fence, for relaxed arrivals.
    self._at_fence = {}
    self._events: dict[tuple[int, int], int] = {}  # Of agents but warps.
    self._barriers: dict[tuple[int, int], _Barrier] = {}
    self._meetings: dict[Hashable, np.ndarray] = {}
    # Relaxed barriers order no memory, but they do hold up the exit.
    self._relaxed_meetings: dict[Hashable, np.ndarray] = {}
    self._before_exit: dict[int, np.ndarray] = {}  # By CTA.
    self._variables: dict[tuple[str, int, int], dict[int, np.ndarray]] = {}
    self._foreign: list[dict[int, np.ndarray]] = [{} for _ in range(clusters)]
    self._open: dict[Any, list[int]] = {}
    self._groups: dict[Any, list[int]] = {}
    self._flights: dict[AsyncOp, _Flight] = {}
    self._sites = [_Site("", Where(0, ""))]  # Number 0 is of no access.
    self._site_of: dict[Any, int] = {}
    self._loads: dict[str, dict[int, int]] = {}  # Register: {warp: event}.
    self._load_registers: dict[tuple[int, int], tuple[str, ...]] = {}
    self._unused: dict[int, set[int]] = {}  # Warp: events of loads.
    self._registers: dict[int, frozenset[str]] = {}
    self._actions: dict[int, Any] = {}
    words = machine.shared.size // 4
    self._shared = np.zeros((_SLOTS, machine.num_ctas, words), np.int64)
    self._tmem = np.zeros((_SLOTS, machine.num_ctas * _CELLS), np.int64)
    self._global: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    self._step: Any = None
    self._strong = False

  def _agent(self, cluster: int, name: Hashable, tensor: bool = False) -> int:
    """The number of an agent of a cluster that is no warp."""
    names = self._names[cluster]
    agent = names.get(name)
    if agent is None:
      agent = names[name] = self._agents[cluster]
      self._agents[cluster] += 1
      if agent >= self._is_tensor.shape[1]:
        self._grow()
      self._is_tensor[cluster, agent] = tensor
    return agent

  def _grow(self) -> None:
    old = self._clocks
    more = old.shape[-1] // 2
    self._clocks = np.pad(old, ((0, 0), (0, 0), (0, 0), (0, more)))
    self._is_tensor = np.pad(self._is_tensor, ((0, 0), (0, more)))

  def _place(self, warp: int) -> tuple[int, int]:
    """(cluster, number in it) of a machine warp."""
    return divmod(warp, self._warps)

  def _warps_of(self, threads) -> list[int]:
    """Machine warps of some threads."""
    if isinstance(threads, (int, np.integer)):
      return [int(threads) // 32]
    if len(threads) == 32 and threads[0] // 32 == threads[-1] // 32:
      return [int(threads[0]) // 32]
    return np.unique(np.asarray(threads) // 32).tolist()

  def _site(self, verb: str, where: Where) -> int:
    key = verb, where
    site = self._site_of.get(key)
    if site is None:
      site = self._site_of[key] = len(self._sites)
      self._sites.append(_Site(verb, where))
    return site

  def _step_site(self, verb: str) -> int:
    """The site of the instruction being executed, whoever executes it."""
    key = verb, self._step.pc
    site = self._site_of.get(key)
    if site is None:
      site = self._site_of[key] = len(self._sites)
      self._sites.append(_Site(verb, self._step.where()))
    return site

  # Clocks.

  def _join(self, into: np.ndarray, clocks: np.ndarray) -> None:
    """into[:4] = max(into[:4], clocks), whose agents may be fewer."""
    n = clocks.shape[-1]
    target = into[:_HANDED_ON, ..., :n]
    np.maximum(target, clocks[:_HANDED_ON], out=target)

  def _merged(self, a: np.ndarray | None, b: np.ndarray) -> np.ndarray:
    if a is None:
      return b[:_HANDED_ON].copy()
    if a.shape[-1] < b.shape[-1]:
      a = np.pad(a, ((0, 0), (0, b.shape[-1] - a.shape[-1])))
    self._join(a, b)
    return a

  def _release(self, warp: int, relaxed: bool = False) -> np.ndarray:
    """The clocks that a warp hands on, and a new event of the warp."""
    cluster, w = self._place(warp)
    if relaxed:
      clocks = self._at_fence.get(warp)
      if clocks is None:
        clocks = np.zeros((_HANDED_ON, 1), np.int32)
      return clocks
    clocks = self._clocks[:_HANDED_ON, cluster, w].copy()
    self._clocks[SEEN, cluster, w, w] += 1
    return clocks

  def _acquire(self, warp: int, clocks: np.ndarray) -> None:
    cluster, w = self._place(warp)
    self._join(self._clocks[:, cluster, w], clocks)

  def _next_event(self, cluster: int, agent: int) -> int:
    event = self._events.get((cluster, agent), 0) + 1
    self._events[cluster, agent] = event
    return event

  # Instructions that order by themselves.

  def on_instruction(self, step) -> None:
    self._step = step
    pc = step.pc
    action = self._actions.get(pc)
    if action is None:
      action = self._actions[pc] = _action(step.instruction)
    if self._loads:
      self._use(step)
    self._strong = action == "strong"
    if action == "none" or action == "strong":
      return
    if step.instruction.guard is not None:
      register, negated = step.instruction.guard
      mask = self._machine.context.slots[register.name].read(step, np.bool_)
      mask = mask ^ negated
      if not mask.any():
        return
      threads = step.threads[mask]
    else:
      threads = step.threads
    getattr(self, action)(step, threads)

  def _proxy_fence(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      clocks = self._clocks[:, cluster, w]
      np.maximum(clocks[FENCED], clocks[SEEN], out=clocks[FENCED])
    self._fence(step, threads)

  def _proxy_release(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      clocks = self._clocks[:, cluster, w]
      np.maximum(clocks[RELEASED], clocks[SEEN], out=clocks[RELEASED])

  def _proxy_acquire(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      clocks = self._clocks[:, cluster, w]
      np.maximum(clocks[FENCED], clocks[RELEASED], out=clocks[FENCED])

  def _fence(self, step, threads) -> None:
    """A fence after which a relaxed arrival hands on what was before it."""
    for warp in self._warps_of(threads):
      self._at_fence[warp] = self._release(warp)

  def _init_fence(self, step, threads) -> None:
    """fence.mbarrier_init: the async proxy may now use the mbarriers."""
    for warp in self._warps_of(threads):
      for barrier in self._barriers.values():
        if barrier.maker == warp and not barrier.fenced:
          cluster, w = self._place(warp)
          barrier.fenced = int(self._clocks[SEEN, cluster, w, w])
    self._fence(step, threads)

  def _tensor_before(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      clocks = self._clocks[:, cluster, w]
      np.maximum(clocks[BEFORE], clocks[TENSOR], out=clocks[BEFORE])

  def _tensor_after(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      clocks = self._clocks[:, cluster, w]
      np.maximum(clocks[TENSOR], clocks[BEFORE], out=clocks[TENSOR])

  def _wait_loads(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      event = self._events.get((cluster, self._waited_loads + w), 0)
      clocks = self._clocks[:, cluster, w]
      for kind in (SEEN, TENSOR):
        clocks[kind, self._waited_loads + w] = event
        clocks[kind, self._used_loads + w] = event
      self._unused.pop(warp, None)

  def _wait_stores(self, step, threads) -> None:
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      agent = self._stores + w
      event = self._events.get((cluster, agent), 0)
      self._clocks[SEEN, cluster, w, agent] = event
      self._clocks[TENSOR, cluster, w, agent] = event

  def _commit_group(self, step, threads) -> None:
    if self._open or self._groups:
      self._close_groups("bulk", threads)

  def _commit_copies(self, step, threads) -> None:
    if self._open or self._groups:
      self._close_groups("cp.async", threads)

  def _close_groups(self, kind: str, threads) -> None:
    for thread in np.atleast_1d(threads).tolist():
      domain = kind, thread
      events = self._open.pop(domain, None) or self._groups.get(domain)
      if events:
        self._groups.setdefault(domain, []).append(events[-1])

  def _wait_group(self, step, threads) -> None:
    if self._groups:
      count = step.instruction.operands[0].value
      read = step.instruction.opcode.endswith(".read")
      self._wait_groups("bulk", threads, count, read)

  def _wait_copies(self, step, threads) -> None:
    if self._open or self._groups:
      if step.instruction.opcode.endswith("wait_all"):
        self._close_groups("cp.async", threads)
        count = 0
      else:
        count = step.instruction.operands[0].value
      self._wait_groups("cp.async", threads, count, False)

  def _wait_groups(self, kind, threads, allowed: int, read: bool) -> None:
    for thread in np.atleast_1d(threads).tolist():
      groups = self._groups.get((kind, thread))
      if groups is None or len(groups) <= allowed:
        continue
      event = groups[len(groups) - 1 - allowed]
      cluster, w = self._place(thread // 32)
      for part in ("read",) if read else ("read", "write"):
        agent = self._agent(cluster, (kind, part, thread))
        clocks = self._clocks[SEEN, cluster, w]
        clocks[agent] = max(clocks[agent], event)

  # The registers of tcgen05.ld.

  def _use(self, step) -> None:
    """Loads whose registers an instruction touches are complete."""
    names = self._registers.get(step.pc)
    if names is None:
      names = self._registers[step.pc] = _registers(step.instruction)
    hit = names & self._loads.keys()
    if not hit:
      return
    for warp in self._warps_of(step.threads):
      for name in hit:
        event = self._loads.get(name, {}).get(warp)
        if event is None:
          continue
        for other in self._load_registers.pop((warp, event), ()):
          of_warp = self._loads.get(other)
          if of_warp is not None and of_warp.get(warp) == event:
            del of_warp[warp]
            if not of_warp:
              del self._loads[other]
        unused = self._unused.get(warp, set())
        unused.discard(event)
        cluster, w = self._place(warp)
        last = self._events.get((cluster, self._waited_loads + w), 0)
        done = min(unused) - 1 if unused else last
        self._clocks[SEEN, cluster, w, self._used_loads + w] = done

  # Barriers of threads.

  def on_barrier_arrive(self, key, threads, relaxed) -> None:
    for warp in self._warps_of(threads):
      if relaxed:
        cluster, w = self._place(warp)
        self._relaxed_meetings[key] = self._merged(
            self._relaxed_meetings.get(key), self._clocks[:, cluster, w]
        )
      clocks = self._release(warp, relaxed)
      self._meetings[key] = self._merged(self._meetings.get(key), clocks)

  def on_barrier_pass(self, key, threads, done) -> None:
    clocks = self._meetings.get(key)
    if clocks is not None and len(threads):
      for warp in self._warps_of(threads):
        self._acquire(warp, clocks)
    if done:
      self._meetings.pop(key, None)
    clocks = self._relaxed_meetings.get(key)
    if clocks is not None:
      per_cta = self._machine.threads_per_cta
      for cta in np.unique(np.asarray(threads) // per_cta).tolist():
        known = self._before_exit.get(cta)
        self._before_exit[cta] = self._merged(known, clocks)

  # Mbarriers.

  def on_mbarrier_init(self, cta, addr, who) -> None:
    [warp] = self._warps_of(who.threads)
    cluster, w = self._place(warp)
    old = self._barriers.get((cta, addr))
    agent = self._agent(cluster, ("mbarrier", cta, addr))
    event = int(self._clocks[SEEN, cluster, w, w])
    site = self._step_site(who.what)
    empty = np.zeros((_HANDED_ON, 1), np.int32)
    done = empty if old is None else self._merged(old.done, old.pending)
    # Events of the agent go on behind those of the old object.
    self._events[cluster, agent] = self._events.get((cluster, agent), 0) + 1
    self._barriers[cta, addr] = _Barrier(
        agent, warp, event, site, empty, done
    )

  def _phase_event(self, cluster: int, barrier: _Barrier) -> int:
    return self._events[cluster, barrier.agent]

  def _check_init(
      self, barrier, cta, addr, clocks, is_async, warp, who
  ) -> None:
    """The mbarrier.init must be ordered before any use."""
    maker = barrier.maker
    if maker == warp and not is_async:
      return
    cluster, w = self._place(maker)
    # For the async proxy it must be fenced, too.
    fenced = barrier.fenced or not is_async
    event = barrier.fenced if is_async else barrier.made
    ordered = clocks[SEEN, w] >= event
    if ordered and fenced:
      return
    missing = (
        "its mbarrier.init, which is not ordered before it"
        if not ordered
        else "its mbarrier.init, which no fence.mbarrier_init follows"
    )
    place = f"mbarrier {addr:#x} of CTA {self._cta_name(cta)}"
    first = self._sites[barrier.site].where
    self._raise(
        f"{who.what} on {place} races with {missing}",
        dataclasses.replace(first, **self._who(cluster, w)), who.locate(),
    )

  def on_mbarrier_arrive(self, cta, addr, phase, who) -> None:
    barrier = self._barriers[cta, addr]
    if self._op is None:
      relaxed = ".relaxed" in self._step.instruction.opcode
      for warp in self._warps_of(who.threads):
        cluster, w = self._place(warp)
        self._check_init(
            barrier, cta, addr, self._clocks[:, cluster, w], False, warp, who
        )
        clocks = self._release(warp, relaxed)
        barrier.pending = self._merged(barrier.pending, clocks)
      return
    flight = self._op
    self._check_init(
        barrier, cta, addr, flight.clocks, True, flight.cluster * self._warps
        + flight.warp, who,
    )
    barrier.pending = self._merged(barrier.pending, flight.clocks)
    if flight.agent >= 0 and flight.op.queue is not None:
      # What was issued before is complete.
      pending = barrier.pending
      pending[SEEN, flight.agent] = max(
          pending[SEEN, flight.agent], flight.event
      )
      if flight.op.kind == "tcgen05.commit":
        # It implies tcgen05.fence::before_thread_sync.
        before = flight.clocks[TENSOR].copy()
        before[flight.agent] = flight.event
        n = before.size
        np.maximum(pending[BEFORE, :n], before, out=pending[BEFORE, :n])
      source = flight.agent, flight.event
    else:
      source = flight.warp, int(flight.clocks[SEEN, flight.warp])
    if flight.op.cta != cta:
      site = self._site(who.what, who.locate())
      barrier.remote[source[0], site] = source[1]

  def on_mbarrier_phase(self, cta, addr, phase) -> None:
    barrier = self._barriers[cta, addr]
    cluster = cta // self._machine.cluster_size
    barrier.done = self._merged(barrier.done, barrier.pending)
    if barrier.done.shape[-1] <= barrier.agent:
      more = barrier.agent + 1 - barrier.done.shape[-1]
      barrier.done = np.pad(barrier.done, ((0, 0), (0, more)))
    barrier.done[SEEN, barrier.agent] = self._events[cluster, barrier.agent]
    self._events[cluster, barrier.agent] += 1
    barrier.pending = np.zeros((_HANDED_ON, 1), np.int32)

  def on_mbarrier_pass(self, cta, addr, threads, who) -> None:
    barrier = self._barriers[cta, addr]
    for warp in self._warps_of(threads):
      cluster, w = self._place(warp)
      self._check_init(
          barrier, cta, addr, self._clocks[:, cluster, w], False, warp, who
      )
      self._acquire(warp, barrier.done)

  # Asynchronous operations.

  def on_submit(self, op) -> None:
    warp = op.thread // 32
    cluster, w = self._place(warp)
    agent = read_agent = -1
    event = 0
    slot = _BULK_READ
    if op.queue is not None:
      kind = op.queue[0]
      if kind == "tcgen05.st":
        agent = self._stores + w
      else:
        tensor = kind == "tcgen05"
        name = op.queue if tensor else ("cp.async", "write", op.thread)
        agent = self._agent(cluster, name, tensor)
        slot = _TENSOR_READ if tensor else _BULK_READ
      read_agent = agent
    elif op.group is not None:
      agent = self._agent(cluster, ("bulk", "write", op.thread))
      read_agent = self._agent(cluster, ("bulk", "read", op.thread))
    if agent >= 0:
      event = self._next_event(cluster, agent)
    clocks = self._clocks[:, cluster, w].copy()
    self._clocks[SEEN, cluster, w, w] += 1
    if op.queue is not None and agent >= 0:
      if op.queue[0] != "cp.async":
        # In order behind what the queue has ahead (and not behind itself).
        clocks[SEEN, agent] = clocks[TENSOR, agent] = event
      if op.queue[0] == "tcgen05.st":
        # Loads of the warp before its store, too, are in order.
        clocks[TENSOR, self._waited_loads + w] = self._events.get(
            (cluster, self._waited_loads + w), 0
        )
    if op.group is not None:
      self._open.setdefault(op.group, []).append(event)
    self._flights[op] = _Flight(
        op, clocks, agent, event, read_agent, cluster, w, slot
    )

  def on_advance(self, op) -> None:
    self._op = self._flights[op]

  def on_advanced(self, op) -> None:
    self._op = None
    if op.stage is Stage.DONE:
      del self._flights[op]

  def _op_stamp(
      self, flight: _Flight, who: Access, agent: int, event: int
  ) -> int:
    where = flight.op.where or who.locate()
    site = self._site(who.what, where)
    return _stamp(agent, event, site)

  def _op_target(self, flight: _Flight, cta) -> tuple[int, int]:
    """Agent and event of the writes of an operation to a CTA (or None)."""
    if flight.agent >= 0:
      return flight.agent, flight.event
    for target, signal, addr in flight.op.signals:
      if target == cta or cta is None:
        barrier = self._barriers.get((signal, addr))
        if barrier is None:
          break  # The operation itself will report it.
        return barrier.agent, self._phase_event(flight.cluster, barrier)
    return flight.warp, int(flight.clocks[SEEN, flight.warp])

  # Shared and global memory.

  def on_read(self, space, cta, addr, nbytes, who) -> None:
    if space == "shared":
      if self._op is not None:
        self._op_shared(self._op, cta, addr, nbytes, who, False)
      elif who.threads is not None:
        self._warp_shared(cta, addr, nbytes, who, False)
    elif space == "global":
      self._access_global(addr, nbytes, who, False)

  def on_write(self, space, cta, addr, nbytes, who) -> None:
    if space == "shared":
      if self._op is not None:
        self._op_shared(self._op, cta, addr, nbytes, who, True)
      elif who.threads is not None:
        self._warp_shared(cta, addr, nbytes, who, True)
    elif space == "global":
      self._access_global(addr, nbytes, who, True)

  def _op_shared(
      self, flight: _Flight, cta, addr, nbytes, who, write: bool
  ) -> None:
    """An access of an asynchronous operation."""
    if flight.op.kind == "red.async":
      return  # Atomic.
    addr = np.ravel(addr)
    if np.ndim(cta):
      cta = int(np.ravel(cta)[0])
    cells = _words(addr, nbytes)
    shadow = self._shared[:, cta]
    clocks = flight.clocks
    seen = clocks[SEEN]
    generic = flight.slot == _BULK_READ and flight.op.queue is not None
    look = seen
    if not generic:  # All but cp.async belong to the async proxy.
      look = seen.copy()
      look[: self._warps] = clocks[FENCED, : self._warps]
    mask = _mask(addr, nbytes)
    self._compare(
        flight, shadow[_WRITE], cells, look, mask, who, write, False, cta
    )
    if not write:
      agent, event = flight.read_agent, flight.event
      if agent < 0:
        agent, event = self._op_target(flight, None)
      stamp = self._op_stamp(flight, who, agent, event)
      shadow[flight.slot][cells] = stamp | mask
      return
    stamp = self._op_stamp(flight, who, *self._op_target(flight, cta))
    reads = shadow[_TENSOR_READ:]
    cancel = flight.op.kind.startswith("clusterlaunchcontrol")
    look = look if cancel else seen
    for slot in range(_SLOTS - 1):
      self._compare(
          flight, reads[slot], cells, look, mask, who, True, True, cta
      )
    shadow[_WRITE][cells] = stamp | mask

  def _warp_shared(self, cta, addr, nbytes, who, write: bool) -> None:
    """Accesses of threads."""
    addr = np.ravel(addr)
    if self._strong:
      self._synchronize("shared", np.broadcast_to(cta, addr.shape), addr, who)
      return
    threads = np.broadcast_to(who.threads, addr.shape)
    warps = threads // 32
    ctas = np.broadcast_to(cta, addr.shape)
    cells = _words(addr, nbytes)
    mask = _mask(addr, nbytes)
    if cells.ndim == 2:
      ctas, warps = ctas[:, None], warps[:, None]
      if not isinstance(mask, int):
        mask = mask[:, None]
    cluster, w = warps // self._warps, warps % self._warps
    shadow = self._shared
    verb = "write" if write else "read"
    site = self._step_site(f"{who.what} ({verb})")
    events = self._clocks[SEEN, cluster, w, w].astype(np.int64)
    stamp = (
        w.astype(np.int64) << _AGENT_SHIFT | events << _EVENT_SHIFT
        | site << _SITE_SHIFT | mask
    )
    width = cells.shape[1] if cells.ndim == 2 else 1
    self._compare_warps(
        shadow[_WRITE], ctas, cells, cluster, w, mask, who, write, False, width
    )
    if write:
      for slot in range(_TENSOR_READ, _SLOTS):
        self._compare_warps(
            shadow[slot], ctas, cells, cluster, w, mask, who, True, True, width
        )
      shadow[_WRITE, ctas, cells] = stamp
    else:
      shadow[_WARP_READ + w % _WARP_READS, ctas, cells] = stamp

  def _compare(
      self, flight: _Flight, slot, cells, look, mask, who, write, old_read, cta
  ) -> None:
    """Accesses of one operation against what a slot remembers."""
    stamps = slot[cells]
    bad = (stamps >> _EVENT_SHIFT & _EVENT_MASK) > _lookup(look, stamps)
    if bad.any():
      bad &= (stamps & mask & _ALL_BYTES) != 0
      if bad.any():
        i = int(np.flatnonzero(np.ravel(bad))[0])
        address = int(np.ravel(cells)[i]) * 4
        place = f"shared memory at {address:#x} of CTA {self._cta_name(cta)}"
        self._report(
            place, int(np.ravel(stamps)[i]), old_read, who.what, write,
            flight.op.where or who.locate(), flight.cluster,
        )

  def _compare_warps(
      self, slot, ctas, cells, cluster, w, mask, who, write, old_read, width
  ) -> None:
    """Accesses of several warps against what a slot remembers."""
    stamps = slot[ctas, cells]
    agents = stamps >> _AGENT_SHIFT
    bad = (stamps >> _EVENT_SHIFT & _EVENT_MASK) > self._clocks[
        SEEN, cluster, w, agents
    ]
    if bad.any():
      bad &= (stamps & mask & _ALL_BYTES) != 0
      if bad.any():
        i = int(np.flatnonzero(np.ravel(bad))[0])
        address = int(np.ravel(cells)[i]) * 4
        cta = int(np.ravel(np.broadcast_to(ctas, cells.shape))[i])
        place = f"shared memory at {address:#x} of CTA {self._cta_name(cta)}"
        self._report(
            place, int(np.ravel(stamps)[i]), old_read, who.what, write,
            who.locate(i // width), cta // self._machine.cluster_size,
        )

  def _access_global(self, addr, nbytes, who, write: bool) -> None:
    flight = self._op
    if flight is None and who.threads is None:
      return
    if not (write or self._global or self._strong):
      return
    addr = np.ravel(addr)
    if flight is None and self._strong:
      self._synchronize("global", np.zeros_like(addr), addr, who)
      return
    if flight is not None and flight.op.kind == "tma reduce":
      return  # Atomic with respect to others of its kind.
    memory = self._machine.spaces.global_memory
    index = memory.find(addr)
    for one in np.unique(index).tolist():
      if one < 0:
        continue
      buffer = memory.buffers[one]
      shadow = self._global.get(one)
      if shadow is None:
        if not write:
          continue  # Only writes are remembered.
        words = -(-buffer.size // 4) + 1
        shadow = self._global[one] = (
            np.zeros(words, np.int64), np.zeros(words, np.int32)
        )
      which = np.flatnonzero(index == one)
      self._one_buffer(
          buffer, shadow, addr[which] - buffer.address, nbytes, which, who,
          write,
      )

  def _one_buffer(
      self, buffer, shadow, offsets, nbytes, which, who, write
  ) -> None:
    flight = self._op
    cells = _words(offsets, nbytes)
    mask = _mask(offsets, nbytes)
    stamps, owners = shadow
    old = stamps[cells]
    width = cells.shape[1] if cells.ndim == 2 else 1
    if flight is not None:
      cluster = np.full(cells.shape, flight.cluster)
      known = _lookup(flight.clocks[SEEN], old)
      agent, event = self._op_target(flight, None)
      new = self._op_stamp(flight, who, agent, event) | mask
    else:
      threads = np.broadcast_to(who.threads, _size(who, which))[which]
      warps = threads // 32
      if cells.ndim == 2:
        warps = np.broadcast_to(warps[:, None], cells.shape)
        if not isinstance(mask, int):
          mask = mask[:, None]
      cluster, w = warps // self._warps, warps % self._warps
      known = self._clocks[SEEN, cluster, w, old >> _AGENT_SHIFT]
      events = self._clocks[SEEN, cluster, w, w].astype(np.int64)
      site = self._step_site(f"{who.what} ({'write' if write else 'read'})")
      new = (
          w.astype(np.int64) << _AGENT_SHIFT | events << _EVENT_SHIFT
          | site << _SITE_SHIFT | mask
      )
    owner = owners[cells]
    foreign = (owner != cluster) & (old != 0)
    event = old >> _EVENT_SHIFT & _EVENT_MASK
    bad = (event > known) & ~foreign
    if foreign.any():
      for i in np.flatnonzero(np.ravel(foreign)).tolist():
        there = int(np.ravel(owner)[i])
        row = self._foreign[int(np.ravel(cluster)[i])].get(there)
        agent = int(np.ravel(old)[i]) >> _AGENT_SHIFT
        seen = 0 if row is None or agent >= row.shape[-1] else row[SEEN, agent]
        bad.reshape(-1)[i] = int(np.ravel(event)[i]) > seen
    if bad.any():
      bad &= (old & mask & _ALL_BYTES) != 0
    if bad.any():
      i = int(np.flatnonzero(np.ravel(bad))[0])
      address = buffer.address + int(np.ravel(cells)[i]) * 4
      place = (
          f"global memory at {address:#x} (byte {address - buffer.address} of"
          f" {buffer.name!r})"
      )
      where = (
          flight.op.where if flight is not None
          else who.locate(int(which[i // width]))
      )
      self._report(
          place, int(np.ravel(old)[i]), False, who.what, write, where,
          int(np.ravel(owner)[i]),
      )
    if write:
      stamps[cells] = new
      owners[cells] = cluster

  def _synchronize(self, space, ctas, addr, who) -> None:
    """Atomics and strong accesses release and acquire what is at a word."""
    threads = np.broadcast_to(who.threads, addr.shape)
    places = zip((threads // 32).tolist(), ctas.tolist(), addr.tolist())
    for warp, cta, address in dict.fromkeys(places):
      cluster, w = self._place(warp)
      variable = self._variables.setdefault((space, cta, address // 4), {})
      for source, clocks in variable.items():
        if source == cluster:
          self._acquire(warp, clocks)
        else:
          known = self._foreign[cluster].get(source)
          self._foreign[cluster][source] = self._merged(known, clocks)
      variable[cluster] = self._merged(
          variable.get(cluster), self._release(warp)
      )
      for source, clocks in self._foreign[cluster].items():
        variable[source] = self._merged(variable.get(source), clocks)

  # Tensor memory.

  def on_tmem_read(self, cta, lanes, columns, who) -> None:
    if self._op is not None:
      self._op_tmem(self._op, cta, lanes, columns, who, False)
    elif who.threads is not None:
      self._load_tmem(cta, lanes, columns, who)

  def on_tmem_write(self, cta, lanes, columns, who) -> None:
    if self._op is not None:
      self._op_tmem(self._op, cta, lanes, columns, who, True)

  def _op_tmem(
      self, flight: _Flight, cta, lanes, columns, who, write: bool
  ) -> None:
    cta = int(np.ravel(cta)[0])
    if lanes.ndim == 2:  # A block of rows and columns.
      first = np.unique(lanes[:, 0] // _LANES_OF_CELL)
      cells = first[:, None] * 512 + columns[:1]
    else:
      cells = np.unique(lanes // _LANES_OF_CELL * 512 + columns)
    cells = cells.ravel() + cta * _CELLS
    look = self._tensor_look(flight.clocks, flight.cluster)
    where = flight.op.where
    self._compare_tmem(_WRITE, cells, look, who, write, where, flight.cluster)
    stamp = (
        self._op_stamp(flight, who, flight.agent, flight.event) | _ALL_BYTES
    )
    if write:
      for slot in range(_TENSOR_READ, _SLOTS):
        self._compare_tmem(
            slot, cells, look, who, True, where, flight.cluster
        )
      self._tmem[_WRITE, cells] = stamp
    else:
      self._tmem[_TENSOR_READ, cells] = stamp

  def _tensor_look(self, clocks, cluster: int) -> np.ndarray:
    """What a tcgen05 instruction is ordered behind, by agent."""
    n = clocks.shape[-1]
    return np.where(
        self._is_tensor[cluster, :n], clocks[TENSOR], clocks[SEEN]
    )

  def _compare_tmem(self, slot, cells, look, who, write, where, cluster):
    stamps = self._tmem[slot, cells]
    bad = (stamps >> _EVENT_SHIFT & _EVENT_MASK) > _lookup(look, stamps)
    if bad.any():
      i = int(np.flatnonzero(bad)[0])
      self._report(
          self._tmem_place(int(cells[i])), int(stamps[i]), slot != _WRITE,
          who.what, write, where, cluster,
      )

  def _tmem_place(self, cell: int) -> str:
    cta, cell = divmod(cell, _CELLS)
    lane, column = divmod(cell, 512)
    lane *= _LANES_OF_CELL
    return (
        f"tensor memory lanes {lane}..{lane + _LANES_OF_CELL - 1} column"
        f" {column} of CTA {self._cta_name(cta)}"
    )

  def _load_tmem(self, cta, lanes, columns, who) -> None:
    """tcgen05.ld by some warps: cells of shape [warps, 32, registers]."""
    warps = np.asarray(who.threads)[::32] // 32
    cells = np.unique(
        (lanes[0] - lanes[0, 0, 0] + lanes[0, 0, 0] % 16) // _LANES_OF_CELL
        * 512 + columns[0] - columns[0, 0, 0]
    )
    base = (
        np.ravel(cta) * _CELLS + lanes[:, 0, 0] // _LANES_OF_CELL * 512
        + columns[:, 0, 0]
    )
    site = self._step_site(who.what)
    registers = tuple(sorted(_destinations(self._step.instruction)))
    for i, warp in enumerate(warps.tolist()):
      cluster, w = self._place(warp)
      here = base[i] + cells
      self._loader = self._clocks[:, cluster, w]
      look = self._tensor_look(self._clocks[:, cluster, w], cluster)
      self._compare_tmem(
          _WRITE, here, look, who, False, who.locate(32 * i), cluster
      )
      agent = self._waited_loads + w
      event = self._next_event(cluster, agent)
      stamp = _stamp(agent, event, site) | _ALL_BYTES
      self._tmem[_WARP_READ + w // 4 % _WARP_READS, here] = stamp
      for name in registers:
        self._loads.setdefault(name, {})[warp] = event
      self._load_registers[warp, event] = registers
      self._unused.setdefault(warp, set()).add(event)
    self._loader = None

  def on_alloc(self, cta, column, count, who) -> None:
    [warp] = self._warps_of(who.threads)
    cells = self._columns(cta, column, count)
    self._tmem[:, cells] = 0
    if warp // self._machine.warps_per_cta != cta:
      return  # The other CTA of a pair; its own warp allocates, too.
    cluster, w = self._place(warp)
    event = int(self._clocks[SEEN, cluster, w, w])
    site = self._step_site(who.what)
    self._tmem[_WRITE, cells] = _stamp(w, event, site) | _ALL_BYTES

  def on_dealloc(self, cta, column, count, who) -> None:
    [warp] = self._warps_of(who.threads)
    cluster, w = self._place(warp)
    look = self._clocks[SEEN, cluster, w].copy()
    self._check_free(cta, column, count, look, who, cluster)
    if "cta_group::2" in self._step.instruction.opcode:
      # That frees the columns of both. Between the CTAs, it is enough that the
      # other has executed its instructions.
      known = self._before_exit.get(cta)
      if known is not None:
        n = known.shape[-1]
        np.maximum(look[:n], known[SEEN], out=look[:n])
      other = sum(self._machine.spaces.pair(cta)) - cta
      self._check_free(other, column, count, look, who, cluster)
    self._tmem[:, self._columns(cta, column, count)] = 0

  def _columns(self, cta: int, column: int, count: int) -> np.ndarray:
    """All cells of some columns of a CTA."""
    groups = np.arange(0, _CELLS, 512)[:, None]
    cells = groups + np.arange(column, column + count)
    return cta * _CELLS + cells.ravel()

  def _check_free(self, cta, column, count, look, who, cluster) -> None:
    """Nothing may use columns any more when they are freed."""
    # Loads need only have returned their registers.
    loads = slice(self._waited_loads, self._waited_loads + self._warps)
    used = slice(self._used_loads, self._used_loads + self._warps)
    look[loads] = look[used]
    cells = self._columns(cta, column, count)
    for slot in range(_SLOTS):
      self._compare_tmem(slot, cells, look, who, True, who.locate(), cluster)

  # The end.

  def on_exit(self, machine) -> None:
    """What is done with the memory of a CTA must be ordered before its exit.

    Unless asked for, its last bulk stores are let through: kernels that JAX
    ships exit without a last wait_group.read.
    """
    size, per_cta = machine.cluster_size, machine.warps_per_cta
    for cta in range(machine.num_ctas):
      cluster, rank = divmod(cta, size)
      rows = slice(rank * per_cta, (rank + 1) * per_cta)
      look = self._clocks[SEEN, cluster, rows].max(axis=0)
      known = self._before_exit.get(cta)
      if known is not None:
        n = known.shape[-1]
        np.maximum(look[:n], known[SEEN], out=look[:n])
      seen = look.copy()
      look[rows] = _EVENT_MASK  # Their instructions are finished.
      for slot in range(_SLOTS):
        if slot == _BULK_READ and not self._last_stores:
          continue
        stamps = self._shared[slot, cta]
        bad = (stamps >> _EVENT_SHIFT & _EVENT_MASK) > _lookup(look, stamps)
        if bad.any():
          i = int(np.flatnonzero(bad)[0])
          place = f"shared memory at {4 * i:#x} of CTA {self._cta_name(cta)}"
          self._report_exit(place, int(stamps[i]), slot != _WRITE, cluster)
      for (owner, addr), barrier in self._barriers.items():
        if owner != cta:
          continue
        for (agent, site), event in barrier.remote.items():
          if event > seen[agent]:
            place = f"mbarrier {addr:#x} of CTA {self._cta_name(cta)}"
            self._report_exit(
                place, _stamp(agent, event, site), False, cluster
            )
    self._flights.clear()

  def _report_exit(self, place, stamp, read, cluster) -> None:
    first, what = self._describe(stamp, cluster)
    verb = "reads" if read else "writes"
    self._raise(
        f"{what} still {verb} {place} when that CTA may have exited; wait for"
        " it, or for the other CTA, before the end",
        None, first,
    )

  # Messages.

  def _cta_name(self, cta: int) -> str:
    x, y, z = self._machine.cta_id[cta].tolist()
    return f"({x},{y},{z})"

  def _who(self, cluster: int, warp: int) -> dict[str, Any]:
    first = (cluster * self._warps + warp) * 32
    cta, warp_in_cta, _ = self._machine.identify(first)
    return {"cta": cta, "warp": warp_in_cta}

  def _describe(self, stamp: int, cluster: int) -> tuple[Where, str]:
    """The place and the name of an access that was remembered."""
    site = self._sites[stamp >> _SITE_SHIFT & _SITE_MASK]
    where = site.where
    if where.warp is None:
      agent = stamp >> _AGENT_SHIFT
      where = dataclasses.replace(
          where, **self._who(cluster, agent % self._warps)
      )
    return where, site.verb

  def _report(
      self, place, stamp, old_read, what, write, where, cluster
  ) -> None:
    first, old = self._describe(stamp, cluster)
    old_verb = "read" if old_read else "write"
    verb = "write" if write else "read"
    hint = ""
    agent = stamp >> _AGENT_SHIFT
    event = stamp >> _EVENT_SHIFT & _EVENT_MASK
    clocks = self._op.clocks if self._op is not None else self._loader
    if clocks is not None and agent < clocks.shape[-1]:
      if clocks[SEEN, agent] >= event:
        hint = (
            "; threads are ordered, but a tcgen05.fence (or tcgen05.wait) is"
            " missing on the way"
            if place.startswith("tensor")
            else "; threads are ordered, but a fence.proxy.async is missing on"
            " the way"
        )
    self._raise(
        f"Race: {verb} of {place} by {what}, and the earlier {old_verb} by"
        f" {old}, are not ordered{hint}",
        first, where,
    )

  def _raise(self, message: str, first, where) -> None:
    if first is not None:
      message += f"\n  the earlier at {first}"
    error = RaceError(message, where)
    error.other = first
    raise error


def _size(who: Access, which: np.ndarray) -> tuple[int, ...]:
  """The shape of the batch that `which` selects from."""
  if np.ndim(who.threads):
    return np.shape(who.threads)
  return (int(which.max()) + 1,)


def _stamp(agent: int, event: int, site: int) -> int:
  return agent << _AGENT_SHIFT | event << _EVENT_SHIFT | site << _SITE_SHIFT


def _lookup(look: np.ndarray, stamps: np.ndarray) -> np.ndarray:
  """Entry of the agent of each stamp; agents made later are unknown: 0."""
  agents = stamps >> _AGENT_SHIFT
  try:
    return look[agents]
  except IndexError:
    n = look.size
    return np.where(agents < n, look[np.minimum(agents, n - 1)], 0)


def _words(addr: np.ndarray, nbytes: int) -> np.ndarray:
  """Words of 4 bytes of accesses: [n], or [n, words] if there are several."""
  cells = addr >> 2
  if nbytes > 4:
    cells = cells[:, None] + np.arange(nbytes >> 2)
  return cells


def _mask(addr: np.ndarray, nbytes: int) -> Any:
  """Which bytes of a word are accessed, as bits."""
  if nbytes >= 4:
    return _ALL_BYTES
  return ((1 << nbytes) - 1) << (addr & 3)


# What an instruction means here: a method of Races, or "strong" or "none".
_ACTIONS = (
    ("fence.proxy.async::generic.release", "_proxy_release"),
    ("fence.proxy.async::generic.acquire", "_proxy_acquire"),
    ("fence.proxy.async.global", "_fence"),
    ("fence.proxy.async", "_proxy_fence"),
    ("membar.proxy.async", "_proxy_fence"),
    ("fence.proxy", "none"),
    ("fence.mbarrier_init", "_init_fence"),
    ("fence", "_fence"),
    ("membar", "_fence"),
    ("tcgen05.fence::before_thread_sync", "_tensor_before"),
    ("tcgen05.fence::after_thread_sync", "_tensor_after"),
    ("tcgen05.wait::ld", "_wait_loads"),
    ("tcgen05.wait::st", "_wait_stores"),
    ("cp.async.bulk.commit_group", "_commit_group"),
    ("cp.async.bulk.wait_group", "_wait_group"),
    ("cp.async.commit_group", "_commit_copies"),
    ("cp.async.wait_", "_wait_copies"),
)
_STRONG = (".relaxed", ".acquire", ".release", ".volatile", ".mmio")


def is_strong(opcode: str) -> bool:
  """Whether an instruction releases or acquires what is at its address."""
  if opcode.startswith(("ld.", "st.")):
    return any(s in opcode for s in _STRONG)
  return opcode.startswith(("atom.", "red.")) and not opcode.startswith(
      "red.async"
  )


def _action(instruction: ptx.Instruction) -> str:
  opcode = instruction.opcode
  if is_strong(opcode):
    return "strong"
  for prefix, action in _ACTIONS:
    if opcode.startswith(prefix):
      return action
  return "none"


def _registers(value: Any) -> frozenset[str]:
  """Names of the registers in an instruction or operand."""
  if isinstance(value, ptx.Register):
    return frozenset([value.name])
  if isinstance(value, ptx.Instruction):
    value = value.operands
  if isinstance(value, tuple | list):
    return frozenset().union(*map(_registers, value))
  if dataclasses.is_dataclass(value):
    return _registers([
        getattr(value, field.name) for field in dataclasses.fields(value)
    ])
  return frozenset()


def _destinations(instruction: ptx.Instruction) -> frozenset[str]:
  return _registers(instruction.operands[0])
