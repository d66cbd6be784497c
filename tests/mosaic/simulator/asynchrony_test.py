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
"""Tests of asynchrony.py."""

import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import asynchrony, observers, races
from jax.experimental.mosaic.gpu.simulator.errors import MemoryFault, Where


class AsynchronyTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.log = []
    self.woken = []

  def make(self, order):
    return asynchrony.Asynchrony(order, self.woken.append)

  def op(self, name, **options):
    return asynchrony.AsyncOp(
        name, 0, 5, lambda: self.log.append(name), **options
    )

  def test_eager(self):
    a = self.make("eager")
    a.submit(self.op("x", queue="q", group=("bulk", 5)))
    self.assertEqual(self.log, ["x"])
    a.commit_group(("bulk", 5))
    self.assertTrue(a.groups_done(("bulk", 5), 0))
    self.assertTrue(a.idle("q"))
    self.assertFalse(a.drain_one())
    self.assertEmpty(a.unfinished())

  def test_lazy_keeps_queues_in_order(self):
    a = self.make("lazy")
    for name, queue in (("x", "q"), ("y", None), ("z", "q")):
      a.submit(self.op(name, queue=queue))
    self.assertEqual(self.log, [])
    self.assertEqual([op.kind for op in a.ready()], ["x", "y"])
    while a.drain_one():
      pass
    self.assertEqual(self.log, ["y", "x", "z"])
    self.assertIn(("queue", "q"), self.woken)

  def test_finish_runs_what_is_ahead_in_the_queue(self):
    a = self.make("lazy")
    ops = [self.op(name, queue="q") for name in "xyz"]
    for op in ops:
      a.submit(op)
    a.finish(ops[1])
    self.assertEqual(self.log, ["x", "y"])

  def test_groups(self):
    a = self.make("lazy")
    domain = asynchrony.bulk(5)
    ops = []
    for name in "xyz":
      op = self.op(
          name, group=domain,
          read=lambda name=name: self.log.append(name + " read"),
      )
      ops.append(op)
      a.submit(op)
      a.commit_group(domain)
    self.assertFalse(a.groups_done(domain, 2, read=True))
    self.assertTrue(a.groups_done(domain, 3))
    a.advance(ops[0])
    self.assertEqual(self.log, ["x read"])
    self.assertTrue(a.groups_done(domain, 2, read=True))
    self.assertFalse(a.groups_done(domain, 2))
    self.assertIn(("group", domain), self.woken)
    a.finish(ops[0])
    self.assertTrue(a.groups_done(domain, 2))
    self.assertFalse(a.groups_done(domain, 1))
    description = a.describe_groups(domain)
    self.assertIn("2 group(s) in flight: y issued by", description)
    # Empty groups count, too, while others are pending.
    a.commit_group(domain)
    self.assertTrue(a.groups_done(domain, 3))
    self.assertFalse(a.groups_done(domain, 2))

  def test_groups_of_other_threads(self):
    a = self.make("lazy")
    a.submit(self.op("x", group=asynchrony.bulk(5)))
    a.commit_group(asynchrony.bulk(6))
    self.assertTrue(a.groups_done(asynchrony.bulk(6), 0))
    # Not committed yet: no wait includes it.
    self.assertTrue(a.groups_done(asynchrony.bulk(5), 0))

  def test_errors_name_the_issuing_instruction(self):
    a = self.make("lazy")

    def fail():
      raise MemoryFault("bad")

    where = Where(7, "cp.async.bulk", (0, 0, 0), 1, 2)
    a.submit(asynchrony.AsyncOp("copy", 0, 0, fail, where))
    with self.assertRaisesRegex(MemoryFault, "PTX line 7"):
      a.drain_one()

  def test_observers(self):
    seen = []

    class Watch(observers.Observer):

      def on_submit(self, op):
        seen.append("submit " + op.kind)

      def on_complete(self, op):
        seen.append("complete " + op.kind)

    a = asynchrony.Asynchrony("eager", observers=[Watch()])
    a.submit(self.op("x"))
    self.assertEqual(seen, ["submit x", "complete x"])

  def test_unknown_order(self):
    with self.assertRaisesRegex(ValueError, "unknown order 'late'; expected"):
      self.make("late")

  @parameterized.parameters(0, 1, 7)
  def test_seeded(self, seed):
    logs = []
    for _ in range(2):
      self.log = []
      a = self.make(seed)
      for i in range(20):
        a.submit(self.op(f"x{i}", queue="q"))
        a.submit(self.op(f"y{i}"))
      while a.drain_one():
        pass
      logs.append(self.log)
    # Equal for a seed, all of them, and the queue in order.
    self.assertEqual(logs[0], logs[1])
    self.assertLen(set(logs[0]), 40)
    queue = [name for name in logs[0] if name.startswith("x")]
    self.assertEqual(queue, [f"x{i}" for i in range(20)])
    others = [name for name in logs[0] if name.startswith("y")]
    self.assertNotEqual(others, [f"y{i}" for i in range(20)])

  def test_own_order(self):
    class Oldest:

      def issued(self, asynchrony, op):
        pass

      def choose(self, ready):
        return ready[0]

    a = self.make(Oldest())
    for name in "xyz":
      a.submit(self.op(name))
    while a.drain_one():
      pass
    self.assertEqual(self.log, ["x", "y", "z"])


class OrdersTest(parameterized.TestCase):
  """Programs give the same results in all orders."""

  @parameterized.parameters("eager", "lazy", *range(8))
  def test_warps_pass_a_token(self, order):
    # Each warp waits for the warp before it and adds its number.
    body = """
      .shared .align 8 .b64 bars[8];
      .shared .align 4 .b32 sum;
      mov.u32 %r0, %tid.x;
      shr.u32 %r1, %r0, 5;
      mov.b32 %r2, bars;
      mad.lo.u32 %r3, %r1, 8, %r2;
      and.b32 %r4, %r0, 31;
      setp.eq.u32 %p, %r4, 0;
      @%p mbarrier.init.shared.b64 [%r3], 1;
      setp.eq.u32 %q, %r0, 0;
      @%q st.shared.b32 [sum], 0;
      fence.mbarrier_init.release.cluster;
      bar.sync 0;
      setp.ne.u32 %s0, %r1, 0;
      @!%s0 bra FIRST;
      WAIT:
      mbarrier.try_wait.parity.shared.b64 %s1, [%r3+-8], 0;
      @!%s1 bra WAIT;
      FIRST:
      @!%p bra END;
      ld.shared.b32 %r5, [sum];
      mad.lo.u32 %r5, %r5, 2, %r1;
      st.shared.b32 [sum], %r5;
      st.global.b32 [%in0], %r5;
      mbarrier.arrive.shared.b64 _, [%r3];
      END:
    """
    [result] = snippets.run(
        body, np.zeros(1, np.uint32), threads=256, order=order,
        observers=[races.Races()],
    )
    expected = 0
    for warp in range(8):
      expected = 2 * expected + warp
    self.assertEqual(result[0], expected)

  @parameterized.parameters("eager", "lazy", *range(8))
  def test_bulk_copies(self, order):
    # In and out again, in two pieces that share the shared memory.
    body = """
      .shared .align 128 .b8 buf[256];
      .shared .align 8 .b64 bar;
      mov.u32 %r0, %tid.x;
      setp.ne.u32 %p, %r0, 0;
      @%p bra END;
      mov.b32 %r1, buf;
      mov.b32 %r2, bar;
      mbarrier.init.shared.b64 [%r2], 1;
      fence.mbarrier_init.release.cluster;
      mov.u32 %r3, 0;
      mov.b64 %rd0, %in0;
      mov.b64 %rd1, %in1;
      LOOP:
      mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;
      cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes
        [%r1], [%rd0], 256, [%r2];
      WAIT:
      mbarrier.try_wait.parity.shared.b64 %q, [%r2], %r3;
      @!%q bra WAIT;
      cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group.read 0;
      add.s64 %rd0, %rd0, 256;
      add.s64 %rd1, %rd1, 256;
      add.u32 %r3, %r3, 1;
      setp.lt.u32 %q, %r3, 2;
      @%q bra LOOP;
      END:
    """
    x = np.arange(128, dtype=np.uint32)
    _, result = snippets.run(
        body, x, np.zeros_like(x), order=order, observers=[races.Races()]
    )
    np.testing.assert_array_equal(result, x)


if __name__ == "__main__":
  absltest.main()
