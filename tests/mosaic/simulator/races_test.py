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
"""Tests of races.py: small programs, each with and without its fault."""

from __future__ import annotations

import dataclasses

import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors, observers, races

# Warp 0 goes to FIRST, the last one to SECOND, the others to the END.
_ROLES = """
  .shared .align 128 .b8 buf[2048];
  .shared .align 8 .b64 bar[2];
  .shared .align 8 .b32 slot;
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  setp.eq.u32 %p, %r1, 0;
  setp.eq.u32 %q, %r0, 0;
  and.b32 %r2, %r0, 31;
  setp.eq.u32 %s0, %r2, 0;
  mov.b32 %r3, buf;
  mov.b32 %r4, bar;
  mad.lo.u32 %r5, %r2, 4, %r3;
"""
_INIT = """
  @%q mbarrier.init.shared.b64 [%r4], 1;
  @%q mbarrier.init.shared.b64 [%r4+8], 32;
  fence.mbarrier_init.release.cluster;
  bar.sync 0;
"""
_WAIT = "WAIT{0}: mbarrier.try_wait.parity.shared.b64 %s1, [%r4{1}], 0;"
_WAIT += "\n@!%s1 bra WAIT{0};"
_ALLOC = """
  @!%p bra ALLOCATED;
  mov.b32 %r6, slot;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r6], 32;
  ALLOCATED:
  bar.sync 0;
  ld.shared.b32 %r7, [slot];
"""
_FREE = """
  @!%p bra FREED;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r7, 32;
  FREED:
"""
_FILL = """
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {%r0};
  tcgen05.wait::st.sync.aligned;
"""


@dataclasses.dataclass(frozen=True)
class Case:
  """A program in which each line marked with `!` is needed.

  Attributes:
    body: the program.
    message: of the report if one is missing.
    threads, ctas, cluster: of the launch.
    orders: in which the fault is found.
  """

  body: str
  message: str
  threads: int = 64
  ctas: int = 1
  cluster: int = 1
  orders: tuple = ("eager", "lazy", 0, 1, 2)

  def needed(self) -> list[int]:
    lines = self.body.splitlines()
    return [i for i, line in enumerate(lines) if line.lstrip().startswith("!")]

  def run(self, missing: int | None, order) -> None:
    lines = self.body.splitlines()
    for i in self.needed():
      lines[i] = "" if i == missing else lines[i].replace("!", "", 1)
    snippets.run(
        "\n".join(lines), np.zeros(256, np.uint32), np.arange(256, dtype="u4"),
        threads=self.threads, ctas=self.ctas, cluster=self.cluster,
        observers=[observers.TmemRules(), races.Races()], order=order,
    )


_BULK_STORE = (
    "cp.async.bulk.global.shared::cta.bulk_group [%in0], [%r3], 128;"
    " cp.async.bulk.commit_group;"
)
_BULK_LOAD = (
    "mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;"
    " cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
    " [%r3], [%in1], 128, [%r4];"
)

CASES = {
    "read after write": Case(
        f"""{_ROLES}
        @%p st.shared.b32 [%r5], %r0;
        !bar.sync 0;
        @!%p ld.shared.b32 %r6, [%r5];
        """,
        "shared memory at 0x.* of CTA .* by (ld|st), and the earlier (read|"
        "write) by (ld|st)",
    ),
    "write after read": Case(
        f"""{_ROLES}
        @%p st.shared.b32 [%r5], %r0;
        @%p ld.shared.b32 %r6, [%r5];
        !bar.sync 0;
        @!%p st.shared.b32 [%r5], %r0;
        """,
        "shared memory at 0x.* of CTA .* by (ld|st), and the earlier .* by",
    ),
    "mbarrier": Case(
        f"""{_ROLES}{_INIT}
        @!%p bra SECOND;
        st.shared.b32 [%r5], %r0;
        mbarrier.arrive.shared.b64 _, [%r4+8];
        bra END;
        SECOND:
        !{_WAIT.format(1, "+8").replace(chr(10), " ")}
        ld.shared.b32 %r6, [%r5];
        END:
        """,
        "shared memory .* by (ld|st), and the earlier",
    ),
    "relaxed arrive": Case(
        f"""{_ROLES}{_INIT}
        @!%p bra SECOND;
        st.shared.b32 [%r5], %r0;
        !fence.acq_rel.cta;
        mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r4+8];
        bra END;
        SECOND:
        {_WAIT.format(1, "+8")}
        ld.shared.b32 %r6, [%r5];
        END:
        """,
        "shared memory .* by (ld|st), and the earlier",
    ),
    "halves of a word are apart": Case(
        f"""{_ROLES}
        mov.u16 %h0, 7;
        mad.lo.u32 %r6, %r1, 2, %r5;
        st.shared.b16 [%r6], %h0;
        """,
        "",
    ),
    "bulk store": Case(
        f"""{_ROLES}
        @%p st.shared.b32 [%r5], %r0;
        !fence.proxy.async.shared::cta;
        !bar.sync 0;
        @%p bra END;
        @!%s0 bra END;
        {_BULK_STORE}
        cp.async.bulk.wait_group.read 0;
        END:
        """,
        "shared memory .* by (cp.async.bulk store|st), and the earlier",
    ),
    "bulk store, then overwritten": Case(
        f"""{_ROLES}
        @%p st.shared.b32 [%r5], %r0;
        @%p fence.proxy.async.shared::cta;
        @!%q bra NEXT;
        {_BULK_STORE}
        !cp.async.bulk.wait_group.read 0;
        NEXT:
        !bar.sync 0;
        @!%p st.shared.b32 [%r5], %r0;
        """,
        "shared memory .* by (cp.async.bulk store|st), and the earlier",
    ),
    "bulk store, then read in global memory": Case(
        f"""{_ROLES}
        @%p st.shared.b32 [%r5], %r0;
        @%p fence.proxy.async;
        @!%q bra NEXT;
        {_BULK_STORE}
        !cp.async.bulk.wait_group 0;
        NEXT:
        !bar.sync 0;
        @!%p ld.global.b32 %r6, [%in0];
        """,
        "read of global memory at 0x.* .byte 0 of 'in0'. by ld, and the earlier"
        " write by cp.async.bulk store",
        orders=("eager",),  # Reads of global memory are not remembered.
    ),
    "bulk load": Case(
        f"""{_ROLES}{_INIT}
        @!%q bra NEXT;
        {_BULK_LOAD}
        NEXT:
        !{_WAIT.format(1, "").replace(chr(10), " ")}
        ld.shared.b32 %r6, [%r5];
        {_WAIT.format(2, "")}
        """,
        "shared memory .* by (ld|cp.async.bulk load), and the earlier",
    ),
    "init": Case(
        f"""{_ROLES}
        @%q mbarrier.init.shared.b64 [%r4], 1;
        !fence.mbarrier_init.release.cluster;
        !bar.sync 0;
        @%p bra NEXT;
        @!%s0 bra NEXT;
        {_BULK_LOAD}
        NEXT:
        bar.sync 0;
        {_WAIT.format(1, "")}
        """,
        "mbarrier 0x.* of CTA .* races with its mbarrier.init, which",
    ),
    "distributed shared memory": Case(
        f"""{_ROLES}
        mapa.shared::cluster.u32 %r6, %r5, 1;
        mov.u32 %r7, %cluster_ctarank;
        setp.eq.u32 %q, %r7, 0;
        @%q st.shared::cluster.b32 [%r6], %r0;
        !fence.acq_rel.cluster;
        barrier.cluster.arrive.relaxed.aligned;
        barrier.cluster.wait.aligned;
        @!%q ld.shared.b32 %r8, [%r5];
        """,
        "read of shared memory .* of CTA .1,0,0. by ld, and the earlier write"
        " by st",
        threads=32, ctas=2, cluster=2,
    ),
    "exit": Case(
        f"""{_ROLES}{_INIT}
        mapa.shared::cluster.u32 %r6, %r4, 0;
        mov.u32 %r7, %cluster_ctarank;
        setp.eq.and.u32 %q, %r7, 1, %q;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        @%q mbarrier.arrive.shared::cluster.b64 _, [%r6];
        !barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
        """,
        "mbarrier.arrive still writes mbarrier 0x.* of CTA .0,0,0. when that"
        " CTA may have exited",
        threads=32, ctas=2, cluster=2,
    ),
    "flag in global memory": Case(
        """
        setp.eq.u32 %p, %thread, 0;
        @!%p bra SECOND;
        st.global.b32 [%in0], 5;
        st.release.gpu.global.b32 [%in0+64], 1;
        bra END;
        SECOND:
        !SPIN: SPIN_UNTIL_SET
        ld.global.b32 %r1, [%in0];
        END:
        """.replace(
            "SPIN_UNTIL_SET",
            "ld.acquire.gpu.global.b32 %r0, [%in0+64];"
            " setp.eq.u32 %q, %r0, 0; @%q bra SPIN;",
        ),
        "global memory at 0x.* by (ld|st), and the earlier write by st",
        threads=1, ctas=2,
    ),
    "tcgen05.st and ld": Case(
        f"""{_ROLES}{_ALLOC}
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7], {{%r0}};
        !tcgen05.wait::st.sync.aligned;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r8}}, [%r7];
        tcgen05.wait::ld.sync.aligned;
        tcgen05.wait::st.sync.aligned;
        !bar.sync 0;
        {_FREE}
        """,
        "tensor memory lanes .* column 0 of CTA .* by tcgen05",
        threads=128,
    ),
    # Warps 0 and 4 reach the same lanes.
    "tcgen05.ld, then overwritten": Case(
        f"""{_ROLES}{_ALLOC}
        setp.lt.u32 %s2, %r1, 4;
        @!%s2 bra NEXT;
        {_FILL}
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r8}}, [%r7];
        !tcgen05.wait::ld.sync.aligned;
        !tcgen05.fence::before_thread_sync;
        NEXT:
        !bar.sync 0;
        @%s2 bra LAST;
        !tcgen05.fence::after_thread_sync;
        {_FILL}
        LAST:
        add.u32 %r8, %r7, 1;
        bar.sync 0;
        {_FREE}
        """,
        "write of tensor memory lanes .* column 0 of CTA .* by tcgen05.st",
        threads=256,
    ),
    "dealloc": Case(
        f"""{_ROLES}{_ALLOC}{_FILL}
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r8}}, [%r7];
        add.u32 %r8, %r8, 1;
        !bar.sync 0;
        {_FREE}
        """,
        "write of tensor memory .* by tcgen05.dealloc, and the earlier .* by"
        " tcgen05",
        threads=128,
    ),
    "a register in use": Case(
        f"""{_ROLES}{_ALLOC}{_FILL}
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r8}}, [%r7];
        !add.u32 %r8, %r8, 1;
        bar.sync 0;
        {_FREE}
        """,
        "write of tensor memory .* by tcgen05.dealloc, and the earlier read by"
        " tcgen05.ld",
        threads=128,
    ),
}


class RacesTest(parameterized.TestCase):

  @parameterized.product(name=tuple(CASES), FAILURE=(True, False))
  def test_case(self, name, FAILURE):
    case = CASES[name]
    if not FAILURE:
      for order in ("eager", "lazy", 0, 1, 2):
        case.run(None, order)
      return
    for order in case.orders:
      for line in case.needed():
        text = case.body.splitlines()[line].strip()
        with self.subTest(f"{order}, without {text}"):
          # Tensor memory that is freed too early may be used after that.
          with self.assertRaisesRegex(
              errors.SimulationError, f"{case.message}|, which is not allocated"
          ):
            case.run(line, order)

  def test_message_names_both_places(self):
    case = CASES["read after write"]
    with self.assertRaises(errors.RaceError) as caught:
      case.run(case.needed()[0], "eager")
    error = caught.exception
    self.assertEqual((error.other.warp, error.where.warp), (0, 1))
    self.assertIn("st.shared.b32", error.other.text)
    self.assertIn("ld.shared.b32", error.where.text)
    self.assertRegex(
        str(error),
        r"Race: read of shared memory at 0x\w+ of CTA \(0,0,0\) by ld, and the"
        r" earlier write by st \(write\), are not ordered\n"
        r"  the earlier at PTX line \d+: `@%p st.shared.b32 \[%r5\], %r0;`"
        r" \(CTA \(0,0,0\), warp 0\)\n"
        r"  at PTX line \d+: `@!%p ld.shared.b32 %r6, \[%r5\];` \(CTA"
        r" \(0,0,0\), warp 1, lane 0\)",
    )

  def test_message_has_a_hint(self):
    case = CASES["bulk store"]
    with self.assertRaisesRegex(
        errors.RaceError, "threads are ordered, but a fence.proxy.async"
    ):
      case.run(case.needed()[0], "eager")


if __name__ == "__main__":
  absltest.main()
