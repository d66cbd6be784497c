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
"""Tests of the cache of pristine trees, which works without a network."""

import os
import pathlib
import subprocess
import tempfile
import zipfile
from unittest import mock

from absl.testing import absltest

from patches import trees
from patches.model import PatchError

_FILES = {"jax/version.py": b'_version = "1.2"\n', "jax/a.py": b"A = 1\n"}


def _write_wheel(path: pathlib.Path, files=None) -> None:
  rows = [f"{p},{trees.hash_of(c)},{len(c)}\n" for p, c in _FILES.items()]
  info = "jax-1.2.dist-info/RECORD"
  path.parent.mkdir(parents=True, exist_ok=True)
  with zipfile.ZipFile(path, "w") as archive:
    for name, content in (_FILES | (files or {})).items():
      archive.writestr(name, content)
    archive.writestr(info, "".join(rows) + f"{info},,\n")


class TreesTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enter_context(tempfile.TemporaryDirectory())
    self.cache = pathlib.Path(folder)
    self.wheel = self.cache / "wheels/jax-1.2-py3-none-any.whl"
    self.enter_context(
        mock.patch.dict(os.environ, {trees.CACHE_VARIABLE: str(self.cache)})
    )
    self.pip = self.enter_context(
        mock.patch.object(subprocess, "run", side_effect=self.run_pip)
    )
    self.online = False

  def run_pip(self, command, **kwargs):
    """Stands for `pip download`."""
    if self.online:
      folder = command[command.index("--dest") + 1]
      _write_wheel(pathlib.Path(folder) / self.wheel.name)
    return subprocess.CompletedProcess(command, not self.online, "", "no net\n")

  def test_cached_wheel_needs_no_network(self):
    _write_wheel(self.wheel)
    tree = trees.pristine("1.2")
    self.assertEqual((tree / "jax/a.py").read_bytes(), b"A = 1\n")
    self.assertEqual(trees.pristine("1.2"), tree)
    self.pip.assert_not_called()

  def test_download_happens_once(self):
    self.online = True
    trees.pristine("1.2")
    self.assertTrue(self.wheel.exists())
    trees.wheel("1.2")
    self.pip.assert_called_once()
    self.assertIn("jax==1.2,!=1.2+sparsetiles", self.pip.call_args.args[0])

  def test_offline_says_what_to_do(self):
    with self.assertRaisesRegex(PatchError, "(?s)no net.*Go online"):
      trees.pristine("1.2")
    self.pip.reset_mock()
    with self.assertRaisesRegex(PatchError, "in the cache, found no"):
      trees.pristine("1.2", download=False)
    self.pip.assert_not_called()

  def test_changed_tree_is_unpacked_again(self):
    _write_wheel(self.wheel)
    tree = trees.pristine("1.2")
    (tree / "jax/a.py").write_text("A = 2\n")
    self.assertEqual(
        (trees.pristine("1.2") / "jax/a.py").read_bytes(), b"A = 1\n"
    )

  def test_broken_wheel(self):
    _write_wheel(self.wheel, {"jax/a.py": b"A = 3\n"})
    with self.assertRaisesRegex(PatchError, "jax/a.py differ; delete it"):
      trees.pristine("1.2")
    self.assertEmpty(list((self.cache / "trees").iterdir()))


if __name__ == "__main__":
  absltest.main()
