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
"""ld, st, atomics and matrices in shared memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet

SHARED = 4096
_SHARED_WORDS = SHARED // 4


def fill_shared(buffer: str, nbytes: int = SHARED) -> str:
  """Copies a buffer to shared memory, by all threads."""
  return f"""
  {{
    .reg .pred %more;
    .reg .b32 %i, %to, %v;
    .reg .b64 %from;
    mov.u32 %i, %tid.x;
  FILL:
    setp.lt.u32 %more, %i, {nbytes // 4};
    @!%more bra FILLED;
    mad.wide.u32 %from, %i, 4, {buffer};
    ld.global.b32 %v, [%from];
    mad.lo.u32 %to, %i, 4, %smem;
    st.shared.b32 [%to], %v;
    add.u32 %i, %i, %size;
    bra FILL;
  FILLED:
    bar.sync 0;
  }}
"""


def dump_shared(
    buffer: str, nbytes: int = SHARED, first: str = "%smem"
) -> str:
  """Copies shared memory to a buffer, by all threads."""
  return f"""
  {{
    .reg .pred %more;
    .reg .b32 %i, %from, %v;
    .reg .b64 %to;
    bar.sync 0;
    mov.u32 %i, %tid.x;
  DUMP:
    setp.lt.u32 %more, %i, {nbytes // 4};
    @!%more bra DUMPED;
    mad.lo.u32 %from, %i, 4, {first};
    ld.shared.b32 %v, [%from];
    mad.wide.u32 %to, %i, 4, {buffer};
    st.global.b32 [%to], %v;
    add.u32 %i, %i, %size;
    bra DUMP;
  DUMPED:
  }}
"""


def snippets() -> Iterator[Snippet]:
  yield from _vectors()
  yield from _narrow()
  yield from _matrices()
  yield from _atomics()
  yield from _shared_atomics()
  yield from _copies()


def _vectors() -> Iterator[Snippet]:
  for type_, count in [
      (t, n) for t in ("b8", "b16", "b32", "b64") for n in (1, 2, 4)
      if (t, n) != ("b64", 4)
  ]:
    bits = int(type_[1:])
    kind = {8: "h", 16: "h", 32: "r", 64: "rd"}[bits]
    registers = ", ".join(f"%{kind}{10 + i}" for i in range(count))
    swapped = ", ".join(f"%{kind}{10 + i}" for i in reversed(range(count)))
    vector = f".v{count}" if count > 1 else ""
    if count > 1:
      registers, swapped = f"{{{registers}}}", f"{{{swapped}}}"
    nbytes = bits // 8 * count
    data = snippet.random(f"vector{type_}{count}", 32 * nbytes, 8)
    body = f"""
  mad.wide.u32 %rd1, %thread, {nbytes}, %in0;
  mad.wide.u32 %rd2, %thread, {nbytes}, %in1;
  mad.lo.u32 %r1, %thread, {nbytes}, %smem;
  ld.global{vector}.{type_} {registers}, [%rd1];
  st.shared{vector}.{type_} [%r1+{16 * nbytes}], {swapped};
  bar.sync 0;
  ld.shared{vector}.{type_} {registers}, [%r1+{16 * nbytes}];
  st.global{vector}.{type_} [%rd2], {registers};
  add.u64 %rd2, %rd2, {32 * nbytes};
  cvt.u64.u32 %rd4, %r1;
  cvta.shared.u64 %rd3, %rd4;
  ld{vector}.{type_} {registers}, [%rd3+{16 * nbytes}];
  st{vector}.{type_} [%rd2], {swapped};
"""
    yield Snippet(
        f"ld st{vector}.{type_}", body,
        (data, snippet.poison(64 * nbytes, "u1")), (1,), ("bits",),
        shared=SHARED,
    )


def _narrow() -> Iterator[Snippet]:
  data = snippet.random("narrow", 512, 8)
  for type_ in ("b8", "u8", "s8", "b16", "u16", "s16", "b32"):
    nbytes = int(type_[1:]) // 8
    body = f"""
  mad.wide.u32 %rd1, %thread, {nbytes}, %in0;
  ld.global.{type_} %r1, [%rd1];
  ld.global.{type_} %rd3, [%rd1];
  mad.wide.u32 %rd2, %thread, 8, %in1;
  st.global.b64 [%rd2], %rd3;
  mad.wide.u32 %rd2, %thread, 4, %in2;
  st.global.b32 [%rd2], %r1;
  mul.lo.u32 %r2, %r1, 0x01030507;
  xor.b32 %r2, %r2, 0x89abcdef;
  mad.lo.u32 %r3, %thread, {nbytes}, %smem;
  mad.lo.u32 %r5, %thread, 4, %smem;
  st.shared.b32 [%r5], 0x5a5a5a5a;
  bar.sync 0;
  st.shared.{type_} [%r3], %r2;
  bar.sync 0;
  ld.shared.b32 %r4, [%r5];
  mad.wide.u32 %rd2, %thread, 4, %in3;
  st.global.b32 [%rd2], %r4;
"""
    yield Snippet(
        f"wide registers {type_}", body,
        (data, snippet.poison(32, "u8"), snippet.poison(32),
         snippet.poison(32)),
        (1, 2, 3), ("bits",) * 3, shared=SHARED,
    )


def _matrices() -> Iterator[Snippet]:
  # Rows at any multiples of 16 bytes, none twice.
  rows = np.argsort(snippet.random("rows", 256))[:32].astype(np.uint32) * 16
  data = snippet.random("matrix", _SHARED_WORDS)
  for count in (1, 2, 4):
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    for trans in ("", ".trans"):
      head = """
  mad.wide.u32 %rd1, %thread, 4, %in1;
  ld.global.b32 %r1, [%rd1];
  add.u32 %r1, %r1, %smem;
"""
      stores = "\n".join(
          f"  mad.wide.u32 %rd2, %thread, 4, %in2;\n"
          f"  st.global.b32 [%rd2+{128 * i}], %r{10 + i};" for i in range(count)
      )
      loads = "\n".join(
          f"  mad.wide.u32 %rd2, %thread, 4, %in2;\n"
          f"  ld.global.b32 %r{10 + i}, [%rd2+{128 * i}];" for i in range(count)
      )
      name = f"sync.aligned.m8n8.x{count}{trans}.shared.b16"
      yield Snippet(
          f"ldmatrix.{name}",
          fill_shared("%in0") + head
          + f"  ldmatrix.{name} {registers}, [%r1];\n" + stores,
          (data, rows, snippet.poison(32 * count)), (2,), ("bits",),
          shared=SHARED,
      )
      yield Snippet(
          f"stmatrix.{name}",
          fill_shared("%in0") + head + loads
          + f"\n  stmatrix.{name} [%r1], {registers};\n" + dump_shared("%in3"),
          (data, rows, snippet.random(f"st{name}", 32 * count),
           snippet.poison(_SHARED_WORDS)),
          (3,), ("bits",), shared=SHARED,
      )


_ATOMICS = [
    *[f"{n}.{t}" for n in ("add", "min", "max")
      for t in ("u32", "s32", "u64", "s64") if (n, t) != ("add", "s64")],
    *[f"{n}.b{b}" for n in ("and", "or", "xor", "exch") for b in (32, 64)],
    "inc.u32", "dec.u32", "add.f32", "add.f64", "add.noftz.f16",
    "add.noftz.f16x2", "add.noftz.bf16", "add.noftz.bf16x2",
]


def _operands(name: str, count: int):
  type_ = name.split(".")[-1]
  bits = 32 if type_.endswith("x2") else int(type_.strip("bfsu"))
  if "f" in type_.removeprefix("b"):
    scalar = type_.removesuffix("x2")
    values = []
    for i in range(2):
      v = snippet.float_mixture(f"{name}{i}", scalar, count)
      if type_.endswith("x2"):
        v = v | np.roll(v, 7).astype(np.uint32) << np.uint32(16)
      values.append(v)
    return bits, values
  values = [snippet.int_values(f"{name}{i}", bits, count) for i in range(2)]
  if name in ("inc.u32", "dec.u32"):
    values[0][::3] = values[1][::3]
    values[0][1::9] = 0
  return bits, values


def _atomics() -> Iterator[Snippet]:
  """One thread an address: the old value and the new."""
  for name in _ATOMICS:
    bits, (old, value) = _operands(name, 128)
    register = {16: "%h", 32: "%r", 64: "%rd"}[bits]
    nbytes = bits // 8
    for space in ("global", "shared"):
      setup = f"  mad.wide.u32 %rd3, %thread, {nbytes}, %in0;\n"
      place = "[%rd3]"
      after = ""
      if space == "shared":
        place = "[%r3]"
        setup += f"""  mad.lo.u32 %r3, %thread, {nbytes}, %smem;
  ld.global.b{bits} {register}11, [%rd3];
  st.shared.b{bits} [%r3], {register}11;
"""
        after = f"""  ld.shared.b{bits} {register}11, [%r3];
  st.global.b{bits} [%rd3], {register}11;
"""
      body = f"""
{setup}
  mad.wide.u32 %rd1, %thread, {nbytes}, %in1;
  mad.wide.u32 %rd2, %thread, {nbytes}, %in2;
  ld.global.b{bits} {register}12, [%rd1];
  atom.{space}.{name} {register}13, {place}, {register}12;
  st.global.b{bits} [%rd2], {register}13;
{after}"""
      yield Snippet(
          f"atom.{space}.{name}", body,
          (old, value, snippet.poison(128, old.dtype)), (0, 2),
          ("bits", "bits"), block=(128, 1, 1), shared=SHARED,
      )
  for bits in (16, 32, 64):
    register = {16: "%h", 32: "%r", 64: "%rd"}[bits]
    nbytes = bits // 8
    old = snippet.int_values(f"cas{bits}", bits, 128)
    expected = old.copy()
    expected[::3] += expected.dtype.type(1)
    body = f"""
  mad.wide.u32 %rd0, %thread, {nbytes}, %in0;
  mad.wide.u32 %rd1, %thread, {nbytes}, %in1;
  mad.wide.u32 %rd2, %thread, {nbytes}, %in2;
  mad.wide.u32 %rd3, %thread, {nbytes}, %in3;
  ld.global.b{bits} {register}11, [%rd1];
  ld.global.b{bits} {register}12, [%rd2];
  atom.global.cas.b{bits} {register}13, [%rd0], {register}11, {register}12;
  st.global.b{bits} [%rd3], {register}13;
"""
    yield Snippet(
        f"atom.global.cas.b{bits}", body,
        (old, expected, snippet.random(f"new{bits}", 128, bits),
         snippet.poison(128, old.dtype)),
        (0, 3), ("bits", "bits"), block=(128, 1, 1),
    )


def _shared_atomics() -> Iterator[Snippet]:
  """Many threads at few addresses, where the order does not matter."""
  values = snippet.int_values("contended", 32, 256)
  start = snippet.random("start", 8)
  forms = ["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32",
           "inc.u32", "dec.u32"]
  for space in ("global", "shared"):
    body = """
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r5, [%rd1];
"""
    if space == "shared":
      body += fill_shared("%in1", 32)
    for i, form in enumerate(forms):
      place = f"[%in1+{4 * i}]" if space == "global" else f"[%smem+{4 * i}]"
      # inc and dec with different bounds would depend on the order.
      operand = {"inc.u32": "99", "dec.u32": "77"}.get(form, "%r5")
      body += f"  red.{space}.{form} {place}, {operand};\n"
    if space == "shared":
      body += dump_shared("%in1", 32)
    yield Snippet(
        f"red.{space} contended", body, (values, start), (1,), ("bits",),
        block=(256, 1, 1), shared=SHARED,
    )
  floats = [snippet.float_mixture(f"redv{i}", "f32", 128) for i in range(2)]
  for form, vector, count in (("add", "v2.f32", 2), ("add", "v4.f32", 4)):
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    body = f"""
  mad.wide.u32 %rd1, %thread, {4 * count}, %in0;
  mad.wide.u32 %rd2, %thread, {4 * count}, %in1;
  ld.global.v{count}.b32 {registers}, [%rd1];
  red.global.{form}.{vector} [%rd2], {registers};
"""
    yield Snippet(
        f"red.global.{form}.{vector}", body, tuple(floats), (1,), ("bits",),
        block=(128 // count, 1, 1),
    )
  for form, type_ in (("add", "f16"), ("min", "f16"), ("max", "bf16"),
                      ("add", "bf16")):
    registers = "{%h10, %h11, %h12, %h13}"
    halves = [
        snippet.float_mixture(f"red{form}{type_}{i}", type_, 256)
        for i in range(2)
    ]
    body = f"""
  mad.wide.u32 %rd1, %thread, 8, %in0;
  mad.wide.u32 %rd2, %thread, 8, %in1;
  ld.global.v4.b16 {registers}, [%rd1];
  red.global.{form}.noftz.v4.{type_} [%rd2], {registers};
"""
    yield Snippet(
        f"red.global.{form}.v4.{type_}", body,
        tuple(halves), (1,), ("bits",),
        block=(64, 1, 1),
    )


def _copies() -> Iterator[Snippet]:
  """cp.async, with a source that is shorter than the copy."""
  data = snippet.random("cp.async", 512)
  pattern = snippet.random("pattern", _SHARED_WORDS)
  for cop, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
    for short in ("", f", {size // 2}", ", 0"):
      body = fill_shared("%in1") + f"""
  mad.wide.u32 %rd1, %thread, {size}, %in0;
  mad.lo.u32 %r1, %thread, {2 * size}, %smem;
  cp.async.{cop}.shared.global [%r1], [%rd1], {size}{short};
  cp.async.commit_group;
  cp.async.wait_group 0;
""" + dump_shared("%in2")
      yield Snippet(
          f"cp.async.{cop} {size}{short}", body,
          (data, pattern, snippet.poison(_SHARED_WORDS)), (2,), ("bits",),
          shared=SHARED,
      )
