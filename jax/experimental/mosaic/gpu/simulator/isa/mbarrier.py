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
"""Mbarriers and cluster launch control (PTX ISA 9.7.13.15, 9.7.13.16)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .. import mbarrier
from ..errors import SimulationError
from ..registers import RegisterSlot, SinkValue
from ..table import instruction
from . import units

_SPACE = "[.<space:shared::cta|shared::cluster|shared>]"
_OWN = "[.<space:shared::cta|shared>]"
_SEM = "[.<sem:release|acquire|relaxed>][.<scope:cta|cluster>]"


@instruction(
    f"mbarrier.init{_OWN}.b64", "[bar], count", section="9.7.13.15.9"
)
def init(op):
  def execute(step):
    who = units.accesses(step, "mbarrier.init")
    ctas, addrs = units.shared_locations(step, op.bar, op.space, who)
    units.require_own(step, ctas, who, "init")
    counts = units.values(step, op.count, np.uint32)
    for i, (cta, addr) in enumerate(zip(ctas.tolist(), addrs.tolist())):
      one = units.issuer(step, i, "mbarrier.init", "barrier")
      step.machine.mbarriers.init(cta, addr, counts[i], one)

  return execute


@instruction(f"mbarrier.inval{_OWN}.b64", "[bar]", section="9.7.13.15.10")
def inval(op):
  def execute(step):
    who = units.accesses(step, "mbarrier.inval", "barrier")
    ctas, addrs = units.shared_locations(step, op.bar, op.space, who)
    units.require_own(step, ctas, who, "inval")
    for i, (cta, addr) in enumerate(zip(ctas.tolist(), addrs.tolist())):
      one = units.issuer(step, i, "mbarrier.inval", "barrier")
      step.machine.mbarriers.inval(cta, addr, one)

  return execute


def _locations(step, op, what, write_state):
  """Locations of an arrive; remote ones have no state to return."""
  who = units.accesses(step, what, "barrier")
  ctas, addrs = units.shared_locations(step, op.bar, op.space, who)
  if write_state:
    remote = ctas != step.ctas
    if remote.any():
      raise SimulationError(
          f"{what}: an arrive on an mbarrier of another CTA has no state;"
          " expected `_` as the destination",
          who.locate(int(np.flatnonzero(remote)[0])),
      )
  return ctas.tolist(), addrs.tolist()


@instruction(
    f"mbarrier.<name:arrive|arrive_drop>[.<mode:noComplete>]{_SEM}{_SPACE}.b64",
    "state, [bar], count?",
    section="9.7.13.15.13 (arrive), 9.7.13.15.14 (arrive_drop)",
)
@instruction(
    f"mbarrier.<name:arrive|arrive_drop>{_SEM}.<mode:noComplete>{_SPACE}.b64",
    "state, [bar], count?",
    section="9.7.13.15.13 (arrive), 9.7.13.15.14 (arrive_drop)",
)
@instruction(
    f"mbarrier.<name:arrive|arrive_drop>.<mode:expect_tx>{_SEM}{_SPACE}.b64",
    "state, [bar], count",
    section="9.7.13.15.13 (arrive), 9.7.13.15.14 (arrive_drop)",
)
def arrive(op):
  what = f"mbarrier.{op.name}"
  expect = op.mode == "expect_tx"
  drop = op.name == "arrive_drop"
  no_complete = op.mode == "noComplete"
  wants_state = not isinstance(op.state, SinkValue)
  if no_complete and op.count is None:
    raise op.unsupported("noComplete needs a count.")
  together = not (drop or no_complete or wants_state)

  def execute(step):
    ctas, addrs = _locations(step, op, what, wants_state)
    counts = (
        [1] * step.n
        if op.count is None
        else units.values(step, op.count, np.uint32)
    )
    barriers = step.machine.mbarriers
    places = list(zip(ctas, addrs, counts))
    own = step.ctas.tolist()
    states = np.zeros(step.n, np.uint64)
    i = 0
    while i < step.n:
      cta, addr, count = places[i]
      who = units.issuer(step, i, what, "barrier")
      here = (own[i], places[i])
      n = 1
      if together and cta == own[i]:
        # Many threads at one barrier: as good as one after another.
        while i + n < step.n and (own[i + n], places[i + n]) == here:
          n += 1
        arrivals = n if expect else n * count
        if arrivals > barriers.get(cta, addr, who).pending:
          n = 1
      if n > 1:
        who.threads = step.threads[i : i + n]
      run = functools.partial(
          barriers.arrive,
          cta,
          addr,
          n if expect else n * count,
          who,
          expect_tx=n * count if expect else 0,
          drop=drop,
          no_complete=no_complete,
      )
      if cta == own[i]:
        states[i] = run()
      else:  # It takes a while to get there.
        units.submit(step, "remote arrive", i, run)
      i += n
    step.write(op.state, states)

  return execute


@instruction(
    f"mbarrier.<name:expect_tx|complete_tx>{_SEM}{_SPACE}.b64",
    "[bar], bytes",
    section="9.7.13.15.11 (expect_tx), 9.7.13.15.12 (complete_tx)",
)
def transaction(op):
  what = f"mbarrier.{op.name}"

  def execute(step):
    ctas, addrs = _locations(step, op, what, False)
    counts = units.values(step, op.bytes, np.uint32)
    function = getattr(step.machine.mbarriers, op.name)
    for i, (cta, addr) in enumerate(zip(ctas, addrs)):
      function(cta, addr, counts[i], units.issuer(step, i, what, "barrier"))

  return execute


@instruction(
    f"mbarrier.<name:test_wait|try_wait>.<parity:parity>{_SEM}{_OWN}.b64",
    "done, [bar], phase, hint?",
    section="9.7.13.15.16 (test_wait, try_wait)",
)
@instruction(
    f"mbarrier.<name:test_wait|try_wait>{_SEM}{_OWN}.b64",
    "done, [bar], phase, hint?",
    section="9.7.13.15.16 (test_wait, try_wait)",
)
def wait(op):
  what = f"mbarrier.{op.name}"
  by_parity = getattr(op, "parity", None) is not None
  dtype = np.dtype(np.uint32 if by_parity else np.uint64)
  suspends = op.name == "try_wait"

  def execute(step):
    who = units.accesses(step, what, "barrier")
    ctas, addrs = units.shared_locations(step, op.bar, op.space, who)
    units.require_own(step, ctas, who, "a wait for the phase")
    phases = np.broadcast_to(step.read(op.phase, dtype), (step.n,))
    barriers = step.machine.mbarriers
    passed = barriers.passed if by_parity else barriers.passed_token
    first = int(ctas[0]), int(addrs[0]), int(phases[0])
    if (
        (ctas == first[0]).all()
        and (addrs == first[1]).all()
        and (phases == phases[0]).all()
    ):
      done = np.full(
          step.n, passed(*first, units.issuer(step, 0, what, "barrier"))
      )
    else:
      done = np.empty(step.n, np.bool_)
      known: dict[Any, bool] = {}
      places = zip(ctas.tolist(), addrs.tolist(), phases.tolist())
      for i, place in enumerate(places):
        if place not in known:
          one = units.issuer(step, i, what, "barrier")
          known[place] = passed(*place, one)
        done[i] = known[place]
    if done.any():
      barriers.tell_passed(ctas, addrs, done, step.threads, who)
    for hook in step.machine.on_wait:
      hook(ctas, addrs, done, step.threads)
    if not suspends or done.all():
      step.write(op.done, done)
      return
    # A wait that may suspend does so until it can succeed.
    if done.any():
      step.select(done).write(op.done, np.ones(int(done.sum()), np.bool_))
    blocked = ~done
    while blocked.any():
      i = int(np.flatnonzero(blocked)[0])
      cta, addr, phase = int(ctas[i]), int(addrs[i]), int(phases[i])
      same = blocked & (ctas == cta) & (addrs == addr) & (phases == phase)
      step.park(
          same,
          barriers.key(cta, addr),
          lambda cta=cta, addr=addr, phase=phase: (
              f"waits for {barriers.describe(cta, addr)}, "
              + (f"parity {phase}" if by_parity else f"state {phase:#x}")
          ),
      )
      blocked &= ~same

  return execute


@instruction(
    "mbarrier.pending_count.b64", "count, state", section="9.7.13.15.17"
)
def pending_count(op):
  def execute(step):
    states = units.values(step, op.state, np.uint64)
    counts = [mbarrier.pending_count(state) for state in states]
    step.write(op.count, np.array(counts, np.uint32))

  return execute


@instruction(
    f"cp.async.mbarrier.arrive[.<noinc>]{_OWN}.b64",
    "[bar]",
    section="9.7.13.15.15 (cp.async.mbarrier.arrive)",
)
def copy_arrive(op):
  what = "cp.async.mbarrier.arrive"

  def execute(step):
    ctas, addrs = _locations(step, op, what, False)
    machine = step.machine
    for i, (cta, addr) in enumerate(zip(ctas, addrs)):
      who = units.issuer(step, i, what, "barrier")
      if not op.noinc:
        machine.mbarriers.add_pending(cta, addr, 1, who)
      # After the earlier cp.async of the thread, which share the queue.
      units.submit(
          step,
          what,
          i,
          lambda cta=cta, addr=addr, who=who: machine.mbarriers.arrive(
              cta, addr, 1, who
          ),
          queue=("cp.async", int(step.threads[i])),
      )

  return execute


# Cluster launch control.


@instruction(
    "clusterlaunchcontrol.try_cancel.async[.<space:shared::cta>]"
    ".mbarrier::complete_tx::bytes[.<multicast:multicast::cluster::all>].b128",
    "[dst], [bar]",
    section="9.7.13.16.1",
)
def try_cancel(op):
  what = "clusterlaunchcontrol.try_cancel"

  def execute(step):
    who = units.accesses(step, what, "async")
    ctas, dsts = units.shared_locations(step, op.dst, op.space, who)
    _, bars = units.shared_locations(step, op.bar, op.space, who)
    machine = step.machine
    for i, cta in enumerate(ctas.tolist()):
      one = units.issuer(step, i, what)
      targets = [cta]
      if op.multicast:
        size = machine.spaces.cluster_size
        targets = [machine.spaces.member(cta, r, one) for r in range(size)]

      def run(targets=targets, dst=int(dsts[i]), bar=int(bars[i]), one=one):
        first = machine.cancel_next_cluster()
        words = np.array(
            [0, 0, 0, 0] if first is None else [1, *first], np.uint32
        )
        for target in targets:
          machine.shared.write(
              target, np.array([dst]), words.view(np.uint8)[None, :], one
          )
          machine.mbarriers.complete_tx(target, bar, 16, one)

      units.submit(
          step, what, i, run,
          writes=units.ranges("shared", targets, int(dsts[i]), 16),
          signals=units.signals(targets, targets, int(bars[i])),
      )

  return execute


def _handle(step, operand) -> np.ndarray:
  """The words of a try_cancel response, uint32 [n, 4]."""
  halves = np.ascontiguousarray(step.read(operand, np.uint64))
  return halves.view(np.uint32).reshape(-1, 4)


@instruction(
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
    "p, handle",
    section="9.7.13.16.2",
)
def is_canceled(op):
  def execute(step):
    step.write(op.p, _handle(step, op.handle)[:, 0] != 0)

  return execute


@instruction(
    "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
    "{ids}, handle",
    section="9.7.13.16.2",
)
def first_ctaid(op):
  def execute(step):
    words = _handle(step, op.handle)
    step.write_vector(op.ids, np.roll(words, -1, axis=1))

  def otherwise(step):
    # JAX guards this with is_canceled, but goes on to compute with the ids, and
    # looks only then whether there are any. No CTA has an id of all ones.
    for register in op.ids:
      if isinstance(register, RegisterSlot):
        missing = ~register.written[step.index]
        if not register.complete and missing.any():
          step.select(missing).write(register, np.uint32(0xFFFF_FFFF))

  # Functions may have attributes.
  execute.otherwise = otherwise  # pyrefly: ignore[missing-attribute]
  return execute


@instruction(
    "clusterlaunchcontrol.query_cancel.get_first_ctaid::<axis:x|y|z>.b32.b128",
    "d, handle",
    section="9.7.13.16.2",
)
def first_ctaid_axis(op):
  column = 1 + "xyz".index(op.axis)

  def execute(step):
    step.write(op.d, _handle(step, op.handle)[:, column])

  return execute
