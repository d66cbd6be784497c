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
"""Tests of the mails: stable bytes, and `git am` gives what `apply` gives."""

import os
import pathlib
import subprocess
import tempfile
from unittest import mock

import synthetic
from absl.testing import absltest
from synthetic import FILE, make_edit, make_patch

from patches import engine, mails
from patches.model import PatchError

_HOSTILE_CONFIG = """
[user]
  name = Somebody
[core]
  autocrlf = true
  abbrev = 5
[diff]
  noprefix = true
  algorithm = minimal
[format]
  signature = Bye
  subjectPrefix = OTHER
  numbered = true
  attach = true
"""


class MailsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.folder = pathlib.Path(folder)
    self.tree = synthetic.make_tree(self.folder / "a tree")
    repo = self.folder / "repo"
    (repo / "tests").mkdir(parents=True)
    (repo / "tests/a_test.py").write_text("NAME = 'é'\n")
    self.steps = engine.compute(
        self.tree,
        [
            make_patch(
                make_edit(anchor="LIMIT = 4", code="LIMIT = 5"),
                tests=("tests/a_test.py",),
            ),
            make_patch(
                make_edit(anchor="LIMIT = 5", code="X = 1", versions=("0.1",)),
                subject="Not for this release",
            ),
            make_patch(
                make_edit(anchor="LIMIT = 5", code="LIMIT = 'ß'"),
                subject="[Tiles][Test] Take a subject that is longer than a"
                " line of a mail",
            ),
        ],
        repo=repo,
    )

  def export(self, name, *args):
    return mails.export(self.tree, self.steps, self.folder / name, *args)

  def test_git_am_gives_what_apply_gives(self):
    written = self.export("mails")
    self.assertLen(written, 2)
    repo = mails.Repo(self.folder / "am")
    repo.commit(mails.base_files(self.tree, self.steps), "base")
    repo.git("am", "--keep-non-patch", *written)
    self.assertEqual(repo.files(), engine.merged(self.steps))
    self.assertEqual(
        repo.git("log", "--reverse", "--format=%s%n%b", "base..").split("\n\n"),
        ["[Tiles] Change the tiles\nBecause.",
         "[Tiles][Test] Take a subject that is longer than a line of a mail\n"
         "Because.", ""],
    )

  def test_same_bytes_whatever_git_is_told(self):
    first = self.export("first")
    config = self.folder / "config"
    config.write_text(_HOSTILE_CONFIG)
    hostile = {
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_DIR": str(self.folder / "nowhere"),
        "GIT_AUTHOR_DATE": "2001-01-01T00:00:00",
        "TZ": "Asia/Tokyo",
        "COLUMNS": "40",
    }
    with mock.patch.dict(os.environ, hostile):
      second = self.export("second")
    self.assertEqual([p.name for p in first], [p.name for p in second])
    for a, b in zip(first, second):
      self.assertEqual(a.read_bytes(), b.read_bytes())
    self.assertNotIn(b"\n-- \n", first[0].read_bytes())

  def test_author(self):
    mail = self.export("mails", mails.Author("Ada", "ada@example.org"))[0]
    self.assertIn("From: Ada <ada@example.org>\n", mail.read_text())

  def test_mail_that_git_apply_skips(self):
    """In a folder of another repository it skips all files, and succeeds."""
    mail = self.export("mails")[0]
    outer = mails.Repo(self.folder / "outer")
    files = mails.base_files(self.tree, self.steps)
    outer.commit({f"inner/{p}": c for p, c in files.items()}, "outer")
    inner = outer.root / "inner"
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    subprocess.run(["git", "apply", mail], cwd=inner, env=env, check=True)
    self.assertEqual((inner / FILE).read_text(), synthetic.SOURCE)
    self.assertEqual(mails.enclosing_repository(inner), outer.root)
    self.assertIsNone(mails.enclosing_repository(outer.root))
    outer.root = inner
    with self.assertRaisesRegex(PatchError, "take 2 files .*, got 0"):
      outer.require_applies(mail)
    flat = mails.Repo(self.folder / "flat")
    flat.commit(files, "base")
    flat.require_applies(mail)

  def test_mail_that_does_not_apply(self):
    mail = self.export("mails")[0]
    repo = mails.Repo(self.folder / "other")
    repo.commit({FILE: b"LIMIT = 9\n"}, "base")
    with self.assertRaisesRegex(PatchError, "patch does not apply"):
      repo.require_applies(mail)

  def test_stale_mails_are_refused(self):
    self.export("mails")
    self.export("mails")
    (self.folder / "mails/0009-old.patch").touch()
    with self.assertRaisesRegex(PatchError, "no other mails, found 0009-old"):
      self.export("mails")


if __name__ == "__main__":
  absltest.main()
