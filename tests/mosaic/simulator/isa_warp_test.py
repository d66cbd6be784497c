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
"""Exchanges within a warp, barriers, and the gathering of a warp's lanes."""

from __future__ import annotations

import zlib

import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))


def shuffled(mode, values, b, c):
  """shfl.sync as the pseudo code of the ISA, for each lane on its own."""
  result, valid = [], []
  for thread, value in enumerate(values):
    warp, lane = thread // 32 * 32, thread % 32
    bval, cval = int(b[thread]) & 31, int(c[thread]) & 31
    segment = int(c[thread]) >> 8 & 31
    last = (lane & segment) | (cval & ~segment)
    first = lane & segment
    if mode == "up":
      source, ok = lane - bval, lane - bval >= last
    elif mode == "down":
      source, ok = lane + bval, lane + bval <= last
    elif mode == "bfly":
      source, ok = lane ^ bval, lane ^ bval <= last
    else:
      source = first | (bval & ~segment)
      ok = source <= last
    result.append(values[warp + source] if ok else value)
    valid.append(ok)
  return np.array(result), np.array(valid)


class ShuffleTest(_Base):

  @parameterized.product(
      mode=("up", "down", "bfly", "idx"), segment=(0, 16, 24, 28),
      threads=(32, 128),
  )
  def test_shfl(self, mode, segment, threads):
    a = snippets.ints(self.rng, np.uint32, 128)
    b = self.rng.integers(0, 40, 128).astype(np.uint32)
    clamp = 0 if mode == "up" else 31
    c = np.full(128, segment << 8 | clamp, np.uint32)
    x, y = snippets.each(
        f"shfl.sync.{mode}.b32 %x|%py, %a, %b, %c, -1;", a, b, c,
        out=[np.uint32, np.bool_], threads=threads,
    )
    expected, valid = shuffled(mode, a, b, c)
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, valid)

  def test_broadcast_of_lane_0(self):
    a = snippets.ints(self.rng, np.uint32, 256)
    x = snippets.each(
        "shfl.sync.idx.b32 %x, %a, 0, 31, -1;", a, out=np.uint32, threads=128
    )
    np.testing.assert_array_equal(x, a.reshape(-1, 32)[:, :1].repeat(32))

  @parameterized.product(
      case=(
          ("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F)
      ),
      b=(0, 1, 5, 16, 31),
  )
  def test_constant_operands(self, case, b):
    mode, c = case
    a = snippets.ints(self.rng, np.uint32, 64)
    x, y = snippets.each(
        f"shfl.sync.{mode}.b32 %x|%py, %a, {b}, {c}, -1;", a,
        out=[np.uint32, np.bool_],
    )
    expected, valid = shuffled(mode, a, np.full(64, b), np.full(64, c))
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, valid)

  def test_part_of_a_warp(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 16; mov.b32 %x, 7;"
        "@%p shfl.sync.bfly.b32 %x, %a, 3, 31, 0xffff;", a, out=np.uint32,
    )
    lane = np.arange(64) % 32
    expected = np.where(lane < 16, a[np.arange(64) ^ 3], 7)
    np.testing.assert_array_equal(x, expected)

  def test_a_source_outside_of_the_mask(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    with self.assertRaisesRegex(
        errors.DivergenceError,
        r"reads from lane 16, which does not take part.*\n.*lane 0\)",
    ):
      snippets.each(
          "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 16; mov.b32 %x, 7;"
          "@%p shfl.sync.bfly.b32 %x, %a, 16, 31, 0xffff;", a, out=np.uint32,
      )

  def test_a_lane_outside_of_its_mask(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    with self.assertRaisesRegex(
        errors.DivergenceError,
        r"not in its own member mask 0xffff.*\n.*lane 16",
    ):
      snippets.each(
          "shfl.sync.bfly.b32 %x, %a, 1, 31, 0xffff;", a, out=np.uint32
      )


class VoteTest(_Base):

  @parameterized.parameters(32, 128)
  def test_elect(self, threads):
    a = snippets.ints(self.rng, np.uint32, 128)
    x, y = snippets.each(
        "elect.sync %x|%py, -1;", a, out=[np.uint32, np.bool_], threads=threads
    )
    np.testing.assert_array_equal(x, 0)
    np.testing.assert_array_equal(y, np.arange(128) % 32 == 0)

  def test_elect_of_some_lanes(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    x, y = snippets.each(
        "mov.pred %py, 0; mov.b32 %x, 99; mov.u32 %r0, %laneid;"
        " and.b32 %r1, %r0, 5; setp.eq.u32 %p, %r1, 5;"
        " @%p elect.sync %x|%py, 0xA0A0A0A0;",
        a, out=[np.uint32, np.bool_],
    )
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(x, np.where(lane & 5 == 5, 5, 99))
    np.testing.assert_array_equal(y, lane == 5)

  def test_vote(self):
    a = self.rng.integers(0, 2, 128, np.uint32)
    a[:32], a[32:64] = 1, 0
    x, y, z, u = snippets.each(
        "setp.ne.u32 %p, %a, 0; vote.sync.all.pred %px, %p, -1;"
        " vote.sync.any.pred %py, %p, -1; vote.sync.uni.pred %pz, %p, -1;"
        " vote.sync.ballot.b32 %u, !%p, -1;",
        a, out=[np.bool_, np.bool_, np.bool_, np.uint32],
    )
    rows = a.reshape(-1, 32) != 0
    np.testing.assert_array_equal(x, rows.all(1).repeat(32))
    np.testing.assert_array_equal(y, rows.any(1).repeat(32))
    np.testing.assert_array_equal(z, (rows.all(1) | ~rows.any(1)).repeat(32))
    ballot = [int("".join("01"[int(not b)] for b in r[::-1]), 2) for r in rows]
    np.testing.assert_array_equal(u, np.repeat(ballot, 32))

  def test_activemask(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        "mov.u32 %r0, %laneid; mov.b32 %x, 0; setp.gt.u32 %p, %r0, 27;"
        " @%p activemask.b32 %x;", a, out=np.uint32,
    )
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(x, np.where(lane > 27, 0xF0000000, 0))

  @parameterized.parameters(
      ("add", "u32", np.add), ("add", "s32", np.add),
      ("min", "u32", np.minimum),
      ("min", "s32", np.minimum), ("max", "s32", np.maximum),
      ("max", "u32", np.maximum), ("and", "b32", np.bitwise_and),
      ("or", "b32", np.bitwise_or), ("xor", "b32", np.bitwise_xor),
  )
  def test_redux(self, kind, type_, reference):
    dtype = np.int32 if type_ == "s32" else np.uint32
    a = snippets.ints(self.rng, dtype)
    x = snippets.each(f"redux.sync.{kind}.{type_} %x, %a, -1;", a, out=dtype)
    rows = a.reshape(-1, 32)
    expected = reference.reduce(rows, axis=1, dtype=dtype)
    np.testing.assert_array_equal(x, expected.repeat(32))

  def test_redux_of_some_lanes(self):
    a = snippets.ints(self.rng, np.int32, 64)
    x = snippets.each(
        "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 8; mov.b32 %x, 0;"
        "@%p redux.sync.min.s32 %x, %a, 0xff;", a, out=np.int32,
    )
    expected = np.zeros((2, 32), np.int32)
    expected[:, :8] = a.reshape(2, 32)[:, :8].min(1, keepdims=True)
    np.testing.assert_array_equal(x, expected.ravel())

  @parameterized.product(kind=("min", "max"), nan=(False, True))
  def test_redux_f32(self, kind, nan):
    a = self.rng.standard_normal(128).astype(np.float32)
    a[40], a[64:96] = np.nan, np.nan
    modifier = ".NaN" if nan else ""
    x = snippets.each(
        f"redux.sync.{kind}.abs{modifier}.f32 %x, %a, -1;", a, out=np.float32
    )
    reduce = {"min": np.fmin, "max": np.fmax}[kind].reduce
    expected = reduce(np.abs(a).reshape(4, 32), axis=1)
    if nan:
      expected[1] = np.nan
    np.testing.assert_array_equal(x, expected.repeat(32))

  def test_match(self):
    a = self.rng.integers(3, 6, 64).astype(np.uint32)
    a[32:] = 9
    x, y, z = snippets.each(
        "match.any.sync.b32 %x, %a, -1; match.all.sync.b32 %y|%pz, %a, -1;",
        a, out=[np.uint32, np.uint32, np.bool_],
    )
    expected = [
        sum(1 << j for j in range(32) if a[t // 32 * 32 + j] == a[t])
        for t in range(64)
    ]
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(z, np.arange(64) >= 32)
    np.testing.assert_array_equal(y, np.where(z, 0xFFFFFFFF, 0))


class ConvergenceTest(_Base):

  # Lanes below 8 take a detour, the others come to the label first.
  DETOUR = """
    mov.u32 %r0, %laneid;
    mov.b32 %r1, 0;
    setp.ge.u32 %p, %r0, 8;
    @%p bra MEET;
    mov.b32 %r2, 0;
    AGAIN:
    add.s32 %r2, %r2, 1;
    setp.lt.u32 %q, %r2, {turns};
    @%q bra AGAIN;
    mov.b32 %r1, 100;
    MEET:
  """

  @parameterized.parameters(3, 1000)
  def test_lanes_meet_behind_a_branch(self, turns):
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        self.DETOUR.format(turns=turns)
        + "add.s32 %r1, %r1, %r0; shfl.sync.bfly.b32 %x, %r1, 31, 31, -1;",
        a, out=np.uint32,
    )
    lane = 31 - np.arange(64) % 32
    np.testing.assert_array_equal(x, np.where(lane < 8, 100, 0) + lane)

  def test_early_lanes_wait_for_late_ones(self):
    """Lanes below 8 wait at a barrier which only the other warp can open."""
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        """
        mov.u32 %r0, %laneid;
        mov.u32 %r1, %warpid;
        .shared .align 8 .b64 bar;
        setp.eq.u32 %p, %thread, 0;
        mov.b32 %r5, bar;
        @%p mbarrier.init.shared.b64 [%r5], 1;
        bar.sync 0;
        mov.b32 %r3, 0;
        setp.ne.u32 %p, %r1, 0;
        @%p bra OTHER;
        setp.ge.u32 %p, %r0, 8;
        @%p bra MEET;
        WAIT:
        mbarrier.try_wait.parity.shared.b64 %q, [%r5], 0;
        @!%q bra WAIT;
        mov.b32 %r3, 100;
        bra MEET;
        OTHER:
        setp.eq.u32 %p, %r0, 0;
        @%p mbarrier.arrive.shared.b64 _, [%r5];
        MEET:
        add.s32 %r3, %r3, %r0;
        elect.sync %r4|%px, -1;
        shfl.sync.bfly.b32 %y, %r3, 31, 31, -1;
        """,
        a, out=[np.bool_, np.uint32],
    )
    np.testing.assert_array_equal(x[0], np.arange(64) % 32 == 0)
    lane = 31 - np.arange(64) % 32
    late = (np.arange(64) < 32) & (lane < 8)
    np.testing.assert_array_equal(x[1], np.where(late, 100, 0) + lane)

  def test_guard_that_splits_a_warp(self):
    with self.assertRaisesRegex(
        errors.DivergenceError,
        r"Lanes 0-7 of the warp execute this, but the guard is false in lanes"
        r" 8-31.*\n.*bar.sync 0;` \(CTA \(0,0,0\), warp 0\)",
    ):
      snippets.run(
          "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 8; @%p bar.sync 0;"
      )

  def test_two_places_of_one_warp(self):
    with self.assertRaisesRegex(
        errors.DivergenceError,
        r"Divergence. All threads wait, 0 of 32 have exited:\n"
        r"  CTA \(0,0,0\) warp 0 lanes 0-7: waits for lanes 8-31 of its warp;"
        r" line \d+: `bar.sync 1;`\n"
        r"  CTA \(0,0,0\) warp 0 lanes 8-31: waits for lanes 0-7 of its warp;"
        r" line \d+: `bar.sync 2;`",
    ):
      snippets.run(
          "mov.u32 %r0, %laneid; setp.ge.u32 %p, %r0, 8; @%p bra B;\n"
          "bar.sync 1; bra END;\nB:\nbar.sync 2;\nEND:\n"
      )

  def test_aligned_after_some_lanes_have_exited(self):
    with self.assertRaisesRegex(
        errors.DivergenceError, "Lanes 0-3 of the warp have exited"
    ):
      snippets.run(
          "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 4; @%p ret;"
          " bar.sync 0;"
      )

  def test_not_aligned_after_some_lanes_have_exited(self):
    x, = snippets.run(
        "mov.u32 %r0, %laneid; setp.lt.u32 %p, %r0, 4; @%p ret;"
        " mov.b32 %r2, 5; elect.sync %r1|%q, -1; mul.wide.u32 %rd0, %r0, 4;"
        " add.s64 %rd0, %in0, %rd0; st.global.b32 [%rd0], %r1;",
        np.full(32, 77, np.uint32),
    )
    np.testing.assert_array_equal(x, [77] * 4 + [4] * 28)

  def test_lanes_that_exit_release_those_that_wait(self):
    x, = snippets.run(
        self.DETOUR.format(turns=3).replace("mov.b32 %r1, 100;", "ret;")
        + "elect.sync %r1|%q, -1; mul.wide.u32 %rd0, %r0, 4;"
        " add.s64 %rd0, %in0, %rd0; st.global.b32 [%rd0], %r1;",
        np.full(32, 77, np.uint32),
    )
    np.testing.assert_array_equal(x, [77] * 8 + [8] * 24)

  def test_bar_warp_sync(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        self.DETOUR.format(turns=3) + "bar.warp.sync -1; activemask.b32 %x;",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, 0xFFFFFFFF)


class BarrierTest(_Base):

  def test_bar_sync_orders_shared_memory(self):
    a = snippets.ints(self.rng, np.uint32, 256)
    x = snippets.each(
        ".shared .align 4 .b32 buf[128];\n"
        "mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.b32 %r2, buf;"
        " add.s32 %r1, %r1, %r2; st.shared.b32 [%r1], %a; bar.sync 0;"
        " xor.b32 %r1, %r0, 127; shl.b32 %r1, %r1, 2; add.s32 %r1, %r1, %r2;"
        " ld.shared.b32 %x, [%r1];",
        a, out=np.uint32, threads=128,
    )
    np.testing.assert_array_equal(x, a.reshape(2, 128)[:, ::-1].ravel())

  def test_a_barrier_per_pair_of_warps(self):
    """The number comes from a register and differs between warps."""
    a = snippets.ints(self.rng, np.uint32, 128)
    x = snippets.each(
        "mov.u32 %r0, %warpid; shr.u32 %r0, %r0, 1; add.s32 %r0, %r0, 3;"
        " bar.sync %r0, 64; mov.b32 %x, %r0;", a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, np.arange(128) // 64 + 3)

  def test_arrive_and_sync(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        ".shared .align 4 .b32 buf;\n"
        "mov.u32 %r0, %warpid; setp.eq.u32 %p, %r0, 0; mov.b32 %r2, buf;"
        "@%p bra CONSUMER; mov.u32 %r3, %laneid; setp.eq.u32 %q, %r3, 0;"
        " @%q st.shared.b32 [%r2], 4711; bar.arrive 5, 64; mov.b32 %x, 1;"
        " bra END;\nCONSUMER:\nbar.sync 5, 64; ld.shared.b32 %x, [%r2];\nEND:",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, np.where(np.arange(64) < 32, 4711, 1))

  def test_bar_red(self):
    a = self.rng.integers(0, 2, 128, np.uint32)
    x, y, z = snippets.each(
        "setp.ne.u32 %p, %a, 0; bar.red.popc.u32 %x, 0, %p;"
        " bar.red.or.pred %py, 1, 128, !%p; bar.red.and.pred %pz, 0, %p;",
        a, out=[np.uint32, np.bool_, np.bool_],
    )
    np.testing.assert_array_equal(x, a.sum())
    np.testing.assert_array_equal(y, (a == 0).any())
    np.testing.assert_array_equal(z, (a != 0).all())

  def test_bar_red_of_warps_that_come_one_by_one(self):
    a = self.rng.integers(0, 2, 128, np.uint32)
    x = snippets.each(
        "mov.u32 %r0, %warpid; mov.b32 %r1, 0;\nAGAIN:\n"
        " add.s32 %r1, %r1, 1; setp.le.u32 %q, %r1, %r0; @%q bra AGAIN;"
        " setp.ne.u32 %p, %a, 0; setp.eq.u32 %q, %r0, 2;"
        " @%q bra SECOND; bar.red.popc.u32 %x, 0, %p; bra END;\nSECOND:\n"
        " bar.red.popc.u32 %x, 0, %p;\nEND:",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, a.sum())

  def test_warps_that_exit_do_not_hold_a_barrier_up(self):
    x, = snippets.run(
        "mov.u32 %r0, %warpid; setp.eq.u32 %p, %r0, 3; mov.b32 %r1, 0;"
        "@!%p bra SYNC;\nAGAIN:\nadd.s32 %r1, %r1, 1; setp.lt.u32 %q, %r1, 9;"
        "@%q bra AGAIN; ret;\nSYNC:\nbar.sync 0; mul.wide.u32 %rd0, %thread, 4;"
        " add.s64 %rd0, %in0, %rd0; st.global.b32 [%rd0], 5;",
        np.full(128, 1, np.uint32), threads=128,
    )
    np.testing.assert_array_equal(x, [5] * 96 + [1] * 32)

  def test_block_that_is_no_multiple_of_a_warp(self):
    a = snippets.ints(self.rng, np.uint32, 160)
    x = snippets.each(
        "bar.sync 0; mov.u32 %r2, %warpid; setp.eq.u32 %p, %r2, 0;"
        " selp.b32 %r1, -1, 0xff, %p; shfl.sync.idx.b32 %x, %a, 3, 31, %r1;",
        a, out=np.uint32, threads=40,
    )
    rows = a.reshape(4, 40)
    expected = np.where(np.arange(40) < 32, rows[:, 3:4], rows[:, 35:36])
    np.testing.assert_array_equal(x, expected.ravel())

  def test_cluster_barrier(self):
    a = snippets.ints(self.rng, np.uint32, 128)
    x = snippets.each(
        ".shared .align 4 .b32 buf[32];\n"
        "mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.b32 %r2, buf;"
        " add.s32 %r1, %r1, %r2; st.shared.b32 [%r1], %a;"
        " barrier.cluster.arrive.release.aligned;"
        " barrier.cluster.wait.acquire.aligned;"
        " mov.u32 %r3, %cluster_ctarank; xor.b32 %r3, %r3, 1;"
        " mapa.shared::cluster.u32 %r4, %r1, %r3;"
        " ld.shared::cluster.b32 %x, [%r4];"
        " barrier.cluster.arrive.relaxed.aligned;"
        " barrier.cluster.wait.aligned;",
        a, out=np.uint32, threads=32, cluster=2,
    )
    np.testing.assert_array_equal(
        x, a.reshape(2, 2, 32)[:, ::-1].ravel()
    )

  @parameterized.parameters(
      ("bar.sync 16;", "Barrier 16; expected one of 0 to 15"),
      ("bar.sync 1, 48;", "Thread count 48 of barrier 1; expected a positive"),
      ("bar.arrive 1, 64;",
       "128 threads arrived at barrier 1, which expects 64"),
      ("barrier.cluster.wait;", "wait without barrier.cluster.arrive"),
      ("barrier.cluster.arrive; barrier.cluster.arrive;",
       "arrive twice without barrier.cluster.wait"),
  )
  def test_misuse(self, body, message):
    with self.assertRaisesRegex(errors.BarrierFault, message) as caught:
      snippets.run(body, threads=128)
    self.assertRegex(str(caught.exception), r"PTX line \d+: `barr?i?e?r?\.")

  def test_different_counts(self):
    with self.assertRaisesRegex(
        errors.BarrierFault,
        "got thread count 128, but its other threads gave 64",
    ):
      snippets.run(
          "mov.u32 %r0, %warpid; setp.eq.u32 %p, %r0, 0; mov.b32 %r1, 64;"
          "@!%p mov.b32 %r1, 128; bar.sync 1, %r1;", threads=128,
      )

  def test_deadlock_table(self):
    with self.assertRaisesRegex(
        errors.DeadlockError,
        r"Deadlock. All threads wait, 64 of 128 have exited:\n"
        r"  CTA \(0,0,0\) warp 0 lanes 0-31: waits for barrier 3 \(64 of 96"
        r" threads have arrived\); line \d+: `@%p bar.sync 3, 96;`\n"
        r"  CTA \(0,0,0\) warp 1 lanes 0-31: waits for barrier 3",
    ):
      snippets.run(
          "mov.u32 %r0, %warpid; setp.lt.u32 %p, %r0, 2; @%p bar.sync 3, 96;",
          threads=128,
      )

  def test_cluster_deadlock(self):
    with self.assertRaisesRegex(
        errors.DeadlockError,
        r"CTA \(1,0,0\) warp 0 lanes 0-31: waits for the cluster barrier"
        r" \(32 of 64 threads have arrived\)",
    ):
      snippets.run(
          ".shared .align 8 .b64 bar; mov.u32 %r0, %cluster_ctarank;"
          " setp.eq.u32 %p, %r0, 0; mov.b32 %r1, bar;"
          " setp.eq.u32 %q, %thread, 0;"
          " @%q mbarrier.init.shared.b64 [%r1], 1; bar.sync 0;"
          " @!%p barrier.cluster.arrive; @!%p barrier.cluster.wait;\nWAIT:\n"
          " @!%p bra END; mbarrier.try_wait.parity.shared.b64 %q, [%r1], 0;"
          " @!%q bra WAIT;\nEND:", ctas=2, cluster=2,
      )


if __name__ == "__main__":
  absltest.main()
