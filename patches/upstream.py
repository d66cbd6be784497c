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
"""Running JAX's own tests on the patched and on the pristine release.

Neither JAX's wheel nor its source distribution holds tests, so a checkout of
JAX at the release has to be given. Tests that need a GPU skip on both sides.
"""

from __future__ import annotations

import collections
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import patches
from patches import engine, trees, trial
from patches.model import PatchError

# What of Mosaic GPU's tests runs without a GPU, where a release has it.
FILES = (
    "gpu_constraints_test.py",
    "gpu_dialect_test.py",
    "gpu_equations_test.py",
    "gpu_layout_inference_test.py",
    "gpu_transform_inference_test.py",
)


def compare(
    base: str, folder: pathlib.Path, files: Sequence[str], jobs: int
) -> int:
  """Runs tests on both trees, prints what differs, returns the exit code.

  Args:
    base: the release.
    folder: a checkout of JAX, or a folder with tests.
    files: the tests, by name or path in the folder; by default FILES.
    jobs: how many processes run tests.
  """
  tests = find(folder, files)
  tree = engine.Tree.open(trees.pristine(base))
  patched = engine.merged(
      engine.compute(tree, engine.load_series(), tests=False)
  )
  with tempfile.TemporaryDirectory(prefix="patches-") as name:
    root = pathlib.Path(name) / "patched"
    trees.copy(tree.root, root)
    engine.write(root, patched)
    # The tree in the cache stays as it was released.
    pristine = pathlib.Path(name) / "pristine"
    trees.copy(tree.root, pristine)
    helpers = only_in_checkout(folder, tree)
    for copy in (pristine, root):
      engine.write(copy, helpers)
    python = pathlib.Path(sys.executable)
    if base != patches.BASE:
      python = trial.environment(
          trees.cache() / "trials" / base / "venv", trial.requirements(base)
      )
    before = _run(python, pristine, folder, tests, jobs, pathlib.Path(name))
    after = _run(python, root, folder, tests, jobs, pathlib.Path(name))
  different = differences(before, after)
  for line in different:
    print(line)
  counts = collections.Counter(before.values())
  shown = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
  print(
      f"{base}: {len(before)} tests of {len(tests)} files without the patches:"
      f" {shown}; with them, {len(different)} differ"
  )
  return 1 if different else 0


def find(folder: pathlib.Path, files: Sequence[str]) -> list[pathlib.Path]:
  """Returns the tests that are meant."""
  places = [folder, folder / "tests" / "mosaic"]
  found = [
      next((p / f for p in places if (p / f).is_file()), None)
      for f in files or FILES
  ]
  missing = [f for f, path in zip(files, found) if path is None]
  result = [path.absolute() for path in found if path is not None]
  if missing or not result:
    raise PatchError(
        f"Expected {folder} to be a checkout of JAX or a folder with tests,"
        f" found no {', '.join(missing or FILES)} in it or in its tests/mosaic"
    )
  return result


def only_in_checkout(
    folder: pathlib.Path, tree: engine.Tree
) -> dict[str, bytes]:
  """Returns the modules of a checkout that the wheel lacks: tests use some."""
  return {
      path: (folder / path).read_bytes()
      for path in engine.overlay_files(folder, "jax")
      if path.endswith(".py") and tree.read(path) is None
  }


def differences(
    before: Mapping[str, str], after: Mapping[str, str]
) -> list[str]:
  """Returns a line for each test that has another result."""
  return [
      f"{test}: {before.get(test, 'missing')} without the patches,"
      f" {after.get(test, 'missing')} with them"
      for test in sorted(before.keys() | after.keys())
      if before.get(test) != after.get(test)
  ]


def results(report: pathlib.Path) -> dict[str, str]:
  """Returns the result of each test in a JUnit report of pytest."""
  found = {}
  for case in ElementTree.parse(report).iter("testcase"):
    kinds = {child.tag for child in case}
    result = next(
        (k for k in ("error", "failure", "skipped") if k in kinds), "passed"
    )
    found[f"{case.get('classname')}.{case.get('name')}"] = result
  return found


def _run(
    python: pathlib.Path,
    root: pathlib.Path,
    folder: pathlib.Path,
    tests: Sequence[pathlib.Path],
    jobs: int,
    scratch: pathlib.Path,
) -> dict[str, str]:
  """Runs tests on one tree and returns their results."""
  report = scratch / f"{root.name}.xml"
  result = subprocess.run(
      [str(python), "-m", "pytest", "-q", "-n", str(jobs), "-c", os.devnull,
       "--rootdir", str(folder.absolute()), "-p", "no:cacheprovider",
       f"--junitxml={report}", *map(str, tests)],
      cwd=scratch, env=trees.environment(root), stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
  )
  # 1: some tests failed, which the other side may say, too.
  found = results(report) if result.returncode in (0, 1) else {}
  if not found or "collection failure" in report.read_text():
    tail = "\n".join(result.stdout.splitlines()[-40:])
    raise PatchError(
        f"Expected pytest to run tests on {root}, got exit code"
        f" {result.returncode}:\n{tail}"
    )
  return found
