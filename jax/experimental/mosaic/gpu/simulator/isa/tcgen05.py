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
"""Tensor core instructions of the fifth generation (PTX ISA 9.7.16)."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from .. import mma as mma_lib
from .. import tmem as tmem_lib
from ..asynchrony import tensor_queue, tensor_store_queue
from ..descriptors import (
    KINDS,
    InstrDescriptor,
    SmemDescriptor,
    k_major_chunks,
    mn_major_chunks,
)
from ..errors import SimulationError, TmemFault
from ..formats import FORMATS
from ..observers import Access
from ..table import instruction
from . import units

_GROUP = "cta_group::<group:1|2>"


def _ctas(
    machine: Any, cta: int, group: int, who: Access
) -> tuple[int, ...]:
  """The CTAs an instruction works on: the executing one, or its pair."""
  machine.tmem.use_group(cta, group, who)
  return (cta,) if group == 1 else machine.spaces.pair(cta, who)


# Allocation.


@instruction(
    f"tcgen05.alloc.{_GROUP}.sync.aligned[.<space:shared::cta>].b32",
    "[dst], columns",
    section="9.7.16.7.1 (tcgen05.alloc)",
)
def alloc(op):
  group = int(op.group)

  def execute(step):
    machine = step.machine
    who = units.accesses(step, "tcgen05.alloc")
    _, dsts = units.shared_locations(step, op.dst, op.space, who)
    dsts = units.per_warp(step, dsts, "the destination of tcgen05.alloc")
    columns = units.per_warp(
        step,
        np.broadcast_to(step.read(op.columns, np.uint32), (step.n,)),
        "the number of columns",
    )
    for i in range(len(step.warps())):
      cta = int(step.ctas[32 * i])
      one = units.issuer(step, 32 * i, "tcgen05.alloc", "generic")
      machine.tmem.use_group(cta, group, one)
      pair = machine.spaces.pair(cta, one) if group == 2 else None
      column = machine.tmem.allocate(cta, int(columns[i]), one, pair)
      if column is None:
        mask = np.zeros(step.n, np.bool_)
        mask[32 * i : 32 * i + 32] = True
        step.park(
            mask,
            machine.tmem.key(cta),
            lambda cta=cta, n=int(columns[i]): (
                f"waits for {n} free columns of {machine.tmem.describe(cta)}"
            ),
        )
        continue
      address = np.array([[column]], np.uint32).view(np.uint8)
      machine.shared.write(cta, dsts[i : i + 1], address, one)

  return execute


@instruction(
    f"tcgen05.dealloc.{_GROUP}.sync.aligned.b32",
    "taddr, columns",
    section="9.7.16.7.1 (tcgen05.dealloc)",
)
def dealloc(op):
  group = int(op.group)

  def execute(step):
    machine = step.machine
    addresses = units.per_warp(
        step,
        np.broadcast_to(step.read(op.taddr, np.uint32), (step.n,)),
        "the address of tcgen05.dealloc",
    )
    columns = units.per_warp(
        step,
        np.broadcast_to(step.read(op.columns, np.uint32), (step.n,)),
        "the number of columns",
    )
    for i in range(len(step.warps())):
      cta = int(step.ctas[32 * i])
      one = units.issuer(step, 32 * i, "tcgen05.dealloc", "generic")
      machine.tmem.use_group(cta, group, one)
      machine.tmem.deallocate(cta, int(addresses[i]), int(columns[i]), one)

  return execute


@instruction(
    f"tcgen05.relinquish_alloc_permit.{_GROUP}.sync.aligned",
    section="9.7.16.7.1 (tcgen05.relinquish_alloc_permit)",
)
def relinquish(op):
  group = int(op.group)

  def execute(step):
    for i in range(len(step.warps())):
      cta = int(step.ctas[32 * i])
      what = "tcgen05.relinquish_alloc_permit"
      one = units.issuer(step, 32 * i, what, "generic")
      step.machine.tmem.use_group(cta, group, one)
      step.machine.tmem.relinquish(cta)

  return execute


# Loads and stores by warps.

_SHAPES = "<shape:32x32b|16x64b|16x128b|16x256b>.x<num:1|2|4|8|16|32|64|128>"
_SPLIT = "<shape:16x32bx2>.x<num:1|2|4|8|16|32|64|128>"


def _shape(op: Any) -> tmem_lib.Shape:
  """The shape of tcgen05.ld or st, which must fit its registers."""
  offset = 0
  if op.shape == "16x32bx2":
    offset = int(op.offset.value)
  try:
    shape = tmem_lib.shape(op.shape, int(op.num), offset)
  except ValueError as e:
    raise op.unsupported(str(e)) from None
  registers = len(op.r) if hasattr(op.r, "__len__") else 1
  if registers != shape.registers:
    raise op.unsupported(
        f"expected {shape.registers} registers, got {registers}."
    )
  return shape


def _warps(step: Any, address: Any, what: str):
  """(CTA, rank in the warpgroup, address) of each active warp."""
  addresses = units.per_warp(step, step.address(address), what)
  return step.ctas[::32], step.warp_in_cta[::32] % 4, addresses


@instruction(
    f"tcgen05.ld.sync.aligned.{_SHAPES}[.<pack:pack::16b>].b32",
    "{r}, [taddr]", section="9.7.16.8.1 (tcgen05.ld)",
)
@instruction(
    f"tcgen05.ld.sync.aligned.{_SHAPES}[.<pack:pack::16b>].b32",
    "r, [taddr]", section="9.7.16.8.1 (tcgen05.ld)",
)
@instruction(
    f"tcgen05.ld.sync.aligned.{_SPLIT}[.<pack:pack::16b>].b32",
    "{r}, [taddr], offset", section="9.7.16.8.1 (tcgen05.ld)",
)
def load(op):
  shape = _shape(op)
  pack = op.pack is not None
  vector = hasattr(op.r, "__len__")

  def execute(step):
    ctas, quadrants, addresses = _warps(
        step, op.taddr, "the address of tcgen05.ld"
    )
    who = units.accesses(step, "tcgen05.ld", "tensor")
    values = step.machine.tmem.load(
        ctas, quadrants, addresses, shape, who, pack
    ).reshape(step.n, -1)
    if vector:
      step.write_vector(op.r, values)
    else:
      step.write(op.r, values[:, 0])

  return execute


@instruction(
    f"tcgen05.st.sync.aligned.{_SHAPES}[.<unpack:unpack::16b>].b32",
    "[taddr], {r}", section="9.7.16.8.2 (tcgen05.st)",
)
@instruction(
    f"tcgen05.st.sync.aligned.{_SHAPES}[.<unpack:unpack::16b>].b32",
    "[taddr], r", section="9.7.16.8.2 (tcgen05.st)",
)
@instruction(
    f"tcgen05.st.sync.aligned.{_SPLIT}[.<unpack:unpack::16b>].b32",
    "[taddr], offset, {r}", section="9.7.16.8.2 (tcgen05.st)",
)
def store(op):
  shape = _shape(op)
  unpack = op.unpack is not None
  span = shape.span * (2 if unpack else 1)
  vector = hasattr(op.r, "__len__")

  def execute(step):
    ctas, quadrants, addresses = _warps(
        step, op.taddr, "the address of tcgen05.st"
    )
    if vector:
      values = step.read_vector(op.r, np.uint32)
    else:
      values = np.array(step.read_full(op.r, np.uint32))[:, None]
    values = values.reshape(-1, 32, shape.registers)
    tmem = step.machine.tmem
    for i, warp in enumerate(step.warps().tolist()):
      one = units.issuer(step, 32 * i, "tcgen05.st", "tensor")
      run = functools.partial(
          tmem.store, ctas[i : i + 1].copy(), quadrants[i : i + 1].copy(),
          addresses[i : i + 1].copy(), shape, values[i : i + 1], one, unpack,
      )
      units.submit(
          step, "tcgen05.st", 32 * i, run, queue=tensor_store_queue(warp),
          where=one.where,
          writes=units.ranges(
              "tensor", (int(ctas[i]),), int(addresses[i]) & 0xFFFF, span
          ),
      )

  return execute


@instruction(
    "tcgen05.wait::<what:ld|st>.sync.aligned",
    section="9.7.16.8.3 (tcgen05.wait)",
)
def wait(op):
  if op.what == "ld":
    # A load returns its registers at once.
    return lambda step: None

  def execute(step):
    asynchrony = step.machine.asynchrony
    for i, warp in enumerate(step.warps().tolist()):
      queue = tensor_store_queue(warp)
      if not asynchrony.idle(queue):
        mask = np.zeros(step.n, np.bool_)
        mask[32 * i : 32 * i + 32] = True
        step.park(
            mask, ("queue", queue), "waits for its tcgen05.st to complete"
        )

  return execute


@instruction(
    "tcgen05.fence::<when:before_thread_sync|after_thread_sync>",
    section="9.7.16.11 (tcgen05.fence)",
)
def fence(op):
  del op
  return lambda step: None


@instruction(
    f"tcgen05.shift.{_GROUP}.down", "[taddr]",
    section="9.7.16.9.3 (tcgen05.shift)",
)
def shift(op):
  raise op.unsupported("moving rows of tensor memory.")


# Copies from shared memory.


@dataclasses.dataclass(frozen=True)
class _CopyShape:
  """A shape of tcgen05.cp.

  Attributes:
    nbytes: bytes of a source row.
    lanes: lane of each source row, int [replicas, rows].
  """

  nbytes: int
  lanes: np.ndarray

  @property
  def rows(self) -> int:
    return self.lanes.shape[1]


def _copy_shapes() -> dict[tuple[str, str | None], _CopyShape]:
  r128, r64, r32, r4 = (np.arange(n) for n in (128, 64, 32, 4))
  halves = r64 // 32 * 64 + r64 % 32
  return {
      ("128x256b", None): _CopyShape(32, np.stack([r128])),
      ("128x128b", None): _CopyShape(16, np.stack([r128])),
      ("4x256b", None): _CopyShape(32, np.stack([32 * r4])),
      ("64x128b", "warpx2::02_13"): _CopyShape(
          16, np.stack([r64, r64 + 64])
      ),
      ("64x128b", "warpx2::01_23"): _CopyShape(
          16, np.stack([halves, halves + 32])
      ),
      ("32x128b", "warpx4"): _CopyShape(
          16, np.stack([r32 + 32 * q for q in range(4)])
      ),
  }


_COPY_SHAPES = _copy_shapes()


@instruction(
    f"tcgen05.cp.{_GROUP}.<shape:128x256b|4x256b|128x128b|64x128b|32x128b>"
    "[.<multicast:warpx2::02_13|warpx2::01_23|warpx4>]"
    "[.<to:b8x16>.<source:b6x16_p32|b4x16_p64>]",
    "[taddr], source_desc",
    section="9.7.16.9.2 (tcgen05.cp)",
)
def copy(op):
  group = int(op.group)
  if op.source is not None:
    raise op.unsupported(
        f"decompression (.{op.to}.{op.source}); its bit layout was not"
        " verified."
    )
  shape = _COPY_SHAPES.get((op.shape, op.multicast))
  if shape is None:
    legal = ", ".join(f"{s}.{m}" if m else s for s, m in _COPY_SHAPES)
    raise op.unsupported(f"expected one of the shapes {legal}.")

  def execute(step):
    machine = step.machine
    addresses = step.address(op.taddr).tolist()
    sources = units.values(step, op.source_desc, np.uint64)
    for i, cta, thread in units.threads(step):
      who = units.issuer(step, i, "tcgen05.cp")
      ctas = _ctas(machine, cta, group, who)
      source = SmemDescriptor.decode(sources[i])
      run = functools.partial(
          _copy, machine, ctas, shape, addresses[i], source, who
      )
      first, end = _extent(source, shape.rows, shape.nbytes)
      units.submit(
          step, "tcgen05.cp", i, run, queue=tensor_queue(thread),
          where=who.where,
          reads=units.ranges("shared", ctas, first, end - first),
          writes=units.ranges(
              "tensor", ctas, addresses[i] & 0xFFFF, shape.nbytes // 4
          ),
      )

  return execute


def _copy(machine, ctas, shape: _CopyShape, address, source, who) -> None:
  lane, column = tmem_lib.split_address(address)
  lanes = shape.lanes + lane
  if lane and shape.rows != 4 or lanes.max() >= tmem_lib.LANES:
    raise TmemFault(
        f"{who.what}: address {address:#x} names lane {lane}; this shape writes"
        f" all lanes from 0",
        who.locate(),
    )
  chunks = k_major_chunks(source, shape.rows, shape.nbytes)
  for cta in ctas:
    data = machine.shared.read_chunks(
        cta, chunks, who.renamed("tcgen05.cp source")
    )
    words = data.reshape(shape.rows, -1).view(np.uint32)
    for replica in lanes:
      machine.tmem.write_block(
          cta, replica, column, words,
          who.renamed("tcgen05.cp destination", "tensor"),
      )


# Matrix multiplication.

_KIND = "kind::<kind:f16|tf32|f8f6f4|i8|mxf8f6f4|mxf4nvf4|mxf4>"
_COLLECTOR = (
    "[.<collector:collector::a::fill|collector::a::use"
    "|collector::a::lastuse|collector::a::discard>]"
)
_SCALING = (
    ".block_scale[.<vector:scale_vec::1X|scale_vec::2X|scale_vec::4X"
    "|block16|block32>]"
)


def _mma_forms():
  """(opcode template, operand template) of every form."""
  for sparse in ("", ".sp"):
    meta = "[meta], " if sparse else ""
    for a in ("a", "[ta]"):
      opcode = f"tcgen05.mma{sparse}.{_GROUP}.{_KIND}"
      head = f"[d], {a}, b, {meta}idesc, "
      plain = f"{opcode}[.<ashift>]{_COLLECTOR}"
      yield plain, head + "accumulate, scale_d?"
      yield plain, head + "{mask}, accumulate, scale_d?"
      yield (
          f"{opcode}{_SCALING}{_COLLECTOR}",
          head + "[sfa], [sfb], accumulate",
      )


def mma(op):
  """tcgen05.mma and tcgen05.mma.sp."""
  group = int(op.group)
  field = functools.partial(getattr, op)
  if op.kind not in KINDS:
    raise op.unsupported(
        f"kind::{op.kind}; expected one of {', '.join(KINDS)}."
    )
  if field("ashift", None):
    raise op.unsupported(".ashift.")
  scaled = field("sfa", None) is not None
  if scaled != KINDS[op.kind].scaled:
    raise op.unsupported(
        f"kind::{op.kind} {'needs' if not scaled else 'has no'} .block_scale."
    )
  vector = 0
  if scaled:
    name = (op.vector or "").removeprefix("scale_vec::")
    name = name or mma_lib.DEFAULT_SCALE_VECTORS.get(op.kind, "")
    if (op.kind, name) not in mma_lib.SCALE_VECTORS:
      legal = sorted(v for k, v in mma_lib.SCALE_VECTORS if k == op.kind)
      raise op.unsupported(
          f"scale vector size {name or 'missing'!r}; expected one of"
          f" {', '.join(legal)}."
      )
    vector = mma_lib.SCALE_VECTORS[op.kind, name]
  tmem_a, meta = field("ta", None), field("meta", None)
  mask, scale_d = field("mask", None), field("scale_d", None)

  def execute(step):
    machine = step.machine

    def addresses(operand) -> list[int | None]:
      if operand is None:
        return [None] * step.n
      return step.address(operand).tolist()

    d = addresses(op.d)
    if tmem_a is not None:
      a = addresses(tmem_a)
    else:
      a = units.values(step, op.a, np.uint64)
    b = units.values(step, op.b, np.uint64)
    idesc = units.values(step, op.idesc, np.uint32)
    metadata = addresses(meta)
    sfa = addresses(op.sfa if scaled else None)
    sfb = addresses(op.sfb if scaled else None)
    accumulate = units.values(step, op.accumulate, np.bool_)
    masks = (
        step.read_vector(mask, np.uint32).tolist() if mask is not None else None
    )
    scales = (
        units.values(step, scale_d, np.uint32) if scale_d is not None else None
    )
    for i, cta, thread in units.threads(step):
      who = units.issuer(step, i, "tcgen05.mma", "tensor")
      try:
        ins = _make_mma(
            op.kind, idesc[i], group, d[i], a[i], b[i], tmem_a is not None,
            accumulate[i], metadata[i], sfa[i], sfb[i], vector,
            scales[i] if scales else 0, tuple(masks[i]) if masks else (),
        )
      except SimulationError as e:
        e.where = e.where or who.where
        raise
      ctas = _ctas(machine, cta, group, who)
      run = functools.partial(_run_mma, machine, ins, ctas, who)
      first, end = split_columns(ins)
      units.submit(
          step, "tcgen05.mma", i, run, queue=tensor_queue(thread),
          where=who.where,
          reads=tuple(
              (space, c, *range_)
              for c in ctas
              for space, *range_ in _operand_ranges(ins)
          ),
          writes=units.ranges("tensor", ctas, first, end - first),
      )

  return execute


for _opcode, _operands in _mma_forms():
  instruction(
      _opcode, _operands, section="9.7.16.10.9 (tcgen05.mma, tcgen05.mma.sp)"
  )(mma)


@functools.lru_cache(maxsize=4096)
def _make_mma(
    kind, idesc, group, d, a, b, a_in_tmem, accumulate, metadata, sfa, sfb,
    vector, scale_d, mask,
) -> mma_lib.MmaInstruction:
  ins = mma_lib.MmaInstruction(
      InstrDescriptor.decode(kind, idesc), group, d, a, b, a_in_tmem,
      accumulate, metadata, sfa, sfb, vector, scale_d, mask,
  )
  ins.validate()
  return ins


def split_columns(ins: mma_lib.MmaInstruction) -> tuple[int, int]:
  """Columns of D: first, last + 1."""
  column = tmem_lib.split_address(ins.d)[1]
  return column, column + (ins.n // 2 if ins.layout == "B" else ins.n)


@functools.lru_cache(maxsize=1024)
def _extent(
    source: SmemDescriptor, mn: int, nbytes: int, k: int = 0
) -> tuple[int, int]:
  """First byte and last + 1 of an operand in shared memory.

  Args:
    source: its descriptor.
    mn: rows or columns; of an MN-major operand, bytes along them.
    nbytes: bytes along K, if K-major.
    k: elements along K, if MN-major.
  """
  try:
    if k:
      chunks = mn_major_chunks(source, mn, k)
    else:
      chunks = k_major_chunks(source, mn, nbytes)
  except SimulationError:
    return 0, 0  # The instruction itself reports it.
  return int(chunks.min()), int(chunks.max()) + 16


@functools.lru_cache(maxsize=4096)
def _operand_ranges(
    ins: mma_lib.MmaInstruction,
) -> tuple[tuple[str, int, int], ...]:
  """(space, first, last + 1) of everything that an instruction reads, per CTA.

  As AsyncOp.reads; D is among them if it is accumulated to.
  """
  descriptor = ins.descriptor
  result = []

  def shared(source, mn, bits, nbytes, mn_major):
    source = SmemDescriptor.decode(source)
    if mn_major:
      extent = _extent(source, mn * bits // 8, 0, nbytes * 8 // bits)
    else:
      extent = _extent(source, mn, nbytes)
    result.append(("shared", *extent))

  def tensor(address, columns):
    column = address & 0xFFFF
    result.append(("tensor", column, column + columns))

  a_bits = FORMATS[descriptor.a_type].bits
  if ins.a_in_tmem:
    tensor(ins.a, 8)
  else:
    shared(
        ins.a, ins.m // ins.cta_group, a_bits, 32, descriptor.transpose_a
    )
  shared(
      ins.b, ins.n // ins.cta_group, FORMATS[descriptor.b_type].bits,
      ins.b_bytes, descriptor.transpose_b,
  )
  if ins.sparse:
    tensor(ins.metadata, 2)
  if ins.scale_vector:
    tensor(ins.scale_a, -(-ins.m // ins.cta_group // 32))
    tensor(ins.scale_b, -(-ins.n // 32))
  if ins.accumulate:
    first, end = split_columns(ins)
    result.append(("tensor", first, end))
  return tuple(result)


def _run_mma(machine, ins, ctas, who) -> None:
  mma_lib.execute(ins, ctas, machine.shared, machine.tmem, who)
  units.tell(machine, "on_mma", ins, ctas)


# Completion.


@instruction(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one[.<space:shared::cluster>]"
    ".b64",
    "[bar]",
    section="9.7.16.12.1 (tcgen05.commit)",
)
@instruction(
    f"tcgen05.commit.{_GROUP}.mbarrier::arrive::one[.<space:shared::cluster>]"
    ".<multicast:multicast::cluster>.b64",
    "[bar], mask",
    section="9.7.16.12.1 (tcgen05.commit)",
)
def commit(op):
  group = int(op.group)
  what = "tcgen05.commit"
  multicast = getattr(op, "multicast", None) is not None

  def execute(step):
    machine = step.machine
    spaces = machine.spaces
    who = units.accesses(step, what)
    ctas, bars = units.shared_locations(step, op.bar, op.space, who)
    masks = units.values(step, op.mask, np.uint16) if multicast else None
    for i, cta, thread in units.threads(step):
      one = units.issuer(step, i, what, "barrier")
      machine.tmem.use_group(cta, group, one)
      targets = [int(ctas[i])]
      if masks is not None:
        if not masks[i]:
          raise SimulationError(
              f"{what}: the multicast mask is 0", one.locate()
          )
        targets = [
            spaces.member(cta, rank, one)
            for rank in range(16)
            if masks[i] >> rank & 1
        ]

      def run(targets=targets, bar=int(bars[i]), one=one):
        for target in targets:
          machine.mbarriers.arrive(target, bar, 1, one)

      units.submit(
          step, what, i, run, queue=tensor_queue(thread), where=one.where
      )

  return execute
