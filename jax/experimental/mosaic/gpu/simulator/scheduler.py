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
"""Decides which threads run next, and keeps those that wait.

Threads at one pc run together until they branch, wait or exit, or until they
reach the pc of other runnable threads, which then join them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Callable, Hashable, Protocol

import numpy as np

from . import errors, observers
from .step import WARP, Step

if TYPE_CHECKING:
  from . import machine as machine_lib

RUNNABLE, PARKED, EXITED = range(3)

_NO_LIMIT = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class Choice:
  """Run `threads` at `pc`; stop before `limit`, where others stand."""

  pc: int
  threads: np.ndarray
  limit: int


class Policy(Protocol):
  """Decides which threads run next."""

  patience: int  # Backward branches after which `Scheduler.spinning` is set.

  def choose(self, scheduler: Scheduler) -> Choice | None:
    """Returns what to run; None if no thread is runnable."""


class MinPc:
  """Takes the smallest pc: behind a branch, both sides meet again.

  A thread that branched backward `patience` times without waiting may be
  spinning on something another thread must do, so it is passed over until the
  others have had their turn.

  Lanes that left the others of their warp at a branch get theirs after `lag`
  steps: on the hardware they don't fall behind by more than a few instructions,
  and compilers rely on it. LLVM moves copies of a wait for an mbarrier to both
  sides of a branch. If one side came late, it could miss the phase.
  """

  def __init__(self, patience: int = 64, lag: int = 24):
    self.patience = patience
    self.lag = lag

  def choose(self, scheduler: Scheduler) -> Choice | None:
    runnable = np.flatnonzero(scheduler.state == RUNNABLE)
    if not runnable.size:
      return None
    pcs = scheduler.pc[runnable]
    pc = pcs.min()
    if scheduler.spinning:
      patient = scheduler.spins[runnable] < self.patience
      if patient.any():
        pc = pcs[patient].min()
      else:
        scheduler.spins[:] = 0
        scheduler.spinning = False
    here = pcs == pc
    if here.all():
      return Choice(int(pc), runnable, _NO_LIMIT)
    last = scheduler.last_run
    late = runnable[last[runnable] < scheduler.steps - self.lag]
    if late.size:
      of_warp = last.reshape(-1, WARP).max(axis=1)
      late = late[last[late] < of_warp[late // WARP]]
      if late.size:
        pc = scheduler.pc[late].min()
        here = pcs == pc
    later = pcs[pcs > pc]
    limit = int(later.min()) if later.size else _NO_LIMIT
    return Choice(int(pc), runnable[here], limit)


class Shuffled:
  """Takes turns at random: one warp, or all that stand where it stands.

  Between turns asynchronous operations advance at random, too.

  A warp whose lanes went apart keeps its turn, up to `keep` times in a row,
  until those that were left behind have executed as many steps as the others.
  More than `lag` steps behind they go first, for the reason that MinPc has.
  """

  def __init__(self, seed: int, keep: int = 8, lag: int = 24):
    self._random = np.random.default_rng(seed)
    self.patience = 64  # Of no use here.
    self.keep = keep
    self.lag = lag
    self._kept = 0  # Turns since the last random one.
    # Steps that the other lanes of its warp are ahead of a lane, int64 [T].
    self._behind = np.zeros(0, np.int64)
    self._last: np.ndarray | None = None  # Who had the last turn.
    self._steps = 0  # Before the last turn.

  def choose(self, scheduler: Scheduler) -> Choice | None:
    self._count(scheduler)
    random = self._random
    scheduler.spinning = False  # Every lane gets its turn some time.
    runnable = np.flatnonzero(scheduler.state == RUNNABLE)
    behind = runnable[self._behind[runnable] > 0]
    keep = behind.size > 0 and self._kept < self.keep
    if keep:
      self._kept += 1
      together = runnable[np.isin(runnable // WARP, behind // WARP)]
    else:
      self._kept = 0
      while random.random() < 0.3 and scheduler.machine.asynchrony.drain_one():
        pass
      runnable = np.flatnonzero(scheduler.state == RUNNABLE)
      if not runnable.size:
        return None
      one = runnable[random.integers(runnable.size)]
      together = runnable
      if random.random() < 0.7:
        together = runnable[runnable // WARP == one // WARP]
    # Within a warp, the smallest pc lets both sides of a branch meet again.
    pcs = scheduler.pc[together]
    late = self._behind[together] > self.lag
    pc = pcs[late].min() if late.any() else pcs.min()
    threads = together[pcs == pc]
    limit = _NO_LIMIT if keep else int(pc) + int(random.integers(1, 48))
    later = pcs[pcs > pc]
    if later.size:
      limit = min(limit, int(later.min()))
    self._last = threads
    return Choice(int(pc), threads, limit)

  def _count(self, scheduler: Scheduler) -> None:
    """Accounts for the last turn."""
    if self._behind.size != scheduler.pc.size:  # Another batch of clusters.
      self._behind = np.zeros(scheduler.pc.size, np.int64)
    elif self._last is not None:
      behind, steps = self._behind, scheduler.steps - self._steps
      of_warps = np.zeros(behind.size // WARP, np.bool_)
      of_warps[self._last // WARP] = True
      behind.reshape(-1, WARP)[of_warps] += steps
      behind[self._last] = np.maximum(behind[self._last] - 2 * steps, 0)
      behind[scheduler.state != RUNNABLE] = 0
    self._last, self._steps = None, scheduler.steps


@dataclasses.dataclass
class _Waiting:
  """Threads that execute the instruction at `pc` again after a wake."""

  threads: np.ndarray
  pc: int
  describe: str | Callable[[], str]


@dataclasses.dataclass(frozen=True)
class LanesKey:
  """Key of lanes that wait at `pc` for the others of their warp."""

  warp: int
  pc: int


class Scheduler:
  """State of all resident threads, and the loop that runs them.

  Attributes:
    pc: index into the kernel's body, int64 [T].
    state: RUNNABLE, PARKED or EXITED, uint8 [T].
    spins: backward branches since the thread last waited, int64 [T].
    spinning: whether `spins` may have reached the policy's patience.
    last_run: `steps` when the thread last began to run, int64 [T].
    steps: steps executed so far.
  """

  _group: Step  # What runs, or ran last.

  def __init__(
      self,
      machine: machine_lib.Machine,
      program: list[Callable[[Step], None]],
      policy: Policy | None = None,
      max_steps: int | None = None,
  ):
    self.machine = machine
    self.program = program
    self.policy: Policy = policy or MinPc()
    self.max_steps = max_steps
    self.pc = np.zeros(machine.num_threads, np.int64)
    self.state = np.where(machine.exists, RUNNABLE, EXITED).astype(np.uint8)
    self.spins = np.zeros(machine.num_threads, np.int64)
    self.spinning = False
    self.last_run = np.zeros(machine.num_threads, np.int64)
    self.steps = 0
    self.parked: dict[Hashable, list[_Waiting]] = {}
    self._moved = True  # Whether pc of the group is up to date.
    self._interrupted = False
    self._hooks = observers.listeners(machine.observers, "on_instruction")

  def run(self) -> None:
    """Runs until all threads have exited."""
    asynchrony = self.machine.asynchrony
    while True:
      choice = self.policy.choose(self)
      if choice is not None:
        self._run_block(choice)
      elif (self.state == EXITED).all():
        return
      elif not asynchrony.drain_one():
        raise self._deadlock()

  def _run_block(self, choice: Choice) -> None:
    """Runs threads from one pc on for as long as they stay together."""
    group = self._group = self.machine.step_of(choice.threads)
    self.last_run[group.index] = self.steps
    body = self.machine.kernel.body
    program = self.program
    hooks = self._hooks
    pc, limit = choice.pc, choice.limit
    first = pc
    self._interrupted = False
    self._moved = False
    try:
      while pc != limit:
        group.pc = pc
        group.instruction = body[pc]
        for hook in hooks:
          hook(group)
        program[pc](group)
        if self._interrupted:
          self._move()
          break
        pc += 1
      else:
        self.pc[group.index] = pc
    except errors.SimulationError as e:
      if e.where is None:
        e.where = group.where(0)
      raise
    except IndexError as e:
      if pc < len(body):
        e.add_note(f"while executing {group.where(0)}")
        raise
      raise errors.PtxSyntaxError(
          "Threads ran past the end of the kernel; expected `ret` or `exit`."
      ) from None
    except Exception as e:
      e.add_note(f"while executing {group.where(0)}")
      raise
    finally:
      self._moved = True
      self.steps += pc - first + self._interrupted
    if self.max_steps is not None and self.steps > self.max_steps:
      raise errors.SimulationError(
          f"The kernel has not finished after {self.steps} steps; raise"
          " max_steps if it should run longer.",
          group.where(0),
      )

  def _move(self) -> None:
    """Lets the group stand behind the current instruction."""
    if not self._moved:
      self.pc[self._group.index] = self._group.pc + 1
      self._moved = True
    self._interrupted = True

  # What a step may ask for.

  def branch(self, step: Step, target: int) -> None:
    self._move()
    self.pc[step.index] = target
    if target <= step.pc:
      self.spins[step.index] += 1
      self.spinning = self.spinning or bool(
          self.spins[step.index].max() >= self.policy.patience
      )

  def retry(self, step: Step, mask: np.ndarray | bool = True) -> None:
    self._move()
    self.pc[_pick(step, mask)] = step.pc

  def park(
      self,
      step: Step,
      mask: np.ndarray | bool,
      key: Hashable,
      describe: str | Callable[[], str],
  ) -> None:
    threads = _pick(step, mask)
    if not threads.size:
      return
    self._move()
    self.pc[threads] = step.pc
    self.state[threads] = PARKED
    self.spins[threads] = 0
    self.parked.setdefault(key, []).append(
        _Waiting(threads, step.pc, describe)
    )

  def wake(self, key: Hashable) -> None:
    for waiting in self.parked.pop(key, ()):
      self.state[waiting.threads] = RUNNABLE
      # Others may now stand where the group would join them.
      self._interrupted = True

  def exit(self, step: Step) -> None:
    self._move()
    self.state[step.index] = EXITED
    warps = set((step.threads // WARP).tolist())
    for key in list(self.parked):
      if isinstance(key, LanesKey) and key.warp in warps:
        self.wake(key)
    self.machine.barriers.threads_exited(step.ctas)

  # Instructions of a whole warp.

  def converge(self, step: Step, members: np.ndarray | None) -> Step | None:
    """Returns the step of those warps whose lanes have all arrived.

    Lanes that come early wait for the rest of their warp. None if no warp is
    complete.

    Args:
      step: the active threads.
      members: the lanes to wait for, bool [n, 32], equal in a warp; None for
        all lanes, of which none may have exited (`.aligned`).
    """
    if step.full:
      return step
    warps, first = np.unique(step.threads // WARP, return_index=True)
    active = np.zeros(self.pc.size, np.bool_)
    active[step.threads] = True
    active = active.reshape(-1, WARP)[warps]
    exited = (self.state == EXITED).reshape(-1, WARP)[warps]
    exists = self.machine.exists.reshape(-1, WARP)[warps]
    missing = exists & ~active
    if members is not None:
      missing &= members[first] & ~exited
    if not missing.any():
      return step
    gone = missing & exited
    if gone.any():
      row = int(np.flatnonzero(gone.any(axis=1))[0])
      raise errors.DivergenceError(
          f"Lanes {_ranges(gone[row])} of the warp have exited; `.aligned`"
          " instructions need all lanes of the warp.",
          step.where(int(first[row]), lane=False),
      )
    keep = np.ones(step.n, np.bool_)
    row_of_thread = np.searchsorted(warps, step.threads // WARP)
    for row in np.flatnonzero(missing.any(axis=1)):
      warp = int(warps[row])
      lanes = np.flatnonzero(missing[row]) + warp * WARP
      here = row_of_thread == row
      keep[here] = False
      key = LanesKey(warp, step.pc)
      waiting = [w.threads for w in self.parked.get(key, ())]
      if waiting and np.isin(lanes, np.concatenate(waiting)).all():
        self.wake(key)
        self.retry(step, here)
        continue
      passing = np.isin(lanes, self._group.threads)
      if passing.any():
        raise errors.DivergenceError(
            f"Lanes {_ranges(active[row])} of the warp execute this, but the"
            f" guard is false in lanes {_ranges(missing[row])}; expected all"
            " lanes to agree.",
            step.where(int(first[row]), lane=False),
        )
      self.park(
          step, here, key,
          f"waits for lanes {_ranges(missing[row])} of its warp",
      )
    if not keep.any():
      return None
    return step.select(keep)

  def _deadlock(self) -> errors.SimulationError:
    rows = []
    waits_for_lanes: dict[int, bool] = {}
    for key, list_ in self.parked.items():
      for waiting in list_:
        describe = waiting.describe
        if callable(describe):
          describe = describe()
        ins = self.machine.kernel.body[waiting.pc]
        for warp in np.unique(waiting.threads // WARP):
          lanes = waiting.threads[waiting.threads // WARP == warp]
          cta, warp_in_cta, _ = self.machine.identify(int(lanes[0]))
          active = np.zeros(WARP, np.bool_)
          active[lanes % WARP] = True
          rows.append((
              int(lanes[0]),
              f"  CTA ({','.join(map(str, cta))}) warp {warp_in_cta} lanes"
              f" {_ranges(active)}: {describe}; line {ins.line}:"
              f" `{' '.join(ins.text.split())}`",
              errors.Where(ins.line, ins.text, cta, warp_in_cta),
          ))
          waits = waits_for_lanes.get(int(warp), True)
          waits_for_lanes[int(warp)] = waits and isinstance(key, LanesKey)
    rows.sort(key=lambda row: row[0])
    exited = int(((self.state == EXITED) & self.machine.exists).sum())
    table = "\n".join(row[1] for row in rows)
    message = (
        f"{{}} All threads wait, {exited} of"
        f" {int(self.machine.exists.sum())} have exited:\n{table}"
    )
    if any(waits_for_lanes.values()):
      # Parts of one warp stand at different warp-wide instructions.
      return errors.DivergenceError(message.format("Divergence."), rows[0][2])
    return errors.DeadlockError(message.format("Deadlock."), rows[0][2])


def _pick(step: Step, mask: np.ndarray | bool) -> np.ndarray:
  if mask is True:
    return step.threads
  return step.threads[mask]


def _ranges(lanes: np.ndarray) -> str:
  """Writes a bool array of lanes as "0-3,7"."""
  result, numbers = [], np.flatnonzero(lanes).tolist()
  while numbers:
    end = 1
    while end < len(numbers) and numbers[end] == numbers[0] + end:
      end += 1
    last = numbers[end - 1]
    result.append(f"{numbers[0]}-{last}" if end > 1 else f"{last}")
    del numbers[:end]
  return ",".join(result)
