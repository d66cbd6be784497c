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
"""Tests of lanes.py: small programs, each with and without its fault."""

from __future__ import annotations

import dataclasses

import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors, lanes

_START = """
  .shared .align 128 .b8 buf[2048];
  .shared .align 8 .b64 bar;
  and.b32 %r0, %thread, 31;
  setp.eq.u32 %p, %r0, 0;
  setp.eq.u32 %q, %thread, 0;
  setp.lt.u32 %s0, %r0, 16;
  mov.b32 %r1, buf;
  shr.u32 %r2, %thread, 5;
  mad.lo.u32 %r1, %r2, 1024, %r1;
  mad.lo.u32 %r2, %r0, 4, %r1;
  xor.b32 %r3, %r0, 5;
  mad.lo.u32 %r3, %r3, 4, %r1;
  mov.b32 %r4, bar;
"""
_INIT = """
  @%q mbarrier.init.shared.b64 [%r4], 64;
  fence.mbarrier_init.release.cluster;
  bar.sync 0;
"""
_WRITE_READ = (
    "write of .*|read of shared memory at 0x.* of CTA .0,0,0. by ld, and the"
    " earlier write by lane"
)


@dataclasses.dataclass(frozen=True)
class Case:
  """A program for two warps in which a line marked with `!` is needed."""

  body: str
  message: str

  def run(self, missing: bool, order) -> None:
    lines = [
        "" if missing and l.lstrip().startswith("!") else l.replace("!", "", 1)
        if l.lstrip().startswith("!") else l
        for l in self.body.splitlines()
    ]
    snippets.run(
        _START + "\n".join(lines), np.zeros(256, np.uint32), threads=64,
        observers=[lanes.LaneRaces()], order=order,
    )


def _exchange(sync: str) -> str:
  return f"""
  st.shared.b32 [%r2], %r0;
  !{sync}
  ld.shared.b32 %r5, [%r3];
  """


CASES = {
    "read after write": Case(_exchange("bar.warp.sync -1;"), _WRITE_READ),
    "shfl": Case(
        _exchange("shfl.sync.idx.b32 %r6, %r0, 0, 31, -1;"), _WRITE_READ
    ),
    "vote": Case(_exchange("vote.sync.ballot.b32 %r6, %p, -1;"), _WRITE_READ),
    "bar": Case(_exchange("bar.sync 0;"), _WRITE_READ),
    "halves": Case(_exchange("@%s0 bar.warp.sync 0xFFFF; @!%s0 bar.warp.sync"
                             " 0xFFFF0000;"), _WRITE_READ),
    "mbarrier": Case(
        f"""{_INIT}
        st.shared.b32 [%r2], %r0;
        mbarrier.arrive.shared.b64 _, [%r4];
        !W: mbarrier.try_wait.parity.shared.b64 %s1, [%r4], 0; @!%s1 bra W;
        ld.shared.b32 %r5, [%r3];
        """,
        _WRITE_READ,
    ),
    "one lane for all": Case(
        """
        @%p st.shared.b32 [%r1], 7;
        !bar.warp.sync -1;
        ld.shared.b32 %r5, [%r1];
        """,
        "read of .* and the earlier write by lane 0",
    ),
    "behind a branch": Case(
        """
        @!%s0 bra SECOND;
        st.shared.b32 [%r2], %r0;
        SECOND:
        !bar.warp.sync -1;
        @%s0 bra END;
        ld.shared.b32 %r5, [%r2+-64];
        END:
        """,
        "read of .* and the earlier write by lane",
    ),
    "write after read": Case(
        """
        st.shared.b32 [%r2], %r0;
        bar.warp.sync -1;
        ld.shared.b32 %r5, [%r3];
        !bar.warp.sync -1;
        st.shared.b32 [%r2], %r5;
        """,
        "write of .* by st, and the earlier read by lane",
    ),
    "write after write": Case(
        """
        st.shared.b32 [%r2], %r0;
        !bar.warp.sync -1;
        st.shared.b32 [%r3], %r0;
        """,
        "write of .* by st, and the earlier write by lane",
    ),
    "vectors": Case(
        """
        mad.lo.u32 %r2, %r0, 16, %r1;
        xor.b32 %r3, %r0, 5;
        mad.lo.u32 %r3, %r3, 16, %r1;
        st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};
        !bar.warp.sync -1;
        ld.shared.v2.b32 {%r5, %r6}, [%r3+8];
        """,
        "read of .* and the earlier write by lane",
    ),
    "halves of a word are apart": Case(
        """
        mov.u16 %h0, 7;
        mad.lo.u32 %r5, %r0, 2, %r1;
        st.shared.b16 [%r5], %h0;
        ld.shared.b16 %h1, [%r5];
        !bar.warp.sync -1;
        ld.shared.b16 %h1, [%r1];
        """,
        "read of .* and the earlier write by lane",
    ),
    "one value": Case(
        """
        st.shared.b32 [%r1], %r4;
        !bar.warp.sync -1;
        @%p st.shared.b32 [%r1], %r0;
        """,
        "write of .* and the earlier write by lane",
    ),
    "a flag": Case(
        """
        st.shared.b32 [%r2], %r0;
        !atom.shared.add.u32 %r6, [%r1+512], 1;
        @%p ld.shared.b32 %r5, [%r3];
        """,
        _WRITE_READ,
    ),
}


class LaneRacesTest(parameterized.TestCase):

  @parameterized.product(name=tuple(CASES), FAILURE=(True, False))
  def test_case(self, name, FAILURE):
    for order in ("eager", "lazy", 0, 1, 2):
      if not FAILURE:
        CASES[name].run(False, order)
        continue
      with self.assertRaisesRegex(errors.RaceError, CASES[name].message):
        CASES[name].run(True, order)

  def test_halves_of_a_warp_are_not_one(self):
    """A mask orders only the lanes in it."""
    body = CASES["halves"].body.replace("xor.b32 %r3, %r0, 5", "")
    far = Case("xor.b32 %r3, %r0, 17; mad.lo.u32 %r3, %r3, 4, %r1;" + body, "")
    with self.assertRaisesRegex(errors.RaceError, _WRITE_READ):
      far.run(False, "eager")

  @parameterized.parameters("b32", "b16", "b8")
  def test_collision(self, type_):
    value = "%r0" if type_ == "b32" else "%h0"
    with self.assertRaisesRegex(
        errors.RaceError,
        r"lanes 0 and 1 of a warp write 0x0 and 0x1 to shared memory at 0x.*"
        r" in one instruction",
    ):
      Case(
          f"cvt.u16.u32 %h0, %r0; st.shared.{type_} [%r1], {value};", ""
      ).run(False, "eager")

  def test_message(self):
    with self.assertRaises(errors.RaceError) as caught:
      CASES["one lane for all"].run(True, "eager")
    error = caught.exception
    self.assertEqual((error.other.lane, error.where.lane), (0, 1))
    self.assertRegex(
        str(error),
        r"Race: read of shared memory at 0x\w+ of CTA \(0,0,0\) by ld, and the"
        r" earlier write by lane 0 of the same warp, are not ordered; put a"
        r" bar.warp.sync between them\n"
        r"  the earlier at PTX line \d+: `@%p st.shared.b32 \[%r1\], 7;` \(CTA"
        r" \(0,0,0\), warp 0, lane 0\)\n"
        r"  at PTX line \d+: `ld.shared.b32 %r5, \[%r1\];` \(CTA \(0,0,0\),"
        r" warp 0, lane 1\)",
    )


if __name__ == "__main__":
  absltest.main()
