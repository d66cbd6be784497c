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
"""Issues the many instructions of one ``tcgen05.mma`` call at a low cost.

A single thread issues all MMAs, and everything between two of them delays the
tensor core. In SASS, their operands are pairs of uniform registers: each SMEM
descriptor, (metadata address, instruction descriptor), and (A scale address, B
scale address). ptxas knows nearly all of the words as constants. Left to
itself, it makes each half of each pair on its own, all of them long before they
are used, and spills the uniform registers, of which there are fewer than 80.

The code that is written here leaves it little choice:

* Operands are 64-bit sums of a pair and an offset, a single ``UIADD3.64``.
* Before each group of instructions there is a branch that is never taken,
  across which ptxas does not rearrange them. A few instructions do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import llvm


@dataclasses.dataclass(frozen=True)
class _Groups:
  """Where branches separate instructions, found by trying.

  With larger groups, uniform registers spill. Smaller ones mean more branches.

  Attributes:
    free: How many of the first instructions need no branch before them, if
      there are at most so many in all: pairs (of how many, how many).
    size: How many instructions there are to a branch then.
  """

  free: tuple[tuple[int, int], ...]
  size: int = 6

  def num_free(self, count: int) -> int:
    return next((free for most, free in self.free if count <= most), 0)


# By what else takes registers: A in TMEM and scales were copied there.
_GROUPS = {
    "A in SMEM": _Groups(((12, 12), (16, 10))),
    "A in TMEM": _Groups(((8, 8), (16, 6))),
    "scales": _Groups(((8, 8),)),
    "4-bit types": _Groups(((6, 6),), size=8),
}
# A TMEM address is a lane (below 128) in the upper and a column in the lower 16
# bits, so that these are always zero. ptxas does not know, and cannot conclude
# from one of them to the next.
_UNUSED_ADDRESS_BITS = range(23, 32)


# What these operations return does not only depend on their operands.
_READS = ("llvm.call", "llvm.inline_asm", "llvm.load", "memref.load")
_LOOPS = ("scf.for", "scf.while")


def _innermost_loop() -> ir.OpView | ir.Operation | None:
  op = ir.InsertionPoint.current.block.owner
  while op is not None and op.name not in _LOOPS:
    op = op.parent
  return op


def _is_invariant(
    loop: ir.OpView | ir.Operation, values: Iterable[ir.Value]
) -> bool:
  """Whether values are the same in each iteration."""
  todo, seen = list(values), set()
  while todo:
    value = todo.pop()
    if value in seen:
      continue
    seen.add(value)
    owner = value.owner
    is_argument = isinstance(owner, ir.Block)
    outer = owner.owner if is_argument else owner.parent
    while outer is not None and outer != loop:
      outer = outer.parent
    if outer is None:
      continue  # Defined outside of the loop.
    if is_argument or owner.name in _READS or owner.regions:
      return False
    todo += owner.operands
  return True


def _constant(value: ir.Value) -> int | None:
  owner = value.owner
  if isinstance(owner, ir.Block) or owner.name != "arith.constant":
    return None
  return ir.IntegerAttr(owner.attributes["value"]).value


class MmaSequence:
  """The instructions of a call, which become a single block of PTX.

  Args:
    d: The TMEM address of D.
    bases: The TMEM addresses of the other operands.
  """

  def __init__(self, d: ir.Value, bases: Sequence[ir.Value] = ()):
    self._bases = [d, *bases]
    self._operands: list[ir.Value] = []
    self._constraints: list[str] = []
    self._lines: list[str] = []
    self._pairs: dict[tuple[str, ...], tuple[str, int]] = {}
    self._sums: dict[tuple[str, int], str] = {}
    self._registers = {32: 0, 64: 0}
    self._instructions: list[list[str]] = []
    self._kind = ""
    # What the operands are derived from, apart from constants.
    self._sources: set[ir.Value] = {d, *bases}
    self._d = self._operand(d)

  def add(
      self,
      opcode: str,
      d: ir.Value,
      a: tuple[ir.Value, int] | ir.Value,
      b: tuple[ir.Value, int],
      i_desc: ir.Value,
      accumulate: ir.Value,
      *,
      metadata: ir.Value | None = None,
      scales: Sequence[ir.Value] = (),
  ) -> None:
    """Adds an instruction.

    Args:
      opcode: The instruction.
      d: The TMEM address of D: constants added to that of the call, as are all
        TMEM addresses here.
      a: The SMEM descriptor of A as an address and a constant to add to it, or
        the TMEM address.
      b: The SMEM descriptor of B.
      i_desc: The instruction descriptor, a constant.
      accumulate: Whether to add to D.
      metadata: The TMEM address of the sparse metadata.
      scales: The TMEM addresses of the scales of A and B.
    """
    self._lines = []
    if "mxf4" in opcode:
      self._kind = "4-bit types"
    elif scales:
      self._kind = "scales"
    else:
      self._kind = "A in SMEM" if isinstance(a, tuple) else "A in TMEM"
    self._sources |= {x[0] for x in (a, b) if isinstance(x, tuple)}
    if isinstance(a, tuple):
      a_ptx = self._pair(self._operand(a[0]), a[1])
    else:
      a_ptx = f"[{self._address(a)}]"
    b_ptx = self._pair(self._operand(b[0]), b[1])
    i_desc_word = _constant(i_desc)
    assert i_desc_word is not None
    i_desc_word &= 0xFFFFFFFF
    if metadata is not None:
      base, column = self._split(metadata)
      pair = self._pair(base, i_desc_word << 32 | column)
      meta_ptx, i_desc_ptx = self._halves(pair)
      i_desc_ptx = f"[{meta_ptx}], {i_desc_ptx}"
    else:
      i_desc_ptx = self._sum("", i_desc_word)
    if scales:
      (a_base, a_column), (b_base, b_column) = map(self._split, scales)
      pair = self._pair(a_base, b_column << 32 | a_column, b_base)
      i_desc_ptx += "".join(f", [{half}]" for half in self._halves(pair))
    accumulate_ptx = "yes"
    if not _constant(accumulate):
      accumulate_ptx = self._operand(accumulate, "b")
    self._lines.append(
        f"{opcode} [{self._address(d)}], {a_ptx}, {b_ptx}, {i_desc_ptx},"
        f" {accumulate_ptx};"
    )
    self._instructions.append(self._lines)

  def emit(self) -> None:
    """Emits the instructions that were added."""
    lines = ["mov.pred yes, 1;"]
    groups = _GROUPS[self._kind]
    count = len(self._instructions)
    # Before a loop, ptxas makes as many operands as there is room for.
    free = count if self._is_repeated() else groups.num_free(count)
    for i, instruction in enumerate(self._instructions, -free):
      if i >= 0 and i % groups.size == 0:
        group = i // groups.size
        bit = _UNUSED_ADDRESS_BITS[group % len(_UNUSED_ADDRESS_BITS)]
        lines += [
            f"and.b32 unused, {self._d}, {1 << bit};",
            "setp.ne.b32 never, unused, 0;",
            "@never bra DONE;",
        ]
      lines += instruction
    ptx = "\n".join([
        "{",
        ".reg .pred yes, never;",
        ".reg .b32 unused;",
        f".reg .b32 word<{self._registers[32] + 1}>;",
        f".reg .b64 pair<{self._registers[64] + 1}>;",
        *lines,
        "DONE:",
        "}",
    ])
    llvm.inline_asm(
        ir.Type.parse("!llvm.void"),
        self._operands,
        ptx,
        ",".join(self._constraints),
        has_side_effects=True,
    )

  def _is_repeated(self) -> bool:
    """Whether a loop issues these very instructions in each iteration."""
    loop = _innermost_loop()
    if loop is None or self._kind not in ("A in SMEM", "A in TMEM"):
      return False
    return _is_invariant(loop, self._sources)

  def _operand(self, value: ir.Value, constraint: str = "r") -> str:
    """The name of a value in the PTX."""
    if value not in self._operands:
      self._operands.append(value)
      self._constraints.append(constraint)
    return f"${self._operands.index(value)}"

  def _split(self, address: ir.Value) -> tuple[str, int]:
    """Splits a TMEM address into that of the operand and a constant."""
    offset = 0
    while address not in self._bases:
      owner = address.owner
      assert not isinstance(owner, ir.Block) and owner.name == "arith.addi"
      address, addend = owner.operands
      addend = _constant(addend)
      assert addend is not None
      offset += addend
    return self._operand(address), offset

  def _register(self, bits: int) -> str:
    number = self._registers[bits]
    self._registers[bits] += 1
    return f"{'word' if bits == 32 else 'pair'}{number}"

  def _sum(self, base: str, offset: int) -> str:
    """The register of a 32-bit sum. Equal ones are computed once."""
    if base and not offset:
      return base
    if (base, offset) not in self._sums:
      register = self._sums[base, offset] = self._register(32)
      self._lines.append(
          f"add.s32 {register}, {base}, {offset};"
          if base else f"mov.b32 {register}, {offset};"
      )
    return self._sums[base, offset]

  def _address(self, address: ir.Value) -> str:
    return self._sum(*self._split(address))

  def _pair(self, low: str, offset: int, high: str = "") -> str:
    """The register of ``(low, high) + offset``, where high may be missing."""
    # Pairs with the same upper word, if that is a constant, share a base.
    key = (low, high or str(offset >> 32))
    if key not in self._pairs:
      words = self._sum(low, offset & 0xFFFFFFFF), self._sum(high, offset >> 32)
      register = self._register(64)
      self._lines.append(f"mov.b64 {register}, {{{', '.join(words)}}};")
      self._pairs[key] = register, offset
    base, base_offset = self._pairs[key]
    if offset == base_offset:
      return base
    register = self._register(64)
    self._lines.append(f"add.s64 {register}, {base}, {offset - base_offset};")
    return register

  def _halves(self, pair: str) -> tuple[str, str]:
    low, high = self._register(32), self._register(32)
    self._lines.append(f"mov.b64 {{{low}, {high}}}, {pair};")
    return low, high
