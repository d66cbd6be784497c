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
"""PEP 517 hooks: what pip calls to build our JAX out of this repository."""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import subprocess
import tarfile

import patches
from patches import engine, wheel
from patches.model import PatchError

_SDIST_SKIPS = (".git", ".cache", "build", "dist")


def get_requires_for_build_wheel(config_settings=None) -> list[str]:
  """The base comes to the build environment as an ordinary requirement."""
  del config_settings
  return [f"jax=={patches.BASE}"]


def prepare_metadata_for_build_wheel(
    metadata_directory, config_settings=None
) -> str:
  del config_settings
  return wheel.write_metadata(pathlib.Path(metadata_directory))


def build_wheel(
    wheel_directory, config_settings=None, metadata_directory=None
) -> str:
  del config_settings, metadata_directory
  return wheel.build(pathlib.Path(wheel_directory))


def get_requires_for_build_editable(config_settings=None) -> list[str]:
  del config_settings
  raise PatchError(
      "Expected a normal install, got an editable one. Most of what this"
      " repository installs are JAX's own files with changes, so there is"
      " nothing here that an editable install could point at. Run `pip install"
      " .` once, then `python -m patches refresh` after every change."
  )


def build_editable(
    wheel_directory, config_settings=None, metadata_directory=None
) -> str:
  del wheel_directory, metadata_directory
  get_requires_for_build_editable(config_settings)
  raise AssertionError("unreachable")


def get_requires_for_build_sdist(config_settings=None) -> list[str]:
  del config_settings
  return []


def build_sdist(sdist_directory, config_settings=None) -> str:
  """Packs this repository; JAX itself is not in it."""
  del config_settings
  name = f"jax-{wheel.VERSION}"
  files = {p: (patches.REPO / p).read_bytes() for p in repository_files()}
  files["PKG-INFO"] = (
      f"Metadata-Version: 2.1\nName: jax\nVersion: {wheel.VERSION}\n"
  ).encode()
  epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or wheel.EPOCH)
  target = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
  with (
      open(target, "wb") as raw,
      gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch) as packed,
      tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
  ):
    for path in sorted(files):
      entry = tarfile.TarInfo(f"{name}/{path}")
      entry.size, entry.mtime, entry.mode = len(files[path]), epoch, 0o644
      tar.addfile(entry, io.BytesIO(files[path]))
  return target.name


def repository_files() -> list[str]:
  """Returns what git does not ignore, or outside git all but litter."""
  if (patches.REPO / ".git").exists():
    try:
      listed = subprocess.run(
          ["git", "ls-files", "-z", "--cached", "--others",
           "--exclude-standard"],
          cwd=patches.REPO, check=True, stdin=subprocess.DEVNULL,
          capture_output=True,
      ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
      listed = ""
    if listed:
      paths = listed.removesuffix("\0").split("\0")
      return [p for p in paths if (patches.REPO / p).is_file()]
  return [
      p
      for p in engine.overlay_files(patches.REPO, ".")
      if p.split("/")[0] not in _SDIST_SKIPS
  ]
