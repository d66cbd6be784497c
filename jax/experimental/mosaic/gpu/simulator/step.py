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
"""One step: an instruction applied to a set of active threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Hashable

import numpy as np

from . import errors

if TYPE_CHECKING:
  from . import machine as machine_lib
  from . import ptx

WARP = 32


class Step:
  """What an instruction may see and do.

  A Step belongs to a set of threads and is reused for every instruction that
  exactly this set executes, so keep nothing of it beyond `execute`: take
  `step.where()` and copies of arrays for anything that completes later.

  Attributes:
    threads: machine thread numbers of the active threads, int64 [n], sorted.
    n: their number.
    index: what to index an array over all T threads with; a slice where the
      threads are contiguous, so that reads are views.
    full: whether all T threads are active.
    instruction, pc: the instruction being executed.
  """

  __slots__ = (
      "machine", "threads", "n", "index", "full", "instruction", "pc",
      "_ctas", "_warps", "_lane", "_warp_in_cta", "_rows",
  )

  def __init__(self, machine: machine_lib.Machine, threads: np.ndarray):
    self.machine = machine
    self.threads = threads
    self.n = n = threads.size
    first, last = int(threads[0]), int(threads[-1])
    self.full = n == machine.num_threads
    self.index = slice(first, last + 1) if last - first + 1 == n else threads
    self.instruction: ptx.Instruction | None = None
    self.pc = -1
    self._ctas: np.ndarray | None = None
    self._warps: np.ndarray | None = None
    self._lane: np.ndarray | None = None
    self._warp_in_cta: np.ndarray | None = None
    self._rows: Any = None  # Of isa/warp.py.

  # Who is active.

  @property
  def ctas(self) -> np.ndarray:
    """Resident slot of the CTA of each active thread, int64 [n]."""
    if self._ctas is None:
      self._ctas = self.machine.cta_of_thread[self.index]
    return self._ctas

  @property
  def lane(self) -> np.ndarray:
    """Lane of each active thread, int64 [n]."""
    if self._lane is None:
      self._lane = self.threads % WARP
    return self._lane

  @property
  def warp_in_cta(self) -> np.ndarray:
    """Warp within its CTA of each active thread, int64 [n]."""
    if self._warp_in_cta is None:
      self._warp_in_cta = self.threads // WARP % self.machine.warps_per_cta
    return self._warp_in_cta

  def warps(self) -> np.ndarray:
    """Machine warp numbers [w]; all 32 lanes of each must be active."""
    if self._warps is None:
      warps, counts = np.unique(self.threads // WARP, return_counts=True)
      short = np.flatnonzero(counts != WARP)
      if short.size:
        thread = int(np.searchsorted(self.threads, warps[short[0]] * WARP))
        raise errors.DivergenceError(
            "Expected all 32 lanes of the warp to execute this together, got"
            f" {counts[short[0]]}.",
            self.where(thread, lane=False),
        )
      self._warps = warps
    return self._warps

  def by_warp(self, values: Any) -> np.ndarray:
    """Rearranges values [n] (or a scalar) as [w, 32]."""
    return np.broadcast_to(values, (self.n,)).reshape(-1, WARP)

  def select(self, mask: np.ndarray) -> Step:
    """The step of the active threads where `mask` [n] is set (not none)."""
    result = self.machine.step_of(self.threads[mask])
    result.instruction = self.instruction
    result.pc = self.pc
    return result

  def where(self, index: int | None = None, lane: bool = True) -> errors.Where:
    """Place of the active thread number `index`; None names no thread."""
    instruction = self.instruction
    if instruction is None:
      return errors.Where(0, "")
    if index is None:
      return errors.Where(instruction.line, instruction.text)
    thread = int(self.threads[index])
    cta, warp, lane_number = self.machine.identify(thread)
    return errors.Where(
        instruction.line, instruction.text, cta, warp,
        lane_number if lane else None,
    )

  # Operands.

  def read(self, operand: Any, dtype: Any) -> np.ndarray:
    """Values broadcastable to [n]; possibly a view, so read before writing."""
    return operand.read(self, dtype)

  def read_full(self, operand: Any, dtype: Any) -> np.ndarray:
    """Values [n], also of an immediate."""
    values = operand.read(self, dtype)
    return values if values.ndim else np.broadcast_to(values, (self.n,))

  def write(self, operand: Any, values: Any) -> None:
    operand.write(self, values)

  def read_vector(self, operand: Any, dtype: Any) -> np.ndarray:
    """Values [n, k] of `{a, b, ...}`."""
    return operand.read(self, dtype)

  def write_vector(self, operand: Any, values: np.ndarray) -> None:
    """Writes values [n, k] to `{a, b, ...}`."""
    operand.write(self, values)

  def address(self, operand: Any) -> np.ndarray:
    """Addresses int64 [n] of an operand `[...]`."""
    return operand.read(self)

  def uniform(self, operand: Any, dtype: Any) -> Any:
    """The value all active threads agree on, as a Python number."""
    values = operand.read(self, dtype)
    if not values.ndim:
      return values.item()
    first = values[0]
    different = np.flatnonzero(values != first)
    if different.size:
      name = getattr(operand, "name", "operand")
      raise errors.DivergenceError(
          f"Expected {name} to be the same in all active threads, got"
          f" {first} and {values[different[0]]}.",
          self.where(int(different[0])),
      )
    return first.item()

  # Control.

  def park(
      self,
      mask: np.ndarray | bool,
      key: Hashable,
      describe: str | Callable[[], str],
  ) -> None:
    """Lets the threads in `mask` [n] wait for `machine.wake(key)`.

    They do not advance and execute the instruction again after the wake.
    """
    self.machine.scheduler.park(self, mask, key, describe)

  def retry(self, mask: np.ndarray | bool = True) -> None:
    """Lets the threads in `mask` execute the instruction again, no waiting."""
    self.machine.scheduler.retry(self, mask)

  def branch(self, target: int) -> None:
    """Continues the active threads at body index `target`."""
    self.machine.scheduler.branch(self, target)

  def exit(self) -> None:
    """Ends the active threads."""
    self.machine.scheduler.exit(self)
