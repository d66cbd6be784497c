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
"""Finding the one place in a source text that an edit means.

`ast-grep-py` parses and matches; this module adds scopes ("the method `slice`
of the class `TMEMRef`"), the rule that everything matches exactly once, and
the decision how the match stands in its text: as whole lines, as an element of
a comma-separated list, or inside a line.
"""

from __future__ import annotations

import dataclasses
import re

import ast_grep_py

from patches.model import METAVARIABLE, SELF, AnchorError, Edit

# How a match stands in its text.
LINES = "lines"
ELEMENT = "element"
INLINE = "inline"

_DEFINITIONS = ("function_definition", "class_definition")
# Parts of compound statements that have lines of their own.
_CLAUSES = (
    "elif_clause", "else_clause", "except_clause", "except_group_clause",
    "finally_clause", "case_clause",
)
_COMMA_LISTS = (
    "argument_list", "parameters", "lambda_parameters", "list", "tuple",
    "dictionary", "set", "expression_list", "pattern_list", "type_parameter",
)


@dataclasses.dataclass(frozen=True)
class Range:
  """Part of a text, as character offsets."""

  start: int
  end: int


@dataclasses.dataclass(frozen=True)
class Place:
  """Where an edit happens.

  Attributes:
    range: the matched text.
    style: how it stands in its text: LINES, ELEMENT or INLINE.
    defines: whether it is a class or function definition.
    captures: what the metavariables stand for; None for nothing at all.
    strings: the lines (counted from 0) that begin inside a string literal.
  """

  range: Range
  style: str
  defines: bool
  captures: dict[str, Range | None]
  strings: frozenset[int]


def find(text: str, edit: Edit) -> Place:
  """Returns the place that `edit` means in `text`.

  Raises:
    AnchorError: there is no such place, or there are several. The message
      starts in mid-sentence: the caller knows patch and version.
  """
  root = ast_grep_py.SgRoot(text, "python").root()
  scope = _find_scope(root, edit.scope)
  captures = {}
  if not edit.anchor:
    if scope is root:
      return Place(Range(len(text), len(text)), LINES, False, {}, frozenset())
    first = last = scope
  else:
    module_level = not edit.scope
    if edit.within:
      scope = _only(
          _find_all(scope, edit.within, "", module_level), "within",
          edit.within, edit.scope,
      )
      captures |= _captures(scope, edit.within, text)
      module_level = False
    pattern = edit.anchor
    matches = _find_all(scope, pattern, edit.selector, module_level)
    if edit.containing:
      matches = [m for m in matches if edit.containing in m.text()]
    node = _only(matches, "anchor", pattern, edit.within or edit.scope)
    captures |= _captures(node, pattern, text)
    first = last = _lift(node, keep_decorators=edit.action == "replace")
  if edit.through:
    last = _find_through(first, edit.through)
  start, end = first.range().start.index, last.range().end.index
  if edit.with_comment:
    start = _comment_start(text, start)
  style = _style(text, start, end, first)
  if style == LINES:
    end = _comment_end(text, end)
  elif edit.through or _is_statement(first) and edit.action != "replace":
    raise AnchorError(
        f"expected anchor {edit.anchor!r} to have its lines for itself, but"
        f" line {first.range().start.line + 1} or the anchor's last one holds"
        " more; anchor the enclosing statement"
    )
  captures[SELF] = Range(start, end)
  return Place(
      Range(start, end), style, _defines(first), captures, _string_lines(root)
  )


def _find_scope(root, scope: str):
  """Returns the definition that a dotted path names."""
  candidates = [root]
  for part in scope.split(".") if scope else ():
    candidates = [
        definition
        for node in candidates
        for definition in _definitions(node)
        if definition.field("name").text() == part
    ]
  if len(candidates) != 1:
    raise AnchorError(
        f"expected scope {scope!r} to be defined once, found"
        f" {len(candidates)}{_lines(candidates)}"
    )
  return _with_decorators(candidates[0])


def _definitions(node):
  """Yields the definitions in a node, but none inside another one."""
  todo = list(reversed(node.children()))
  while todo:
    child = todo.pop()
    if child.kind() in _DEFINITIONS:
      yield child
    else:
      todo.extend(reversed(child.children()))


def _with_decorators(node):
  parent = node.parent()
  if parent is not None and parent.kind() == "decorated_definition":
    return parent
  return node


def _find_all(scope, pattern: str, selector: str, module_level: bool):
  """Returns all matches of a pattern inside a scope."""
  rule = {"context": pattern, "selector": selector} if selector else pattern
  try:
    matches = scope.find_all(pattern=rule)
  except RuntimeError as error:
    reasons = re.findall(r"^ +\d+: (.*)", str(error).split("Stack")[0], re.M)
    raise AnchorError(
        f"{pattern!r} is no ast-grep pattern"
        f"{f' with a {selector!r}' if selector else ''}:"
        f" {reasons[-1] if reasons else error}"
    ) from None
  if module_level:
    matches = [m for m in matches if not _inside_definition(m)]
  return matches


def _inside_definition(node) -> bool:
  return any(a.kind() in _DEFINITIONS for a in node.ancestors())


def _only(matches, what: str, pattern: str, where: str):
  if len(matches) == 1:
    return matches[0]
  hint = ""
  if not matches:
    broken = ast_grep_py.SgRoot(pattern, "python").root().find(kind="ERROR")
    if broken is not None:
      hint = "; the pattern does not parse as Python, which may be why"
  raise AnchorError(
      f"expected {what} {pattern!r} to match once in"
      f" {repr(where) if where else 'the module outside its definitions'},"
      f" found {len(matches)}{_lines(matches)}{hint}"
  )


def _lines(nodes) -> str:
  if not nodes or len(nodes) > 12:
    return ""
  return f" (lines {', '.join(str(n.range().start.line + 1) for n in nodes)})"


def _lift(node, keep_decorators: bool):
  """Returns the statement that is nothing but the node, or else the node."""
  parent = node.parent()
  while parent is not None and parent.kind() == "expression_statement" and (
      _same_range(parent, node)
  ):
    node, parent = parent, parent.parent()
  return node if keep_decorators else _with_decorators(node)


def _same_range(a, b) -> bool:
  a, b = a.range(), b.range()
  return (a.start.index, a.end.index) == (b.start.index, b.end.index)


def _find_through(first, pattern: str):
  """Returns the later statement of the same block that a pattern matches."""
  found = []
  for sibling in first.next_all():
    probes = [sibling]
    if sibling.kind() in ("expression_statement", "decorated_definition"):
      probes += sibling.children()
    if any(p.matches(pattern=pattern) for p in probes):
      found.append(sibling)
  if len(found) != 1:
    raise AnchorError(
        f"expected through {pattern!r} to match one statement after the anchor"
        f" in its block, found {len(found)}{_lines(found)}"
    )
  return found[0]


def _captures(node, pattern: str, text: str) -> dict[str, Range | None]:
  """Returns what the metavariables of a pattern stand for."""
  result = {}
  for dollars, name in METAVARIABLE.findall(pattern):
    if dollars == "$":
      captured = node.get_match(name)
      nodes = [] if captured is None else [captured]
    else:
      nodes = node.get_multiple_matches(name)
    if not nodes:
      result[name] = None
      continue
    start = nodes[0].range().start.index
    end = nodes[-1].range().end.index
    if nodes[-1].kind() == "block":
      end = _comment_end(text, end)
    result[name] = Range(start, end)
  return result


def _comment_start(text: str, start: int) -> int:
  """Returns where the comment lines right above a statement start."""
  line_start = text.rfind("\n", 0, start) + 1
  indent = text[line_start:start]
  while line_start:
    previous = text.rfind("\n", 0, line_start - 1) + 1
    if not text.startswith(indent + "#", previous):
      break
    line_start = previous
  return line_start + len(indent)


def _comment_end(text: str, end: int) -> int:
  """Returns where the comment right behind a statement ends."""
  return end + len(re.match(r"(?:[ \t]*#[^\n]*)?", text[end:])[0])


def _is_statement(node) -> bool:
  parent = node.parent()
  return node.kind() in _CLAUSES or (
      parent is not None and parent.kind() in ("module", "block")
  )


def _style(text: str, start: int, end: int, node) -> str:
  """Returns how the text from `start` to `end`, from `node` on, stands."""
  if _is_statement(node):
    before = text[text.rfind("\n", 0, start) + 1 : start]
    after = text[end:].split("\n", 1)[0].strip()
    alone = not before.strip() and (not after or after.startswith("#"))
    return LINES if alone else INLINE
  parent = node.parent()
  if parent is not None and node.is_named() and (
      parent.kind() in _COMMA_LISTS
      or any(s and s.kind() == "," for s in (node.prev(), node.next()))
  ):
    return ELEMENT
  return INLINE


def _defines(node) -> bool:
  return node.kind() in _DEFINITIONS or node.kind() == "decorated_definition"


def _string_lines(root) -> frozenset[int]:
  lines = set()
  for node in root.find_all(kind="string"):
    position = node.range()
    lines.update(range(position.start.line + 1, position.end.line + 1))
  return frozenset(lines)
