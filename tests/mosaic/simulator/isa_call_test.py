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
"""Calls of vprintf, by hand and as mgpu.debug_print makes them."""

from __future__ import annotations

import contextlib
import io

import jax.numpy as jnp
import numpy as np
import snippets
from absl.testing import absltest, parameterized
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith, gpu

import jax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu.simulator import errors

# %rd0: the text, %rd1: its arguments.
CALL = """
{
.param .b64 param0;
.param .b64 param1;
.param .b32 retval0;
st.param::func.b64 [param1], %rd1;
st.param.b64 [param0], %rd0;
call.uni (retval0), vprintf, (param0, param1);
ld.param.b32 %r0, [retval0];
}
"""
STORE = "mad.wide.u32 %rd9, %thread, 4, %in0;\nst.global.b32 [%rd9], %r0;\n"


def captured(function, *args, **kwargs):
  """What a function returns, and what it prints."""
  stdout = io.StringIO()
  with contextlib.redirect_stdout(stdout):
    result = function(*args, **kwargs)
  return result, stdout.getvalue()


def printf(text: str, values: bytes = b""):
  """Result and output of vprintf in one thread."""
  body = "mov.b64 %rd0, %in1;\nmov.b64 %rd1, %in2;\n" + CALL + STORE
  arrays, printed = captured(
      snippets.run, body, np.zeros(1, np.int32),
      np.frombuffer(text.encode() + b"\0", np.uint8),
      np.frombuffer(values.ljust(8, b"\0"), np.uint8), threads=1,
  )
  return int(arrays[0][0]), printed


def pack(*values) -> bytes:
  """Values at their natural alignment."""
  result = b""
  for value in values:
    size = value.dtype.itemsize
    result = result.ljust(-(-len(result) // size) * size, b"\0")
    result += value.tobytes()
  return result


class SnippetTest(parameterized.TestCase):

  def test_threads_and_scopes(self):
    """Threads print in order; each scope has its own `param0`."""
    body = (
        ".local .align 8 .b8 depot[16];\n.reg .b64 %SPL;\n"
        "mov.b64 %SPL, depot;\ncvta.local.u64 %rd1, %SPL;\n"
        "st.local.b32 [%SPL], %thread;\nst.local.b64 [%SPL+8], -1;\n"
        "mov.b64 %rd0, %in1;\n"
        "setp.gt.u32 %p, %thread, 29;\n@!%p bra $rest;\n"
        + CALL + STORE + "$rest:\nmov.b64 %rd0, %in2;\n"
        "setp.lt.u32 %p, %thread, 2;\n@!%p bra $end;\n"
        + CALL + "$end:\n"
    )
    texts = [
        np.frombuffer(t + b"\0", np.uint8) for t in (b"%d %lld\n", b"<%5u>\n")
    ]
    (counts, *_), printed = captured(
        snippets.run, body, np.full(32, 7, np.int32), *texts
    )
    self.assertEqual(printed, "30 -1\n31 -1\n<    0>\n<    1>\n")
    np.testing.assert_array_equal(counts, [7] * 30 + [2] * 2)

  def test_registers_and_null(self):
    """Arguments and result need no variables; without a text it fails."""
    body = "call (%r0), vprintf, (0, %in0);\n" + STORE
    (counts,), printed = captured(
        snippets.run, body, np.zeros(32, np.int32)
    )
    self.assertEqual(printed, "")
    np.testing.assert_array_equal(counts, -1)

  def test_param_array(self):
    """Variables of bytes, accessed by part."""
    out = np.zeros(32, np.int32)
    body = (
        "{ .param .align 8 .b8 p[16];\nst.param.v2.b32 [p+8], {%thread, 5};\n"
        "ld.param.b32 %r0, [p+8];\nld.param::func.b32 %r1, [p+12];\n"
        "add.s32 %r0, %r0, %r1;\n}" + STORE
    )
    np.testing.assert_array_equal(snippets.run(body, out)[0],
                                  np.arange(32) + 5)

  # What the C library of Linux prints.
  @parameterized.parameters(
      ("plain 100%%\n", (), "plain 100%\n", 0),
      ("é", (), "é", 0),
      ("%d|%i|%u|%x|%X|%o", (np.int32(-1),) * 6,
       "-1|-1|4294967295|ffffffff|FFFFFFFF|37777777777", 6),
      ("%lld %llu %ld %llx %zu", (np.int64(-2),) * 5,
       "-2 18446744073709551614 -2 fffffffffffffffe 18446744073709551614", 5),
      ("%hd %hhu", (np.int32(0x12345), np.int32(0x1FF)), "9029 255", 2),
      ("%c%5c|%-3c|", (np.int32(65), np.int32(66), np.int32(67)),
       "A    B|C  |", 3),
      ("%5d|%-5d|%05d|%+d|% d|%.3d|%08.3d|%.0d|", (np.int32(7),) * 7
       + (np.int32(0),), "    7|7    |00007|+7| 7|007|     007||", 8),
      ("%#x %#x %#o %+u %#08x", tuple(map(np.int32, (0, 255, 8, 3, 255))),
       "0 0xff 010 3 0x0000ff", 5),
      ("%*d|%-*d|%.*f", (np.int32(4), np.int32(1), np.int32(3), np.int32(2),
                         np.int32(1), np.float64(0.25)), "   1|2  |0.2", 6),
      ("%f %e %g %G %.2f %8.1f|%-8.1f|%08.1f|%+g", (np.float64(1234.5678),) * 9,
       "1234.567800 1.234568e+03 1234.57 1234.57 1234.57   1234.6|1234.6  |"
       "001234.6|+1234.57", 9),
      ("%f %F %05f %g %.0f %#.0f", tuple(map(
          np.float64, (np.inf, -np.inf, np.inf, -0.0, 2.5, 2.5))),
       "inf -INF   inf -0 2 2.", 6),
      ("%f %f", (np.float64(np.nan), -np.float64(np.nan)), "nan -nan", 2),
      ("%d %f %d %lld", (np.int32(1), np.float64(2), np.int32(3), np.int64(4)),
       "1 2.000000 3 4", 4),  # With padding between them.
      ("%p %p %8p|", (np.int64(0), np.int64(0xABC0), np.int64(16)),
       "(nil) 0xabc0     0x10|", 3),
      ("%d" * 33, (np.int32(1),) * 33, "1" * 32 + "%d", 32),
  )
  def test_format(self, text, values, expected, count):
    self.assertEqual(printf(text, pack(*values)), (count, expected))

  def test_string(self):
    """Of several threads, one with a string of its own."""
    body = (
        ".local .align 8 .b8 depot[16];\n.reg .b64 %SPL;\n"
        "mov.b64 %SPL, depot;\ncvta.local.u64 %rd1, %SPL;\n"
        "cvt.u64.u32 %rd2, %thread;\nadd.s64 %rd2, %rd2, %in2;\n"
        "st.local.b64 [%SPL], %rd2;\nst.local.b64 [%SPL+8], %rd2;\n"
        "mov.b64 %rd0, %in1;\n" + CALL + STORE
    )
    (counts, *_), printed = captured(
        snippets.run, body, np.zeros(3, np.int32),
        np.frombuffer(b"%4s %.1s\n\0", np.uint8),
        np.frombuffer(b"abc\0", np.uint8), threads=3,
    )
    self.assertEqual(printed, " abc a\n  bc b\n   c c\n")
    np.testing.assert_array_equal(counts, 2)

  @parameterized.parameters("%a", "%y", "100%")
  def test_unknown_conversion(self, text):
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError, "conversion at byte .*(.|\n)*lane 0"
    ):
      printf(text, bytes(8))

  def test_arguments_outside(self):
    with self.assertRaises(errors.MemoryFault):
      printf("%d %d %d", bytes(8))

  @parameterized.parameters(
      ("call.uni (%r0), malloc, (%rd0);", "only vprintf .* not `malloc`"),
      ("call malloc, (%rd0);", "only vprintf .* not `malloc`"),
      ("call.uni malloc;", "only vprintf .* not `malloc`"),
      ("call (%r0), %rd0, (%rd0, %rd0), proto;", "only vprintf .* not `%rd0`"),
      ("call vprintf, (%rd0, %rd0);", "one result and two arguments"),
      ("call (%r0), vprintf, (%rd0);", "one result and two arguments"),
      ("{ .param .b32 a; call (%r0), vprintf, (a, %rd0); }", "such of 8"),
      ("{ .param .b64 a; call (a), vprintf, (%rd0, %rd0); }", "of 4 bytes"),
      ("call (%r0), vprintf, (%rd0, in0);", "undeclared name 'in0'"),
      ("call (%r0), vprintf, (p0, p0);", "such of 8"),
      ("{ .param .b32 a; mov.b32 %r0, a; }", "address of the .param .* a;"),
      ("{ .param .b32 a; st.param.b64 [a], 0; }", "variable has 4 bytes"),
      ("{ .param .b32 a; st.param.b32 [a+4], 0; }", "variable has 4 bytes"),
      ("{ .param .b32 a; st.shared.b32 [a], 0; }", "needs a .param variable"),
      ("{ .param .b32 a; }\nst.param.b32 [a], 0;", "undeclared name 'a'"),
      ("st.param.b64 [p0], 0;", "cannot be stored to"),
      ("st.param::func.b64 [p0], 0;", "needs a .param variable"),
  )
  def test_refused(self, body, message):
    expected = errors.UnsupportedPtxError, errors.PtxSyntaxError
    with self.assertRaisesRegex(expected, message):
      snippets.run(body, np.zeros(32, np.int32))


class DebugPrintTest(absltest.TestCase):

  def test_values(self):
    """i32, i64 and f32, from one thread and from all of them."""

    def body(ctx, x, out, scratch):
      del ctx, scratch
      i32 = ir.IntegerType.get_signless(32)
      i64 = ir.IntegerType.get_signless(64)
      array = mgpu.FragmentedArray.load_strided(x)
      thread = arith.index_cast(i32, gpu.thread_id(gpu.Dimension.x))
      mgpu.utils.debug_print(
          "x={} y={}", arith.constant(i32, 7), arith.constant(i64, 1 << 40)
      )
      mgpu.utils.debug_print("no values, 100%%")
      [register] = array.registers.flat
      mgpu.utils.debug_print(
          "{}: {} {}", thread, register, arith.extui(i64, thread),
          uniform=False,
      )
      array.store_untiled(out)

    ty = jax.ShapeDtypeStruct((256,), jnp.float32)
    x = jnp.arange(256, dtype=jnp.float32) / 4
    with simulator.simulate(), mlir.make_ir_context(), ir.Location.unknown():
      kernel = mgpu.as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), ty, ty, smem_scratch_shape=()
      )
      result, printed = captured(lambda: np.asarray(kernel(x)))
    np.testing.assert_array_equal(result, x)
    lines = ["x=7 y=1099511627776", "no values, 100%"]
    lines += [
        f"{i}: [{x[2 * i]:.6f},{x[2 * i + 1]:.6f}] {i}" for i in range(128)
    ]
    self.assertEqual(printed.splitlines(), lines)


if __name__ == "__main__":
  absltest.main()
