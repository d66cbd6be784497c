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
"""Every command that the documents show is run, or covered by another test."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import unittest

import synthetic
from absl.testing import absltest

import patches
from patches import mails, trees

_DOCUMENTS = (
    "README.md", "docs/patches.md", "docs/simulator.md",
    "docs/sparse_matmul_speed.md", "docs/mma_issue_cost.md",
)
_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"

# Commands that other tests run, or that would run this one.
_ELSEWHERE = {
    "make demo": ".ci/run",
    "make test": ".ci/run",
    "make check": ".ci/run",
    "pip install .": "tests/patches/wheel_test.py",
    "pip install git+URL@BRANCH": "tests/patches/trials_test.py",
    "cd PATH/TO/JAX && git am --keep-non-patch .../mails/*.patch": (
        "tests/patches/readme_test.py"
    ),
    "python -m patches trial --base 0.12.0": "Makefile",
    "python -m patches trial --base RELEASE": "Makefile",
    "python -m patches upstream-tests --tests PATH/TO/JAX": (
        "tests/patches/upstream_test.py"
    ),
    "python -m patches upstream-tests --tests PATH/TO/JAX --simulate": (
        "tests/patches/upstream_test.py"
    ),
    "python -m patches check --no-tests": "tests/patches/readme_test.py",
    "python -m patches check --no-tests --base 0.11.2": (
        "tests/patches/readme_test.py"
    ),
    "python -m patches check --no-tests --base RELEASE": (
        "tests/patches/readme_test.py"
    ),
    "python -m jax.experimental.mosaic.gpu.examples.sparse_matmul_blackwell": (
        "tests/mosaic/sparse_matmul_kernel_test.py"
    ),
    "python -m jax.experimental.mosaic.gpu.simulator FILE.ptx": (
        "tests/mosaic/simulator/main_test.py"
    ),
}


def _blocks(document: str) -> list[str]:
  """Returns the indented blocks of a document, and its fenced ones."""
  text = (patches.REPO / document).read_text()
  fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
  indented = re.findall(r"(?:^|\n)\n((?:    .*\n|\n(?=    ))+)", text)
  return fenced + [textwrap.dedent(b) for b in indented]


def _commands(document: str) -> list[str]:
  """Returns the commands in the blocks and in the text of a document."""
  text = (patches.REPO / document).read_text()
  lines = [line for block in _blocks(document) for line in block.splitlines()]
  inline = re.findall(r"(?<!`)`([^`]+)`(?!`)", re.sub(r"\n +", "\n", text))
  return [
      re.sub(r"\w+\.ptx", "FILE.ptx", " ".join(line.split()))
      for line in lines + inline
      if re.match(r"(make|pip|cd|npm|python -m|git \w+) ", line.strip())
  ]


class DocumentsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(
        self.enter_context(tempfile.TemporaryDirectory(prefix="a b "))
    )

  def test_commands_are_found(self):
    commands = [c for d in _DOCUMENTS for c in _commands(d)]
    for command in ("make demo", "python -m patches apply TREE"):
      self.assertIn(command, commands)

  def test_every_command_is_known(self):
    for document in _DOCUMENTS:
      for command in _commands(document):
        with self.subTest(document, command=command):
          words = shlex.split(command)
          if words[0] == "make":
            self.assert_target_exists(words)
          elif command in _ELSEWHERE:
            self.assertTrue((patches.REPO / _ELSEWHERE[command]).is_file())
          else:
            self.assertIn(command, self.SHORT)

  def assert_target_exists(self, words):
    # `make --dry-run` fails for a target that there is no rule for.
    result = subprocess.run(
        ["make", "--dry-run", *words[1:]], cwd=patches.REPO,
        capture_output=True, text=True,
    )
    self.assertEqual(result.returncode, 0, result.stderr)

  def test_ci_runs_what_is_said_to_run_there(self):
    script = (patches.REPO / ".ci/run").read_text()
    for command, place in _ELSEWHERE.items():
      if place == ".ci/run" and command.startswith("make"):
        self.assertRegex(script, rf"(?m)^{command}$")

  # Commands that are run here, in this order.
  SHORT = (
      "python -m patches --help",
      "python -m patches list",
      "python -m patches export --onto PATH/TO/JAX --out mails",
      "python -m patches apply TREE",
      "python -m patches apply --reverse TREE",
  )

  def test_short_commands(self):
    tree = self.folder / "tree"
    trees.copy(trees.pristine(patches.BASE), tree)
    before = synthetic.snapshot(tree)
    for command in self.SHORT:
      words = [
          {"PATH/TO/JAX": str(tree), "TREE": str(tree),
           "mails": str(self.folder / "mails")}.get(word, word)
          for word in shlex.split(command)[1:]
      ]
      result = subprocess.run(
          [sys.executable, *words], cwd=patches.REPO, capture_output=True,
          text=True,
      )
      self.assertEqual(result.returncode, 0, command + "\n" + result.stderr)
      self.assertNotEmpty(result.stdout)
    self.assertEqual(synthetic.snapshot(tree), before)
    # And the mails, as README says it.
    repo = mails.Repo(self.folder / "fork")
    repo.commit(before, "JAX")
    repo.git("am", "--quiet", "--keep-non-patch",
             *sorted((self.folder / "mails").glob("*.patch")))

  def test_python_parses(self):
    found = 0
    for document in _DOCUMENTS:
      for block in _blocks(document):
        if re.search(r"^(from|import|with|\w+ = )", block, re.M):
          compile(block, document, "exec")
          found += 1
    self.assertGreater(found, 1)

  @unittest.skipUnless(_FULL, "takes minutes: set MOSAIC_GPU_FULL_TESTS=1")
  def test_release_with_its_own_jaxlib(self):
    self.run_long("trial", "--base", "0.12.0")

  @unittest.skipUnless(_FULL, "takes minutes: set MOSAIC_GPU_FULL_TESTS=1")
  def test_all_releases(self):
    self.run_long("check", "--no-tests")

  def run_long(self, *arguments):
    result = subprocess.run(
        [sys.executable, "-m", "patches", *arguments], cwd=patches.REPO,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    self.assertEqual(result.returncode, 0, result.stdout)
    self.assertIn(f"{arguments[0]}: OK", result.stdout)


if __name__ == "__main__":
  absltest.main()
