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
"""Tests of isa/tcgen05.py."""

import numpy as np
from absl.testing import absltest, parameterized
from device_snippets import BASE, garbage, run, vector, wait

from jax.experimental.mosaic.gpu.simulator import observers, tma
from jax.experimental.mosaic.gpu.simulator.descriptors import SmemDescriptor
from jax.experimental.mosaic.gpu.simulator.errors import (
    BarrierFault,
    DeadlockError,
    DivergenceError,
    MemoryFault,
    SimulationError,
    TmemFault,
    UnsupportedPtxError,
)

INIT = """
setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"


def wide(value):
  """The decimal text of a 64-bit constant."""
  return str(value)


class AllocationTest(parameterized.TestCase):

  def test_alloc_and_dealloc(self):
    statistics = observers.Statistics()
    result = run(
        f"""
        {ALLOC} [%r1], 256;
        {ALLOC} [%r1+4], 32;
        tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
        ld.shared.v2.b32 {{%r3, %r4}}, [%r1];
        st.global.v2.b32 [%rd0], {{%r3, %r4}};
        {DEALLOC} %r3, 256;
        {DEALLOC} %r4, 32;
        """,
        checkers=[observers.TmemRules(), statistics],
    )
    self.assertEqual(result.out[:2].tolist(), [0, 256])
    self.assertEqual(
        statistics.tmem_allocations, [(0, 0, 256), (0, 256, 32)]
    )

  def test_alloc_waits_for_dealloc(self):
    result = run(
        f"""
        setp.ge.u32 %p2, %r0, 32;
        @%p2 bra SECOND;
        {ALLOC} [%r1], 512;
        bar.sync 0;
        bar.sync 1, 32;
        {DEALLOC} 0, 512;
        bra END;
        SECOND:
        bar.sync 0;
        {ALLOC} [%r1+4], 64;
        ld.shared.b32 %r3, [%r1+4];
        st.global.b32 [%rd0], %r3;
        {DEALLOC} %r3, 64;
        END:
        """,
        threads=64,
        checkers=[observers.TmemRules()],
    )
    self.assertEqual(result.out[0], 0)

  def test_alloc_that_never_fits(self):
    with self.assertRaisesRegex(
        DeadlockError,
        r"waits for 32 free columns of tensor memory of CTA 0 \(allocated"
        r" columns: 0\.\.511\)",
    ):
      run(f"{ALLOC} [%r1], 512;\n{ALLOC} [%r1+4], 32;")

  def test_pair(self):
    result = run(
        """
        tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 128;
        tcgen05.alloc.cta_group::2.sync.aligned.b32 [%rd5], 64;
        tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        ld.shared.b32 %r3, [%r1];
        ld.shared.b32 %r4, [%r1+8];
        mul.wide.u32 %rd6, %r2, 8;
        add.s64 %rd6, %rd0, %rd6;
        st.global.v2.b32 [%rd6], {%r3, %r4};
        tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r3, 128;
        tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 64;
        """.replace(
            "tcgen05.alloc.cta_group::2.sync.aligned.b32",
            "cvta.shared.u64 %rd5, %rd2;\nadd.s64 %rd5, %rd5, 8;\n"
            "tcgen05.alloc.cta_group::2.sync.aligned.b32",
        ),
        cluster=2,
        checkers=[observers.TmemRules()],
    )
    self.assertEqual(result.out[:4].tolist(), [0, 128, 0, 128])

  def test_pair_needs_a_cluster(self):
    with self.assertRaisesRegex(MemoryFault, "cta_group::2 needs a CTA pair"):
      run("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 32;")

  def test_left_allocated(self):
    with self.assertRaisesRegex(TmemFault, r"CTA 0: columns 0\.\.63"):
      run(f"{ALLOC} [%r1], 64;", checkers=[observers.TmemRules()])

  def test_wrong_dealloc(self):
    with self.assertRaisesRegex(
        TmemFault,
        r"dealloc of 32 columns at 0x0 is no allocation of CTA 0; allocated: 64"
        r" at 0\n  at PTX line \d+: `tcgen05.dealloc",
    ):
      run(f"{ALLOC} [%r1], 64;\n{DEALLOC} 0, 32;")

  def test_alloc_after_relinquish(self):
    with self.assertRaisesRegex(TmemFault, "has given up its permit"):
      run(
          "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
          f"{ALLOC} [%r1], 64;"
      )

  def test_part_of_a_warp(self):
    with self.assertRaises(DivergenceError):
      run(f"setp.lt.u32 %p1, %r0, 5;\n@%p1 {ALLOC} [%r1], 64;")

  def test_mixed_groups(self):
    with self.assertRaisesRegex(
        TmemFault, "cta_group::2 after cta_group::1 in CTA 0"
    ):
      run(
          f"{ALLOC} [%r1], 64;\n"
          "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;"
      )


def place(shape, t, q, split):
  match shape:
    case "32x32b":
      return t, q
    case "16x64b":
      return t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * q
    case "16x128b":
      return t // 4 + 8 * (q % 2), t % 4 + 4 * (q // 2)
    case "16x256b":
      return t // 4 + 8 * (q // 2 % 2), 2 * (t % 4) + q % 2 + 8 * (q // 4)
  return t % 16, q if t < 16 else split + q


SHAPES = (
    ("32x32b", 1, 1), ("32x32b", 8, 8), ("16x64b", 4, 4), ("16x128b", 2, 4),
    ("16x256b", 1, 4), ("16x256b", 8, 32), ("16x32bx2", 4, 4),
)


class TransferTest(parameterized.TestCase):

  @parameterized.product(shape=SHAPES, pack=(False, True))
  def test_load(self, shape, pack):
    name, repeat, count = shape
    split = ", 16" if name == "16x32bx2" else ""
    lane = 0 if name == "32x32b" else 16
    column = 40
    suffix = ".pack::16b" if pack else ""
    stores = "\n".join(
        f"st.global.b32 [%rd6+{4 * q}], %r{10 + q};" for q in range(count)
    )
    result = run(
        f"""
        tcgen05.ld.sync.aligned.{name}.x{repeat}{suffix}.b32
            {vector(10, count)}, [{(lane << 16) + column}]{split};
        tcgen05.wait::ld.sync.aligned;
        mul.wide.u32 %rd6, %r0, {4 * count};
        add.s64 %rd6, %rd0, %rd6;
        {stores}
        """,
        threads=256,
        fill=garbage(1),
        out_words=256 * count,
    )
    got = result.out.reshape(256, count)
    for thread in range(256):
      base = 32 * (thread // 32 % 4) + lane
      for q in range(count):
        row, offset = place(name, thread % 32, q, 16)
        cells = result.tmem[0, base + row]
        if pack:
          at = column + 2 * offset
          want = int(cells[at]) & 0xFFFF | (int(cells[at + 1]) & 0xFFFF) << 16
        else:
          want = cells[column + offset]
        self.assertEqual(got[thread, q], want)

  @parameterized.product(
      shape=SHAPES, unpack=(False, True), order=("eager", "lazy")
  )
  def test_store(self, shape, unpack, order):
    name, repeat, count = shape
    split = "16, " if name == "16x32bx2" else ""
    lane = 0 if name == "32x32b" else 16
    column = 40
    suffix = ".unpack::16b" if unpack else ""
    moves = "\n".join(
        f"mad.lo.s32 %r{10 + q}, %r0, 65793, {q * 7919};" for q in range(count)
    )
    result = run(
        f"""
        {moves}
        tcgen05.st.sync.aligned.{name}.x{repeat}{suffix}.b32
            [{(lane << 16) + column}], {split}{vector(10, count)};
        tcgen05.wait::st.sync.aligned;
        """,
        threads=128,
        fill=garbage(2),
        order=order,
    )
    rng = np.random.default_rng(2)
    rng.integers(0, 256, result.shared.shape)
    want = rng.integers(0, 1 << 32, result.tmem.shape, dtype=np.uint32)
    for thread in range(128):
      base = 32 * (thread // 32) + lane
      for q in range(count):
        value = thread * 65793 + q * 7919
        row, offset = place(name, thread % 32, q, 16)
        if unpack:
          at = column + 2 * offset
          want[0, base + row, at] = value & 0xFFFF | 0xFFFF0000
          want[0, base + row, at + 1] = value >> 16 | 0xFFFF0000
        else:
          want[0, base + row, column + offset] = value
    np.testing.assert_array_equal(result.tmem, want)

  def test_store_waits_when_late(self):
    text = """
        tcgen05.st.sync.aligned.32x32b.x1.b32 [0], %r0;
        WAIT
        tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [0];
        mul.wide.u32 %rd6, %r0, 4;
        add.s64 %rd6, %rd0, %rd6;
        st.global.b32 [%rd6], %r5;
        """
    good = run(
        text.replace("WAIT", "tcgen05.wait::st.sync.aligned;"), order="lazy"
    )
    np.testing.assert_array_equal(good.out[:32], np.arange(32))
    bad = run(text.replace("WAIT", ""), order="lazy")
    np.testing.assert_array_equal(bad.out[:32], 0xFFFFFFFF)

  @parameterized.parameters(
      ("tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r10, %r11}, [0];",
       "expected 4 registers, got 2"),
      ("tcgen05.st.sync.aligned.32x32b.x4.b32 [0], {%r10, %r11};",
       "expected 4 registers, got 2"),
      ("tcgen05.ld.sync.aligned.16x256b.x64.b32 {%r10, %r11}, [0];",
       r"power of two in 1\.\.32"),
      ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.s32 {%r10, %r11}, %r12, [0];",
       "Not modelled: `tcgen05.ld.red"),
  )
  def test_refused(self, text, message):
    with self.assertRaisesRegex(UnsupportedPtxError, message):
      run(text)

  def test_addresses_differ_in_a_warp(self):
    with self.assertRaisesRegex(
        DivergenceError, "the address of tcgen05.ld must be the same in all"
    ):
      run("tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [%r0];")

  def test_foreign_lanes(self):
    with self.assertRaisesRegex(
        TmemFault, r"warp 0 of its warpgroup reaches only lanes 0\.\.31(.|\n)*"
        r"warp 0"
    ):
      run(
          "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [4194304];", threads=96
      )

  def test_unwritten(self):
    with self.assertRaisesRegex(
        TmemFault, "tcgen05.ld: read of tensor memory lane 0 column 7 of CTA 0"
    ):
      run(
          "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r5, [7];",
          checkers=[observers.UnwrittenReads()],
      )


COPIES = {
    "128x256b": (128, 32, lambda r: [r]),
    "128x128b": (128, 16, lambda r: [r]),
    "4x256b": (4, 32, lambda r: [32 * r]),
    "64x128b.warpx2::02_13": (64, 16, lambda r: [r, r + 64]),
    "64x128b.warpx2::01_23": (
        64, 16, lambda r: [r // 32 * 64 + r % 32, r // 32 * 64 + r % 32 + 32],
    ),
    "32x128b.warpx4": (32, 16, lambda r: [r + 32 * q for q in range(4)]),
}


class CopyTest(parameterized.TestCase):

  def expected(self, tmem, shared, shape, d, column, lane=0):
    rows, nbytes, lanes = COPIES[shape]
    for r in range(rows):
      for c in range(nbytes // 16):
        if d.width:
          a = d.start + r // 8 * d.stride + r % 8 * d.width + 16 * c
          a ^= (a // 128 % 8 & {32: 1, 64: 3, 128: 7}[d.width]) * 16
        else:
          a = d.start + r // 8 * d.stride + r % 8 * 16 + c * d.leading
        cells = shared[a : a + 16].view(np.uint32)
        for to in lanes(r):
          tmem[to + lane, column + 4 * c : column + 4 * c + 4] = cells

  @parameterized.product(
      shape=tuple(COPIES), width=(0, 32, 128), order=("eager", "lazy")
  )
  def test_copy(self, shape, width, order):
    stride = 8 * max(width, 16) * 2
    d = SmemDescriptor(BASE + 1024, 32 * 1024, stride, width)
    lane = 16 if shape == "4x256b" else 0
    result = run(
        INIT + f"""
        mov.b64 %rd5, {d.encode()};
        @%p1 tcgen05.cp.cta_group::1.{shape} [{(lane << 16) + 24}], %rd5;
        @%p1 {COMMIT} [%r1];
        {wait("%r1")}
        """,
        fill=garbage(3),
        shared=128 * 1024,
        order=order,
    )
    rng = np.random.default_rng(3)
    rng.integers(0, 256, result.shared.shape)
    want = rng.integers(0, 1 << 32, result.tmem.shape, dtype=np.uint32)
    self.expected(want[0], result.shared[0], shape, d, 24, lane)
    np.testing.assert_array_equal(result.tmem, want)

  @parameterized.parameters("128x128b", "32x128b.warpx4")
  def test_pair(self, shape):
    d = SmemDescriptor(BASE + 1024, 0, 128, 0)
    result = run(
        f"""
        mov.b64 %rd5, {d.encode()};
        setp.eq.u32 %p1, %r0, 0;
        setp.eq.and.u32 %p1, %r2, 2, %p1;
        @%p1 tcgen05.cp.cta_group::2.{shape} [24], %rd5;
        """,
        fill=garbage(3),
        cluster=4,
    )
    rng = np.random.default_rng(3)
    rng.integers(0, 256, result.shared.shape)
    want = rng.integers(0, 1 << 32, result.tmem.shape, dtype=np.uint32)
    for cta in (2, 3):
      self.expected(want[cta], result.shared[cta], shape, d, 24)
    np.testing.assert_array_equal(result.tmem, want)

  @parameterized.parameters(
      ("128x256b.b8x16.b4x16_p64", "decompression"),
      ("64x128b", r"expected one of the shapes 128x256b, .*warpx4"),
      ("128x128b.warpx4", "expected one of the shapes"),
  )
  def test_refused(self, shape, message):
    with self.assertRaisesRegex(UnsupportedPtxError, message):
      run(f"tcgen05.cp.cta_group::1.{shape} [0], %rd0;")

  def test_lane(self):
    with self.assertRaisesRegex(TmemFault, "names lane 16; this shape writes"):
      run(f"""
          mov.b64 %rd5, {SmemDescriptor(BASE, 0, 128, 0).encode()};
          setp.eq.u32 %p1, %r0, 0;
          @%p1 tcgen05.cp.cta_group::1.128x128b [1048576], %rd5;
          """)

  def test_source_outside_shared_memory(self):
    with self.assertRaisesRegex(
        MemoryFault,
        r"tcgen05.cp source: read of 16 bytes .*(.|\n)*at PTX line \d+: `@%p1"
        r" tcgen05.cp",
    ):
      run(f"""
          mov.b64 %rd5, {SmemDescriptor(65536, 0, 128, 0).encode()};
          setp.eq.u32 %p1, %r0, 0;
          @%p1 tcgen05.cp.cta_group::1.128x128b [0], %rd5;
          """)


class MmaFormTest(parameterized.TestCase):
  """Every textual form gives the operands to the right places."""

  A = SmemDescriptor(8192, 0, 1024, 128).encode()
  B = SmemDescriptor(32768, 4096, 1024, 128).encode()
  F16 = 1 << 4 | 4 << 17 | 8 << 24
  SPARSE = F16 | 1 << 2
  MXF8 = 4 << 17 | 1 << 23 | 1 << 27
  MXF4 = MXF8 | 1 << 7 | 1 << 10
  NVF4 = MXF4 & ~(1 << 23)

  def mma(self, text, idesc, cluster=1, fill=None):
    def filled(m):
      m.tmem.data[:] = 0
      # Metadata 0x4 (positions 0 and 1) in every group.
      m.tmem.data[:, :, 400:410] = 0x44444444
      m.shared.data[:] = 0
      if fill:
        fill(m)

    result = run(
        f"""
        mov.b64 %rd5, {self.A};
        mov.b64 %rd6, {self.B};
        mov.b32 %r3, {idesc};
        mov.b32 %r4, 16;
        mov.b32 %r5, 300;
        mov.b32 %r6, 400;
        mov.b32 %r7, 420;
        mov.b32 %r8, 440;
        mov.b32 %r9, 0;
        mov.pred %p3, -1;
        mov.pred %p4, 0;
        setp.eq.u32 %p1, %r0, 0;
        setp.eq.and.u32 %p1, %r2, 0, %p1;
        @%p1 {text};
        """,
        cluster=cluster,
        fill=filled,
    )
    ((instruction, ctas),) = result.mmas
    self.assertEqual(ctas, tuple(range(instruction.cta_group)))
    self.assertEqual(instruction.d, 16)
    self.assertEqual(instruction.b, self.B)
    return instruction

  @parameterized.parameters(
      "", ".collector::a::fill", ".collector::a::use",
      ".collector::a::lastuse", ".collector::a::discard",
  )
  def test_dense(self, collector):
    got = self.mma(
        f"tcgen05.mma.cta_group::1.kind::f16{collector} [%r4], %rd5, %rd6, %r3,"
        " %p3",
        self.F16,
    )
    self.assertEqual(got.a, self.A)
    self.assertFalse(got.a_in_tmem)
    self.assertTrue(got.accumulate)
    self.assertEqual(got.descriptor.n, 32)

  def test_a_in_tensor_memory(self):
    got = self.mma(
        "tcgen05.mma.cta_group::1.kind::f16 [%r4], [%r5], %rd6, %r3, %p4",
        self.F16,
    )
    self.assertEqual((got.a, got.a_in_tmem, got.accumulate), (300, True, False))

  def test_scale_and_mask(self):
    got = self.mma(
        "tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd5, %rd6, %r3,"
        " {%r9, %r4, %r9, %r5}, %p3, 7",
        self.F16,
    )
    self.assertEqual(got.disabled_lanes, (0, 16, 0, 300))
    self.assertEqual(got.scale_d, 7)
    got = self.mma(
        "tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd5, %rd6, %r3, %p3, 3",
        self.F16,
    )
    self.assertEqual((got.disabled_lanes, got.scale_d), ((), 3))

  def test_sparse(self):
    got = self.mma(
        "tcgen05.mma.sp.cta_group::1.kind::f16 [%r4], %rd5, %rd6, [%r6], %r3,"
        " %p4",
        self.SPARSE,
    )
    self.assertEqual((got.a, got.metadata), (self.A, 400))
    got = self.mma(
        "tcgen05.mma.sp.cta_group::1.kind::f16.collector::a::use [%r4], [%r5],"
        " %rd6, [%r6+2], %r3, {%r9, %r9, %r9, %r9}, %p4",
        self.SPARSE | 1,
    )
    self.assertEqual((got.a, got.metadata), (300, 402))
    self.assertEqual(got.descriptor.selector, 1)
    self.assertTrue(got.a_in_tmem)

  @parameterized.parameters(
      ("mxf8f6f4.block_scale.scale_vec::1X", "MXF8", 1),
      ("mxf8f6f4.block_scale.block32", "MXF8", 1),
      ("mxf8f6f4.block_scale", "MXF8", 1),
      ("mxf4.block_scale.scale_vec::2X", "MXF4", 2),
      ("mxf4.block_scale", "MXF4", 2),
      ("mxf4.block_scale.block32", "MXF4", 2),
      ("mxf4nvf4.block_scale.scale_vec::2X", "MXF4", 2),
      ("mxf4nvf4.block_scale.scale_vec::4X", "NVF4", 4),
      ("mxf4nvf4.block_scale.block16", "NVF4", 4),
      ("mxf4nvf4.block_scale.scale_vec::4X.collector::a::fill", "NVF4", 4),
  )
  def test_scaled(self, kind, idesc, vector_size):
    idesc = getattr(self, idesc)
    for sparse in (False, True):
      sp, meta = (".sp", "[%r6], ") if sparse else ("", "")
      got = self.mma(
          f"tcgen05.mma{sp}.cta_group::1.kind::{kind} [%r4], %rd5, %rd6,"
          f" {meta}%r3, [%r7], [%r8], %p4",
          idesc | sparse << 2,
      )
      self.assertEqual((got.scale_a, got.scale_b), (420, 440))
      self.assertEqual(got.scale_vector, vector_size)
      self.assertEqual(got.metadata, 400 if sparse else None)

  def test_pair(self):
    got = self.mma(
        "tcgen05.mma.cta_group::2.kind::f16 [%r4], %rd5, %rd6, %r3, %p4",
        1 << 4 | 8 << 17 | 16 << 24,
        cluster=2,
    )
    self.assertEqual((got.m, got.n, got.cta_group), (256, 64, 2))

  @parameterized.parameters(
      ("tcgen05.mma.cta_group::1.kind::mxf4 [%r4], %rd5, %rd6, %r3, %p3",
       r"kind::mxf4 needs \.block_scale"),
      ("tcgen05.mma.cta_group::1.kind::i8.block_scale [%r4], %rd5, %rd6, %r3,"
       " [%r7], [%r8], %p3", r"kind::i8 has no \.block_scale"),
      ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::4X [%r4],"
       " %rd5, %rd6, %r3, [%r7], [%r8], %p3",
       "scale vector size '4X'; expected one of 2X, block32"),
      ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%r4],"
       " %rd5, %rd6, %r3, [%r7], [%r8], %p3", "scale vector size 'missing'"),
      ("tcgen05.mma.cta_group::1.kind::f16.ashift [%r4], [%r5], %rd6, %r3, %p3",
       r"\.ashift"),
      ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r4], %rd5, %rd6, %r3, %p3",
       "Not modelled: `tcgen05.mma.ws"),
      ("tcgen05.shift.cta_group::1.down [%r4]", "moving rows"),
  )
  def test_refused(self, text, message):
    with self.assertRaisesRegex(UnsupportedPtxError, message):
      self.mma(text, self.F16)

  @parameterized.parameters(
      (F16 | 1 << 6, SimulationError, "bits 6-6 must be 0"),
      (F16 & ~(31 << 24), SimulationError, "M must be one of"),
      (SPARSE, UnsupportedPtxError, "the sparse bit of the instruction"),
  )
  def test_errors_name_the_instruction(self, idesc, error, message):
    with self.assertRaisesRegex(
        error, rf"{message}(.|\n)*\n  at PTX line \d+: `@%p1 tcgen05.mma.cta"
    ):
      self.mma(
          "tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd5, %rd6, %r3, %p3",
          idesc,
      )

  def test_odd_metadata(self):
    with self.assertRaisesRegex(
        TmemFault, "metadata address 0x191 is odd; the hardware reads pairs"
    ):
      self.mma(
          "tcgen05.mma.sp.cta_group::1.kind::f16 [%r4], %rd5, %rd6, [%r6+1],"
          " %r3, %p4",
          self.SPARSE,
      )


class CommitTest(parameterized.TestCase):

  @parameterized.parameters(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
      " [%r1]",
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
      " [__dynamic_shmem__0]",
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd5]",
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
      " [%rd2]",
  )
  def test_plain(self, text):
    result = run(
        INIT + f"cvta.shared.u64 %rd5, %rd2;\n@%p1 {text};\n{wait('%r1')}",
        order="lazy",
    )
    self.assertEqual(result.machine.mbarriers.get(0, BASE).phase, 1)

  def test_multicast(self):
    result = run(
        INIT + """
        mov.b16 %h1, 13;
        setp.eq.and.u32 %p2, %r2, 2, %p1;
        @%p2 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.
            multicast::cluster.b64
            [%r1], %h1;
        """,
        cluster=4,
    )
    phases = [result.machine.mbarriers.get(c, BASE).phase for c in range(4)]
    self.assertEqual(phases, [1, 0, 1, 1])

  def test_empty_mask(self):
    with self.assertRaisesRegex(SimulationError, "the multicast mask is 0"):
      run(
          "mov.b16 %h1, 0;\ntcgen05.commit.cta_group::1.mbarrier::arrive::one"
          ".shared::cluster.multicast::cluster.b64 [%r1], %h1;"
      )

  def test_no_barrier(self):
    with self.assertRaisesRegex(BarrierFault, "no mbarrier was initialised"):
      run(f"setp.eq.u32 %p1, %r0, 0;\n@%p1 {COMMIT} [%r1];")


def f16_map(globals_, name, array, window, swizzle=128, code=5):
  address = globals_.add_buffer(name, array.reshape(-1).view(np.uint8))
  return tma.TensorMap.from_runtime_args(
      address, code, array.shape,
      [s // array.itemsize for s in array.strides], swizzle, window,
  )


class MatmulTest(parameterized.TestCase):
  """A sparse product from global memory to global memory, one tile."""

  def kernel(self, m, n, k, without=""):
    """A [m, k / 2] K-major, B [k, n] MN-major, metadata, as Mosaic does it."""
    a_at, b_at, meta_at = 1024, 1024 + 16384, 1024 + 16384 + 32768
    lines = []
    for step in range(k // 32):
      a = SmemDescriptor(BASE + a_at + 32 * step, 0, 1024, 128).encode()
      b = SmemDescriptor(
          BASE + b_at + 4096 * step, 128 * k, 1024, 128
      ).encode()
      idesc = (
          step % 2 | 1 << 2 | 1 << 4 | 1 << 16 | n >> 3 << 17 | m >> 4 << 24
      )
      lines.append(f"""
          mov.b64 %rd5, {a};
          mov.b64 %rd6, {b};
          mov.b32 %r20, {idesc};
          setp.ne.u32 %p3, {step}, 0;
          add.s32 %r21, %r11, {step // 2 * 2};
          tcgen05.mma.sp.cta_group::1.kind::f16
              [%r10], %rd5, %rd6, [%r21], %r20, %p3;
          """)
    meta = SmemDescriptor(BASE + meta_at, 0, 128, 0).encode()
    stores = "\n".join(
        f"st.global.b32 [%rd6+{4 * q}], %r{100 + q};" for q in range(n)
    )
    text = INIT.replace(
        "barrier.cluster.arrive",
        "@%p1 mbarrier.init.shared.b64 [%r1+8], 1;\nbarrier.cluster.arrive",
    ) + f"""
        setp.lt.u32 %p2, %r0, 32;
        @!%p2 bra ALLOCATED;
        {ALLOC} [%r1+16], 128;
        {ALLOC} [%r1+20], 32;
        ALLOCATED:
        bar.sync 0;
        ld.shared.v2.b32 {{%r10, %r11}}, [%r1+16];
        add.s64 %rd7, %rd1, 128;
        add.s64 %rd8, %rd1, 256;
        @!%p1 bra LOADED;
        mbarrier.arrive.expect_tx.shared.b64
            _, [%r1], {m * k + 2 * k * n + 2048};
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [%r1+{a_at}], [%rd1, {{0, 0}}], [%r1];
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [%r1+{b_at}], [%rd7, {{0, 0}}], [%r1];
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [%r1+{b_at + 128 * k}], [%rd7, {{64, 0}}], [%r1];
        cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [%r1+{meta_at}], [%rd8, {{0, 0}}], [%r1];
        LOADED:
        {wait("%r1")} // for the loads
        @!%p1 bra COMPUTED;
        mov.b64 %rd5, {meta};
        tcgen05.cp.cta_group::1.128x128b [%r11], %rd5;
        {"".join(lines)}
        {COMMIT} [%r1+8];
        COMPUTED:
        {wait("%r1+8")} // for the products
        tcgen05.fence::after_thread_sync;
        tcgen05.ld.sync.aligned.32x32b.x128.b32 {vector(100, 128)}, [%r10];
        tcgen05.wait::ld.sync.aligned;
        mul.wide.u32 %rd6, %r0, {4 * n};
        add.s64 %rd6, %rd0, %rd6;
        {stores}
        bar.sync 0;
        @!%p2 bra FREED;
        {DEALLOC} %r10, 128;
        {DEALLOC} %r11, 32;
        FREED:
        """
    if without:
      self.assertEqual(text.count(without), 1)
      text = text.replace(without, "")
    return text

  def problem(self):
    m, n, k = 128, 128, 128
    rng = np.random.default_rng(5)
    a = rng.integers(-4, 5, (m, k // 2)).astype(np.float16)
    b = rng.integers(-4, 5, (k, n)).astype(np.float16)
    pairs = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    positions = pairs[rng.integers(0, 6, (m, k // 4))]
    dense = np.zeros((m, k))
    # A column of metadata for each instruction: lane and bit of each entry.
    meta = np.zeros((m, k // 32), np.uint32)
    for i in range(m):
      for e in range(k // 2):
        position = int(positions[i, e // 2, e % 2])
        dense[i, e // 2 * 4 + position] = a[i, e]
        column, local = divmod(e, 16)
        lane = 16 * (i // 16) + 8 * (local // 8) + i % 8
        bit = 16 * (i // 8 % 2) + 2 * (local % 8)
        meta[lane, column] |= position << bit
    return a, b, meta, dense @ b.astype(np.float64)

  def launch(self, text, order, checkers):
    a, b, meta, want = self.problem()

    def maps(globals_):
      return [
          f16_map(globals_, "a", a, (128, 64)),
          f16_map(globals_, "b", b, (128, 64)),
          f16_map(globals_, "meta", meta, (128, 4), 16, 3),
      ]

    result = run(
        text, maps=maps, threads=128, shared=64 * 1024, out_words=128 * 128,
        order=order, checkers=checkers,
    )
    return result.out.view(np.float32).reshape(128, 128), want

  @parameterized.parameters("eager", "lazy")
  def test_matmul(self, order):
    statistics = observers.Statistics()
    got, want = self.launch(
        self.kernel(128, 128, 128), order,
        [observers.UnwrittenReads(), observers.TmemRules(), statistics],
    )
    np.testing.assert_array_equal(got, want)
    self.assertEqual(statistics.mma_instructions, {"f16 sparse": 4})
    self.assertEqual(statistics.mma_count, 4)
    self.assertEqual(statistics.flops, 2 * 128**3)
    self.assertEqual(statistics.load_bytes, 16384 + 32768 + 2048)
    self.assertEqual(
        statistics.shared_operand_bytes, 4 * (128 * 32 + 128 * 64)
    )

  @parameterized.parameters(
      (wait("%r1") + " // for the loads", MemoryFault, "never written"),
      (wait("%r1+8") + " // for the products", TmemFault, "never written"),
  )
  def test_a_forgotten_wait_is_found_when_late(self, without, error, message):
    with self.assertRaisesRegex(error, message):
      self.launch(
          self.kernel(128, 128, 128, without), "lazy",
          [observers.UnwrittenReads()],
      )


if __name__ == "__main__":
  absltest.main()
