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
"""A tiny JAX and a tiny repository for the tests of the patch engine."""

import pathlib
import textwrap

from patches import engine
from patches.model import Edit, Patch

VERSION = "0.12.0.1"
FILE = "jax/tiles.py"

SOURCE = '''
"""Doc."""

import math
import os

LIMIT = 4


def decorate(f):
  return f


@decorate
def rows(shape, packing: int = 1, *, strict=False):
  """Doc of rows."""
  # The limit.
  if shape[0] > LIMIT:
    raise ValueError(f"too many rows: {shape}")
  total = shape[0] * packing  # Trailing.

  for i in range(total):
    text = """
verbatim
    """
    os.write(i, text)
  return math.prod(
      shape,
      start=1,  # One.
  )


class Ref:
  width: int = 0

  @property
  def size(self):
    return self.width

  def slice(self, start, stop):
    if start:
      total = 1
    elif stop:
      total = 2
    else:
      total = 3
    return dict(a=total, b=2)
'''.lstrip()


def make_tree(root: pathlib.Path, files=None, version=VERSION) -> engine.Tree:
  """Writes a tree of the given files and opens it."""
  files = {FILE: SOURCE} if files is None else files
  files = {"jax/version.py": f'_version = "{version}"\n'} | files
  for name, content in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(content))
  return engine.Tree.open(root)


def make_patch(*edits, subject="[Tiles] Change the tiles", **kwargs) -> Patch:
  return Patch(subject=subject, body="Because.", edits=edits, **kwargs)


def make_edit(**kwargs) -> Edit:
  return Edit(**({"file": FILE} | kwargs))


def snapshot(root: pathlib.Path) -> dict[str, bytes]:
  """Returns all files below a folder."""
  return {
      p.relative_to(root).as_posix(): p.read_bytes()
      for p in root.rglob("*")
      if p.is_file()
  }
