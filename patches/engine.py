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
"""Applying the series to a tree: everything in memory first, then written."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pathlib
import re
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence

import patches
from patches import bazel, rewrite
from patches.model import AnchorError, Edit, Patch, PatchError

_VERSION_FILE = "jax/version.py"
_SERIES = "patches.series"


@dataclasses.dataclass(frozen=True)
class Tree:
  """A JAX source checkout or an unpacked wheel.

  Attributes:
    root: the folder that holds `jax/`.
    version: the release, such as 0.12.0.1.
  """

  root: pathlib.Path
  version: str

  @classmethod
  def open(cls, root: os.PathLike | str, version: str | None = None) -> Tree:
    """Looks at a folder; `version` overrides what its `jax/version.py` says."""
    root = pathlib.Path(root)
    try:
      text = (root / _VERSION_FILE).read_text()
    except OSError:
      raise PatchError(
          f"Expected a JAX source tree or an unpacked wheel, got {root}, which"
          f" has no {_VERSION_FILE}; give the folder that contains jax/"
      ) from None
    found = re.search(r"^_version = [\"']([^\"']+)[\"']", text, re.M)
    if not found and not version:
      raise PatchError(
          f"Expected a line `_version = ...` in {root / _VERSION_FILE}, found"
          " none; give the release with --as"
      )
    version = version or found[1]
    if version in patches.REFUSED:
      raise PatchError(
          f"Expected a JAX release among {', '.join(patches.SUPPORTED)}, got"
          f" {version} in {root}: {patches.REFUSED[version]}"
      )
    if version not in patches.SUPPORTED:
      raise PatchError(
          f"Expected a JAX release among {', '.join(patches.SUPPORTED)}, got"
          f" {version} in {root}; to try the edits of the nearest release, add"
          " --as RELEASE"
      )
    return cls(root, version)

  def read(self, path: str) -> bytes | None:
    """Returns a file's content, or None if there is no such file."""
    try:
      return (self.root / path).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
      return None

  def patches(self, series: Iterable[Patch]) -> list[Patch]:
    """Returns the patches of a series that are for this release."""
    return [p for p in series if p.applies_to(self.version)]

  def edits(self, patch: Patch) -> list[Edit]:
    """Returns the edits of a patch that this tree needs."""
    return [
        e for e in patch.edits
        if e.applies_to(self.version)
        and not (e.checkout_only and self.read(e.file) is None)
    ]


@dataclasses.dataclass(frozen=True)
class Step:
  """A patch and the files that it changed or brought, as they are after it."""

  patch: Patch
  files: Mapping[str, bytes]


def load_series(upto: str | None = None) -> tuple[Patch, ...]:
  """Returns the patches in order, up to the one with this slug.

  Each has the edits that add its targets to JAX's BUILD files.
  """
  order = importlib.import_module(_SERIES).ORDER
  if upto is not None and upto not in order:
    raise PatchError(
        f"Expected a patch of the series after --upto, got {upto!r}; `python -m"
        " patches list` shows them"
    )
  if len(set(order)) != len(order):
    raise PatchError(f"Expected each patch once in the series, got {order}")
  result = []
  targets, seen = bazel.targets(patches.REPO), set()
  for name in order:
    patch = importlib.import_module(f"{_SERIES}.{name}").PATCH
    if patch.slug != name:
      raise PatchError(
          f"Patch {patch.subject!r}: expected its module to be named after its"
          f" subject, {patch.slug}.py, got {name}.py"
      )
    brought = {*expand(patch.new_files), *patch.tests} - seen
    seen |= brought
    edits = patch.edits + bazel.edits(sorted(brought), targets)
    result.append(dataclasses.replace(patch, edits=edits))
    if name == upto:
      break
  check_new_files(result)
  return tuple(result)


def check_new_files(series: Iterable[Patch]) -> None:
  """Raises if two patches bring one file, or if one edits a brought file.

  What some releases need otherwise can be an edit with their `versions`.
  """
  brought = {}
  for patch in series:
    for path in expand(patch.new_files):
      if path in brought:
        raise PatchError(
            f"Patch {patch.subject!r}: brings {path}, but"
            f" {brought[path]!r} does so already; name it in one of them"
        )
      brought[path] = patch.subject
    for path in patch.tests:
      brought.setdefault(path, patch.subject)
    for edit in patch.edits:
      if edit.file in brought and not edit.versions:
        raise PatchError(
            f"Patch {patch.subject!r}: edits {edit.file}, which the series"
            " itself brings; change the file in this repository instead, or"
            " name the versions that need the edit"
        )


def expand(paths: Iterable[str], repo: pathlib.Path | None = None) -> list[str]:
  """Returns the files that the `new_files` of a patch name."""
  repo = repo or patches.REPO
  result = []
  for path in paths:
    if not path.endswith("/"):
      result.append(path)
      continue
    found = overlay_files(repo, path)
    if not found:
      raise PatchError(f"Expected files in {path} of {repo}, found none")
    result += found
  return result


def overlay_files(repo: pathlib.Path, folder: str) -> list[str]:
  """Returns the files below a folder of this repository, without litter."""
  return sorted(
      path.relative_to(repo).as_posix()
      for path in (repo / folder).rglob("*")
      if path.is_file()
      and path.suffix != ".pyc"
      and not any(p.startswith((".", "__pycache__"))
                  for p in path.relative_to(repo).parts)
  )


def compute(
    tree: Tree,
    series: Sequence[Patch],
    *,
    tests: bool = True,
    repo: pathlib.Path | None = None,
) -> list[Step]:
  """Applies the series in memory.

  Args:
    tree: the pristine tree.
    series: the patches, in order.
    tests: whether the patches' tests, and all that lies outside of jax/, come
      along.
    repo: where new files and tests come from; this repository by default.

  Returns:
    One step for each patch. Those of patches that are not for this release
    have no files.

  Raises:
    PatchError: something does not fit; the message names what and where.
  """
  repo = repo or patches.REPO
  state: dict[str, bytes] = {}
  steps = []
  for patch in series:
    files: dict[str, bytes] = {}
    if not patch.applies_to(tree.version):
      steps.append(Step(patch, files))
      continue
    for path in expand(patch.new_files, repo):
      if tests or path.startswith("jax/"):
        files[path] = _bring(path, patch, tree, repo)
    for path in patch.tests if tests else ():
      if path not in state:
        files[path] = _bring(path, patch, tree, repo)
    edited = {}  # In the order of the edits.
    for edit in tree.edits(patch):
      old = files.get(edit.file, state.get(edit.file))
      if old is None:
        old = tree.read(edit.file)
      if old is None and not tests and not edit.file.startswith("jax/"):
        continue  # A test that some release needs otherwise.
      files[edit.file] = apply_edit(old, edit, patch, tree)
      edited[edit.file] = state.get(edit.file, tree.read(edit.file))
    for path, old in edited.items():
      _check_parses(path, old, files[path], patch, tree)
    state |= files
    steps.append(Step(patch, files))
  return steps


def merged(steps: Iterable[Step]) -> dict[str, bytes]:
  """Returns every touched file as it is after the last step."""
  result: dict[str, bytes] = {}
  for step in steps:
    result |= step.files
  return result


def left_out(tree: Tree, series: Iterable[Patch]) -> list[str]:
  """Returns the files of JAX's repository that this tree lacks."""
  return sorted({
      e.file
      for patch in series
      for e in patch.edits
      if e.checkout_only and tree.read(e.file) is None
  })


def apply_edit(
    old: bytes | None, edit: Edit, patch: Patch, tree: Tree
) -> bytes:
  """Returns a file's content with one edit done, or raises AnchorError."""
  if old is None:
    raise _error(patch, edit, tree, "expected the file to exist, found none")
  text = old.decode()
  crlf = "\r\n" in text
  if crlf:
    text = text.replace("\r\n", "\n")
  try:
    new = rewrite.rewrite(text, edit)
  except AnchorError as error:
    raise _error(patch, edit, tree, str(error)) from None
  if new == text:
    raise _error(patch, edit, tree, "expected the edit to change something")
  return (new.replace("\n", "\r\n") if crlf else new).encode()


def _error(patch: Patch, edit: Edit, tree: Tree, what: str) -> AnchorError:
  return AnchorError(
      f"Patch {patch.slug} does not apply to JAX {tree.version}.\n"
      f"  file: {edit.file}\n"
      f"  scope: {edit.scope or '(module level)'}\n"
      f"  anchor: {edit.anchor or '(the scope itself)'}\n"
      f"  problem: {what}\n"
      "  to do: compare the place with the release the edit was written for,"
      " then correct the anchor in"
      f" patches/series/{patch.slug}.py (narrow it with scope, within or"
      " selector; name the releases with versions where they differ).\n"
      "  Nothing was written."
  )


def _check_parses(
    path: str, old: bytes | None, new: bytes, patch: Patch, tree: Tree
) -> None:
  """Raises if a file is no Python any more."""
  if not path.endswith(".py") and _syntax_error(path, old or b"") is not None:
    return
  error = _syntax_error(path, new)
  if error is None:
    return
  line = (error.text or "").strip()
  raise PatchError(
      f"Patch {patch.slug} on JAX {tree.version}: {path} does not parse after"
      f" its edits: {error.msg} at line {error.lineno}: {line!r}. Look at the"
      f" code in patches/series/{patch.slug}.py. Nothing was written."
  )


def _syntax_error(path: str, content: bytes) -> SyntaxError | None:
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")
      compile(content, path, "exec", dont_inherit=True)
  except SyntaxError as error:
    return error
  return None


def _bring(
    path: str, patch: Patch, tree: Tree, repo: pathlib.Path
) -> bytes:
  if tree.read(path) is not None:
    raise PatchError(
        f"Patch {patch.slug} does not apply to JAX {tree.version}.\n"
        f"  file: {path}\n"
        "  problem: the patch brings this file, but the tree has such a file"
        " already\n"
        "  to do: start from a pristine tree, or move the file away if it is"
        " yours.\n"
        "  Nothing was written."
    )
  try:
    return (repo / path).read_bytes()
  except OSError:
    raise PatchError(
        f"Patch {patch.slug} brings {path}, but {repo} has no such file; write"
        " it or correct the patch. Nothing was written."
    ) from None


def write(root: pathlib.Path, files: Mapping[str, bytes | None]) -> None:
  """Writes all the files or none of them; None removes a file.

  A file is replaced, never changed in place, so that hard links to it (in a
  package manager's cache) keep the old content.
  """
  before: dict[pathlib.Path, bytes | None] = {}
  try:
    for name, content in files.items():
      path = root / name
      before[path] = path.read_bytes() if path.is_file() else None
      _replace(path, content)
  except BaseException:
    for path, content in before.items():
      with contextlib.suppress(OSError):
        _replace(path, content)
    raise


def _replace(path: pathlib.Path, content: bytes | None) -> None:
  # Bytecode is only compared by second and size with its source.
  for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
    stale.unlink()
  if content is None:
    path.unlink(missing_ok=True)
    return
  mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
  path.parent.mkdir(parents=True, exist_ok=True)
  handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".patches-")
  try:
    with open(handle, "wb") as f:
      f.write(content)
    os.chmod(temporary, mode)
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise
