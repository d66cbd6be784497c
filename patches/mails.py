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
"""Exporting the series as mails that `git am` takes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from patches import engine
from patches.model import PatchError


@dataclasses.dataclass(frozen=True)
class Author:
  """Who the mails are from, and when they were written."""

  name: str = "Sparse tiles series"
  email: str = "series@example.invalid"
  date: str = "2026-01-01T00:00:00+0000"


def export(
    tree: engine.Tree,
    steps: Sequence[engine.Step],
    out: pathlib.Path,
    author: Author = Author(),
) -> list[pathlib.Path]:
  """Writes one mail for each step that changes something.

  Args:
    tree: the pristine tree that the steps were computed for.
    steps: what `engine.compute` returned.
    out: the folder for the mails; made if need be, and refused if it holds
      mails that this export would not overwrite.
    author: who the mails are from.

  Returns:
    The mails, in order.
  """
  with tempfile.TemporaryDirectory(prefix="patches-") as folder:
    # A repository of its own, with nothing but the touched files: inside
    # another repository git would take that one's settings and paths.
    repo = Repo(pathlib.Path(folder) / "repo", author)
    repo.commit(base_files(tree, steps), f"JAX {tree.version}")
    for step in steps:
      if step.files:
        message = f"{step.patch.subject}\n\n{step.patch.message_body}\n"
        repo.commit(step.files, message)
    mails = pathlib.Path(folder) / "mails"
    repo.git(
        "format-patch", "--keep-subject", "--no-signature", "--zero-commit",
        "--full-index", "--no-renames", "--diff-algorithm=histogram",
        "--stat=72", "--quiet", f"--output-directory={mails}", "base..",
    )
    written = sorted(mails.iterdir()) if mails.is_dir() else []
    out.mkdir(parents=True, exist_ok=True)
    stale = {p.name for p in out.glob("*.patch")} - {p.name for p in written}
    if stale:
      raise PatchError(
          f"Expected {out} to hold no other mails, found"
          f" {', '.join(sorted(stale))}; delete them or choose another folder"
      )
    engine.write(out, {p.name: p.read_bytes() for p in written})
  return [out / p.name for p in written]


def enclosing_repository(root: pathlib.Path) -> pathlib.Path | None:
  """Returns the git repository of which a tree is only a folder."""
  env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
  try:
    result = subprocess.run(
        ["git", "rev-parse", "--show-toplevel"], cwd=root, env=env,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
  except OSError:
    return None
  if result.returncode:
    return None
  top = pathlib.Path(result.stdout.strip())
  return None if top.resolve() == root.resolve() else top


def base_files(
    tree: engine.Tree, steps: Iterable[engine.Step]
) -> dict[str, bytes]:
  """Returns the pristine content of every touched file that exists."""
  contents = {path: tree.read(path) for path in engine.merged(steps)}
  return {p: c for p, c in contents.items() if c is not None}


class Repo:
  """A throw-away git repository that no setting from outside reaches."""

  def __init__(self, root: pathlib.Path, author: Author = Author()):
    root.mkdir(parents=True)
    self.root = root
    self._home = root.parent / (root.name + "-home")
    self._home.mkdir()
    self._author = author
    self.git("init", "--quiet", "--template=", "--initial-branch=main")
    self._commits = 0

  def git(self, *args: str | pathlib.Path) -> str:
    """Runs git in the repository and returns what it prints."""
    result = self._run(*args)
    if result.returncode:
      raise PatchError(
          f"Expected `git {args[0]}` to succeed, got exit code"
          f" {result.returncode}:\n{result.stdout}{result.stderr}"
      )
    return result.stdout

  def _run(self, *args: str | pathlib.Path) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "HOME": str(self._home),
        "XDG_CONFIG_HOME": str(self._home),
        "LC_ALL": "C",
        "TZ": "UTC",
        "PAGER": "cat",
    }
    for role in ("AUTHOR", "COMMITTER"):
      env[f"GIT_{role}_NAME"] = self._author.name
      env[f"GIT_{role}_EMAIL"] = self._author.email
      env[f"GIT_{role}_DATE"] = self._author.date
    command = [
        "git", "-c", "core.autocrlf=false", "-c", "core.fileMode=false", "-c",
        "commit.gpgSign=false", "-c", "core.hooksPath=" + os.devnull, "-c",
        "gc.auto=0", *map(str, args),
    ]
    try:
      return subprocess.run(
          command, cwd=self.root, env=env, stdin=subprocess.DEVNULL,
          capture_output=True, text=True, encoding="utf-8",
      )
    except FileNotFoundError:
      raise PatchError(
          "Expected git on the PATH, found none; install it to export"
      ) from None

  def require_applies(self, mail: pathlib.Path) -> None:
    """Raises unless `git apply` would take all of a mail.

    In a folder of another repository git apply skips every file of a patch
    made at its root, and exits with 0.
    """
    result = self._run("apply", "--check", "--verbose", mail)
    checked = set(
        re.findall(r"^Checking patch (.*)\.\.\.$", result.stderr, re.M)
    )
    named = set(re.findall(r"^diff --git a/(.*) b/\1$", mail.read_text(), re.M))
    if result.returncode or not named or checked != named:
      raise PatchError(
          f"Expected git apply to take {len(named)} files of {mail.name}, got"
          f" {len(checked)}:\n{result.stderr}"
      )

  def commit(self, files: Mapping[str, bytes], message: str) -> None:
    """Writes files and commits them; the first commit is tagged `base`."""
    engine.write(self.root, files)
    self.git("add", "--all", "--force")
    self.git(
        "commit", "--quiet", "--allow-empty", "--no-verify",
        "--cleanup=verbatim", f"--message={message}",
    )
    if not self._commits:
      self.git("tag", "base")
    self._commits += 1

  def files(self) -> dict[str, bytes]:
    """Returns the files of the last commit."""
    names = self.git("ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
    return {n: (self.root / n).read_bytes() for n in names if n}
