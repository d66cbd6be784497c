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
"""The executor: registers, special registers, scheduling and launches."""

from __future__ import annotations

import math
import zlib

import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import (
  errors,
  machine,
  memory,
  observers,
  ptx,
  scheduler,
)


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))


def launch(body: str, grid, cluster, block, num_outputs: int = 1, **kwargs):
  """Runs body, which has its linear thread number in %thread, in a 3-D grid."""
  text = (
      f"{snippets.HEADER}.visible .entry k(.param .u64 p) {{\n"
      ".reg .b32 %r<32>, %thread; .reg .b64 %out, %rd<4>; .reg .pred %p<4>;\n"
      f"{body}\nret;\n}}"
  )
  count = math.prod(grid) * math.prod(block)
  out = np.zeros((count, num_outputs), np.uint32)
  global_memory = memory.GlobalMemory()
  address = global_memory.add_buffer("out", out.reshape(-1).view(np.uint8))
  result = machine.run(
      ptx.parse(text).entries["k"], machine.Launch(grid, cluster, block, 0),
      [address.to_bytes(8, "little")], global_memory, max_steps=100_000,
      **kwargs,
  )
  return out, result


class RegisterTest(_Base):

  def test_unwritten_register(self):
    with self.assertRaisesRegex(
        errors.UnwrittenRegisterError,
        r"Register %r1 is read before it was written, in 64 of 64 active"
        r" threads.*\n.*`add.s32 %r0, %r1, 1;` \(CTA \(0,0,0\), warp 0, lane 0",
    ):
      snippets.run("add.s32 %r0, %r1, 1;", threads=64)

  def test_register_written_in_some_lanes(self):
    body = (
        "mov.u32 %r5, %tid.x; setp.ne.u32 %p, %r5, 37;"
        " @%p mov.b32 %r1, 1; add.s32 %r0, %r1, 1;"
    )
    with self.assertRaisesRegex(
        errors.UnwrittenRegisterError, r"in 1 of 64 .*\n.*warp 1, lane 5\)"
    ):
      snippets.run(body, threads=64)
    snippets.run(body.replace("add", "@%p add"), threads=64)
    # The parts of a register may be written one after the other.
    snippets.run(
        body.replace("add", "@!%p mov.b32 %r1, 2; add"), threads=64
    )

  def test_unwritten_guard_and_address(self):
    with self.assertRaisesRegex(errors.UnwrittenRegisterError, "%p"):
      snippets.run("@%p mov.b32 %r0, 1;")
    with self.assertRaisesRegex(errors.UnwrittenRegisterError, "%rd3"):
      snippets.run("ld.global.b32 %r0, [%rd3+4];")

  def test_registers_of_a_block_and_of_a_batch_start_unwritten(self):
    with self.assertRaisesRegex(errors.UnwrittenRegisterError, "register a|a@"):
      snippets.run("{.reg .b32 a; mov.b32 a, 1;} {.reg .b32 a; not.b32 a, a;}")
    with self.assertRaisesRegex(
        errors.UnwrittenRegisterError, r"CTA \(1,0,0\)"
    ):
      launch(
          "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 0;"
          "@%p0 mov.b32 %r1, 1; not.b32 %r2, %r1;",
          (2, 1, 1), (1, 1, 1), (32, 1, 1), max_resident_ctas=1,
      )

  @parameterized.parameters(
      ("add.s64 %rd0, %r0, %rd1;", "%r0 of type .b32 is read as int64"),
      ("and.pred %p, %r0, %q;", "%r0 of type .b32 is read as bool"),
      ("mov.b32 %p, 1;", "%p of type .pred is written as uint32"),
      ("add.f32 %r0, %r1, 1;", "Constant 1 is read as float32"),
      ("add.f64 %rd0, %rd1, 0f3F800000;", "Constant 1.0 is read as float64"),
      ("mov.u32 %r0, %envreg3;", "%envreg3 is neither declared nor a special"),
  )
  def test_types_that_do_not_fit(self, line, message):
    prelude = (
        "mov.b32 %r0, 1; mov.b32 %r1, 1; mov.b64 %rd1, 1; mov.pred %q, 1;\n"
    )
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError, message
    ) as caught:
      snippets.run(prelude + line)
    self.assertIn(f"`{line}`", str(caught.exception))


class SpecialRegisterTest(_Base):

  def test_coordinates(self):
    """All of them, in a 3-D grid of 3-D clusters of 3-D blocks."""
    grid, cluster, block = (4, 6, 2), (2, 3, 1), (8, 2, 4)
    names = [
        f"{name}.{axis}"
        for name in (
            "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid",
            "cluster_ctaid", "cluster_nctaid",
        )
        for axis in "xyz"
    ] + ["cluster_ctarank", "cluster_nctarank", "laneid", "warpid", "nwarpid"]
    body = """
      ld.param.b64 %out, [p];
      mov.u32 %r0, %ctaid.z; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.x;
      mad.lo.u32 %r0, %r0, 6, %r1; mad.lo.u32 %r0, %r0, 4, %r2;
      mov.u32 %r3, %tid.z; mov.u32 %r4, %tid.y; mov.u32 %r5, %tid.x;
      mad.lo.u32 %r3, %r3, 2, %r4; mad.lo.u32 %r3, %r3, 8, %r5;
      mad.lo.u32 %thread, %r0, 64, %r3;
      mad.wide.u32 %out, %thread, BYTES, %out;
    """.replace("BYTES", str(4 * len(names)))
    for i, name in enumerate(names):
      body += f"mov.u32 %r9, %{name}; st.global.b32 [%out+{4 * i}], %r9;\n"
    out, _ = launch(
        body, grid, cluster, block, len(names), max_resident_ctas=12
    )
    columns = dict(zip(names, out.T))
    cta, thread = np.divmod(np.arange(out.shape[0]), 64)
    for i, axis in enumerate("xyz"):
      np.testing.assert_array_equal(columns[f"ntid.{axis}"], block[i])
      np.testing.assert_array_equal(columns[f"nctaid.{axis}"], grid[i])
      np.testing.assert_array_equal(
          columns[f"cluster_nctaid.{axis}"], cluster[i]
      )
      np.testing.assert_array_equal(
          columns[f"nclusterid.{axis}"], grid[i] // cluster[i]
      )
      in_grid = np.unravel_index(cta, grid[::-1])[2 - i]
      in_block = np.unravel_index(thread, block[::-1])[2 - i]
      np.testing.assert_array_equal(columns[f"ctaid.{axis}"], in_grid)
      np.testing.assert_array_equal(columns[f"tid.{axis}"], in_block)
      np.testing.assert_array_equal(
          columns[f"clusterid.{axis}"], in_grid // cluster[i]
      )
      np.testing.assert_array_equal(
          columns[f"cluster_ctaid.{axis}"], in_grid % cluster[i]
      )
    rank = columns["cluster_ctaid.x"] + 2 * (
        columns["cluster_ctaid.y"] + 3 * columns["cluster_ctaid.z"]
    )
    np.testing.assert_array_equal(columns["cluster_ctarank"], rank)
    np.testing.assert_array_equal(columns["cluster_nctarank"], 6)
    np.testing.assert_array_equal(columns["laneid"], thread % 32)
    np.testing.assert_array_equal(columns["warpid"], thread // 32)
    np.testing.assert_array_equal(columns["nwarpid"], 2)

  def test_lane_masks(self):
    a = np.arange(1, 33, dtype=np.uint32)
    outs = snippets.each(
        "".join(
            f"mov.u32 %{r}, %lanemask_{n};"
            for r, n in zip("xyzuv", ("eq", "lt", "le", "gt", "ge"))
        ),
        a, out=[np.uint32] * 5,
    )
    for lane in range(32):
      bit, everything = 1 << lane, 2**32 - 1
      self.assertEqual(
          [int(o[lane]) for o in outs],
          [bit, bit - 1, 2 * bit - 1, everything - 2 * bit + 1,
           everything - bit + 1],
      )

  def test_clock_does_not_go_back(self):
    a = np.arange(1, 33, dtype=np.uint32)
    x, y, z = snippets.each(
        "mov.u64 %x, %clock64; bra NEXT;\nNEXT:\nmov.u64 %y, %globaltimer;"
        " mov.u32 %z, %smid;", a, out=[np.uint64, np.uint64, np.uint32],
    )
    self.assertTrue((y >= x).all())
    np.testing.assert_array_equal(z, 0)


class ControlTest(_Base):

  def test_divergent_loop(self):
    a = self.rng.integers(1, 200, 128).astype(np.uint32)
    x = snippets.each(
        "mov.b32 %x, 0; mov.b32 %r0, %a;\nLOOP:\nadd.s32 %x, %x, %r0;"
        " add.s32 %r0, %r0, -1; setp.ne.u32 %p, %r0, 0; @%p bra LOOP;",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, a * (a + 1) // 2)

  def test_nested_branches(self):
    a = self.rng.integers(0, 4, 128).astype(np.uint32)
    x = snippets.each(
        """
        setp.lt.u32 %p, %a, 2; @%p bra LOW;
        setp.eq.u32 %p, %a, 2; @%p bra TWO;
        mov.b32 %x, 33; bra.uni END;
        TWO: mov.b32 %x, 22; bra.uni END;
        LOW: setp.eq.u32 %p, %a, 0; mov.b32 %x, 11; @!%p bra END;
        mov.b32 %x, 5;
        END:
        """,
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, np.array([5, 11, 22, 33])[a])

  def test_predication_of_everything(self):
    a = snippets.ints(self.rng, np.int32)
    x, y = snippets.each(
        "setp.lt.s32 %p, %a, 0; mov.b32 %x, %a; @%p neg.s32 %x, %x;"
        " mov.b32 %y, 1; @!%p mov.b64 {%y, %r0}, 0x500000007;"
        " setp.eq.s32 %q, %a, %a; @%q add.s32 %y, %y, 1;"
        " @!%q add.s32 %y, %y, 100;",
        a, out=[np.int32, np.int32],
    )
    np.testing.assert_array_equal(x, np.abs(a))
    np.testing.assert_array_equal(y, np.where(a < 0, 2, 8))

  def test_exit(self):
    a = np.full(64, 9, np.uint32)
    x, = snippets.run(
        "mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %rd0, %in0;"
        " and.b32 %r0, %thread, 1; setp.eq.u32 %p, %r0, 0; @%p exit;"
        " st.global.b32 [%rd0], 4;", a, threads=64,
    )
    np.testing.assert_array_equal(x, [9, 4] * 32)

  def test_trap(self):
    with self.assertRaisesRegex(
        errors.TrapError, r"executed trap.*\n.*`@%p trap;`.*warp 1, lane 3\)"
    ):
      snippets.run(
          "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 35; @%p trap;", threads=64
      )

  def test_past_the_end(self):
    kernel = snippets.kernel("mov.b32 %r0, 1;", 0)
    kernel.body.pop()
    with self.assertRaisesRegex(
        errors.PtxSyntaxError, "ran past the end of the kernel"
    ):
      machine.run(
          kernel, machine.Launch(block=(32, 1, 1)), [], memory.GlobalMemory()
      )

  def test_endless_loop(self):
    with self.assertRaisesRegex(
        errors.SimulationError, r"has not finished after \d+ steps"
    ):
      snippets.run("LOOP:\nbra LOOP;", max_steps=1000)

  def test_no_effect(self):
    snippets.run(
        "fence.acq_rel.gpu; fence.sc.cta; fence.proxy.async;"
        " fence.mbarrier_init.release.cluster; membar.gl; nanosleep.u32 20;"
        " setmaxnreg.dec.sync.aligned.u32 40; griddepcontrol.wait;"
        " griddepcontrol.launch_dependents; prefetch.global.L2 [%in0];"
        " fence.acquire.sync_restrict::shared::cluster.cluster;"
        " mov.b32 %r0, 64; nanosleep.u32 %r0; pmevent 1;",
        np.zeros(4, np.uint32),
    )


class SchedulerTest(_Base):

  SPIN = """
    .shared .align 4 .b32 flag;
    mov.u32 %r0, %warpid; setp.eq.u32 %p, %thread, 0;
    @%p st.shared.b32 [flag], 0;
    bar.sync 0;
    setp.eq.u32 %p, %r0, 0; @%p bra WRITER;
    SPIN:
    ld.volatile.shared.b32 %r1, [flag]; setp.ne.u32 %q, %r1, 17;
    @%q bra SPIN;
    bra END;
    WRITER:
    st.volatile.shared.b32 [flag], 17;
    END:
  """

  def test_a_spin_does_not_starve_others(self):
    snippets.run(self.SPIN, threads=64)

  def test_a_spin_in_one_warp(self):
    """Lanes of one warp: the spinning ones come first in the program."""
    snippets.run(
        self.SPIN.replace("mov.u32 %r0, %warpid", "mov.u32 %r0, %laneid")
    )

  # The lanes of a warp wait for one mbarrier on both sides of a branch. One of
  # those that go first lets another warp complete the next phase, before which
  # the others must have had their turn.
  PHASES = """
    .shared .align 8 .b64 bar[2];
    .reg .b32 %i, %parity, %lane;
    mov.b32 %r4, bar;
    setp.eq.u32 %p, %thread, 0;
    and.b32 %lane, %thread, 31;
    @%p mbarrier.init.shared.b64 [%r4], 1;
    @%p mbarrier.init.shared.b64 [%r4+8], 1;
    bar.sync 0;
    mov.b32 %i, 0;
    setp.ge.u32 %p, %thread, 32;
    @%p bra PRODUCER;
    setp.lt.u32 %s0, %lane, 16;
    setp.eq.u32 %s1, %lane, 0;
    LOOP:
    and.b32 %parity, %i, 1;
    @!%s0 bra SECOND;
    FIRST: mbarrier.try_wait.parity.shared.b64 %q, [%r4], %parity;
    @!%q bra FIRST;
    WORK
    @%s1 mbarrier.arrive.shared.b64 _, [%r4+8];
    bra JOIN;
    SECOND: mbarrier.try_wait.parity.shared.b64 %q, [%r4], %parity;
    @!%q bra SECOND;
    JOIN:
    add.u32 %i, %i, 1;
    setp.lt.u32 %q, %i, 12;
    @%q bra LOOP;
    bra END;
    PRODUCER:
    setp.ne.u32 %p, %lane, 0;
    @%p bra END;
    FILL:
    not.b32 %parity, %i;
    and.b32 %parity, %parity, 1;
    EMPTY: mbarrier.try_wait.parity.shared.b64 %q, [%r4+8], %parity;
    @!%q bra EMPTY;
    mbarrier.arrive.shared.b64 _, [%r4];
    add.u32 %i, %i, 1;
    setp.lt.u32 %q, %i, 12;
    @%q bra FILL;
    END:
    mad.wide.u32 %rd1, %thread, 4, %in0;
    st.global.b32 [%rd1], %i;
  """

  @parameterized.product(order=("eager", "lazy", *range(8)), work=(0, 20, 60))
  def test_lanes_do_not_miss_a_phase(self, order, work):
    body = self.PHASES.replace("WORK", "add.u32 %r9, %i, 1;\n" * work)
    [counts] = snippets.run(
        body, np.zeros(64, np.uint32), threads=64, order=order,
        max_steps=20_000,
    )
    np.testing.assert_array_equal(counts, [12] * 33 + [0] * 31)

  @parameterized.parameters("eager", "lazy", *range(8))
  def test_a_spin_does_not_starve_the_own_warp(self, order):
    # In any order: the spinning lanes come first, or last, in the program.
    for lane in (0, 31):
      body = self.SPIN.replace("%warpid", "%laneid").replace(
          "setp.eq.u32 %p, %r0, 0", f"setp.eq.u32 %p, %r0, {lane}"
      )
      snippets.run(body, threads=32, order=order, max_steps=20_000)

  def test_policy(self):
    """Any choice of threads must give the same result."""

    class MaxPc(scheduler.MinPc):

      def choose(self, s):
        runnable = np.flatnonzero(s.state == scheduler.RUNNABLE)
        if not runnable.size:
          return None
        pc = s.pc[runnable].max()
        threads = runnable[s.pc[runnable] == pc]
        return scheduler.Choice(int(pc), threads, np.iinfo(np.int64).max)

    a = self.rng.integers(1, 60, 128).astype(np.uint32)
    x = snippets.each(
        "mov.b32 %r1, 0; mov.b32 %r0, %a;\nLOOP:\nadd.s32 %r1, %r1, %r0;"
        " add.s32 %r0, %r0, -1; setp.ne.u32 %p, %r0, 0; @%p bra LOOP;"
        " redux.sync.add.u32 %r1, %r1, -1; bar.sync 0; mov.b32 %x, %r1;",
        a, out=np.uint32, policy=MaxPc(),
    )
    sums = (a * (a + 1) // 2).reshape(4, 32).sum(1)
    np.testing.assert_array_equal(x, sums.repeat(32))

  def test_steps_are_shared_by_all_threads(self):
    body = "add.s32 %r0, %thread, 1;" + "add.s32 %r0, %r0, 1;" * 20
    _, few = launch(
        "mov.u32 %thread, %tid.x;" + body, (1, 1, 1), (1, 1, 1), (32, 1, 1)
    )
    _, many = launch(
        "mov.u32 %thread, %tid.x;" + body, (8, 1, 1), (1, 1, 1), (256, 1, 1)
    )
    self.assertEqual(few.steps, many.steps)
    self.assertEqual(few.steps, 23)

  def test_observer_of_instructions(self):

    class Counter(observers.Observer):

      def __init__(self):
        self.threads = []
        self.exits = 0

      def on_instruction(self, step):
        self.threads.append((step.instruction.opcode, step.n))

      def on_exit(self, machine):
        self.exits += 1

    counter = Counter()
    snippets.run(
        "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 3; @%p bra END;"
        " nanosleep.u32 1;\nEND:", threads=64, observers=[counter],
    )
    self.assertContainsSubsequence(
        counter.threads, [("bra", 64), ("nanosleep.u32", 63), ("ret", 64)]
    )
    self.assertEqual(counter.exits, 1)


class LaunchTest(_Base):

  @parameterized.parameters((1, 6), (2, 3), (4, 2), (32, 1))
  def test_batches(self, max_resident_ctas, batches):
    out, result = launch(
        "ld.param.b64 %out, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;"
        " mad.lo.u32 %r2, %r0, 32, %r1; mad.wide.u32 %out, %r2, 4, %out;"
        " st.global.b32 [%out], %r2;",
        (6, 1, 1), (1, 1, 1), (32, 1, 1), max_resident_ctas=max_resident_ctas,
    )
    np.testing.assert_array_equal(out[:, 0], np.arange(192))
    self.assertEqual(result.batches, batches)

  def test_a_shorter_last_batch_in_a_seeded_order(self):
    out, result = launch(
        "ld.param.b64 %out, [p]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;"
        " mad.lo.u32 %r2, %r0, 64, %r1; mad.wide.u32 %out, %r2, 4, %out;"
        " st.global.b32 [%out], %r2;",
        (7, 1, 1), (1, 1, 1), (64, 1, 1), max_resident_ctas=3, order=1,
    )
    np.testing.assert_array_equal(out[:, 0], np.arange(448))
    self.assertEqual(result.batches, 3)

  def test_a_cluster_is_never_split(self):
    _, result = launch(
        "barrier.cluster.arrive; barrier.cluster.wait;",
        (8, 1, 1), (4, 1, 1), (32, 1, 1), max_resident_ctas=1,
    )
    self.assertEqual(result.batches, 2)

  @parameterized.parameters(
      (dict(threads=1025), "has 1025 threads; expected 1 to 1024"),
      (dict(threads=64, directives=".maxntid 32, 1, 1"),
       r"compiled for at most 32 \(.maxntid\)"),
      (dict(directives=".reqnctapercluster 2, 1, 1"),
       r"compiled for \(2, 1, 1\) \(.reqnctapercluster\)"),
      (dict(ctas=3, cluster=2), "must be a positive multiple of the cluster"),
      (dict(ctas=32, cluster=32), "expected at most 16 CTAs"),
      (dict(shared=232449),
       "232449 bytes of dynamic and 0 bytes of static shared memory; expected"
       " at most 232448 in all. Use smaller tiles"),
  )
  def test_refuses(self, arguments, message):
    with self.assertRaisesRegex(errors.ResourceError, message):
      snippets.run("", **arguments)

  def test_refuses_static_shared_memory(self):
    body = ".shared .align 16 .b8 static[1024];"
    snippets.run(body, shared=232448 - 1024)
    with self.assertRaisesRegex(
        errors.ResourceError, "231440 bytes of dynamic and 1024 bytes of static"
    ):
      snippets.run(body, shared=231440)

  def test_params_must_fit(self):
    kernel = snippets.kernel("", 1)
    with self.assertRaisesRegex(ValueError, "takes 1 parameters, got 0"):
      machine.run(kernel, machine.Launch(), [], memory.GlobalMemory())
    with self.assertRaisesRegex(ValueError, "p0 takes 8 bytes, got 4"):
      machine.run(kernel, machine.Launch(), [b"abcd"], memory.GlobalMemory())


if __name__ == "__main__":
  absltest.main()
