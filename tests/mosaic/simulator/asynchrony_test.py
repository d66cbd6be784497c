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

from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import asynchrony, observers
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

    where = Where(7, "cp.async.bulk", 0, 1, 2)
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


if __name__ == "__main__":
  absltest.main()
