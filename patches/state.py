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
"""Telling what of the series a tree holds, and taking it out again.

Nothing marks a patched tree, so its content must tell. A file's original is
that of the release, or what git has of it, if the patches make of it the very
bytes that are there now.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import patches
from patches import engine, rewrite, trees
from patches.model import METAVARIABLE, AnchorError, Edit, Patch, PatchError

# How much of our code must be found to take it for ours.
_TELLING = 60


@dataclasses.dataclass(frozen=True)
class State:
  """What a tree holds of the series.

  Attributes:
    applied: how many patches, from the front, explain the tree best.
    strange: the files that these patches do not explain.
    originals: the files that they changed or brought, as they were before;
      None stands for no file.
  """

  applied: int
  strange: tuple[str, ...]
  originals: Mapping[str, bytes | None]


def require_pristine(
    tree: engine.Tree,
    series: Sequence[Patch],
    repo: pathlib.Path | None = None,
) -> None:
  """Raises if any patch of the series is in the tree, or if it was changed."""
  series = tree.patches(series)
  evidence = _evidence(tree, series, repo)
  if not evidence:
    return
  found = inspect(tree, series, repo, download=False)
  if found.strange or not found.applied:
    raise PatchError(
        f"Expected a pristine JAX {tree.version}, but {tree.root} is patched or"
        f" changed already: {_shown(evidence)}. Start from a fresh tree."
        f" Nothing was written.{_problem(tree, series, repo)}"
    )
  how_far = (
      "the series is applied already"
      if found.applied == len(series)
      else f"it is applied up to {series[found.applied - 1].slug} already"
  )
  raise PatchError(
      f"Expected a pristine JAX {tree.version}, but in {tree.root} {how_far}."
      " Nothing was written; `python -m patches apply --reverse` takes it out."
  )


def reverse(
    tree: engine.Tree,
    series: Sequence[Patch],
    repo: pathlib.Path | None = None,
) -> tuple[int, dict[str, bytes | None]]:
  """Takes the series out of a tree again.

  Args:
    tree: a tree that holds the series, or its first patches.
    series: all patches.
    repo: where new files and tests come from; this repository by default.

  Returns:
    How many patches were taken out, and what was written; None for a file that
    was removed.

  Raises:
    PatchError: the tree holds no patches, or was edited since. Nothing was
      written then.
  """
  info = trees.dist_info(tree.root)
  if info is not None and "+" in info.name:
    raise PatchError(
        f"Expected a tree that `apply` edited, got {info.name}, a build of its"
        f" own; install jax=={tree.version} instead. Nothing was written."
    )
  series = tree.patches(series)
  found = inspect(tree, series, repo)
  files = {p: c for p, c in found.originals.items() if tree.read(p) != c}
  if not found.applied or not files and not found.strange:
    raise PatchError(
        f"Expected JAX {tree.version} with the series applied, but {tree.root}"
        " holds none of its patches. Nothing was written."
    )
  if found.strange:
    raise PatchError(
        f"Expected {tree.root} to be as the first {found.applied} of"
        f" {len(series)} patches leave JAX {tree.version}, but these files are"
        f" not: {_shown(found.strange)}. They were edited since, or the series"
        " was: put your edits aside, or use the series as it was then. Nothing"
        " was written."
    )
  hashes = trees.record(tree.root)
  wrong = [p for p, c in files.items()
           if c is not None and p in hashes and trees.hash_of(c) != hashes[p]]
  if wrong:
    raise PatchError(
        f"Expected the originals of JAX {tree.version} to be as RECORD in"
        f" {tree.root} says, but these are not: {_shown(wrong)}. Is it another"
        " release? Nothing was written."
    )
  engine.write(tree.root, files)
  for path, content in files.items():
    if content is None:
      _prune((tree.root / path).parent, tree.root)
  return found.applied, files


def inspect(
    tree: engine.Tree,
    series: Sequence[Patch],
    repo: pathlib.Path | None = None,
    download: bool = True,
) -> State:
  """Finds the number of patches that explains a tree best."""
  try:
    release = trees.pristine(tree.version, download)
  except PatchError:
    release = None
  now, histories = {}, {}
  for path, content in _brought(series, tree, repo):
    now[path] = tree.read(path)
    histories[path] = [content]
    if path.startswith("tests/"):  # May have been left out.
      histories[path].append([None] * len(content))
  for path in dict.fromkeys(e.file for p in series for e in tree.edits(p)):
    if path not in histories:
      now[path] = tree.read(path)
      histories[path] = list(
          _histories(path, now[path], series, tree, release)
      )

  def explained(path: str, count: int) -> Iterator[list[bytes | None]]:
    for history in histories[path]:
      if count < len(history) and history[count] == now[path]:
        yield history

  def strange(count: int) -> list[str]:
    return [p for p in histories if not any(explained(p, count))]

  best = min(range(len(series), -1, -1), key=lambda n: len(strange(n)))
  originals = {}
  for path in histories:
    for history in explained(path, best):
      originals[path] = history[0]
      break
  return State(best, tuple(strange(best)), originals)


def _brought(
    series: Sequence[Patch], tree: engine.Tree, repo: pathlib.Path | None
) -> Iterator[tuple[str, list[bytes | None]]]:
  """Yields the files that the series brings, before and after each patch."""
  seen = set()
  for number, patch in enumerate(series):
    for path in (*engine.expand(patch.new_files, repo), *patch.tests):
      if path not in seen:
        seen.add(path)
        content = _read((repo or patches.REPO) / path)
        history: list[bytes | None] = [None] * (number + 1)
        for later in series[number:]:
          content = _edited(path, content, later, tree)
          history.append(content)
        yield path, history


def _histories(
    path: str,
    now: bytes | None,
    series: Sequence[Patch],
    tree: engine.Tree,
    release: pathlib.Path | None,
) -> Iterator[list[bytes]]:
  """Yields what an edited file may have been, before and after each patch."""
  origins = [_read(release / path)] if release else []
  if origins and origins[0] is not None and now and b"\r\n" in now:
    origins[0] = origins[0].replace(b"\n", b"\r\n")
  if not origins or _history(path, origins[0], series, tree)[-1] != now:
    origins.append(_committed(tree.root, path))
    edits = [e for p in series for e in tree.edits(p) if e.file == path]
    if all(e.checkout_only for e in edits) and now is not None:
      # Neither in the wheel nor, perhaps, in git.
      origins += _without(now.decode(), edits)
  for origin in dict.fromkeys(origins):
    if origin is not None:
      yield _history(path, origin, series, tree)


def _history(
    path: str,
    origin: bytes | None,
    series: Sequence[Patch],
    tree: engine.Tree,
) -> list[bytes | None]:
  """Returns a file before and after each patch, as far as they apply."""
  result = [origin]
  for patch in series:
    try:
      result.append(_edited(path, result[-1], patch, tree))
    except AnchorError:
      break
  return result


def _edited(
    path: str, content: bytes | None, patch: Patch, tree: engine.Tree
) -> bytes | None:
  for edit in tree.edits(patch):
    if edit.file == path:
      content = engine.apply_edit(content, edit, patch, tree)
  return content


def _committed(root: pathlib.Path, path: str) -> bytes | None:
  """Returns what git has of a file, if the tree is in a repository."""
  env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
  try:
    result = subprocess.run(
        ["git", "show", f"HEAD:./{path}"], cwd=root, env=env,
        stdin=subprocess.DEVNULL, capture_output=True,
    )
  except OSError:
    return None
  return None if result.returncode else result.stdout


def _without(text: str, edits: Sequence[Edit]) -> list[bytes]:
  """Returns a text without the code that the edits inserted, if that is it."""
  result = []
  for edit in reversed(edits):
    text = _without_one(text, edit)
    if text is None:
      return []
    result = [text.encode()]
  return result


def _without_one(text: str, edit: Edit) -> str | None:
  wanted = textwrap.dedent(edit.code).strip().splitlines()
  lines = text.splitlines(keepends=True)
  for start in range(len(lines) - len(wanted) + 1):
    block = lines[start : start + len(wanted)]
    if [l.strip() for l in block] != [l.strip() for l in wanted]:
      continue
    for first in range(start, max(start - 3, -1), -1):
      found = "".join(lines[:first] + lines[start + len(wanted) :])
      with contextlib.suppress(AnchorError):
        if rewrite.rewrite(found, edit) == text:
          return found
  return None


def _prune(folder: pathlib.Path, root: pathlib.Path) -> None:
  """Removes the folders that became empty."""
  while folder != root and folder.is_dir():
    for cache in folder.glob("__pycache__"):
      with contextlib.suppress(OSError):
        cache.rmdir()
    try:
      folder.rmdir()
    except OSError:
      return
    folder = folder.parent


def _shown(items: Sequence[str]) -> str:
  return ", ".join(items[:5]) + (" and more" if items[5:] else "")


def _problem(tree, series, repo) -> str:
  """Returns what keeps the series from a changed tree, if anything does."""
  try:
    engine.compute(tree, series, repo=repo)
  except PatchError as error:
    return f"\n{error}"
  return ""


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


def _read(path: pathlib.Path) -> bytes | None:
  return path.read_bytes() if path.is_file() else None
