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
"""Barriers of a CTA, mbarriers, special registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


from . import snippet
from .memory import dump_shared, fill_shared
from .snippet import Snippet

# Gives up after a while, so that a mistake cannot hang the GPU.
WAIT = """
  {{
    .reg .pred %done, %more;
    .reg .b32 %tries;
    mov.b32 %tries, 0;
  AGAIN:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [{bar}], {parity};
    @%done bra DONE;
    add.u32 %tries, %tries, 1;
    setp.lt.u32 %more, %tries, 100000;
    @%more bra AGAIN;
    ret;
  DONE:
  }}
"""


def wait(bar: str, parity: int | str = 0) -> str:
  return WAIT.format(bar=bar, parity=parity)


def snippets() -> Iterator[Snippet]:
  yield from _named()
  yield from _mbarriers()
  yield from _specials()


def _named() -> Iterator[Snippet]:
  values = snippet.random("bar", 256)
  body = """
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r1, [%rd1];
  and.b32 %r2, %r1, 7;
  setp.ne.u32 %p1, %r2, 0;
  setp.eq.u32 %p2, %r2, 9;
  bar.red.popc.u32 %r3, 0, %p1;
  bar.red.popc.u32 %r4, 0, !%p1;
  bar.red.and.pred %p3, 0, %p1;
  bar.red.or.pred %p4, 0, %p2;
  bar.red.or.pred %p5, 0, %p1;
  bar.red.and.pred %p6, 0, !%p2;
  selp.b32 %r5, 1, 0, %p3;
  selp.b32 %r6, 2, 0, %p4;
  selp.b32 %r7, 4, 0, %p5;
  selp.b32 %r8, 8, 0, %p6;
  or.b32 %r5, %r5, %r6;
  or.b32 %r7, %r7, %r8;
  or.b32 %r5, %r5, %r7;
  mad.wide.u32 %rd2, %thread, 4, %in1;
  st.global.b32 [%rd2], %r3;
  st.global.b32 [%rd2+1024], %r4;
  st.global.b32 [%rd2+2048], %r5;
"""
  yield Snippet("bar.red", body, (values, snippet.poison(768)), (1,), ("bits",),
                block=(256, 1, 1))
  # Two halves with a barrier each, then a part of one.
  body = """
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r1, [%rd1];
  and.b32 %r2, %r1, 3;
  setp.ne.u32 %p1, %r2, 0;
  shr.u32 %r9, %thread, 7;
  add.u32 %r10, %r9, 1;
  barrier.sync %r10, 128;
  bar.red.popc.u32 %r3, %r10, 128, %p1;
  shr.u32 %r11, %thread, 6;
  add.u32 %r11, %r11, 5;
  barrier.red.popc.aligned.u32 %r4, %r11, 64, !%p1;
  mad.wide.u32 %rd2, %thread, 4, %in1;
  st.global.b32 [%rd2], %r3;
  st.global.b32 [%rd2+1024], %r4;
"""
  yield Snippet("named barriers", body, (values, snippet.poison(512)), (1,),
                ("bits",), block=(256, 1, 1))
  # Producers arrive, a consumer waits; passed on through shared memory.
  body = """
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r1, [%rd1];
  mad.lo.u32 %r2, %thread, 4, %smem;
  setp.lt.u32 %p0, %thread, 32;
  @%p0 bra CONSUMER;
  st.shared.b32 [%r2], %r1;
  bar.arrive 3, 128;
  bar.sync 4, 128;
  ld.shared.b32 %r3, [%smem];
  bra DONE;
CONSUMER:
  bar.sync 3, 128;
  ld.shared.b32 %r3, [%r2+256];
  xor.b32 %r4, %r3, %r1;
  st.shared.b32 [%r2], %r4;
  bar.sync 4, 128;
DONE:
  mad.wide.u32 %rd2, %thread, 4, %in1;
  st.global.b32 [%rd2], %r3;
"""
  yield Snippet("bar.arrive", body, (values, snippet.poison(128)), (1,),
                ("bits",), block=(128, 1, 1), shared=1024)


class _Script:
  """Steps of one thread on mbarriers; writes the results one after another."""

  def __init__(self):
    self.lines = ["  mov.u32 %r1, %tid.x;", "  setp.ne.u32 %p0, %r1, 0;",
                  "  @%p0 ret;", "  mov.b64 %rd1, %in0;"]
    self.count = 0

  def do(self, *lines: str) -> _Script:
    self.lines += ["  " + line for line in lines]
    return self

  def result(self, register: str) -> _Script:
    self.do(f"st.global.b32 [%rd1+{4 * self.count}], {register};")
    self.count += 1
    return self

  def test(self, bar: str = "%smem", parities: Sequence[int] = (0, 1)):
    """test_wait for both parities."""
    for parity in parities:
      self.do(
          f"mbarrier.test_wait.parity.shared::cta.b64 %p1, [{bar}], {parity};",
          "selp.b32 %r2, 1, 0, %p1;",
      ).result("%r2")
    return self

  def pending(self, state: str = "%rd2"):
    self.do(f"mbarrier.pending_count.b64 %r2, {state};")
    return self.result("%r2")

  def passed(self, state: str = "%rd2", bar: str = "%smem"):
    self.do(
        f"mbarrier.test_wait.shared::cta.b64 %p1, [{bar}], {state};",
        "selp.b32 %r2, 1, 0, %p1;",
    )
    return self.result("%r2")

  def snippet(self, name: str) -> Snippet:
    return Snippet(
        name, "\n".join(self.lines), (snippet.poison(max(self.count, 1)),),
        (0,), ("bits",), shared=1024,
    )


def _mbarriers() -> Iterator[Snippet]:
  arrive = "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"
  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 3;").test()
  for _ in range(7):
    s.do(arrive).test().pending().passed()
  yield s.snippet("arrive, count 3")

  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 1;").test()
  for _ in range(5):
    s.do(arrive).test().pending().passed()
    s.do("mbarrier.try_wait.shared::cta.b64 %p1, [%smem], %rd2;",
         "selp.b32 %r2, 1, 0, %p1;").result("%r2")
  yield s.snippet("arrive, count 1")

  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 10;").test()
  for count in (4, 5, 1, 9, 1, 10, 10):
    s.do(f"mbarrier.arrive.shared::cta.b64 %rd2, [%smem], {count};")
    s.test().pending().passed()
  yield s.snippet("arrive with a count")

  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 2;").test()
  for lines in (
      ["mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%smem], 100;"],
      ["mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [%smem], 60;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%smem], 24;"],
      ["mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 40;"],
      ["mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 24;"],
      # Bytes before they are announced.
      ["mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 128;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%smem], 128;"],
      # Announced and completed in a phase with arrivals pending.
      ["mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%smem], 16;"],
      ["mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 16;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 2;"],
  ):
    lines = [
        line.replace(".shared::cta.relaxed.cluster", ".relaxed.cta.shared::cta")
        for line in lines
    ]
    s.do(*lines).test()
  yield s.snippet("transactions")

  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 4;").test()
  for lines in (
      ["mbarrier.arrive_drop.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 3;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 2;"],
      ["mbarrier.arrive_drop.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.arrive_drop.expect_tx.shared::cta.b64 %rd2, [%smem], 32;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
      ["mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 32;"],
      ["mbarrier.arrive.shared::cta.b64 %rd2, [%smem];"],
  ):
    s.do(*lines).test()
    if "complete_tx" not in lines[0]:
      s.pending()
  yield s.snippet("arrive_drop")

  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 8;").test()
  for line in (
      "mbarrier.arrive.noComplete.shared::cta.b64 %rd2, [%smem], 3;",
      "mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%smem], 64;",
      "mbarrier.arrive.noComplete.shared::cta.b64 %rd2, [%smem], 3;",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 64;",
      "mbarrier.arrive.noComplete.shared::cta.b64 %rd2, [%smem], 7;",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
  ):
    s.do(line).test()
    if "complete_tx" not in line:
      s.pending()
  yield s.snippet("arrive.noComplete")

  s = _Script()
  s.do("mbarrier.init.shared::cta.b64 [%smem], 2;",
       "mbarrier.init.shared::cta.b64 [%smem+8], 1;",
       "mbarrier.arrive.shared::cta.b64 _, [%smem+8];")
  s.test().test("%smem+8")
  s.do("mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
       "mbarrier.arrive.shared::cta.b64 %rd3, [%smem];")
  s.test().passed("%rd2").passed("%rd3").pending("%rd2").pending("%rd3")
  s.do("mbarrier.inval.shared::cta.b64 [%smem];",
       "mbarrier.init.shared::cta.b64 [%smem], 5;")
  s.test().do(arrive).test().pending()
  yield s.snippet("two objects, inval")

  # Counts of a million.
  s = _Script().do("mbarrier.init.shared::cta.b64 [%smem], 1048575;").test()
  s.do("mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 1048574;").test()
  s.pending().do(arrive).test().pending()
  s.do("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%smem], 1048575;")
  s.do("mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 1048575;").test()
  s.do("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 1048575;")
  yield s.test().snippet("largest counts")

  yield _raw()

  # All threads arrive, all wait, several phases.
  values = snippet.random("phases", 512)
  body = """
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%smem], 128;
READY:
  bar.sync 0;
  mad.lo.u32 %r4, %r1, 4, %smem;
  xor.b32 %r6, %r1, 77;
  mad.lo.u32 %r7, %r6, 4, %smem;
"""
  for phase in range(4):
    body += f"""
  mad.wide.u32 %rd1, %thread, 4, %in0;
  ld.global.b32 %r5, [%rd1+{512 * phase}];
  st.shared.b32 [%r4+{64 + 512 * phase}], %r5;
  mbarrier.arrive.shared::cta.b64 _, [%smem];
""" + wait("%smem", phase % 2) + f"""
  ld.shared.b32 %r8, [%r7+{64 + 512 * phase}];
  mad.wide.u32 %rd2, %thread, 4, %in1;
  st.global.b32 [%rd2+{512 * phase}], %r8;
"""
  yield Snippet("phases of 128 threads", body, (values, snippet.poison(512)),
                (1,), ("bits",), block=(128, 1, 1), shared=4096)

  # cp.async that arrives on an mbarrier.
  for noinc in ("", ".noinc"):
    count = 64 if noinc else 32
    body = fill_shared("%in1", 1024) + f"""
  mov.u32 %r1, %tid.x;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%smem+512], {count};
READY:
  bar.sync 0;
  mad.wide.u32 %rd1, %thread, 16, %in0;
  mad.lo.u32 %r4, %r1, 16, %smem;
  cp.async.cg.shared.global [%r4], [%rd1], 16;
  cp.async.mbarrier.arrive{noinc}.shared.b64 [%smem+512];
  mbarrier.arrive.shared::cta.b64 _, [%smem+512];
""" + wait("%smem+512", 0) + dump_shared("%in2", 512)
    yield Snippet(
        f"cp.async.mbarrier.arrive{noinc}", body,
        (values[:128].copy(), snippet.random("p", 256), snippet.poison(128)),
        (2,), ("bits",), shared=1024,
    )


def _raw() -> Snippet:
  """The hardware's 64 bits of an object, and its tokens: only kept.

  The simulator has no such bits, and faults where a program looks at them.
  """
  lines = ["  mov.u32 %r1, %tid.x;", "  setp.ne.u32 %p0, %r1, 0;",
           "  @%p0 ret;", "  mov.b64 %rd2, 0;"]
  steps = [
      "mbarrier.init.shared::cta.b64 [%smem], 5;",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem], 2;",
      "mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%smem], 48;",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 16;",
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 32;",
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%smem], 32;",
      "mbarrier.arrive_drop.shared::cta.b64 %rd2, [%smem];",
      "mbarrier.arrive.noComplete.shared::cta.b64 %rd2, [%smem], 2;",
      "mbarrier.arrive.expect_tx.shared::cta.b64 %rd2, [%smem], 32;",
      "mbarrier.arrive.shared::cta.b64 %rd2, [%smem];",
  ]
  for i, step in enumerate(steps):
    lines += [
        f"  {step}", "  ld.volatile.shared.b64 %rd3, [%smem];",
        f"  st.global.b64 [%in0+{16 * i}], %rd3;",
        f"  st.global.b64 [%in0+{16 * i + 8}], %rd2;",
    ]
  return Snippet(
      "raw bits", "\n".join(lines), (snippet.poison(2 * len(steps), "u8"),),
      (0,), ("record",), shared=1024, modelled=False,
  )


def _specials() -> Iterator[Snippet]:
  names = ["tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x",
           "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z", "laneid",
           "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt",
           "lanemask_ge", "clusterid.x", "clusterid.y", "clusterid.z",
           "nclusterid.x", "nclusterid.y", "nclusterid.z", "cluster_ctaid.x",
           "cluster_ctaid.y", "cluster_ctaid.z", "cluster_nctaid.x",
           "cluster_nctaid.y", "cluster_nctaid.z", "cluster_ctarank",
           "cluster_nctarank", "dynamic_smem_size"]
  recorded = ["warpid", "nwarpid", "total_smem_size", "nsmid"]
  for cluster in ((1, 1, 1), (2, 1, 2)):
    grid, block = (4, 3, 2), (5, 4, 3)
    # %thread counts only x; here all threads.
    body = """
  mov.u32 %r1, %tid.y;
  mov.u32 %r2, %tid.z;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r2, 4, %r1;
  mad.lo.u32 %r1, %r1, 5, %r3;
  mov.u32 %r4, %ctaid.x;
  mov.u32 %r5, %ctaid.y;
  mov.u32 %r6, %ctaid.z;
  mad.lo.u32 %r5, %r6, 3, %r5;
  mad.lo.u32 %r4, %r5, 4, %r4;
  mad.lo.u32 %r1, %r4, 60, %r1;
"""
    threads = 24 * 60
    for i, name in enumerate(names + recorded):
      which, row = (0, i) if i < len(names) else (1, i - len(names))
      body += f"""
  mad.lo.u32 %r7, {row}, {threads}, %r1;
  mad.wide.u32 %rd1, %r7, 4, %in{which};
  mov.u32 %r8, %{name};
  st.global.b32 [%rd1], %r8;
"""
    body += """
  mad.wide.u32 %rd1, %r1, 4, %in2;
  mov.pred %p1, %is_explicit_cluster;
  selp.b32 %r8, 1, 0, %p1;
  st.global.b32 [%rd1], %r8;
"""
    yield Snippet(
        f"special registers, cluster {cluster}", body,
        (snippet.poison(len(names) * threads),
         snippet.poison(len(recorded) * threads), snippet.poison(threads)),
        (0, 1, 2), ("bits", "record", "bits"), grid=grid, cluster=cluster,
        block=block, shared=1152,
    )
