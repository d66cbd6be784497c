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
"""Observers: checkers and counters that look on while a kernel runs.

The executor and the device units only tell what happens; every rule that is
about a *program* (reads of unwritten bytes, tensor memory outside an
allocation, ...) is an observer. A unit keeps, per hook, the bound methods that
really override it (see `listeners`), so a hook nobody wants costs nothing.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .errors import MemoryFault, TmemFault


class Access:
  """Who touches memory: made once per step, or once per asynchronous op.

  Attributes:
    where: a `Where`, or a function from the index of the access in its batch to
      a `Where` (called only for messages), or None.
    proxy: "generic" (ld, st), "async" (TMA, bulk copies, MMA operands in shared
      memory), "tensor" (tcgen05 in tensor memory) or "barrier".
    what: what the access is for, for messages, e.g. "operand A".
    threads: machine thread numbers behind the accesses (array or int), or None.
    words: bytes of a word, if some words of an access may be unwritten; 0 if
      all must be written.
    unwritten: which words of the accesses are, bool [n, words]; None for none.
  """

  __slots__ = ("where", "proxy", "what", "threads", "words", "unwritten")

  def __init__(
      self,
      where: Any = None,
      proxy: str = "generic",
      what: str = "access",
      threads: Any = None,
  ):
    self.where = where
    self.proxy = proxy
    self.what = what
    self.threads = threads
    self.words = 0
    self.unwritten = None

  def locate(self, index: int = 0) -> Any:
    """The `Where` of the index-th access of the batch."""
    return self.where(index) if callable(self.where) else self.where

  def renamed(self, what: str, proxy: str | None = None) -> Access:
    return Access(self.where, proxy or self.proxy, what, self.threads)


NOBODY = Access()


class Observer:
  """Base class; every hook does nothing.

  Spaces are "shared", "global" and "param". `cta` and `addr` are integer arrays
  of one shape (or broadcastable); each access covers `nbytes` bytes. Addresses
  are offsets in the CTA's shared memory, and full addresses in global memory.
  Tensor memory cells are given by arrays `lanes` and `columns` that broadcast
  against `cta`.
  """

  def on_attach(self, memory: Any) -> None:
    """A memory object (shared, global or tensor) starts to report to us."""

  def attach(self, machine: Any) -> None:
    """A batch of clusters is about to run on this machine."""

  def on_read(self, space: str, cta, addr, nbytes: int, who: Access) -> None:
    """Bytes are about to be read."""

  def on_write(self, space: str, cta, addr, nbytes: int, who: Access) -> None:
    """Bytes are about to be written."""

  def on_store(self, cta, addr, data, who: Access) -> None:
    """Data, uint8 [..., bytes], is about to be written to shared memory.

    Not told of what copies write in chunks of 16 bytes.
    """

  def on_tmem_read(self, cta, lanes, columns, who: Access) -> None:
    """Tensor memory cells are about to be read."""

  def on_tmem_write(self, cta, lanes, columns, who: Access) -> None:
    """Tensor memory cells are about to be written."""

  def on_alloc(self, cta: int, column: int, count: int, who: Access) -> None:
    """Tensor memory columns were allocated."""

  def on_dealloc(self, cta: int, column: int, count: int, who: Access) -> None:
    """Tensor memory columns were freed."""

  def on_instruction(self, step: Any) -> None:
    """An instruction is about to be executed for `step.threads`."""

  def on_submit(self, op: Any) -> None:
    """An asynchronous operation (asynchrony.AsyncOp) was issued."""

  def on_advance(self, op: Any) -> None:
    """A stage of an asynchronous operation is about to run."""

  def on_advanced(self, op: Any) -> None:
    """A stage of an asynchronous operation has run."""

  def on_complete(self, op: Any) -> None:
    """An asynchronous operation has taken effect."""

  def on_mbarrier_init(self, cta: int, addr: int, who: Access) -> None:
    """An mbarrier object was made."""

  def on_mbarrier_arrive(
      self, cta: int, addr: int, phase: int, who: Access
  ) -> None:
    """Something arrives or completes bytes in the given phase of a barrier."""

  def on_mbarrier_phase(self, cta: int, addr: int, phase: int) -> None:
    """The given phase of an mbarrier has completed."""

  def on_mbarrier_pass(
      self, cta: int, addr: int, threads: Any, who: Access
  ) -> None:
    """Threads (array) have found that a phase of an mbarrier completed."""

  def on_barrier_arrive(self, key: Any, threads: Any, relaxed: bool) -> None:
    """Threads arrive at a named barrier, or at that of a cluster."""

  def on_barrier_pass(self, key: Any, threads: Any, done: bool) -> None:
    """Threads go on behind a barrier; done: nobody else will."""

  def on_mma(self, instruction: Any, ctas: tuple[int, ...]) -> None:
    """A tensor core instruction (mma.MmaInstruction) takes effect."""

  def on_transfer(self, kind: str, cta: int, nbytes: int) -> None:
    """A tile or bulk transfer moves nbytes; kind "load", "store", "reduce"."""

  def on_wait(self, ctas, addrs, passed, threads) -> None:
    """Threads asked whether a phase of an mbarrier is complete: arrays [n].

    Those that it was not for (`passed` is false) wait, and ask again.
    """

  def on_exit(self, machine: Any) -> None:
    """All threads of the batch have exited."""


def listeners(
    observers: Iterable[Observer], hook: str
) -> tuple[Callable[..., None], ...]:
  """The bound methods `hook` of those observers that override it."""
  base = getattr(Observer, hook)
  return tuple(
      getattr(o, hook)
      for o in observers
      if getattr(type(o), hook, base) is not base
  )


def _fold(array: np.ndarray, nbytes: int) -> np.ndarray:
  """Views the last axis of a byte array in words of nbytes (1, 2, 4 or 8)."""
  return array.view(f"u{nbytes}")


class _Shadow:
  """One "was written" byte (0 or 1) for every byte of some rows of memory."""

  def __init__(self, rows: int, size: int):
    self._size = -(-size // 16) * 16
    self._written = np.zeros((rows, self._size), np.uint8)

  def mark(self, row, addr, nbytes: int) -> None:
    word, count = self._split(addr, nbytes)
    if word:
      view = _fold(self._written, word)
      view[row, addr // word] = np.iinfo(view.dtype).max & _ONES
      for i in range(1, count):
        view[row, addr // word + i] = np.iinfo(view.dtype).max & _ONES
    else:
      for r, a in np.broadcast(row, addr):
        self._written[r, a : a + nbytes] = 1

  def missing_words(self, row, addr, nbytes: int, word: int) -> np.ndarray:
    """Which words of each access have an unwritten byte: bool [n, words]."""
    parts = [
        self._written[row, addr + i] == 0 for i in range(nbytes)
    ]
    parts = np.stack(np.broadcast_arrays(*parts), axis=-1)
    return parts.reshape(*parts.shape[:-1], -1, word).any(axis=-1)

  def missing(self, row, addr, nbytes: int) -> int | None:
    """Index of the first access with an unwritten byte, or None."""
    word, count = self._split(addr, nbytes)
    if word:
      view = _fold(self._written, word)
      ones = view.dtype.type(np.iinfo(view.dtype).max & _ONES)
      bad = view[row, addr // word] != ones
      for i in range(1, count):
        bad = bad | (view[row, addr // word + i] != ones)
      if not bad.any():
        return None
      return int(np.flatnonzero(np.ravel(bad))[0])
    for i, (r, a) in enumerate(np.broadcast(row, addr)):
      if not self._written[r, a : a + nbytes].all():
        return i
    return None

  def _split(self, addr, nbytes: int) -> tuple[int, int]:
    """(word size, words per access), or (0, 0) for odd sizes or addresses."""
    word = next((w for w in (8, 4, 2, 1) if nbytes % w == 0), 1)
    if nbytes // word > 4 or (word > 1 and np.any(addr % word)):
      return 0, 0
    return word, nbytes // word


_ONES = 0x0101_0101_0101_0101


class UnwrittenReads(Observer):
  """Reads of shared, global or tensor memory that nothing wrote before.

  Global buffers added with `initialized=True` are taken as written. Shadows of
  shared and tensor memory restart when a new memory object is attached (one
  per batch of clusters); those of global memory stay with the memory.

  A vector load may cover some words nobody wrote: LLVM loads four words where a
  program needs three. Their registers are unwritten then. One word must be
  written.
  """

  def __init__(self):
    self._shared = _Shadow(0, 0)
    self._tmem: np.ndarray = np.zeros((0, 128, 512), np.bool_)
    self._global_memory: Any = None
    self._buffers: dict[int, _Shadow] = {}

  def on_attach(self, memory: Any) -> None:
    if memory.space == "shared":
      self._shared = _Shadow(memory.num_ctas, memory.size)
    elif memory.space == "tensor":
      self._tmem = np.zeros((memory.num_ctas, 128, 512), np.bool_)
    elif memory.space == "global" and memory is not self._global_memory:
      self._global_memory = memory
      self._buffers = {}

  def _parts(self, addr, nbytes: int):
    """Splits global addresses by buffer: (buffer, shadow, which, offsets)."""
    addr = np.ravel(np.asarray(addr, np.int64))
    for index in np.unique(self._global_memory.find(addr)):
      if index < 0:
        continue  # The memory itself reports addresses outside any buffer.
      buffer = self._global_memory.buffers[index]
      if buffer.initialized:
        continue
      shadow = self._buffers.get(buffer.address)
      if shadow is None:
        shadow = self._buffers[buffer.address] = _Shadow(1, buffer.size)
      which = np.flatnonzero(self._global_memory.find(addr) == index)
      yield buffer, shadow, which, addr[which] - buffer.address

  def on_write(self, space, cta, addr, nbytes, who):
    if space == "shared":
      self._shared.mark(cta, addr, nbytes)
    elif space == "global":
      for _, shadow, _, offsets in self._parts(addr, nbytes):
        shadow.mark(np.zeros_like(offsets), offsets, nbytes)

  def on_read(self, space, cta, addr, nbytes, who):
    if space == "shared":
      bad = self._missing(self._shared, cta, addr, nbytes, who)
      if bad is not None:
        cta, addr = np.broadcast_arrays(cta, addr)
        raise MemoryFault(
            f"{who.what}: read of {nbytes} bytes of shared memory at"
            f" {np.ravel(addr)[bad]:#x} of CTA {np.ravel(cta)[bad]} that were"
            " never written; write them first, or wait for the copy that does",
            who.locate(bad),
        )
    elif space == "global":
      for buffer, shadow, which, offsets in self._parts(addr, nbytes):
        bad = self._missing(
            shadow, np.zeros_like(offsets), offsets, nbytes, who, which
        )
        if bad is not None:
          raise MemoryFault(
              f"{who.what}: read of {nbytes} bytes at offset"
              f" {offsets[bad]} of global buffer {buffer.name!r} that were"
              " never written; it is an output without initial contents",
              who.locate(int(which[bad])),
          )

  def _missing(
      self, shadow, row, addr, nbytes, who, which=slice(None)
  ) -> int | None:
    """Index of the first access that is not allowed, or None."""
    bad = shadow.missing(row, addr, nbytes)
    if bad is None or not who.words:
      return bad
    words = shadow.missing_words(row, addr, nbytes, who.words)
    nothing = words.all(axis=-1)
    if nothing.any():
      return int(np.flatnonzero(nothing)[0])
    if who.unwritten is None:
      who.unwritten = np.zeros((np.size(who.threads), words.shape[1]), np.bool_)
    who.unwritten[which] = words
    return None

  def on_tmem_write(self, cta, lanes, columns, who):
    self._tmem[cta, lanes, columns] = True

  def on_tmem_read(self, cta, lanes, columns, who):
    written = self._tmem[cta, lanes, columns]
    if not written.all():
      bad = tuple(np.argwhere(~written)[0])
      cta, lanes, columns = np.broadcast_arrays(cta, lanes, columns)
      raise TmemFault(
          f"{who.what}: read of tensor memory lane {lanes[bad]} column"
          f" {columns[bad]} of CTA {cta[bad]} that was never written",
          who.locate(int(bad[0]) if bad else 0),
      )

  def on_alloc(self, cta, column, count, who):
    self._tmem[cta, :, column : column + count] = False


class TmemRules(Observer):
  """Tensor memory is used inside allocations and freed before exit."""

  def __init__(self):
    self._allocated: np.ndarray = np.zeros((0, 512), np.bool_)
    self._ranges: dict[tuple[int, int], int] = {}

  def on_attach(self, memory: Any) -> None:
    if memory.space == "tensor":
      self._allocated = np.zeros((memory.num_ctas, 512), np.bool_)
      self._ranges = {}

  def on_alloc(self, cta, column, count, who):
    self._allocated[cta, column : column + count] = True
    self._ranges[cta, column] = count

  def on_dealloc(self, cta, column, count, who):
    self._allocated[cta, column : column + count] = False
    self._ranges.pop((cta, column), None)

  def _check(self, cta, columns, who, verb: str) -> None:
    allocated = self._allocated[cta, columns]
    if allocated.all():
      return
    bad = tuple(np.argwhere(~allocated)[0])
    cta, columns = np.broadcast_arrays(cta, columns)
    owned = ", ".join(
        f"{c}..{c + n - 1}"
        for (owner, c), n in sorted(self._ranges.items())
        if owner == cta[bad]
    )
    raise TmemFault(
        f"{who.what}: {verb} of tensor memory column {columns[bad]} of CTA"
        f" {cta[bad]}, which is not allocated; allocated columns:"
        f" {owned or 'none'}",
        who.locate(int(bad[0]) if bad else 0),
    )

  def on_tmem_read(self, cta, lanes, columns, who):
    self._check(cta, columns, who, "read")

  def on_tmem_write(self, cta, lanes, columns, who):
    self._check(cta, columns, who, "write")

  def on_exit(self, machine: Any) -> None:
    if self._ranges:
      left = ", ".join(
          f"CTA {cta}: columns {c}..{c + n - 1}"
          for (cta, c), n in sorted(self._ranges.items())
      )
      raise TmemFault(
          f"tensor memory is still allocated at exit ({left}); call"
          " tcgen05.dealloc before the kernel ends",
          None,
      )


@dataclasses.dataclass
class Statistics(Observer):
  """Counts what a kernel did.

  Attributes:
    mma_instructions: tcgen05.mma instructions, by "kind" or "kind sparse".
    flops: logical multiply-adds times two (a sparse product counts its zeros).
    load_bytes, store_bytes, reduce_bytes: TMA and bulk transfers, shared side.
    shared_operand_bytes: shared memory bytes read as MMA operands.
    tmem_read_cells, tmem_written_cells: 32-bit tensor memory cells.
    tmem_allocations: (CTA, column, columns) in order of allocation.
    instructions: steps by opcode.
  """

  mma_instructions: dict[str, int] = dataclasses.field(default_factory=dict)
  flops: int = 0
  load_bytes: int = 0
  store_bytes: int = 0
  reduce_bytes: int = 0
  shared_operand_bytes: int = 0
  tmem_read_cells: int = 0
  tmem_written_cells: int = 0
  tmem_allocations: list[tuple[int, int, int]] = dataclasses.field(
      default_factory=list
  )
  instructions: collections.Counter[str] = dataclasses.field(
      default_factory=collections.Counter
  )

  @property
  def mma_count(self) -> int:
    return sum(self.mma_instructions.values())

  def on_instruction(self, step):
    self.instructions[step.instruction.opcode] += 1

  def on_alloc(self, cta, column, count, who):
    self.tmem_allocations.append((cta, column, count))

  def on_mma(self, instruction, ctas):
    name = instruction.kind + (" sparse" if instruction.sparse else "")
    self.mma_instructions[name] = self.mma_instructions.get(name, 0) + 1
    self.flops += 2 * instruction.m * instruction.n * instruction.k
    self.shared_operand_bytes += instruction.shared_operand_bytes

  def on_transfer(self, kind, cta, nbytes):
    name = f"{kind}_bytes"
    setattr(self, name, getattr(self, name) + nbytes)

  def on_tmem_read(self, cta, lanes, columns, who):
    self.tmem_read_cells += np.broadcast(cta, lanes, columns).size

  def on_tmem_write(self, cta, lanes, columns, who):
    self.tmem_written_cells += np.broadcast(cta, lanes, columns).size
