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
"""Comparing JAX's own tests with and without the patches.

Neither JAX's wheel nor its source distribution holds tests, so a checkout of
JAX at the release has to be given. Tests that need a GPU skip on both sides,
unless they run on the simulator: then the other side has that, too.
"""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
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
    # tests/mosaic: constraints, layout inference, the dialect.
    "gpu_constraints_test.py",
    "gpu_dialect_test.py",
    "gpu_equations_test.py",
    "gpu_layout_inference_test.py",
    "gpu_transform_inference_test.py",
    # tests/pallas: GPU interpret mode.
    "gpu_pallas_interpret_cluster_barrier_test.py",
    "gpu_pallas_interpret_distributed_test.py",
    "gpu_pallas_interpret_race_detection_test.py",
    "gpu_pallas_interpret_tcgen05_race_detection_test.py",
    "gpu_pallas_interpret_test.py",
)
# What runs on the simulator: the tests of tcgen05.
SIMULATED_FILES = ("gpu_test.py", "mosaic_gpu_test.py")
_SIMULATED_TESTS = "TCGen05"
# The patches that make the simulator run.
_SIMULATOR = (
    "compile_kernels_for_a_b200_without_a_gpu",
    "let_a_simulator_take_over_the_lowering_of_kernels",
)
_PLUGIN = pathlib.Path(__file__).with_name("as_blackwell.py")


def compare(
    base: str,
    folder: pathlib.Path,
    files: Sequence[str],
    jobs: int,
    simulate: bool = False,
) -> int:
  """Runs tests on both trees, prints what differs, returns the exit code.

  Args:
    base: the release.
    folder: a checkout of JAX, or a folder with tests.
    files: the tests, by name or path in the folder; by default FILES, or
      SIMULATED_FILES.
    jobs: how many processes run tests.
    simulate: whether to run tests of tcgen05 on the simulator.
  """
  tests = find(folder, files, SIMULATED_FILES if simulate else FILES)
  tree = engine.Tree.open(trees.pristine(base))
  series = engine.load_series()
  without = [
      patch for patch in series
      if simulate
      and (patch.slug in _SIMULATOR or patch.slug.startswith("simulator_"))
  ]
  helpers = only_in_checkout(folder, tree)
  python = pathlib.Path(sys.executable)
  if base != patches.BASE:
    python = trial.environment(
        trees.cache() / "trials" / base / "venv", trial.requirements(base)
    )
  with tempfile.TemporaryDirectory(prefix="patches-") as name:
    scratch = pathlib.Path(name)
    found = []
    for where, some in (("without", without), ("with", series)):
      # The tree in the cache stays as it was released.
      root = scratch / where
      trees.copy(tree.root, root)
      engine.write(
          root, engine.merged(engine.compute(tree, some, tests=False))
      )
      engine.write(root, helpers)
      found.append(
          _run(python, root, folder, tests, jobs, scratch, simulate)
      )
  before, after = found
  different = differences(before, after)
  for line in different:
    print(line)
  worsened = worse(before, after)
  counts = collections.Counter(before.values())
  shown = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
  print(
      f"{base}: {len(before)} tests of {len(tests)} files without the patches:"
      f" {shown}; with them, {len(different)} differ,"
      f" {len(worsened)} for the worse"
  )
  return 1 if worsened else 0


def find(
    folder: pathlib.Path, files: Sequence[str], default: Sequence[str] = FILES
) -> list[pathlib.Path]:
  """Returns the tests that are given, or what is there of the default."""
  places = [folder, folder / "tests/mosaic", folder / "tests/pallas"]
  found = [
      next((p / f for p in places if (p / f).is_file()), None)
      for f in files or default
  ]
  missing = [f for f, path in zip(files, found) if path is None]
  result = [path.absolute() for path in found if path is not None]
  if missing or not result:
    raise PatchError(
        f"Expected {folder} to be a checkout of JAX or a folder with tests,"
        f" found no {', '.join(missing or default)} in it or in its"
        " tests/mosaic or tests/pallas"
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


def worse(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
  """Returns the tests that have another result, unless they pass now."""
  return [
      test for test in sorted(before.keys() | after.keys())
      if after.get(test) not in (before.get(test), "passed")
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
    simulate: bool,
) -> dict[str, str]:
  """Runs tests on one tree and returns their results."""
  report = scratch / f"{root.name}.xml"
  env = trees.environment(root)
  options = []
  if simulate:
    # Where Python finds it: in the working directory.
    shutil.copy(_PLUGIN, scratch)
    options = ["-p", _PLUGIN.stem, "-k", _SIMULATED_TESTS]
    env |= {"MOSAIC_GPU_SIMULATE": "1", "JAX_PLATFORMS": "cpu"}
  result = subprocess.run(
      [str(python), "-m", "pytest", "-q", "-n", str(jobs), "-c", os.devnull,
       "--rootdir", str(folder.absolute()), "-p", "no:cacheprovider",
       f"--junitxml={report}", *options, *map(str, tests)],
      cwd=scratch, env=env, stdin=subprocess.DEVNULL,
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
