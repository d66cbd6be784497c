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
"""Instructions that exchange data between the lanes of a warp."""

from __future__ import annotations

import numpy as np

from .. import errors
from ..registers import ImmediateValue
from ..table import instruction
from .common import DTYPES

_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
_ALL = 0xFFFFFFFF


def _converge(step, mask):
  """The step of the complete warps, and their member masks uint32 [n].

  Lanes wait for the others that `mask` names, unless those have exited.
  """
  masks = mask.read(step, np.uint32)
  if step.full and not masks.ndim and masks == _ALL:
    return step, masks
  masks = np.broadcast_to(masks, (step.n,))
  own = _BITS[step.lane]
  outside = (masks & own) == 0
  if outside.any():
    i = int(np.flatnonzero(outside)[0])
    raise errors.DivergenceError(
        f"The lane is not in its own member mask {int(masks[i]):#x}.",
        step.where(i),
    )
  if step.full:
    return step, masks
  ready = step.machine.scheduler.converge(
      step, (masks[:, None] & _BITS) != 0
  )
  if ready is None:
    return None, masks
  if ready is not step:
    masks = np.broadcast_to(mask.read(ready, np.uint32), (ready.n,))
  return ready, masks


class _Rows:
  """Arranges values of the active threads by warp: [n] <-> [w, 32]."""

  def __init__(self, step):
    warps = step.threads // 32
    self.lane = step.lane
    self.row = np.searchsorted(np.unique(warps), warps)
    self.count = int(self.row[-1]) + 1
    self.whole = step.n == 32 * self.count
    # Bit mask of the active lanes of the warp of each thread.
    self.active = self.ballot(True)

  def arrange(self, values, fill=0):
    """Values [n] as [w, 32], with `fill` in lanes that are not active."""
    values = np.broadcast_to(values, self.row.shape)
    if self.whole:
      return values.reshape(self.count, 32)
    result = np.full((self.count, 32), fill, values.dtype)
    result[self.row, self.lane] = values
    return result

  def ballot(self, values):
    """Bit masks of the active lanes where bool `values` [n] is set; [n]."""
    rows = self.arrange(np.asarray(values, np.bool_), False)
    bits = np.where(rows, _BITS, np.uint32(0)).sum(axis=1, dtype=np.uint32)
    return bits[self.row]


def _rows(step):
  if step._rows is None:
    step._rows = _Rows(step)
  return step._rows


@instruction("elect.sync", "d|p, mask", section="9.7.13.14 (elect.sync)")
def elect(op):
  """PTX leaves the choice open; the lowest lane is the leader."""
  constant = isinstance(op.mask, ImmediateValue)
  everyone = constant and op.mask.value & _ALL == _ALL
  zero = np.zeros((), np.uint32)

  def execute(step):
    if everyone and step.full and step.machine.exists.all():
      op.d.write(step, zero)
      op.p.write(step, step.lane == 0)
      return
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    members = masks & _rows(step).active
    lowest = members & -members
    leader = np.bitwise_count(lowest - np.uint32(1))
    op.d.write(step, leader.astype(np.uint32))
    op.p.write(step, leader == step.lane)

  return execute


def _shuffle_sources(mode, lane, b, c):
  """The lane each lane reads from (itself if invalid), and the validity."""
  b, clamp, segment = b & 31, c & 31, c >> 8 & 31
  last = (lane & segment) | (clamp & ~segment)
  if mode == "up":
    source = lane - b
    valid = source >= last
  else:
    if mode == "down":
      source = lane + b
    elif mode == "bfly":
      source = lane ^ b
    else:
      source = (lane & segment) | (b & ~segment)
    valid = source <= last
  return np.where(valid, source, lane), valid


@instruction(
    "shfl.sync.<mode:up|down|bfly|idx>.b32", "d[|p], a, b, c, mask",
    section="9.7.9.6 (shfl.sync)",
)
def shfl(op):
  mode = op.mode
  constant = None  # Source lanes and validity, if they are known.
  if isinstance(op.b, ImmediateValue) and isinstance(op.c, ImmediateValue):
    constant = _shuffle_sources(mode, np.arange(32), op.b.value, op.c.value)

  def execute(step):
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    lane = step.lane
    a = op.a.read(step, np.uint32)
    rows = _rows(step)
    if constant is not None:
      source, valid = constant
      if rows.whole and not masks.ndim:  # All lanes of all warps.
        op.d.write(step, rows.arrange(a)[:, source].ravel())
        if op.p is not None:
          op.p.write(step, valid[lane])
        return
      source, valid = source[lane], valid[lane]
    else:
      b = op.b.read(step, np.uint32).astype(np.int64)
      c = op.c.read(step, np.uint32).astype(np.int64)
      source, valid = _shuffle_sources(mode, lane, b, c)
    members = masks & rows.active
    inactive = (members & _BITS[source]) == 0
    if inactive.any():
      i = int(np.flatnonzero(inactive)[0])
      raise errors.DivergenceError(
          f"The lane reads from lane {int(source[i])}, which does not take"
          " part.",
          step.where(i),
      )
    values = rows.arrange(a)[rows.row, source]
    op.d.write(step, values)
    if op.p is not None:
      op.p.write(step, valid)

  return execute


@instruction(
    "vote.sync.<mode:all|any|uni>.pred", "d, !a, mask",
    section="9.7.13.9 (vote.sync)",
)
@instruction(
    "vote.sync.<mode:ballot>.b32", "d, !a, mask",
    section="9.7.13.9 (vote.sync)",
)
def vote(op):

  def execute(step):
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    rows = _rows(step)
    members = masks & rows.active
    votes = masks & rows.ballot(op.a.read(step, np.bool_))
    match op.mode:
      case "ballot":
        result = votes
      case "all":
        result = votes == members
      case "any":
        result = votes != 0
      case _:
        result = (votes == members) | (votes == 0)
    op.d.write(step, result)

  return execute


@instruction("activemask.b32", "d", section="9.7.13.11 (activemask)")
def activemask(op):

  def execute(step):
    op.d.write(step, _rows(step).active)

  return execute


_REDUCTIONS = {
    "add": (np.add, lambda dtype: 0),
    "min": (np.minimum, lambda dtype: np.iinfo(dtype).max),
    "max": (np.maximum, lambda dtype: np.iinfo(dtype).min),
    "and": (np.bitwise_and, lambda dtype: np.iinfo(dtype).max),
    "or": (np.bitwise_or, lambda dtype: 0),
    "xor": (np.bitwise_xor, lambda dtype: 0),
}


def _member_rows(step, masks, op):
  """Which lanes take part, bool [w, 32]; a warp must have one mask."""
  rows = _rows(step)
  members = masks & rows.active
  first = members[np.unique(rows.row, return_index=True)[1]]
  if (members != first[rows.row]).any():
    raise op.unsupported("different member masks in one warp.")
  return (first[:, None] & _BITS) != 0


@instruction(
    "redux.sync.<kind:add|min|max>.<type:u32|s32>", "d, a, mask",
    section="9.7.13.12 (redux.sync)",
)
@instruction(
    "redux.sync.<kind:and|or|xor>.<type:b32>", "d, a, mask",
    section="9.7.13.12 (redux.sync)",
)
def redux(op):
  dtype = DTYPES[op.type]
  function, neutral = _REDUCTIONS[op.kind]
  neutral = dtype.type(neutral(dtype))

  def execute(step):
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    members = _member_rows(step, masks, op)
    rows = _rows(step)
    values = np.where(members, rows.arrange(op.a.read(step, dtype)), neutral)
    result = function.reduce(values, axis=1, dtype=dtype)
    op.d.write(step, result[rows.row])

  return execute


@instruction(
    "redux.sync.<kind:min|max>[.<abs>][.<nan:NaN>].f32", "d, a, mask",
    section="9.7.13.12 (redux.sync)",
)
def redux_f32(op):
  """NaN operands are left out; with .NaN one makes the result NaN."""
  largest = np.float32(np.inf if op.kind == "min" else -np.inf)
  canonical = np.uint32(0x7FFFFFFF).view(np.float32)

  def execute(step):
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    members = _member_rows(step, masks, op)
    rows = _rows(step)
    values = rows.arrange(op.a.read(step, np.float32))
    if op.abs:
      values = np.abs(values)
    nan = np.isnan(values) & members
    reduce = np.minimum if op.kind == "min" else np.maximum
    result = reduce.reduce(
        np.where(members & ~nan, values, largest), axis=1
    )
    bad = nan.any(axis=1) if op.nan else (nan == members).all(axis=1)
    result = np.where(bad, canonical, result)
    op.d.write(step, result[rows.row])

  return execute


@instruction(
    "match.any.sync.<type:b32|b64>", "d, a, mask",
    section="9.7.13.10 (match.sync)",
)
@instruction(
    "match.all.sync.<type:b32|b64>", "d[|p], a, mask",
    section="9.7.13.10 (match.sync)",
)
def match(op):
  dtype = DTYPES[op.type]
  is_all = ".all." in op.instruction.opcode

  def execute(step):
    step, masks = _converge(step, op.mask)
    if step is None:
      return
    members = _member_rows(step, masks, op)
    rows = _rows(step)
    values = rows.arrange(op.a.read(step, dtype))
    equal = (values[:, :, None] == values[:, None, :]) & members[:, None, :]
    bits = np.where(equal, _BITS, np.uint32(0)).sum(axis=2, dtype=np.uint32)
    bits = bits[rows.row, rows.lane]
    if is_all:
      everyone = bits == masks & rows.active
      bits = np.where(everyone, bits, np.uint32(0))
      if op.p is not None:
        op.p.write(step, everyone)
    op.d.write(step, bits)

  return execute


@instruction(
    "bar.warp.sync", "mask", section="9.7.13.2 (bar.warp.sync)"
)
def bar_warp_sync(op):

  def execute(step):
    _converge(step, op.mask)

  return execute
