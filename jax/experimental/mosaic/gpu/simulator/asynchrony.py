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
"""Asynchronous operations and when they take effect.

Whatever the hardware does behind the back of the issuing thread (TMA, bulk
copies, tcgen05.cp / mma / st / commit) is an `AsyncOp` handed to
`Asynchrony.submit`. Operands are captured at issue; memory is read and written
when the operation runs. When that is, an `Order` decides:

  Eager  at once, when it is issued.
  Lazy   as late as possible, when no thread can run without it; the newest
         first.
  Seeded somewhere in between, at random but the same for the same seed. The
         warps, too, take turns at random then (`scheduler.Shuffled`).

Operations of one `queue` take effect in the order of their issue (tcgen05
instructions of one thread). Others are unordered.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from .errors import SimulationError, Where
from .observers import Observer, listeners


class Stage(enum.IntEnum):
  ISSUED = 0
  READ = 1  # The source has been read (`cp.async.bulk.wait_group.read`).
  DONE = 2


@dataclasses.dataclass(eq=False)
class AsyncOp:
  """An asynchronous operation in flight.

  Attributes:
    kind: a name for messages and checkers, e.g. "tma load" or "mma".
    cta: resident CTA of the issuing thread.
    thread: machine thread number of the issuing thread.
    run: does the work. With `read`, only what follows it.
    where: the instruction that issued it.
    queue: operations of one queue run in order of issue; None for no order.
    group: a commit/wait domain, e.g. ("bulk", thread), that counts the
      operation in its next commit_group; None if it is not tracked so.
    read: reads the source, if that is a step of its own (bulk stores).
    reads, writes: summary for checkers: tuples of (space, cta, first, last + 1)
      of the bytes in "shared" memory and the columns in "tensor" memory.
    signals: what completes it, if that is an mbarrier: tuples of (destination
      CTA, CTA of the mbarrier, its address).
  """

  kind: str
  cta: int
  thread: int
  run: Callable[[], None]
  where: Where | None = None
  queue: Hashable | None = None
  group: Hashable | None = None
  read: Callable[[], None] | None = None
  reads: tuple[tuple[str, int, int, int], ...] = ()
  writes: tuple[tuple[str, int, int, int], ...] = ()
  signals: tuple[tuple[int, int, int], ...] = ()
  stage: Stage = Stage.ISSUED

  def __str__(self) -> str:
    return f"{self.kind} issued by CTA {self.cta} thread {self.thread}"


class Order(Protocol):
  """Decides when operations in flight take effect."""

  def issued(self, asynchrony: Asynchrony, op: AsyncOp) -> None:
    """Called once for each operation, after it joined those in flight."""

  def choose(self, ready: Sequence[AsyncOp]) -> AsyncOp:
    """Picks the operation to advance when no thread can run."""


class Eager:
  """Every operation is finished the moment it is issued."""

  def issued(self, asynchrony: Asynchrony, op: AsyncOp) -> None:
    asynchrony.finish(op)

  def choose(self, ready: Sequence[AsyncOp]) -> AsyncOp:
    return ready[0]


class Lazy:
  """Operations stay in flight until no thread can run; then the newest goes.

  So what a program forgot to wait for is overtaken by what needs it.
  """

  def issued(self, asynchrony: Asynchrony, op: AsyncOp) -> None:
    pass

  def choose(self, ready: Sequence[AsyncOp]) -> AsyncOp:
    return ready[-1]


class Seeded:
  """Operations take effect at random moments, in random order.

  Now and then one is finished at once; others advance while threads run
  (`Shuffled` calls `Asynchrony.drain_one`), or when none can.
  """

  def __init__(self, seed: int):
    self._random = random.Random(seed)
    # Some seeds are hasty, some are slow.
    self._haste = self._random.choice((0.05, 0.2, 0.5))

  def issued(self, asynchrony: Asynchrony, op: AsyncOp) -> None:
    if self._random.random() < self._haste:
      asynchrony.finish(op)

  def choose(self, ready: Sequence[AsyncOp]) -> AsyncOp:
    return self._random.choice(ready)


ORDERS: dict[str, Callable[[], Order]] = {"eager": Eager, "lazy": Lazy}


class Asynchrony:
  """All operations in flight of the resident CTAs.

  Wake keys: ("group", domain) after an operation of the domain advances,
  ("queue", queue) after an operation of the queue is done.
  """

  def __init__(
      self,
      order: str | int | Order = "eager",
      wake: Callable[[Hashable], None] = lambda key: None,
      observers: Iterable[Observer] = (),
  ):
    if isinstance(order, int):
      order = Seeded(order)
    elif isinstance(order, str):
      if order not in ORDERS:
        raise ValueError(
            f"unknown order {order!r}; expected one of {sorted(ORDERS)}, the"
            " seed of a random order, or an Order object"
        )
      order = ORDERS[order]()
    self._order = order
    self._wake = wake
    self._in_flight: dict[AsyncOp, None] = {}
    self._queues: dict[Hashable, list[AsyncOp]] = {}
    self._open: dict[Hashable, list[AsyncOp]] = {}
    self._groups: dict[Hashable, list[list[AsyncOp]]] = {}
    self.attach(observers)

  def attach(self, observers: Iterable[Observer]) -> None:
    """Replaces the observers."""
    observers = tuple(observers)
    self._on_submit = listeners(observers, "on_submit")
    self._on_complete = listeners(observers, "on_complete")
    self._on_advance = listeners(observers, "on_advance")
    self._on_advanced = listeners(observers, "on_advanced")

  def submit(self, op: AsyncOp) -> None:
    """Takes an operation over from the thread that issues it."""
    for hook in self._on_submit:
      hook(op)
    self._in_flight[op] = None
    if op.queue is not None:
      self._queues.setdefault(op.queue, []).append(op)
    if op.group is not None:
      self._open.setdefault(op.group, []).append(op)
    self._order.issued(self, op)

  # Progress.

  def ready(self) -> list[AsyncOp]:
    """Operations that may advance now, oldest first."""
    return [
        op
        for op in self._in_flight
        if op.queue is None or self._queues[op.queue][0] is op
    ]

  def advance(self, op: AsyncOp) -> None:
    """Executes the next stage of an operation."""
    for hook in self._on_advance:
      hook(op)
    try:
      if op.stage is Stage.ISSUED and op.read is not None:
        op.read()
        op.stage = Stage.READ
      else:
        op.run()
        op.stage = Stage.DONE
    except SimulationError as e:
      if e.where is None:
        e.where = op.where
      raise
    for hook in self._on_advanced:
      hook(op)
    if op.stage is Stage.DONE:
      del self._in_flight[op]
      if op.queue is not None:
        queue = self._queues[op.queue]
        queue.remove(op)
        if not queue:
          del self._queues[op.queue]
        self._wake(("queue", op.queue))
      for hook in self._on_complete:
        hook(op)
    if op.group is not None:
      self._wake(("group", op.group))

  def finish(self, op: AsyncOp) -> None:
    """Finishes an operation, and before it those its queue has ahead of it."""
    while op.queue is not None and self._queues[op.queue][0] is not op:
      self.finish(self._queues[op.queue][0])
    while op.stage is not Stage.DONE:
      self.advance(op)

  def drain_one(self) -> bool:
    """Advances one operation, if any is in flight."""
    ready = self.ready()
    if not ready:
      return False
    self.advance(self._order.choose(ready))
    return True

  def unfinished(self) -> list[AsyncOp]:
    """What is still in flight, oldest first."""
    return list(self._in_flight)

  # Waiting.

  def idle(self, queue: Hashable) -> bool:
    """Whether nothing of this queue is in flight (key ("queue", queue))."""
    return queue not in self._queues

  @property
  def grouping(self) -> bool:
    """Whether any commit or wait of a group could have something to do."""
    return bool(self._open or self._groups)

  def commit_group(self, domain: Hashable) -> None:
    """Closes the group of the operations issued since the last commit."""
    ops = [
        op for op in self._open.pop(domain, ()) if op.stage is not Stage.DONE
    ]
    groups = self._trim(domain)
    if ops or groups:  # With nothing pending an empty group is done already.
      self._groups.setdefault(domain, []).append(ops)

  def _trim(self, domain: Hashable) -> list[list[AsyncOp]]:
    """The groups of a domain without the finished ones at the front."""
    groups = self._groups.get(domain, [])
    while groups and all(op.stage is Stage.DONE for op in groups[0]):
      groups.pop(0)
    if not groups:
      self._groups.pop(domain, None)
    return groups

  def groups_done(
      self, domain: Hashable, allowed: int, read: bool = False
  ) -> bool:
    """Whether at most `allowed` of the latest groups are still pending.

    Args:
      domain: as AsyncOp.group.
      allowed: the operand of wait_group.
      read: only the sources need to have been read.
    """
    groups = self._trim(domain)
    needed = Stage.READ if read else Stage.DONE
    return all(
        # An operation without a read stage of its own is read when done.
        op.stage >= needed
        for group in groups[: max(len(groups) - allowed, 0)]
        for op in group
    )

  def describe_groups(self, domain: Hashable) -> str:
    groups = self._groups.get(domain, [])
    waiting = [str(op) for group in groups for op in group]
    return f"{len(groups)} group(s) in flight: {', '.join(waiting) or 'none'}"


def bulk(thread: Any) -> tuple[str, int]:
  """The commit/wait domain of bulk operations of a thread."""
  return "bulk", int(thread)


def tensor_queue(thread: Any) -> tuple[str, int]:
  """The queue of tcgen05.cp, mma and commit that a thread issues."""
  return "tcgen05", int(thread)


def tensor_store_queue(warp: Any) -> tuple[str, int]:
  """The queue of tcgen05.st of a machine warp, for tcgen05.wait::st."""
  return "tcgen05.st", int(warp)
