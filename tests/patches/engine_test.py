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
"""Tests of applying a series: all of it or nothing, and clear refusals."""

import os
import pathlib
import shutil
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest
from synthetic import FILE, make_edit, make_patch

from patches import engine, mails, state, trees, trial
from patches.model import AnchorError, PatchError


class EngineTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.tree = synthetic.make_tree(self.folder / "tree")
    self.repo = self.folder / "repo"
    (self.repo / "jax/new").mkdir(parents=True)
    (self.repo / "jax/new/a.py").write_text("A = 1\n")
    (self.repo / "tests").mkdir()
    (self.repo / "tests/a_test.py").write_text("import jax\n")
    # No cached JAX of the same version may be looked at.
    self.enter_context(
        mock.patch.dict(
            os.environ, {trees.CACHE_VARIABLE: str(self.folder / "cache")}
        )
    )

  def apply(self, *series, tree=None):
    """Does what `python -m patches apply` does."""
    tree = tree or self.tree
    state.require_pristine(tree, series, self.repo)
    steps = engine.compute(tree, series, repo=self.repo)
    engine.write(tree.root, engine.merged(steps))
    return steps

  def assert_refused(self, message, *series, error=PatchError, tree=None):
    before = synthetic.snapshot(self.folder)
    with self.assertRaisesRegex(error, message) as caught:
      self.apply(*series, tree=tree)
    self.assertEqual(synthetic.snapshot(self.folder), before)
    return str(caught.exception)

  def test_patches_build_on_one_another(self):
    first = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
        make_edit(anchor="LIMIT = 5", action="after", code="MORE = 6"),
        new_files=("jax/new/",), tests=("tests/a_test.py",),
    )
    second = make_patch(
        make_edit(anchor="MORE = 6", code="MORE = 7"), subject="Second",
        tests=("tests/a_test.py",),
    )
    steps = self.apply(first, second)
    text = (self.tree.root / FILE).read_text()
    self.assertIn("\nLIMIT = 5\nMORE = 7\n", text)
    self.assertIn(b"MORE = 6", steps[0].files[FILE])
    self.assertEqual(
        (self.tree.root / "jax/new/a.py").read_text(), "A = 1\n"
    )
    self.assertEqual(
        sorted(steps[0].files), ["jax/new/a.py", FILE, "tests/a_test.py"]
    )
    self.assertEqual(sorted(steps[1].files), [FILE])

  def test_patches_for_other_releases(self):
    version = self.tree.version
    edit = make_edit(anchor="LIMIT = 4", code="LIMIT = 5")
    brings = dict(new_files=("jax/new/",), tests=("tests/a_test.py",))
    for versions, files in (("9.9",), 0), ((version, "9.9"), 3), ((), 3):
      steps = engine.compute(
          self.tree, [make_patch(edit, versions=versions, **brings)],
          repo=self.repo,
      )
      with self.subTest(versions=versions):
        self.assertLen(steps, 1)
        self.assertLen(steps[0].files, files)

  def test_tests_stay_out_of_the_wheel(self):
    (self.repo / "tests/a_util.py").touch()
    (self.repo / "docs").mkdir()
    (self.repo / "docs/a.md").touch()
    patch = make_patch(
        new_files=("jax/new/", "tests/a_util.py", "docs/a.md"),
        tests=("tests/a_test.py",),
    )
    with_tests = engine.compute(self.tree, [patch], repo=self.repo)
    self.assertContainsSubset(
        ["docs/a.md", "tests/a_test.py", "tests/a_util.py"],
        with_tests[0].files,
    )
    files = engine.compute(self.tree, [patch], tests=False, repo=self.repo)
    self.assertEqual(list(files[0].files), ["jax/new/a.py"])

  def test_missing_anchor_names_everything(self):
    message = self.assert_refused(
        "found 0",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5")),
        make_patch(
            make_edit(scope="Ref.slice", anchor="total = 9", code="x"),
            subject="[Tiles] Second", new_files=("jax/new/a.py",),
        ),
        error=AnchorError,
    )
    for part in ("Patch second", "JAX 0.12.0.1", FILE, "Ref.slice",
                 "total = 9", "patches/series/second.py", "Nothing was wri"):
      self.assertIn(part, message)

  def test_anchor_that_matches_several_times(self):
    self.assert_refused(
        r"found 3 \(lines 41, 43, 45\)",
        make_patch(make_edit(scope="Ref.slice", anchor="total = $X", code="x")),
    )

  def test_result_that_does_not_parse(self):
    self.assert_refused(
        "change_the_tiles on JAX 0.12.0.1: jax/tiles.py does not parse after",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = (")),
    )

  def test_edit_that_changes_nothing(self):
    self.assert_refused(
        "to change something",
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 4")),
    )

  def test_missing_file(self):
    self.assert_refused(
        "expected the file to exist",
        make_patch(make_edit(file="jax/no.py", anchor="x", code="y")),
    )

  def test_new_file_that_exists(self):
    patch = make_patch(new_files=("jax/new/a.py",))
    tree = synthetic.make_tree(
        self.folder / "other", {"jax/new/a.py": "B = 1\n"}
    )
    message = self.assert_refused("jax/new/a.py exists", patch, tree=tree)
    self.assertIn("Patch change_the_tiles does not apply", message)
    self.assertIn("file: jax/new/a.py\n", message)
    with self.assertRaisesRegex(PatchError, "has such a file already"):
      engine.compute(tree, [patch], repo=self.repo)

  def test_new_file_that_is_missing_here(self):
    self.assert_refused(
        "has no such file", make_patch(new_files=("jax/new/b.py",))
    )

  def test_new_file_that_two_patches_bring(self):
    patches = [make_patch(new_files=("jax/new/a.py",)),
               make_patch(new_files=("jax/new/a.py",), subject="Second")]
    with self.assertRaisesRegex(PatchError, "does so already"):
      engine.check_new_files(patches)

  def test_new_file_is_not_edited(self):
    patch = make_patch(
        make_edit(file="jax/new/a.py", anchor="A = 1", code="A = 2"),
        new_files=("jax/new/a.py",),
    )
    with self.assertRaisesRegex(PatchError, "the series itself brings"):
      engine.check_new_files([patch])

  def test_new_file_that_some_release_needs_otherwise(self):
    patch = make_patch(
        make_edit(file="jax/new/a.py", anchor="A = 1", code="A = 2",
                  versions=("0.11.2",)),
        new_files=("jax/new/a.py",),
    )
    engine.check_new_files([patch])
    for version, expected in (("0.11.2", b"A = 2\n"), ("0.12.0", b"A = 1\n")):
      tree = synthetic.make_tree(self.folder / version, version=version)
      (step,) = engine.compute(tree, [patch], repo=self.repo)
      self.assertEqual(step.files["jax/new/a.py"], expected)
      self.apply(patch, tree=tree)
      self.reverse(patch, tree=tree)
      self.assertFalse((tree.root / "jax/new").exists())

  def test_unknown_version(self):
    with self.assertRaisesRegex(PatchError, "0.11.1, got 0.9.9 in"):
      synthetic.make_tree(self.folder / "old", version="0.9.9")
    tree = engine.Tree.open(self.folder / "old", "0.11.2")
    self.assertEqual(tree.version, "0.11.2")

  def test_release_that_lacks_something(self):
    with self.assertRaisesRegex(PatchError, "got 0.11.0 in .*element type"):
      synthetic.make_tree(self.folder / "old", version="0.11.0")

  def test_no_tree(self):
    with self.assertRaisesRegex(PatchError, "has no jax/version.py"):
      engine.Tree.open(self.folder)

  def test_edits_of_one_version(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5", versions=("0.11.2",)),
        make_edit(anchor="import math", code="import cmath"),
    )
    files = engine.merged(engine.compute(self.tree, [patch]))
    self.assertIn(b"LIMIT = 4", files[FILE])
    old = engine.Tree.open(self.tree.root, "0.11.2")
    self.assertIn(b"LIMIT = 5", engine.compute(old, [patch])[0].files[FILE])

  def test_files_of_a_checkout_only(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
        make_edit(file="tests/BUILD", anchor='"a"', action="after",
                  code='"b"', checkout_only=True),
    )
    steps = engine.compute(self.tree, [patch])
    self.assertEqual(list(steps[0].files), [FILE])
    self.assertEqual(engine.left_out(self.tree, [patch]), ["tests/BUILD"])
    checkout = synthetic.make_tree(
        self.folder / "checkout",
        {FILE: synthetic.SOURCE, "tests/BUILD": 'test(names = ["a"])\n'},
    )
    steps = self.apply(patch, tree=checkout)
    self.assertEqual(
        steps[0].files["tests/BUILD"], b'test(names = ["a", "b"])\n'
    )

  def test_second_apply(self):
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", action="after", code="MORE = 1"),
        new_files=("jax/new/",),
    )
    self.apply(patch)
    self.assert_refused("already", patch)

  def test_second_apply_of_code_alone(self):
    patch = make_patch(
        make_edit(
            scope="rows", action="after",
            code='''
                def more_rows_than_before(shape):
                  """Returns the rows."""
                  return rows(shape) + 1
            ''',
        ),
    )
    self.apply(patch)
    self.assert_refused("has the code of change_the_tiles", patch)

  def test_second_apply_of_a_known_release(self):
    patch = make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"))
    self.release()
    self.apply(patch, make_patch(new_files=("jax/new/",), subject="Second"))
    self.assert_refused(
        "the series is applied already.*--reverse", patch,
        make_patch(new_files=("jax/new/",), subject="Second"),
    )

  def release(self, files=None):
    """Makes the tree as it is now the release that `reverse` knows."""
    tree = synthetic.make_tree(self.folder / "release", files)
    self.enter_context(
        mock.patch.object(trees, "pristine", lambda *args: tree.root)
    )

  def reverse(self, *series, tree=None):
    return state.reverse(tree or self.tree, series, self.repo)

  def assert_not_reversed(self, message, *series, tree=None):
    before = synthetic.snapshot(self.folder)
    with self.assertRaisesRegex(PatchError, message):
      self.reverse(*series, tree=tree)
    self.assertEqual(synthetic.snapshot(self.folder), before)

  def test_reverse_restores_the_bytes(self):
    series = self.some_series()
    self.release()
    before = synthetic.snapshot(self.tree.root)
    self.apply(*series)
    cache = self.tree.root / "jax/new/__pycache__/a.cpython-312.pyc"
    cache.parent.mkdir()
    cache.touch()
    count, files = self.reverse(*series)
    self.assertEqual((count, len(files)), (2, 3))
    self.assertEqual(synthetic.snapshot(self.tree.root), before)
    self.assertFalse((self.tree.root / "jax/new").exists())
    self.assertFalse((self.tree.root / "tests").exists())
    self.assert_not_reversed("holds none of its patches", *series)

  def some_series(self):
    return (
        make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
                   new_files=("jax/new/",), tests=("tests/a_test.py",)),
        make_patch(make_edit(anchor="LIMIT = 5", code="LIMIT = 6"),
                   subject="Second"),
    )

  def test_reverse_without_a_patch_for_another_release(self):
    (self.repo / "jax/other").mkdir()
    (self.repo / "jax/other/b.py").write_text("B = 1\n")
    series = (
        *self.some_series(),
        make_patch(
            make_edit(anchor="LIMIT = 6", code="LIMIT = 7"), subject="Third",
            new_files=("jax/other/",), versions=("9.9",),
        ),
    )
    self.release()
    before = synthetic.snapshot(self.tree.root)
    self.apply(*series)
    with self.assertRaisesRegex(PatchError, "the series is applied already"):
      state.require_pristine(self.tree, series, self.repo)
    self.assertEqual(self.reverse(*series)[0], 2)
    self.assertEqual(synthetic.snapshot(self.tree.root), before)

  def test_reverse_of_the_first_patches(self):
    series = self.some_series()
    self.release()
    before = synthetic.snapshot(self.tree.root)
    steps = engine.compute(self.tree, series[:1], tests=False, repo=self.repo)
    engine.write(self.tree.root, engine.merged(steps))
    self.assertEqual(self.reverse(*series)[0], 1)
    self.assertEqual(synthetic.snapshot(self.tree.root), before)

  def test_reverse_keeps_line_ends(self):
    series = self.some_series()
    self.release()
    path = self.tree.root / FILE
    path.write_bytes(synthetic.SOURCE.replace("\n", "\r\n").encode())
    before = synthetic.snapshot(self.tree.root)
    self.apply(*series)
    self.reverse(*series)
    self.assertEqual(synthetic.snapshot(self.tree.root), before)

  def test_reverse_of_edited_files_is_refused(self):
    series = self.some_series()
    self.release()
    self.apply(*series)
    path = self.tree.root / FILE
    applied = path.read_text()
    for name, content in {
        FILE: applied + "MINE = 1\n",
        "jax/new/a.py": "MINE = 1\n",
        "tests/a_test.py": "MINE = 1\n",
    }.items():
      with self.subTest(name):
        old = (self.tree.root / name).read_bytes()
        (self.tree.root / name).write_text(content)
        self.assert_not_reversed(
            f"the first 2 of 2 patches .* not: {name}. They were edited since",
            *series,
        )
        (self.tree.root / name).write_bytes(old)
    self.reverse(*series)

  def test_reverse_of_a_fork(self):
    """Its files are not those of the release; git knows what they were."""
    series = self.some_series()
    self.release()
    source = synthetic.SOURCE.replace("import os\n", "import os\nimport re\n")
    repo = mails.Repo(self.folder / "fork")
    repo.commit({"jax/version.py": b'_version = "0.12.0.1"\n',
                 FILE: source.encode()}, "fork")
    tree = engine.Tree.open(repo.root)
    before = synthetic.snapshot(tree.root)
    self.apply(*series, tree=tree)
    self.assertEqual(self.reverse(*series, tree=tree)[0], 2)
    self.assertEqual(synthetic.snapshot(tree.root), before)
    # The same without git.
    self.apply(*series, tree=tree)
    shutil.rmtree(repo.root / ".git")
    self.assert_not_reversed(f"not: {FILE}", *series, tree=tree)

  def test_reverse_of_what_only_a_checkout_has(self):
    """Without git, and not in the wheel: the insertions are cut out."""
    series = (
        make_patch(
            make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
            make_edit(file="tests/BUILD", action="after", checkout_only=True,
                      code="test(\n    name = 'b',\n)"),
            make_edit(file="docs/A.md", kind="text", within="## New",
                      anchor="* Changes", action="after", checkout_only=True,
                      code="\n  * Tiles.\n"),
        ),
    )
    self.release()
    tree = synthetic.make_tree(
        self.folder / "checkout",
        {FILE: synthetic.SOURCE, "tests/BUILD": "test(name = 'a')\n",
         "docs/A.md": "## New\n\n* Changes\n\n  * Mine.\n"},
    )
    before = synthetic.snapshot(tree.root)
    self.apply(*series, tree=tree)
    self.assertIn("name = 'b'", (tree.root / "tests/BUILD").read_text())
    self.assertIn("Tiles", (tree.root / "docs/A.md").read_text())
    self.reverse(*series, tree=tree)
    self.assertEqual(synthetic.snapshot(tree.root), before)

  def test_reverse_of_a_build_is_refused(self):
    (self.tree.root / "jax-0.12.0.1+sparsetiles.dist-info").mkdir()
    self.assert_not_reversed("install jax==0.12.0.1 instead")

  def test_reverse_that_would_contradict_record_is_refused(self):
    series = self.some_series()
    self.release()
    self.apply(*series)
    info = self.tree.root / "jax-0.12.0.1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(f"{FILE},{trees.hash_of(b'other')},5\n")
    self.assert_not_reversed(f"RECORD .* not: {FILE}. Is it another", *series)

  def test_drift(self):
    """However JAX changes at the anchor, the message says what and where."""
    patch = make_patch(
        make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
        make_edit(scope="Ref.slice", anchor="if start: $$$", action="before",
                  code="stop = start"),
    )
    source = synthetic.SOURCE
    at_slice = (FILE, "Ref.slice", "if start: $$$")
    drifts = {
        "missing function": (
            source.replace("def slice(", "def cut("), at_slice,
            "'Ref.slice' to be defined once, found 0",
        ),
        "function twice": (
            source + "\n  def slice(self):\n    pass\n", at_slice,
            "'Ref.slice' to be defined once, found 2",
        ),
        "statement twice": (
            source.replace("    return dict(", "    if start:\n      pass\n"
                           "    return dict("),
            at_slice, "to match once in 'Ref.slice', found 2 (lines",
        ),
        "changed statement": (
            source.replace("if start:", "if start is not None:"), at_slice,
            "to match once in 'Ref.slice', found 0",
        ),
        "changed constant": (
            source.replace("LIMIT = 4", "LIMIT = 8"),
            (FILE, "(module level)", "LIMIT = 4"), "found 0",
        ),
        "missing file": (
            None, (FILE, "(module level)", "LIMIT = 4"),
            "expected the file to exist",
        ),
    }
    for packed in (False, True):
      for name, (content, where, problem) in drifts.items():
        with self.subTest(name, packed=packed):
          tree = synthetic.make_tree(self.folder / f"{name}{packed}")
          if packed:  # As a wheel, which knows that the file was changed.
            info = tree.root / "jax-0.12.0.1.dist-info"
            info.mkdir()
            digest = trees.hash_of(source.encode())
            (info / "RECORD").write_text(f"{FILE},{digest},1\n")
          path = tree.root / FILE
          path.unlink()
          if content is not None:
            path.write_text(content)
          message = self.assert_refused("", patch, tree=tree)
          self.assertIn("Patch change_the_tiles does not apply", message)
          self.assertIn("file: {}\n  scope: {}\n  anchor: {}\n".format(*where),
                        message)
          self.assertIn(problem, message)
          if packed:
            self.assertIn(f"{FILE} differs from RECORD", message)

  def test_line_ends_stay(self):
    path = self.tree.root / FILE
    path.write_bytes(synthetic.SOURCE.replace("\n", "\r\n").encode())
    self.apply(make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5")))
    self.assertIn(b"\r\nLIMIT = 5\r\n", path.read_bytes())

  def test_write_is_undone_when_it_fails(self):
    before = synthetic.snapshot(self.folder)
    files = {FILE: b"1\n", "jax/version.py/impossible.py": b"2\n"}
    with self.assertRaises(OSError):
      engine.write(self.tree.root, files)
    self.assertEqual(synthetic.snapshot(self.folder), before)

  def test_write_replaces_files_and_keeps_their_mode(self):
    path = self.tree.root / FILE
    path.chmod(0o755)
    os.link(path, self.folder / "link")
    engine.write(self.tree.root, {FILE: b"1\n"})
    self.assertEqual(path.read_bytes(), b"1\n")
    self.assertEqual(path.stat().st_mode & 0o777, 0o755)
    self.assertEqual((self.folder / "link").read_text(), synthetic.SOURCE)

  def test_write_drops_stale_bytecode(self):
    stale = self.tree.root / "jax/__pycache__/tiles.cpython-312.pyc"
    stale.parent.mkdir()
    stale.write_bytes(b"")
    engine.write(self.tree.root, {FILE: b"1\n"})
    self.assertFalse(stale.exists())


class SeriesTest(absltest.TestCase):

  def test_requirements_of_another_release(self):
    text = trial.requirements("1.2.3")
    for name in ("jaxlib", "jax-cuda13-plugin", "jax-cuda13-pjrt"):
      self.assertIn(f"\n{name}==1.2.3\n", text)
    self.assertNotIn("==0.12", text)

  def test_series_is_well_formed(self):
    self.assertIsInstance(engine.load_series(), tuple)

  def test_unknown_patch(self):
    with self.assertRaisesRegex(PatchError, "got 'nothing'"):
      engine.load_series("nothing")


if __name__ == "__main__":
  absltest.main()
