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
"""How large the patches are: `python -m patches list --sizes`."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Iterable, Sequence

from patches import engine, mails

# Medians of what upstream's commits to sparse MMA add.
UPSTREAM_SOURCE = 45
UPSTREAM_TESTS = 35


@dataclasses.dataclass(frozen=True)
class Size:
  """The lines that a patch adds and deletes.

  Attributes:
    slug: The patch.
    source: Lines added to what is neither a test nor documentation.
    deleted: Lines deleted from the same.
    tests: Lines added to tests.
    docs: Lines added to documentation.
  """

  slug: str
  source: int
  deleted: int
  tests: int
  docs: int


def measure(tree: engine.Tree, steps: Sequence[engine.Step]) -> list[Size]:
  """Returns the sizes of all patches, as git counts lines."""
  with tempfile.TemporaryDirectory(prefix="patches-") as folder:
    repo = mails.Repo(pathlib.Path(folder) / "repo")
    repo.commit(mails.base_files(tree, steps), "pristine")
    result = []
    for step in steps:
      # A patch without files, too: its commit is empty.
      repo.commit(step.files, step.patch.subject)
      counts = repo.git(
          "show", "--numstat", "--no-renames", "--diff-algorithm=histogram",
          "--format=",
      )
      result.append(_size(step.patch.slug, counts))
  return result


def _size(slug: str, counts: str) -> Size:
  source = deleted = tests = docs = 0
  for line in counts.splitlines():
    added, removed, path = line.split("\t")
    # Binary files have no lines.
    added, removed = (int(n) if n != "-" else 0 for n in (added, removed))
    if path.startswith("tests/"):
      tests += added
    elif path.startswith("docs/"):
      docs += added
    else:
      source += added
      deleted += removed
  return Size(slug, source, deleted, tests, docs)


def table(sizes: Iterable[Size]) -> str:
  """Returns the sizes as a table in markdown."""
  sizes = list(sizes)
  lines = [
      "| | patch | source | deleted | tests | docs |",
      "| --- | --- | ---: | ---: | ---: | ---: |",
  ]
  lines += [
      f"| {i} | {s.slug} | {s.source} | {s.deleted} | {s.tests} | {s.docs} |"
      for i, s in enumerate(sizes, 1)
  ]
  if sizes:
    source = statistics.median(s.source for s in sizes)
    tests = statistics.median(s.tests for s in sizes)
    lines.append(f"| | median | {source:g} | | {tests:g} | |")
  lines.append(
      "| | upstream's commits to sparse MMA, median |"
      f" {UPSTREAM_SOURCE} | | {UPSTREAM_TESTS} | |"
  )
  return "\n".join(lines)
