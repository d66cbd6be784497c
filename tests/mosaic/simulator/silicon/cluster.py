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
"""Clusters: distributed shared memory, remote mbarriers, multicast."""

from __future__ import annotations

from collections.abc import Iterator

from . import snippet
from .barriers import wait
from .bulk import elected, prepare
from .memory import dump_shared, fill_shared
from .snippet import Map, Snippet

_SYNC = """
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
"""
_HEAD = """
  mov.u32 %r40, %cluster_ctarank;
  mul.wide.u32 %rd40, %r40, 4096;
  mov.u32 %r41, %tid.x;
"""


def _snippet(name, body, buffers, outputs, maps=(), size=2, compare="bits"):
  return Snippet(
      name, _HEAD + body, buffers, outputs, (compare,) * len(outputs),
      grid=(size, 1, 1), cluster=(size, 1, 1), block=(64, 1, 1), shared=4096,
      maps=maps,
  )


def _own(buffer: str) -> str:
  """%rd41: 4096 bytes of a buffer for each CTA."""
  return f"  add.u64 %rd41, {buffer}, %rd40;\n"


def snippets() -> Iterator[Snippet]:
  yield from _distributed()
  yield from _reductions()
  yield from _remote_arrivals()
  yield from _multicast()
  yield _addresses()


def _addresses() -> Snippet:
  """What mapa gives on the hardware: only kept, for it is opaque."""
  body = """
  setp.ne.u32 %p3, %r41, 0;
  mul.wide.u32 %rd3, %r40, 64;
  add.u64 %rd3, %rd3, %in0;
  cvt.u64.u32 %rd1, %smem;
  cvta.shared.u64 %rd1, %rd1;
  @%p3 bra DONE;
  st.global.b32 [%rd3], %smem;
  st.global.b64 [%rd3+8], %rd1;
"""
  for rank in range(4):
    body += f"""
  mapa.shared::cluster.u32 %r1, %smem, {rank};
  mapa.u64 %rd2, %rd1, {rank};
  sub.u64 %rd2, %rd2, %rd1;
  st.global.b32 [%rd3+{16 + 4 * rank}], %r1;
  st.global.b64 [%rd3+{32 + 8 * rank}], %rd2;
"""
  body += "DONE:" + _SYNC
  return _snippet("mapa", body, (snippet.poison(64),), (0,), size=4,
                  compare="record")


def _distributed() -> Iterator[Snippet]:
  data = snippet.random("distributed", 4096)
  out = snippet.poison(4096)
  for size in (2, 4):
    # Every thread reads from the next CTA and writes to the one after.
    body = _own("%in0") + fill_shared("%rd41", 2048) + _SYNC + f"""
  add.u32 %r1, %r40, 1;
  rem.u32 %r1, %r1, {size};
  mapa.shared::cluster.u32 %r2, %smem, %r1;
  mad.lo.u32 %r3, %r41, 4, %r2;
  ld.shared::cluster.b32 %r4, [%r3+256];
  st.shared::cluster.b32 [%r3+2048], %r4;
  atom.shared::cluster.add.u32 %r5, [%r2+3072], %r4;
  cvt.u64.u32 %rd1, %smem;
  cvta.shared.u64 %rd1, %rd1;
  mapa.u64 %rd2, %rd1, %r1;
  mad.wide.u32 %rd2, %r41, 4, %rd2;
  ld.b32 %r6, [%rd2+512];
  st.b32 [%rd2+2560], %r6;
  getctarank.shared::cluster.u32 %r7, %r3;
  st.shared::cluster.b32 [%r3+3328], %r7;
  isspacep.shared::cluster %p1, %rd2;
  isspacep.shared::cta %p2, %rd2;
  selp.b32 %r8, 1, 0, %p1;
  selp.b32 %r9, 2, 0, %p2;
  or.b32 %r8, %r8, %r9;
  st.shared::cluster.b32 [%r3+3584], %r8;
"""
    body = body.replace(
        "  mapa.shared::cluster.u32 %r2",
        "  setp.ne.u32 %p3, %r41, 0;\n"
        "  @!%p3 st.shared.b32 [%smem+3072], 1000;\n" + _SYNC
        + "  mapa.shared::cluster.u32 %r2",
    )
    body += _SYNC + _own("%in1") + dump_shared("%rd41", 3840)
    # Bytes that nobody wrote.
    body = body.replace(
        "  add.u32 %r1, %r40, 1;",
        "\n".join(
            f"  st.shared.b32 [%r50+{2048 + 256 * i}], 0x{i + 1:08x};"
            for i in range(7)
        ) + "\n  add.u32 %r1, %r40, 1;",
        1,
    ).replace(
        "  st.shared.b32 [%r50+2048]",
        "  mad.lo.u32 %r50, %r41, 4, %smem;\n  st.shared.b32 [%r50+2048]",
    )
    yield _snippet(f"ld st atom in a cluster of {size}", body, (data, out),
                   (1,), size=size)

  # st.async and copies between CTAs.
  body = _own("%in0") + fill_shared("%rd41", 4096) + prepare(1) + """
  setp.ne.u32 %p3, %r41, 0;
  @%p3 bra EXPECTED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], 1792;
EXPECTED:
""" + _SYNC + """
  xor.b32 %r1, %r40, 1;
  mapa.shared::cluster.u32 %r2, %smem, %r1;
  mad.lo.u32 %r3, %r41, 16, %r2;
  mad.lo.u32 %r4, %r41, 4, %smem;
  ld.shared.b32 %r5, [%r4+64];
  ld.shared.b32 %r6, [%r4+320];
  not.b32 %r7, %r5;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32
    [%r3+1024], {%r5, %r6, %r7, %r41}, [%r2];
  fence.proxy.async;
  bar.sync 0;
""" + elected(
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    " [%r2+2048], [%smem+512], 512, [%r2];",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
    " [%r2+2560], [%smem+128], 256, [%r2];",
  ) + wait("%smem") + """
  bar.sync 0;
  st.shared.b32 [%smem+8], 5;
  add.u32 %r8, %smem, 16;
  add.u64 %rd41, %in1, %rd40;
  add.u64 %rd41, %rd41, 16;
""" + dump_shared("%rd41", 4080, "%r8") + _SYNC
  yield _snippet("st.async and copies between CTAs", body, (data, out), (1,))


def _reductions() -> Iterator[Snippet]:
  """red.async: every lane of the other CTA at an address of its own."""
  old, new = (
      snippet.int_values(f"red.async{i}", 32, 2048) for i in range(2)
  )
  for kind, type_ in (
      ("add", "u32"), ("add", "s32"), ("min", "s32"), ("max", "u32"),
      ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("inc", "u32"),
      ("dec", "u32"), ("add", "u64"),
  ):
    bits = int(type_[1:])
    opcode = (
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
        f".{kind}.{type_}"
    )
    register = "%r6" if bits == 32 else "%rd6"
    body = _own("%in0") + fill_shared("%rd41", 4096) + prepare(1) + f"""
  setp.ne.u32 %p3, %r41, 0;
  @%p3 bra EXPECTED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], {8 * bits};
EXPECTED:
""" + _SYNC + _own("%in1") + f"""
  xor.b32 %r1, %r40, 1;
  mapa.shared::cluster.u32 %r2, %smem, %r1;
  mad.lo.u32 %r3, %r41, {bits // 8}, %r2;
  mad.wide.u32 %rd5, %r41, {bits // 8}, %rd41;
  ld.global.b{bits} {register}, [%rd5];
  {opcode} [%r3+1024], {register}, [%r2];
""" + wait("%smem") + """
  add.u64 %rd41, %in2, %rd40;
  add.u64 %rd41, %rd41, 1024;
  add.u32 %r8, %smem, 1024;
""" + dump_shared("%rd41", 1024, "%r8") + _SYNC
    yield _snippet(f"red.async {kind}.{type_}", body,
                   (old, new, snippet.poison(2048)), (2,))


def _remote_arrivals() -> Iterator[Snippet]:
  # CTA 0's barrier counts the threads of both; results after each step.
  body = """
  setp.ne.u32 %p3, %r41, 0;
  @%p3 bra READY;
  mbarrier.init.shared::cta.b64 [%smem], 128;
  mbarrier.init.shared::cta.b64 [%smem+8], 2;
  fence.mbarrier_init.release.cluster;
READY:
""" + _SYNC + """
  mov.b32 %r1, 0;
  mapa.shared::cluster.u32 %r2, %smem, %r1;
  mul.wide.u32 %rd3, %r40, 64;
  add.u64 %rd3, %rd3, %in0;
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem], 0;
  selp.b32 %r3, 1, 0, %p1;
  @!%p3 st.global.b32 [%rd3], %r3;
""" + _SYNC + """
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
""" + _SYNC + """
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem], 0;
  selp.b32 %r3, 1, 0, %p1;
  @!%p3 st.global.b32 [%rd3+4], %r3;
  @%p3 bra SECOND;
  mapa.shared::cluster.u32 %r5, %smem, %r40;
  xor.b32 %r6, %r40, 1;
  mapa.shared::cluster.u32 %r7, %smem, %r6;
  mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r7+8], 64;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5+8];
SECOND:
""" + _SYNC + """
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem+8], 0;
  selp.b32 %r3, 1, 0, %p1;
  @!%p3 st.global.b32 [%rd3+8], %r3;
""" + _SYNC + """
  @!%p3 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r7+8], 64;
""" + _SYNC + """
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem+8], 0;
  selp.b32 %r3, 1, 0, %p1;
  @!%p3 st.global.b32 [%rd3+12], %r3;
  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%smem+8], 1;
  selp.b32 %r3, 1, 0, %p1;
  @!%p3 st.global.b32 [%rd3+16], %r3;
""" + _SYNC
  yield _snippet("remote arrivals", body, (snippet.poison(32),), (0,))

  # A consumer in CTA 0 waits for data that CTA 1 writes to its memory.
  values = snippet.random("remote", 128)
  body = prepare(128) + _SYNC + """
  mov.b32 %r1, 0;
  mapa.shared::cluster.u32 %r2, %smem, %r1;
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r3, [%rd1];
  mad.lo.u32 %r4, %thread, 4, %r2;
  st.shared::cluster.b32 [%r4+64], %r3;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
  setp.ne.u32 %p4, %r40, 0;
  @%p4 bra OVER;
  {
    .reg .pred %done, %more;
    .reg .b32 %tries;
    mov.b32 %tries, 0;
  AGAIN:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%smem], 0;
    @%done bra DONE;
    add.u32 %tries, %tries, 1;
    setp.lt.u32 %more, %tries, 100000;
    @%more bra AGAIN;
  DONE:
  }
  xor.b32 %r5, %r41, 63;
  mad.lo.u32 %r5, %r5, 8, %smem;
  ld.shared.v2.b32 {%r6, %r7}, [%r5+64];
  mad.wide.u32 %rd2, %r41, 8, %in1;
  st.global.v2.b32 [%rd2], {%r6, %r7};
OVER:
""" + _SYNC
  yield _snippet("data for a remote mbarrier", body,
                 (values, snippet.poison(128)), (1,))


def _multicast() -> Iterator[Snippet]:
  data = snippet.random("multicast", 64 * 128, 8)
  pattern = snippet.random("multicast pattern", 2048)
  # Each CTA loads half a tile for both.
  for swizzle in (16, 64, 128):
    width = max(swizzle, 32)
    tile = 8 * width
    body = (
        _own("%in1") + fill_shared("%rd41", 4096) + "  fence.proxy.async;\n"
        + prepare(1) + _SYNC
        + elected(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _,"
            f" [%smem], {2 * tile};",
            "mul.lo.u32 %r1, %r40, 8;",
            f"mad.lo.u32 %r2, %r40, {tile}, %smem;",
            "mov.b16 %h1, 3;",
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
            ".mbarrier::complete_tx::bytes.multicast::cluster"
            " [%r2+1024], [%maps, {16, %r1}], [%smem], %h1;",
        )
        + wait("%smem") + _SYNC
        + "  add.u64 %rd41, %in2, %rd40;\n"
        "  add.u64 %rd41, %rd41, 1024;\n  add.u32 %r8, %smem, 1024;\n"
        + dump_shared("%rd41", 3072, "%r8")
    )
    yield _snippet(
        f"multicast swizzle {swizzle}", body,
        (data, pattern, snippet.poison(2048)), (2,),
        maps=(Map(0, "u8", (64, 128), (128, 1), (8, width), swizzle),),
    )
  # Masks of one CTA each: the other's data and barrier are untouched.
  body = (
      _own("%in1") + fill_shared("%rd41", 4096) + "  fence.proxy.async;\n"
      + prepare(1) + _SYNC
      + elected(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%smem], 768;",
          "xor.b32 %r1, %r40, 1;",
          "mov.b32 %r2, 1;",
          "shl.b32 %r2, %r2, %r1;",
          "cvt.u16.u32 %h1, %r2;",
          "mul.lo.u32 %r3, %r40, 8;",
          "cp.async.bulk.tensor.2d.shared::cluster.global.tile"
          ".mbarrier::complete_tx::bytes.multicast::cluster"
          " [%smem+1024], [%maps, {16, %r3}], [%smem], %h1;",
          "mul.wide.u32 %rd1, %r40, 1024;",
          "add.u64 %rd1, %rd1, %in0;",
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
          ".multicast::cluster [%smem+2048], [%rd1], 256, [%smem], %h1;",
      )
      + wait("%smem") + _SYNC
      + "  add.u64 %rd41, %in2, %rd40;\n"
      "  add.u64 %rd41, %rd41, 1024;\n  add.u32 %r8, %smem, 1024;\n"
      + dump_shared("%rd41", 3072, "%r8")
  )
  yield _snippet(
      "multicast to the other CTA", body,
      (data, pattern, snippet.poison(2048)), (2,),
      maps=(Map(0, "u8", (64, 128), (128, 1), (8, 64), 64),),
  )
