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
"""Integer arithmetic, bits, shifts, comparison and selection."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet, each

_TYPES = ("s16", "u16", "s32", "u32", "s64", "u64")


def _bits(type_: str) -> int:
  return int(type_[1:])


def _values(seed: str, types, count: int = 512) -> list[np.ndarray]:
  """Operands of the given types: combinations of edges, then random ones."""
  edges = [snippet.int_edges(_bits(t)) for t in types]
  if len(types) == 3:
    edges = [e[i :: len(types)] for i, e in enumerate(edges)]
  edges = snippet.combinations(edges)
  values = [
      snippet.int_values(f"{seed}{i}", _bits(t), count)
      for i, t in enumerate(types)
  ]
  return [c[:count] for c in snippet.fill_up(edges, values)]


def snippets() -> Iterator[Snippet]:
  yield from _arithmetic()
  yield from _carry()
  yield from _bit_fields()
  yield from _shifts()
  yield from _selection()


def _form(opcode, types, out, operands="%x, %a, %b, %c"):
  operands = ", ".join(operands.split(", ")[: len(types) + 1])
  inputs = _values(opcode, types)
  return each(opcode, f"{opcode} {operands};", inputs, out)


def _arithmetic() -> Iterator[Snippet]:
  for t in _TYPES:
    for name in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
      yield _form(f"{name}.{t}", [t, t], t)
    for name in ("mad.lo", "mad.hi", "sad"):
      yield _form(f"{name}.{t}", [t, t, t], t)
    if _bits(t) < 64:
      wide = f"{t[0]}{2 * _bits(t)}"
      yield _form(f"mul.wide.{t}", [t, t], wide)
      yield _form(f"mad.wide.{t}", [t, t, wide], wide)
    if t[0] == "s":
      yield _form(f"abs.{t}", [t], t)
      yield _form(f"neg.{t}", [t], t)
  for name in ("add.sat", "sub.sat", "min.relu", "max.relu"):
    yield _form(f"{name}.s32", ["s32", "s32"], "s32")
  for name in ("add", "min", "max"):
    for t in ("s16x2", "u16x2"):
      yield _form(f"{name}.{t}", ["b32", "b32"], "b32")
  for name in ("min.relu", "max.relu"):
    yield _form(f"{name}.s16x2", ["b32", "b32"], "b32")
  yield _form("mad.hi.sat.s32", ["s32"] * 3, "s32")
  for t in ("s32", "u32"):
    for part in ("lo", "hi"):
      yield _form(f"mul24.{part}.{t}", [t, t], t)
      yield _form(f"mad24.{part}.{t}", [t, t, t], t)
    for other in ("s32", "u32"):
      yield _form(f"dp4a.{t}.{other}", ["b32", "b32", "b32"], "b32")


def _carry() -> Iterator[Snippet]:
  for bits in (32, 64):
    t = f"u{bits}"
    inputs = _values(f"carry{bits}", [t] * 4)
    for name in ("add", "sub"):
      yield each(
          f"{name}.cc.{t} chain",
          f"{name}.cc.{t} %x, %a, %b;\n"
          f"{name}c.cc.{t} %y, %c, %e;\n"
          f"{name}c.{t} %z, %a, %e;",
          inputs, f"{t} {t} {t}",
      )
    for part in ("lo", "hi"):
      yield each(
          f"mad.{part}.cc.{t} chain",
          f"mad.{part}.cc.{t} %x, %a, %b, %c;\n"
          f"madc.{part}.cc.{t} %y, %b, %c, %e;\n"
          f"addc.{t} %z, %a, 0;",
          inputs, f"{t} {t} {t}",
      )
  # The product of two 64-bit numbers, as compilers write it.
  inputs = _values("product", ["u32"] * 4)
  yield each(
      "128-bit product",
      "mul.lo.u32 %x, %a, %c;\n"
      "mul.hi.u32 %y, %a, %c;\n"
      "mad.lo.cc.u32 %y, %a, %e, %y;\n"
      "madc.hi.u32 %z, %a, %e, 0;\n"
      "mad.lo.cc.u32 %y, %b, %c, %y;\n"
      "madc.hi.cc.u32 %z, %b, %c, %z;\n"
      "addc.u32 %u, 0, 0;\n"
      "mad.lo.cc.u32 %z, %b, %e, %z;\n"
      "madc.hi.u32 %u, %b, %e, %u;",
      inputs, "u32 u32 u32 u32",
  )


def _positions(seed, bits, values) -> list[np.ndarray]:
  """Positions and lengths of fields: inside, at the end, far beyond."""
  edges = np.array(
      [0, 1, 5, bits - 1, bits, bits + 1, 200, 255, 256, 257, 0xFFFFFFFF, 31],
      np.uint32,
  )
  position, length = snippet.combinations([edges, edges])
  count = 512 - position.size
  more = [
      snippet.random(f"{seed}{i}", count) % np.uint32(bits + 2) for i in (0, 1)
  ]
  return [values, *snippet.fill_up([position, length], more)]


def _bit_fields() -> Iterator[Snippet]:
  for bits in (32, 64):
    values = snippet.int_values(f"field{bits}", bits, 512)
    for sign in "su":
      t = f"{sign}{bits}"
      yield each(
          f"bfe.{t}", f"bfe.{t} %x, %a, %b, %c;",
          _positions(t, bits, values), t,
      )
      yield _form(f"bfind.{t}", [t], "u32")
      yield _form(f"bfind.shiftamt.{t}", [t], "u32")
    into = snippet.int_values(f"into{bits}", bits, 512)
    a, b, c = _positions(f"bfi{bits}", bits, values)
    yield each(
        f"bfi.b{bits}", f"bfi.b{bits} %x, %a, %b, %c, %e;", [a, into, b, c],
        f"b{bits}",
    )
    for name in ("clz", "popc"):
      yield _form(f"{name}.b{bits}", [f"b{bits}"], "u32")
    yield _form(f"brev.b{bits}", [f"b{bits}"], f"b{bits}")
  _, a, b = _positions("bmsk", 32, None)
  for mode in ("clamp", "wrap"):
    yield each(
        f"bmsk.{mode}.b32", f"bmsk.{mode}.b32 %x, %a, %b;", [a, b], "b32"
    )
  three = [snippet.random(f"prmt{i}", 1024) for i in range(3)]
  for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
    yield each(
        f"prmt.b32{mode}", f"prmt.b32{mode} %x, %a, %b, %c;",
        [v[:512] for v in three], "b32",
    )
  for selector in (0x3210, 0x7654, 0x5410, 0x7632, 0x89AB, 0xFEDC, 0x0123):
    yield each(
        f"prmt.b32 {selector:#x}",
        f"prmt.b32 %x, %a, %b, {selector:#x};",
        [v[:128] for v in three[:2]], "b32",
    )
  # All tables: eight of the 256 in a kernel are enough to see each once.
  for first in range(0, 256, 6):
    tables = range(first, min(first + 6, 256))
    body = "\n".join(
        f"lop3.b32 %{d}, %a, %b, %c, {table:#x};"
        for d, table in zip("xyzuvw", tables)
    )
    yield each(
        f"lop3.b32 {first:#x}", body, [v[:32] for v in three],
        " ".join(["b32"] * len(tables)),
    )
  for name in ("and", "or", "xor"):
    for bits in (16, 32, 64):
      yield _form(f"{name}.b{bits}", [f"b{bits}"] * 2, f"b{bits}")
  for name in ("not", "cnot"):
    for bits in (16, 32, 64):
      yield _form(f"{name}.b{bits}", [f"b{bits}"], f"b{bits}")


def _shifts() -> Iterator[Snippet]:
  for bits in (16, 32, 64):
    edges = [
        snippet.int_edges(bits)[::2],
        np.array(
            [0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 0x10020,
             0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
            np.uint32,
        ),
    ]
    values = [
        snippet.int_values(f"shift{bits}", bits, 128),
        snippet.random(f"by{bits}", 128) % np.uint32(bits + 3),
    ]
    inputs = snippet.fill_up(snippet.combinations(edges), values)
    for form in ("shl.b", "shr.b", "shr.s", "shr.u"):
      name = f"{form}{bits}"
      yield each(name, f"{name} %x, %a, %b;", inputs, f"b{bits}")
    for amount in (1, bits - 1, bits, bits + 1, 200):
      yield each(
          f"shifts of b{bits} by {amount}",
          f"shl.b{bits} %x, %a, {amount};\n"
          f"shr.s{bits} %y, %a, {amount};\n"
          f"shr.u{bits} %z, %a, {amount};",
          [values[0]], " ".join([f"b{bits}"] * 3),
      )
  amounts = np.array(
      [0, 1, 5, 31, 32, 33, 63, 64, 100, 256, 0x80000000, 0xFFFFFFFF],
      np.uint32,
  )
  amounts = np.resize(amounts, 128)
  two = [snippet.random(f"shf{i}", 128) for i in (0, 1)]
  for side in "lr":
    for mode in ("clamp", "wrap"):
      name = f"shf.{side}.{mode}.b32"
      yield each(name, f"{name} %x, %a, %b, %c;", [*two, amounts], "b32")


def _selection() -> Iterator[Snippet]:
  for t in ("b16", "b32", "b64", *_TYPES):
    compares = ["eq", "ne"]
    if t[0] != "b":
      compares += ["lt", "le", "gt", "ge"]
    if t[0] == "u":
      compares += ["lo", "ls", "hi", "hs"]
    inputs = _values(f"setp{t}", [t, t], 384)
    for group in (compares[:5], compares[5:]):
      if group:
        body = "\n".join(
            f"setp.{c}.{t} %p{d}, %a, %b;" for d, c in zip("xyzuv", group)
        )
        yield each(
            f"setp.{t} {' '.join(group)}", body, inputs,
            " ".join(["pred"] * len(group)),
        )
  inputs = _values("combine", ["s32", "s32", "u32"])
  for combine in ("and", "or", "xor"):
    for negated in ("", "!"):
      yield each(
          f"setp.lt.{combine}.s32 {negated}c",
          "and.b32 %c, %c, 1;\nsetp.ne.b32 %p0, %c, 0;\n"
          f"setp.lt.{combine}.s32 %px|%py, %a, %b, {negated}%p0;\n"
          f"setp.ge.{combine}.u32 %pz, %a, %b, {negated}%p0;",
          inputs, "pred pred pred",
      )
  for t in ("b16", "b32", "b64"):
    bits = _bits(t)
    yield each(
        f"selp.{t}",
        f"setp.lt.s{bits} %p0, %a, %b;\nselp.{t} %x, %a, %b, %p0;\n"
        f"selp.{t} %y, %a, %b, !%p0;\nselp.{t} %z, 1, -1, %p0;",
        _values(f"selp{t}", [t, t], 128), f"{t} {t} {t}",
    )
    floats = np.resize(snippet.float_edges("f32"), 128)
    ints = np.resize(snippet.int_edges(32), 128)
    two = _values(f"slct{t}", [t, t], 128)
    yield each(
        f"slct.{t}",
        f"slct.{t}.s32 %x, %a, %b, %c;\nslct.{t}.f32 %y, %a, %b, %e;\n"
        f"slct.ftz.{t}.f32 %z, %a, %b, %e;",
        [*two, ints, floats], f"{t} {t} {t}",
    )
  inputs = _values("set", ["s32", "s32"], 384)
  for to in ("u32", "s32", "f32"):
    yield each(
        f"set.{to}",
        f"set.lt.{to}.s32 %x, %a, %b;\nset.hi.{to}.u32 %y, %a, %b;",
        inputs, "b32 b32",
    )
  # Predicate logic.
  yield each(
      "predicates",
      "setp.lt.s32 %p0, %a, %b;\nsetp.gt.u32 %p1, %a, %b;\n"
      "and.pred %px, %p0, %p1;\nor.pred %py, %p0, %p1;\n"
      "xor.pred %pz, %p0, %p1;\nnot.pred %pu, %p0;\nmov.pred %pv, %p1;",
      inputs, "pred pred pred pred pred",
  )
  yield each(
      "mov packing",
      "mov.b32 {%h0, %h1}, %a;\nmov.b32 %x, {%h1, %h0};\n"
      "mov.b64 %rd0, {%a, %b};\nmov.b64 {%r1, %y}, %rd0;\n"
      "mov.b32 %z, %r1;\n"
      "cvt.u16.u32 %h2, %b;\nmov.b64 %u, {%h0, %h2, %h1, %h0};",
      inputs, "b32 b32 b32 b64",
  )
