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
"""Building the patched wheel out of a pristine JAX."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import patches
from patches import engine, state, trees
from patches.model import PatchError

VERSION = f"{patches.BASE}+{patches.LABEL}"
DIST_INFO = f"jax-{VERSION}.dist-info"
# The time of all files in the wheel, unless SOURCE_DATE_EPOCH says another.
EPOCH = "1767225600"

# What installing adds to a dist-info folder.
_INSTALLER_FILES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
_NOTICE = "PATCHES.txt"


def build(
    folder: pathlib.Path,
    base: pathlib.Path | None = None,
    repo: pathlib.Path | None = None,
) -> str:
  """Builds the wheel.

  Args:
    folder: where the wheel goes.
    base: folder with the pristine `jax` and its dist-info; by default the JAX
      that is installed, or else the one in the cache.
    repo: where the overlay and the tests are; this repository by default.

  Returns:
    The wheel's file name.
  """
  repo = repo or patches.REPO
  base = base or find_base()
  with tempfile.TemporaryDirectory(prefix="patches-") as name:
    root = pathlib.Path(name) / "tree"
    _copy_base(base, root)
    tree = engine.Tree.open(root)
    if tree.version != patches.BASE:
      raise PatchError(
          f"Expected the wheel's base to be JAX {patches.BASE}, got"
          f" {tree.version} in {base}"
      )
    series = engine.load_series()
    files = engine.merged(engine.compute(tree, series, tests=False, repo=repo))
    files |= overlay(tree, files, repo)
    engine.write(root, files)
    info = root / DIST_INFO
    os.rename(trees.dist_info(root), info)
    (info / "METADATA").write_bytes(metadata(base))
    (info / _NOTICE).write_text(_notice(series, files))
    _normalise_modes(root)
    folder.mkdir(parents=True, exist_ok=True)
    _pack(root, folder)
  result = f"jax-{VERSION}-py3-none-any.whl"
  if not (folder / result).is_file():
    raise PatchError(
        f"Expected `wheel pack` to make {result}, found"
        f" {sorted(p.name for p in folder.glob('*.whl'))}"
    )
  return result


def overlay(
    tree: engine.Tree, files: dict[str, bytes], repo: pathlib.Path
) -> dict[str, bytes]:
  """Returns what is in our `jax/` beyond what the series brings."""
  result = {}
  for path in engine.overlay_files(repo, "jax"):
    if path in files:
      continue
    if tree.read(path) is not None:
      raise PatchError(
          f"Expected {path} of this repository to be new, but JAX"
          f" {tree.version} has such a file; change it by a patch instead"
      )
    result[path] = (repo / path).read_bytes()
  return result


def metadata(base: pathlib.Path) -> bytes:
  """Returns JAX's METADATA with our version; all else stays."""
  info = trees.dist_info(base)
  content = (info / "METADATA").read_bytes()
  new, count = re.subn(
      rb"^Version: [^\r\n]*", f"Version: {VERSION}".encode(), content,
      count=1, flags=re.M,
  )
  if not count:
    raise PatchError(f"Expected a Version in {info / 'METADATA'}, found none")
  return new


def write_metadata(folder: pathlib.Path) -> str:
  """Writes the wheel's dist-info without building it; returns its name."""
  base = find_base()
  info = folder / DIST_INFO
  shutil.copytree(
      trees.dist_info(base), info,
      ignore=shutil.ignore_patterns(*_INSTALLER_FILES),
  )
  (info / "METADATA").write_bytes(metadata(base))
  return DIST_INFO


def find_base() -> pathlib.Path:
  """Returns the folder of a pristine JAX of the release that we build on."""
  try:
    dist = importlib.metadata.distribution("jax")
  except importlib.metadata.PackageNotFoundError:
    return trees.pristine(patches.BASE)
  root = pathlib.Path(dist.locate_file(""))
  if dist.version == patches.BASE and trees.record(root):
    try:
      state.require_pristine(engine.Tree.open(root), engine.load_series())
      if not trees.changed(root, _owned(root)):
        return root
    except PatchError:
      pass
  # Built without isolation in an environment that has our own JAX.
  return trees.pristine(patches.BASE)


def _owned(base: pathlib.Path) -> dict[str, str]:
  """Returns the files that come from the wheel, with their hashes."""
  info = trees.dist_info(base)
  return {
      path: hash_
      for path, hash_ in trees.record(base).items()
      if "__pycache__" not in path
      and not path.startswith("..")
      and path not in {f"{info.name}/{n}" for n in _INSTALLER_FILES}
  }


def _copy_base(base: pathlib.Path, root: pathlib.Path) -> None:
  for path in _owned(base):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(base / path, root / path)


def _notice(series, files: dict[str, bytes]) -> str:
  """Says what was changed, as JAX's licence asks of changed copies."""
  lines = [
      f"This is JAX {patches.BASE} with changes that are not part of JAX.",
      "",
      "Patches:",
      *(f"  {patch.subject}" for patch in series),
      "",
      "Files changed or added:",
      *(f"  {path}" for path in sorted(files)),
  ]
  digest = hashlib.sha256()
  for path in sorted(files):
    digest.update(path.encode() + b"\0" + files[path] + b"\0")
  return "\n".join(lines + ["", f"Content: sha256 {digest.hexdigest()}", ""])


def _normalise_modes(root: pathlib.Path) -> None:
  """Makes the wheel independent of the umask and of the base's modes."""
  for path in root.rglob("*"):
    path.chmod(0o755 if path.is_dir() else 0o644)


def _pack(root: pathlib.Path, folder: pathlib.Path) -> None:
  env = dict(os.environ)
  env.setdefault("SOURCE_DATE_EPOCH", EPOCH)
  result = subprocess.run(
      [sys.executable, "-m", "wheel", "pack", str(root), "--dest-dir",
       str(folder)],
      env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
  )
  if result.returncode:
    raise PatchError(
        f"Expected `wheel pack` to succeed, got exit code {result.returncode}:"
        f"\n{result.stdout}{result.stderr}"
    )
