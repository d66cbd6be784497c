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
"""Loads, stores, atomics, matrices, copies and address spaces."""

from __future__ import annotations

import zlib

import ml_dtypes
import numpy as np
import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors, memory, observers

# %rd0 = address of the thread's element of 4 bytes in shared memory `buf`.
SHARED = """
  .shared .align 16 .b8 buf[4096];
  mov.u32 %r0, %tid.x;
  mov.b32 %r1, buf;
  mul.lo.u32 %r2, %r0, 16;
  add.s32 %r1, %r1, %r2;
"""


class _Base(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.rng = np.random.default_rng(zlib.crc32(self.id().encode()))

  def bytes(self, size):
    return self.rng.integers(1, 256, size, np.uint8)


class LoadStoreTest(_Base):

  @parameterized.product(vec=(1, 2, 4, 8), bits=(8, 16, 32, 64))
  def test_global_vectors(self, vec, bits):
    if vec * bits > 256:
      self.skipTest("at most 32 bytes")
    nbytes = vec * bits // 8
    a = self.bytes(32 * nbytes)
    names = {8: "h", 16: "h", 32: "r", 64: "rd"}[bits]
    registers = ", ".join(f"%{names}{i + 1}" for i in range(vec))
    backwards = ", ".join(f"%{names}{vec - i}" for i in range(vec))
    vector = f".v{vec}" if vec > 1 else ""
    if vec > 1:
      registers, backwards = "{" + registers + "}", "{" + backwards + "}"
    _, x = snippets.run(
        f"mul.wide.u32 %rd20, %thread, {nbytes}; add.s64 %rd21, %in0, %rd20;"
        f" add.s64 %rd22, %in1, %rd20; add.s64 %rd22, %rd22, -64;"
        f" ld.global{vector}.b{bits} {registers}, [%rd21];"
        f" st.global.wb{vector}.b{bits} [%rd22+64], {backwards};",
        a, np.zeros_like(a),
    )
    words = a.view(f"u{bits // 8}").reshape(32, vec)
    np.testing.assert_array_equal(
        x.view(f"u{bits // 8}").reshape(32, vec), words[:, ::-1]
    )

  @parameterized.parameters(
      ("s8", np.int8), ("u8", np.uint8), ("s16", np.int16), ("u16", np.uint16),
      ("b8", np.uint8), ("s32", np.int32), ("u32", np.uint32),
  )
  def test_loads_extend(self, type_, dtype):
    a = snippets.ints(self.rng, dtype, 32)
    size = np.dtype(dtype).itemsize
    _, x = snippets.run(
        f"mul.wide.u32 %rd0, %thread, {size}; add.s64 %rd0, %in0, %rd0;"
        f" ld.global.{type_} %rd1, [%rd0]; mul.wide.u32 %rd0, %thread, 8;"
        " add.s64 %rd0, %in1, %rd0; st.global.b64 [%rd0], %rd1;",
        a, np.zeros(32, np.int64),
    )
    np.testing.assert_array_equal(x, a.astype(np.int64))

  @parameterized.parameters(
      "ld.global.nc.b32", "ld.global.ca.b32", "ld.volatile.global.b32",
      "ld.relaxed.gpu.global.b32", "ld.acquire.sys.global.b32", "ld.b32",
      "ld.global.nc.L1::no_allocate.L2::128B.b32", "ld.weak.global.b32",
      "ld.global.L2::evict_last.b32",
  )
  def test_modifiers_of_loads(self, opcode):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        f"mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %in0, %rd0;"
        f" {opcode} %x, [%rd0];", a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, a)

  @parameterized.parameters(
      "st.global.b32", "st.b32", "st.volatile.global.b32",
      "st.release.gpu.global.b32", "st.relaxed.cta.b32",
      "st.global.L1::no_allocate.b32", "st.global.cs.b32",
  )
  def test_modifiers_of_stores(self, opcode):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        f"mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %in1, %rd0;"
        f" {opcode} [%rd0], %a; ld.global.b32 %x, [%rd0];", a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, a)

  def test_cache_policy(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        "createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;"
        " mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %in0, %rd0;"
        " ld.global.L2::cache_hint.b32 %x, [%rd0], %rd1;", a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, a)

  def test_shared_memory_by_every_name(self):
    """Through a 32- and a 64-bit register, a symbol, and generic addresses."""
    a = snippets.ints(self.rng, np.uint32, 64)
    outs = snippets.each(
        SHARED
        + "st.shared.b32 [%r1], %a; ld.shared::cta.b32 %x, [%r1];"
        " cvt.u64.u32 %rd0, %r1; ld.shared.b32 %y, [%rd0];"
        " cvta.shared.u64 %rd1, %rd0; ld.b32 %z, [%rd1];"
        " cvta.to.shared.u64 %rd2, %rd1; ld.shared.b32 %u, [%rd2];"
        " bar.sync 0; ld.shared.b32 %v, [buf+16];",
        a, out=[np.uint32] * 5, threads=32,
    )
    for x in outs[:4]:
      np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(outs[4], a.reshape(2, 32)[:, 1].repeat(32))

  @parameterized.parameters(True, False)
  def test_unwritten_words_of_a_vector(self, used):
    # LLVM loads four words where three are needed.
    body = f"""{SHARED}
      st.shared.b32 [%r1], %r0;
      st.shared.v2.b32 [%r1+8], {{%r0, %r0}};
      ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r1];
      add.u32 %r7, %r3, %r{4 if used else 6};
    """
    run = lambda: snippets.run(body, observers=[observers.UnwrittenReads()])
    if not used:
      run()
      return
    with self.assertRaisesRegex(
        errors.UnwrittenRegisterError, "Register %r4 is read before"
    ):
      run()

  def test_b128(self):
    a = snippets.ints(self.rng, np.uint64, 32)
    x, y = snippets.each(
        SHARED + "not.b64 %rd3, %a; mov.b128 %rq0, {%a, %rd3};"
        " st.shared.b128 [%r1], %rq0; ld.shared.b128 %rq1, [%r1];"
        " mov.b128 {%x, %y}, %rq1;", a, out=[np.uint64, np.uint64],
    )
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, ~a)

  def test_dynamic_shared_memory(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x, y = snippets.each(
        ".shared .align 4 .b32 fixed[8];\n"
        ".shared .align 16 .b8 __dynamic_shmem__0;\n"
        "mov.b32 %x, __dynamic_shmem__0; mov.b32 %y, fixed;"
        " st.shared.b32 [__dynamic_shmem__0+252], %a;",
        a, out=[np.uint32, np.uint32], shared=256,
    )
    np.testing.assert_array_equal(x, 1024)
    np.testing.assert_array_equal(y, 1024 + 256)

  def test_local_memory(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    x, y = snippets.each(
        ".local .align 8 .b8 depot[16];\n"
        "mov.b64 %rd0, depot; cvta.local.u64 %rd1, %rd0;"
        " st.local.b32 [%rd0+4], %a; ld.b32 %x, [%rd1+4]; not.b32 %r0, %a;"
        " st.b32 [%rd1+8], %r0; ld.local.b32 %y, [depot+8];",
        a, out=[np.uint32, np.uint32],
    )
    np.testing.assert_array_equal(x, a)
    np.testing.assert_array_equal(y, ~a)

  def test_global_and_local_addresses_in_one_instruction(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        ".local .align 8 .b8 depot[8];\n"
        "mov.b64 %rd0, depot; cvta.local.u64 %rd1, %rd0;"
        " st.b32 [%rd1], 77; mul.wide.u32 %rd2, %thread, 4;"
        " add.s64 %rd2, %rd2, %in0; setp.lt.u32 %p, %thread, 9;"
        " selp.b64 %rd3, %rd1, %rd2, %p; ld.b32 %x, [%rd3];",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, np.where(np.arange(32) < 9, 77, a))

  def test_global_variable(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        ".global .align 4 .b32 table[3] = {11, 22, 33};\n"
        "ld.global.b32 %x, [table+8];", a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, 33)

  def test_params(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x, y, z = snippets.each(
        "ld.param.u64 %x, [p0]; mov.b64 %rd0, p0; cvta.param.u64 %rd1, %rd0;"
        " ld.b64 %y, [%rd1]; ld.param::entry.v2.b32 {%r0, %r1}, [p0+8];"
        " mov.b64 %z, {%r0, %r1};", a, out=[np.uint64, np.uint64, np.uint64],
    )
    np.testing.assert_array_equal(x, memory.GLOBAL_BASE)
    np.testing.assert_array_equal(y, memory.GLOBAL_BASE)
    np.testing.assert_array_less(memory.GLOBAL_BASE, z)

  @parameterized.parameters(
      ("ld.global.b32 %r0, [%in0+128];", "outside every buffer", 128),
      ("ld.global.b32 %r0, [%in0+2];", "misaligned read of 4 bytes", 128),
      ("ld.global.v4.b32 {%r0,%r1,%r2,%r3}, [%in0+8];", "multiple of 16", 128),
      ("st.global.b32 [%in0+-4], 1;", "outside every buffer", 128),
      ("ld.b32 %r0, [%rd9];", "outside every buffer", 128),
      ("mov.b32 %r0, 99999; st.shared.b16 [%r0+1], 1;", "is outside its", 128),
      ("ld.param.b32 %r0, [p0+8];", "out of range read of 4 bytes", 128),
      ("cvta.to.shared.u64 %rd0, %in0;", "is not in .shared", 128),
      ("mov.b32 %r1, 4; mapa.shared::cluster.u32 %r0, %r1, 1;",
       "CTA rank 1 is outside the cluster of 1", 128),
      (".local .align 4 .b8 d[4]; st.local.b32 [d+4], 1;",
       "within 4 bytes", 128),
  )
  def test_faults(self, body, message, size):
    with self.assertRaisesRegex(errors.MemoryFault, message) as caught:
      snippets.run("mov.b64 %rd9, 16;\n" + body, self.bytes(size))
    instruction = body.split(";")[-2].strip()
    self.assertIn(f"{instruction};` (CTA (0,0,0), warp 0, lane 0)",
                  str(caught.exception))

  def test_fault_names_the_lane(self):
    with self.assertRaisesRegex(
        errors.MemoryFault, r"(?s)'in0'.*passes by 4 bytes.*warp 1, lane 3\)"
    ):
      snippets.run(
          "mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %rd0, %in0;"
          "ld.global.b32 %r0, [%rd0];", self.bytes(35 * 4), threads=64,
      )

  @parameterized.parameters(
      ("st.param.b32 [p0], 1;", "cannot be stored to"),
      ("ld.shared.nc.b32 %r0, [%r0];", ".nc needs .global"),
      ("ld.global.v8.b64 {%rd0,%rd1,%rd2,%rd3,%rd4,%rd5,%rd6,%rd7}, [%rd8];",
       "expected at most 32 bytes"),
  )
  def test_refusals(self, body, message):
    with self.assertRaisesRegex(errors.UnsupportedPtxError, message):
      snippets.run(body, self.bytes(4))


class SpacesTest(_Base):

  def test_isspacep(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    outs = snippets.each(
        SHARED + "cvt.u64.u32 %rd0, %r1; cvta.shared.u64 %rd0, %rd0;"
        " isspacep.shared %px, %rd0; isspacep.global %py, %rd0;"
        " isspacep.global %pz, %in0; isspacep.local %pu, %in0;"
        " isspacep.shared::cluster %pv, %rd0;", a, out=[np.bool_] * 5,
    )
    self.assertEqual([bool(o[5]) for o in outs],
                     [True, False, True, False, True])

  def test_cluster_addresses(self):
    a = snippets.ints(self.rng, np.uint32, 128)
    outs = snippets.each(
        SHARED
        + "mov.u32 %r3, %cluster_ctarank; st.shared.b32 [%r1], %a;"
        " barrier.cluster.arrive; barrier.cluster.wait;"
        " add.s32 %r4, %r3, 1; rem.u32 %r4, %r4, 4;"
        " mapa.shared::cluster.u32 %r5, %r1, %r4;"
        " ld.shared::cluster.b32 %x, [%r5];"
        " getctarank.shared::cluster.u32 %y, %r5;"
        " cvt.u64.u32 %rd0, %r1; cvta.shared.u64 %rd0, %rd0;"
        " mapa.u64 %rd1, %rd0, %r4; ld.b32 %z, [%rd1];"
        " getctarank.u64 %u, %rd1; isspacep.shared %pv, %rd1;",
        a, out=[np.uint32] * 4 + [np.bool_], threads=32, cluster=4,
    )
    rank = np.arange(128) // 32
    expected = np.roll(a.reshape(4, 32), -1, axis=0).ravel()
    np.testing.assert_array_equal(outs[0], expected)
    np.testing.assert_array_equal(outs[2], expected)
    np.testing.assert_array_equal(outs[1], (rank + 1) % 4)
    np.testing.assert_array_equal(outs[3], (rank + 1) % 4)
    self.assertFalse(outs[4].any())


class AtomicTest(_Base):

  @parameterized.product(
      case=(
          ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"),
          ("max", "u32"), ("min", "u64"), ("max", "s64"), ("and", "b32"),
          ("or", "b64"), ("xor", "b32"), ("exch", "b32"), ("inc", "u32"),
          ("dec", "u32"),
      ),
      space=("global", "shared", "generic"),
  )
  def test_integers(self, case, space):
    """64 threads on 5 places, in the order of the threads."""
    kind, type_ = case
    dtype = np.dtype(f"{'int' if type_[0] == 's' else 'uint'}{type_[1:]}")
    size = dtype.itemsize
    start = snippets.ints(self.rng, dtype, 8)[:5]
    if kind in ("inc", "dec"):
      start = self.rng.integers(0, 9, 5).astype(dtype)
      b = self.rng.integers(1, 9, 64).astype(dtype)
    else:
      b = snippets.ints(self.rng, dtype, 64)
    body = (
        f".shared .align 8 .b8 buf[64]; rem.u32 %r1, %thread, 5;"
        f" mul.lo.u32 %r2, %r1, {size}; cvt.u64.u32 %rd0, %r2;"
        " add.s64 %rd0, %in1, %rd0;"
    )
    address, modifier = "%rd0", {"generic": ""}.get(space, f".{space}")
    if space == "shared":
      address = "%r3"
      body += (
          f" mov.b32 %r3, buf; add.s32 %r3, %r3, %r2;"
          f" ld.global.b{8 * size} %{'rd5' if size == 8 else 'r5'}, [%rd0];"
          f" st.shared.b{8 * size} [%r3], %{'rd5' if size == 8 else 'r5'};"
          " bar.sync 0;"
      )
    body += (
        f" mul.wide.u32 %rd1, %thread, {size}; add.s64 %rd2, %in0, %rd1;"
        f" add.s64 %rd1, %in2, %rd1;"
        f" ld.global.b{8 * size} %{'rd6' if size == 8 else 'r6'}, [%rd2];"
        f" atom{modifier}.{kind}.{type_} %{'rd7' if size == 8 else 'r7'},"
        f" [{address}], %{'rd6' if size == 8 else 'r6'};"
        f" st.global.b{8 * size} [%rd1], %{'rd7' if size == 8 else 'r7'};"
        " bar.sync 0;"
    )
    if space == "shared":
      body += (
          f" ld.shared.b{8 * size} %{'rd5' if size == 8 else 'r5'}, [%r3];"
          f" st.global.b{8 * size} [%rd0], %{'rd5' if size == 8 else 'r5'};"
      )
    _, memory_after, old = snippets.run(
        body, b, start, np.zeros(64, dtype), threads=64
    )
    values, expected_old = start.tolist(), []
    for thread, operand in enumerate(b.tolist()):
      place = thread % 5
      value = values[place]
      expected_old.append(value)
      values[place] = {
          "add": value + operand, "min": min(value, operand),
          "max": max(value, operand), "and": value & operand,
          "or": value | operand, "xor": value ^ operand, "exch": operand,
          "inc": 0 if value >= operand else value + 1,
          "dec": operand if value == 0 or value > operand else value - 1,
      }[kind]
      word = values[place] & (2 ** (8 * size) - 1)
      values[place] = int(np.array(word, f"u{size}").view(dtype))
    np.testing.assert_array_equal(old, np.array(expected_old, dtype))
    np.testing.assert_array_equal(memory_after, np.array(values, dtype))

  @parameterized.parameters(
      ("f32", np.float32), ("f64", np.float64), ("noftz.f16", np.float16),
      ("noftz.bf16", ml_dtypes.bfloat16),
  )
  def test_float_add(self, type_, dtype):
    size = np.dtype(dtype).itemsize
    a = self.rng.integers(-9, 10, 64).astype(dtype)
    a[a == 0] = 3
    register = {2: "%h1", 4: "%r1", 8: "%rd1"}[size]
    _, x = snippets.run(
        f"mul.wide.u32 %rd0, %thread, {size}; add.s64 %rd0, %in0, %rd0;"
        f" ld.global.b{8 * size} {register}, [%rd0];"
        f" red.relaxed.gpu.global.add.{type_} [%in1], {register};",
        a, np.array([0.5, 9], dtype), threads=64,
    )
    self.assertEqual(float(x[0]), 0.5 + float(a.astype(np.float64).sum()))
    self.assertEqual(float(x[1]), 9)

  def test_packed_and_vector_add(self):
    a = self.rng.integers(1, 5, 64).astype(np.float16)
    b = self.rng.integers(1, 5, 128).astype(np.float32)
    _, _, x, y = snippets.run(
        "mul.wide.u32 %rd0, %thread, 4; add.s64 %rd1, %in0, %rd0;"
        " ld.global.b32 %r1, [%rd1]; red.global.add.noftz.f16x2 [%in2], %r1;"
        " shl.b64 %rd0, %rd0, 2; add.s64 %rd1, %in1, %rd0;"
        " ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];"
        " red.global.add.v4.f32 [%in3], {%r1, %r2, %r3, %r4};",
        a, b, np.array([1, 2], np.float16), np.arange(4, dtype=np.float32),
    )
    np.testing.assert_array_equal(x, a.reshape(32, 2).sum(0) + [1, 2])
    np.testing.assert_array_equal(y, b.reshape(32, 4).sum(0) + np.arange(4))

  def test_cas(self):
    """A ticket: each thread succeeds once its number comes up."""
    x, y = snippets.run(
        "mul.wide.u32 %rd0, %thread, 4; add.s64 %rd0, %in1, %rd0;\nAGAIN:\n"
        "add.s32 %r1, %thread, 1;"
        " atom.acquire.gpu.global.cas.b32 %r2, [%in0], %thread, %r1;"
        " setp.ne.u32 %p, %r2, %thread; @%p bra AGAIN;"
        " st.global.b32 [%rd0], %r2;",
        np.zeros(1, np.uint32), np.full(64, 99, np.uint32), threads=64,
    )
    self.assertEqual(x[0], 64)
    np.testing.assert_array_equal(y, np.arange(64))

  def test_a_lock_between_warps(self):
    """A spin on memory does not keep the owner of the lock from running."""
    x, = snippets.run(
        "mov.u32 %r0, %warpid; setp.eq.u32 %p, %r0, 3; @%p bra OWNER;\nSPIN:\n"
        "ld.acquire.gpu.global.b32 %r1, [%in0]; setp.ne.u32 %q, %r1, 42;"
        "@%q bra SPIN; bra END;\nOWNER:\nmov.b32 %r2, 0;\nWORK:\n"
        "add.s32 %r2, %r2, 1; setp.lt.u32 %q, %r2, 500; @%q bra WORK;"
        " st.release.gpu.global.b32 [%in0], 42;\nEND:\n",
        np.full(1, 7, np.uint32), threads=128,
    )
    self.assertEqual(x[0], 42)


class MatrixTest(_Base):

  @parameterized.product(
      count=(1, 2, 4), trans=(False, True), threads=(32, 64)
  )
  def test_ldmatrix_and_stmatrix(self, count, trans, threads):
    a = snippets.ints(self.rng, np.uint32, 4 * threads)
    modifier = ".trans" if trans else ""
    registers = "{" + ", ".join(f"%r{10 + i}" for i in range(count)) + "}"
    results = "{" + ", ".join(f"%r{20 + i}" for i in range(count)) + "}"
    _, x, y = snippets.run(
        SHARED + "mov.u32 %r3, %laneid;"
        f" mul.wide.u32 %rd0, %thread, 16; add.s64 %rd1, %in0, %rd0;"
        " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];"
        " st.shared.v4.b32 [%r1], {%r4, %r5, %r6, %r7}; bar.sync 0;"
        f" ldmatrix.sync.aligned.m8n8.x{count}{modifier}.shared.b16"
        f" {registers}, [%r1]; mov.b32 %r20, 0; mov.b32 %r21, 0;"
        " mov.b32 %r22, 0; mov.b32 %r23, 0;"
        + "".join(f"mov.b32 %r{20 + i}, %r{10 + i};" for i in range(count))
        + f" add.s64 %rd2, %in1, %rd0;"
        " st.global.v4.b32 [%rd2], {%r20, %r21, %r22, %r23}; bar.sync 0;"
        f" stmatrix.sync.aligned.m8n8.x{count}{modifier}.shared.b16"
        f" [%r1], {results}; bar.sync 0;"
        " ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];"
        " add.s64 %rd2, %in2, %rd0;"
        " st.global.v4.b32 [%rd2], {%r4, %r5, %r6, %r7};",
        a, np.zeros_like(a), np.zeros_like(a), threads=threads,
    )
    rows = a.view(np.uint16).reshape(-1, 32, 8)  # [warp, lane, column]
    x = x.reshape(-1, 32, 4)
    for warp in range(threads // 32):
      for lane in range(32):
        for m in range(4):
          expected = 0
          if m < count:
            for half in range(2):
              r, c = lane // 4, 2 * (lane % 4) + half
              if trans:
                r, c = c, r
              expected |= int(rows[warp, 8 * m + r, c]) << 16 * half
          self.assertEqual(x[warp, lane, m], expected)
    np.testing.assert_array_equal(y, a)  # Stored back where it came from.

  @parameterized.parameters(1, 2)
  def test_ldmatrix_of_bytes(self, count):
    a = self.bytes(32 * 16)
    registers = ", ".join(f"%r{10 + i}" for i in range(2 * count))
    x = np.zeros((2 * count, 32), np.uint32)
    _, x = snippets.run(
        SHARED + "mul.wide.u32 %rd0, %thread, 16; add.s64 %rd1, %in0, %rd0;"
        " ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd1];"
        " st.shared.v4.b32 [%r1], {%r4, %r5, %r6, %r7}; bar.sync 0;"
        f" ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8"
        " {" + registers + "}, [%r1];"
        " mul.wide.u32 %rd0, %thread, 4; add.s64 %rd1, %in1, %rd0;"
        + "".join(
            f"st.global.b32 [%rd1+{128 * i}], %r{10 + i};"
            for i in range(2 * count)
        ),
        a, x,
    )
    rows = a.reshape(2, 16, 16)
    x = x.view(np.uint8).reshape(2 * count, 32, 4)
    for i, lane, v in np.ndindex(*x.shape):
      self.assertEqual(
          x[i, lane, v],
          rows[i // 2, 4 * (lane % 4) + v, 8 * (i % 2) + lane // 4],
      )

  @parameterized.parameters(
      ("f16", "f16", "f32", 16), ("bf16", "bf16", "f32", 16),
      ("tf32", "tf32", "f32", 8), ("e4m3", "e5m2", "f32", 32),
      ("s8", "u8", "s32", 32), ("f64", "f64", "f64", 8),
  )
  def test_mma_sync(self, a_type, b_type, d_type, k):
    """The fragments are as the ISA describes them, element by element."""
    dtypes = {
        "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
        "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
        "s8": np.int8, "u8": np.uint8, "f64": np.float64, "f32": np.float32,
        "s32": np.int32,
    }
    a, b = (
        self.rng.integers(low, 8, shape).astype(dtypes[t])
        for t, shape, low in (
            (a_type, (2, 16, k), -7), (b_type, (2, k, 8), 1)
        )
    )
    c = self.rng.integers(-99, 99, (2, 16, 8)).astype(dtypes[d_type])
    word = np.uint64 if a_type == "f64" else np.uint32
    per_word = np.dtype(word).itemsize // a.dtype.itemsize
    lane_a = np.zeros((2, 32, 4, per_word), a.dtype)
    lane_b = np.zeros((2, 32, 2, per_word), b.dtype)
    lane_c = np.zeros((2, 32, 4), c.dtype)
    for w, t, r, e in np.ndindex(*lane_a.shape):
      column = per_word * (t % 4) + e
      lane_a[w, t, r, e] = a[
          w, t // 4 + 8 * (r % 2), column + 4 * per_word * (r // 2)
      ]
      if r < 2:
        lane_b[w, t, r, e] = b[w, column + 4 * per_word * r, t // 4]
    for w, t, r in np.ndindex(*lane_c.shape):
      lane_c[w, t, r] = c[w, t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2]
    name, bits = ("rd", 64) if a_type == "f64" else ("r", 32)
    body = ""
    for i, (count, first) in enumerate(((4, 0), (2, 4), (4, 8))):
      body += (
          f"mul.wide.u32 %rd20, %thread, {count * bits // 8};"
          f" add.s64 %rd20, %rd20, %in{i};"
      )
      for r in range(count):
        body += (
            f"ld.global.b{bits} %{name}{first + r},"
            f" [%rd20+{r * bits // 8}];"
        )
    lists = [
        "{" + ", ".join(f"%{name}{first + r}" for r in range(count)) + "}"
        for count, first in ((4, 12), (4, 0), (2, 4), (4, 8))
    ]
    body += (
        f"mma.sync.aligned.m16n8k{k}.row.col.{d_type}.{a_type}.{b_type}"
        f".{d_type} {', '.join(lists)};"
    )
    for r in range(4):
      body += f"st.global.b{bits} [%rd20+{r * bits // 8}], %{name}{12 + r};"
    *_, d = snippets.run(
        body, lane_a.view(word), lane_b.view(word), lane_c, threads=64
    )
    expected = a.astype(np.float64) @ b.astype(np.float64) + c
    for w, t, r in np.ndindex(*d.shape):
      self.assertEqual(
          d[w, t, r], expected[w, t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2]
      )

  def test_shape_of_the_vector(self):
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError, "expected 4 registers"
    ):
      snippets.run(
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1}, [%r2];"
      )


class AsyncCopyTest(_Base):

  @parameterized.product(size=(4, 8, 16), order=("eager", "lazy"))
  def test_cp_async(self, size, order):
    a = self.bytes(32 * size)
    cop = "cg" if size == 16 else "ca"
    vector = {4: "b32 %r5", 8: "v2.b32 {%r5, %r6}",
              16: "v4.b32 {%r5, %r6, %r7, %r8}"}[size]
    kind, value = vector.split(" ", 1)
    _, x = snippets.run(
        SHARED + f"mul.wide.u32 %rd0, %thread, {size};"
        " add.s64 %rd1, %in0, %rd0;"
        f" cp.async.{cop}.shared.global [%r1], [%rd1], {size};"
        " cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"
        f" ld.shared.{kind} {value}, [%r1]; add.s64 %rd1, %in1, %rd0;"
        f" st.global.{kind} [%rd1], {value};",
        a, np.zeros_like(a), order=order,
    )
    np.testing.assert_array_equal(x, a)

  def test_cp_async_fills_with_zeros(self):
    a = snippets.ints(self.rng, np.uint32, 64)
    _, x = snippets.run(
        SHARED + "mul.wide.u32 %rd0, %thread, 8; add.s64 %rd1, %in0, %rd0;"
        " setp.lt.u32 %p, %thread, 5; selp.b32 %r9, 8, 4, %p;"
        " cp.async.ca.shared::cta.global.L2::128B [%r1], [%rd1], 8, %r9;"
        " cp.async.wait_all; ld.shared.v2.b32 {%r5, %r6}, [%r1];"
        " add.s64 %rd1, %in1, %rd0; st.global.v2.b32 [%rd1], {%r5, %r6};",
        a, np.zeros_like(a), order="lazy",
    )
    expected = a.reshape(32, 2).copy()
    expected[5:, 1] = 0
    np.testing.assert_array_equal(x, expected.ravel())

  @parameterized.product(order=("eager", "lazy"), scope=("", ".cluster"))
  def test_st_async(self, order, scope):
    """Every lane stores to the other CTA, which waits for all the bytes."""
    a = snippets.ints(self.rng, np.uint32, 64)
    x = snippets.each(
        SHARED
        + ".shared .align 8 .b64 bar; mov.b32 %r9, bar;"
        " setp.eq.u32 %p, %r0, 0; mov.u32 %r3, %cluster_ctarank;"
        " @%p mbarrier.init.shared.b64 [%r9], 1;"
        " @%p mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 128;"
        " barrier.cluster.arrive; barrier.cluster.wait;"
        " xor.b32 %r4, %r3, 1; mapa.shared::cluster.u32 %r5, %r1, %r4;"
        " mapa.shared::cluster.u32 %r6, %r9, %r4;"
        f" st.async{scope}.shared::cluster.mbarrier::complete_tx::bytes.b32"
        " [%r5], %a, [%r6];\nWAIT:\n"
        " mbarrier.try_wait.parity.shared.b64 %q, [%r9], 0; @!%q bra WAIT;"
        " ld.shared.b32 %x, [%r1];",
        a, out=np.uint32, threads=32, cluster=2, order=order,
    )
    np.testing.assert_array_equal(x, a.reshape(2, 32)[::-1].ravel())

  def test_red_async(self):
    a = snippets.ints(self.rng, np.uint32, 32)
    x = snippets.each(
        SHARED
        + ".shared .align 8 .b64 bar; mov.b32 %r9, bar;"
        " setp.eq.u32 %p, %r0, 0; @%p st.shared.b32 [buf], 1000;"
        " @%p mbarrier.init.shared.b64 [%r9], 1;"
        " @%p mbarrier.arrive.expect_tx.shared.b64 _, [%r9], 128; bar.sync 0;"
        " mov.b32 %r1, buf;"
        " red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx"
        "::bytes.add.u32 [%r1], %a, [%r9];\nWAIT:\n"
        " mbarrier.try_wait.parity.shared.b64 %q, [%r9], 0; @!%q bra WAIT;"
        " ld.shared.b32 %x, [%r1];",
        a, out=np.uint32,
    )
    np.testing.assert_array_equal(x, np.uint32(1000) + a.sum(dtype=np.uint32))

  def test_misaligned_source(self):
    with self.assertRaisesRegex(errors.MemoryFault, "multiple of 8"):
      snippets.run(
          SHARED + "cp.async.ca.shared.global [%r1], [%in0+4], 8;",
          self.bytes(64),
      )


class HardwareSumsTest(parameterized.TestCase):
  """Sums of floats in memory, as an H200 makes them."""

  @parameterized.parameters(
      ("global", "f32", 0x00000001, 0x007FFFFF, 0x00000000),
      ("global", "f32", 0x80000001, 0x80000001, 0x80000000),
      ("shared", "f32", 0x00000001, 0x007FFFFF, 0x00800000),
      ("global", "f32", 0x3F800000, 0xFFC00005, 0x7FFFFFFF),
      ("shared", "f32", 0x7F800001, 0x3F800000, 0x7FFFFFFF),
      ("global", "f64", 0x3FF << 52, 0x7FF0000000000001, 0x7FF0000000000001),
      ("shared", "f64", 0x3FF << 52, 0x7FF0000000000001, 0x7FF8000000000001),
  )
  def test_sum(self, space, type_, old, value, expected):
    bits = int(type_[1:])
    a, b = (np.full(32, v, f"u{bits // 8}") for v in (old, value))
    body = f"mad.wide.u32 %rd1, %thread, {bits // 8}, %in0;"
    if space == "global":
      body += f"atom.global.add.{type_} %x, [%rd1], %b;"
      body += f"ld.global.b{bits} %x, [%rd1];"
    else:
      body = f"""
        .shared .align 8 .b8 place[256];
        mov.u32 %r1, place;
        mad.lo.u32 %r1, %thread, {bits // 8}, %r1;
        st.shared.b{bits} [%r1], %a;
        atom.shared.add.{type_} %x, [%r1], %b;
        ld.shared.b{bits} %x, [%r1];
      """
    x = snippets.each(body, a, b, out=a.dtype)
    self.assertEqual(hex(x[0]), hex(expected))

  def test_minimum_of_nans(self):
    a = np.full(32, 0x7E00, np.uint16)
    x = snippets.each(
        "mad.wide.u32 %rd1, %thread, 2, %in0;"
        "atom.global.min.noftz.f16 %x, [%rd1], %a;"
        "ld.global.b16 %x, [%rd1];",
        a, out=np.uint16,
    )
    self.assertEqual(hex(x[0]), "0x7fff")


if __name__ == "__main__":
  absltest.main()
