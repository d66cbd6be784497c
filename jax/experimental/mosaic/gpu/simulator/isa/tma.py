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
"""Bulk and tensor copies (PTX ISA 9.7.9.25 and following)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import tma
from ..asynchrony import bulk
from ..errors import MemoryFault, SimulationError
from ..observers import Access
from ..registers import AddressValue
from ..table import instruction
from . import units

_DIM = "<dim:1d|2d|3d|4d|5d>"
_HINT = "[.<hint:L2::cache_hint>]"


def _map_addresses(step: Any, operand: Any) -> np.ndarray:
  if isinstance(operand, AddressValue):
    return step.address(operand)
  return np.broadcast_to(step.read(operand, np.int64), (step.n,))


def _tensor_maps(step: Any, op: Any, what: str) -> list[tma.TensorMap]:
  """The tensor map that each active thread names."""
  addresses = _map_addresses(step, op.map).tolist()
  maps: dict[int, tma.TensorMap] = {}
  for i, address in enumerate(addresses):
    if address in maps:
      continue
    who = units.issuer(step, i, f"{what} tensor map", "generic")
    if address % 64:
      raise MemoryFault(
          f"{who.what}: address {address:#x} must be a multiple of 64",
          who.locate(),
      )
    blob = step.machine.spaces.read(
        "generic", step.ctas[i], address, tma.MAP_BYTES, who, align=64
    )
    maps[address] = tma.TensorMap.decode(blob.tobytes())
  return [maps[address] for address in addresses]


def _coordinates(step: Any, op: Any) -> list[list[int]]:
  return step.read_vector(op.coords, np.int32).tolist()


def _check_map(op: Any, tensor_map: tma.TensorMap, who: Access) -> None:
  if int(op.dim[0]) != tensor_map.rank:
    raise MemoryFault(
        f"{who.what}: .{op.dim} with a tensor map of rank {tensor_map.rank}",
        who.locate(),
    )
  if (op.mode == "im2col") != (tensor_map.im2col is not None):
    raise MemoryFault(
        f"{who.what}: expected a tensor map in"
        f" {'im2col' if op.mode == 'im2col' else 'tiled'} mode, got the other;"
        " make the map for this instruction",
        who.locate(),
    )


def _members(
    step: Any, cta: int, mask: int, who: Access
) -> list[int]:
  """The CTAs that a multicast mask selects."""
  spaces = step.machine.spaces
  if mask == 0:
    raise SimulationError(f"{who.what}: the multicast mask is 0", who.locate())
  return [
      spaces.member(cta, rank, who) for rank in range(16) if mask >> rank & 1
  ]


def _signals(
    machine: Any, targets: Sequence[int], bar_cta: int, group: str | None
) -> list[int]:
  """The CTA whose mbarrier each destination CTA signals.

  With .cta_group::2 it may be in the other CTA of the pair: that of the same
  parity as the mbarrier that the instruction names.
  """
  if group != "2":
    return list(targets)
  parity = machine.spaces.rank(bar_cta) & 1
  return [
      machine.spaces.member(t, machine.spaces.rank(t) & ~1 | parity)
      for t in targets
  ]


def _targets(step, op, what, i, dst_cta, bar_cta, who):
  """(destination CTAs, CTAs of their mbarriers) of a load."""
  machine = step.machine
  group = getattr(op, "group", None)
  if op.multicast:
    mask = units.values(step, op.x, np.uint16)[i]
    targets = _members(step, int(step.ctas[i]), mask, who)
    return targets, _signals(machine, targets, bar_cta, group)
  if group == "2":
    spaces = machine.spaces
    if bar_cta not in spaces.pair(dst_cta, who):
      raise SimulationError(
          f"{who.what}: with .cta_group::2 the mbarrier must be in the CTA pair"
          " of the destination",
          who.locate(),
      )
    return [dst_cta], [bar_cta]
  if bar_cta != dst_cta:
    raise SimulationError(
        f"{who.what}: the mbarrier must be in the CTA of the destination (or"
        " use .cta_group::2)",
        who.locate(),
    )
  return [dst_cta], [bar_cta]


# Tensor copies.


@instruction(
    f"cp.async.bulk.tensor.{_DIM}.<space:shared::cta|shared::cluster>.global"
    "[.<mode:tile::gather4|tile>]"
    ".mbarrier::complete_tx::bytes[.<multicast:multicast::cluster>]"
    f"[.cta_group::<group:1|2>]{_HINT}",
    "[dst], [map, {coords}], [bar], x?, y?",
    section="9.7.9.27.1.2 (cp.async.bulk.tensor)",
)
@instruction(
    f"cp.async.bulk.tensor.{_DIM}.<space:shared::cta|shared::cluster>.global"
    ".<mode:im2col::w::128|im2col::w|im2col>.mbarrier::complete_tx::bytes"
    f"[.<multicast:multicast::cluster>][.cta_group::<group:1|2>]{_HINT}",
    "[dst], [map, {coords}], [bar], {offsets}, x?, y?",
    section="9.7.9.27.1.2 (cp.async.bulk.tensor)",
)
def load(op):
  what = "cp.async.bulk.tensor load"
  _check_tail(op)
  _check_vector(op, op.mode == "tile::gather4")
  if op.mode == "im2col":
    _check_offsets(op)
  elif op.mode and op.mode.startswith("im2col"):
    raise op.unsupported("expected .im2col.")
  read = {"tile::gather4": _read_rows, "im2col": _read_pixels}.get(
      op.mode, tma.read_tile
  )

  def execute(step):
    who = units.accesses(step, what, "async")
    dst_ctas, dsts = units.shared_locations(step, op.dst, op.space, who)
    # The mbarrier may be in the other CTA of a pair, whatever the destination.
    bar_ctas, bars = units.shared_locations(
        step, op.bar, "shared::cluster", who
    )
    maps = _tensor_maps(step, op, what)
    coordinates = _coordinates(step, op)
    if op.mode == "im2col":
      offsets = step.read_vector(op.offsets, np.uint16).tolist()
      coordinates = list(zip(coordinates, offsets))
    for i, _, _ in units.threads(step):
      one = units.issuer(step, i, what)
      _check_map(op, maps[i], one)
      targets, signals = _targets(
          step, op, what, i, int(dst_ctas[i]), int(bar_ctas[i]), one
      )
      run = _Load(
          step.machine, maps[i], coordinates[i], read, targets, int(dsts[i]),
          signals, int(bars[i]), one,
      )
      nbytes = maps[i].tile_bytes * (4 if op.mode == "tile::gather4" else 1)
      units.submit(
          step, "tma load", i, run, where=one.where,
          writes=units.ranges("shared", targets, run.dst, nbytes),
          signals=units.signals(targets, signals, run.bar),
      )

  return execute


def _read_rows(tensor_map, coordinates, memory, who):
  column, *rows = coordinates
  return tma.read_rows(tensor_map, column, rows, memory, who)


def _read_pixels(tensor_map, coordinates_and_offsets, memory, who):
  coordinates, offsets = coordinates_and_offsets
  return tma.read_pixels(tensor_map, coordinates, offsets, memory, who)


class _Load:
  """A load in flight."""

  def __init__(
      self, machine, tensor_map, coordinates, read, targets, dst, signals,
      bar, who,
  ):
    self.machine = machine
    self.tensor_map = tensor_map
    self.coordinates = coordinates
    self.read = read
    self.targets = targets
    self.dst = dst
    self.signals = signals
    self.bar = bar
    self.who = who

  def __call__(self) -> None:
    machine, who = self.machine, self.who
    tile = self.read(
        self.tensor_map, self.coordinates, machine.spaces.global_memory, who
    )
    for target, signal in zip(self.targets, self.signals):
      tma.put_tile(
          self.tensor_map, target, self.dst, tile, machine.shared, who
      )
      units.tell(machine, "on_transfer", "load", target, tile.size)
      machine.mbarriers.complete_tx(signal, self.bar, tile.size, who)


def _check_tail(op: Any) -> None:
  """The operands x and y at the end: multicast mask and cache policy."""
  expected = bool(op.multicast) + bool(op.hint)
  got = (op.x is not None) + (op.y is not None)
  if expected != got:
    raise op.unsupported(
        f"expected {expected} operands (multicast mask, cache policy) after"
        f" the mbarrier, got {got}."
    )


def _check_offsets(op: Any) -> None:
  expected = int(op.dim[0]) - 2
  if expected < 1 or len(op.offsets) != expected:
    raise op.unsupported(
        "expected .3d, .4d or .5d and an offset for each dimension but two,"
        f" got {len(op.offsets)} offsets."
    )


def _check_vector(op: Any, rows: bool) -> None:
  expected = 5 if rows else int(op.dim[0])
  if len(op.coords) != expected or (rows and op.dim != "2d"):
    raise op.unsupported(
        f"expected .2d and 5 coordinates, got {len(op.coords)}."
        if rows
        else f"expected {expected} coordinates, got {len(op.coords)}."
    )


@instruction(
    f"cp.async.bulk.tensor.{_DIM}.global.shared::cta"
    f"[.<mode:tile::scatter4|tile|im2col_no_offs>].bulk_group{_HINT}",
    "[map, {coords}], [src], policy?",
    section="9.7.9.27.1.2 (cp.async.bulk.tensor)",
)
@instruction(
    f"cp.reduce.async.bulk.tensor.{_DIM}.global.shared::cta"
    ".<reduction:add|min|max|inc|dec|and|or|xor>"
    f"[.<mode:tile|im2col_no_offs>].bulk_group{_HINT}",
    "[map, {coords}], [src], policy?",
    section="9.7.9.27.1.3 (cp.reduce.async.bulk.tensor)",
)
def store(op):
  reduction = getattr(op, "reduction", None)
  what = "cp.async.bulk.tensor store"
  if reduction:
    what = "cp.reduce.async.bulk.tensor"
  scatter = op.mode == "tile::scatter4"
  if op.mode == "im2col_no_offs":
    raise op.unsupported("im2col; expected a tiled tensor map.")
  _check_vector(op, scatter)

  def execute(step):
    who = units.accesses(step, what, "async")
    src_ctas, srcs = units.shared_locations(step, op.src, "shared::cta", who)
    units.require_own(step, src_ctas, who, "a store")
    maps = _tensor_maps(step, op, what)
    coordinates = _coordinates(step, op)
    for i, cta, thread in units.threads(step):
      one = units.issuer(step, i, what)
      _check_map(op, maps[i], one)
      run = _Store(
          step.machine, maps[i], coordinates[i], scatter, cta, int(srcs[i]),
          reduction, one,
      )
      units.submit(
          step,
          "tma reduce" if reduction else "tma store",
          i,
          run,
          read=run.read,
          group=bulk(thread),
          where=one.where,
          reads=units.ranges("shared", (cta,), run.src, run.nbytes),
      )

  return execute


class _Store:
  """A store or reduction in flight: `read` takes the tile, the call stores."""

  def __init__(
      self, machine, tensor_map, coordinates, scatter, cta, src, reduction, who
  ):
    self.machine = machine
    self.tensor_map = tensor_map
    self.coordinates = coordinates
    self.scatter = scatter
    self.nbytes = tensor_map.tile_bytes * (4 if scatter else 1)
    self.cta = cta
    self.src = src
    self.reduction = reduction
    self.who = who
    self.tile: np.ndarray | None = None

  def read(self) -> None:
    self.tile = tma.take_tile(
        self.tensor_map, self.cta, self.src, self.nbytes, self.machine.shared,
        self.who,
    )

  def __call__(self) -> None:
    memory, tile = self.machine.spaces.global_memory, self.tile
    assert tile is not None  # `read` comes first.
    if self.scatter:
      column, *rows = self.coordinates
      tma.write_rows(self.tensor_map, column, rows, tile, memory, self.who)
    else:
      tma.write_tile(
          self.tensor_map, self.coordinates, tile, memory, self.who,
          self.reduction,
      )
    units.tell(
        self.machine, "on_transfer", "reduce" if self.reduction else "store",
        self.cta, tile.size,
    )


# Linear copies.


def _check_bulk(size: int, addresses: Sequence[int], who: Access) -> None:
  if size % 16 or any(a % 16 for a in addresses):
    raise MemoryFault(
        f"{who.what}: size {size} and the addresses"
        f" {', '.join(map(hex, addresses))} must be multiples of 16",
        who.locate(),
    )


def _pieces(address: int, size: int) -> np.ndarray:
  return address + np.arange(0, size, 16)


@instruction(
    "cp.async.bulk.<space:shared::cta|shared::cluster>.global"
    f".mbarrier::complete_tx::bytes[.<multicast:multicast::cluster>]{_HINT}",
    "[dst], [src], size, [bar], x?, y?",
    section="9.7.9.25.4.1 (cp.async.bulk)",
)
def bulk_load(op):
  what = "cp.async.bulk load"
  _check_tail(op)

  def execute(step):
    who = units.accesses(step, what, "async")
    dst_ctas, dsts = units.shared_locations(step, op.dst, op.space, who)
    bar_ctas, bars = units.shared_locations(
        step, op.bar, "shared::cluster", who
    )
    sources = step.address(op.src).tolist()
    sizes = units.values(step, op.size, np.uint32)
    machine = step.machine
    for i, _, _ in units.threads(step):
      one = units.issuer(step, i, what)
      dst, src, size = int(dsts[i]), sources[i], sizes[i]
      _check_bulk(size, (dst, src), one)
      targets, signals = _targets(
          step, op, what, i, int(dst_ctas[i]), int(bar_ctas[i]), one
      )

      def run(
          targets=targets, signals=signals, dst=dst, src=src, size=size,
          bar=int(bars[i]), one=one,
      ):
        data = machine.spaces.global_memory.read(_pieces(src, size), 16, one)
        for target, signal in zip(targets, signals):
          machine.shared.write_chunks(target, _pieces(dst, size), data, one)
          units.tell(machine, "on_transfer", "load", target, size)
          machine.mbarriers.complete_tx(signal, bar, size, one)

      units.submit(
          step, "bulk load", i, run, where=one.where,
          writes=units.ranges("shared", targets, dst, size),
          signals=units.signals(targets, signals, int(bars[i])),
      )

  return execute


@instruction(
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
    "[dst], [src], size, [bar]",
    section="9.7.9.25.4.1 (cp.async.bulk)",
)
def bulk_shared(op):
  what = "cp.async.bulk between CTAs"

  def execute(step):
    who = units.accesses(step, what, "async")
    dst_ctas, dsts = units.shared_locations(
        step, op.dst, "shared::cluster", who
    )
    src_ctas, srcs = units.shared_locations(step, op.src, "shared::cta", who)
    bar_ctas, bars = units.shared_locations(
        step, op.bar, "shared::cluster", who
    )
    units.require_own(step, src_ctas, who, "a copy")
    sizes = units.values(step, op.size, np.uint32)
    machine = step.machine
    for i, cta, _ in units.threads(step):
      one = units.issuer(step, i, what)
      dst, src, size = int(dsts[i]), int(srcs[i]), sizes[i]
      _check_bulk(size, (dst, src), one)
      if bar_ctas[i] != dst_ctas[i]:
        raise SimulationError(
            f"{what}: the mbarrier must be in the CTA of the destination",
            one.locate(),
        )

      def run(
          cta=cta, target=int(dst_ctas[i]), dst=dst, src=src, size=size,
          bar=int(bars[i]), one=one,
      ):
        data = machine.shared.read_chunks(cta, _pieces(src, size), one)
        machine.shared.write_chunks(target, _pieces(dst, size), data, one)
        units.tell(machine, "on_transfer", "load", target, size)
        machine.mbarriers.complete_tx(target, bar, size, one)

      target = int(dst_ctas[i])
      units.submit(
          step, "bulk copy", i, run, where=one.where,
          reads=units.ranges("shared", (cta,), src, size),
          writes=units.ranges("shared", (target,), dst, size),
          signals=((target, target, int(bars[i])),),
      )

  return execute


@instruction(
    f"cp.async.bulk.global.shared::cta.bulk_group{_HINT}",
    "[dst], [src], size, policy?",
    section="9.7.9.25.4.1 (cp.async.bulk)",
)
def bulk_store(op):
  what = "cp.async.bulk store"

  def execute(step):
    who = units.accesses(step, what, "async")
    src_ctas, srcs = units.shared_locations(step, op.src, "shared::cta", who)
    units.require_own(step, src_ctas, who, "a store")
    destinations = step.address(op.dst).tolist()
    sizes = units.values(step, op.size, np.uint32)
    machine = step.machine
    for i, cta, thread in units.threads(step):
      one = units.issuer(step, i, what)
      dst, src, size = destinations[i], int(srcs[i]), sizes[i]
      _check_bulk(size, (dst, src), one)
      held: list[np.ndarray] = []

      def read(cta=cta, src=src, size=size, held=held, one=one):
        held.append(machine.shared.read_chunks(cta, _pieces(src, size), one))

      def run(cta=cta, dst=dst, size=size, held=held, one=one):
        machine.spaces.global_memory.write(_pieces(dst, size), held[0], one)
        units.tell(machine, "on_transfer", "store", cta, size)

      units.submit(
          step, "bulk store", i, run, read=read, group=bulk(thread),
          where=one.where, reads=units.ranges("shared", (cta,), src, size),
      )

  return execute


# Completion of bulk groups.


@instruction("cp.async.bulk.commit_group", section="9.7.9.25.5.1")
def commit_group(op):
  del op

  def execute(step):
    asynchrony = step.machine.asynchrony
    if asynchrony.grouping:
      for thread in step.threads.tolist():
        asynchrony.commit_group(bulk(thread))

  return execute


@instruction(
    "cp.async.bulk.wait_group[.<read>]", "count", section="9.7.9.25.5.2"
)
def wait_group(op):
  def execute(step):
    asynchrony = step.machine.asynchrony
    if not asynchrony.grouping:
      return
    counts = units.values(step, op.count, np.uint32)
    for i, thread in enumerate(step.threads.tolist()):
      domain = bulk(thread)
      if not asynchrony.groups_done(domain, counts[i], bool(op.read)):
        mask = np.zeros(step.n, np.bool_)
        mask[i] = True
        step.park(
            mask,
            ("group", domain),
            lambda domain=domain: (
                f"waits for bulk copies, {asynchrony.describe_groups(domain)}"
            ),
        )

  return execute


# Prefetches and fences: they move nothing and order what is ordered already.


def _nothing(op):
  del op
  return lambda step: None


@instruction(
    f"cp.async.bulk.prefetch.tensor.{_DIM}.L2.global"
    f"[.<mode:tile::gather4|tile>]{_HINT}",
    "[map, {coords}], policy?",
    section="9.7.9.27.1.4 (cp.async.bulk.prefetch.tensor)",
)
def prefetch_tensor(op):
  what = "cp.async.bulk.prefetch.tensor"
  _check_vector(op, op.mode == "tile::gather4")

  def execute(step):
    for tensor_map in _tensor_maps(step, op, what):
      _check_map(op, tensor_map, units.issuer(step, 0, what))

  return execute


@instruction(
    "prefetch[.<space:param|const>].tensormap", "[addr]",
    section="9.7.9.17 (prefetch)",
)
def prefetch_tensormap(op):
  return _nothing(op)


for _template, _operands in (
    (f"cp.async.bulk.prefetch.L2.global{_HINT}", "[addr], size, policy?"),
    ("prefetch[.<space:global|local>].<level:L1|L2>", "[addr]"),
    (
        "prefetch.global.<level:L2::evict_last|L2::evict_normal>",
        "[addr]",
    ),
    ("prefetchu.L1", "[addr]"),
):
  instruction(_template, _operands, section="9.7.9.17 (prefetch)")(_nothing)

for _template, _operands in (
    ("fence.proxy.<kind:alias>", ""),
    (
        "fence.proxy.async[.<space:global|shared::cta|shared::cluster>]",
        "",
    ),
    (
        "fence.proxy.async::generic.<sem:acquire|release>"
        ".sync_restrict::<space:shared::cta|shared::cluster>.cluster",
        "",
    ),
    (
        "fence.proxy.tensormap::generic.release"
        ".<scope:cta|cluster|gpu|sys>",
        "",
    ),
    (
        "fence.proxy.tensormap::generic.acquire"
        ".<scope:cta|cluster|gpu|sys>",
        "[addr], size",
    ),
):
  instruction(_template, _operands, section="9.7.13.4 (fence)")(_nothing)
