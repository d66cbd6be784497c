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
"""Tests of the papers for upstream: reports, briefs and sizes of patches."""

import contextlib
import functools
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest, parameterized
from synthetic import make_edit, make_patch

import patches
from patches import engine, sizes, trees
from patches import series as series_package

_DOCS = patches.REPO / "docs/upstream"
# What compares the release with the patches, and what shows something else.
_COMPARISONS = sorted(
    path.stem
    for path in _DOCS.glob("*.py")
    if "\ndef findings(" in path.read_text()
)
_OTHERS = sorted(
    {path.stem for path in _DOCS.glob("*.py")} - {*_COMPARISONS, "pristine"}
)
_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"
_FIELDS = ("Why", "Review", "Questions", "Evidence", "Needs", "Risk")


def _run(name: str, *args: str) -> subprocess.CompletedProcess:
  env = os.environ | {"JAX_PLATFORMS": "cpu"}
  return subprocess.run(
      [sys.executable, str(_DOCS / f"{name}.py"), *args],
      env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True,
  )


class ReportsTest(parameterized.TestCase):

  @parameterized.parameters(((), "without"), (("--patched",), "with"))
  def test_comparisons(self, args, which):
    result = _run("pristine", *args)
    self.assertEqual(result.returncode, 0, result.stdout)
    self.assertEqual(
        re.findall(r"^== (\w+)$", result.stdout, re.M), _COMPARISONS
    )
    summaries = re.findall(
        r"^(\d+) faults in (\d+) cases (\w+) the patches: as the report says$",
        result.stdout, re.M,
    )
    self.assertLen(summaries, len(_COMPARISONS))
    for faults, cases, found_which in summaries:
      self.assertEqual(found_which, which)
      self.assertEqual(int(faults), 0 if args else int(cases))
      self.assertGreater(int(cases), 0)

  def test_one_report_by_itself(self):
    result = _run("sparse_metadata_space")
    self.assertEqual(result.returncode, 0, result.stdout)
    self.assertIn("3 faults in 3 cases without", result.stdout)

  @parameterized.parameters(*_OTHERS)
  def test_others(self, name):
    result = _run(name)
    self.assertEqual(result.returncode, 0, result.stdout)

  @parameterized.parameters(
      (False, ("same", "same"), 1),
      (False, ("this", "that"), 0),
      (True, ("same", "same"), 0),
      (True, ("this", "that"), 1),
  )
  def test_exit_code(self, patched, texts, code):
    spec = importlib.util.spec_from_file_location(
        "pristine", _DOCS / "pristine.py"
    )
    pristine = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, pristine=pristine):
      spec.loader.exec_module(pristine)
      finding = pristine.Finding("what", *texts)
    output = io.StringIO()
    with (
        mock.patch.object(pristine, "_PATCHED", patched),
        contextlib.redirect_stdout(output),
    ):
      self.assertEqual(pristine.show(lambda: [finding]), code)
    self.assertIn("NOT as" if code else ": as", output.getvalue())

  def test_every_script_has_a_text_and_is_listed(self):
    index = (_DOCS / "README.md").read_text()
    for name in _COMPARISONS + _OTHERS:
      self.assertTrue((_DOCS / f"{name}.md").is_file(), name)
      self.assertIn(f"({name}.md)", index)
      self.assertIn(f"python {name}.py", (_DOCS / f"{name}.md").read_text())


class CoverLetterTest(absltest.TestCase):

  def test_command_names_all_tests_that_can_use_a_gpu(self):
    text = (_DOCS / "cover_letter.md").read_text()
    named = set()
    for word in re.findall(r"tests/mosaic/\S+", text):
      choices = re.search(r"\{(.*)\}", word)
      for choice in choices[1].split(",") if choices else ("",):
        named.add(re.sub(r"\{.*\}", choice, word))
    tests = {test for patch in engine.load_series() for test in patch.tests}
    uses_gpu = re.compile(
        r"test_util\.run\(|\.run_with_tmem\(|\.check\(self"
    )
    expected = {
        test
        for test in tests
        if re.match("tests/mosaic/[^/]+$", test)
        and uses_gpu.search((patches.REPO / test).read_text())
    }
    self.assertEqual(named, expected)


class BriefsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    _, *sections = re.split(
        r"^## ", (_DOCS / "briefs.md").read_text(), flags=re.M
    )
    self.sections = {}
    for section in sections:
      heading, _, text = section.partition("\n")
      self.assertNotIn(heading, self.sections)
      self.sections[heading] = dict(
          re.findall(r"^\* \*\*(\w+)\.\*\* (.*(?:\n  .*)*)$", text, re.M)
      )

  def test_one_for_each_patch_in_order(self):
    self.assertEqual(list(self.sections), list(series_package.ORDER))

  def test_fields(self):
    for name, fields in self.sections.items():
      self.assertEqual(tuple(fields), _FIELDS, name)

  def test_patches_that_are_large_say_why(self):
    tree = engine.Tree.open(trees.pristine(patches.BASE))
    measured = sizes.measure(tree, engine.compute(tree, engine.load_series()))
    large = {s.slug for s in measured if s.source > sizes.UPSTREAM_SOURCE}
    explained = {
        name
        for name, fields in self.sections.items()
        if re.search(r"Not\s+split:", fields["Review"])
    }
    self.assertEqual(explained, large)

  def needs(self, name: str) -> list[str]:
    return re.findall(r"`(\w+)`", self.sections[name]["Needs"])

  def test_needs_earlier_patches(self):
    order = series_package.ORDER
    for name, fields in self.sections.items():
      if not self.needs(name):
        self.assertStartsWith(fields["Needs"], "Nothing", name)
      for other in self.needs(name):
        self.assertIn(other, order[: order.index(name)], name)

  def test_needs_suffice_for_the_edits(self):
    tree = engine.Tree.open(trees.pristine(patches.BASE))
    series = {patch.slug: patch for patch in engine.load_series()}

    @functools.cache
    def closure(name: str) -> frozenset[str]:
      return frozenset({name}).union(*map(closure, self.needs(name)))

    for name in series:
      # By default, just those that could be the first request.
      if self.needs(name) and not _FULL:
        continue
      with self.subTest(name):
        chosen = [p for p in series.values() if p.slug in closure(name)]
        engine.compute(tree, chosen, tests=False)

  def test_tests_that_are_named_belong_to_the_patch(self):
    for patch in engine.load_series():
      fields = self.sections[patch.slug]
      named = re.findall(r"`(\w+_test\.py)`", fields["Evidence"])
      self.assertNotEmpty(named, patch.slug)
      # JAX's own tests that it changes, too.
      paths = [*patch.tests, *(edit.file for edit in patch.edits)]
      known = [pathlib.PurePath(path).name for path in paths]
      self.assertContainsSubset(named, known, patch.slug)


class SizesTest(absltest.TestCase):

  def test_counts(self):
    with tempfile.TemporaryDirectory() as folder:
      root = pathlib.Path(folder)
      tree = synthetic.make_tree(root / "tree")
      for path, lines in (("tests/a_test.py", 3), ("docs/a.md", 5)):
        (root / "repo" / path).parent.mkdir(parents=True)
        (root / "repo" / path).write_text("x\n" * lines)
      series = [
          make_patch(
              make_edit(anchor="LIMIT = 4", code="LIMIT = 5\nMORE = 6"),
              new_files=("docs/a.md",),
              tests=("tests/a_test.py",),
          ),
          make_patch(make_edit(anchor="MORE = 6", action="delete")),
          # The test is there already.
          make_patch(tests=("tests/a_test.py",)),
      ]
      steps = engine.compute(tree, series, repo=root / "repo")
      measured = sizes.measure(tree, steps)
    slug = series[0].slug
    self.assertEqual(
        measured,
        [
            sizes.Size(slug, source=2, deleted=1, tests=3, docs=5),
            sizes.Size(slug, source=0, deleted=1, tests=0, docs=0),
            sizes.Size(slug, source=0, deleted=0, tests=0, docs=0),
        ],
    )
    table = sizes.table(measured)
    self.assertIn(f"| 1 | {slug} | 2 | 1 | 3 | 5 |", table)
    self.assertIn("| | median | 0 | | 0 | |", table)
    self.assertIn(" 45 | | 35 | |", table)


if __name__ == "__main__":
  absltest.main()
