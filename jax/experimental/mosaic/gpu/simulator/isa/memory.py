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
"""Loads, stores, atomics and element-wise asynchronous copies."""

from __future__ import annotations

import numpy as np

from .. import errors, ptx
from ..asynchrony import AsyncOp
from ..observers import Access
from ..table import instruction
from . import rounding
from .common import DTYPES
from .move import LOCAL_BASE, LOCAL_WINDOW

_SPACE = (
    "[.<space:const|global|local|param|param::entry|param::func|shared"
    "|shared::cta|shared::cluster>]"
)
_SCOPE = "[.<scope:cta|cluster|gpu|sys>]"
_EVICT = "evict_normal|evict_unchanged|evict_first|evict_last|no_allocate"
_CACHE = (
    "[.<l1:" + "|".join(f"L1::{e}" for e in _EVICT.split("|")) + ">]"
    "[.<l2:" + "|".join(f"L2::{e}" for e in _EVICT.split("|")) + ">]"
    "[.<hint:L2::cache_hint>]"
)
_PREFETCH = "[.<prefetch:L2::64B|L2::128B|L2::256B>]"
_VEC = "[.<vec:v2|v4|v8>]"
_TYPE = (
    ".<type:b8|u8|s8|b16|u16|s16|f16|bf16|b32|u32|s32|f32|b64|u64|s64|f64"
    "|b128>"
)


def _dtype(type_):
  """Bits, except that signed integers extend by their sign."""
  if type_ == "b128":
    return np.dtype(np.uint64)
  if type_[0] == "s":
    return DTYPES[type_]
  return np.dtype(f"u{DTYPES[type_].itemsize}")


class _Transfer:
  """What ld and st have in common: space, element type, element count."""

  def __init__(self, op, name, register):
    self.name = name
    self.address = op.address
    self.dtype = _dtype(op.type)
    self.count = int(op.vec[1:]) if op.vec else 1
    self.wide = op.type == "b128"
    is_vector = hasattr(register, "items")
    if is_vector != bool(op.vec) or (
        is_vector and len(register) != self.count
    ):
      raise op.unsupported("the number of registers does not fit the vector.")
    self.nbytes = (2 if self.wide else self.count) * self.dtype.itemsize
    if self.nbytes > 32:
      raise op.unsupported("expected at most 32 bytes.")
    space = op.space or op.address.space or "generic"
    if "param::func" in (op.space, op.address.space):
      space = self.call_param(op)
    self.space = "global" if space == "const" else space
    # Generic addresses may point to local memory only if there is any.
    self.maybe_local = (
        self.space == "generic" and op.context.local_bytes > 0
    )

  def call_param(self, op):
    """Checks an access to a .param variable of a call; returns its space."""
    if op.address.space != "param::func" or op.space not in (
        None, "param", "param::func"
    ):
      raise op.unsupported(".param::func needs a .param variable of a call.")
    [address] = (
        o for o in op.instruction.operands if isinstance(o, ptx.Address)
    )
    assert isinstance(address.base, ptx.Symbol)  # It has a state space.
    size = op.context.kernel.variables[address.base.name].size
    offset = address.base.offset + address.offset
    if not 0 <= offset <= size - self.nbytes:
      raise op.unsupported(f"the .param variable has {size} bytes.")
    return "local"

  def access(self, step):
    return Access(step.where, "generic", self.name, step.threads)

  def split_local(self, step, address):
    """Which generic addresses are local, or None if none is."""
    if not self.maybe_local:
      return None
    local = (address >= LOCAL_BASE) & (address < LOCAL_BASE + LOCAL_WINDOW)
    return local if local.any() else None

  def local_index(self, step, threads, address):
    """Row and columns of `machine.local` for addresses [n]."""
    size = step.machine.local.shape[1]
    bad = (address < 0) | (address + self.nbytes > size)
    bad |= address % self.nbytes != 0
    if bad.any():
      i = int(np.flatnonzero(bad)[0])
      raise errors.MemoryFault(
          f"{self.name} of {self.nbytes} bytes at {int(address[i]):#x} of local"
          f" memory; expected an aligned address within {size} bytes.",
          step.where(i),
      )
    return threads[:, None], address[:, None] + np.arange(self.nbytes)


_LD = (
    "ld[.<sem:weak|volatile|relaxed|acquire|mmio.relaxed>]"
    f"{_SCOPE}{_SPACE}[.<cop:ca|cg|cs|lu|cv>][.<nc>]{_CACHE}{_PREFETCH}"
    f"{_VEC}{_TYPE}"
)


@instruction(_LD, "d, [address], policy?", section="9.7.9.8 (ld)")
@instruction(_LD, "{d}, [address], policy?", section="9.7.9.8 (ld)")
def ld(op):
  if op.nc and op.space not in ("global", None):
    raise op.unsupported(".nc needs .global.")
  transfer = _Transfer(op, "ld", op.d)
  space, nbytes, dtype = transfer.space, transfer.nbytes, transfer.dtype
  destinations = op.d.items if op.vec else (op.d,)

  def read(step, threads, ctas, address, space, who):
    if space == "local":
      rows, columns = transfer.local_index(step, threads, address)
      return step.machine.local[rows, columns]
    return step.machine.spaces.read(space, ctas, address, nbytes, who)

  def execute(step):
    address = op.address.read(step)
    who = transfer.access(step)
    local = transfer.split_local(step, address)
    if local is None:
      if transfer.count > 1:
        who.words = dtype.itemsize
      data = read(step, step.threads, step.ctas, address, space, who)
    else:
      data = np.empty((step.n, nbytes), np.uint8)
      for mask, to, base in ((local, "local", LOCAL_BASE), (~local, space, 0)):
        if mask.any():
          part = step.select(mask)
          data[mask] = read(
              part, part.threads, part.ctas, address[mask] - base, to,
              transfer.access(part),
          )
    values = np.ascontiguousarray(data).view(dtype)
    if transfer.wide:
      op.d.write(step, values)
    else:
      for i, destination in enumerate(destinations):
        destination.write(step, values[:, i])
    if who.unwritten is not None:
      for i, destination in enumerate(destinations):
        if who.unwritten[:, i].any():
          destination.forget(step, who.unwritten[:, i])

  return execute


_ST = (
    "st[.<sem:weak|volatile|relaxed|release|mmio.relaxed>]"
    f"{_SCOPE}{_SPACE}[.<cop:wb|cg|cs|wt>]{_CACHE}{_VEC}{_TYPE}"
)


@instruction(_ST, "[address], b, policy?", section="9.7.9.11 (st)")
@instruction(_ST, "[address], {b}, policy?", section="9.7.9.11 (st)")
def st(op):
  transfer = _Transfer(op, "st", op.b)
  space, dtype = transfer.space, transfer.dtype
  if space.startswith("param") or op.space == "const":
    raise op.unsupported("parameters and constants cannot be stored to.")
  sources = op.b.items if op.vec else (op.b,)

  def write(step, threads, ctas, address, data, space, who):
    if space == "local":
      rows, columns = transfer.local_index(step, threads, address)
      step.machine.local[rows, columns] = data
    else:
      step.machine.spaces.write(space, ctas, address, data, who)

  def execute(step):
    address = op.address.read(step)
    if transfer.wide:
      values = np.empty((step.n, 2), dtype)
      values[:] = op.b.read(step, dtype)
    else:
      values = np.empty((step.n, transfer.count), dtype)
      for i, source in enumerate(sources):
        values[:, i] = source.read(step, dtype)
    data = values.view(np.uint8)
    local = transfer.split_local(step, address)
    if local is None:
      who = transfer.access(step)
      write(step, step.threads, step.ctas, address, data, space, who)
      return
    for mask, to, base in ((local, "local", LOCAL_BASE), (~local, space, 0)):
      if mask.any():
        part = step.select(mask)
        write(
            part, part.threads, part.ctas, address[mask] - base, data[mask],
            to, transfer.access(part),
        )

  return execute


# Atomics.


def _float_add(a, b, in_global):
  """a + b as the memory does it; `in_global` bool [k]: where it is.

  Global memory flushes subnormal numbers of f32, and hands on a NaN of f64 as
  it is.
  """
  plain = rounding.canonical_nan(np.add(a, b))
  if a.dtype == np.float32:
    flushed = np.add(rounding.flush(a), rounding.flush(b))
    flushed = rounding.flush(rounding.canonical_nan(flushed))
    return np.where(in_global[:, None], flushed, plain)
  if a.dtype == np.float64:
    nan = np.where(b != b, b, a)
    return np.where((plain != plain) & in_global[:, None] & (nan != nan), nan,
                    plain)
  return plain


def _increment(a, b):
  return np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1))


def _decrement(a, b):
  return np.where((a == 0) | (a > b), b, a - a.dtype.type(1))


def _extreme_halves(name):
  def function(a, b):
    # min and max without .NaN return the operand that is a number.
    result = np.where((a < b) == (name == "min"), a, b)
    result = np.where(a != a, b, np.where(b != b, a, result))
    return rounding.canonical_nan(result)

  return function


_ATOMICS = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "exch": lambda a, b: b, "add": np.add, "min": np.minimum,
    "max": np.maximum, "inc": _increment, "dec": _decrement,
}
_ATOM_SPACE = "[.<space:global|shared|shared::cta|shared::cluster>]"
_ATOM = (
    "<name:{name}>[.<sem:relaxed|acquire|release|acq_rel>]"
    f"{_SCOPE}{_ATOM_SPACE}"
)
_INTEGERS = "u32|s32|u64|s64"
_FORMS = (
    ".<kind:{exch}and|or|xor>[.<hint:L2::cache_hint>].<type:b32|b64>",
    f".<kind:add|min|max>[.<hint:L2::cache_hint>].<type:{_INTEGERS}>",
    ".<kind:inc|dec>[.<hint:L2::cache_hint>].<type:u32>",
    ".<kind:add>[.<hint:L2::cache_hint>].<type:f32|f64>",
    ".<kind:add|min|max>[.<noftz>][.<hint:L2::cache_hint>]"
    ".<type:f16|f16x2|bf16|bf16x2>",
)


def _form(name, form):
  exch = "exch|" if name == "atom" else ""
  return _ATOM.replace("{name}", name) + form.replace("{exch}", exch)


class _Atomic:
  """Performs read-modify-write one thread after the other, in lane order."""

  def __init__(self, op, name, type_, count=1):
    self.name = name
    self.element = DTYPES[type_.removesuffix("x2")]
    self.per_lane = count * (2 if type_.endswith("x2") else 1)
    self.nbytes = self.element.itemsize * self.per_lane
    self.address = op.address
    self.space = op.space or op.address.space or "generic"

  def run(self, step, update):
    """Applies `update(old, which)` to [k, per_lane]; returns all old values."""
    spaces = step.machine.spaces
    address = self.address.read(step)
    ctas = np.broadcast_to(step.ctas, address.shape)
    who = Access(step.where, "generic", self.name, step.threads)
    place = np.empty(address.shape, np.int64)
    self.in_global = np.ones(address.shape, np.bool_)
    for part in spaces.resolve(self.space, ctas, address, who):
      place[part.which] = part.addr
      if part.cta is not None:
        self.in_global[part.which] = False
        # No global address is that small.
        place[part.which] += (part.cta + 1) << 24
    old = np.empty((step.n, self.nbytes), np.uint8)
    for which in _rounds(place):
      part_who = Access(
          lambda i, which=which: step.where(int(which[i])), "generic",
          self.name, step.threads[which],
      )
      where = address[which], ctas[which]
      data = spaces.read(self.space, where[1], where[0], self.nbytes, part_who)
      old[which] = data
      values = np.ascontiguousarray(data).view(self.element)
      new = np.ascontiguousarray(update(values, which), self.element)
      new = new.view(np.uint8).reshape(len(which), self.nbytes)
      spaces.write(self.space, where[1], where[0], new, part_who)
    return old


def _rounds(place):
  """Yields index arrays: in each, every place occurs at most once."""
  _, inverse, counts = np.unique(
      place, return_inverse=True, return_counts=True
  )
  if counts.max() == 1:
    yield np.arange(place.size)
    return
  order = np.argsort(inverse, kind="stable")
  first = np.repeat(np.cumsum(counts) - counts, counts)
  rank = np.empty(place.size, np.int64)
  rank[order] = np.arange(place.size) - first
  for i in range(int(counts.max())):
    yield np.flatnonzero(rank == i)


def _atomic_function(op, atomic):
  """A function of old value, operand and the indices of the threads."""
  if op.kind == "add" and atomic.element.kind not in "iu":
    return lambda a, b, which: _float_add(a, b, atomic.in_global[which])
  function = _ATOMICS[op.kind]
  if op.kind in ("min", "max") and atomic.element.kind not in "iu":
    function = _extreme_halves(op.kind)
  return lambda a, b, which: function(a, b)


def _operand_rows(step, operand, dtype, element):
  """An operand as elements [n, k] of `element`."""
  bits = np.empty(step.n, dtype)
  bits[:] = operand.read(step, dtype)
  return bits.view(element).reshape(step.n, -1)


def _stack_forms(name, operands, section):
  """Decorates with all forms of atom or red."""
  def decorate(decode):
    for form in _FORMS:
      decode = instruction(_form(name, form), operands, section=section)(decode)
    return decode

  return decorate


@_stack_forms("atom", "d, [address], b, policy?", "9.7.13.6 (atom)")
@_stack_forms("red", "[address], b, policy?", "9.7.13.7 (red)")
def atom(op):
  atomic = _Atomic(op, op.name, op.type)
  bits = np.dtype(f"u{atomic.nbytes}")
  function = _atomic_function(op, atomic)
  d = op.__dict__.get("d")

  def execute(step):
    b = _operand_rows(step, op.b, bits, atomic.element)
    old = atomic.run(
        step, lambda value, which: function(value, b[which], which)
    )
    if d is not None:
      d.write(step, old.view(bits)[:, 0])

  return execute


@instruction(
    _ATOM.replace("{name}", "atom")
    + ".cas[.<hint:L2::cache_hint>].<type:b16|b32|b64>",
    "d, [address], b, c, policy?", section="9.7.13.6 (atom)",
)
def atom_cas(op):
  """Stores c where memory holds b."""
  atomic = _Atomic(op, "atom.cas", op.type)
  dtype = atomic.element

  def execute(step):
    b = _operand_rows(step, op.b, dtype, dtype)
    c = _operand_rows(step, op.c, dtype, dtype)
    old = atomic.run(
        step, lambda value, which: np.where(value == b[which], c[which], value)
    )
    op.d.write(step, old.view(dtype)[:, 0])

  return execute


_VECTOR_FORMS = (
    ".<kind:add>[.<noftz>][.<hint:L2::cache_hint>].<vec:v2|v4>.<type:f32>",
    ".<kind:add|min|max>.<noftz>[.<hint:L2::cache_hint>].<vec:v2|v4|v8>"
    ".<type:f16|bf16>",
    ".<kind:add|min|max>.<noftz>[.<hint:L2::cache_hint>].<vec:v2|v4>"
    ".<type:f16x2|bf16x2>",
)


def _stack_vector_forms(name, operands, section):
  def decorate(decode):
    for form in _VECTOR_FORMS:
      decode = instruction(_form(name, form), operands, section=section)(decode)
    return decode

  return decorate


@_stack_vector_forms("atom", "{d}, [address], {b}, policy?", "9.7.13.6 (atom)")
@_stack_vector_forms("red", "[address], {b}, policy?", "9.7.13.7 (red)")
def atom_vector(op):
  count = int(op.vec[1:])
  d = op.__dict__.get("d")
  if len(op.b) != count or (d is not None and len(d) != count):
    raise op.unsupported("the number of registers does not fit the vector.")
  if op.space != "global":
    raise op.unsupported("vectors need .global.")
  atomic = _Atomic(op, op.name, op.type, count)
  bits = np.dtype(f"u{atomic.nbytes // count}")
  function = _atomic_function(op, atomic)

  def execute(step):
    b = op.b.read(step, bits).view(atomic.element)
    old = atomic.run(
        step, lambda value, which: function(value, b[which], which)
    )
    if d is not None:
      d.write(step, old.view(bits))

  return execute


# Asynchronous stores to the shared memory of the cluster.


def _signal(step, name, stores, mbar, nbytes, thread_index):
  """Submits a store that then counts nbytes on an mbarrier of its CTA."""
  machine = step.machine
  spaces = machine.spaces
  cta = int(step.ctas[thread_index])
  where = step.where(thread_index)
  who = Access(where, "async", name, step.threads[thread_index])
  barrier_cta, barrier = spaces.cluster_shared(
      np.array([cta]), np.array([mbar]), who
  )

  def run():
    stores(who)
    machine.mbarriers.complete_tx(
        int(barrier_cta[0]), int(barrier[0]), nbytes, who
    )

  signal = int(barrier_cta[0]), int(barrier[0])
  machine.asynchrony.submit(
      AsyncOp(
          name, cta, int(step.threads[thread_index]), run, where=where,
          signals=((signal[0], *signal),),
      )
  )


_ST_ASYNC = (
    "st.async[.<sem:weak>][.<scope:cluster>][.<space:shared::cluster>]"
    ".mbarrier::complete_tx::bytes"
)


@instruction(
    f"{_ST_ASYNC}.<type:b32|b64|u32|u64|s32|s64|f32|f64>",
    "[address], b, [mbar]", section="9.7.9.12 (st.async)",
)
@instruction(
    f"{_ST_ASYNC}.<vec:v2|v4>.<type:b32|b64|u32|u64|s32|s64|f32|f64>",
    "[address], {b}, [mbar]", section="9.7.9.12 (st.async)",
)
def st_async(op):
  dtype = _dtype(op.type)
  vec = op.__dict__.get("vec")
  count = int(vec[1:]) if vec else 1
  sources = op.b.items if vec else (op.b,)
  if len(sources) != count or count * dtype.itemsize > 16:
    raise op.unsupported("the number of registers does not fit the vector.")
  nbytes = count * dtype.itemsize

  def execute(step):
    address, mbar = op.address.read(step), op.mbar.read(step)
    values = np.empty((step.n, count), dtype)
    for i, source in enumerate(sources):
      values[:, i] = source.read(step, dtype)
    data = values.view(np.uint8)
    for i in range(step.n):
      target, row = address[i : i + 1], data[i : i + 1]
      cta = step.ctas[i : i + 1]

      def store(who, target=target, row=row, cta=cta):
        step.machine.spaces.write("shared::cluster", cta, target, row, who)

      _signal(step, "st.async", store, int(mbar[i]), nbytes, i)

  return execute


@instruction(
    "red.async.relaxed.cluster[.<space:shared::cluster>]"
    ".mbarrier::complete_tx::bytes"
    ".<kind:add|min|max|inc|dec|and|or|xor>.<type:u32|s32|u64|b32>",
    "[address], b, [mbar]", section="9.7.13.8 (red.async)",
)
def red_async(op):
  dtype = DTYPES[op.type]
  function = _ATOMICS[op.kind]

  def execute(step):
    address, mbar = op.address.read(step), op.mbar.read(step)
    b = np.broadcast_to(op.b.read(step, dtype), (step.n,)).copy()
    for i in range(step.n):
      target, cta = address[i : i + 1], step.ctas[i : i + 1]

      def store(who, target=target, cta=cta, value=b[i]):
        spaces = step.machine.spaces
        old = spaces.read(
            "shared::cluster", cta, target, dtype.itemsize, who
        ).view(dtype)
        new = np.ascontiguousarray(function(old, value), dtype)
        spaces.write(
            "shared::cluster", cta, target, new.view(np.uint8), who
        )

      _signal(step, "red.async", store, int(mbar[i]), dtype.itemsize, i)

  return execute


# cp.async: copies of 4, 8 or 16 bytes from global to shared memory.


def _cp_group(thread):
  return "cp.async", int(thread)


@instruction(
    "cp.async.<cop:ca|cg>.<space:shared|shared::cta>.global"
    f"[.<hint:L2::cache_hint>]{_PREFETCH}",
    "[dst], [src], size, src_size?, policy?", section="9.7.9.25 (cp.async)",
)
def cp_async(op):
  size = op.size.read(None, np.int64).item()
  if size not in (4, 8, 16) or (op.cop == "cg" and size != 16):
    raise op.unsupported(f"a copy of {size} bytes.")
  src_size = op.src_size
  if op.hint and op.policy is None:
    src_size = None  # The fourth operand is the policy then.

  def execute(step):
    machine = step.machine
    target, source = op.dst.read(step), op.src.read(step)
    count = np.full(step.n, size)
    if src_size is not None:
      count[:] = src_size.read(step, np.uint32)
      if (count > size).any():
        i = int(np.flatnonzero(count > size)[0])
        raise errors.MemoryFault(
            f"cp.async of {int(count[i])} source bytes; expected at most"
            f" {size}.",
            step.where(i),
        )
    ctas = step.ctas
    for i, thread in enumerate(step.threads.tolist()):
      where = step.where(i)
      who = Access(where, "generic", "cp.async", thread)

      def copy(i=i, who=who, cta=ctas[i : i + 1]):
        data = np.zeros((1, size), np.uint8)
        have = int(count[i])
        if have:
          # Reads whole bytes: the source may end inside the copy.
          data[0, :have] = machine.spaces.global_memory.read(
              source[i : i + 1], have, who, align=1
          )
        machine.spaces.write("shared::cta", cta, target[i : i + 1], data, who)

      if source[i] % size:
        raise errors.MemoryFault(
            f"cp.async of {size} bytes from {int(source[i]):#x}; expected a"
            f" multiple of {size}.",
            where,
        )
      machine.asynchrony.submit(
          AsyncOp(
              "cp.async", int(ctas[i]), thread, copy, where=where,
              queue=_cp_group(thread), group=_cp_group(thread),
          )
      )

  return execute


@instruction("cp.async.commit_group", section="9.7.9.25 (cp.async)")
def cp_async_commit(op):

  def execute(step):
    for thread in step.threads.tolist():
      step.machine.asynchrony.commit_group(_cp_group(thread))

  return execute


@instruction(
    "cp.async.wait_group", "count", section="9.7.9.25 (cp.async)"
)
@instruction("cp.async.wait_all", section="9.7.9.25 (cp.async)")
def cp_async_wait(op):
  count = op.__dict__.get("count")
  allowed = 0 if count is None else count.read(None, np.int64).item()

  def execute(step):
    asynchrony = step.machine.asynchrony
    for i, thread in enumerate(step.threads.tolist()):
      domain = _cp_group(thread)
      if count is None:
        asynchrony.commit_group(domain)
      if not asynchrony.groups_done(domain, allowed):
        mask = np.arange(step.n) == i
        step.park(
            mask, ("group", domain),
            lambda domain=domain: (
                f"waits for cp.async: {asynchrony.describe_groups(domain)}"
            ),
        )

  return execute


@instruction(
    "createpolicy.fractional.<first:L2::evict_last|L2::evict_normal"
    "|L2::evict_first|L2::evict_unchanged>"
    "[.<second:L2::evict_first|L2::evict_unchanged>].b64",
    "d, fraction?", section="9.7.9.18 (createpolicy)",
)
def createpolicy(op):
  """Caches are not modelled, so a policy is just a number."""

  def execute(step):
    op.d.write(step, np.uint64(0))

  return execute
