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
"""Bulk copies and TMA, in one CTA."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from . import snippet
from .barriers import wait
from .memory import dump_shared, fill_shared
from .snippet import Map, Snippet

BAR = "%smem"  # The mbarrier; tiles begin at least 1024 bytes later.
_BITS = {
    "int4": 4, "int2": 2, "u8": 8, "u16": 16, "f16": 16, "bf16": 16, "u32": 32,
    "s32": 32, "f32": 32, "u64": 64, "s64": 64,
}


def snippets() -> Iterator[Snippet]:
  yield from _linear()
  yield from _odd_sizes()
  yield from _loads()
  yield from _narrow_boxes()
  yield from _stores()
  yield from _reductions()


# One thread copies, all the others wait.
def elected(*lines: str) -> str:
  return """
  mov.u32 %r20, %tid.x;
  setp.ne.u32 %p15, %r20, 0;
  @%p15 bra COPIED;
""" + "\n".join("  " + line for line in lines) + "\nCOPIED:\n"


def prepare(count: int = 1) -> str:
  return """
  {
    .reg .pred %other;
    .reg .b32 %number;
    mov.u32 %number, %tid.x;
    setp.ne.u32 %other, %number, 0;
    @%other bra INITIALIZED;
    mbarrier.init.shared::cta.b64 [%smem], """ + str(count) + """;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
  INITIALIZED:
    bar.sync 0;
  }
"""


def _linear() -> Iterator[Snippet]:
  data = snippet.random("bulk", 1024)
  pattern = snippet.random("bulk pattern", 1024)
  for sizes in ((16,), (48, 2032), (1024, 16, 512)):
    total = sum(sizes)
    lines = [
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{BAR}], {total};"
    ]
    offset = 0
    for i, size in enumerate(sizes):
      source, target = offset + 16 * i, 1024 + offset + 32 * i
      lines.append(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
          f" [%smem+{target}], [%rd{10 + i}], {size}, [{BAR}];"
      )
      lines.insert(0, f"add.u64 %rd{10 + i}, %in0, {source};")
      offset += size
    yield Snippet(
        f"cp.async.bulk global to shared {sizes}",
        fill_shared("%in1") + "  fence.proxy.async;\n" + prepare()
        + elected(*lines) + wait(BAR)
        + dump_shared("%in2", 3072, "%r30").replace(
            "bar.sync 0;", "bar.sync 0;\n    add.u32 %r30, %smem, 1024;"
        ),
        (data, pattern, snippet.poison(768)), (2,), ("bits",), shared=4096,
    )
    offset, lines = 0, []
    for i, size in enumerate(sizes):
      lines += [
          f"add.u64 %rd{10 + i}, %in1, {offset + 32 * i};",
          f"cp.async.bulk.global.shared::cta.bulk_group [%rd{10 + i}],"
          f" [%smem+{offset + 16 * i}], {size};",
      ]
      offset += size
    lines += ["cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;"]
    yield Snippet(
        f"cp.async.bulk shared to global {sizes}",
        fill_shared("%in0") + "  fence.proxy.async;\n  bar.sync 0;\n"
        + elected(*lines),
        (data, snippet.poison(1024)), (1,), ("bits",), shared=4096,
    )


def _odd_sizes() -> Iterator[Snippet]:
  """Sizes that the ISA forbids; the GPU reports no error: only kept."""
  data = snippet.random("bulk", 64)
  pattern = snippet.random("bulk pattern", 1024)
  for size in (4, 8, 24):
    body = fill_shared("%in1") + "  fence.proxy.async;\n" + prepare() + elected(
        f"mov.b32 %r1, {size};",
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{BAR}], {size};",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        f" [%smem+1024], [%in0], %r1, [{BAR}];",
        "nanosleep.u32 100000;",
        f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [{BAR}], 0;",
        "selp.b32 %r2, 1, 0, %p1;",
        "st.global.b32 [%in2], %r2;",
    ) + """
  bar.sync 0;
  add.u32 %r30, %smem, 1024;
  add.u64 %rd1, %in2, 4;
""" + dump_shared("%rd1", 64, "%r30")
    yield Snippet(
        f"cp.async.bulk of {size} bytes", body,
        (data, pattern, snippet.poison(17)), (2,), ("record",), shared=4096,
        modelled=False,
    )


def _tensor(element: str, sizes: Sequence[int], seed: str):
  """(buffer, sizes, strides) with a pitch larger than the rows."""
  bits = _BITS[element]
  strides = [1]
  for i, size in enumerate(reversed(sizes[1:])):
    pitch = strides[0] * size
    if i == 0:
      per_16 = 128 // bits
      pitch = -(-pitch // per_16) * per_16 + per_16
    strides.insert(0, pitch)
  nbytes = strides[0] * sizes[0] * bits // 8
  data = snippet.random(f"tensor {seed}", -(-nbytes // 16) * 16, 8)
  return data, tuple(sizes), tuple(strides)


def _load(name, element, sizes, box, swizzle, coordinates, where=1024,
          seed="", compare="bits"):
  """Tiles at several coordinates, one after another in shared memory.

  `coordinates` are innermost first, as in the instruction. The innermost one
  must be a multiple of 16 bytes: else the GPU reports an illegal instruction.
  """
  data, sizes, strides = _tensor(element, sizes, seed or name)
  tile = math.prod(box) * _BITS[element] // 8
  pitch = -(-tile // 128) * 128
  if swizzle > 16:
    # Where a narrow box may be spread over whole rows of the swizzle.
    rows = math.prod(box[:-1])
    pitch = max(pitch, -(-rows * swizzle // 1024) * 1024)
  total = where + pitch * len(coordinates)
  pattern = snippet.random(f"pattern {total}", total // 4)
  lines = [
      "mbarrier.arrive.expect_tx.shared::cta.b64 _,"
      f" [{BAR}], {tile * len(coordinates)};"
  ]
  for i, c in enumerate(coordinates):
    vector = "{" + ", ".join(map(str, c)) + "}"
    lines.append(
        f"cp.async.bulk.tensor.{len(box)}d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes"
        f" [%smem+{where + i * pitch}], [%maps, {vector}], [{BAR}];"
    )
  dumped = total - 1024
  return Snippet(
      name,
      fill_shared("%in1", total) + "  fence.proxy.async;\n" + prepare()
      + elected(*lines) + wait(BAR)
      + dump_shared("%in2", dumped, "%r30").replace(
          "bar.sync 0;", "bar.sync 0;\n    add.u32 %r30, %smem, 1024;"
      ),
      (data, pattern, snippet.poison(dumped // 4)), (2,), (compare,),
      block=(128, 1, 1), shared=total,
      maps=(Map(0, element, sizes, strides, tuple(box), swizzle),),
  )


def _loads() -> Iterator[Snippet]:
  # Every rank and swizzle. The innermost box is as wide as the swizzle.
  for swizzle in (16, 32, 64, 128):
    width = max(swizzle, 32) // 2
    yield _load(f"load 1d swizzle {swizzle}", "u16", (3 * width - 5,), (width,),
                swizzle, [(0,), (width,), (2 * width,), (-8,)])
    yield _load(f"load 2d swizzle {swizzle}", "u16", (27, 3 * width - 5),
                (16, width), swizzle,
                [(0, 0), (width, 16), (-8, -2), (2 * width, 5), (4096, 0)])
    yield _load(f"load 3d swizzle {swizzle}", "u16", (4, 6, width + 3),
                (2, 5, width), swizzle, [(0, 0, 0), (8, 2, 3), (-8, -1, -1)])
    yield _load(f"load 4d swizzle {swizzle}", "u16", (3, 4, 5, width),
                (2, 2, 3, width), swizzle,
                [(0, 0, 0, 0), (0, 3, 1, 2), (-8, 4, -1, 1)])
    yield _load(f"load 5d swizzle {swizzle}", "u16", (3, 3, 3, 3, width),
                (1, 2, 1, 3, width), swizzle,
                [(0, 0, 0, 0, 0), (8, 1, 2, 1, 2), (0, -1, 0, -1, 3)])
    # The swizzle follows the address, not the offset in the tile.
    for where in (1152, 1280, 1536):
      yield _load(f"load 2d swizzle {swizzle} at {where}", "u8",
                  (20, 2 * width + 16), (9, 2 * width), swizzle, [(0, 3)],
                  where, seed="where")
  for element in ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "bf16",
                  "f32", "int4", "int2"):
    width = 64 * 8 // _BITS[element]
    step = 8 // min(_BITS[element], 8)
    columns = width + width // 2
    for swizzle in (16, 64):
      # Coordinates count bytes where elements are smaller.
      start = width // 2 // step
      yield _load(f"load {element} swizzle {swizzle}", element,
                  (10, columns), (8, width), swizzle,
                  [(start, 4), (-start, -3)])


def _narrow_boxes() -> Iterator[Snippet]:
  """Boxes whose rows are shorter than the swizzle's."""
  for swizzle in (32, 64, 128):
    for nbytes in (16, 32, 48, 64, 96, 112):
      if nbytes < swizzle:
        yield _load(f"load box of {nbytes} bytes swizzle {swizzle}", "u8",
                    (24, 128), (16, nbytes), swizzle, [(16, 3)],
                    seed="narrow box")
        yield _store(f"store box of {nbytes} bytes swizzle {swizzle}", "u8",
                     (24, 128), (16, nbytes), swizzle, [(16, 3)])
  yield _load("load box of 48 bytes swizzle 128, 3d", "u8", (4, 10, 64),
              (3, 5, 48), 128, [(0, 1, 0)], seed="narrow box")
  yield _load("load box of 48 bytes, 3d", "u8", (4, 10, 64), (3, 5, 48), 16,
              [(0, 1, 0)], seed="narrow box")


def _store(name, element, sizes, box, swizzle, coordinates, where=1024,
           reduction="", old=None, source=None):
  data, sizes, strides = _tensor(element, sizes, "stored")
  data[:] = snippet.POISON
  if old is not None:
    data = np.resize(old.view(np.uint8), data.size).copy()
  tile = math.prod(box) * _BITS[element] // 8
  pitch = -(-tile // 128) * 128
  if swizzle > 16:
    rows = math.prod(box[:-1])
    pitch = max(pitch, -(-rows * swizzle // 1024) * 1024)
  total = where + pitch * len(coordinates)
  if source is None:
    source = snippet.random(f"source {name}", total // 4)
  source = np.resize(source.view(np.uint32), total // 4)
  opcode = "cp.async.bulk.tensor" if not reduction else (
      "cp.reduce.async.bulk.tensor"
  )
  lines = []
  for i, c in enumerate(coordinates):
    vector = "{" + ", ".join(map(str, c)) + "}"
    lines.append(
        f"{opcode}.{len(box)}d.global.shared::cta{reduction}.tile.bulk_group"
        f" [%maps, {vector}], [%smem+{where + i * pitch}];"
    )
  lines += ["cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;"]
  return Snippet(
      name,
      fill_shared("%in1", total) + "  fence.proxy.async;\n  bar.sync 0;\n"
      + elected(*lines),
      (data, source), (0,), ("bits",), block=(128, 1, 1), shared=total,
      maps=(Map(0, element, sizes, strides, tuple(box), swizzle),),
  )


def _stores() -> Iterator[Snippet]:
  """Coordinates of stores must not be negative, unlike those of loads."""
  for swizzle in (16, 32, 64, 128):
    width = max(swizzle, 32) // 2
    yield _store(f"store 1d swizzle {swizzle}", "u16", (3 * width - 5,),
                 (width,), swizzle, [(8,), (2 * width,)])
    yield _store(f"store 2d swizzle {swizzle}", "u16", (27, 3 * width - 5),
                 (9, width), swizzle, [(8, 0), (2 * width, 20), (0, 30)])
    yield _store(f"store 3d swizzle {swizzle}", "u16", (4, 6, width + 3),
                 (2, 3, width), swizzle, [(0, 0, 0), (8, 4, 3)])
    yield _store(f"store 4d swizzle {swizzle}", "u16", (3, 4, 5, width),
                 (2, 2, 3, width), swizzle, [(0, 1, 0, 0), (0, 3, 2, 2)])
    yield _store(f"store 5d swizzle {swizzle}", "u16", (2, 3, 3, 3, width),
                 (1, 2, 1, 3, width), swizzle,
                 [(0, 0, 0, 0, 0), (8, 1, 2, 2, 1)])
  for columns in (33, 40, 47):
    yield _store(f"store u8, rows of {columns}", "u8", (10, columns), (8, 32),
                 32, [(32, 1)])
  for element in ("u8", "u32", "u64", "f16", "bf16", "f32", "int4"):
    width = 32 * 8 // _BITS[element]
    yield _store(f"store {element}", element, (10, width), (8, width), 32,
                 [(16 * 8 // max(_BITS[element], 8), 4)])


def _numbers(element: str, seed: str) -> np.ndarray:
  """Floats, of which a half are edge values; any integers."""
  if element in ("f16", "bf16", "f32"):
    return snippet.float_mixture(seed, element, 1024)
  return snippet.int_values(seed, _BITS[element], 1024)


def _reductions() -> Iterator[Snippet]:
  # The last 16 bytes of a row are not all inside the tensor.
  for element, width in (("u32", 13), ("f16", 27), ("u64", 5)):
    yield _store(
        f"reduce add {element}, rows of {width}", element, (12, width),
        (8, 512 // _BITS[element]), 64, [(0, 2), (0, 9)], reduction=".add",
        old=_numbers(element, f"old odd {element}"),
        source=_numbers(element, f"new odd {element}"),
    )
  forms = [
      *[("add", e) for e in ("u32", "s32", "u64", "f16", "bf16", "f32")],
      *[(k, e) for k in ("min", "max")
        for e in ("u32", "s32", "u64", "s64", "f16", "bf16")],
      *[(k, e) for k in ("and", "or", "xor") for e in ("u32", "u64")],
      ("inc", "u32"), ("dec", "u32"),
  ]
  for kind, element in forms:
    width = 64 * 8 // _BITS[element]
    yield _store(
        f"reduce {kind} {element}", element, (12, width), (8, width), 64,
        [(0, 0), (width // 2, 9)], reduction=f".{kind}",
        old=_numbers(element, f"old {kind}"),
        source=_numbers(element, f"new {kind}"),
    )
