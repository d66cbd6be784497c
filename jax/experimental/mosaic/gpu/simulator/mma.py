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
"""tcgen05.mma and tcgen05.mma.sp on shared and tensor memory.

PTX ISA 9.7.16.10. One call executes one instruction, for one CTA or a pair:
D = A B (+ D), A [m, k], B [k, n], D [m, n].

Numerics: the ISA leaves rounding open. Here products are exact, sums are
float64, and D is rounded once (to nearest even). Integers are exact and wrap.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from . import formats
from .descriptors import (
    KINDS,
    InstrDescriptor,
    SmemDescriptor,
    k_major_chunks,
    mn_major_chunks,
)
from .errors import TmemFault, UnsupportedPtxError
from .formats import FORMATS
from .memory import SharedMemory
from .observers import NOBODY, Access
from .tmem import UNSPECIFIED_HALF, TensorMemory, split_address

# Bytes of A (as stored) and columns of A in tensor memory, per instruction.
_A_BYTES = 32
_A_COLUMNS = 8
# Scale operands may carry a scale factor id in the upper bits.
_SCALE_ADDRESS_MASK = 0x3FFF_FFFF
# `.scale_vec` of a kind -> scale factors per row.
SCALE_VECTORS = {
    ("mxf8f6f4", "1X"): 1,
    ("mxf8f6f4", "block32"): 1,
    ("mxf4", "2X"): 2,
    ("mxf4", "block32"): 2,
    ("mxf4nvf4", "2X"): 2,
    ("mxf4nvf4", "4X"): 4,
    ("mxf4nvf4", "block16"): 4,
    ("mxf4nvf4", "block32"): 2,
}
# What a scaled kind without a qualifier means.
DEFAULT_SCALE_VECTORS = {"mxf8f6f4": "1X", "mxf4": "2X"}


@dataclasses.dataclass(frozen=True)
class MmaInstruction:
  """An instruction with the operand values captured when it was issued.

  Attributes:
    descriptor: the instruction descriptor.
    cta_group: 1 or 2.
    d: tensor memory address of D.
    a: shared memory descriptor of A, or its tensor memory address.
    a_in_tmem: which of both.
    b: shared memory descriptor of B.
    accumulate: whether D is an input, too.
    metadata: tensor memory address of the sparsity metadata, if sparse.
    scale_a, scale_b: tensor memory addresses of the scale factors, if scaled.
    scale_vector: scale factors per row (1, 2 or 4), 0 if not scaled.
    scale_d: D as an input is multiplied by 2 ** -scale_d.
    disabled_lanes: 32-bit words of lanes of D that are not written.
  """

  descriptor: InstrDescriptor
  cta_group: int
  d: int
  a: int
  b: int
  a_in_tmem: bool = False
  accumulate: bool = False
  metadata: int | None = None
  scale_a: int | None = None
  scale_b: int | None = None
  scale_vector: int = 0
  scale_d: int = 0
  disabled_lanes: tuple[int, ...] = ()

  @property
  def kind(self) -> str:
    return self.descriptor.kind

  @property
  def sparse(self) -> bool:
    return self.descriptor.sparse

  @property
  def m(self) -> int:
    return self.descriptor.m

  @property
  def n(self) -> int:
    return self.descriptor.n

  @property
  def k(self) -> int:
    return self.descriptor.k

  @property
  def b_bytes(self) -> int:
    """Bytes along K of B."""
    return self.k * FORMATS[self.descriptor.b_type].bits // 8

  @property
  def shared_operand_bytes(self) -> int:
    a = 0 if self.a_in_tmem else self.m * _A_BYTES
    return a + self.n * self.b_bytes

  @property
  def layout(self) -> str:
    """Name of the layout of D (PTX ISA 9.7.16.10.5)."""
    if self.cta_group == 1:
      return "D" if self.m == 128 else "F"
    if self.m == 256:
      return "A"
    return "C" if self.sparse else "B"

  def validate(self) -> None:
    """Raises for what is illegal, or legal but not modelled."""
    d = self.descriptor
    d.check_shape(self.cta_group)
    if self.sparse != (self.metadata is not None):
      raise UnsupportedPtxError(
          f"the sparse bit of the instruction descriptor is {int(self.sparse)},"
          f" but the instruction is {'' if self.sparse else 'not '}dense;"
          " use tcgen05.mma.sp with a descriptor whose bit 2 is set"
      )
    if self.sparse and self.m // self.cta_group != 128:
      raise UnsupportedPtxError(
          f"sparse MMA with {self.m // self.cta_group} rows per CTA: the layout"
          " of its metadata is not known; use 128 rows per CTA"
      )
    if self.a_in_tmem and d.transpose_a:
      raise UnsupportedPtxError("A in tensor memory must be K-major")
    if self.scale_d and self.kind != "f16":
      raise UnsupportedPtxError(
          f"scale-input-d is not possible with kind::{self.kind}"
      )
    if not 0 <= self.scale_d <= 15:
      raise UnsupportedPtxError(
          f"scale-input-d must be in 0..15, got {self.scale_d}"
      )
    if self.disabled_lanes:
      if len(self.disabled_lanes) != 4 * self.cta_group:
        raise UnsupportedPtxError(
            f"disable-output-lane needs {4 * self.cta_group} words, got"
            f" {len(self.disabled_lanes)}"
        )
      if self.cta_group == 2 and any(self.disabled_lanes):
        raise UnsupportedPtxError(
            "disable-output-lane with cta_group::2: which words belong to which"
            " CTA was not verified"
        )
    self._validate_lanes()
    if KINDS[self.kind].scaled:
      self._validate_scales()

  def _validate_lanes(self) -> None:
    allowed = (0, 16) if self.layout in "FC" else (0,)
    lane = split_address(self.d)[0]
    if lane not in allowed:
      raise TmemFault(
          f"address {self.d:#x} of D names lane {lane}; layout {self.layout}"
          f" allows {' or '.join(map(str, allowed))}"
      )
    for name, address in (
        ("A", self.a if self.a_in_tmem else None),
        ("the metadata", self.metadata),
    ):
      if address is not None and split_address(address)[0] != lane:
        raise TmemFault(
            f"address {address:#x} of {name} names lane"
            f" {split_address(address)[0]}; it must be the lane {lane} of D"
        )
    if self.metadata is not None and self.metadata & 1:
      raise TmemFault(
          f"metadata address {self.metadata:#x} is odd; the hardware reads"
          " pairs of columns, so use an even column (and the sparsity selector)"
      )

  def _validate_scales(self) -> None:
    for name, address, sf_id in (
        ("A", self.scale_a, self.descriptor.sfa_id),
        ("B", self.scale_b, self.descriptor.sfb_id),
    ):
      if address is None:
        raise UnsupportedPtxError(
            f"kind::{self.kind} needs the address of the scale factors of"
            f" {name} (.block_scale)"
        )
      if split_address(address & _SCALE_ADDRESS_MASK)[0]:
        raise TmemFault(
            f"address {address:#x} of the scale factors of {name} must name"
            " lane 0"
        )
      if sf_id % self.scale_vector or sf_id + self.scale_vector > 4:
        raise UnsupportedPtxError(
            f"scale factor id {sf_id} of {name} must be a multiple of"
            f" {self.scale_vector} with scale_vec::{self.scale_vector}X"
        )
    if self.descriptor.scale_type == "ue4m3" and self.scale_vector != 4:
      raise UnsupportedPtxError(
          f"UE4M3 scales need scale_vec::4X, got {self.scale_vector}X"
      )


def execute(
    instruction: MmaInstruction,
    ctas: Sequence[int],
    shared: SharedMemory,
    tmem: TensorMemory,
    who: Access = NOBODY,
) -> None:
  """Executes an instruction now.

  Args:
    instruction: what to do.
    ctas: the executing CTA, or the even and the odd CTA of the pair.
    shared, tmem: the memories.
    who: for messages.
  """
  if len(ctas) != instruction.cta_group:
    raise ValueError(
        f"expected {instruction.cta_group} CTA(s), got {len(ctas)}"
    )
  # Infinities and NaN are ordinary values here.
  with np.errstate(all="ignore"):
    _execute(instruction, ctas, shared, tmem, who)


def _execute(instruction, ctas, shared, tmem, who) -> None:
  parts = [_read_b(instruction, cta, shared, who) for cta in ctas]
  b = parts[0] if len(parts) == 1 else np.concatenate(parts)
  products = []
  for cta in ctas:
    a = _read_a(instruction, cta, shared, tmem, who)
    positions = None
    if instruction.sparse:
      positions = _read_positions(instruction, cta, tmem, who)
    scaled_b = b
    scale_a = None
    if instruction.scale_vector:
      scale_a, scale_b = _read_scales(instruction, cta, tmem, who)
      block = instruction.k // instruction.scale_vector
      scaled_b = b * np.repeat(scale_b, block, axis=1)
    products.append(_multiply(instruction, a, scaled_b, positions, scale_a))
  # All operands are read before D is written: D may overlap none of them, but
  # an error must leave it as it was.
  for cta, product in zip(ctas, products, strict=True):
    _write_d(instruction, cta, product, tmem, who)


def _multiply(
    ins: MmaInstruction,
    a: np.ndarray,
    b: np.ndarray,
    positions: np.ndarray | None,
    scale_a: np.ndarray | None,
) -> np.ndarray:
  """A [m, k or k / 2 stored] times B [n, k], both float64, as [m, n]."""
  if positions is not None and not np.isfinite(b).all():
    # Elements of B at dropped positions must not count, not even as 0 * inf.
    if scale_a is not None:
      block = ins.k // ins.scale_vector
      a = a * np.take_along_axis(scale_a, positions // block, axis=1)
    gathered = b.T[positions]  # [m, k / 2, n]
    return np.einsum("mk,mkn->mn", a, gathered)
  if positions is not None:
    dense = np.zeros((a.shape[0], ins.k))
    rows = np.arange(a.shape[0])[:, None] * ins.k
    dense.reshape(-1)[rows + positions] = a
    a = dense
  if scale_a is not None:
    a = a * np.repeat(scale_a, ins.k // ins.scale_vector, axis=1)
  return _matmul(a, b.T)


# Up to this many multiplications OpenBLAS does not start threads. Products are
# small, and threads that spin for each other on a busy machine cost 100 times
# the work.
_UNTHREADED = 1 << 18


def _matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """a [m, k] @ b [k, n], in blocks of rows (m is a multiple of 64)."""
  m, k = a.shape
  rows = m
  while rows > 1 and rows * k * b.shape[1] > _UNTHREADED:
    rows //= 2
  return (a.reshape(m // rows, rows, k) @ b).reshape(m, -1)


# Operands.


def _raw(data: np.ndarray, bits: int) -> np.ndarray:
  """Bytes of the last axis as bit patterns of elements."""
  if bits == 4:
    return formats.unpack_nibbles(data)
  return data.view(f"u{bits // 8}")


def _read_matrix(
    descriptor: SmemDescriptor,
    cta: int,
    shared: SharedMemory,
    mn: int,
    nbytes: int,
    bits: int,
    mn_major: bool,
    who: Access,
) -> np.ndarray:
  """Bit patterns [mn, k] of an operand in shared memory (maybe transposed)."""
  if mn_major:
    k = nbytes * 8 // bits
    chunks = mn_major_chunks(descriptor, mn * bits // 8, k)
    data = shared.read_chunks(cta, chunks, who)
    return _raw(data.reshape(k, -1), bits).T
  chunks = k_major_chunks(descriptor, mn, nbytes)
  data = shared.read_chunks(cta, chunks, who)
  return _raw(data.reshape(mn, nbytes), bits)


def _decode(raw: np.ndarray, fmt: str, negate: bool) -> np.ndarray:
  values = formats.decode(fmt, raw)
  return -values if negate else values


def _read_b(
    ins: MmaInstruction, cta: int, shared: SharedMemory, who: Access
) -> np.ndarray:
  """B of this CTA, float64 [n / cta_group, k]."""
  d = ins.descriptor
  raw = _read_matrix(
      SmemDescriptor.decode(ins.b), cta, shared, ins.n // ins.cta_group,
      ins.b_bytes, FORMATS[d.b_type].bits, d.transpose_b,
      who.renamed("tcgen05.mma operand B", "async"),
  )
  return _decode(raw, d.b_type, d.negate_b)


def _read_a(
    ins: MmaInstruction,
    cta: int,
    shared: SharedMemory,
    tmem: TensorMemory,
    who: Access,
) -> np.ndarray:
  """A of this CTA as stored, float64 [m / cta_group, k or k / 2]."""
  d = ins.descriptor
  bits = FORMATS[d.a_type].bits
  rows = ins.m // ins.cta_group
  if not ins.a_in_tmem:
    raw = _read_matrix(
        SmemDescriptor.decode(ins.a), cta, shared, rows, _A_BYTES, bits,
        d.transpose_a, who.renamed("tcgen05.mma operand A", "async"),
    )
    return _decode(raw, d.a_type, d.negate_a)
  lane, column = split_address(ins.a)
  who = who.renamed("tcgen05.mma operand A")
  if ins.layout == "B":
    # Both halves of the lanes hold the same 64 rows.
    words = tmem.read_block(cta, slice(0, 128), column, _A_COLUMNS, who)
    if (words[:64] != words[64:]).any():
      raise TmemFault(
          "tcgen05.mma operand A: with M=128 and cta_group::2, lanes 64-127"
          f" must repeat lanes 0-63, but they differ in CTA {cta}",
          who.locate(),
      )
    words = words[:64]
  else:
    lanes = _d_lanes(ins.layout, lane)
    words = tmem.read_block(cta, lanes, column, _A_COLUMNS, who)
  data = np.ascontiguousarray(words).view(np.uint8)
  return _decode(_raw(data, bits), d.a_type, d.negate_a)


def _d_lanes(layout: str, lane: int) -> slice | np.ndarray:
  """Lane of each row of a CTA; for layouts with one lane a row."""
  if layout in "DA":
    return slice(0, 128)
  i = np.arange(64)
  return 32 * (i // 16) + i % 16 + lane


@functools.cache
def _metadata_16bit() -> tuple[np.ndarray, np.ndarray]:
  """Lane and bit of entry e of row r, [128, 16], for 16-bit elements.

  The same holds for tf32, whose 1:2 codes are those of two halves of elements.
  """
  r, e = np.arange(128)[:, None], np.arange(16)[None, :]
  lanes = 16 * (r // 16) + 8 * (e // 8) + r % 8
  bits = 16 * (r // 8 % 2) + 2 * (e % 8)
  return lanes, bits.astype(np.uint32)


def _read_positions(
    ins: MmaInstruction, cta: int, tmem: TensorMemory, who: Access
) -> np.ndarray:
  """Logical k of each stored element, int64 [128, k / 2]."""
  assert ins.metadata is not None
  who = who.renamed("tcgen05.mma.sp metadata")
  column = split_address(ins.metadata)[1]
  bits_of_a = FORMATS[ins.descriptor.a_type].bits
  if bits_of_a >= 16:
    words = tmem.read_block(
        cta, slice(0, 128), column + ins.descriptor.selector, 1, who
    )
    lanes, bits = _metadata_16bit()
    entries = words[lanes, 0] >> bits & np.uint32(3)
  else:
    words = tmem.read_block(cta, slice(0, 128), column, 2, who)
    shifts = np.arange(0, 32, 2, dtype=np.uint32)
    entries = (words[:, :, None] >> shifts & np.uint32(3)).reshape(128, 32)
  equal = entries[:, 0::2] == entries[:, 1::2]
  if equal.any():
    row, group = np.argwhere(equal)[0]
    raise UnsupportedPtxError(
        f"{who.what}: both entries of group {group} of row {row} of CTA {cta}"
        f" name position {entries[row, 2 * group]}; the two must differ (is the"
        " metadata at another column, or not copied yet?)",
        who.locate(),
    )
  count = entries.shape[1]
  if bits_of_a == 32:
    return _positions_1_to_2(entries, cta, who)
  unit = 4 * (np.arange(count) // 2) + entries
  if bits_of_a == 4:
    # An entry stands for a pair of adjacent elements.
    return (2 * unit[:, :, None] + np.arange(2)).reshape(128, 2 * count)
  return unit.astype(np.int64)


def _positions_1_to_2(
    entries: np.ndarray, cta: int, who: Access
) -> np.ndarray:
  """Logical k of each stored tf32 element, int64 [128, k / 2]."""
  codes = entries[:, 0::2] | entries[:, 1::2] << 2
  # The first or the second element, each as its two halves.
  wrong = (codes != 0x4) & (codes != 0xE)
  if wrong.any():
    row, group = np.argwhere(wrong)[0]
    raise UnsupportedPtxError(
        f"{who.what}: group {group} of row {row} of CTA {cta} has code"
        f" {codes[row, group]:#x}; tf32 allows 0x4 (the first of two elements)"
        " and 0xe (the second)",
        who.locate(),
    )
  return 2 * np.arange(codes.shape[1]) + (codes == 0xE)


def _read_scales(
    ins: MmaInstruction, cta: int, tmem: TensorMemory, who: Access
) -> tuple[np.ndarray, np.ndarray]:
  """Scale factors of A [m / cta_group, v] and B [n, v], float64."""
  d = ins.descriptor
  assert ins.scale_a is not None and ins.scale_b is not None
  assert d.scale_type is not None
  rows = ins.m // ins.cta_group
  raw_a = _read_scale_rows(
      ins.scale_a, rows, d.sfa_id, ins.scale_vector, cta, tmem, range(4),
      who.renamed("tcgen05.mma scale factors of A"),
  )
  who = who.renamed("tcgen05.mma scale factors of B")
  if ins.layout == "B":
    halves = [
        _read_scale_rows(
            ins.scale_b, ins.n // 2, d.sfb_id, ins.scale_vector, cta, tmem,
            range(2 * half, 2 * half + 2), who,
        )
        for half in range(2)
    ]
    raw_b = np.concatenate(halves)
  else:
    raw_b = _read_scale_rows(
        ins.scale_b, ins.n, d.sfb_id, ins.scale_vector, cta, tmem, range(4), who
    )
  return (
      formats.decode(d.scale_type, raw_a),
      formats.decode(d.scale_type, raw_b),
  )


def _read_scale_rows(
    address: int,
    rows: int,
    first: int,
    count: int,
    cta: int,
    tmem: TensorMemory,
    quarters: range,
    who: Access,
) -> np.ndarray:
  """Bytes [rows, count] of scale factors, from replicas that must be equal.

  Row r is at lane r % 32 (of each of the `quarters` of 32 lanes), column
  r // 32, bytes first .. first + count - 1.
  """
  column = split_address(address & _SCALE_ADDRESS_MASK)[1]
  columns = -(-rows // 32)
  result = None
  for quarter in quarters:
    parts = []
    # The last column may be used in part.
    full, rest = divmod(rows, 32)
    start = 32 * quarter
    if full:
      lanes = slice(start, start + 32)
      words = tmem.read_block(cta, lanes, column, full, who)
      parts.append(words.T.reshape(-1))
    if rest:
      lanes = slice(start, start + rest)
      words = tmem.read_block(cta, lanes, column + columns - 1, 1, who)
      parts.append(words.reshape(-1))
    words = np.concatenate(parts)
    data = words.view(np.uint8).reshape(rows, 4)[:, first : first + count]
    if result is None:
      result = data
    elif (result != data).any():
      row = int(np.argwhere(result != data)[0, 0])
      raise TmemFault(
          f"{who.what}: the replicas of row {row} (lane {row % 32}, column"
          f" {column + row // 32} of CTA {cta}) in lanes {32 * quarters[0]}.."
          f" and {start}.. differ: {result[row].tolist()} and"
          f" {data[row].tolist()}; copy the scales to all four subpartitions",
          who.locate(),
      )
  assert result is not None  # There is at least one quarter.
  return result


# Accumulator.


def _write_d(
    ins: MmaInstruction,
    cta: int,
    product: np.ndarray,
    tmem: TensorMemory,
    who: Access,
) -> None:
  """Adds product [m / cta_group, n] to D of a CTA, or sets D to it."""
  who = who.renamed("tcgen05.mma operand D")
  lane, column = split_address(ins.d)
  if ins.layout == "B":
    # The right half of the columns lies in the upper half of the lanes.
    half = ins.n // 2
    product = product.reshape(64, 2, half).swapaxes(0, 1).reshape(128, half)
    lanes: slice | np.ndarray = slice(0, 128)
  else:
    lanes = _d_lanes(ins.layout, lane)
  if any(ins.disabled_lanes):
    words = np.asarray(ins.disabled_lanes, np.uint32)
    off = (words[:, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(128)
    every = np.arange(128)[lanes] if isinstance(lanes, slice) else lanes
    on = off[every] == 0
    lanes, product = every[on], product[on]
    if not lanes.size:
      return
  old = None
  if ins.accumulate:
    old = tmem.read_block(cta, lanes, column, product.shape[1], who)
  bits = _ACCUMULATE[ins.descriptor.d_type](ins, product, old)
  tmem.write_block(cta, lanes, column, bits, who)


def _accumulate_f32(ins, product, old) -> np.ndarray:
  if old is not None:
    previous = old.view(np.float32).astype(np.float64)
    if ins.scale_d:
      previous *= 2.0**-ins.scale_d
    product = previous + product
  return product.astype(np.float32).view(np.uint32)


def _accumulate_f16(ins, product, old) -> np.ndarray:
  if old is not None:
    previous = (old & 0xFFFF).astype(np.uint16).view(np.float16)
    product = previous.astype(np.float64) * 2.0**-ins.scale_d + product
  bits = product.astype(np.float16).view(np.uint16)
  return bits.astype(np.uint32) | UNSPECIFIED_HALF


def _accumulate_s32(ins, product, old) -> np.ndarray:
  total = product.astype(np.int64)
  if old is not None:
    total += old.view(np.int32)
  if ins.descriptor.saturate:
    limits = np.iinfo(np.int32)
    total = np.clip(total, limits.min, limits.max)
  return total.astype(np.uint32)  # Modulo 2 ** 32.


_ACCUMULATE = {
    "f32": _accumulate_f32,
    "f16": _accumulate_f16,
    "s32": _accumulate_s32,
}
