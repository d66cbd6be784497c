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
"""Tests of memory.py and of the checkers in observers.py."""

import numpy as np
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import memory, observers, tmem
from jax.experimental.mosaic.gpu.simulator.errors import (
    MemoryFault,
    TmemFault,
    UnsupportedPtxError,
    Where,
)

WHERE = Where(12, "ld.shared.b32 %r1, [%r2];", (1, 0, 0), 3, 7)


def who(what="ld"):
  return observers.Access(WHERE, "generic", what)


def random_bytes(rng, *shape):
  return rng.integers(0, 256, shape, dtype=np.uint8)


class SharedMemoryTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 4, 8, 16, 32)
  def test_write_then_read_single_bytes(self, nbytes):
    rng = np.random.default_rng(0)
    shared = memory.SharedMemory(3, 4096)
    expected = shared.data.copy()
    for _ in range(20):
      cta = rng.integers(0, 3, 8)
      addr = rng.permutation(4096 // nbytes)[:8] * nbytes
      data = random_bytes(rng, 8, nbytes)
      shared.write(cta, addr, data)
      for i in range(8):
        for j in range(nbytes):
          expected[cta[i], addr[i] + j] = data[i, j]
    np.testing.assert_array_equal(shared.data, expected)
    cta = rng.integers(0, 3, 50)
    addr = rng.integers(0, 4096 // nbytes, 50) * nbytes
    got = shared.read(cta, addr, nbytes)
    self.assertEqual(got.shape, (50, nbytes))
    for i in range(50):
      np.testing.assert_array_equal(
          got[i], expected[cta[i], addr[i] : addr[i] + nbytes]
      )

  def test_last_of_equal_addresses_wins(self):
    shared = memory.SharedMemory(1, 64)
    shared.write(
        np.zeros(3, int), np.array([8, 8, 8]),
        np.array([[1, 1], [2, 2], [3, 4]], np.uint8),
    )
    np.testing.assert_array_equal(shared.data[0, 8:10], [3, 4])

  def test_smaller_alignment(self):
    rng = np.random.default_rng(1)
    shared = memory.SharedMemory(1, 256)
    data = random_bytes(rng, 2, 8)
    shared.write(np.zeros(2, int), np.array([4, 20]), data, align=4)
    np.testing.assert_array_equal(shared.data[0, 4:12], data[0])
    np.testing.assert_array_equal(
        shared.read(np.zeros(2, int), np.array([4, 20]), 8, align=4), data
    )

  def test_chunks(self):
    rng = np.random.default_rng(2)
    shared = memory.SharedMemory(2, 1024)
    addr = rng.permutation(64)[:12].reshape(3, 4) * 16
    data = random_bytes(rng, 3, 4, 16)
    shared.write_chunks(1, addr, data)
    np.testing.assert_array_equal(shared.read_chunks(1, addr), data)
    self.assertTrue((shared.data[0] == memory.POISON).all())

  def test_fresh_memory_is_nan(self):
    shared = memory.SharedMemory(1, 64)
    self.assertTrue(np.isnan(shared.data.view(np.float32)).all())

  def test_misaligned(self):
    shared = memory.SharedMemory(2, 4096)
    with self.assertRaisesRegex(
        MemoryFault,
        r"ld: misaligned read of 4 bytes of shared memory at 0x12 of CTA 1; the"
        r" address must be a multiple of 4\n  at PTX line 12: `ld.shared.b32"
        r" %r1, \[%r2\];` \(CTA \(1,0,0\), warp 3, lane 7\)",
    ):
      shared.read(np.array([0, 1]), np.array([16, 18]), 4, who())

  def test_out_of_range(self):
    shared = memory.SharedMemory(1, 4096)
    with self.assertRaisesRegex(
        MemoryFault,
        r"st: write of 8 bytes of shared memory at 0x1000 of CTA 0 is outside"
        r" its 4096 bytes",
    ):
      shared.write(0, np.array([4096]), np.zeros((1, 8), np.uint8), who("st"))
    with self.assertRaisesRegex(MemoryFault, "outside its 4096 bytes"):
      shared.read(0, np.array([-8]), 8)

  def test_too_much(self):
    with self.assertRaisesRegex(MemoryFault, "a CTA needs 300000 bytes"):
      memory.SharedMemory(1, 300000)

  def test_mbarrier_words_are_reserved(self):
    shared = memory.SharedMemory(1, 4096)
    shared.reserve(0, 512, True)
    for addr, nbytes in ((512, 8), (516, 4), (512, 16), (496, 32)):
      with self.assertRaisesRegex(MemoryFault, "touches an mbarrier object"):
        shared.read(0, np.array([addr]), nbytes, align=4)
    shared.read(0, np.array([504]), 8)
    shared.reserve(0, 512, False)
    shared.read(0, np.array([512]), 8)


class GlobalMemoryTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(3)
    self.memory = memory.GlobalMemory()
    self.x = random_bytes(self.rng, 1001)
    self.y = random_bytes(self.rng, 4096)
    self.x_at = self.memory.add_buffer("x", self.x)
    self.y_at = self.memory.add_buffer("y", self.y, alignment=4096)

  def test_addresses(self):
    self.assertEqual(self.x_at % 256, 0)
    self.assertEqual(self.y_at % 4096, 0)
    self.assertGreaterEqual(self.x_at, memory.GLOBAL_BASE)
    self.assertGreater(self.y_at, self.x_at + 1001 + 4096)

  @parameterized.parameters(1, 2, 4, 8, 16)
  def test_batches_over_two_buffers(self, nbytes):
    where = self.rng.integers(0, 2, 32)
    offset = self.rng.permutation(1001 // nbytes)[:32] * nbytes
    addr = np.where(where, self.y_at, self.x_at) + offset
    data = random_bytes(self.rng, 32, nbytes)
    expected = [self.x.copy(), self.y.copy()]
    got = self.memory.read(addr, nbytes)
    for i in range(32):
      source = expected[where[i]]
      np.testing.assert_array_equal(
          got[i], source[offset[i] : offset[i] + nbytes]
      )
    self.memory.write(addr, data)
    for i in range(32):
      expected[where[i]][offset[i] : offset[i] + nbytes] = data[i]
    np.testing.assert_array_equal(self.x, expected[0])
    np.testing.assert_array_equal(self.y, expected[1])

  def test_past_the_end(self):
    with self.assertRaisesRegex(
        MemoryFault,
        r"ld: read of 4 bytes of global memory at 0x[0-9a-f]+ is outside every"
        r" buffer; the one below is 'x' at 0x[0-9a-f]+ with 1001 bytes, whose"
        r" end it passes by 3 bytes",
    ):
      self.memory.read(self.x_at + np.array([0, 1000]), 4, who())

  def test_below_everything(self):
    with self.assertRaisesRegex(MemoryFault, "at 0x40 is outside every buffer"):
      self.memory.write(np.array([64]), np.zeros((1, 4), np.uint8))

  def test_misaligned(self):
    with self.assertRaisesRegex(MemoryFault, "must be a multiple of 8"):
      self.memory.read(self.x_at + np.array([4]), 8)

  def test_bad_buffers(self):
    with self.assertRaisesRegex(ValueError, "must be a contiguous 1-D uint8"):
      self.memory.add_buffer("z", np.zeros(4, np.float32))
    data = np.zeros(4, np.uint8)
    data.flags.writeable = False
    with self.assertRaisesRegex(ValueError, "must be writable"):
      self.memory.add_buffer("z", data)
    with self.assertRaisesRegex(ValueError, "power of two, got 300"):
      self.memory.add_buffer("z", np.zeros(4, np.uint8), alignment=300)


class AddressSpacesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(4)
    self.data = random_bytes(self.rng, 512)
    self.global_memory = memory.GlobalMemory()
    self.at = self.global_memory.add_buffer("x", self.data)
    self.shared = memory.SharedMemory(4, 2048)
    self.shared.data[:] = random_bytes(self.rng, 4, 2048)
    self.params = random_bytes(self.rng, 64)
    self.spaces = memory.AddressSpaces(
        self.global_memory, self.shared,
        memory.ParamMemory(self.params.tobytes()), 2,
    )

  def test_generic_batch_over_all_memories(self):
    cta = np.array([0, 1, 2, 3, 2])
    addr = np.array([
        self.at + 8,
        memory.SHARED_BASE + 16,
        memory.PARAM_BASE + 24,
        memory.SHARED_BASE + int(self.spaces.mapa(32, 0)),
        memory.SHARED_BASE + int(self.spaces.mapa(40, 1)),
    ])
    got = self.spaces.read("generic", cta, addr, 8)
    np.testing.assert_array_equal(got[0], self.data[8:16])
    np.testing.assert_array_equal(got[1], self.shared.data[1, 16:24])
    np.testing.assert_array_equal(got[2], self.params[24:32])
    np.testing.assert_array_equal(got[3], self.shared.data[2, 32:40])
    np.testing.assert_array_equal(got[4], self.shared.data[3, 40:48])

  def test_cluster_write(self):
    data = random_bytes(self.rng, 2, 4)
    self.spaces.write(
        "shared::cluster", np.array([2, 3]),
        self.spaces.mapa(np.array([64, 128]), np.array([1, 0])), data,
    )
    np.testing.assert_array_equal(self.shared.data[3, 64:68], data[0])
    np.testing.assert_array_equal(self.shared.data[2, 128:132], data[1])

  def test_unmapped_cluster_address_is_the_own_cta(self):
    got = self.spaces.read("shared::cluster", np.array([1]), [8], 8)
    np.testing.assert_array_equal(got[0], self.shared.data[1, 8:16])

  def test_rank_outside_cluster(self):
    with self.assertRaisesRegex(
        MemoryFault, "no .shared::cluster address of this cluster of 2"
    ):
      self.spaces.read("shared::cluster", 0, self.spaces.mapa([8], [2]), 8)
    with self.assertRaisesRegex(MemoryFault, "rank 5 is outside the cluster"):
      self.spaces.member(0, 5)

  def test_pair(self):
    self.assertEqual(self.spaces.pair(3), (2, 3))
    self.assertEqual(self.spaces.pair(0), (0, 1))
    alone = memory.AddressSpaces(self.global_memory, self.shared)
    with self.assertRaisesRegex(MemoryFault, "needs a CTA pair"):
      alone.pair(0)

  def test_parameters(self):
    got = self.spaces.read("param", 0, np.array([8, 16]), 4)
    np.testing.assert_array_equal(got[1], self.params[16:20])
    with self.assertRaisesRegex(MemoryFault, "out of range read of 8 bytes"):
      self.spaces.read("param", 0, [64], 8)
    with self.assertRaisesRegex(MemoryFault, "which is read only"):
      self.spaces.write("param", 0, [0], np.zeros((1, 4), np.uint8))

  def test_unknown_space(self):
    with self.assertRaisesRegex(UnsupportedPtxError, "state space 'const'"):
      self.spaces.read("const", 0, [0], 4)

  def test_message_names_the_right_lane(self):
    access = observers.Access(
        lambda i: Where(1, "ld", (0, 0, 0), 0, i), "generic", "ld"
    )
    addr = np.array([self.at, memory.SHARED_BASE + 4096, self.at])
    with self.assertRaisesRegex(MemoryFault, "lane 1"):
      self.spaces.read("generic", 0, addr, 4, access)


class UnwrittenReadsTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 4, 8, 16, 64)
  def test_shared(self, nbytes):
    checker = observers.UnwrittenReads()
    shared = memory.SharedMemory(2, 4096, [checker])
    data = np.zeros((1, nbytes), np.uint8)
    shared.write(1, np.array([128]), data)
    shared.read(1, np.array([128]), nbytes)
    with self.assertRaisesRegex(
        MemoryFault,
        f"ld: read of {nbytes} bytes of shared memory at"
        f" {128 + nbytes:#x} of CTA 1 that were never written",
    ):
      shared.read(1, np.array([128, 128 + nbytes]), nbytes, who())
    with self.assertRaisesRegex(MemoryFault, "never written"):
      shared.read(0, np.array([128]), nbytes)

  def test_partly_written(self):
    checker = observers.UnwrittenReads()
    shared = memory.SharedMemory(1, 256, [checker])
    shared.write(0, np.array([0, 1, 2]), np.zeros((3, 1), np.uint8))
    with self.assertRaisesRegex(MemoryFault, "never written"):
      shared.read(0, np.array([0]), 4)
    shared.write(0, np.array([3]), np.zeros((1, 1), np.uint8))
    shared.read(0, np.array([0]), 4)

  def test_vector_loads_may_read_more_than_they_need(self):
    checker = observers.UnwrittenReads()
    shared = memory.SharedMemory(1, 256, [checker])
    shared.write(0, np.array([16, 20, 24]), np.zeros((3, 4), np.uint8))

    def vector(threads):
      access = observers.Access(WHERE, threads=np.arange(threads))
      access.words = 4
      return access

    access = vector(1)
    shared.read(0, np.array([16]), 16, access)
    # The load marks the registers of these words as unwritten.
    self.assertEqual(access.unwritten.tolist(), [[False, False, False, True]])
    with self.assertRaisesRegex(MemoryFault, "at 0x20 of CTA 0"):
      shared.read(0, np.array([16, 32]), 16, vector(2))
    with self.assertRaisesRegex(MemoryFault, "never written"):
      shared.read(0, np.array([16]), 16, who())
    access = vector(2)
    shared.read(0, np.array([16, 16]), 8, access)
    self.assertIsNone(access.unwritten)

  def test_global_output(self):
    checker = observers.UnwrittenReads()
    globals_ = memory.GlobalMemory([checker])
    a = globals_.add_buffer("in", np.zeros(64, np.uint8))
    b = globals_.add_buffer("out", np.zeros(64, np.uint8), initialized=False)
    globals_.read(a + np.arange(0, 64, 4), 4)
    globals_.write(np.array([b + 8]), np.zeros((1, 8), np.uint8))
    globals_.read(np.array([a, b + 12]), 4)
    with self.assertRaisesRegex(
        MemoryFault, "at offset 16 of global buffer 'out' that were never"
    ):
      globals_.read(np.array([a, b + 16]), 4)
    # The same memory attached once more remembers.
    globals_.attach([checker])
    globals_.read(np.array([b + 12]), 4)

  def test_tensor_memory(self):
    checker = observers.UnwrittenReads()
    tensor = tmem.TensorMemory(1, [checker])
    tensor.write_block(0, slice(0, 128), 4, np.zeros((128, 4), np.uint32))
    tensor.read_block(0, slice(32, 64), 5, 3)
    with self.assertRaisesRegex(
        TmemFault, "read of tensor memory lane 32 column 8 of CTA 0"
    ):
      tensor.read_block(0, slice(32, 64), 5, 4)


class TmemRulesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.rules = observers.TmemRules()
    self.tensor = tmem.TensorMemory(2, [self.rules])

  def test_outside_allocation(self):
    self.assertEqual(self.tensor.allocate(1, 64), 0)
    self.tensor.write_block(
        1, slice(0, 128), 60, np.zeros((128, 4), np.uint32)
    )
    with self.assertRaisesRegex(
        TmemFault,
        "write of tensor memory column 64 of CTA 1, which is not allocated;"
        r" allocated columns: 0\.\.63",
    ):
      self.tensor.write_block(
          1, slice(0, 128), 61, np.zeros((128, 4), np.uint32)
      )
    with self.assertRaisesRegex(TmemFault, "allocated columns: none"):
      self.tensor.read_block(0, slice(0, 128), 0, 1)

  def test_left_at_exit(self):
    self.tensor.allocate(1, 64)
    with self.assertRaisesRegex(
        TmemFault, r"still allocated at exit \(CTA 1: columns 0\.\.63\)"
    ):
      self.rules.on_exit(None)
    self.tensor.deallocate(1, 0, 64)
    self.rules.on_exit(None)


class ObserverTest(absltest.TestCase):

  def test_listeners_are_those_that_override(self):
    class Mine(observers.Observer):

      def on_read(self, space, cta, addr, nbytes, who):
        pass

    mine = Mine()
    found = observers.listeners([observers.Observer(), mine], "on_read")
    self.assertEqual(found, (mine.on_read,))
    self.assertEqual(observers.listeners([mine], "on_write"), ())


if __name__ == "__main__":
  absltest.main()
