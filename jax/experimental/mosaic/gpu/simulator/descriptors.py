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
"""Shared memory and instruction descriptors of tcgen05 (PTX ISA 9.7.16.4).

What is not settled (see the refusals) raises; nothing is guessed.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from .errors import SimulationError, UnsupportedPtxError
from .formats import FORMATS
from .swizzle import pattern_bytes, swizzle


class DescriptorError(SimulationError):
  """A descriptor the hardware does not define."""


_SWIZZLE_WIDTH = {0: 0, 2: 128, 4: 64, 6: 32}


@dataclasses.dataclass(frozen=True)
class SmemDescriptor:
  """Matrix descriptor of shared memory, 64 bits.

  Attributes:
    start: byte address of the first element.
    leading, stride: leading and stride dimension byte offsets.
    width: swizzle in bytes: 0 (none), 32, 64 or 128.
  """

  start: int
  leading: int
  stride: int
  width: int

  @classmethod
  @functools.lru_cache(maxsize=4096)
  def decode(cls, value: int) -> SmemDescriptor:
    """Reads a descriptor.

    Bits 46-48 are ignored: the ISA says 0b001, JAX leaves them 0.
    """
    if base_offset := value >> 49 & 7:
      raise UnsupportedPtxError(
          f"shared memory descriptor {value:#x} has matrix base offset"
          f" {base_offset}; only 0 is modelled, so start the tile at a multiple"
          " of 8 swizzled rows"
      )
    if value >> 52 & 1:
      raise UnsupportedPtxError(
          f"shared memory descriptor {value:#x} gives the leading dimension as"
          " an absolute address (bit 52), which sm_100a does not have"
      )
    if value >> 53 & 0xFF:
      raise DescriptorError(
          f"shared memory descriptor {value:#x}: bits 53-60 must be 0, got"
          f" {value >> 53 & 0xFF:#x}"
      )
    code = value >> 61 & 7
    if code == 1:
      raise UnsupportedPtxError(
          f"shared memory descriptor {value:#x}: the 128-byte swizzle with"
          " 32-byte atoms is not modelled"
      )
    if code not in _SWIZZLE_WIDTH:
      raise DescriptorError(
          f"shared memory descriptor {value:#x}: swizzle code {code} is not"
          " defined; expected 0 (none), 2 (128 B), 4 (64 B) or 6 (32 B)"
      )
    return cls(
        start=(value & 0x3FFF) << 4,
        leading=(value >> 16 & 0x3FFF) << 4,
        stride=(value >> 32 & 0x3FFF) << 4,
        width=_SWIZZLE_WIDTH[code],
    )

  def encode(self) -> int:
    code = {w: c for c, w in _SWIZZLE_WIDTH.items()}[self.width]
    return (
        self.start >> 4
        | self.leading >> 4 << 16
        | self.stride >> 4 << 32
        | code << 61
    )


@functools.lru_cache(maxsize=1024)
def k_major_chunks(
    descriptor: SmemDescriptor, rows: int, nbytes: int
) -> np.ndarray:
  """Addresses of the 16-byte chunks of a K-major operand.

  Args:
    descriptor: of the operand.
    rows: rows of M or N.
    nbytes: bytes along K of one instruction, a multiple of 16.

  Returns:
    int64 [rows, nbytes // 16], after the swizzle.
  """
  row = np.arange(rows)[:, None]
  chunk = np.arange(nbytes // 16)[None, :]
  d = descriptor
  if not d.width:
    address = (
        d.start + row // 8 * d.stride + row % 8 * 16 + chunk * d.leading
    )
  else:
    _check_start(d)
    if d.start % d.width + nbytes > d.width:
      raise UnsupportedPtxError(
          f"K-major operand: {nbytes} bytes along K from byte"
          f" {d.start % d.width} of a swizzled row of {d.width} bytes pass its"
          " end; use a wider swizzle"
      )
    address = d.start + row // 8 * d.stride + row % 8 * d.width + 16 * chunk
    address = swizzle(address, d.width)
  address.flags.writeable = False
  return address


@functools.lru_cache(maxsize=1024)
def mn_major_chunks(
    descriptor: SmemDescriptor, nbytes: int, k: int
) -> np.ndarray:
  """Addresses of the 16-byte chunks of an MN-major operand.

  Args:
    descriptor: of the operand.
    nbytes: bytes along M or N.
    k: elements along K.

  Returns:
    int64 [k, nbytes // 16], after the swizzle.
  """
  d = descriptor
  if not d.width:
    raise UnsupportedPtxError(
        "MN-major operand without swizzle: its layout was not verified; use a"
        " swizzle of 32, 64 or 128 bytes"
    )
  if nbytes % 16:
    raise DescriptorError(
        f"MN-major operand: {nbytes} bytes along M or N must be a multiple of"
        " 16"
    )
  _check_start(d)
  if d.start % d.width:
    raise UnsupportedPtxError(
        f"MN-major operand: start {d.start:#x} is inside a swizzled row of"
        f" {d.width} bytes; slice M or N by whole rows"
    )
  mn = 16 * np.arange(nbytes // 16)[None, :]
  row = np.arange(k)[:, None]
  address = (
      d.start
      + mn // d.width * d.leading
      + row // 8 * d.stride
      + row % 8 * d.width
      + mn % d.width
  )
  address = swizzle(address, d.width)
  address.flags.writeable = False
  return address


def _check_start(d: SmemDescriptor) -> None:
  if d.start % pattern_bytes(d.width) >= d.width:
    raise UnsupportedPtxError(
        f"shared memory descriptor: start {d.start:#x} is not in the first row"
        f" of a {d.width}-byte swizzle pattern, which repeats every"
        f" {pattern_bytes(d.width)} bytes; align the tile to that"
    )



# Instruction descriptors.

_F8F6F4 = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}


@dataclasses.dataclass(frozen=True)
class Kind:
  """What a `.kind` can do (PTX ISA tables 39 and 42-44).

  Attributes:
    k: elements along K of a dense instruction; sparse ones have twice as many.
    d_types, a_types: names by code in the descriptor.
    scaled: block scaling.
  """

  k: int
  d_types: dict[int, str]
  a_types: dict[int, str]
  scaled: bool = False


KINDS = {
    "f16": Kind(16, {0: "f16", 1: "f32"}, {0: "f16", 1: "bf16"}),
    "tf32": Kind(8, {1: "f32"}, {2: "tf32"}),
    "f8f6f4": Kind(32, {0: "f16", 1: "f32"}, _F8F6F4),
    "i8": Kind(32, {2: "s32"}, {0: "u8", 1: "s8"}),
    "mxf8f6f4": Kind(32, {}, _F8F6F4, scaled=True),
    "mxf4": Kind(64, {}, {1: "e2m1"}, scaled=True),
    "mxf4nvf4": Kind(64, {}, {1: "e2m1"}, scaled=True),
}


@dataclasses.dataclass(frozen=True)
class InstrDescriptor:
  """Instruction descriptor of tcgen05.mma, 32 bits.

  Attributes:
    kind: "f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4" or "mxf4nvf4".
    m, n: shape, in total over the CTA pair for cta_group::2.
    sparse, saturate: flags.
    selector: sparsity selector, 0 or 1.
    d_type: "f32", "f16" or "s32".
    a_type, b_type: names of `formats.FORMATS`.
    negate_a, negate_b, transpose_a, transpose_b: flags; "transpose" is
      MN-major.
    scale_type: "ue8m0" or "ue4m3" for scaled kinds.
    sfa_id, sfb_id: first byte of the scale factors in their column.
  """

  kind: str
  m: int
  n: int
  d_type: str
  a_type: str
  b_type: str
  sparse: bool = False
  selector: int = 0
  saturate: bool = False
  negate_a: bool = False
  negate_b: bool = False
  transpose_a: bool = False
  transpose_b: bool = False
  scale_type: str | None = None
  sfa_id: int = 0
  sfb_id: int = 0

  @property
  def k(self) -> int:
    """Logical elements along K of one instruction."""
    return KINDS[self.kind].k * (2 if self.sparse else 1)

  @classmethod
  @functools.lru_cache(maxsize=4096)
  def decode(cls, kind_name: str, value: int) -> InstrDescriptor:
    kind = KINDS.get(kind_name)
    if kind is None:
      raise UnsupportedPtxError(
          f"tcgen05.mma kind::{kind_name} is not modelled; expected one of"
          f" {', '.join(KINDS)}"
      )
    f4 = kind_name in ("mxf4", "mxf4nvf4")

    def field(low: int, width: int = 1) -> int:
      return value >> low & (1 << width) - 1

    def choose(what: str, code: int, names: dict[int, str]) -> str:
      if code not in names:
        expected = ", ".join(f"{c} ({n})" for c, n in names.items())
        raise DescriptorError(
            f"instruction descriptor {value:#010x}: {what} code {code} is not"
            f" legal for kind::{kind_name}; expected {expected}"
        )
      return names[code]

    reserved = [(6, 1)]
    if kind.scaled:
      reserved += [(3, 1), (24, 3)]
      if f4:
        reserved += [(12, 1), (15, 2)]
      reserved += [(31, 1)]
    else:
      reserved += [(23, 1), (29, 1)]
    for low, width in reserved:
      if field(low, width):
        raise DescriptorError(
            f"instruction descriptor {value:#010x} of kind::{kind_name}: bits"
            f" {low}-{low + width - 1} must be 0, got {field(low, width)}"
        )
    common = dict(
        kind=kind_name,
        n=field(17, 6) << 3,
        sparse=bool(field(2)),
        a_type=choose("A type", field(7, 3), kind.a_types),
        b_type=choose("B type", field(10, 2 if f4 else 3), kind.a_types),
        negate_a=bool(field(13)),
        negate_b=bool(field(14)),
        transpose_a=bool(field(15)),
        transpose_b=bool(field(16)),
    )
    if kind.scaled:
      if field(0, 2):
        raise DescriptorError(
            f"instruction descriptor {value:#010x} of kind::{kind_name}: bits"
            f" 0-1 must be 0, got {field(0, 2)}"
        )
      result = cls(
          m=field(27, 2) << 7,
          d_type="f32",
          scale_type="ue8m0" if field(23) else "ue4m3",
          sfb_id=field(4, 2),
          sfa_id=field(29, 2),
          **common,
      )
      if result.scale_type == "ue4m3" and kind_name != "mxf4nvf4":
        raise DescriptorError(
            f"instruction descriptor {value:#010x}: kind::{kind_name} needs"
            " UE8M0 scales (bit 23 set)"
        )
    else:
      if field(30, 2):
        raise UnsupportedPtxError(
            f"instruction descriptor {value:#010x}: a maximum shift of B (bits"
            " 30-31, .ws) is not modelled"
        )
      if field(0, 2) > 1:
        raise UnsupportedPtxError(
            f"instruction descriptor {value:#010x}: sparsity selector"
            f" {field(0, 2)} is not modelled; expected 0 or 1"
        )
      result = cls(
          m=field(24, 5) << 4,
          d_type=choose("D type", field(4, 2), kind.d_types),
          selector=field(0, 2),
          saturate=bool(field(3)),
          **common,
      )
    result._check(value)
    return result

  def _check(self, value: int) -> None:
    def error(problem: str) -> DescriptorError:
      return DescriptorError(
          f"instruction descriptor {value:#010x} of kind::{self.kind}:"
          f" {problem}"
      )

    if self.selector and not self.sparse:
      raise error("a sparsity selector without the sparse bit")
    if self.selector and self.kind not in ("f16", "tf32"):
      raise error("the sparsity selector must be 0, got 1")
    if self.saturate and self.kind != "i8":
      raise error("the saturate bit is only for kind::i8")
    if self.kind == "i8" and (self.negate_a or self.negate_b):
      raise error("negation is not possible for integers")
    if self.kind == "f16" and self.a_type != self.b_type:
      raise error(
          f"A and B must have one type, got {self.a_type} and {self.b_type}"
      )
    for name, transpose, kind in (
        ("A", self.transpose_a, self.a_type),
        ("B", self.transpose_b, self.b_type),
    ):
      if transpose and FORMATS[kind].bits < 8:
        raise error(f"{name} of type {kind} must be K-major")
      if transpose and kind == "tf32":
        raise UnsupportedPtxError(
            f"MN-major {name} of type tf32 (32-byte atoms) is not modelled; use"
            " K-major"
        )
      if FORMATS[kind].bits < 8 and self.kind in ("f8f6f4", "mxf8f6f4"):
        raise UnsupportedPtxError(
            f"kind::{self.kind} with {name} of type {kind} (padded storage) is"
            " not modelled; expected e4m3 or e5m2"
        )

  def check_shape(self, cta_group: int) -> None:
    """Raises unless M and N are legal (PTX ISA table 39)."""
    if cta_group == 1:
      m_legal = (128,) if KINDS[self.kind].scaled else (64, 128)
      first, step = 8, 8
    else:
      m_legal = (128, 256)
      if KINDS[self.kind].scaled and self.sparse:
        m_legal = (256,)
      first, step = 16, 16
    if (
        self.kind == "f8f6f4"
        and self.transpose_b
        and FORMATS[self.b_type].bits == 8
    ):
      first, step = 16 * cta_group, 16 * cta_group
    n_legal = list(range(first, 257, step))
    if self.kind == "i8":
      n_legal = (
          [8, 16, 24, *range(32, 257, 16)]
          if cta_group == 1
          else list(range(32, 257, 32))
      )
    if self.m not in m_legal:
      raise DescriptorError(
          f"kind::{self.kind}{' sparse' if self.sparse else ''} with"
          f" cta_group::{cta_group}: M must be one of {m_legal}, got {self.m}"
      )
    if self.n not in n_legal:
      raise DescriptorError(
          f"kind::{self.kind} with cta_group::{cta_group}: N must be one of"
          f" {n_legal[0]}, {n_legal[1]}, ..., {n_legal[-1]}, got {self.n}"
      )
