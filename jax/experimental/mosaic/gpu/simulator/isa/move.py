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
"""mov, with packing and unpacking, and conversions between address spaces."""

from __future__ import annotations

import numpy as np

from .. import errors, memory
from ..registers import ImmediateValue
from ..table import instruction
from .common import DTYPES, elementwise

# Per-thread memory as generic addresses.
LOCAL_BASE = 0x5000_0000_0000
LOCAL_WINDOW = 1 << 40

_SECTION = "9.7.9.3 (mov)"


@instruction(
    "mov.<type:pred|b16|u16|s16|f16|bf16|b32|u32|s32|f32|b64|u64|s64|f64>",
    "d, a", section=_SECTION,
)
def mov(op):
  if op.type == "pred":
    dtype = np.dtype(np.bool_)
  else:
    dtype = np.dtype(f"u{DTYPES[op.type].itemsize}")  # Moves the bits.
  d, a = op.d, op.a
  if isinstance(a, ImmediateValue):
    value = a.read(None, dtype)

    def execute(step):
      d.write(step, value)
  else:

    def execute(step):
      d.write(step, a.read(step, dtype))

  return execute


@instruction("mov.b128", "d, a", section=_SECTION)
def mov_b128(op):

  def execute(step):
    op.d.write(step, op.a.read(step, np.uint64))

  return execute


def _split(op, vector):
  """The dtypes of the whole and of a part; the whole of 128 bits is two u64."""
  bits = int(op.type)
  if bits % len(vector) or bits // len(vector) not in (8, 16, 32, 64):
    raise op.unsupported(f"{len(vector)} parts of {bits} bits.")
  whole = np.dtype(f"u{min(bits, 64) // 8}")
  return whole, np.dtype(f"u{bits // len(vector) // 8}")


@instruction("mov.b<type:16|32|64|128>", "d, {a}", section=_SECTION)
def pack(op):
  whole, part = _split(op, op.a)
  d, a = op.d, op.a
  wide = op.type == "128"

  def execute(step):
    values = a.read(step, part).view(whole)
    d.write(step, values if wide else values[:, 0])

  return execute


@instruction("mov.b<type:16|32|64|128>", "{d}, a", section=_SECTION)
def unpack(op):
  whole, part = _split(op, op.d)
  d, a = op.d, op.a
  count = len(d)

  def execute(step):
    value = a.read(step, whole)
    if not value.ndim:
      value = np.full(step.n, value)
    # A copy: a part may be the source itself.
    d.write(step, np.array(value).view(part).reshape(-1, count))

  return execute


# Address spaces.

_BASES = {
    "global": 0, "const": 0, "shared": memory.SHARED_BASE,
    "shared::cta": memory.SHARED_BASE, "shared::cluster": memory.SHARED_BASE,
    "param": memory.PARAM_BASE, "param::entry": memory.PARAM_BASE,
    "local": LOCAL_BASE,
}
_SPACES = "|".join(_BASES)
_WINDOWS = {
    memory.SHARED_BASE: memory.SHARED_WINDOW,
    memory.PARAM_BASE: memory.SHARED_BASE - memory.PARAM_BASE,
    LOCAL_BASE: LOCAL_WINDOW,
}


def _inside(space, address):
  """Whether generic addresses lie in a state space."""
  base = _BASES[space]
  if base:
    return (address >= base) & (address < base + _WINDOWS[base])
  return address < LOCAL_BASE


@instruction(
    f"cvta.<space:{_SPACES}>.<type:u32|u64>", "d, a",
    section="9.7.9.20 (cvta)",
)
def cvta(op):
  base = np.int64(_BASES[op.space])
  if op.type == "u32":
    raise op.unsupported("expected 64-bit addresses.")
  # A parameter's address may already have been made generic.
  is_param = base == memory.PARAM_BASE

  def function(a):
    return np.where(a < base, a + base, a) if is_param else a + base

  return elementwise(function, np.int64, op.d, op.a)


@instruction(
    f"cvta.to.<space:{_SPACES}>.<type:u32|u64>", "d, a",
    section="9.7.9.20 (cvta)",
)
def cvta_to(op):
  base = np.int64(_BASES[op.space])
  if op.type == "u32":
    raise op.unsupported("expected 64-bit addresses.")

  def execute(step):
    address = op.a.read(step, np.int64)
    outside = ~_inside(op.space, address)
    if outside.any():
      i = int(np.flatnonzero(np.ravel(outside))[0])
      raise errors.MemoryFault(
          f"Address {int(np.ravel(address)[i]):#x} is not in .{op.space}.",
          step.where(i),
      )
    op.d.write(step, address - base)

  return execute


@instruction(
    f"isspacep.<space:{_SPACES}>", "p, a", section="9.7.9.19 (isspacep)"
)
def isspacep(op):
  space = op.space

  def execute(step):
    address = op.a.read(step, np.int64)
    result = _inside(space, address)
    if space in ("shared", "shared::cta"):
      # Other CTAs of the cluster have their rank in the upper bits.
      rank = (address - memory.SHARED_BASE) >> memory.RANK_SHIFT
      own = step.machine.cluster_rank[step.ctas] + 1
      result = result & ((rank == 0) | (rank == own))
    op.p.write(step, result)

  return execute


@instruction(
    "mapa[.<space:shared::cluster>].<type:u32|u64>", "d, a, b",
    section="9.7.9.22 (mapa)",
)
def mapa(op):
  dtype = DTYPES[op.type]
  base = 0 if op.space else memory.SHARED_BASE

  def execute(step):
    address = op.a.read(step, dtype).astype(np.int64) - base
    rank = op.b.read(step, np.uint32).astype(np.int64)
    outside = rank >= step.machine.cluster_size
    if outside.any():
      raise errors.MemoryFault(
          f"CTA rank {int(np.max(rank))} is outside the cluster of"
          f" {step.machine.cluster_size} CTAs.",
          step.where(int(np.flatnonzero(np.ravel(outside))[0])),
      )
    mapped = step.machine.spaces.mapa(address, rank)
    op.d.write(step, np.asarray(mapped + base))

  return execute


@instruction(
    "getctarank[.<space:shared::cluster>].<type:u32|u64>", "d, a",
    section="9.7.9.23 (getctarank)",
)
def getctarank(op):
  dtype = DTYPES[op.type]
  base = 0 if op.space else memory.SHARED_BASE

  def execute(step):
    address = op.a.read(step, dtype).astype(np.int64) - base
    rank = address >> memory.RANK_SHIFT
    own = step.machine.cluster_rank[step.ctas]
    op.d.write(step, np.where(rank == 0, own, rank - 1))

  return execute
