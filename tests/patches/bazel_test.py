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
"""Tests of BUILD: as Starlark, against the files, and what JAX gets of it."""

import ast
import os
import pathlib
import shutil
import subprocess
import tempfile

import starlark
from absl.testing import absltest

import patches
from patches import bazel, checkout, engine, trees
from patches.model import PatchError

_BUILD = patches.REPO / "BUILD"
# Tests that need the patch engine, which is not for JAX.
_ONLY_HERE = ("gpu_full_matrix_test", "pristine_parity_test")


def _evaluate(text: str, repo: pathlib.Path) -> list[bazel.Target]:
  """Evaluates a BUILD file with a Starlark interpreter."""
  found: list[bazel.Target] = []
  functions = bazel.functions(repo, found)
  symbols = {*bazel.RULES, "if_cuda_is_configured", "py_deps"}

  def load(path: str) -> starlark.FrozenModule:
    del path
    loaded = starlark.Module()
    for name in symbols:
      loaded.add_callable(name, functions[name])
    return loaded.freeze()

  module = starlark.Module()
  for name in functions.keys() - symbols - {"load"}:
    module.add_callable(name, functions[name])
  starlark.eval(
      module, starlark.parse("BUILD", text), starlark.Globals.standard(),
      starlark.FileLoader(load),
  )
  return found


class BuildTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.targets = bazel.targets(patches.REPO)

  def test_it_is_starlark(self):
    found = _evaluate(_BUILD.read_text(), patches.REPO)
    self.assertEqual(
        [(t.rule, t.arguments) for t in found],
        [(t.rule, t.arguments) for t in self.targets],
    )
    self.assertNotEmpty(found)

  def test_what_is_no_starlark_is_noticed(self):
    for text, error in (
        ("import os\n", "import"),
        ("unknown_rule(name = 'a')\n", "unknown_rule"),
        ("py_library(name = 'a')\n", "py_library"),  # Not loaded.
    ):
      with self.assertRaisesRegex(starlark.StarlarkError, error):
        _evaluate(text, patches.REPO)

  def test_names_are_unique(self):
    names = [t.name for t in self.targets]
    self.assertCountEqual(names, set(names))

  def test_every_test_has_one_target(self):
    tests = {
        p.relative_to(patches.REPO).as_posix()
        for p in (patches.REPO / "tests/mosaic").rglob("*_test.py")
        if p.stem not in _ONLY_HERE
    }
    of_targets = [t.main for t in self.targets if t.rule.endswith("_test")]
    self.assertCountEqual(of_targets, tests)
    for target in self.targets:
      if target.rule.endswith("_test"):
        stem = pathlib.Path(target.main).stem
        self.assertIn(target.name, (stem, f"simulator_{stem}"))

  def test_every_test_of_the_series_has_a_target(self):
    of_targets = {t.main for t in self.targets}
    for patch in engine.load_series():
      self.assertContainsSubset(patch.tests, of_targets)

  def test_files_exist(self):
    for target in self.targets:
      self.assertIn(target.main, target.arguments["srcs"])
      for path in target.arguments["srcs"] + target.arguments.get("data", []):
        self.assertTrue((patches.REPO / path).is_file(), path)

  def test_labels_exist(self):
    names = {t.name for t in self.targets}
    for target in self.targets:
      for label in target.arguments["deps"]:
        if label.startswith(":"):
          self.assertIn(label[1:], names)

  def test_sources_hold_what_a_test_imports(self):
    for target in self.targets:
      if not target.rule.endswith("_test"):
        continue
      sources = {pathlib.Path(p).stem: p for p in target.arguments["srcs"]}
      todo, seen = [target.main], set()
      while todo:
        path = todo.pop()
        for name in _helpers(path):
          with self.subTest(target.name, imports=name):
            self.assertIn(name, sources)
          if name not in seen:
            seen.add(name)
            todo.append(sources.get(name, path))

  def test_kernels_run_on_a_b200_and_the_rest_without_a_gpu(self):
    for target in self.targets:
      if target.rule == "jax_multiplatform_test":
        self.assertEqual(target.arguments["enable_backends"], [])
        self.assertEqual(target.arguments["enable_configs"], ["gpu_b200"])
      elif target.rule == "jax_py_test":
        self.assertEqual(
            target.arguments["tags"], ["gpu_mlir_deviceless_test"]
        )

  def test_source_outside_of_all_packages(self):
    target = bazel.Target("py_library", {"name": "a", "srcs": ["docs/a.py"]})
    with self.assertRaisesRegex(PatchError, "sources of a .*got docs/a.py"):
      target.package


def _helpers(path: str) -> set[str]:
  """Returns the modules beside a test that it imports."""
  folder = (patches.REPO / path).parent
  names = set()
  for node in ast.walk(ast.parse((patches.REPO / path).read_bytes())):
    if isinstance(node, ast.Import):
      names |= {alias.name.split(".")[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
      names.add(node.module.split(".")[0])
  return {
      n for n in names
      if any((f / f"{n}.py").is_file() for f in (folder, folder.parent))
  }


class CheckoutTest(absltest.TestCase):
  """JAX's own BUILD files, on a stand-in for a checkout."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    folder = cls.enterClassContext(tempfile.TemporaryDirectory())
    wheel = engine.Tree.open(trees.pristine(patches.BASE))
    cls.tree = checkout.make(wheel, pathlib.Path(folder) / "tree")
    cls.steps = engine.compute(cls.tree, engine.load_series())

  def test_each_package_gets_its_targets(self):
    files = engine.merged(self.steps)
    engine.write(self.tree.root, files)
    targets = bazel.targets(patches.REPO)
    for package in bazel.PACKAGES:
      path = f"{package}/BUILD"
      found = _evaluate(files[path].decode(), self.tree.root / package)
      expected = {t.name: t for t in targets if t.package == package}
      self.assertCountEqual([t.name for t in found], expected)
      for target in found:
        sources = [f"{package}/{p}" for p in target.arguments["srcs"]]
        with self.subTest(target.name):
          # A checkout has helpers of its own, which a glob finds.
          self.assertContainsSubset(
              expected[target.name].arguments["srcs"],
              [p for p in sources if (self.tree.root / p).is_file()],
          )

  def test_a_patch_names_no_file_that_is_not_there_yet(self):
    there = set()
    for step in self.steps:
      there |= step.files.keys()
      for package in bazel.PACKAGES:
        text = step.files.get(f"{package}/BUILD")
        for target in _evaluate(text.decode(), patches.REPO) if text else ():
          for path in target.arguments["srcs"]:
            with self.subTest(step.patch.slug, target=target.name):
              self.assertIn(f"{package}/{path}", there)

  def test_more_rows_in_tests_of_jax(self):
    expected = {
        "tests/mosaic/gpu_test.py": {
            "test_mma_sparse": [128, 256],
            "test_mma_sparse_lhs_tmem": [128, 256],
            "test_mma_sparse_collective": [256, 512],
            "test_mma_block_scaled_sparse": [128, 256],
            "test_tcgen05_mma_sparse": [128, 256],
        },
        "tests/pallas/mosaic_gpu_test.py": {
            "test_simple_sparse_matmul": [128, 256],
            "test_block_scaled_sparse_matmul": [128, 256],
            "test_sparse_matmul_collective": [256, 512],
        },
    }
    for path, rows in expected.items():
      text = engine.merged(self.steps)[path].decode()
      found = {
          test.name: list(ast.literal_eval(keyword.value))
          for suite in ast.parse(text).body
          for test in suite.body
          for keyword in test.decorator_list[0].keywords
          if keyword.arg == "m"
      }
      self.assertEqual(found, rows)
      # A collective accumulator of Pallas fits.
      skips = len(rows) - (path == "tests/pallas/mosaic_gpu_test.py")
      self.assertEqual(text.count("do not fit into TMEM"), skips)

  def test_format(self):
    buildifier = shutil.which("buildifier") or os.environ.get("BUILDIFIER")
    local = trees.cache() / "npm/node_modules/.bin/buildifier"
    if buildifier is None and local.exists():
      buildifier = str(local)
    if buildifier is None:
      self.skipTest("needs buildifier, which `make buildifier` installs")
    files = engine.merged(self.steps)
    with tempfile.TemporaryDirectory() as folder:
      paths = []
      for number, package in enumerate(bazel.PACKAGES):
        path = pathlib.Path(folder) / str(number) / "BUILD"
        path.parent.mkdir()
        path.write_bytes(files[f"{package}/BUILD"])
        paths.append(path)
      for lint, checked in (("warn", [_BUILD]), ("off", paths)):
        result = subprocess.run(
            [buildifier, "--mode=check", f"--lint={lint}",
             "--warnings=-module-docstring", *map(str, checked)],
            capture_output=True, text=True,
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
  absltest.main()
