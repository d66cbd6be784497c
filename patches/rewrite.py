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
"""Putting an edit's code into a text: indentation, metavariables, blank lines.

Code takes the indentation of its anchor. Source text that a metavariable
brings along moves as a block: all its lines shift by as much as its first one,
except lines inside string literals, whose content must not change.
"""

from __future__ import annotations

import re
import textwrap

from patches import anchors
from patches.model import METAVARIABLE, AnchorError, Edit

_DEFINITION = re.compile(r"(@|def |async def |class )")


def rewrite(text: str, edit: Edit) -> str:
  """Returns the text with the edit done.

  Raises:
    AnchorError: the edit's place was not found exactly once.
  """
  if edit.kind == "text":
    return _rewrite_text(text, edit)
  place = anchors.find(text, edit)
  if place.style == anchors.LINES:
    return _rewrite_lines(text, edit, place)
  if place.style == anchors.ELEMENT and edit.action != "replace":
    return _rewrite_element(text, edit, place)
  return _rewrite_inline(text, edit, place)


def _rewrite_lines(text: str, edit: Edit, place: anchors.Place) -> str:
  """Edits whole statements, or whole clauses of one."""
  start = text.rfind("\n", 0, place.range.start) + 1
  end = _next_line(text, place.range.end)
  if end and not text.endswith("\n") and end == len(text):
    text += "\n"
    end += 1
  if edit.action == "delete":
    return text[:start] + _without_gap(text[:start], text[end:])
  indent = text[start : place.range.start]
  code = _fill(edit, place, text, indent) + "\n"
  if edit.action == "replace":
    return text[:start] + code + text[end:]
  gap = 0
  if not text.strip():
    gap = 0
  elif place.defines or _DEFINITION.match(code.strip()):
    gap = 1 if indent else 2
  if edit.action == "after":
    missing = gap - (len(code) - len(code.lstrip("\n")))
    return text[:end] + "\n" * max(missing, 0) + code + text[end:]
  missing = gap - (len(code) - len(code.rstrip("\n")) - 1)
  return text[:start] + code + "\n" * max(missing, 0) + text[start:]


def _without_gap(before: str, after: str) -> str:
  """Returns what follows a deletion, its blank lines counted once."""
  if before.endswith(":\n"):
    return after.lstrip("\n")
  blank = re.search(r"\n*\Z", before)[0].count("\n") - 1
  return re.sub(r"\A\n{0,%d}" % max(blank, 0), "", after)


def _rewrite_element(text: str, edit: Edit, place: anchors.Place) -> str:
  """Inserts or deletes an element of a comma-separated list."""
  start, end = place.range.start, place.range.end
  line_start = text.rfind("\n", 0, start) + 1
  indent = re.match(r"[ \t]*", text[line_start:])[0]
  rest = text[end : _next_line(text, end)]
  tail = re.match(r"(,?)[ \t]*(#[^\n]*)?\n", rest)
  own_line = line_start + len(indent) == start and tail
  if edit.action == "delete":
    if own_line:
      return text[:line_start] + text[_next_line(text, end) :]
    if behind := re.match(r",\s*", text[end:]):
      return text[:start] + text[end + len(behind[0]) :]
    return re.sub(r",\s*\Z", "", text[:start]) + text[end:]
  code = _fill(edit, place, text, indent).strip().removesuffix(",")
  if edit.action == "before":
    separator = ",\n" + indent if own_line else ", "
    return text[:start] + code + separator + text[start:]
  if own_line and tail[1]:
    end = _next_line(text, end)
    return text[:end] + indent + code + ",\n" + text[end:]
  separator = ",\n" + indent if own_line else ", "
  return text[:end] + separator + code + text[end:]


def _rewrite_inline(text: str, edit: Edit, place: anchors.Place) -> str:
  """Edits a part of a line."""
  start, end = place.range.start, place.range.end
  if edit.action == "delete":
    return text[:start] + text[end:]
  code = _fill(edit, place, text, _indent_at(text, start)).lstrip()
  if edit.action == "replace":
    rest = text[end:]
    if edit.with_comment:
      rest = re.sub(r"\A(,?)[ \t]*#[^\n]*", r"\1", rest)
    return text[:start] + code + rest
  if edit.action == "before":
    return text[:start] + code + text[start:]
  return text[:end] + code + text[end:]


def _rewrite_text(text: str, edit: Edit) -> str:
  """Edits the one line of a text that equals the anchor."""
  lines = text.splitlines(keepends=True)
  first, last = 0, len(lines)
  if edit.within:
    first = _only_line(lines, range(last), "within", edit.within) + 1
    marks = re.match(r"#*", edit.within)[0]
    headings = (
        i for i in range(first, last)
        if marks and re.match(r"#{1,%d} " % len(marks), lines[i])
    )
    last = next(headings, last)
  code = _unindent(edit.code)
  if not edit.anchor:  # The end of the file.
    return text + ("" if text.endswith("\n") else "\n") + code + "\n"
  at = _only_line(lines, range(first, last), "anchor", edit.anchor)
  indent = re.match(r"[ \t]*", lines[at])[0]
  code = textwrap.indent(code, indent) + "\n" if code else ""
  new = {
      "before": [code, lines[at]],
      "after": [lines[at].rstrip("\n") + "\n", code],
      "replace": [code],
      "delete": [],
  }[edit.action]
  return "".join(lines[:at] + new + lines[at + 1 :])


def _only_line(lines: list[str], where: range, what: str, wanted: str) -> int:
  found = [i for i in where if lines[i].strip() == wanted.strip()]
  if len(found) != 1:
    numbers = f" (lines {', '.join(str(i + 1) for i in found)})"
    raise AnchorError(
        f"expected {what} to be the line {wanted!r} exactly once, found"
        f" {len(found)}{numbers if found else ''}"
    )
  return found[0]


def _fill(edit: Edit, place: anchors.Place, text: str, indent: str) -> str:
  """Returns the edit's code, indented, with its metavariables replaced."""
  result = []
  for line in _unindent(edit.code).split("\n"):
    line = indent + line if line.strip() else ""
    filled = _fill_line(line, place, text)
    if filled.strip() or not line.strip():
      result.append(filled)
  return "\n".join(result)


def _fill_line(line: str, place: anchors.Place, text: str) -> str:
  column = len(line) - len(line.lstrip(" "))
  pieces, done = [], 0
  for match in METAVARIABLE.finditer(line):
    pieces.append(line[done : match.start()])
    done = match.end()
    captured = place.captures.get(match[2])
    if captured is None:  # Stands for nothing: with it goes one comma.
      if comma := re.match(r",\s*", line[done:]):
        done += len(comma[0])
      else:
        pieces[-1] = re.sub(r",\s*\Z", "", pieces[-1])
      continue
    moved = _moved(captured, place, text, column)
    if line[done:].lstrip().startswith(","):
      moved = moved.rstrip().removesuffix(",")
    pieces.append(moved)
  return "".join(pieces) + line[done:]


def _moved(
    captured: anchors.Range, place: anchors.Place, text: str, column: int
) -> str:
  """Returns captured text with its lines shifted to another column."""
  shift = column - len(_indent_at(text, captured.start))
  number = text.count("\n", 0, captured.start)
  lines = text[captured.start : captured.end].split("\n")
  for i in range(1, len(lines)):
    if number + i in place.strings or not lines[i].strip():
      continue
    if shift >= 0:
      lines[i] = " " * shift + lines[i]
    else:
      blank = len(lines[i]) - len(lines[i].lstrip(" "))
      lines[i] = lines[i][min(-shift, blank) :]
  return "\n".join(lines)


def _unindent(code: str) -> str:
  """Returns code without common indentation, first and last line break."""
  code = re.sub(r"\A[ \t]*\n", "", code)
  code = re.sub(r"\n[ \t]*\Z", "", code)
  return textwrap.dedent(code)


def _indent_at(text: str, position: int) -> str:
  start = text.rfind("\n", 0, position) + 1
  return re.match(r"[ \t]*", text[start:position])[0]


def _next_line(text: str, position: int) -> int:
  end = text.find("\n", position)
  return len(text) if end < 0 else end + 1
