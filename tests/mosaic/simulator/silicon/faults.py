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
"""What the GPU refuses, and so must the simulator.

The recording keeps the driver's error: of the launch, or of the making of a
tensor map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import snippet
from .barriers import wait
from .bulk import BAR, elected, prepare
from .snippet import Map, Snippet


def snippets() -> Iterator[Snippet]:
  yield from _addresses()
  yield from _tiles()
  yield from _copies()
  yield from _maps()


def _one(name: str, body: str, shared: int = 4096, maps: Sequence[Map] = (),
         **launch) -> Snippet:
  data = snippet.random("fault", 4096)
  return Snippet(
      name, body, (data, snippet.poison(1024)), (1,), ("bits",), shared=shared,
      maps=tuple(maps), faults=True, **launch,
  )


def _addresses() -> Iterator[Snippet]:
  store = "\n  st.global.b32 [%in1], %r1;"
  yield _one("misaligned ld.shared", "  ld.shared.b32 %r1, [%smem+2];" + store)
  yield _one("misaligned vector ld.shared",
             "  ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%smem+8];\n"
             "  st.global.v4.b32 [%in1], {%r1, %r2, %r3, %r4};")
  yield _one("misaligned ld.global", "  ld.global.b64 %rd1, [%in0+4];\n"
             "  st.global.b64 [%in1], %rd1;")
  yield _one("misaligned st.global", "  st.global.b32 [%in1+1], 5;")
  yield _one("misaligned atom", "  atom.global.add.u32 %r1, [%in1+2], 5;")
  yield _one("null", "  mov.b64 %rd1, 16;\n  ld.global.b32 %r1, [%rd1];"
             + store)
  yield _one("beyond shared memory",
             "  add.u32 %r2, %smem, 0x40000;\n  ld.shared.b32 %r1, [%r2];"
             + store)
  yield _one("misaligned mbarrier",
             "  mbarrier.init.shared::cta.b64 [%smem+4], 1;")
  one = """
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 ret;
"""
  init = "  mbarrier.init.shared::cta.b64 [%smem], 2;\n"
  # The error comes some time after the arrive.
  for name in ("arrive", "arrive_drop"):
    yield _one(
        f"mbarrier.{name} of more than pending",
        one + init + f"  mbarrier.{name}.shared::cta.b64 %rd2, [%smem], 3;\n"
        "  nanosleep.u32 1000000;\n  st.global.b64 [%in1], %rd2;",
    )
  yield _one("trap", "  trap;")
  sync = """
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
"""
  yield _one(
      "rank outside the cluster",
      "  mapa.shared::cluster.u32 %r2, %smem, 2;\n"
      + sync + "  ld.shared::cluster.b32 %r1, [%r2];" + store + sync,
      grid=(2, 1, 1), cluster=(2, 1, 1),
  )


_PLAIN = Map(0, "u16", (27, 64), (64, 1), (8, 16))


def _tile(name, coordinates, tensor_map=_PLAIN, where=1024, kind="load",
          dims=2, nbytes=256):
  vector = "{" + ", ".join(map(str, coordinates)) + "}"
  if kind == "load":
    body = prepare() + elected(
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{BAR}], {nbytes};",
        f"cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes"
        f" [%smem+{where}], [%maps, {vector}], [{BAR}];",
    ) + wait(BAR)
  else:
    opcode = {
        "store": "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
        "reduce": "cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.tile"
                  ".bulk_group",
    }[kind]
    body = elected(
        f"{opcode} [%maps, {vector}], [%smem+{where}];",
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;",
    )
  return _one(name, body, maps=[tensor_map])


def _tiles() -> Iterator[Snippet]:
  words = Map(0, "u32", (27, 32), (32, 1), (8, 8))
  yield _tile("load, innermost coordinate of 2 bytes", (1, 2))
  yield _tile("load, innermost coordinate of 8 bytes", (4, 2))
  yield _tile("load, innermost coordinate of -8 bytes", (-4, 2))
  yield _tile("load of u32, innermost coordinate of 8 bytes", (2, 2), words)
  yield _tile("store, innermost coordinate of 8 bytes", (4, 2), kind="store")
  yield _tile("reduce, innermost coordinate of 8 bytes", (2, 2), words,
              kind="reduce")
  yield _tile("store, negative innermost coordinate", (-8, 0), kind="store")
  yield _tile("store, negative coordinate", (0, -1), kind="store")
  yield _tile("reduce, negative coordinate", (0, -1), words, kind="reduce")
  yield _tile("load to a multiple of 64", (0, 0), where=1088)
  yield _tile("store from a multiple of 64", (0, 0), where=1088, kind="store")
  yield _tile("load 3d of a 2d map", (0, 0, 0), dims=3)
  yield _tile("load 1d of a 2d map", (0,), dims=1)


def _copies() -> Iterator[Snippet]:
  # A size of 8 is no error: see bulk.py.
  size = 16
  for name, source, target in (
      ("a source of 8", 8, 1024), ("a target of 8", 0, 1032),
  ):
    yield _one(
        f"cp.async.bulk with {name}",
        prepare() + elected(
            f"add.u64 %rd1, %in0, {source};",
            f"mov.b32 %r1, {size};",
            f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{BAR}], {size};",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            f" [%smem+{target}], [%rd1], %r1, [{BAR}];",
        ) + wait(BAR),
    )


def _maps() -> Iterator[Snippet]:
  for name, one in (
      ("inner box of 8 bytes", Map(0, "u8", (8, 64), (64, 1), (8, 8))),
      ("inner box of 24 bytes", Map(0, "u8", (8, 64), (64, 1), (8, 24))),
      ("stride of 40 bytes", Map(0, "u8", (8, 32), (40, 1), (8, 32))),
      ("box of 257", Map(0, "u8", (512, 32), (32, 1), (257, 32))),
      ("box of 0", Map(0, "u8", (8, 32), (32, 1), (0, 32))),
      ("inner box wider than swizzle 32",
       Map(0, "u8", (8, 64), (64, 1), (8, 48), 32)),
      ("inner box wider than swizzle 64",
       Map(0, "u8", (8, 128), (128, 1), (8, 80), 64)),
      ("inner box wider than swizzle 128",
       Map(0, "u16", (8, 128), (128, 1), (8, 72), 128)),
      ("size of 0", Map(0, "u8", (0, 32), (32, 1), (8, 32))),
  ):
    yield _tile(f"map with a {name}", (0, 0), one)
