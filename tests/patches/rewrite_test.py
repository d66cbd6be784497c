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
"""Tests of finding anchors and of putting code in their place."""

import difflib
import textwrap

import synthetic
from absl.testing import absltest, parameterized

from patches import rewrite
from patches.model import AnchorError, PatchError


def _diff(**edit) -> str:
  """Returns the lines that an edit removes and adds."""
  old = synthetic.SOURCE
  new = rewrite.rewrite(old, synthetic.make_edit(**edit))
  compile(new, "new", "exec")
  lines = difflib.unified_diff(old.split("\n"), new.split("\n"), n=0)
  return "\n".join(x for x in list(lines)[2:] if not x.startswith("@@"))


def _lines(text: str) -> str:
  return textwrap.dedent(text).strip("\n")


class RewriteTest(parameterized.TestCase):

  def test_statement_takes_the_anchor_s_indentation(self):
    self.assertEqual(
        _diff(scope="Ref.slice", anchor="total = 2",
              code="""
                  if stop > 1:
                    total = 4
              """),
        _lines("""
            -      total = 2
            +      if stop > 1:
            +        total = 4
        """),
    )

  def test_replaced_statement_takes_its_comment_along(self):
    self.assertEqual(
        _diff(scope="rows", anchor="total = $X", code="total = packing"),
        _lines("""
            -  total = shape[0] * packing  # Trailing.
            +  total = packing
        """),
    )

  def test_comment_above_belongs_to_the_anchor_on_request(self):
    self.assertEqual(
        _diff(scope="rows", anchor="if $C: $$$", action="before",
              with_comment=True, code="assert shape"),
        "+  assert shape",
    )
    self.assertEqual(
        _diff(scope="rows", anchor="if $C: $$$", action="delete",
              with_comment=True),
        _lines("""
            -  # The limit.
            -  if shape[0] > LIMIT:
            -    raise ValueError(f"too many rows: {shape}")
        """),
    )

  def test_expression_is_replaced_inline(self):
    self.assertEqual(
        _diff(scope="rows", anchor="shape[0] > LIMIT",
              code="shape[0] % LIMIT != 0"),
        _lines("""
            -  if shape[0] > LIMIT:
            +  if shape[0] % LIMIT != 0:
        """),
    )

  def test_lines_of_inline_code_align_with_the_anchor_s_line(self):
    self.assertEqual(
        _diff(scope="rows", anchor="ValueError($MESSAGE)",
              code="""
                  ValueError(
                      $MESSAGE
                      " (too bad)"
                  )
              """),
        _lines('''
            -    raise ValueError(f"too many rows: {shape}")
            +    raise ValueError(
            +        f"too many rows: {shape}"
            +        " (too bad)"
            +    )
        '''),
    )

  def test_body_is_wrapped_without_quoting_it(self):
    self.assertEqual(
        _diff(scope="rows", anchor="for i in range(total):\n  $$$BODY",
              code="""
                  for i in range(total):
                    if i:
                      $$$BODY
              """),
        # The string's lines stay where they are.
        _lines('''
            -    text = """
            +    if i:
            +      text = """
            -    os.write(i, text)
            +      os.write(i, text)
        '''),
    )

  def test_statements_through_a_later_one(self):
    self.assertEqual(
        _diff(scope="rows", anchor="if $C: $$$", through="total = $X",
              code="""
                  with shape:
                    $$$SELF
              """),
        _lines("""
            -  if shape[0] > LIMIT:
            -    raise ValueError(f"too many rows: {shape}")
            -  total = shape[0] * packing  # Trailing.
            +  with shape:
            +    if shape[0] > LIMIT:
            +      raise ValueError(f"too many rows: {shape}")
            +    total = shape[0] * packing  # Trailing.
        """),
    )

  @parameterized.parameters(
      ("after", "b=2", "c=3", "dict(a=total, b=2, c=3)"),
      ("after", "a=$X", "c=3", "dict(a=total, c=3, b=2)"),
      ("before", "a=$X", "c=3", "dict(c=3, a=total, b=2)"),
      ("replace", "b=$X", "b=$X + 1", "dict(a=total, b=2 + 1)"),
      ("delete", "a=$X", "", "dict(b=2)"),
      ("delete", "b=$X", "", "dict(a=total)"),
  )
  def test_argument(self, action, argument, code, expected):
    self.assertEqual(
        _diff(scope="Ref.slice", anchor=f"f({argument})",
              selector="keyword_argument", action=action, code=code),
        f"-    return dict(a=total, b=2)\n+    return {expected}",
    )

  def test_argument_on_a_line_of_its_own(self):
    where = dict(scope="rows", selector="keyword_argument", anchor="f(start=1)")
    self.assertEqual(
        _diff(**where, action="after", code="more=2"), "+      more=2,"
    )
    self.assertEqual(
        _diff(**where, action="before", code="more=2"), "+      more=2,"
    )
    self.assertEqual(
        _diff(**where, action="delete"), "-      start=1,  # One."
    )

  def test_parameter(self):
    self.assertIn(
        "+def rows(shape, packing: int = 1, other=2, *, strict=False):",
        _diff(scope="rows", anchor="def f(packing: int = 1): pass",
              selector="typed_default_parameter", action="after",
              code="other=2"),
    )

  def test_clause(self):
    self.assertEqual(
        _diff(scope="Ref.slice", anchor="if x: pass\nelif stop: $$$",
              selector="elif_clause", action="after",
              code="elif start is stop:\n  total = 4"),
        "+    elif start is stop:\n+      total = 4",
    )

  @parameterized.parameters(
      ("after", "rows", "def f():\n  pass",
       "  )\n\n\ndef f():\n  pass\n\n\nclass Ref:"),
      ("before", "rows", "def f():\n  pass",
       "  return f\n\n\ndef f():\n  pass\n\n\n@decorate\ndef rows"),
      ("after", "Ref.size", "def f(self):\n  pass",
       "self.width\n\n  def f(self):\n    pass\n\n  def slice"),
  )
  def test_definitions_are_set_apart(self, action, scope, code, expected):
    edit = synthetic.make_edit(scope=scope, action=action, code=code)
    self.assertIn(expected, rewrite.rewrite(synthetic.SOURCE, edit))

  def test_deleted_statement_takes_one_blank_line_along(self):
    edit = synthetic.make_edit(anchor="LIMIT = 4", action="delete")
    self.assertIn(
        "import os\n\n\ndef decorate", rewrite.rewrite(synthetic.SOURCE, edit)
    )

  def test_end_of_file(self):
    self.assertEqual(_diff(action="after", code="END = 1"), "+END = 1")

  def test_module_level_is_outside_definitions(self):
    text = "def f():\n  import os\nimport os\n"
    edit = synthetic.make_edit(anchor="import os", code="import sys")
    self.assertEqual(
        rewrite.rewrite(text, edit), "def f():\n  import os\nimport sys\n"
    )

  def test_containing_narrows(self):
    text = "def f():\n  g('one')\n  g('two')\n"
    edit = synthetic.make_edit(
        scope="f", anchor="g($X)", containing="two", code="h($X)"
    )
    self.assertIn("g('one')\n  h('two')", rewrite.rewrite(text, edit))

  def test_within_narrows_and_binds(self):
    self.assertEqual(
        _diff(scope="rows", within="for $I in range(total): $$$",
              anchor="os.write($$$ARGS)", code="os.write($$$ARGS, $I)"),
        "-    os.write(i, text)\n+    os.write(i, text, i)",
    )

  def test_metavariable_that_stands_for_nothing(self):
    edit = synthetic.make_edit(anchor="f($$$A)", code="f($$$A, b=1)")
    self.assertEqual(rewrite.rewrite("f()\n", edit), "f(b=1)\n")
    self.assertEqual(rewrite.rewrite("f(1,)\n", edit), "f(1, b=1)\n")

  def test_starlark(self):
    text = 'test(\n    name = "a",\n    deps = [\n        ":x",\n    ],\n)\n'
    edit = synthetic.make_edit(
        within='test(name = "a", $$$)', anchor='":x"', action="after",
        code='":y"',
    )
    self.assertIn(
        '        ":x",\n        ":y",\n', rewrite.rewrite(text, edit)
    )

  def test_text(self):
    text = "# Log\n\n## New\n\n* Added:\n\n## Old\n\n* Added:\n"
    edit = synthetic.make_edit(
        kind="text", within="## New", anchor="* Added:", action="after",
        code="  * $THIS stays",
    )
    self.assertEqual(
        rewrite.rewrite(text, edit),
        text.replace("Added:", "Added:\n* $THIS stays", 1),
    )

  def test_characters_beyond_ascii(self):
    edit = synthetic.make_edit(anchor="a = 1", code="a = 'ß'")
    self.assertEqual(
        rewrite.rewrite("x = 'é→'\na = 1\n", edit), "x = 'é→'\na = 'ß'\n"
    )


class RefusalTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ("missing", dict(scope="rows", anchor="nothing()"), "found 0"),
      ("twice", dict(scope="Ref.slice", anchor="total = $X"),
       r"found 3 \(lines 41, 43, 45\)"),
      ("no_scope", dict(scope="Ref.load", anchor="x"),
       "scope 'Ref.load' to be defined once, found 0"),
      ("broken", dict(scope="rows", anchor="f(1 2"), "does not parse"),
      ("several_nodes", dict(scope="rows", anchor="a; b"), "no ast-grep"),
      ("selector", dict(scope="rows", anchor="f(a)", selector="pair"),
       "no ast-grep pattern with a 'pair'"),
      ("within", dict(scope="rows", within="while 1: $$$", anchor="x"),
       "expected within"),
      ("through", dict(scope="rows", anchor="total = $X", through="f()"),
       "expected through"),
      ("text", dict(kind="text", anchor="LIMIT"), "the line 'LIMIT' exactly"),
  )
  def test_anchor(self, edit, message):
    with self.assertRaisesRegex(AnchorError, message):
      _diff(code="x", **edit)

  def test_statement_that_shares_its_line(self):
    edit = synthetic.make_edit(anchor="b()", action="after", code="c()")
    with self.assertRaisesRegex(AnchorError, "lines for itself"):
      rewrite.rewrite("a(); b()\n", edit)

  @parameterized.named_parameters(
      ("action", dict(anchor="x", action="remove"), "an action among"),
      ("kind", dict(anchor="x", kind="toml", code="y"), "a kind among"),
      ("no_code", dict(anchor="x"), "expected some code"),
      ("code", dict(anchor="x", action="delete", code="y"), "expected no"),
      ("nowhere", dict(code="y"), "expected action 'after'"),
      ("unbound", dict(anchor="f($X)", code="$Y"), r"uses \$Y, but its"),
      ("path", dict(file="../x.py", anchor="x", code="y"), "Expected a path"),
      ("versions", dict(anchor="x", code="y", versions="0.12"), "a tuple"),
  )
  def test_edit(self, edit, message):
    with self.assertRaisesRegex(PatchError, message):
      synthetic.make_edit(**edit)

  @parameterized.named_parameters(
      ("subject", dict(subject="a\nb"), "subject of one line"),
      ("long_line", dict(body="word " * 20), "at most 72"),
      ("trap", dict(body="x\n--- a\n"), "git am"),
      ("empty", dict(body=" "), "a body that says why"),
      ("nothing", {}, "at least one edit"),
      ("no_tuple", dict(tests="a.py"), "a tuple as tests"),
  )
  def test_patch(self, fields, message):
    with self.assertRaisesRegex(PatchError, message):
      synthetic.Patch(**({"subject": "[A] B", "body": "Why."} | fields))


class CommentTest(absltest.TestCase):

  def test_comment_behind_an_element(self):
    text = "f(\n    a=1,  # One.\n    b=2,  # Two.\n)\n"
    edit = synthetic.make_edit(anchor="f(a=1)", selector="keyword_argument",
                               code="a=3", with_comment=True)
    self.assertEqual(
        rewrite.rewrite(text, edit), "f(\n    a=3,\n    b=2,  # Two.\n)\n"
    )


if __name__ == "__main__":
  absltest.main()
