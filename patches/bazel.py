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
"""The Bazel targets of the series, as they enter JAX's own BUILD files.

BUILD of this repository holds all of them. Each goes into the nearest BUILD
file of JAX, with the patch that brings its sources. Only a checkout of JAX has
such files, a wheel does not.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from patches.model import Edit, PatchError

# JAX's folders with a BUILD file that take targets of ours, innermost first.
PACKAGES = (
    "jax/experimental/mosaic/gpu/examples",
    "jax/experimental",
    "tests/mosaic",
)
RULES = (
    "jax_multiplatform_test",
    "jax_py_test",
    "py_library",
    "py_library_providing_imports_info",
)
# Functions that take a list of dependencies and return one.
_WRAPPERS = ("if_cuda_is_configured", "py_deps")
_DECLARATIONS = ("licenses", "load", "package")


@dataclasses.dataclass(frozen=True)
class Target:
  """A call of a rule, with its arguments in order."""

  rule: str
  arguments: dict[str, Any]

  @property
  def name(self) -> str:
    return self.arguments["name"]

  @property
  def main(self) -> str:
    """The file that comes with the target: a test's own, or the first."""
    return self.arguments.get("main") or self.arguments["srcs"][0]

  @property
  def package(self) -> str:
    """The folder of JAX's BUILD file that the target belongs to."""
    for package in PACKAGES:
      if self.main.startswith(package + "/"):
        return package
    raise PatchError(
        f"Expected the sources of {self.name} to lie in one of"
        f" {', '.join(PACKAGES)}, got {self.main}"
    )


class _Dependency(str):
  """A dependency that a function was called with."""

  wrapper: str


class _Found(str):
  """A file that a glob found."""

  glob: _Glob


@dataclasses.dataclass(frozen=True)
class _Glob:
  include: tuple[str, ...]
  exclude: tuple[str, ...]
  files: tuple[str, ...]


def targets(repo: pathlib.Path) -> tuple[Target, ...]:
  """Returns the targets in a repository's BUILD, if it has one."""
  path = repo / "BUILD"
  if not path.is_file():
    return ()
  found: list[Target] = []
  # What we use of Starlark is Python, too; a test compares both.
  exec(compile(path.read_text(), str(path), "exec"), functions(repo, found))
  return tuple(found)


def functions(
    repo: pathlib.Path, found: list[Target]
) -> dict[str, Callable[..., Any]]:
  """Returns the functions that a BUILD file calls; rules add to `found`."""

  def rule(name: str):
    return lambda **arguments: found.append(Target(name, arguments))

  def wrapper(name: str):
    def wrap(items: str | Sequence[str]) -> list[str]:
      result = []
      for item in [items] if isinstance(items, str) else items:
        dependency = _Dependency(item)
        dependency.wrapper = name
        result.append(dependency)
      return result

    return wrap

  def glob(include: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    paths = {
        p.relative_to(repo).as_posix() for i in include for p in repo.glob(i)
    } - {p.relative_to(repo).as_posix() for e in exclude for p in repo.glob(e)}
    files = tuple(sorted(p for p in paths if "/." not in p))
    result = []
    for file in files:
      path = _Found(file)
      path.glob = _Glob(tuple(include), tuple(exclude), files)
      result.append(path)
    return result

  ignored = {name: lambda *args, **kwargs: None for name in _DECLARATIONS}
  return (
      ignored
      | {name: rule(name) for name in RULES}
      | {name: wrapper(name) for name in _WRAPPERS}
      | {"glob": glob}
  )


def edits(
    brought: Sequence[str], all_targets: Sequence[Target]
) -> tuple[Edit, ...]:
  """Returns the edits that add the targets of the files a patch brings."""
  packages = {t.name: t.package for t in all_targets}
  return tuple(
      Edit(
          file=f"{target.package}/BUILD",
          action="after",
          code="\n\n" + render(target, packages),
          checkout_only=True,
      )
      for target in all_targets
      if target.main in brought
  )


def render(target: Target, packages: dict[str, str]) -> str:
  """Returns a target as text for its BUILD file.

  Args:
    target: the target.
    packages: the folder of each target's BUILD file, by name.
  """
  prefix = target.package + "/"

  def label(text: str) -> str:
    if text.startswith(":") and packages[text[1:]] != target.package:
      return f"//{packages[text[1:]]}{text}"
    return text.removeprefix(prefix)

  lines = [f"{target.rule}("]
  for name, value in target.arguments.items():
    if isinstance(value, str):
      lines.append(f'    {name} = "{label(value)}",')
    else:
      lines.append(f"    {name} = {_list(value, label)},")
  return "\n".join([*lines, ")"])


def _list(items: Sequence[str], label: Callable[[str], str]) -> str:
  """Returns an expression for a list, with the calls that made it."""
  terms: list[str] = []
  items = list(items)
  while items:
    found = getattr(items[0], "glob", None)
    if found and tuple(items[: len(found.files)]) == found.files:
      del items[: len(found.files)]
      terms.append(_glob([label(i) for i in found.include],
                         [label(e) for e in found.exclude]))
      continue
    wrapper = getattr(items[0], "wrapper", "")
    count = 1
    while count < len(items) and not getattr(items[count], "glob", None) and (
        getattr(items[count], "wrapper", "") == wrapper
    ):
      count += 1
    text = _strings(sorted(label(i) for i in items[:count]))
    terms.append(f"{wrapper}({text})" if wrapper else text)
    del items[:count]
  return " + ".join(terms) or "[]"


def _glob(include: Sequence[str], exclude: Sequence[str]) -> str:
  if not exclude:
    return f"glob({_strings(include)})"
  return (
      f"glob(\n        {_strings(include, 8)},\n"
      f"        exclude = {_strings(exclude, 8)},\n    )"
  )


def _strings(items: Sequence[str], indent: int = 4) -> str:
  if len(items) == 1:
    return f'["{items[0]}"]'
  space = " " * indent
  lines = "".join(f'{space}    "{i}",\n' for i in items)
  return f"[\n{lines}{space}]"
