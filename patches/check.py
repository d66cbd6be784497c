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
"""Proving the series: `python -m patches check`.

For every release, as a wheel and laid out as a checkout: all anchors are found,
the exported mails apply with `git am` to exactly what `apply` gives, and
exporting twice gives the same bytes. After each patch the touched files compile,
import only modules that are there and pass JAX's linter, and in the end JAX's
type checker finds nothing new in them. On the release that our wheel is built
from, that also holds after each patch, the package imports and the patch's tests
pass.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import py_compile
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent import futures

import patches
from patches import checkout, engine, imports, lint, mails, trees
from patches import series as series_package
from patches.model import Patch, PatchError

# JAX's own lines are a little wider at times; ours need not be.
_WIDTH = 80

_IMPORT = """
import sys, jax
import jax.experimental.mosaic.gpu, jax.experimental.pallas.mosaic_gpu
if not jax.__file__.startswith(sys.argv[1]):
  sys.exit(f"expected jax from {sys.argv[1]}, got {jax.__file__}")
"""


@dataclasses.dataclass
class Row:
  """A line of the table, and what to say about it below."""

  base: str
  what: str
  result: str
  seconds: float = 0.0
  failure: str = ""
  notes: tuple[str, ...] = ()

# What `overlay` brings into each tree.
_SIMULATOR = "jax/experimental/mosaic/gpu/simulator"


def check(
    bases: Sequence[str] = patches.SUPPORTED,
    tests: bool = True,
    jobs: int = 2,
    overlay: bool = False,
) -> int:
  """Runs all checks, prints a table and returns the exit code.

  Args:
    bases: the releases to check on.
    tests: whether to run the patches' tests.
    jobs: how many patches to look at side by side.
    overlay: whether the tests of all patches see the simulator, so that those
      which need it do not skip.
  """
  rows = [_timed("", "series", _check_order)]
  _show(rows[-1])
  if rows[-1].failure:
    return _finish(rows)
  patches_ = engine.load_series()
  for base in bases:
    for row in _check_base(base, patches_, tests, jobs, overlay):
      _show(row)
      rows.append(row)
  return _finish(rows)


def _show(row: Row) -> None:
  print(
      f"{row.base:9} {row.what[:54]:54} {row.seconds:6.1f}s  {row.result}",
      flush=True,
  )


def _finish(rows: Sequence[Row]) -> int:
  for note in dict.fromkeys(note for row in rows for note in row.notes):
    print(f"note: {note}")
  failed = [r for r in rows if r.failure]
  for row in failed:
    print(f"\nFAILED {row.base} {row.what}\n{row.failure}")
  print(f"check: {f'{len(failed)} FAILED' if failed else 'OK'}")
  return 1 if failed else 0


def _timed(base: str, what: str, run: Callable[[], str]) -> Row:
  start = time.monotonic()
  try:
    result, failure = run(), ""
  except PatchError as error:
    result, failure = "FAILED", str(error)
  return Row(base, what, result, time.monotonic() - start, failure)


def _check_order() -> str:
  folder = pathlib.Path(series_package.__file__).parent
  modules = {p.stem for p in folder.glob("*.py")} - {"__init__"}
  if forgotten := modules - set(series_package.ORDER):
    raise PatchError(
        "Expected every module of patches/series in ORDER of its __init__.py,"
        f" missing {', '.join(sorted(forgotten))}; add or delete them"
    )
  return f"{len(engine.load_series())} patches"


def _check_base(
    base: str,
    series: tuple[Patch, ...],
    tests: bool,
    jobs: int,
    overlay: bool,
):
  """Yields the rows of one release."""
  with tempfile.TemporaryDirectory(prefix="patches-") as folder:
    tree, source, all_steps = None, None, []

    def anchors():
      nonlocal tree, source, all_steps
      tree = engine.Tree.open(trees.pristine(base))
      source = checkout.make(tree, pathlib.Path(folder) / "checkout")
      all_steps = engine.compute(source, series)
      edits = sum(len(source.edits(p)) for p in series)
      return f"{edits} edits, {len(engine.merged(all_steps))} files"

    row = _timed(base, "anchors match once", anchors)
    if not row.failure:
      row.notes = tuple(_long_lines(tree, engine.merged(all_steps)))
    yield row
    if row.failure:
      return
    # No edit looks at another file, so a wheel gets just fewer of them.
    steps = [
        engine.Step(step.patch, {
            p: c for p, c in step.files.items() if p not in checkout.FILES
        })
        for step in all_steps
    ]
    for where, at, done in (("a wheel", tree, steps),
                            ("a checkout", source, all_steps)):
      yield _timed(base, f"export, git am onto {where}, export again",
                   lambda at=at, done=done: _check_mails(at, done))
    yield _timed(base, "imports bring no module too early",
                 lambda: imports.require_in_order(tree, steps))
    yield _timed(base, "ruff and byte-compile after each patch",
                 lambda: _check_style(tree, steps))
    root = pathlib.Path(folder) / "tree0"
    trees.copy(tree.root, root)
    yield _timed(base, "pyrefly after the last patch",
                 lambda: _check_types(tree, steps, root))
    if base == patches.BASE:
      yield from _check_steps(
          tree, steps, pathlib.Path(folder), tests, jobs, overlay
      )


def _long_lines(tree: engine.Tree, files: dict[str, bytes]):
  """Yields a note for each line of ours that is wider than JAX's style."""
  for path, content in files.items():
    if not path.endswith(".py"):
      continue
    before = set((tree.read(path) or b"").decode().splitlines())
    for line in content.decode().splitlines():
      if len(line) > _WIDTH and line not in before:
        yield f"{path}: {len(line)} columns: {line.strip()}"


def _check_mails(tree: engine.Tree, steps: Sequence[engine.Step]) -> str:
  """Checks that the mails are stable and make the tree that `apply` makes."""
  with tempfile.TemporaryDirectory(prefix="patches-") as name:
    folder = pathlib.Path(name)
    first = mails.export(tree, steps, folder / "1")
    second = mails.export(tree, steps, folder / "2")
    for a, b in zip(first, second, strict=True):
      if a.name != b.name or a.read_bytes() != b.read_bytes():
        raise PatchError(f"Expected the same mails twice, but {a.name} differs")
    repo = mails.Repo(folder / "am")
    repo.commit(mails.base_files(tree, steps), "pristine")
    for mail in first:
      repo.require_applies(mail)
      repo.git("am", "--quiet", "--keep-non-patch", mail)
    expected = engine.merged(steps)
    found = repo.files()
    different = [
        p for p in sorted(expected.keys() | found.keys())
        if expected.get(p) != found.get(p)
    ]
    if different:
      raise PatchError(
          "Expected git am to give what apply gives, but these differ:"
          f" {', '.join(different)}"
      )
    subjects = repo.git("log", "--reverse", "--format=%s", "base..")
    wanted = [s.patch.subject for s in steps if s.files]
    if subjects.splitlines() != wanted:
      raise PatchError(f"Expected the subjects {wanted}, got {subjects}")
  return f"{len(first)} mails"


def _check_style(tree: engine.Tree, steps: Sequence[engine.Step]) -> str:
  """Lints and compiles all files, as they are after each patch."""
  with tempfile.TemporaryDirectory(prefix="patches-") as name:
    folder = pathlib.Path(name)
    files = {}
    for number, step in enumerate(steps):
      for path, content in step.files.items():
        if path.endswith(".py"):
          files[f"{number}/{path}"] = content
    engine.write(folder, files)
    for path in files:
      try:
        py_compile.compile(str(folder / path), doraise=True)
      except py_compile.PyCompileError as error:
        raise PatchError(f"Expected {path} to compile, got {error}") from None
    after = lint.style(folder, files)
  before = lint.style(tree.root, engine.merged(steps))
  for number, step in enumerate(steps):
    prefix = f"{number}/"
    found = collections.Counter({
        (path.removeprefix(prefix), *rest): count
        for (path, *rest), count in after.items()
        if path.startswith(prefix)
    })
    lint.require_none(f"ruff after {step.patch.slug}", before, found)
  return f"{len(files)} files"


def _check_types(
    tree: engine.Tree, steps: Sequence[engine.Step], root: pathlib.Path
) -> str:
  touched = engine.merged(steps)
  before = lint.types(tree.root, touched)
  engine.write(root, touched)
  lint.require_none("pyrefly", before, lint.types(root, touched))
  return "no new finding"


def _check_steps(
    tree: engine.Tree,
    steps: Sequence[engine.Step],
    folder: pathlib.Path,
    tests: bool,
    jobs: int,
    overlay: bool,
):
  """Yields a row for the tree after each patch, in order."""
  rest = {}
  if overlay:
    # Also for the patches before the one that brings the simulator.
    rest = {
        path: (patches.REPO / path).read_bytes()
        for path in engine.overlay_files(patches.REPO, _SIMULATOR)
    }
  free: queue.Queue[pathlib.Path] = queue.Queue()
  for i in range(max(1, min(jobs, len(steps)))):
    root = folder / f"tree{i}"
    if not root.exists():
      trees.copy(tree.root, root)
    free.put(root)
  touched = engine.merged(steps)
  pristine = {path: tree.read(path) for path in touched}
  types = lint.types(tree.root, touched)

  def run(number: int) -> Row:
    root = free.get()
    try:
      state = pristine | rest | engine.merged(steps[: number + 1])
      engine.write(root, state)
      return _timed(
          tree.version, steps[number].patch.slug,
          lambda: _check_tree(root, steps[number], types, tests),
      )
    finally:
      free.put(root)

  with futures.ThreadPoolExecutor(max(1, jobs)) as pool:
    yield from pool.map(run, range(len(steps)))


def _check_tree(
    root: pathlib.Path, step: engine.Step, types: lint.Findings, tests: bool
) -> str:
  lint.require_none("pyrefly", types, lint.types(root, step.files))
  _run(root, "import", ["-c", _IMPORT, str(root)])
  done = ["pyrefly", "imports"]
  if tests and step.patch.tests:
    output = _run(
        root, "tests",
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(root),
         *step.patch.tests],
    )
    done.append(output.strip().splitlines()[-1].strip("= "))
  return ", ".join(done)


def _run(root: pathlib.Path, what: str, args: Sequence[str]) -> str:
  """Runs Python in a tree, which then is where `jax` comes from."""
  result = subprocess.run(
      [sys.executable, *args], cwd=root, env=trees.environment(root),
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT, text=True,
  )
  if result.returncode:
    tail = "\n".join(result.stdout.splitlines()[-60:])
    raise PatchError(
        f"Expected {what} to succeed, got exit code {result.returncode}:\n"
        f"{tail}"
    )
  return result.stdout
