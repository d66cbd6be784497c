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
"""The instruction table: templates, look-up, and what is not modelled."""

from __future__ import annotations

import snippets
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors, ptx, table


def parse(lines: str) -> ptx.Module:
  return ptx.parse(
      f"{snippets.HEADER}.visible .entry k() {{\n.reg .pred %p<9>;"
      " .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;"
      f" .reg .b128 %rq<3>;\n{lines}\n}}"
  )


def first(line: str) -> ptx.Instruction:
  return parse(line).entries["k"].body[0]


class TemplateTest(parameterized.TestCase):

  @parameterized.parameters(
      ("add.<type:s32|u32>", "add.u32", {"type": "u32"}),
      ("add.<type:s32|u32>", "add.u64", None),
      ("add.<type:s32|u32>", "add.u32.x", None),
      ("add[.<sat>].<type:s32>", "add.s32", {"sat": None, "type": "s32"}),
      ("add[.<sat>].<type:s32>", "add.sat.s32", {"sat": "sat", "type": "s32"}),
      ("ld[.<space:shared|shared::cta>].b32", "ld.shared::cta.b32",
       {"space": "shared::cta"}),
      ("<name:and|or>.b32", "or.b32", {"name": "or"}),
      ("a[.<b>[.<c>]].d", "a.b.c.d", {"b": "b", "c": "c"}),
      ("a[.<b>[.<c>]].d", "a.c.d", None),
      ("a.b", "axb", None),
  )
  def test_opcode(self, template, opcode, fields):
    pattern, _ = table._compile_opcode(template)
    found = pattern.fullmatch(opcode)
    self.assertEqual(found and found.groupdict(), fields)

  @parameterized.parameters(
      ("add.b32", ["add"]),
      ("<name:and|or>.b32", ["and", "or"]),
      ("<name:bar.x|y>.b32", ["bar", "y"]),
  )
  def test_heads(self, template, heads):
    self.assertEqual(table._compile_opcode(template)[1], heads)

  @parameterized.parameters(
      ("d, a", "x %r1, 5;", {"d": "Register", "a": "Immediate"}),
      ("d, a", "x %r1, [%r2];", None),
      ("d, a", "x %r1;", None),
      ("d, a", "x %r1, %r2, %r3;", None),
      ("d, a?", "x %r1;", {"d": "Register", "a": "NoneType"}),
      ("[a], b", "x [%r1], %r2;", {"a": "Address", "b": "Register"}),
      ("{d}, a", "x {%r1,%r2}, _;", {"d": "Vector", "a": "Sink"}),
      ("d|p, a", "x %r1|%p1, 1;",
       {"d": "Register", "p": "Register", "a": "Immediate"}),
      ("d|p, a", "x %r1, 1;", None),
      ("d[|p], a", "x %r1, 1;",
       {"d": "Register", "p": "NoneType", "a": "Immediate"}),
      ("d, !a", "x %r1, !%p1;", {"d": "Register", "a": "Negated"}),
      ("d, a", "x %r1, !%p1;", None),
      ("[map, {c}], [b]?", "x [%rd1, {%r1,%r2}];",
       {"map": "Address", "c": "Vector", "b": "NoneType"}),
      ("[map, {c}], [b]?", "x [%rd1, {%r1,%r2}], [%r3];",
       {"map": "Address", "c": "Vector", "b": "Address"}),
  )
  def test_operands(self, template, line, expected):
    entry = table.Entry(
        "x", template, "", False, lambda op: None,
        table._compile_opcode("x")[0], table._compile_operands(template),
    )
    values = entry.match_operands(first(line).operands)
    if values is not None:
      values = {k: type(v).__name__ for k, v in values.items()}
    self.assertEqual(values, expected)

  def test_a_bad_template_is_an_error(self):
    with self.assertRaisesRegex(ValueError, "a name stands twice"):
      table.instruction("add.<a:x|y>", "d, a", section="")
    with self.assertRaisesRegex(ValueError, "cannot read operand 'd#'"):
      table.instruction("add", "d#", section="")
    with self.assertRaisesRegex(ValueError, "unbalanced"):
      table.instruction("add[.x", "d", section="")


class LookupTest(parameterized.TestCase):

  def test_unmodelled(self):
    module = parse(
        "add.s32 %r1, %r2, %r3;\nwgmma.fence.sync.aligned;\n"
        "add.s31 %r1, %r2, %r3;\nadd.s32 %r1, [%r2], %r3;\nret;"
    )
    rows = table.unmodelled(module)
    self.assertEqual([line for line, _, _ in rows], [7, 8, 9])
    self.assertEqual(rows[1][1], "add.s31 %r1, %r2, %r3;")
    self.assertIn("no instruction of this name", rows[0][2])
    self.assertIn("expected a form of", rows[1][2])
    self.assertIn("expected operands `d, a, b`", rows[2][2])

  def test_unknown_instruction_names_its_line(self):
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError,
        r"Not modelled: `tex.2d`.*\n.*PTX line \d+: `tex.2d %r0, %r1;`",
    ):
      snippets.run("tex.2d %r0, %r1;")

  def test_refused_combination_names_its_line(self):
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError,
        r"number of registers does not fit the vector.*\n.*`ld.global.v4.b32",
    ):
      snippets.run("ld.global.v4.b32 {%r0, %r1}, [%rd0];")

  def test_no_form_stands_twice(self):
    table.load()
    # An entry stands under each word its opcode may begin with.
    entries = {id(e): e for es in table._entries.values() for e in es}
    forms = [(e.opcode, e.operands) for e in entries.values()]
    self.assertLen(set(forms), len(forms))
    self.assertGreater(len(forms), 150)

  @parameterized.parameters(
      "add.s32 %r1, %r2, %r3;", "mul.wide.u32 %rd1, %r2, 8;",
      "mad.lo.s32 %r1, %r2, %r3, %r4;", "fma.rn.f32 %r1, %r2, %r3, %r4;",
      "setp.eq.and.b32 %p1, %r1, 0, %p2;", "setp.lt.f32 %p1, %r1, %r2;",
      "ld.param::entry.b64 %rd1, [%rd2];", "ld.shared.b128 %rq1, [%r1];",
      "st.global.v2.b32 [%rd1], {%r1, %r2};", "bar.sync 0;",
      "red.global.add.f32 [%rd1], %r1;", "fence.proxy.async;",
      "fence.proxy.async.shared::cta;", "prefetch.tensormap [%rd1];",
      "cvt.rn.f16x2.f32 %r1, %r2, %r3;", "cvt.u32.u64 %r1, %rd1;",
      "min.NaN.f32 %r1, %r2, %r3;", "mov.b64 {%r1, %r2}, %rd1;",
      "elect.sync %r1|%p1, -1;", "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;",
      "and.pred %p1, %p2, %p3;", "neg.f32 %r1, %r2;", "abs.s32 %r1, %r2;",
      "barrier.cluster.arrive.relaxed.aligned;", "cp.async.commit_group;",
  )
  def test_one_entry_fits(self, line):
    ins = first(line)
    table.load()
    entries = [
        e for e in table._entries[ins.opcode.partition(".")[0]]
        if e.regex.fullmatch(ins.opcode)
        and e.match_operands(ins.operands) is not None
    ]
    self.assertLen(entries, 1)


if __name__ == "__main__":
  absltest.main()
