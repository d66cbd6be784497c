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
"""Named barriers of a CTA (`bar`) and the barrier of a cluster."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from . import errors, observers
from .scheduler import EXITED
from .step import WARP, Step

if TYPE_CHECKING:
  from . import machine as machine_lib

NUM_BARRIERS = 16


@dataclasses.dataclass
class _Barrier:
  """A named barrier in one phase.

  Attributes:
    expected: threads that complete it, from its first arrival on; None for all
      threads of the CTA that have not exited.
    arrived: threads that have arrived.
    waiting: those of them that wait for the completion.
    red: operands of `bar.red` of those that have one.
  """

  expected: int | None
  arrived: set[int] = dataclasses.field(default_factory=set)
  arrivals: int = 0
  waiting: list[np.ndarray] = dataclasses.field(default_factory=list)
  red: list[np.ndarray] = dataclasses.field(default_factory=list)


class Barriers:
  """All named barriers and cluster barriers of a machine."""

  def __init__(self, machine: machine_lib.Machine):
    self.machine = machine
    self.pending: dict[tuple[int, int], _Barrier] = {}
    # Whether the barrier a thread waits for has completed; result of bar.red.
    self.released = np.zeros(machine.num_threads, np.bool_)
    self.result = np.zeros((machine.num_threads, 3), np.int64)
    num = machine.num_threads
    # Whether a thread has arrived at the cluster barrier in this phase.
    self.cluster_arrived = np.zeros(num, np.bool_)
    # Phases that a thread has arrived at and waited for, and those completed.
    self.cluster_phase = np.zeros(num, np.int64)
    self.cluster_waited = np.zeros(num, np.int64)
    self.cluster_completed = np.zeros(machine.num_clusters, np.int64)
    self._on_arrive = observers.listeners(
        machine.observers, "on_barrier_arrive"
    )
    self._on_pass = observers.listeners(machine.observers, "on_barrier_pass")

  def _alive(self, cta: int) -> int:
    """Threads of a CTA that have not exited, in whole warps."""
    alive = self.machine.scheduler.state.reshape(
        self.machine.num_ctas, -1, WARP
    )[cta] != EXITED
    return int(alive.any(axis=1).sum()) * WARP

  def arrive(
      self,
      step: Step,
      number: int,
      count: int | None,
      wait: bool,
      predicate: np.ndarray | None = None,
  ) -> Step | None:
    """Whole warps arrive at barrier `number` of their CTA.

    Returns the step of those active threads that need not wait (any longer).

    Args:
      count: threads that take part, None for all of the CTA.
      wait: False for bar.arrive.
      predicate: operand of bar.red, bool [n]; `result` then has, by thread,
        (number of true ones, all, any).
    """
    if not 0 <= number < NUM_BARRIERS:
      raise errors.BarrierFault(
          f"Barrier {number}; expected one of 0 to {NUM_BARRIERS - 1}."
      )
    if count is not None and (count <= 0 or count % WARP):
      raise errors.BarrierFault(
          f"Thread count {count} of barrier {number}; expected a positive"
          f" multiple of {WARP}."
      )
    new = ~self.released[step.index]
    if new.any():
      for cta in np.unique(step.ctas[new]).tolist():
        mask = new & (step.ctas == cta)
        self._arrive(step, mask, cta, number, count, wait, predicate)
    if not wait:
      return step
    done = self.released[step.index]
    if done.all():
      self.released[step.index] = False
      return step
    for cta in np.unique(step.ctas[~done]).tolist():
      step.park(
          ~done & (step.ctas == cta), ("bar", cta, number),
          lambda cta=cta: self._describe(cta, number),
      )
    if not done.any():
      return None
    ready = step.select(done)
    self.released[ready.index] = False
    return ready

  def _describe(self, cta: int, number: int) -> str:
    barrier = self.pending.get((cta, number))
    if barrier is None:
      return f"waits for barrier {number}"
    expected = barrier.expected or self._alive(cta)
    return (
        f"waits for barrier {number} ({barrier.arrivals} of"
        f" {expected} threads have arrived)"
    )

  def _arrive(self, step, mask, cta, number, count, wait, predicate) -> None:
    key = (cta, number)
    barrier = self.pending.get(key)
    if barrier is None:
      barrier = self.pending[key] = _Barrier(count)
    threads = step.threads[mask]
    if barrier.expected != count:
      raise errors.BarrierFault(
          f"Barrier {number} got thread count"
          f" {'all' if count is None else count}, but its other threads gave"
          f" {barrier.expected or 'all'}.",
          step.where(int(np.flatnonzero(mask)[0])),
      )
    if wait and not barrier.arrived.isdisjoint(threads.tolist()):
      raise errors.BarrierFault(
          f"A thread arrived twice at barrier {number} in one phase.",
          step.where(int(np.flatnonzero(mask)[0])),
      )
    for hook in self._on_arrive:
      hook(("bar", cta, number), threads, False)
    # The hardware counts whole warps.
    barrier.arrived.update(threads.tolist())
    barrier.arrivals += np.unique(threads // WARP).size * WARP
    if wait:
      barrier.waiting.append(threads)
    if predicate is not None:
      barrier.red.append(np.broadcast_to(predicate, (step.n,))[mask])
    self._check(cta, number, barrier)

  def _check(self, cta: int, number: int, barrier: _Barrier) -> None:
    expected = barrier.expected
    if expected is None:
      expected = self._alive(cta)
    if barrier.arrivals < expected:
      return
    if barrier.arrivals > expected:
      raise errors.BarrierFault(
          f"{barrier.arrivals} threads arrived at barrier {number}, which"
          f" expects {expected}."
      )
    del self.pending[cta, number]
    red = np.concatenate(barrier.red or [np.zeros(0, np.bool_)])
    result = (red.sum(), red.all(), red.any())
    for hook in self._on_pass:
      waiting = np.concatenate(barrier.waiting or [np.zeros(0, np.int64)])
      hook(("bar", cta, number), waiting, True)
    for threads in barrier.waiting:
      self.released[threads] = True
      self.result[threads] = result
    self.machine.wake(("bar", cta, number))

  def threads_exited(self, ctas: np.ndarray) -> None:
    """Barriers of all threads do not wait for those that have exited."""
    if self.pending:
      exited = set(np.unique(ctas).tolist())
      for (cta, number), barrier in list(self.pending.items()):
        if cta in exited and barrier.expected is None:
          self._check(cta, number, barrier)
    if self.machine.cluster_size > 1 or self.cluster_arrived.any():
      for cluster in np.unique(ctas // self.machine.cluster_size).tolist():
        self._check_cluster(cluster)

  # The cluster barrier: every thread arrives, then waits, in turns.

  def arrive_cluster(self, step: Step) -> None:
    phase = self.cluster_phase[step.index]
    if (phase != self.cluster_waited[step.index]).any():
      raise errors.BarrierFault(
          "barrier.cluster.arrive twice without barrier.cluster.wait."
      )
    clusters = step.ctas // self.machine.cluster_size
    if self._on_arrive:
      assert step.instruction is not None
      relaxed = ".relaxed" in step.instruction.opcode
      self._tell(self._on_arrive, step.threads, clusters, phase, relaxed)
    self.cluster_phase[step.index] += 1
    self.cluster_arrived[step.index] = True
    for cluster in np.unique(clusters).tolist():
      self._check_cluster(cluster)

  def _cluster_threads(self, cluster: int) -> slice:
    size = self.machine.threads_per_cta * self.machine.cluster_size
    return slice(cluster * size, (cluster + 1) * size)

  def _check_cluster(self, cluster: int) -> None:
    threads = self._cluster_threads(cluster)
    arrived = self.cluster_arrived[threads]
    alive = self.machine.scheduler.state[threads] != EXITED
    if arrived.any() and arrived[alive].all():
      self.cluster_arrived[threads] = False
      self.cluster_completed[cluster] += 1
      self.machine.wake(("barrier.cluster", cluster))

  def wait_cluster(self, step: Step) -> None:
    phase = self.cluster_phase[step.index]
    if (phase == self.cluster_waited[step.index]).any():
      raise errors.BarrierFault(
          "barrier.cluster.wait without barrier.cluster.arrive before it."
      )
    clusters = step.ctas // self.machine.cluster_size
    waits = self.cluster_completed[clusters] < phase
    if self._on_pass:
      self._tell(
          self._on_pass, step.threads[~waits], clusters[~waits],
          phase[~waits] - 1, False,
      )
    self.cluster_waited[step.threads[~waits]] += 1
    for cluster in np.unique(clusters[waits]).tolist():
      step.park(
          waits & (clusters == cluster), ("barrier.cluster", cluster),
          lambda cluster=cluster: self._describe_cluster(cluster),
      )

  def _tell(self, hooks, threads, clusters, phases, flag: bool) -> None:
    """Calls hooks for the threads of each cluster and phase."""
    for pair in np.unique(np.stack([clusters, phases], 1), axis=0):
      same = (clusters == pair[0]) & (phases == pair[1])
      for hook in hooks:
        hook(("cluster", int(pair[0]), int(pair[1])), threads[same], flag)

  def _describe_cluster(self, cluster: int) -> str:
    threads = self._cluster_threads(cluster)
    alive = self.machine.scheduler.state[threads] != EXITED
    return (
        "waits for the cluster barrier"
        f" ({int(self.cluster_arrived[threads].sum())} of {int(alive.sum())}"
        " threads have arrived)"
    )
