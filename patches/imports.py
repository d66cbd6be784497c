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
"""Finding imports of modules that only a later patch brings.

pyrefly can't: it finds such a module in the JAX that is installed.
"""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator, Sequence

from patches import engine
from patches.model import PatchError


def require_in_order(tree: engine.Tree, steps: Sequence[engine.Step]) -> str:
  """Raises if a file of the package imports what a later patch brings."""
  brought = {}
  for number, step in enumerate(steps):
    for path in step.files:
      if _is_module(path) and tree.read(path) is None:
        brought.setdefault(_module(path), number)
        # A new folder can be imported before its __init__.py is there.
        folder = path.rpartition("/")[0]
        if tree.read(f"{folder}/__init__.py") is None:
          brought.setdefault(folder.replace("/", "."), number)
  early = [
      f"  {steps[number].patch.slug}: {path} imports {name}, which comes with"
      f" {steps[brought[name]].patch.slug}"
      for number, step in enumerate(steps)
      for path, content in step.files.items()
      if _is_module(path)
      for name in sorted(set(imported(path, content.decode())))
      if brought.get(name, number) > number
  ]
  if early:
    raise PatchError(
        "Expected modules that are imported to come with the same patch or an"
        " earlier one:\n" + "\n".join(early)
    )
  return f"{len(brought)} new modules"


def imported(path: str, source: str) -> Iterator[str]:
  """Yields the names that may be modules, of all imports in a file."""
  package = _module(path).split(".")
  if not path.endswith("/__init__.py"):
    package.pop()
  for node in ast.walk(ast.parse(source, path)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      parts = package[: len(package) + 1 - node.level] if node.level else []
      module = ".".join([*parts, *filter(None, [node.module])])
      yield module
      yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_module(path: str) -> bool:
  return path.startswith("jax/") and path.endswith(".py")


def _module(path: str) -> str:
  parts = pathlib.PurePosixPath(path).with_suffix("").parts
  return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
