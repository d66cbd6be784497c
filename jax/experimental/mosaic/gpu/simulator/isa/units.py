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
"""What the instructions of tensor memory, TMA and mbarriers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..asynchrony import AsyncOp
from ..errors import DivergenceError, SimulationError
from ..memory import SHARED_BASE, SHARED_WINDOW
from ..observers import Access, listeners
from ..registers import AddressValue


def accesses(step: Any, what: str, proxy: str = "generic") -> Access:
  """The accesses of the active threads, for use during the step."""
  return Access(step.where, proxy, what, step.threads)


def issuer(step: Any, index: int, what: str, proxy: str = "async") -> Access:
  """One active thread, for use also after the step."""
  return Access(
      step.where(index), proxy, what, int(step.threads[index])
  )


def shared_locations(
    step: Any, address: Any, space: str | None, who: Access
) -> tuple[np.ndarray, np.ndarray]:
  """(resident CTA [n], offset [n]) of an operand in shared memory.

  Args:
    step: the step.
    address: the operand.
    space: "shared", "shared::cta", "shared::cluster", or None for a generic
      address. All but plain ones of the own CTA carry a rank.
    who: for messages.
  """
  addr = step.address(address)
  own = step.ctas
  if space is None and not _names_shared(address):
    outside = (addr < SHARED_BASE) | (addr >= SHARED_BASE + SHARED_WINDOW)
    if outside.any():
      i = int(np.flatnonzero(outside)[0])
      raise SimulationError(
          f"{who.what}: generic address {int(addr[i]):#x} is not in shared"
          " memory",
          who.locate(i),
      )
    addr = addr - SHARED_BASE
  elif (addr >= SHARED_BASE).any():
    addr = np.where(addr >= SHARED_BASE, addr - SHARED_BASE, addr)
  return step.machine.spaces.cluster_shared(own, addr, who)


def _names_shared(address: Any) -> bool:
  return isinstance(address, AddressValue) and address.space == "shared"


def require_own(step: Any, ctas: np.ndarray, who: Access, verb: str) -> None:
  """Raises if a location is in another CTA."""
  remote = ctas != step.ctas
  if remote.any():
    raise SimulationError(
        f"{who.what}: {verb} of an object in another CTA is not possible;"
        " expected an address of the own CTA",
        who.locate(int(np.flatnonzero(remote)[0])),
    )


def per_warp(step: Any, values: np.ndarray, what: str) -> np.ndarray:
  """Values [n] that must be equal in each warp, as [w]."""
  values = step.by_warp(values)
  different = values != values[:, :1]
  if different.any():
    warp, lane = np.argwhere(different)[0]
    raise DivergenceError(
        f"{what} must be the same in all lanes of the warp, got"
        f" {int(values[warp, 0]):#x} and {int(values[warp, lane]):#x}",
        step.where(int(32 * warp + lane)),
    )
  return values[:, 0]


def values(step: Any, operand: Any, dtype: Any) -> list[int]:
  """The operand of each active thread as Python numbers."""
  return np.broadcast_to(step.read(operand, dtype), (step.n,)).tolist()


def threads(step: Any) -> Iterator[tuple[int, int, int]]:
  """(index, resident CTA, machine thread) of each active thread."""
  return zip(range(step.n), step.ctas.tolist(), step.threads.tolist())


def submit(
    step: Any, kind: str, index: int, run: Callable[[], None], **options: Any
) -> None:
  """Issues an asynchronous operation of one active thread."""
  step.machine.asynchrony.submit(
      AsyncOp(
          kind,
          int(step.ctas[index]),
          int(step.threads[index]),
          run,
          where=options.pop("where", None) or step.where(index),
          **options,
      )
  )


def ranges(
    space: str, ctas: Iterable[int], first: int, size: int
) -> tuple[tuple[str, int, int, int], ...]:
  """An entry of AsyncOp.reads or .writes for each CTA."""
  return tuple((space, cta, first, first + size) for cta in ctas)


def signals(
    targets: Iterable[int], ctas: Iterable[int], bar: int
) -> tuple[tuple[int, int, int], ...]:
  """AsyncOp.signals: the CTA that each destination signals."""
  return tuple((target, cta, bar) for target, cta in zip(targets, ctas))


def tell(machine: Any, hook: str, *args: Any) -> None:
  """Calls a hook of all observers that have it."""
  for listener in listeners(machine.observers, hook):
    listener(*args)
