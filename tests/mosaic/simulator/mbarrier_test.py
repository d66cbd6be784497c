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
"""Tests of mbarrier.py."""

import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import mbarrier, memory, observers
from jax.experimental.mosaic.gpu.simulator.errors import (
    BarrierFault,
    MemoryFault,
)

WHO = observers.Access(None, "barrier", "mbarrier.arrive")


class MbarrierTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.shared = memory.SharedMemory(2, 4096)
    self.woken = []
    self.barriers = mbarrier.Mbarriers(self.shared, self.woken.append)

  def test_arrivals(self):
    self.barriers.init(0, 64, 3)
    self.assertFalse(self.barriers.passed(0, 64, 0))
    self.assertTrue(self.barriers.passed(0, 64, 1))
    self.barriers.arrive(0, 64)
    self.barriers.arrive(0, 64)
    self.assertFalse(self.barriers.passed(0, 64, 0))
    self.assertEmpty(self.woken)
    self.barriers.arrive(0, 64)
    self.assertTrue(self.barriers.passed(0, 64, 0))
    self.assertFalse(self.barriers.passed(0, 64, 1))
    self.assertEqual(self.woken, [("mbarrier", 0, 64)])
    self.barriers.arrive(0, 64, 3)
    self.assertTrue(self.barriers.passed(0, 64, 1))

  @parameterized.parameters(*range(5))
  def test_random_against_a_counter(self, seed):
    rng = np.random.default_rng(seed)
    expected = int(rng.integers(1, 6))
    self.barriers.init(1, 8, expected)
    phase, pending, tx = 0, expected, 0
    for _ in range(300):
      if pending and rng.integers(2):
        amount = int(rng.integers(1, 100))
        self.barriers.arrive(1, 8, expect_tx=amount)
        pending, tx = pending - 1, tx + amount
      elif tx > 0 or pending:
        amount = tx if tx > 0 and not pending else int(rng.integers(1, 50))
        self.barriers.complete_tx(1, 8, amount)
        tx -= amount
      if pending == 0 and tx < 0:
        self.barriers.expect_tx(1, 8, -tx)
        tx = 0
      if pending == 0 and tx == 0:
        phase, pending = phase + 1, expected
      barrier = self.barriers.get(1, 8)
      self.assertEqual(
          (barrier.phase, barrier.pending, barrier.tx), (phase, pending, tx)
      )

  def test_bytes_may_come_before_they_are_announced(self):
    self.barriers.init(0, 0, 1)
    self.barriers.complete_tx(0, 0, 256)
    self.assertFalse(self.barriers.passed(0, 0, 0))
    self.barriers.arrive(0, 0, expect_tx=256)
    self.assertTrue(self.barriers.passed(0, 0, 0))

  def test_arrive_then_bytes(self):
    self.barriers.init(0, 0, 1)
    self.barriers.arrive(0, 0, expect_tx=256)
    self.barriers.complete_tx(0, 0, 200)
    self.assertFalse(self.barriers.passed(0, 0, 0))
    self.barriers.complete_tx(0, 0, 56)
    self.assertTrue(self.barriers.passed(0, 0, 0))

  def test_drop(self):
    self.barriers.init(0, 0, 3)
    self.barriers.arrive(0, 0, drop=True)
    self.barriers.arrive(0, 0, 2)
    self.assertTrue(self.barriers.passed(0, 0, 0))
    self.barriers.arrive(0, 0, 2)
    self.assertTrue(self.barriers.passed(0, 0, 1))

  def test_tokens(self):
    self.barriers.init(0, 0, 2)
    first = self.barriers.arrive(0, 0)
    self.assertEqual(mbarrier.pending_count(first), 2)
    self.assertFalse(self.barriers.passed_token(0, 0, first))
    second = self.barriers.arrive(0, 0)
    self.assertEqual(mbarrier.pending_count(second), 1)
    self.assertTrue(self.barriers.passed_token(0, 0, first))
    self.barriers.arrive(0, 0, 2)
    with self.assertRaisesRegex(
        BarrierFault, "state token of phase 0 is neither of the current nor"
    ):
      self.barriers.passed_token(0, 0, first)

  def test_not_initialised(self):
    self.barriers.init(0, 16, 1)
    self.barriers.init(1, 32, 1)
    with self.assertRaisesRegex(
        BarrierFault,
        "mbarrier.arrive: no mbarrier was initialised at 0x20 of CTA 0;"
        " mbarriers of this CTA: 0x10",
    ):
      self.barriers.arrive(0, 32, 1, WHO)
    with self.assertRaisesRegex(BarrierFault, "no mbarrier was initialised"):
      self.barriers.passed(0, 24, 0)

  def test_too_many_arrivals(self):
    self.barriers.init(0, 16, 2)
    self.barriers.arrive(0, 16, expect_tx=8)
    with self.assertRaisesRegex(
        BarrierFault,
        r"2 arrival\(s\) where the current phase needs only 1 more; mbarrier"
        r" 0x10 of CTA 0 \(phase 0, pending 1 of 2, tx 8\)",
    ):
      self.barriers.arrive(0, 16, 2)

  def test_init_while_in_use(self):
    self.barriers.init(0, 16, 2)
    self.barriers.init(0, 16, 3)
    self.barriers.arrive(0, 16)
    with self.assertRaisesRegex(BarrierFault, "init of an mbarrier that is in"):
      self.barriers.init(0, 16, 2)
    self.barriers.inval(0, 16)
    self.barriers.init(0, 16, 2)

  def test_no_complete(self):
    self.barriers.init(0, 16, 4)
    self.barriers.arrive(0, 16, 3, no_complete=True)
    with self.assertRaisesRegex(BarrierFault, "noComplete completes the phase"):
      self.barriers.arrive(0, 16, 1, no_complete=True)

  @parameterized.parameters(0, 1 << 20)
  def test_counts(self, count):
    with self.assertRaisesRegex(
        BarrierFault, rf"count must be in 1\.\.1048575, got {count}"
    ):
      self.barriers.init(0, 16, count)

  def test_transaction_range(self):
    self.barriers.init(0, 16, 1)
    self.barriers.expect_tx(0, 16, (1 << 20) - 1)
    with self.assertRaisesRegex(
        BarrierFault, "transaction count would become 1048576, outside"
    ):
      self.barriers.expect_tx(0, 16, 1)

  def test_pending_range(self):
    self.barriers.init(0, 16, (1 << 20) - 1)
    with self.assertRaisesRegex(BarrierFault, "arrivals would be pending"):
      self.barriers.add_pending(0, 16, 1)

  def test_parity(self):
    self.barriers.init(0, 16, 1)
    with self.assertRaisesRegex(BarrierFault, "must be 0 or 1, got 2"):
      self.barriers.passed(0, 16, 2)

  def test_placement(self):
    with self.assertRaisesRegex(MemoryFault, "must be a multiple of 8"):
      self.barriers.init(0, 12, 1)
    with self.assertRaisesRegex(MemoryFault, "is outside its 4096 bytes"):
      self.barriers.init(0, 4096, 1)

  def test_its_bytes_are_not_data(self):
    self.barriers.init(0, 16, 1)
    with self.assertRaisesRegex(MemoryFault, "touches an mbarrier object"):
      self.shared.write(0, np.array([20]), np.zeros((1, 4), np.uint8))
    self.barriers.inval(0, 16)
    self.shared.write(0, np.array([20]), np.zeros((1, 4), np.uint8))

  def test_listing(self):
    self.barriers.init(1, 16, 5)
    ((cta, addr, barrier),) = self.barriers
    self.assertEqual((cta, addr, barrier.expected), (1, 16, 5))


if __name__ == "__main__":
  absltest.main()
