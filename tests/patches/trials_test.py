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
"""Trials of what README says, each from nothing, as three kinds of users do it.

Each starts in a folder whose name has a space, under a umask that hides files
from others, and without a network: packages come from a folder of wheels in the
cache, which is filled once. They take minutes, so they run only with
MOSAIC_GPU_FULL_TESTS=1 (`make test-full`).
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from absl.testing import absltest

import patches
from patches import backend, engine, mails, trees

_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"
_BRANCH = "trial"
# What pip must find beside our requirements, to build the wheel.
_BUILD_REQUIREMENTS = (f"jax=={patches.BASE},!={patches.BASE}+{patches.LABEL}",)


def _wheelhouse() -> pathlib.Path:
  """Returns a folder with all wheels that an installation needs."""
  requirements = patches.REPO / "requirements.txt"
  key = requirements.read_bytes() + repr(_BUILD_REQUIREMENTS).encode()
  folder = trees.cache() / "wheelhouse" / hashlib.sha256(key).hexdigest()[:12]
  if folder.is_dir():
    return folder
  folder.parent.mkdir(parents=True, exist_ok=True)
  partial = pathlib.Path(tempfile.mkdtemp(dir=folder.parent))
  try:
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet",
         "--only-binary=:all:", "--dest", partial, "--requirement",
         requirements, *_BUILD_REQUIREMENTS],
        check=True,
    )
    try:
      os.rename(partial, folder)
    except OSError:
      if not folder.is_dir():  # Otherwise, another worker was faster.
        raise
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return folder


def _offline() -> list[str]:
  """Returns the start of a command that cuts the network, if that works."""
  command = ["unshare", "--net"]
  try:
    result = subprocess.run([*command, "true"], capture_output=True)
  except OSError:
    return []
  return [] if result.returncode else command


@unittest.skipUnless(_FULL, "takes minutes: set MOSAIC_GPU_FULL_TESTS=1")
class TrialsTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.wheels = _wheelhouse()
    cls.prefix = _offline()

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(
        self.enter_context(tempfile.TemporaryDirectory(prefix="a trial "))
    )
    start = time.monotonic()
    self.addCleanup(
        lambda: print(f"{self.id()}: {time.monotonic() - start:.0f} s")
    )

  def run_command(self, *command, cwd=None, **variables) -> str:
    """Runs a command as somebody who has nothing but a shell and git."""
    keep = ("PATH", "LANG", "LD_LIBRARY_PATH", "MOSAIC_GPU_DEVICELESS_CACHE")
    env = {k: v for k, v in os.environ.items() if k in keep} | {
        "HOME": str(self.folder),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": self.wheels.as_uri(),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "TMPDIR": str(self.folder / "temporary files"),
    } | {k: str(v) for k, v in variables.items()}
    (self.folder / "temporary files").mkdir(exist_ok=True)
    result = subprocess.run(
        [*self.prefix, *map(str, command)], cwd=cwd or self.folder, env=env,
        umask=0o077, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    if result.returncode:
      tail = "\n".join(result.stdout.splitlines()[-60:])
      self.fail(f"{command} exited with {result.returncode}:\n{tail}")
    return result.stdout

  def environment(self, *arguments) -> pathlib.Path:
    """Makes a virtual environment with some packages; returns its Python."""
    python = self.folder / "an environment" / "bin" / "python"
    self.run_command(sys.executable, "-m", "venv", python.parent.parent)
    self.run_command(python, "-m", "pip", "install", "--quiet", *arguments)
    return python

  def repository(self) -> pathlib.Path:
    """Makes a clone of this repository as it is now, on a branch."""
    repo = mails.Repo(self.folder / "the repository")
    repo.commit(
        {p: (patches.REPO / p).read_bytes()
         for p in backend.repository_files()},
        "Everything",
    )
    repo.git("branch", _BRANCH)
    return repo.root

  def fork(self) -> pathlib.Path:
    """Makes a repository of JAX as it was released."""
    repo = mails.Repo(self.folder / "a fork of JAX")
    base = trees.pristine(patches.BASE)
    names = ["jax/version.py", *trees.record(base)]
    repo.commit({p: (base / p).read_bytes() for p in names}, "JAX")
    return repo.root

  def git(self, root: pathlib.Path, *arguments) -> str:
    return self.run_command(
        "git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C",
        root, *arguments,
    )

  def demo(self) -> str:
    makefile = (patches.REPO / "Makefile").read_text()
    return re.search(r"^EXAMPLE := (.*)$", makefile, re.M)[1]

  def test_package_from_a_git_url(self):
    url = f"git+{self.repository().as_uri()}@{_BRANCH}"
    python = self.environment(
        "--requirement", patches.REPO / "requirements.txt", url
    )
    self.run_command(python, "-m", "pip", "check")
    where = self.run_command(
        python, "-c", "import jax; print(jax.__version__, jax.__file__)"
    )
    self.assertStartsWith(where, f"{patches.BASE} {python.parent.parent}/lib")
    installed = pathlib.Path(where.split(" ", 1)[1].strip()).parent.parent
    output = self.run_command(python, installed / self.demo())
    self.assertIn("demo: OK", output)

  def test_fork(self):
    fork, out = self.fork(), self.folder / "the mails"
    python = self.environment(
        "--requirement", patches.REPO / "requirements.txt"
    )
    self.run_command(
        python, "-m", "patches", "export", "--onto", fork, "--out", out,
        cwd=patches.REPO,
    )
    self.git(fork, "am", "--quiet", "--keep-non-patch", *sorted(out.iterdir()))
    expected = engine.merged(
        engine.compute(
            engine.Tree.open(trees.pristine(patches.BASE)),
            engine.load_series(),
        )
    )
    for path, content in expected.items():
      self.assertEqual((fork / path).read_bytes(), content, path)
    where = self.run_command(
        python, "-c", "import jax; print(jax.__file__)", PYTHONPATH=fork
    )
    self.assertStartsWith(where, str(fork))
    output = self.run_command(python, fork / self.demo(), PYTHONPATH=fork)
    self.assertIn("demo: OK", output)

  def test_contributor(self):
    """Takes one patch after the other, and runs its tests each time."""
    fork, out = self.fork(), self.folder / "the mails"
    python = self.environment(
        "--requirement", patches.REPO / "requirements.txt"
    )
    self.run_command(
        python, "-m", "patches", "export", "--onto", fork, "--out", out,
        cwd=patches.REPO,
    )
    # Some patches have nothing for a wheel, and so no mail.
    subjects = {p.subject: p for p in engine.load_series()}

    def run_tests(*tests):
      output = self.run_command(
          python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
          "--rootdir", fork, *tests, cwd=fork, PYTHONPATH=fork,
      )
      return output.strip().splitlines()[-1]

    # Without a GPU, some tests need the simulator, which comes last.
    later = []
    for mail in sorted(out.iterdir()):
      self.git(fork, "am", "--quiet", "--keep-non-patch", mail)
      patch = subjects[self.git(fork, "log", "-1", "--format=%s").strip()]
      if patch.tests:
        last = run_tests(*patch.tests)
        print(f"{patch.slug}: {last}")
        if " passed" not in last:
          self.assertRegex(last, r"^\d+ skipped in")
          later += patch.tests
    if later:
      last = run_tests(*later)
      print(f"with the simulator: {last}")
      self.assertRegex(last, r"^\d+ passed")
      self.assertNotIn("skipped", last)


if __name__ == "__main__":
  absltest.main()
