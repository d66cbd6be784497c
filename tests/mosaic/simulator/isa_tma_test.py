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
"""Tests of isa/tma.py."""

import numpy as np
from absl.testing import absltest, parameterized
from device_snippets import BASE, garbage, run, wait

from jax.experimental.mosaic.gpu.simulator import (
    asynchrony,
    observers,
    tma,
)
from jax.experimental.mosaic.gpu.simulator.errors import (
    BarrierFault,
    DeadlockError,
    MemoryFault,
    SimulationError,
    UnsupportedPtxError,
)

INIT = """
setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {};\n"
DST = BASE + 1024


def source(seed=0, shape=(40, 64), dtype=np.float16):
  rng = np.random.default_rng(seed)
  return rng.integers(-99, 99, shape).astype(dtype)


def tensor_map(array, window, swizzle=16, code=5, name="x"):
  """A function that maps an array of a run."""

  def make(globals_):
    address = globals_.add_buffer(name, array.reshape(-1).view(np.uint8))
    strides = [s // array.itemsize for s in array.strides]
    return [
        tma.TensorMap.from_runtime_args(
            address, code, array.shape, strides, swizzle, window
        )
    ]

  return make


def words(result, cta, at, shape, dtype=np.float16):
  size = int(np.prod(shape)) * np.dtype(dtype).itemsize
  return result.shared[cta, at : at + size].view(dtype).reshape(shape)


class LoadTest(parameterized.TestCase):

  @parameterized.product(
      form=(
          "shared::cta.global.mbarrier::complete_tx::bytes",
          "shared::cluster.global.mbarrier::complete_tx::bytes",
          "shared::cta.global.tile.mbarrier::complete_tx::bytes",
          "shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint",
          "shared::cta.global.tile.mbarrier::complete_tx::bytes.cta_group::1",
      ),
      order=("eager", "lazy"),
  )
  def test_forms(self, form, order):
    x = source()
    hint = ", %rd9" if "hint" in form else ""
    result = run(
        INIT + EXPECT.format(8 * 32 * 2) + f"""
        mov.b64 %rd9, 1234;
        add.s32 %r3, %r1, 1024;
        mov.b32 %r4, 16;
        mov.b32 %r5, -2;
        @%p1 cp.async.bulk.tensor.2d.{form}
            [%r3], [%rd1, {{%r4, %r5}}], [%r1]{hint};
        {wait("%r1")}
        """,
        maps=tensor_map(x, (8, 32)),
        fill=garbage(1),
        order=order,
    )
    want = np.zeros((8, 32), np.float16)
    want[2:] = x[:6, 16:48]
    np.testing.assert_array_equal(words(result, 0, DST, (8, 32)), want)

  @parameterized.parameters(1, 2, 3, 4, 5)
  def test_ranks(self, rank):
    shape = (3, 2, 4, 5, 16)[-rank:]
    window = (2, 1, 2, 3, 8)[-rank:]
    start = (1, 1, 2, 1, 8)[-rank:]
    x = source(rank, shape, np.float32)
    size = 4 * int(np.prod(window))
    coordinates = ", ".join(map(str, reversed(start)))
    result = run(
        INIT + EXPECT.format(size) + f"""
        @%p1 cp.async.bulk.tensor.{rank}d.shared::cta.global.
            mbarrier::complete_tx::bytes
            [%r1+1024], [%rd1, {{{coordinates}}}], [%r1];
        {wait("%r1")}
        """,
        maps=tensor_map(x, window, code=6),
        fill=garbage(1),
    )
    part = x[tuple(slice(s, s + w) for s, w in zip(start, window))]
    np.testing.assert_array_equal(
        words(result, 0, DST, window, np.float32), part
    )

  def test_swizzle(self):
    x = source()
    result = run(
        INIT + EXPECT.format(16 * 128) + f"""
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.
            mbarrier::complete_tx::bytes
            [%r1+1152], [%rd1, {{0, 0}}], [%r1];
        {wait("%r1")}
        """,
        maps=tensor_map(x, (16, 64), 128),
    )
    data = result.shared[0].view(np.float16)
    for row in range(16):
      for column in range(64):
        at = BASE + 1152 + row * 128 + column * 2
        at ^= (at // 128 % 8) * 16
        self.assertEqual(data[at // 2], x[row, column])

  def test_second_map(self):
    x, y = source(1), source(2)

    def maps(globals_):
      return (
          tensor_map(x, (8, 32))(globals_)
          + tensor_map(y, (8, 64), name="y")(globals_)
      )

    result = run(
        INIT + EXPECT.format(1024) + f"""
        add.s64 %rd3, %rd1, 128;
        prefetch.tensormap [%rd3];
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.
            mbarrier::complete_tx::bytes
            [%r1+1024], [%rd3, {{0, 8}}], [%r1];
        {wait("%r1")}
        """,
        maps=maps,
    )
    np.testing.assert_array_equal(words(result, 0, DST, (8, 64)), y[8:16])

  def test_multicast(self):
    x = source()
    result = run(
        INIT + """
        setp.eq.u32 %p2, %r2, 1;
        and.pred %p2, %p1, %p2;
        setp.ne.u32 %p3, %r2, 2;
        and.pred %p3, %p1, %p3;
        @%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
        mov.b16 %h1, 11;
        @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.
            mbarrier::complete_tx::bytes.multicast::cluster
            [%r1+1024], [%rd1, {0, 0}], [%r1], %h1;
        setp.ne.u32 %p4, %r2, 2;
        @!%p4 bra END;
        """ + wait("%r1") + "\nEND:\n",
        cluster=4,
        maps=tensor_map(x, (8, 32)),
        fill=garbage(3),
    )
    before = np.random.default_rng(3).integers(0, 256, result.shared.shape)
    for cta in range(4):
      if cta == 2:
        np.testing.assert_array_equal(
            result.shared[cta, 1024 + 64 :], before[cta, 1024 + 64 :]
        )
      else:
        np.testing.assert_array_equal(
            words(result, cta, DST, (8, 32)), x[:8, :32]
        )

  @parameterized.parameters("eager", "lazy")
  def test_pair_with_leader(self, order):
    # Each CTA loads its rows; both count on the barrier of the even CTA.
    x = source()
    result = run(
        INIT + """
        setp.eq.u32 %p2, %r2, 0;
        and.pred %p2, %p1, %p2;
        @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;
        mapa.shared::cluster.u32 %r3, %r1, 0;
        shl.b32 %r4, %r2, 3;
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.
            mbarrier::complete_tx::bytes.cta_group::2
            [%r1+1024], [%rd1, {0, %r4}], [%r3];
        setp.ne.u32 %p4, %r2, 0;
        @%p4 bra END;
        """ + wait("%r1") + "\nEND:\n",
        cluster=2,
        maps=tensor_map(x, (8, 32)),
        order=order,
    )
    for cta in range(2):
      np.testing.assert_array_equal(
          words(result, cta, DST, (8, 32)), x[8 * cta : 8 * cta + 8, :32]
      )

  def test_pair_with_multicast(self):
    # CTA 0 loads for all four; the even CTA of each pair counts both tiles.
    x = source()
    result = run(
        INIT + """
        and.b32 %r3, %r2, 1;
        setp.eq.u32 %p2, %r3, 0;
        and.pred %p3, %p1, %p2;
        @%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;
        setp.eq.u32 %p4, %r2, 0;
        and.pred %p4, %p1, %p4;
        mov.b16 %h1, 15;
        @%p4 cp.async.bulk.tensor.2d.shared::cluster.global.tile.
            mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2
            [%r1+1024], [%rd1, {0, 0}], [%r1], %h1;
        @!%p2 bra END;
        """ + wait("%r1") + "\nEND:\n",
        cluster=4,
        maps=tensor_map(x, (8, 32)),
    )
    for cta in range(4):
      np.testing.assert_array_equal(
          words(result, cta, DST, (8, 32)), x[:8, :32]
      )
      phase = result.machine.mbarriers.get(cta, BASE).phase
      self.assertEqual(phase, 1 - cta % 2)

  def test_gather4(self):
    x = source(0, (50, 64))
    result = run(
        INIT + EXPECT.format(4 * 64) + f"""
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.
            mbarrier::complete_tx::bytes
            [%r1+1024], [%rd1, {{32, 7, 49, 3, 7}}], [%r1];
        {wait("%r1")}
        """,
        maps=tensor_map(x, (1, 32)),
    )
    np.testing.assert_array_equal(
        words(result, 0, DST, (4, 32)), x[[7, 49, 3, 7], 32:]
    )

  def test_linear(self):
    x = source()

    def maps(globals_):
      return tensor_map(x, (8, 32))(globals_)

    # The address of x: the base in its tensor map, bytes 8 to 16.
    for order in ("eager", "lazy"):
      result = run(
          INIT + EXPECT.format(96) + f"""
          ld.param.b64 %rd3, [kernel_param_1+8];
          @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes
              [%r1+1040], [%rd3+32], 96, [%r1];
          {wait("%r1")}
          """,
          maps=maps,
          order=order,
      )
      np.testing.assert_array_equal(
          words(result, 0, BASE + 1040, (48,)), x.reshape(-1)[16:64]
      )

  def test_between_ctas(self):
    result = run(
        INIT + """
        setp.eq.u32 %p2, %r2, 1;
        @%p2 bra TARGET;
        st.shared.b32 [%r1+512], 4660;
        mapa.shared::cluster.u32 %r3, %r1, 1;
        @%p1 cp.async.bulk.shared::cluster.shared::cta.
            mbarrier::complete_tx::bytes
            [%r3+1024], [%r1+512], 16, [%r3];
        bra END;
        TARGET:
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
        """ + wait("%r1") + "\nEND:\n",
        cluster=2,
    )
    self.assertEqual(words(result, 1, DST, (1,), np.uint32)[0], 4660)

  @parameterized.parameters(
      ("4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes [%r1],"
       " [%rd1, {0, 0, 0, 0}], [%r1], {%h1, %h2}", r"expected \.im2col"),
      ("4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1],"
       " [%rd1, {0, 0, 0, 0}], [%r1], {%h1}", "but two, got 1 offsets"),
      ("2d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1],"
       " [%rd1, {0, 0}], [%r1], {}", "an offset for each dimension but two"),
      ("2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1],"
       " [%rd1, {0, 0, 0}], [%r1]", "expected 2 coordinates, got 3"),
      ("2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1],"
       " [%rd1, {0, 0}], [%r1]", r"expected \.2d and 5 coordinates, got 2"),
      ("2d.shared::cluster.global.mbarrier::complete_tx::bytes"
       ".multicast::cluster [%r1], [%rd1, {0, 0}], [%r1]",
       "expected 1 operands .* after the mbarrier, got 0"),
  )
  def test_refused_when_decoded(self, text, message):
    with self.assertRaisesRegex(UnsupportedPtxError, message):
      run("cp.async.bulk.tensor." + text + ";")

  def test_rank_mismatch(self):
    with self.assertRaisesRegex(
        MemoryFault, r"\.3d with a tensor map of rank 2"
    ):
      run(
          INIT + "@%p1 cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::"
          "complete_tx::bytes [%r1+1024], [%rd1, {0, 0, 0}], [%r1];",
          maps=tensor_map(source(), (8, 32)),
      )

  @parameterized.product(multicast=(False, True), order=("eager", "lazy"))
  def test_im2col(self, multicast, order):
    # 2 images of 3x5 pixels, of which windows of 2x2 take the lower right one.
    x = source(3, (2, 3, 5, 32))

    def make(globals_):
      address = globals_.add_buffer("x", x.reshape(-1).view(np.uint8))
      strides = [s // 2 for s in x.strides]
      return [
          tma.TensorMap.from_runtime_im2col_args(
              address, 5, x.shape, strides, 16, (0, 0), (-1, -1), 16, 12, (1, 1)
          )
      ]

    cast, mask = (".multicast::cluster", ", %h3") if multicast else ("", "")
    result = run(
        INIT + EXPECT.format(12 * 16 * 2) + f"""
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        setp.eq.and.u32 %p1, %r2, 0, %p1;
        mov.b16 %h1, 1;
        mov.b16 %h2, 1;
        mov.b16 %h3, 3;
        @%p1 cp.async.bulk.tensor.4d.shared::cluster.global.im2col.
            mbarrier::complete_tx::bytes{cast}
            [%r1+1024], [%rd1, {{16, 1, 1, 0}}], [%r1], {{%h1, %h2}}{mask};
        setp.eq.u32 %p2, %r2, 0;
        @!%p2 bra {"OTHER" if multicast else "END"};
        OTHER:
        {wait("%r1")}
        END:
        """,
        maps=make, fill=garbage(1), cluster=2, order=order,
    )
    # From window (1, 1) of the first image on: 3 + 8 windows, and 1 past them.
    want = np.concatenate([
        x[0, 1:, 1:, 16:].reshape(8, 16)[5:], x[1, 1:, 1:, 16:].reshape(8, 16),
        np.zeros((1, 16), np.float16),
    ])
    for cta in range(2 if multicast else 1):
      np.testing.assert_array_equal(words(result, cta, DST, (12, 16)), want)

  @parameterized.parameters(
      (".im2col", "[%r1], {%h1}", "a tensor map in im2col mode, got the other"),
  )
  def test_wrong_mode(self, mode, rest, message):
    with self.assertRaisesRegex(MemoryFault, message):
      run(
          INIT + "mov.b16 %h1, 0;\n@%p1 cp.async.bulk.tensor.3d.shared::cta"
          f".global{mode}.mbarrier::complete_tx::bytes"
          f" [%r1+1024], [%rd1, {{0, 0, 0}}], {rest};",
          maps=tensor_map(source(0, (4, 8, 32)), (1, 8, 32)),
      )

  @parameterized.parameters(
      ("%rd0", "there is no tensor map at this address"),
      ("%rd3", "must be a multiple of 64"),
  )
  def test_not_a_map(self, register, message):
    with self.assertRaisesRegex(MemoryFault, message):
      run(
          INIT + "add.s64 %rd3, %rd1, 16;\n"
          "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::"
          f"complete_tx::bytes [%r1+1024], [{register}, {{0, 0}}], [%r1];",
      )

  def test_barrier_of_another_cta(self):
    with self.assertRaisesRegex(
        SimulationError, "the mbarrier must be in the CTA of the destination"
    ):
      run(
          INIT + "mapa.shared::cluster.u32 %r3, %r1, 1;\n"
          "setp.eq.u32 %p2, %r2, 0;\nand.pred %p2, %p2, %p1;\n"
          "@%p2 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::"
          "complete_tx::bytes [%r1+1024], [%rd1, {0, 0}], [%r3];",
          maps=tensor_map(source(), (8, 32)),
          cluster=2,
      )

  def test_misaligned_linear_copy(self):
    with self.assertRaisesRegex(
        MemoryFault, "size 24 and the addresses .* must be multiples of 16"
    ):
      run(
          INIT + "@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::"
          "bytes [%r1+1024], [%rd0], 24, [%r1];"
      )

  def test_empty_mask(self):
    with self.assertRaisesRegex(SimulationError, "the multicast mask is 0"):
      run(
          INIT + "mov.b16 %h1, 0;\n@%p1 cp.async.bulk.tensor.2d.shared::cluster"
          ".global.mbarrier::complete_tx::bytes.multicast::cluster [%r1+1024],"
          " [%rd1, {0, 0}], [%r1], %h1;",
          maps=tensor_map(source(), (8, 32)),
      )

  def test_forgotten_expect(self):
    with self.assertRaisesRegex(DeadlockError, "pending 1 of 1, tx -512"):
      run(
          INIT + "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::"
          "complete_tx::bytes [%r1+1024], [%rd1, {0, 0}], [%r1];\n"
          + wait("%r1"),
          maps=tensor_map(source(), (8, 32)),
      )

  def test_unknown_barrier(self):
    with self.assertRaisesRegex(
        BarrierFault,
        r"no mbarrier was initialised at 0x408.*\n  at PTX line",
    ):
      run(
          INIT + "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::"
          "complete_tx::bytes [%r1+1024], [%rd1, {0, 0}], [%r1+8];",
          maps=tensor_map(source(), (8, 32)),
      )


class StoreTest(parameterized.TestCase):

  FILL = """
      mul.wide.u32 %rd3, %r0, 16;
      add.s64 %rd3, %rd2, %rd3;
      shl.b32 %r3, %r0, 2;
      add.s32 %r4, %r3, 1;
      add.s32 %r5, %r3, 2;
      add.s32 %r6, %r3, 3;
      st.shared.v4.b32 [%rd3+1024], {%r3, %r4, %r5, %r6};
      bar.sync 0;
      setp.eq.u32 %p1, %r0, 0;
      """

  @parameterized.product(
      wait_form=("wait_group 0", "wait_group.read 0"),
      order=("eager", "lazy"),
      mode=("", ".tile"),
  )
  def test_store(self, wait_form, order, mode):
    x = source(0, (9, 40), np.int32)
    before = x.copy()
    statistics = observers.Statistics()
    run(
        self.FILL + f"""
        fence.proxy.async.shared::cta;
        @%p1 cp.async.bulk.tensor.2d.global.shared::cta{mode}.bulk_group
            [%rd1, {{8, 6}}], [%r1+1024];
        cp.async.bulk.commit_group;
        cp.async.bulk.{wait_form};
        """,
        maps=tensor_map(x, (8, 16), code=9),
        order=order,
        checkers=[statistics],
    )
    before[6:9, 8:24] = np.arange(128).reshape(8, 16)[:3]
    np.testing.assert_array_equal(x, before)
    self.assertEqual(statistics.store_bytes, 512)

  @parameterized.parameters(("add", "eager"), ("max", "lazy"))
  def test_reduce(self, operation, order):
    x = source(0, (9, 40), np.int32)
    before = x.copy()
    run(
        self.FILL + f"""
        @%p1 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.
            tile.bulk_group
            [%rd1, {{8, 1}}], [%r1+1024];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;
        """,
        maps=tensor_map(x, (8, 16), code=9),
        order=order,
    )
    tile = np.arange(128).reshape(8, 16)
    part = before[1:9, 8:24]
    part[:] = part + tile if operation == "add" else np.maximum(part, tile)
    np.testing.assert_array_equal(x, before)

  def test_scatter4(self):
    x = source(0, (9, 40), np.int32)
    before = x.copy()
    run(
        self.FILL + """
        @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.
            bulk_group
            [%rd1, {8, 5, 0, 8, 3}], [%r1+1024];
        """,
        maps=tensor_map(x, (1, 16), code=9),
    )
    before[[5, 0, 8, 3], 8:24] = np.arange(64).reshape(4, 16)
    np.testing.assert_array_equal(x, before)

  @parameterized.parameters("eager", "lazy")
  def test_linear(self, order):
    result = run(
        self.FILL + """
        @%p1 cp.async.bulk.global.shared::cta.bulk_group
            [%rd0+16], [%r1+1024], 64;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0;
        """,
        order=order,
    )
    np.testing.assert_array_equal(result.out[4:20], np.arange(16))
    self.assertEqual(result.out[20], 0xDEADBEEF)

  def test_source_may_change_only_after_the_wait(self):
    # Without the wait the late copy takes the new contents.
    text = self.FILL + """
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1+1024], 16;
        @%p1 cp.async.bulk.commit_group;
        WAIT;
        @%p1 st.shared.b32 [%r1+1024], 55;
        """
    good = "@%p1 cp.async.bulk.wait_group.read 0;"
    self.assertEqual(run(text.replace("WAIT;", good), order="lazy").out[0], 0)
    self.assertEqual(run(text.replace("WAIT;", ""), order="lazy").out[0], 55)
    self.assertEqual(run(text.replace("WAIT;", ""), order="eager").out[0], 0)

  def test_wait_allows_the_latest_groups(self):
    text = self.FILL + """
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1+1024], 16;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group
            [%rd0+16], [%r1+1040], 16;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 1;
        @%p1 ld.global.b32 %r7, [%rd0+12];
        @%p1 ld.global.b32 %r8, [%rd0+28];
        @%p1 st.global.v2.b32 [%rd0+64], {%r7, %r8};
        """
    class Oldest(asynchrony.Lazy):

      def choose(self, ready):
        return ready[0]

    out = run(text, order=Oldest()).out
    self.assertEqual(out[16:18].tolist(), [3, 0xDEADBEEF])
    self.assertEqual(out[7], 7)
    self.assertEqual(run(text, order="lazy").out[16], 3)

  def test_source_of_another_cta(self):
    with self.assertRaisesRegex(
        SimulationError, "a store of an object in another CTA"
    ):
      run(
          "mapa.shared::cluster.u32 %r3, %r1, 1;\n"
          "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
          " [%rd1, {0, 0}], [%r3+1024];",
          cluster=2,
          maps=tensor_map(source(), (8, 32)),
      )

  def test_unwritten_source(self):
    with self.assertRaisesRegex(
        MemoryFault, "store: read of 16 bytes of shared memory at 0x800"
    ):
      run(
          "setp.eq.u32 %p1, %r0, 0;\n@%p1 cp.async.bulk.tensor.2d.global"
          ".shared::cta.bulk_group [%rd1, {0, 0}], [%r1+1024];",
          maps=tensor_map(source(), (8, 32)),
          checkers=[observers.UnwrittenReads()],
      )


class NothingTest(parameterized.TestCase):

  @parameterized.parameters(
      "prefetch.tensormap [%rd1];",
      "prefetch.param.tensormap [%rd1];",
      "prefetch.global.L2 [%rd0];",
      "prefetchu.L1 [%rd0];",
      "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {0, 0}];",
      "cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {0, 0}];",
      "cp.async.bulk.prefetch.L2.global [%rd0], 64;",
      "fence.proxy.async;",
      "fence.proxy.async.global;",
      "fence.proxy.async.shared::cta;",
      "fence.proxy.async.shared::cluster;",
      "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster"
      ".cluster;",
      "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
      "fence.proxy.alias;",
      "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;",
      "fence.proxy.tensormap::generic.release.sys;",
  )
  def test_no_effect(self, text):
    x = source()
    result = run(text, maps=tensor_map(x, (8, 32)), fill=garbage(2))
    rng = np.random.default_rng(2)
    np.testing.assert_array_equal(
        result.shared, rng.integers(0, 256, result.shared.shape)
    )


if __name__ == "__main__":
  absltest.main()
