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
"""Running the series on a release as its users have it: with its own jaxlib.

Each release gets a virtual environment in the cache folder, and beside it a
patched tree, in which the tests of the series run.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import patches
from patches import engine, trees
from patches.model import PatchError

# The requirements that are released together with JAX.
_RELEASED_TOGETHER = ("jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt")


def trial(bases: Sequence[str] = patches.SUPPORTED, jobs: int = 2) -> int:
  """Tries the releases, prints a table and returns the exit code."""
  failed = 0
  for base in bases:
    start = time.monotonic()
    try:
      result = _try(base, jobs)
    except PatchError as error:
      result = f"FAILED\n{error}\n"
      failed += 1
    seconds = time.monotonic() - start
    print(f"{base:9} {seconds:7.1f}s  {result}", flush=True)
  print(f"trial: {f'{failed} FAILED' if failed else 'OK'}")
  return 1 if failed else 0


def _try(base: str, jobs: int) -> str:
  """Tests the series on one release and returns pytest's last line."""
  folder = trees.cache() / "trials" / base
  tree = engine.Tree.open(trees.pristine(base))
  series = tree.patches(engine.load_series())
  files = engine.merged(engine.compute(tree, series))
  python = environment(folder / "venv", requirements(base))
  root = folder / "tree"
  shutil.rmtree(root, ignore_errors=True)
  trees.copy(tree.root, root)
  engine.write(root, files)
  tests = list(dict.fromkeys(t for patch in series for t in patch.tests))
  output = _run(
      [python, "-m", "pytest", "-q", "-n", str(jobs), "-p", "no:cacheprovider",
       "--rootdir", root, *tests],
      root, trees.environment(root), log=folder / "pytest.log",
  )
  last = output.strip().splitlines()[-1].strip("= ")
  return f"{len(series)} patches, {len(tests)} test files: {last}"


def requirements(base: str) -> str:
  """Returns requirements.txt with JAX's parts of another release."""
  names = "|".join(_RELEASED_TOGETHER)
  text, count = re.subn(
      rf"^({names})==.*$", rf"\1=={base}",
      (patches.REPO / "requirements.txt").read_text(), flags=re.M,
  )
  if count != len(_RELEASED_TOGETHER):
    raise PatchError(
        f"Expected requirements.txt to pin {', '.join(_RELEASED_TOGETHER)},"
        f" found {count} of them"
    )
  return text


def environment(venv: pathlib.Path, wanted: str) -> pathlib.Path:
  """Makes a virtual environment, unless there is one; returns its Python."""
  python = venv / "bin" / "python"
  done = venv / "requirements.txt"
  if done.is_file() and done.read_text() == wanted:
    return python
  shutil.rmtree(venv, ignore_errors=True)
  _run([sys.executable, "-m", "venv", venv], venv.parent.parent)
  (venv / "wanted.txt").write_text(wanted)
  _run([python, "-m", "pip", "install", "--quiet", "--requirement",
        venv / "wanted.txt"], venv)
  os.replace(venv / "wanted.txt", done)
  return python


def _run(
    command: Sequence[str | os.PathLike],
    cwd: pathlib.Path,
    env=None,
    log: pathlib.Path | None = None,
) -> str:
  """Returns the output, which also goes to `log` while the command runs."""
  cwd.mkdir(parents=True, exist_ok=True)
  with log.open("w+") if log else tempfile.TemporaryFile("w+") as file:
    code = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
        stdout=file, stderr=subprocess.STDOUT,
    ).returncode
    file.seek(0)
    output = file.read()
  if code:
    tail = "\n".join(output.splitlines()[-80:])
    raise PatchError(
        f"Expected `{' '.join(map(str, command[1:4]))}` to succeed, got exit"
        f" code {code}:\n{tail}" + (f"\nAll of it: {log}" if log else "")
    )
  return output
