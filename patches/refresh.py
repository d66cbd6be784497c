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
"""Bringing the installed JAX to the state of the series, without a build."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import pathlib

import patches
from patches import engine, trees, wheel
from patches.model import PatchError


def refresh(
    root: pathlib.Path | None = None,
    repo: pathlib.Path | None = None,
    force: bool = False,
) -> tuple[list[str], list[str]]:
  """Updates the installed JAX; writes only what differs.

  RECORD is kept true, so that pip can uninstall or replace the result, and so
  that the next refresh can tell its own work from somebody's edits.

  Args:
    root: the site-packages folder; by default where JAX is installed.
    repo: where the overlay is; this repository by default.
    force: whether to overwrite files that were edited by hand.

  Returns:
    The files written and the files removed.
  """
  repo = repo or patches.REPO
  root = root or _installed()
  recorded = _require_ours(root)
  wanted = _wanted(repo)
  # Bytecode and what belongs to the installer is not ours to judge.
  ours = {p: h for p, h in recorded.items()
          if p.startswith("jax/") and "__pycache__" not in p}
  edited = [
      p for p in trees.changed(root, ours)
      if wanted.get(p) != _read(root / p)
  ]
  if edited and not force:
    raise PatchError(
        f"Expected the JAX in {root} to be as it was installed or refreshed,"
        f" but these files were edited: {', '.join(sorted(edited)[:10])}. Put"
        " the change into the series, or add --force to lose it"
    )
  stale = sorted(ours.keys() - wanted.keys())
  written = sorted(p for p, c in wanted.items() if _read(root / p) != c)
  unknown = [p for p in written if p not in ours and (root / p).exists()]
  if unknown and not force:
    raise PatchError(
        f"Expected no {', '.join(unknown)} in {root}: the series brings such a"
        " file. Delete it, or add --force to overwrite it"
    )
  changes = {p: wanted[p] for p in written} | dict.fromkeys(stale)
  if changes or wanted.keys() - ours.keys():
    info = trees.dist_info(root)
    record = info.relative_to(root).as_posix() + "/RECORD"
    changes[record] = _record(info / "RECORD", wanted, stale)
    engine.write(root, changes)
  return written, stale


def _installed() -> pathlib.Path:
  try:
    dist = importlib.metadata.distribution("jax")
  except importlib.metadata.PackageNotFoundError:
    raise PatchError(
        "Expected JAX to be installed in this environment, found none; run"
        " `pip install .` in this repository"
    ) from None
  return pathlib.Path(dist.locate_file(""))


def _require_ours(root: pathlib.Path) -> dict[str, str]:
  """Returns RECORD of an installed JAX that may be refreshed."""
  info = trees.dist_info(root)
  allowed = [f"jax-{patches.BASE}.dist-info", wheel.DIST_INFO]
  recorded = trees.record(root)
  if info is None or info.name not in allowed or "jax/version.py" not in (
      recorded
  ):
    raise PatchError(
        f"Expected JAX {patches.BASE} or our build of it ({wheel.VERSION}) in"
        f" {root}, got {info.name if info else 'something else'}; run `pip"
        " install .` in this repository first"
    )
  return recorded


def _wanted(repo: pathlib.Path) -> dict[str, bytes]:
  """Returns all files of `jax/` as our wheel has them."""
  base = trees.pristine(patches.BASE)
  tree = engine.Tree.open(base)
  steps = engine.compute(tree, engine.load_series(), tests=False, repo=repo)
  files = {p: (base / p).read_bytes() for p in trees.record(base)
           if p.startswith("jax/")}
  files |= engine.merged(steps)
  return files | wheel.overlay(tree, files, repo)


def _record(
    path: pathlib.Path, wanted: dict[str, bytes], stale: list[str]
) -> bytes:
  with open(path, newline="", encoding="utf-8") as f:
    rows = {row[0]: row for row in csv.reader(f) if row}
  for name in stale:
    del rows[name]
  for name, content in wanted.items():
    rows[name] = [name, trees.hash_of(content), str(len(content))]
  out = io.StringIO()
  csv.writer(out, lineterminator="\n").writerows(rows.values())
  return out.getvalue().encode()


def _read(path: pathlib.Path) -> bytes | None:
  return path.read_bytes() if path.is_file() else None
