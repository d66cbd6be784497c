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
"""Global, shared and parameter memory, and the address spaces over them.

All accesses are batches: `addr` is an integer array of n addresses, and data
are uint8 arrays of shape [n, nbytes]. An access must be aligned to its size
(PTX ISA "Alignment of memory operands"), and stay inside its buffer.

Generic addresses (64 bit):

  shared window of the own CTA   SHARED_BASE + offset
  shared window of the cluster   SHARED_BASE + ((rank + 1) << 24 | offset)
  kernel parameters              PARAM_BASE + offset
  global buffers                 from GLOBAL_BASE on, unmapped gaps between

Addresses of `.shared::cta` are plain offsets. Addresses of `.shared::cluster`
carry the rank of the CTA plus one in bits 24 and up (`mapa`); zero there is the
CTA of the executing thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .errors import MemoryFault, UnsupportedPtxError
from .observers import NOBODY, Access, Observer, listeners

PARAM_BASE = 0x6000_0000_0000
SHARED_BASE = 0x7000_0000_0000
SHARED_WINDOW = 1 << 40
GLOBAL_BASE = 0x1_0000_0000_00
GUARD_BYTES = 1 << 16
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1

# Dynamic shared memory starts here; the hardware keeps the bytes below. All
# swizzles use absolute address bits, so kernels rely on this multiple of 1024.
DYNAMIC_SHARED_BASE = 1024
MAX_SHARED_BYTES = 232448 + DYNAMIC_SHARED_BASE

# Fill of memory nobody wrote: NaN in every floating point type.
POISON = 0xFF


def _word(nbytes: int) -> np.dtype:
  """The dtype with which accesses of nbytes are gathered and scattered."""
  return np.dtype(f"u{nbytes}" if nbytes in (1, 2, 4, 8) else f"V{nbytes}")


def _as_words(data: np.ndarray, nbytes: int) -> np.ndarray:
  """uint8 [..., nbytes] -> [...] of one word each."""
  return np.ascontiguousarray(data, np.uint8).view(_word(nbytes))[..., 0]


def _as_bytes(words: np.ndarray, nbytes: int) -> np.ndarray:
  """[...] words -> uint8 [..., nbytes]."""
  words = np.ascontiguousarray(words)
  return words[..., None].view(np.uint8).reshape(*words.shape, nbytes)


class SharedMemory:
  """The shared memory of every resident CTA.

  `read` and `write` are element accesses. Units that move 16-byte chunks
  (tcgen05, TMA) use `read_chunks` and `write_chunks`.
  """

  space = "shared"

  def __init__(
      self,
      num_ctas: int,
      size: int,
      observers: Sequence[Observer] = (),
      fill: int = POISON,
  ):
    if size > MAX_SHARED_BYTES:
      raise MemoryFault(
          f"a CTA needs {size} bytes of shared memory; there are"
          f" {MAX_SHARED_BYTES} (including {DYNAMIC_SHARED_BASE} reserved)",
          None,
      )
    self.num_ctas = num_ctas
    self.size = -(-size // 16) * 16
    self.data = np.full((num_ctas, self.size), fill, np.uint8)
    self._views = {}
    # Mbarrier words: their state is kept elsewhere, so ordinary accesses to the
    # bytes would be silently wrong.
    self._reserved = np.zeros((num_ctas, self.size // 8), np.bool_)
    self._num_reserved = 0
    self.attach(observers)

  def attach(self, observers: Sequence[Observer]) -> None:
    """Replaces the observers of this memory."""
    for observer in observers:
      observer.on_attach(self)
    self._on_read = listeners(observers, "on_read")
    self._on_write = listeners(observers, "on_write")
    self._on_store = listeners(observers, "on_store")

  def view(self, nbytes: int) -> np.ndarray:
    """The memory as [num_ctas, size // nbytes] words (size multiple of 16)."""
    view = self._views.get(nbytes)
    if view is None:
      usable = self.size // nbytes * nbytes
      view = self.data[:, :usable].view(_word(nbytes))
      self._views[nbytes] = view
    return view

  def check(
      self,
      cta,
      addr: np.ndarray | np.integer,
      nbytes: int,
      who: Access,
      align: int,
      verb,
  ) -> None:
    """Raises MemoryFault unless every access is aligned and inside."""
    addr = np.asarray(addr)
    if not addr.size:
      return
    if align > 1 and (addr & (align - 1) if align & (align - 1) == 0 else
                      addr % align).any():
      i = int(np.flatnonzero(np.ravel(addr % align))[0])
      raise MemoryFault(
          f"{who.what}: misaligned {verb} of {nbytes} bytes of shared memory at"
          f" {int(np.ravel(addr)[i]):#x} of CTA"
          f" {_item(cta, addr, i)}; the address must be a multiple of {align}",
          who.locate(i),
      )
    if addr.min() < 0 or addr.max() > self.size - nbytes:
      bad = np.ravel((addr < 0) | (addr > self.size - nbytes))
      i = int(np.flatnonzero(bad)[0])
      raise MemoryFault(
          f"{who.what}: {verb} of {nbytes} bytes of shared memory at"
          f" {int(np.ravel(addr)[i]):#x} of CTA {_item(cta, addr, i)} is"
          f" outside its {self.size} bytes ({self.size:#x})",
          who.locate(i),
      )
    if self._num_reserved:
      self._check_reserved(cta, addr, nbytes, who, verb)

  def _check_reserved(self, cta, addr, nbytes, who, verb) -> None:
    for delta in range(0, max(nbytes, 1), 8):
      bad = self._reserved[cta, (addr + delta) >> 3]
      if bad.any():
        i = int(np.flatnonzero(np.ravel(bad))[0])
        raise MemoryFault(
            f"{who.what}: {verb} of {nbytes} bytes of shared memory at"
            f" {int(np.ravel(addr)[i]):#x} of CTA {_item(cta, addr, i)} touches"
            " an mbarrier object; only mbarrier instructions may (use"
            " mbarrier.inval before the bytes are used for data)",
            who.locate(i),
        )

  def reserve(self, cta: int, addr: int, on: bool) -> None:
    """Marks (or frees) the 8 bytes of an mbarrier object."""
    if self._reserved[cta, addr >> 3] != on:
      self._reserved[cta, addr >> 3] = on
      self._num_reserved += 1 if on else -1

  def read(
      self, cta, addr, nbytes: int, who: Access = NOBODY, align: int = 0
  ) -> np.ndarray:
    """uint8 [..., nbytes] at addr [...] of CTA cta (scalar or [...]).

    The alignment is that of nbytes (a power of two) unless `align` says else.
    """
    addr = np.asarray(addr)
    self.check(cta, addr, nbytes, who, align or nbytes, "read")
    for hook in self._on_read:
      hook("shared", cta, addr, nbytes, who)
    if align and align < nbytes and (addr % nbytes).any():
      cta, addr = np.broadcast_arrays(cta, addr)
      return self.data[cta[..., None], addr[..., None] + np.arange(nbytes)]
    return _as_bytes(self.view(nbytes)[cta, addr // nbytes], nbytes)

  def write(
      self, cta, addr, data, who: Access = NOBODY, align: int = 0
  ) -> None:
    """Writes data, uint8 [..., nbytes]; of equal addresses the last wins."""
    addr = np.asarray(addr)
    data = np.asarray(data, np.uint8)
    nbytes = data.shape[-1]
    self.check(cta, addr, nbytes, who, align or nbytes, "write")
    for hook in self._on_write:
      hook("shared", cta, addr, nbytes, who)
    for hook in self._on_store:
      hook(cta, addr, data, who)
    if align and align < nbytes and (addr % nbytes).any():
      cta, addr = np.broadcast_arrays(cta, addr)
      self.data[cta[..., None], addr[..., None] + np.arange(nbytes)] = data
    else:
      self.view(nbytes)[cta, addr // nbytes] = _as_words(data, nbytes)

  def read_chunks(
      self, cta: int, addr: np.ndarray, who: Access = NOBODY
  ) -> np.ndarray:
    """16-byte chunks at addr [...] of one CTA: uint8 [..., 16]."""
    self.check(cta, addr, 16, who, 16, "read")
    for hook in self._on_read:
      hook("shared", cta, addr, 16, who)
    chunks = self.view(16)[cta].take(addr >> 4)
    return chunks[..., None].view(np.uint8).reshape(*addr.shape, 16)

  def write_chunks(
      self, cta: int, addr: np.ndarray, data: np.ndarray, who: Access = NOBODY
  ) -> None:
    """Writes 16-byte chunks, data uint8 [..., 16] at addr [...] of one CTA."""
    self.check(cta, addr, 16, who, 16, "write")
    for hook in self._on_write:
      hook("shared", cta, addr, 16, who)
    self.view(16)[cta][addr >> 4] = _as_words(data, 16)


def _item(values, like: np.ndarray, index: int) -> int:
  return int(np.ravel(np.broadcast_to(values, np.shape(like)))[index])


@dataclasses.dataclass(frozen=True, eq=False)
class Buffer:
  """A global memory buffer. `data` is the caller's array, written in place."""

  name: str
  address: int
  data: np.ndarray
  initialized: bool

  @property
  def size(self) -> int:
    return self.data.size

  def words(self, nbytes: int) -> np.ndarray:
    """The buffer as words of nbytes (a shorter rest at the end left out)."""
    count = self.size // nbytes
    return np.ndarray((count,), _word(nbytes), self.data.data)


class GlobalMemory:
  """Global memory: named buffers with unmapped gaps between them."""

  space = "global"

  def __init__(self, observers: Sequence[Observer] = ()):
    self.buffers: list[Buffer] = []
    self._bases = np.zeros((0,), np.int64)
    self._ends = np.zeros((0,), np.int64)
    self._next = GLOBAL_BASE
    self._words: dict[tuple[int, int], np.ndarray] = {}
    self.attach(observers)

  def attach(self, observers: Sequence[Observer]) -> None:
    """Replaces the observers of this memory."""
    for observer in observers:
      observer.on_attach(self)
    self._on_read = listeners(observers, "on_read")
    self._on_write = listeners(observers, "on_write")

  def add_buffer(
      self,
      name: str,
      data: np.ndarray,
      initialized: bool = True,
      alignment: int = 256,
  ) -> int:
    """Maps a writable 1-D uint8 array; returns its address."""
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous:
      raise ValueError(
          f"buffer {name!r} must be a contiguous 1-D uint8 array, got"
          f" {data.dtype} of shape {data.shape}; use"
          " array.reshape(-1).view(np.uint8)"
      )
    if not data.flags.writeable:
      raise ValueError(f"buffer {name!r} must be writable; pass a copy")
    alignment = max(alignment, 256)
    if alignment & (alignment - 1):
      raise ValueError(
          f"alignment of buffer {name!r} must be a power of two, got"
          f" {alignment}"
      )
    address = -(-self._next // alignment) * alignment
    self.buffers.append(Buffer(name, address, data, initialized))
    self._bases = np.append(self._bases, address)
    self._ends = np.append(self._ends, address + data.size)
    self._next = address + data.size + GUARD_BYTES
    return address

  def find(self, addr: np.ndarray) -> np.ndarray:
    """Index of the buffer that holds each address, or -1."""
    index = np.searchsorted(self._bases, addr, "right") - 1
    if not len(self._bases):
      return index
    return np.where(addr < self._ends[index], index, -1)

  def buffer_at(
      self, addr: int, nbytes: int, who: Access = NOBODY, verb: str = "access"
  ) -> Buffer:
    """The buffer that holds all of [addr, addr + nbytes)."""
    index = int(np.searchsorted(self._bases, addr, "right")) - 1
    if index < 0 or addr + nbytes > self._ends[index]:
      self._outside(index, addr, nbytes, who, verb, 0)
    return self.buffers[index]

  def _outside(self, index, addr, nbytes, who, verb, i) -> None:
    message = (
        f"{who.what}: {verb} of {nbytes} bytes of global memory at {addr:#x}"
        " is outside every buffer"
    )
    if index >= 0:
      buffer = self.buffers[index]
      past = addr + nbytes - (buffer.address + buffer.size)
      message += (
          f"; the one below is {buffer.name!r} at {buffer.address:#x} with"
          f" {buffer.size} bytes, whose end it passes by {past} bytes"
      )
    raise MemoryFault(message, who.locate(i))

  def _locate(
      self, addr: np.ndarray, nbytes: int, who: Access, verb: str, align: int
  ) -> Iterator[tuple[int, np.ndarray | slice, np.ndarray]]:
    """(buffer index, which accesses, byte offsets) for each buffer touched."""
    if not addr.size:
      return
    if align > 1 and (addr % align).any():
      i = int(np.flatnonzero(addr % align)[0])
      raise MemoryFault(
          f"{who.what}: misaligned {verb} of {nbytes} bytes of global memory at"
          f" {int(addr[i]):#x}; the address must be a multiple of {align}",
          who.locate(i),
      )
    low, high = int(addr.min()), int(addr.max())
    first = int(np.searchsorted(self._bases, low, "right")) - 1
    if first >= 0 and high + nbytes <= self._ends[first]:
      yield first, slice(None), addr - self._bases[first]
      return
    index = np.searchsorted(self._bases, addr, "right") - 1
    outside = index < 0
    if len(self._bases):
      outside |= addr + nbytes > self._ends[index]
    if outside.any():
      i = int(np.flatnonzero(outside)[0])
      self._outside(int(index[i]), int(addr[i]), nbytes, who, verb, i)
    for one in np.unique(index):
      which = np.flatnonzero(index == one)
      yield int(one), which, addr[which] - self._bases[one]

  def _view(self, index: int, nbytes: int) -> np.ndarray:
    view = self._words.get((index, nbytes))
    if view is None:
      view = self._words[index, nbytes] = self.buffers[index].words(nbytes)
    return view

  def read(
      self, addr, nbytes: int, who: Access = NOBODY, align: int = 0
  ) -> np.ndarray:
    """uint8 [n, nbytes] at addr [n]; aligned to nbytes unless `align`."""
    addr = np.atleast_1d(np.asarray(addr, np.int64))
    result = np.empty((addr.size, nbytes), np.uint8)
    parts = list(self._locate(addr, nbytes, who, "read", align or nbytes))
    for hook in self._on_read:
      hook("global", None, addr, nbytes, who)
    for index, which, offset in parts:
      if align and align < nbytes and (offset % nbytes).any():
        data = self.buffers[index].data
        result[which] = data[offset[:, None] + np.arange(nbytes)]
      else:
        words = self._view(index, nbytes)[offset // nbytes]
        result[which] = _as_bytes(words, nbytes)
    return result

  def write(self, addr, data, who: Access = NOBODY, align: int = 0) -> None:
    """Writes data, uint8 [n, nbytes]; of equal addresses the last wins."""
    addr = np.atleast_1d(np.asarray(addr, np.int64))
    data = np.asarray(data, np.uint8)
    nbytes = data.shape[-1]
    data = np.broadcast_to(data, (addr.size, nbytes))
    parts = list(self._locate(addr, nbytes, who, "write", align or nbytes))
    for hook in self._on_write:
      hook("global", None, addr, nbytes, who)
    for index, which, offset in parts:
      if align and align < nbytes and (offset % nbytes).any():
        target = self.buffers[index].data
        target[offset[:, None] + np.arange(nbytes)] = data[which]
      else:
        words = _as_words(data[which], nbytes)
        self._view(index, nbytes)[offset // nbytes] = words

  def notify(
      self, verb: str, addr: np.ndarray, nbytes: int, who: Access
  ) -> None:
    """Tells observers of accesses that a unit makes to a buffer's data."""
    for hook in self._on_read if verb == "read" else self._on_write:
      hook("global", None, addr, nbytes, who)

  @property
  def observed(self) -> bool:
    return bool(self._on_read or self._on_write)


class ParamMemory:
  """The kernel's parameters, read only, one image for all threads."""

  space = "param"

  def __init__(self, data: bytes):
    self.data = np.frombuffer(data, np.uint8)

  def read(
      self, addr, nbytes: int, who: Access = NOBODY, align: int = 0
  ) -> np.ndarray:
    """uint8 [n, nbytes] at the offsets addr [n]."""
    addr = np.atleast_1d(np.asarray(addr, np.int64))
    align = align or nbytes
    bad = (addr % align != 0) | (addr < 0) | (addr + nbytes > self.data.size)
    if bad.any():
      i = int(np.flatnonzero(bad)[0])
      problem = "misaligned" if addr[i] % align else "out of range"
      raise MemoryFault(
          f"{who.what}: {problem} read of {nbytes} bytes of the"
          f" {self.data.size} parameter bytes at offset {int(addr[i])}",
          who.locate(i),
      )
    return self.data[addr[:, None] + np.arange(nbytes)]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
  """The accesses of a batch that go to one memory.

  Attributes:
    space: "shared", "global" or "param".
    which: which accesses of the batch: slice(None) for all, or an index array.
    cta: resident CTA of each access; shared memory only.
    addr: offset in the CTA's shared memory or in the parameters, or the global
      address.
  """

  space: str
  which: Any
  cta: np.ndarray | None
  addr: np.ndarray


class AddressSpaces:
  """Resolves addresses of PTX state spaces to memories.

  CTAs of one cluster are contiguous: resident CTA = cluster * size + rank.
  """

  def __init__(
      self,
      global_memory: GlobalMemory,
      shared: SharedMemory,
      param: ParamMemory | None = None,
      cluster_size: int = 1,
  ):
    self.global_memory = global_memory
    self.shared = shared
    self.param = param if param is not None else ParamMemory(b"")
    self.cluster_size = cluster_size

  def rank(self, cta):
    """The rank of a resident CTA in its cluster (%cluster_ctarank)."""
    return cta % self.cluster_size

  def member(self, cta: int, rank: int, who: Access = NOBODY) -> int:
    """The resident CTA with this rank in the cluster of `cta`."""
    if not 0 <= rank < self.cluster_size:
      raise MemoryFault(
          f"{who.what}: CTA rank {rank} is outside the cluster of"
          f" {self.cluster_size} CTAs",
          who.locate(),
      )
    return cta - cta % self.cluster_size + rank

  def pair(self, cta: int, who: Access = NOBODY) -> tuple[int, int]:
    """The CTA pair (even rank, odd rank) of cta, for cta_group::2."""
    rank = cta % self.cluster_size
    if (rank | 1) >= self.cluster_size:
      raise MemoryFault(
          f"{who.what}: cta_group::2 needs a CTA pair, but the cluster has"
          f" {self.cluster_size} CTA(s) and this one has rank {rank}",
          who.locate(),
      )
    return self.member(cta, rank & ~1), self.member(cta, rank | 1)

  def mapa(self, addr: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The .shared::cluster address of addr (.shared::cta) in CTA `rank`."""
    return ((np.asarray(rank, np.int64) + 1) << RANK_SHIFT) | (
        np.asarray(addr, np.int64) & OFFSET_MASK
    )

  def cluster_shared(
      self, cta, addr, who: Access = NOBODY
  ) -> tuple[np.ndarray, np.ndarray]:
    """(.shared::cluster addresses) -> (resident CTA, offset)."""
    addr = np.asarray(addr, np.int64)
    field = addr >> RANK_SHIFT
    if not field.any():
      return np.broadcast_to(cta, addr.shape), addr
    bad = (field < 0) | (field > self.cluster_size)
    if bad.any():
      i = int(np.flatnonzero(np.ravel(bad))[0])
      raise MemoryFault(
          f"{who.what}: {int(np.ravel(addr)[i]):#x} is no .shared::cluster"
          f" address of this cluster of {self.cluster_size} CTA(s)",
          who.locate(i),
      )
    mapped = cta - cta % self.cluster_size + field - 1
    return np.where(field == 0, cta, mapped), addr & OFFSET_MASK

  def resolve(
      self, space: str, cta, addr, who: Access = NOBODY
  ) -> tuple[Part, ...]:
    """Splits a batch of n addresses by the memory that each one names.

    Args:
      space: "generic", "global", "shared" (= "shared::cta"), "shared::cta",
        "shared::cluster" or "param".
      cta: the resident CTA of each accessing thread, int [n] or scalar.
      addr: int64 [n].
      who: for messages.
    """
    addr = np.atleast_1d(np.asarray(addr, np.int64))
    every = slice(None)
    match space:
      case "global":
        return (Part("global", every, None, addr),)
      case "shared" | "shared::cta":
        # On the hardware the CTA's own window is part of the cluster window;
        # 64-bit registers may also hold its generic address.
        return (Part("shared", every, np.broadcast_to(cta, addr.shape), addr),)
      case "shared::cluster":
        return (
            Part("shared", every, *self.cluster_shared(cta, addr, who)),
        )
      case "param" | "param::entry":
        if (addr >= PARAM_BASE).any():
          addr = np.where(addr >= PARAM_BASE, addr - PARAM_BASE, addr)
        return (Part("param", every, None, addr),)
      case "generic":
        cta = np.broadcast_to(cta, addr.shape)
        return self._resolve_generic(cta, addr, who)
    raise UnsupportedPtxError(
        f"{who.what}: state space {space!r} is not modelled; expected generic,"
        " global, shared::cta, shared::cluster or param",
        who.locate(),
    )

  def _resolve_generic(self, cta, addr, who) -> tuple[Part, ...]:
    shared = (addr >= SHARED_BASE) & (addr < SHARED_BASE + SHARED_WINDOW)
    param = (addr >= PARAM_BASE) & (addr < SHARED_BASE)
    every = slice(None)
    if not shared.any() and not param.any():
      return (Part("global", every, None, addr),)
    if shared.all():
      return (
          Part(
              "shared",
              every,
              *self.cluster_shared(cta, addr - SHARED_BASE, who),
          ),
      )
    if param.all():
      return (Part("param", every, None, addr - PARAM_BASE),)
    parts = []
    which = np.flatnonzero(shared)
    if which.size:
      parts.append(
          Part(
              "shared",
              which,
              *self.cluster_shared(cta[which], addr[which] - SHARED_BASE, who),
          )
      )
    which = np.flatnonzero(param)
    if which.size:
      parts.append(Part("param", which, None, addr[which] - PARAM_BASE))
    which = np.flatnonzero(~shared & ~param)
    if which.size:
      parts.append(Part("global", which, None, addr[which]))
    return tuple(parts)

  def read(
      self, space: str, cta, addr, nbytes: int, who: Access = NOBODY,
      align: int = 0,
  ) -> np.ndarray:
    """uint8 [n, nbytes] at addr [n]; aligned to nbytes unless `align`."""
    parts = self.resolve(space, cta, addr, who)
    if len(parts) == 1:
      return self._read_part(parts[0], nbytes, who, align)
    result = np.empty((np.size(addr), nbytes), np.uint8)
    for part in parts:
      one = self._read_part(part, nbytes, _sub(who, part), align)
      result[part.which] = one
    return result

  def _read_part(
      self, part: Part, nbytes: int, who: Access, align: int
  ) -> np.ndarray:
    if part.space == "shared":
      return self.shared.read(part.cta, part.addr, nbytes, who, align)
    if part.space == "global":
      return self.global_memory.read(part.addr, nbytes, who, align)
    return self.param.read(part.addr, nbytes, who, align)

  def write(
      self, space: str, cta, addr, data: np.ndarray, who: Access = NOBODY
  ) -> None:
    """Writes data, uint8 [n, nbytes], at addr [n]; last of equals wins."""
    data = np.asarray(data, np.uint8)
    data = np.broadcast_to(data, (np.size(addr), data.shape[-1]))
    for part in self.resolve(space, cta, addr, who):
      one = _sub(who, part)
      if part.space == "shared":
        self.shared.write(part.cta, part.addr, data[part.which], one)
      elif part.space == "global":
        self.global_memory.write(part.addr, data[part.which], one)
      else:
        raise MemoryFault(
            f"{who.what}: write to parameter memory, which is read only",
            one.locate(),
        )


def _sub(who: Access, part: Part) -> Access:
  """`who` for a part of the batch: messages must name the right lane."""
  if isinstance(part.which, slice):
    return who
  which, where = part.which, who.where
  threads = who.threads
  return Access(
      (lambda i: where(int(which[i]))) if callable(where) else where,
      who.proxy,
      who.what,
      threads[which] if isinstance(threads, np.ndarray) else threads,
  )
