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
"""Tests of isa/mbarrier.py."""

import re

import numpy as np
from absl.testing import absltest, parameterized
from device_snippets import BASE, run, wait

from jax.experimental.mosaic.gpu.simulator.errors import (
    BarrierFault,
    DeadlockError,
    MemoryFault,
    SimulationError,
    UnsupportedPtxError,
)

LEADER = "setp.eq.u32 %p1, %r0, 0;\n"


def state(result, offset=0, cta=0):
  b = result.machine.mbarriers.get(cta, BASE + offset)
  return b.expected, b.pending, b.tx, b.phase


class ArriveTest(parameterized.TestCase):

  @parameterized.parameters(
      ("mbarrier.arrive.shared.b64 %rd5, [%r1];", (40, 8, 0, 0)),
      ("mbarrier.arrive.shared::cta.b64 _, [%r1], 1;", (40, 8, 0, 0)),
      ("mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1], 1;",
       (40, 8, 0, 0)),
      ("mbarrier.arrive.noComplete.shared.b64 %rd5, [%r1], 1;", (40, 8, 0, 0)),
      ("mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd5, [%r1], 1;",
       (40, 8, 0, 0)),
      ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1], 1;",
       (40, 8, 0, 0)),
      ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;", (40, 8, 512, 0)),
      ("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r1], 16;",
       (40, 8, 512, 0)),
      ("mbarrier.arrive_drop.shared.b64 _, [%r1];", (8, 8, 0, 0)),
      ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 4;",
       (40, 40, 128, 0)),
      ("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 4;",
       (40, 40, -128, 0)),
      ("mbarrier.complete_tx.shared::cta.b64 [%r1], 4;", (40, 40, -128, 0)),
      ("@%p1 mbarrier.arrive.shared.b64 _, [%r1], 7;", (40, 33, 0, 0)),
      ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", (40, 8, 0, 0)),
      ("cp.async.mbarrier.arrive.shared::cta.b64 [%r1];", (40, 40, 0, 0)),
  )
  def test_32_threads(self, instruction, expected):
    for order in ("eager", "lazy"):
      result = run(
          LEADER + "@%p1 mbarrier.init.shared::cta.b64 [%r1], 40;\n"
          "bar.sync 0;\n" + instruction,
          order=order,
      )
      self.assertEqual(state(result), expected)

  def test_many_phases_in_one_step(self):
    result = run(
        LEADER + "@%p1 mbarrier.init.shared.b64 [%r1], 5;\nbar.sync 0;\n"
        "mbarrier.arrive.shared.b64 _, [%r1];"
    )
    self.assertEqual(state(result), (5, 5 - 32 % 5, 0, 32 // 5))

  def test_offsets_and_wide_and_symbolic_addresses(self):
    result = run(
        LEADER + """
        @%p1 mbarrier.init.shared.b64 [%r1+8], 32;
        @%p1 mbarrier.init.shared.b64 [%rd2+16], 33;
        @%p1 mbarrier.init.shared.b64 [__dynamic_shmem__0+24], 34;
        mbarrier.arrive.shared.b64 _, [%rd2+24];
        """
    )
    self.assertEqual(state(result, 8), (32, 32, 0, 0))
    self.assertEqual(state(result, 16), (33, 33, 0, 0))
    self.assertEqual(state(result, 24), (34, 2, 0, 0))

  def test_remote(self):
    result = run(
        LEADER + """
        @%p1 mbarrier.init.shared.b64 [%r1], 100;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        xor.b32 %r3, %r2, 1;
        mapa.shared::cluster.u32 %r4, %r1, %r3;
        setp.eq.u32 %p2, %r2, 0;
        @%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4], 2;
        @%p2 mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r4], 8;
        """,
        cluster=2,
    )
    self.assertEqual(state(result, cta=0), (100, 100, 0, 0))
    self.assertEqual(state(result, cta=1), (100, 4, 256, 0))

  def test_remote_state(self):
    with self.assertRaisesRegex(
        SimulationError, "an mbarrier of another CTA has no state; expected `_`"
    ):
      run(
          """
          mapa.shared::cluster.u32 %r4, %r1, 1;
          mbarrier.arrive.shared::cluster.b64 %rd5, [%r4];
          """,
          cluster=2,
      )

  def test_inval(self):
    with self.assertRaisesRegex(
        BarrierFault,
        "mbarrier.arrive: no mbarrier was initialised at 0x400 of CTA 0;.*none"
        r"\n  at PTX line \d+: `.*mbarrier.arrive.shared.b64 _, \[%r1\];`"
        r" \(CTA \(0,0,0\), warp 0, lane 0\)",
    ):
      run(
          LEADER + """
          @%p1 mbarrier.init.shared.b64 [%r1], 100;
          @%p1 mbarrier.inval.shared.b64 [%r1];
          mbarrier.arrive.shared.b64 _, [%r1];
          """
      )

  def test_plain_load_of_an_mbarrier(self):
    with self.assertRaisesRegex(MemoryFault, "touches an mbarrier object"):
      run(
          LEADER + "@%p1 mbarrier.init.shared.b64 [%r1], 1;\n"
          "ld.shared.b32 %r5, [%r1+4];"
      )

  def test_no_complete_needs_a_count(self):
    with self.assertRaisesRegex(
        UnsupportedPtxError, "noComplete needs a count"
    ):
      run("mbarrier.arrive.noComplete.shared.b64 _, [%r1];")

  def test_init_of_a_remote_barrier(self):
    with self.assertRaisesRegex(
        SimulationError, "init of an object in another CTA is not possible"
    ):
      run(
          "mapa.shared::cluster.u32 %r4, %r1, 1;\n"
          "mbarrier.init.shared.b64 [%r4], 1;",
          cluster=2,
      )


class WaitTest(parameterized.TestCase):

  def test_test_wait(self):
    result = run(
        LEADER + """
        @%p1 mbarrier.init.shared.b64 [%r1], 32;
        bar.sync 0;
        mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0;
        mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p3, [%r1], 1;
        mbarrier.arrive.shared.b64 %rd5, [%r1];
        mbarrier.test_wait.shared.b64 %p4, [%r1], %rd5;
        mbarrier.test_wait.parity.shared.b64 %p5, [%r1], 0;
        selp.b32 %r5, 1, 0, %p2;
        selp.b32 %r6, 1, 0, %p3;
        selp.b32 %r7, 1, 0, %p4;
        selp.b32 %r8, 1, 0, %p5;
        mbarrier.pending_count.b64 %r9, %rd5;
        mul.wide.u32 %rd6, %r0, 32;
        add.s64 %rd6, %rd0, %rd6;
        st.global.v4.b32 [%rd6], {%r5, %r6, %r7, %r8};
        st.global.b32 [%rd6+16], %r9;
        """
    )
    words = result.out.reshape(-1, 8)[:32]
    np.testing.assert_array_equal(words[:, :4], [[0, 1, 1, 1]] * 32)
    np.testing.assert_array_equal(words[:, 4], np.arange(32, 0, -1))

  @parameterized.parameters("eager", "lazy")
  def test_try_wait_of_another_warp(self, order):
    # Warp 1 waits for warp 0, which reports in its own time.
    result = run(
        LEADER + f"""
        @%p1 mbarrier.init.shared.b64 [%r1], 32;
        bar.sync 0;
        setp.lt.u32 %p2, %r0, 32;
        @%p2 bra FIRST;
        {wait("%r1")}
        ld.shared.b32 %r5, [%r1+64];
        mul.wide.u32 %rd6, %r0, 4;
        add.s64 %rd6, %rd0, %rd6;
        st.global.b32 [%rd6], %r5;
        bra END;
        FIRST:
        mov.b32 %r5, 77;
        st.shared.b32 [%r1+64], %r5;
        mbarrier.arrive.shared.b64 _, [%r1];
        END:
        """,
        threads=64,
        order=order,
    )
    np.testing.assert_array_equal(result.out[32:64], 77)

  def test_lanes_at_different_barriers(self):
    result = run(
        """
        and.b32 %r3, %r0, 1;
        shl.b32 %r4, %r3, 3;
        add.s32 %r4, %r1, %r4;
        setp.lt.u32 %p1, %r0, 2;
        @%p1 mbarrier.init.shared.b64 [%r4], 16;
        mbarrier.arrive.shared.b64 _, [%r4];
        mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;
        mbarrier.test_wait.parity.shared.b64 %p3, [%r4], %r3;
        selp.b32 %r5, 1, 0, %p2;
        selp.b32 %r6, 1, 0, %p3;
        mul.wide.u32 %rd6, %r0, 8;
        add.s64 %rd6, %rd0, %rd6;
        st.global.v2.b32 [%rd6], {%r5, %r6};
        """
    )
    words = result.out[:64].reshape(32, 2)
    np.testing.assert_array_equal(words[:, 0], 1)
    np.testing.assert_array_equal(words[:, 1], 1 - np.arange(32) % 2)

  def test_deadlock_names_the_barrier(self):
    with self.assertRaisesRegex(
        DeadlockError,
        re.escape(
            "waits for mbarrier 0x400 of CTA 0 (phase 0, pending 1 of 1, tx"
            " 4096), parity 0"
        ),
    ):
      run(
          LEADER + "@%p1 mbarrier.init.shared.b64 [%r1], 1;\n"
          "@%p1 mbarrier.expect_tx.shared::cta.b64 [%r1], 4096;\n"
          + wait("%r1")
      )

  def test_remote_wait(self):
    with self.assertRaisesRegex(
        SimulationError, "a wait for the phase of an object in another CTA"
    ):
      run(
          "mapa.shared::cluster.u32 %r4, %r1, 1;\n"
          "mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;",
          cluster=2,
      )

  def test_generic_address(self):
    result = run(
        LEADER + """
        cvta.shared.u64 %rd5, %rd2;
        @%p1 mbarrier.init.b64 [%rd5], 33;
        mbarrier.arrive.b64 _, [%rd5];
        """
    )
    self.assertEqual(state(result), (33, 1, 0, 0))
    with self.assertRaisesRegex(
        SimulationError, "generic address 0x.* is not in shared memory"
    ):
      run("mbarrier.arrive.b64 _, [%rd0];")


class LaunchControlTest(parameterized.TestCase):

  BODY = LEADER + f"""
      @%p1 mbarrier.init.shared.b64 [%r1], 1;
      bar.sync 0;
      @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
      @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.
          mbarrier::complete_tx::bytes.multicast::cluster::all.b128
          [%r1+16], [%r1];
      {wait("%r1")}
      ld.shared.b128 %q0, [%r1+16];
      clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q0;
      selp.b32 %r5, 1, 0, %p2;
      mov.b32 %r6, 99;
      @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128
          {{%r6, %r7, %r8, _}}, %q0;
      @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128
          %r9, %q0;
      mov.u32 %r10, %ctaid.x;
      mul.wide.u32 %rd6, %r10, 8;
      add.s64 %rd6, %rd0, %rd6;
      @%p1 st.global.v2.b32 [%rd6], {{%r5, %r6}};
      """

  def test_nothing_left(self):
    result = run(self.BODY, clusters=2)
    np.testing.assert_array_equal(
        result.out[:4].reshape(2, 2), [[0, 99], [0, 99]]
    )

  def test_cancels_a_waiting_cluster(self):
    result = run(self.BODY, clusters=3, max_resident_ctas=1)
    # CTA 0 cancels 1; CTA 2 finds nothing left.
    self.assertEqual(result.out[:2].tolist(), [1, 1])
    self.assertEqual(result.out[2:4].tolist(), [0xDEADBEEF] * 2)
    self.assertEqual(result.out[4:6].tolist(), [0, 99])


if __name__ == "__main__":
  absltest.main()
