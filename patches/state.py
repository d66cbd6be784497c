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
"""Telling a pristine tree from one that holds patches already.

Nothing marks a patched tree, so its content must tell: files that the series
brings, hashes in the wheel's RECORD, and code of ours in JAX's files.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from patches import engine, trees
from patches.model import METAVARIABLE, Patch, PatchError

# How much of our code must be found to take it for ours.
_TELLING = 60


def require_pristine(
    tree: engine.Tree,
    series: Sequence[Patch],
    repo: pathlib.Path | None = None,
) -> None:
  """Raises if any patch of the series is in the tree, or if it was changed."""
  evidence = _evidence(tree, series, repo)
  if not evidence:
    return
  shown = ", ".join(evidence[:5]) + (" and more" if evidence[5:] else "")
  applied = _applied(tree, series, repo)
  if applied is None:
    raise PatchError(
        f"Expected a pristine JAX {tree.version}, but {tree.root} is patched or"
        f" changed already: {shown}. Start from a fresh tree. Nothing was"
        " written."
    )
  how_far = (
      "the series is applied already"
      if applied == len(series)
      else f"it is applied up to {series[applied - 1].slug} already"
  )
  raise PatchError(
      f"Expected a pristine JAX {tree.version}, but in {tree.root} {how_far}."
      " Nothing was written; for another state, start from a fresh tree."
  )


def _evidence(tree, series, repo) -> list[str]:
  brought = [
      path
      for patch in series
      for path in (*engine.expand(patch.new_files, repo), *patch.tests)
  ]
  found = [
      f"{path} exists"
      for path in dict.fromkeys(brought)
      if tree.read(path) is not None
  ]
  info = trees.dist_info(tree.root)
  if info is not None and "+" in info.name:
    found.append(f"it is {info.name}")
  touched = {e.file for p in series for e in p.edits}
  hashes = {p: h for p, h in trees.record(tree.root).items() if p in touched}
  found += [f"{p} differs from RECORD"
            for p in trees.changed(tree.root, hashes)]
  for patch in series:
    for edit in patch.edits:
      if edit.file not in hashes and _has_code(tree, edit):
        found.append(f"{edit.file} has the code of {patch.slug}")
  return found


def _has_code(tree, edit) -> bool:
  """Whether an edit's code stands in its file, several lines of it."""
  wanted = [s for line in edit.code.splitlines() if (s := line.strip())]
  content = tree.read(edit.file)
  if (
      content is None
      or len(wanted) < 2
      or len("".join(wanted)) < _TELLING
      or METAVARIABLE.search(edit.code)
  ):
    return False
  lines = [s for line in content.decode().splitlines() if (s := line.strip())]
  return "\n".join(wanted) in "\n".join(lines)


def _applied(tree, series, repo) -> int | None:
  """Returns how many patches are in the tree, if that can be told."""
  try:
    base = trees.pristine(tree.version, download=False)
    steps = engine.compute(
        engine.Tree(base, tree.version, checkout=False), series, tests=False,
        repo=repo,
    )
  except PatchError:
    return None
  touched = engine.merged(steps)
  for count in range(len(steps), 0, -1):
    expected = engine.merged(steps[:count])
    for path in touched.keys() - expected.keys():
      expected[path] = _read(base / path)
    if all(tree.read(path) == expected[path] for path in touched):
      return count
  return None


def _read(path: pathlib.Path) -> bytes | None:
  return path.read_bytes() if path.is_file() else None
