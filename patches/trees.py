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
"""Pristine JAX trees: wheels from the package index, kept in a cache folder."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

import patches
from patches.model import PatchError

# Overrides where the cache is.
CACHE_VARIABLE = "JAX_PATCHES_CACHE"


def cache() -> pathlib.Path:
  """Returns the cache folder, which git ignores."""
  if folder := os.environ.get(CACHE_VARIABLE):
    return pathlib.Path(folder).absolute()
  return patches.REPO / ".cache"


def wheel(version: str, download: bool = True) -> pathlib.Path:
  """Returns JAX's own wheel, downloaded unless it is in the cache."""
  name = f"jax-{version}-py3-none-any.whl"
  path = cache() / "wheels" / name
  if path.is_file():
    return path
  if not download:
    raise PatchError(
        f"Expected JAX's wheel in the cache, found no {path}; run `python -m"
        f" patches check --base {version} --no-tests` once, online"
    )
  path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=path.parent) as folder:
    # Without our own build of it, which pip would take for a newer one.
    wanted = f"jax=={version},!={version}+{patches.LABEL}"
    result = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--no-deps", wanted,
            "--python-version", "3.12", "--only-binary=:all:", "--dest", folder,
            "--quiet", "--disable-pip-version-check",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    fetched = pathlib.Path(folder) / name
    if result.returncode or not fetched.is_file():
      raise PatchError(
          f"Expected `pip download {wanted}` to bring {name}, got exit code"
          f" {result.returncode}:\n{result.stdout}{result.stderr}\n"
          f"Go online, or put the wheel at {path} yourself"
      )
    os.replace(fetched, path)
  return path


def pristine(version: str, download: bool = True) -> pathlib.Path:
  """Returns an unpacked wheel of JAX. Never write to it: copy it."""
  tree = cache() / "trees" / f"jax-{version}"
  if tree.is_dir() and not changed(tree, record(tree)):
    return tree
  source = wheel(version, download)
  tree.parent.mkdir(parents=True, exist_ok=True)
  folder = tempfile.mkdtemp(dir=tree.parent)
  try:
    unpacked = pathlib.Path(folder) / "tree"
    with zipfile.ZipFile(source) as archive:
      archive.extractall(unpacked)
    if different := changed(unpacked, record(unpacked)):
      raise PatchError(
          f"Expected {source} to hold what its RECORD says, but"
          f" {', '.join(different[:5])} differ; delete it and try again"
      )
    shutil.rmtree(tree, ignore_errors=True)
    os.rename(unpacked, tree)
  finally:
    shutil.rmtree(folder, ignore_errors=True)
  return tree


def copy(tree: pathlib.Path, to: pathlib.Path) -> None:
  """Copies a tree, by hard links where possible.

  Whoever changes a file of the copy must replace it, as `engine.write` does.
  """

  def link(source, target):
    try:
      os.link(source, target)
    except OSError:
      shutil.copyfile(source, target)

  shutil.copytree(
      tree, to, copy_function=link, dirs_exist_ok=True,
      ignore=shutil.ignore_patterns("__pycache__"),
  )


def environment(tree: pathlib.Path) -> dict[str, str]:
  """Returns the variables for a process whose `jax` is the tree's."""
  env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
  env["PYTHONPATH"] = str(tree)
  # The same result with and without a GPU, and compiling for another one
  # works. Set it yourself to test on a GPU.
  env.setdefault("JAX_PLATFORMS", "cpu")
  # Trees share what they compile.
  env.setdefault("MOSAIC_GPU_DEVICELESS_CACHE", str(cache() / "kernels"))
  env.pop("PYTHONSAFEPATH", None)
  return env


def dist_info(tree: pathlib.Path) -> pathlib.Path | None:
  """Returns the metadata folder of the JAX in a tree, if it has one."""
  found = sorted(tree.glob("jax-*.dist-info"))
  return found[0] if len(found) == 1 else None


def record(tree: pathlib.Path) -> dict[str, str]:
  """Returns the hash of every file of a wheel or an installed JAX."""
  info = dist_info(tree)
  if info is None or not (info / "RECORD").is_file():
    return {}
  with open(info / "RECORD", newline="", encoding="utf-8") as f:
    return {row[0]: row[1] for row in csv.reader(f) if len(row) == 3 and row[1]}


def changed(tree: pathlib.Path, hashes: dict[str, str]) -> list[str]:
  """Returns the files that are not as their hash says."""
  return [p for p, h in hashes.items() if not _matches(tree / p, h)]


def hash_of(content: bytes) -> str:
  """Returns a hash as RECORD has it."""
  digest = hashlib.sha256(content).digest()
  return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _matches(path: pathlib.Path, expected: str) -> bool:
  try:
    return hash_of(path.read_bytes()) == expected
  except OSError:
    return False
