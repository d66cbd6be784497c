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
"""What a patch is: the words that the modules of the series are written in."""

from __future__ import annotations

import dataclasses
import re
import textwrap

ACTIONS = ("replace", "before", "after", "delete")
KINDS = ("code", "text")
BODY_WIDTH = 72
SUBJECT_WIDTH = 80

# `$X` stands for one node, `$$$BODY` for any number of them.
METAVARIABLE = re.compile(r"(\$\$\$|\$)([A-Z][A-Z0-9_]*)")
# The text of the anchor itself (up to `through`), whatever the pattern.
SELF = "SELF"

# A line of a mail's body that `git am` would read as something else.
_BODY_TRAP = re.compile(r"---|diff -|Index: |>?From |(From|Date|Subject):")


class PatchError(Exception):
  """Something in the series, or in the tree given to it, is not as expected."""


class AnchorError(PatchError):
  """A place in JAX's source was not found exactly once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edit:
  """One change of one file.

  Attributes:
    file: path from the root of the JAX tree, with forward slashes.
    scope: dotted path of classes and functions (`TMEMRef.slice`) in which the
      anchor is looked for; empty for module level, outside every definition.
    anchor: ast-grep pattern that matches exactly once inside the scope. Empty
      means the scope's definition as a whole, decorators included (and with an
      empty scope, the end of the file). With `kind="text"`: a line.
    action: what to do with the anchor. `before` and `after` insert.
    code: our code, at any indentation: it is dedented, then indented like the
      anchor. The anchor's metavariables stand for the source that they match,
      and `$$$SELF` for the whole of the anchor.
    selector: node kind inside the anchor's pattern that is meant. It lets one
      anchor on what is no pattern on its own: `f(c=$X)` with
      `keyword_argument`, `def f(x: int = 3): pass` with
      `typed_default_parameter`.
    within: pattern of an enclosing node, itself found exactly once in the
      scope. With `kind="text"`: a markdown heading, whose section is meant.
    containing: text that the match contains, where a short pattern such as
      `raise ValueError($$$)` matches too much.
    through: pattern of a later statement of the same block: the edit then
      spans the anchor, that statement and all between them.
    with_comment: whether the comment lines right above belong to the anchor,
      and the comment behind it if the anchor is an element of a list.
    versions: the releases that need this edit; empty for all of them.
    checkout_only: the file is in JAX's repository but not in its wheel; where
      it is missing, the edit is left out.
    kind: "code" for what parses as Python (Starlark too), else "text".
  """

  file: str
  scope: str = ""
  anchor: str = ""
  action: str = "replace"
  code: str = ""
  selector: str = ""
  within: str = ""
  containing: str = ""
  through: str = ""
  with_comment: bool = False
  versions: tuple[str, ...] = ()
  checkout_only: bool = False
  kind: str = "code"

  def __post_init__(self):
    if self.action not in ACTIONS:
      raise PatchError(
          f"Edit of {self.file}: expected an action among {ACTIONS}, got"
          f" {self.action!r}"
      )
    if self.kind not in KINDS:
      raise PatchError(
          f"Edit of {self.file}: expected a kind among {KINDS}, got"
          f" {self.kind!r}"
      )
    if (self.action == "delete") != (not self.code.strip()):
      raise PatchError(
          f"Edit of {self.file}: action {self.action!r} expected"
          f" {'no' if self.action == 'delete' else 'some'} code, got"
          f" {self.code!r}"
      )
    if isinstance(self.versions, str):
      raise PatchError(
          f"Edit of {self.file}: expected versions to be a tuple of strings,"
          f" got {self.versions!r}"
      )
    if not self.anchor and not self.scope and self.action != "after":
      raise PatchError(
          f"Edit of {self.file}: without scope and anchor the edit means the"
          f" end of the file: expected action 'after', got {self.action!r}"
      )
    for field in ("selector", "within", "containing", "through"):
      if getattr(self, field) and not self.anchor:
        raise PatchError(
            f"Edit of {self.file}: {field!r} narrows or extends an anchor:"
            " expected an anchor, got none"
        )
    _check_path(self.file)
    known = metavariables(self.anchor) | metavariables(self.within) | {SELF}
    if self.kind == "code" and (lost := metavariables(self.code) - known):
      raise PatchError(
          f"Edit of {self.file}: its code uses {_listed(lost)}, but its anchor"
          f" binds {_listed(known)}; name it in the anchor"
      )

  def applies_to(self, version: str) -> bool:
    """Whether a tree of this release needs the edit."""
    return not self.versions or version in self.versions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
  """One reviewable change to JAX.

  Attributes:
    subject: first line of the commit, in upstream's manner.
    body: why: the hardware reason, and where that was verified.
    edits: the changes of JAX's own files, applied in this order.
    new_files: files of this repository that the patch brings into the tree; a
      trailing slash names a folder with everything under it. What lies
      outside of jax/ (helpers of tests, docs) does not go into the wheel.
    tests: test files that must pass with the patch. The first patch of the
      series that names one brings it into the tree.
    versions: the releases that the patch is for; all of them by default.
  """

  subject: str
  body: str
  edits: tuple[Edit, ...] = ()
  new_files: tuple[str, ...] = ()
  tests: tuple[str, ...] = ()
  versions: tuple[str, ...] = ()

  def __post_init__(self):
    def fail(expected, got):
      raise PatchError(
          f"Patch {self.subject!r}: expected {expected}, got {got}"
      )

    if not self.subject.strip() or "\n" in self.subject:
      fail("a subject of one line", repr(self.subject))
    if len(self.subject) > SUBJECT_WIDTH:
      fail(f"a subject of at most {SUBJECT_WIDTH} characters",
           len(self.subject))
    if not slug(self.subject):
      fail("words after the subject's [prefix]", repr(self.subject))
    if not self.message_body:
      fail("a body that says why", "none")
    for line in self.message_body.splitlines():
      if len(line) > BODY_WIDTH and " " in line.strip():
        fail(f"body lines of at most {BODY_WIDTH} characters", repr(line))
      if _BODY_TRAP.match(line):
        fail("no body line that git am reads as a header or a diff", repr(line))
    for name in ("edits", "new_files", "tests", "versions"):
      if not isinstance(getattr(self, name), tuple):
        fail(f"a tuple as {name}", repr(getattr(self, name)))
    if not self.edits and not self.new_files and not self.tests:
      fail("at least one edit, new file or test", "none")
    for path in self.new_files + self.tests:
      _check_path(path)

  def applies_to(self, version: str) -> bool:
    """Whether a tree of this release gets the patch."""
    return not self.versions or version in self.versions

  @property
  def slug(self) -> str:
    """Name of the module that holds the patch."""
    return slug(self.subject)

  @property
  def message_body(self) -> str:
    """The body as it stands in the commit."""
    return textwrap.dedent(self.body).strip()


def slug(subject: str) -> str:
  """Returns the module name for a subject: its words, without the [prefix]."""
  words = re.sub(r"^\s*(\[[^\]]*\]\s*)*", "", subject).lower()
  return re.sub(r"[^a-z0-9]+", "_", words).strip("_")


def metavariables(pattern: str) -> set[str]:
  """Returns the names of the metavariables in a pattern or in code."""
  return {name for _, name in METAVARIABLE.findall(pattern)}


def _listed(names: set[str]) -> str:
  return ", ".join("$" + n for n in sorted(names))


def _check_path(path: str) -> None:
  parts = path.removesuffix("/").split("/")
  if not all(p and p not in (".", "..") for p in parts) or "\\" in path:
    raise PatchError(
        "Expected a path from the root of the tree with forward slashes, got"
        f" {path!r}"
    )
