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
"""What JAX's linter and its type checker say of a patched tree.

Both run with JAX's own settings. Only what they do not find in the pristine
release counts, compared by file, rule and message: lines move.
"""

from __future__ import annotations

import collections
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence

from patches.model import PatchError

_HERE = pathlib.Path(__file__).resolve().parent
# In each tree's own folder, so that `jax` is the tree's, not the installed one.
_RUFF = [
    "ruff", "check", "--no-cache", "--output-format=json", "--config",
    str(_HERE / "jax_ruff.toml"),
]
_PYREFLY = [
    "pyrefly", "check", "--output-format=json", "--threads=1",
    f"--python-interpreter-path={sys.executable}", "--search-path=.",
    "--config", str(_HERE / "jax_pyrefly.toml"),
]

# A file, a rule and a message, with how often it was found.
Findings = collections.Counter[tuple[str, str, str]]


def style(root: pathlib.Path, files: Iterable[str]) -> Findings:
  """Returns what ruff finds in those of the files that are Python."""
  python = _present(root, files)
  if not python:
    return collections.Counter()
  found = _run(root, [*_RUFF, *python])
  return collections.Counter(
      (_relative(root, f["filename"]), f["code"] or "syntax", f["message"])
      for f in found
  )


def types(root: pathlib.Path, files: Iterable[str]) -> Findings:
  """Returns what pyrefly finds in the files of the package; no warnings."""
  python = [f for f in _present(root, files) if f.startswith("jax/")]
  if not python:
    return collections.Counter()
  found = _run(root, [*_PYREFLY, *python])
  return collections.Counter(
      (_relative(root, f["path"]), f["name"], f["concise_description"])
      for f in found["errors"]
      if f["severity"] == "error"
  )


def require_none(what: str, before: Findings, after: Findings) -> str:
  """Raises if there are findings that were not there before."""
  new = after - before
  if not new:
    return f"no new finding of {what}"
  lines = [
      f"  {file}: {rule}: {message}" for file, rule, message in new.elements()
  ]
  raise PatchError(
      f"Expected no finding of {what} that the pristine release does not have,"
      f" got {new.total()}:\n" + "\n".join(sorted(lines)[:40])
  )


def _present(root: pathlib.Path, files: Iterable[str]) -> list[str]:
  return sorted(f for f in files if f.endswith(".py") and (root / f).is_file())


def _relative(root: pathlib.Path, path: str) -> str:
  return (root / path).resolve().relative_to(root.resolve()).as_posix()


def _run(root: pathlib.Path, command: Sequence[str]):
  """Runs a module of this environment in a tree and returns its JSON."""
  result = subprocess.run(
      [sys.executable, "-P", "-m", *command], cwd=root,
      stdin=subprocess.DEVNULL, capture_output=True, text=True,
  )
  try:
    # Both exit with 1 if they found something.
    if result.returncode > 1:
      raise ValueError
    return json.loads(result.stdout)
  except ValueError:
    raise PatchError(
        f"Expected {command[0]} to check {root}, got exit code"
        f" {result.returncode}:\n{(result.stdout + result.stderr)[-2000:]}\nIt"
        " comes with requirements.txt"
    ) from None
