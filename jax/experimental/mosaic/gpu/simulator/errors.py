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
"""Errors of the simulator. Every one says where in the PTX it happened."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Where:
  """A place in a running kernel: the PTX line and who executed it."""

  line: int
  text: str
  cta: tuple[int, int, int] | None = None
  warp: int | None = None  # Within the CTA.
  lane: int | None = None

  def __str__(self) -> str:
    who = []
    if self.cta is not None:
      who.append(f"CTA ({','.join(map(str, self.cta))})")
    if self.warp is not None:
      who.append(f"warp {self.warp}")
    if self.lane is not None:
      who.append(f"lane {self.lane}")
    text = " ".join(self.text.split())
    suffix = f" ({', '.join(who)})" if who else ""
    return f"PTX line {self.line}: `{text}`{suffix}"


class SimulationError(Exception):
  """Base of all errors a simulated kernel can cause.

  Code that does not know its place in the PTX raises without `where`; the
  executor fills it in.
  """

  def __init__(self, message: str, where: Where | None = None):
    super().__init__(message)
    self.message = message
    self.where = where

  def __str__(self) -> str:
    if self.where is None:
      return self.message
    return f"{self.message}\n  at {self.where}"


class PtxSyntaxError(SimulationError):
  """The text is not PTX as LLVM or Mosaic GPU write it."""


class UnsupportedPtxError(SimulationError):
  """Valid PTX perhaps, but not modelled."""


class MemoryFault(SimulationError):
  """Out of range, misaligned, or a read of something never written."""


class UnwrittenRegisterError(MemoryFault):
  """A register was read before it was written."""


class DivergenceError(SimulationError):
  """A warp-wide instruction was reached by only a part of the warp."""


class DeadlockError(SimulationError):
  """Every thread that has not exited waits, and nothing can wake them."""


class TmemFault(SimulationError):
  """An access to tensor memory that the hardware does not allow."""


class BarrierFault(SimulationError):
  """Misuse of an mbarrier or of a named barrier."""


class ResourceError(SimulationError):
  """The launch asks for more than an SM has."""


class RaceError(SimulationError):
  """Two accesses of which one writes, with nothing that orders them.

  Attributes:
    other: the place of the earlier access; `where` is that of the later one.
  """

  other: Where | None = None


class TrapError(SimulationError):
  """The kernel executed `trap`."""
