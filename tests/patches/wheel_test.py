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
"""Tests of the wheel, on a real build, and of refreshing an install of it."""

import csv
import email
import io
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from unittest import mock

import synthetic
from absl.testing import absltest

import patches
from patches import backend, engine, refresh, trees, wheel
from patches.model import PatchError

_NAME = "jax-0.12.0.1+sparsetiles-py3-none-any.whl"


class WheelTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory(prefix="a b "))
    )
    with mock.patch.dict(os.environ):
      os.environ.pop("SOURCE_DATE_EPOCH", None)
      cls.name = backend.build_wheel(cls.folder)
    with zipfile.ZipFile(cls.folder / cls.name) as archive:
      cls.files = {n: archive.read(n) for n in archive.namelist()}
      cls.infos = archive.infolist()
    cls.base = trees.pristine(patches.BASE)
  def test_name(self):
    self.assertEqual(self.name, _NAME)
    self.assertEqual(
        backend.get_requires_for_build_wheel(), ["jax==0.12.0.1"]
    )

  def test_same_bytes_again_whatever_the_umask(self):
    again = self.folder / "again"
    old = os.umask(0o077)
    try:
      with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": wheel.EPOCH}):
        backend.build_wheel(again)
    finally:
      os.umask(old)
    self.assertEqual(
        (self.folder / _NAME).read_bytes(), (again / _NAME).read_bytes()
    )

  def test_metadata_is_jax_s_but_for_the_version(self):
    built = self.files[f"{wheel.DIST_INFO}/METADATA"]
    original = (trees.dist_info(self.base) / "METADATA").read_bytes()
    self.assertEqual(
        built.replace(b"\nVersion: 0.12.0.1+sparsetiles\n",
                      b"\nVersion: 0.12.0.1\n"),
        original,
    )
    message = email.message_from_bytes(built)
    self.assertEqual(message["Name"], "jax")
    self.assertEqual(message["Version"], "0.12.0.1+sparsetiles")
    self.assertIn("cuda13", message.get_all("Provides-Extra"))

  def test_prepared_metadata_is_that_of_the_wheel(self):
    folder = self.folder / "metadata"
    name = backend.prepare_metadata_for_build_wheel(folder)
    self.assertEqual(name, wheel.DIST_INFO)
    for file in ("METADATA", "WHEEL", "top_level.txt"):
      self.assertEqual(
          (folder / name / file).read_bytes(),
          self.files[f"{wheel.DIST_INFO}/{file}"],
      )
    self.assertFalse((folder / name / "INSTALLER").exists())

  def test_record_is_right(self):
    record = f"{wheel.DIST_INFO}/RECORD"
    rows = {
        row[0]: row[1:]
        for row in csv.reader(io.StringIO(self.files[record].decode()))
    }
    self.assertEqual(rows.pop(record), ["", ""])
    self.assertEqual(
        rows,
        {
            name: [trees.hash_of(content), str(len(content))]
            for name, content in self.files.items()
            if name != record
        },
    )

  def test_files_are_jax_s_with_the_series_and_the_overlay(self):
    tree = engine.Tree.open(self.base)
    steps = engine.compute(tree, engine.load_series(), tests=False)
    expected = {
        p: (self.base / p).read_bytes()
        for p in trees.record(self.base)
        if p.startswith("jax/")
    }
    expected |= engine.merged(steps)
    expected |= {
        p: (patches.REPO / p).read_bytes()
        for p in engine.overlay_files(patches.REPO, "jax")
    }
    found = {p: c for p, c in self.files.items() if ".dist-info/" not in p}
    self.assertEqual(found.keys(), expected.keys())
    self.assertEqual(found, expected)
    self.assertEqual(
        found["jax/version.py"], (self.base / "jax/version.py").read_bytes()
    )

  def test_changes_are_told(self):
    notice = self.files[f"{wheel.DIST_INFO}/PATCHES.txt"].decode()
    self.assertIn("not part of JAX", notice)
    for patch in engine.load_series():
      self.assertIn(patch.subject, notice)

  def test_modes_and_times(self):
    for info in self.infos:
      if not info.filename.endswith("/RECORD"):
        self.assertEqual(info.external_attr >> 16, 0o100644, info.filename)
      self.assertEqual(info.date_time, (2026, 1, 1, 0, 0, 0))

  def test_overlay_never_hides_a_file_of_jax(self):
    repo = self.folder / "hiding"
    (repo / "jax").mkdir(parents=True)
    (repo / "jax/core.py").touch()
    with self.assertRaisesRegex(PatchError, "jax/core.py of this repository"):
      wheel.overlay(engine.Tree.open(self.base), {}, repo)

  def test_editable_install_is_refused_with_the_way_out(self):
    with self.assertRaisesRegex(PatchError, "python -m patches refresh"):
      backend.get_requires_for_build_editable()

  def test_sdist(self):
    first, second = self.folder / "1", self.folder / "2"
    for folder in (first, second):
      folder.mkdir()
      name = backend.build_sdist(folder)
    self.assertEqual((first / name).read_bytes(), (second / name).read_bytes())
    with tarfile.open(first / name) as tar:
      names = tar.getnames()
    root = "jax-0.12.0.1+sparsetiles/"
    for path in ("PKG-INFO", "pyproject.toml", "patches/backend.py"):
      self.assertIn(root + path, names)
    self.assertFalse([n for n in names if ".cache" in n or ".pyc" in n])


class RefreshTest(absltest.TestCase):
  """On a copy of the pristine JAX that stands for site-packages."""

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory()))
    trees.copy(trees.pristine(patches.BASE), self.root)

  def test_base_becomes_ours_once(self):
    written, removed = refresh.refresh(self.root)
    self.assertContainsSubset(
        engine.overlay_files(patches.REPO, "jax"), written
    )
    self.assertEmpty(removed)
    self.assertEmpty(trees.changed(self.root, trees.record(self.root)))
    self.assertEqual(refresh.refresh(self.root), ([], []))

  def test_file_that_we_bring_no_more_is_removed(self):
    refresh.refresh(self.root)
    ours = sorted(engine.overlay_files(patches.REPO, "jax"))
    with mock.patch.object(refresh, "_wanted") as wanted:
      wanted.return_value = {
          p: (self.root / p).read_bytes()
          for p in trees.record(self.root)
          if p.startswith("jax/") and p != ours[0]
      }
      self.assertEqual(refresh.refresh(self.root), ([], ours[:1]))
    self.assertFalse((self.root / ours[0]).exists())
    self.assertNotIn(ours[0], trees.record(self.root))

  def test_edited_file_is_not_lost(self):
    engine.write(self.root, {"jax/core.py": b"mine = 1\n"})
    with self.assertRaisesRegex(PatchError, "were edited: jax/core.py"):
      refresh.refresh(self.root)
    written, _ = refresh.refresh(self.root, force=True)
    self.assertIn("jax/core.py", written)

  def test_other_release_is_refused(self):
    info = trees.dist_info(self.root)
    info.rename(info.with_name("jax-0.9.0.dist-info"))
    with self.assertRaisesRegex(PatchError, "got jax-0.9.0.dist-info"):
      refresh.refresh(self.root)


class CommandTest(absltest.TestCase):

  def test_apply_twice_and_export(self):
    with tempfile.TemporaryDirectory(prefix="a b ") as name:
      tree, out = pathlib.Path(name) / "tree", pathlib.Path(name) / "out"
      trees.copy(trees.pristine(patches.BASE), tree)
      self.assertIn("error: Expected a JAX", self.run_command("apply", name, 1))
      self.run_command("export", "--onto", tree, "--out", out, 0)
      self.run_command("apply", tree, 0)
      self.assertIn(
          "the series is applied already", self.run_command("apply", tree, 1)
      )
      self.run_command("apply", "--reverse", tree, 0)
      self.assertEqual(
          synthetic.snapshot(tree),
          synthetic.snapshot(trees.pristine(patches.BASE)),
      )
      self.assertIn(
          "holds none", self.run_command("apply", "--reverse", tree, 1)
      )

  def run_command(self, *args):
    result = subprocess.run(
        [sys.executable, "-m", "patches", *map(str, args[:-1])],
        cwd=patches.REPO, capture_output=True, text=True,
    )
    self.assertEqual(result.returncode, args[-1], result.stderr)
    return result.stderr


if __name__ == "__main__":
  absltest.main()
