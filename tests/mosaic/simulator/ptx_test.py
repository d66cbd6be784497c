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
"""The PTX parser."""

from __future__ import annotations

import struct

import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors, ptx

HEADER = snippets.HEADER


def parse(body: str, params: str = "", directives: str = "") -> ptx.Kernel:
  text = f"{HEADER}.visible .entry k({params})\n{directives}\n{{\n{body}\n}}\n"
  return ptx.parse(text).entries["k"]


class InstructionTest(parameterized.TestCase):

  @parameterized.parameters(
      ("mov.b32 %r1, 17;", ptx.Immediate(17)),
      ("mov.b32 %r1, -17;", ptx.Immediate(-17)),
      ("mov.b32 %r1, 0x1fU;", ptx.Immediate(31)),
      ("mov.b32 %r1, 0b101;", ptx.Immediate(5)),
      ("mov.b32 %r1, 017;", ptx.Immediate(15)),
      ("mov.b32 %r1, 0f3FC00000;", ptx.Immediate(1.5, 32)),
      ("mov.b64 %r1, 0d4000000000000000;", ptx.Immediate(2.0, 64)),
      ("mov.f64 %r1, 1.25;", ptx.Immediate(1.25, 64)),
      ("mov.u32 %r1, %tid.x;", ptx.Special("%tid.x")),
      ("mov.u32 %r1, WARP_SZ;", ptx.Immediate(32)),
      ("mov.b64 %r1, buf;", ptx.Symbol("buf")),
      ("mov.b64 %r1, buf+16;", ptx.Symbol("buf", 16)),
      ("mov.b32 %r1, %r2;", ptx.Register("%r2")),
      ("mov.b32 %r1, _;", ptx.Sink()),
      ("x %r1, !%p1;", ptx.Negated(ptx.Register("%p1"))),
      ("x %r1, [%r2];", ptx.Address(ptx.Register("%r2"))),
      ("x %r1, [%r2+8];", ptx.Address(ptx.Register("%r2"), 8)),
      ("x %r1, [%r2+-8];", ptx.Address(ptx.Register("%r2"), -8)),
      ("x %r1, [%r2-8];", ptx.Address(ptx.Register("%r2"), -8)),
      ("x %r1, [buf+0x10];", ptx.Address(ptx.Symbol("buf", 16))),
      ("x %r1, [64];", ptx.Address(ptx.Immediate(64))),
      ("x %r1, {%r2, 3, _};", ptx.Vector(
          (ptx.Register("%r2"), ptx.Immediate(3), ptx.Sink()))),
      ("x %r1, %r2|%p1;", ptx.Pair(ptx.Register("%r2"), ptx.Register("%p1"))),
      ("x %r1, [%r2, {%r3,%r4} ];", ptx.AddressWithVector(
          ptx.Address(ptx.Register("%r2")),
          ptx.Vector((ptx.Register("%r3"), ptx.Register("%r4"))))),
  )
  def test_operands(self, line, expected):
    kernel = parse(
        ".reg .b32 %r<9>; .reg .pred %p<3>;"
        f".shared .align 16 .b8 buf[64];\n{line}"
    )
    self.assertEqual(kernel.body[0].operands[1], expected)

  @parameterized.parameters(
      ("@%p1 ret;", (ptx.Register("%p1"), False)),
      ("@!%p1 ret;", (ptx.Register("%p1"), True)),
      ("ret;", None),
  )
  def test_guard(self, line, guard):
    kernel = parse(f".reg .pred %p<3>;\n{line}")
    self.assertEqual(kernel.body[0].guard, guard)
    self.assertEqual(kernel.body[0].opcode, "ret")
    self.assertEqual(kernel.body[0].text, line)

  def test_opcode_line_and_text(self):
    kernel = parse(
        ".reg .b32 %r<2>;\n// a comment\n/* another\n one */"
        "tcgen05.cp.cta_group::1.128x128b [%r0],\n  %r1;"
    )
    [ins] = kernel.body
    self.assertEqual(ins.opcode, "tcgen05.cp.cta_group::1.128x128b")
    self.assertEqual(ins.line, 10)
    self.assertEndsWith(ins.text, "%r1;")

  def test_float_constants_keep_every_bit(self):
    kernel = parse(".reg .b32 %r<2>;\nmov.b32 %r0, 0fFFC00001;")
    value = kernel.body[0].operands[1].value
    self.assertNotEqual(value, value)
    self.assertEqual(struct.pack(">f", value)[:2], b"\xff\xc0")


class ScopeTest(parameterized.TestCase):

  BLOCK = """{
    .reg .pred P1;
    LAB_WAIT:
    setp.eq.u32 P1, %r0, 0;
    @P1 bra.uni DONE;
    bra.uni LAB_WAIT;
    DONE:
  }
  """

  def test_names_of_blocks_are_their_own(self):
    kernel = parse(".reg .b32 %r<2>;\n" + self.BLOCK * 2 + "ret;")
    targets = [
        ins.operands[0].target for ins in kernel.body
        if ins.opcode == "bra.uni"
    ]
    self.assertEqual(targets, [3, 0, 6, 3])
    registers = {
        ins.operands[0] for ins in kernel.body if ins.opcode == "setp.eq.u32"
    }
    self.assertLen(registers, 2)
    self.assertEqual(kernel.body[0].operands[1], kernel.body[3].operands[1])

  def test_innermost_declaration_wins(self):
    kernel = parse("""
      .reg .b32 a;
      mov.b32 a, 1;
      { .reg .b64 a; mov.b64 a, 2; { mov.b64 a, 3; } }
      mov.b32 a, 4;""")
    names = [ins.operands[0].name for ins in kernel.body]
    self.assertEqual(names[0], names[3])
    self.assertEqual(names[1], names[2])
    self.assertNotEqual(names[0], names[1])
    self.assertEqual(kernel.registers[names[0]], "b32")
    self.assertEqual(kernel.registers[names[1]], "b64")

  def test_branch_to_an_outer_and_a_later_label(self):
    kernel = parse("start:\n{ bra end; bra start; }\nret;\nend:\nret;")
    self.assertEqual(
        [ins.operands[0].target for ins in kernel.body[:2]], [3, 0]
    )

  def test_a_name_of_a_closed_block_is_gone(self):
    with self.assertRaisesRegex(errors.PtxSyntaxError, "undeclared name 'a'"):
      parse("{ .reg .b32 a; }\nmov.b32 a, 1;")
    with self.assertRaisesRegex(errors.PtxSyntaxError, "unknown label 'in'"):
      parse("{ in: ret; }\nbra in;")


class DeclarationTest(parameterized.TestCase):

  def test_params(self):
    kernel = parse(
        "ret;",
        ".param .u64 .ptr .align 256 a, .param .u32 b,"
        " .param .align 64 .b8 maps[384], .param .u8 c",
    )
    self.assertEqual(
        [(p.name, p.align, p.size, p.offset) for p in kernel.params],
        [
            ("a", 8, 8, 0), ("b", 4, 4, 8), ("maps", 64, 384, 64),
            ("c", 1, 1, 448),
        ],
    )

  def test_directives(self):
    kernel = parse(
        "ret;", directives=(
            ".maxntid 128, 1, 1\n.minnctapersm 1\n.explicitcluster\n"
            ".reqnctapercluster 2, 1, 1"
        ),
    )
    self.assertEqual(kernel.maxntid, (128, 1, 1))
    self.assertEqual(kernel.reqnctapercluster, (2, 1, 1))
    self.assertTrue(kernel.explicit_cluster)

  def test_variables(self):
    module = ptx.parse(
        HEADER + ".extern .shared .align 128 .b8 dyn[];\n"
        ".global .align 4 .b8 text[6] = {72, 105, 0x21};\n"
        ".visible .entry k() { .shared .align 16 .b8 __dynamic_shmem__0;\n"
        ".shared .align 8 .b64 bars[4]; .local .align 4 .b8 depot[12]; ret; }"
    )
    variables = module.entries["k"].variables
    self.assertTrue(variables["dyn"].dynamic)
    self.assertTrue(variables["__dynamic_shmem__0"].dynamic)
    self.assertEqual(variables["__dynamic_shmem__0"].align, 16)
    self.assertEqual(variables["bars"].size, 32)
    self.assertEqual(variables["depot"].space, "local")
    self.assertEqual(variables["text"].data, b"Hi!\0\0\0")
    self.assertEqual(set(module.entries["k"].shared),
                     {"dyn", "__dynamic_shmem__0", "bars"})

  def test_what_llvm_adds(self):
    module = ptx.parse(
        HEADER + "// .globl k\n.extern .func (.param .b32 r) vprintf (\n"
        ".param .b64 a, .param .b64 b\n)\n;\n"
        ".visible .entry k() {\n$L__func_begin0:\n.loc 1 1 0\n"
        ".loc 1 2 3, function_name $L__info, inlined_at 1 5 3\n"
        '.pragma "nounroll";\nret;\n$L__func_end0:\n\n}\n'
        '.section .debug_macinfo { .b8 1 }\n.file 1 "<unknown>"\n'
    )
    self.assertLen(module.entries["k"].body, 1)
    self.assertEqual(module.target, "sm_100a")


class ErrorTest(parameterized.TestCase):

  def test_target(self):
    text = HEADER.replace("sm_100a", "sm_90a") + ".entry k() { ret; }"
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError, r"PTX for sm_90a; expected sm_100a"
    ):
      ptx.parse(text)
    module = ptx.parse(text, targets=("sm_100a", "sm_90a"))
    self.assertEqual(module.target, "sm_90a")

  @parameterized.parameters(1, 5, 20, 40)
  def test_truncated(self, cut):
    with self.assertRaisesRegex(errors.PtxSyntaxError, "truncated|no .entry"):
      ptx.parse(
          (HEADER + ".visible .entry k() { .reg .b32 a;\n"
           "mov.b32 a, 1;\nadd.s32 a, a, a;\nret;\n}")[:-cut]
      )

  @parameterized.parameters(
      (".sreg .b32 a;", errors.UnsupportedPtxError,
       "Unknown directive '.sreg'"),
      (".reg .b33 a;", errors.UnsupportedPtxError, "register type .b33"),
      ("mov.b32 a, 1;", errors.PtxSyntaxError, "undeclared name 'a'"),
      ("@a ret;", errors.PtxSyntaxError, "undeclared predicate 'a'"),
      ("bra nowhere;", errors.PtxSyntaxError, "unknown label 'nowhere'"),
      ("a: ret; a: ret;", errors.PtxSyntaxError, "'a' is defined twice"),
      ("add.s32 5 6;", errors.PtxSyntaxError, "expected ';', got '6'"),
      ("ret; `", errors.PtxSyntaxError, "Unexpected text '`'"),
      (".reg .b32 a; mov.b32 a, [{a}];", errors.PtxSyntaxError,
       "expected a register, symbol or number"),
  )
  def test_message_and_line(self, body, error, message):
    with self.assertRaisesRegex(error, message) as caught:
      parse(body)
    self.assertEqual(caught.exception.where.line, 7)
    self.assertIn("PTX line 7: `", str(caught.exception))

  def test_unknown_module_directive(self):
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError, "'.tex'.*\n.*PTX line 4"
    ):
      ptx.parse(HEADER + ".tex .u32 t;\n.entry k() { ret; }")

  def test_functions_are_refused(self):
    with self.assertRaisesRegex(errors.UnsupportedPtxError, "Functions"):
      ptx.parse(HEADER + ".func f() { ret; }\n.entry k() { ret; }")


if __name__ == "__main__":
  absltest.main()
