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
"""Branches, barriers, and instructions without effect in this model."""

from __future__ import annotations

import numpy as np

from .. import errors
from ..registers import LabelValue
from ..table import instruction


@instruction("bra[.<uni>]", "target", section="9.7.12.3 (bra)")
def bra(op):
  if not isinstance(op.target, LabelValue):
    raise op.unsupported("expected a label.")
  target = op.target.target

  def execute(step):
    step.branch(target)

  return execute


@instruction("ret[.<uni>]", section="9.7.12.5 (ret)")
@instruction("exit", section="9.7.12.6 (exit)")
def leave(op):
  """In an entry function both end the thread."""

  def execute(step):
    step.exit()

  return execute


@instruction("trap", section="9.7.19.4 (trap)")
def trap(op):

  def execute(step):
    raise errors.TrapError("The kernel executed trap.", step.where(0))

  return execute


# Named barriers. The hardware counts whole warps, so each form waits for all
# lanes of its warp first, whether it says .aligned or not.

_BAR = "<name:bar|barrier>[.<cta>]"


@instruction(
    f"{_BAR}.<kind:sync>[.<align:aligned>]", "a, b?", section="9.7.13.1 (bar)",
    aligned=True,
)
@instruction(
    f"{_BAR}.<kind:arrive>[.<align:aligned>]", "a, b",
    section="9.7.13.1 (bar)", aligned=True,
)
def bar(op):
  wait = op.kind == "sync"

  def execute(step):
    for part, number, count in _by_barrier(step, op.a, op.b):
      step.machine.barriers.arrive(part, number, count, wait)

  return execute


@instruction(
    f"{_BAR}.red.<kind:popc>[.<align:aligned>].u32", "d, a, !c",
    section="9.7.13.1 (bar)", aligned=True,
)
@instruction(
    f"{_BAR}.red.<kind:popc>[.<align:aligned>].u32", "d, a, b, !c",
    section="9.7.13.1 (bar)", aligned=True,
)
@instruction(
    f"{_BAR}.red.<kind:and|or>[.<align:aligned>].pred", "d, a, !c",
    section="9.7.13.1 (bar)", aligned=True,
)
@instruction(
    f"{_BAR}.red.<kind:and|or>[.<align:aligned>].pred", "d, a, b, !c",
    section="9.7.13.1 (bar)", aligned=True,
)
def bar_red(op):
  column = ("popc", "and", "or").index(op.kind)
  dtype = np.uint32 if op.kind == "popc" else np.bool_
  b = op.__dict__.get("b")

  def execute(step):
    barriers = step.machine.barriers
    for part, number, count in _by_barrier(step, op.a, b):
      predicate = op.c.read(part, np.bool_)
      ready = barriers.arrive(part, number, count, True, predicate)
      if ready is not None:
        result = barriers.result[ready.index, column]
        op.d.write(ready, result.astype(dtype))

  return execute


def _by_barrier(step, a, b):
  """Yields (step, barrier number, thread count or None) for each barrier."""
  number = a.read(step, np.uint32)
  count = np.zeros((), np.uint32) if b is None else b.read(step, np.uint32)
  if not number.ndim and not count.ndim:
    yield step, number.item(), None if b is None else count.item()
    return
  both = np.empty((step.n, 2), np.int64)
  both[:, 0], both[:, 1] = number, count
  if (both == both[0]).all():
    yield step, int(both[0, 0]), None if b is None else int(both[0, 1])
    return
  for pair in np.unique(both, axis=0):
    part = step.select((both == pair).all(axis=1))
    yield part, int(pair[0]), None if b is None else int(pair[1])


@instruction(
    "barrier.cluster.arrive[.<sem:release|relaxed>][.<align:aligned>]",
    section="9.7.13.4 (barrier.cluster)",
)
def barrier_cluster_arrive(op):

  def execute(step):
    step.machine.barriers.arrive_cluster(step)

  return execute


@instruction(
    "barrier.cluster.wait[.<sem:acquire>][.<align:aligned>]",
    section="9.7.13.4 (barrier.cluster)",
)
def barrier_cluster_wait(op):

  def execute(step):
    step.machine.barriers.wait_cluster(step)

  return execute


# Every step is sequentially consistent, so what orders memory has nothing to
# do; whether asynchronous operations are ordered is for observers to check.

_PROXY = (
    "alias|async|async.global|async.shared::cta|async.shared::cluster"
    "|async.shared"
)
_SCOPE = "cta|cluster|gpu|sys"
_FENCE = "9.7.13.5 (fence)"


@instruction(
    f"fence[.<sem:sc|acq_rel|acquire|release>].<scope:{_SCOPE}>",
    section=_FENCE,
)
@instruction(
    "fence.<sem:acquire|release>"
    ".sync_restrict::<space:shared::cta|shared::cluster>.cluster",
    section=_FENCE,
)
@instruction("fence.mbarrier_init.release.cluster", section=_FENCE)
@instruction("membar.<scope:cta|gl|sys>", section=_FENCE)
@instruction(f"membar.proxy.<proxy:{_PROXY}>", section=_FENCE)
@instruction("nanosleep.u32", "t", section="9.7.19.3 (nanosleep)")
@instruction(
    "setmaxnreg.<how:inc|dec>.sync.aligned.u32", "count",
    section="9.7.19.5 (setmaxnreg)",
)
@instruction(
    "griddepcontrol.<how:launch_dependents|wait>",
    section="9.7.13.13 (griddepcontrol)",
)
@instruction("pmevent[.<mask>]", "a", section="9.7.19.2 (pmevent)")
@instruction(
    "applypriority[.<space:global>].L2::evict_normal", "[a], size",
    section="9.7.9.16 (applypriority)",
)
def no_effect(op):

  def execute(step):
    pass

  return execute
