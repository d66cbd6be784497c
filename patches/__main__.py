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
"""Patches JAX: applies, exports, checks and installs the series."""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
from collections.abc import Sequence

import patches
from patches import (
    check, engine, mails, refresh, sizes, state, trees, trial, upstream
)
from patches.model import PatchError


def main(argv: Sequence[str] | None = None) -> int:
  args = _parser().parse_args(argv)
  try:
    return args.run(args)
  except PatchError as error:
    print(f"error: {error}", file=sys.stderr)
    return 1


def _compute(args, tests: bool = True):
  """Returns the tree that the arguments name, and the steps on it."""
  tree = engine.Tree.open(args.tree, args.as_version)
  state.require_pristine(tree, engine.load_series())
  return tree, engine.compute(tree, engine.load_series(args.upto), tests=tests)


def _apply(args) -> int:
  if args.reverse:
    return _reverse(args)
  tree, steps = _compute(args, tests=not args.no_tests)
  files = engine.merged(steps)
  engine.write(tree.root, files)
  for step in steps:
    print(f"{step.patch.slug}: {len(step.files)} files")
  count = len(tree.patches(step.patch for step in steps))
  print(
      f"applied {count} patches to JAX {tree.version}:"
      f" {len(files)} files written"
  )
  if missing := engine.left_out(tree, engine.load_series(args.upto)):
    print(f"not in this tree, so left out: {', '.join(missing)}")
  return 0


def _reverse(args) -> int:
  if args.upto or args.no_tests:
    raise PatchError(
        "Expected --reverse alone, which takes out all that was applied, got"
        f" {'--upto' if args.upto else '--no-tests'} with it"
    )
  tree = engine.Tree.open(args.tree, args.as_version)
  count, files = state.reverse(tree, engine.load_series())
  removed = sum(content is None for content in files.values())
  print(
      f"took {count} patches out of JAX {tree.version}: {len(files) - removed}"
      f" files restored, {removed} removed"
  )
  return 0


def _export(args) -> int:
  tree, steps = _compute(args)
  author = mails.Author()
  if args.author:
    match = re.fullmatch(r"\s*([^<>]+?)\s*<([^<>\s]+)>\s*", args.author)
    if not match:
      raise PatchError(
          f"Expected --author 'Name <mail address>', got {args.author!r}"
      )
    author = mails.Author(*match.groups())
  for mail in mails.export(tree, steps, pathlib.Path(args.out), author):
    print(mail)
  if top := mails.enclosing_repository(tree.root):
    folder = tree.root.resolve().relative_to(top.resolve()).as_posix()
    print(
        f"note: {tree.root} is a folder of the git repository {top}. In it"
        " `git apply` would skip every file and still exit with 0: name the"
        f" folder with --directory={folder}, to git apply and to git am",
        file=sys.stderr,
    )
  return 0


def _check(args) -> int:
  bases = tuple(args.base or patches.SUPPORTED)
  return check.check(
      bases, tests=not args.no_tests, jobs=args.jobs, overlay=args.overlay
  )


def _trial(args) -> int:
  return trial.trial(tuple(args.base or patches.SUPPORTED), args.jobs)


def _upstream(args) -> int:
  codes = [
      upstream.compare(
          base, pathlib.Path(args.tests), args.files, args.jobs, args.simulate
      )
      for base in args.base or [patches.BASE]
  ]
  return max(codes)


def _refresh(args) -> int:
  written, removed = refresh.refresh(force=args.force)
  for path in written:
    print(f"wrote {path}")
  for path in removed:
    print(f"removed {path}")
  print(f"refreshed: {len(written)} written, {len(removed)} removed")
  return 0


def _pristine(args) -> int:
  print(trees.pristine(args.base or patches.SUPPORTED[0]))
  return 0


def _list(args) -> int:
  if args.sizes:
    tree = engine.Tree.open(trees.pristine(patches.BASE))
    steps = engine.compute(tree, engine.load_series())
    print(sizes.table(sizes.measure(tree, steps)))
    return 0
  for patch in engine.load_series():
    print(f"{patch.slug}\n    {patch.subject}")
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
      prog="python -m patches", description=__doc__
  )
  commands = parser.add_subparsers(required=True, metavar="COMMAND")

  apply = commands.add_parser("apply", help="edit a JAX tree")
  apply.set_defaults(run=_apply)
  apply.add_argument(
      "tree", metavar="TREE",
      help="folder that contains jax/: a checkout or an unpacked wheel",
  )
  apply.add_argument("--no-tests", action="store_true",
                     help="leave the patches' tests out")
  apply.add_argument("--reverse", action="store_true",
                     help="take the patches out of the tree again")

  export = commands.add_parser("export", help="write mails for `git am`")
  export.set_defaults(run=_export)
  export.add_argument("--onto", dest="tree", metavar="TREE", required=True,
                      help="pristine tree; apply the mails to the same one")
  export.add_argument("--out", metavar="DIR", required=True)
  export.add_argument("--author", metavar="'NAME <ADDRESS>'",
                      help="who the mails are from")
  for command in (apply, export):
    command.add_argument("--upto", metavar="SLUG", help="stop after this patch")
    command.add_argument("--as", dest="as_version", metavar="RELEASE",
                         help="take the tree for this JAX release")

  check_ = commands.add_parser("check", help="prove the series")
  check_.set_defaults(run=_check)
  check_.add_argument("--base", action="append", metavar="RELEASE",
                      choices=patches.SUPPORTED,
                      help="only this release (may be repeated)")
  check_.add_argument("--no-tests", action="store_true",
                      help="leave the patches' tests out")
  check_.add_argument(
      "--overlay", action="store_true",
      help="let the tests of all patches use the simulator",
  )
  check_.add_argument("--jobs", type=int, default=2, metavar="N")

  trial_ = commands.add_parser(
      "trial", help="run the series' tests on releases with their own jaxlib"
  )
  trial_.set_defaults(run=_trial)
  trial_.add_argument("--base", action="append", metavar="RELEASE",
                      choices=patches.SUPPORTED,
                      help="only this release (may be repeated)")
  trial_.add_argument("--jobs", type=int, default=2, metavar="N")

  upstream_ = commands.add_parser(
      "upstream-tests",
      help="compare JAX's own tests with and without the patches",
  )
  upstream_.set_defaults(run=_upstream)
  upstream_.add_argument("--tests", metavar="DIR", required=True,
                         help="a checkout of JAX, or a folder with its tests")
  upstream_.add_argument("--base", action="append", metavar="RELEASE",
                         choices=patches.SUPPORTED,
                         help="the release (may be repeated)")
  upstream_.add_argument("--jobs", type=int, default=2, metavar="N")
  upstream_.add_argument("--simulate", action="store_true",
                         help="run tests of tcgen05, on the simulator")
  upstream_.add_argument("files", nargs="*", metavar="FILE",
                         help="which tests; by default those that need no GPU")

  refresh_ = commands.add_parser(
      "refresh", help="update the JAX installed here to the series"
  )
  refresh_.set_defaults(run=_refresh)
  refresh_.add_argument("--force", action="store_true",
                        help="overwrite files that were edited by hand")

  pristine_ = commands.add_parser(
      "pristine", help="print the folder of JAX without the patches"
  )
  pristine_.set_defaults(run=_pristine)
  pristine_.add_argument("--base", metavar="RELEASE", choices=patches.SUPPORTED)

  list_ = commands.add_parser("list", help="show the series")
  list_.set_defaults(run=_list)
  list_.add_argument("--sizes", action="store_true",
                     help="print how many lines each patch adds")
  return parser


if __name__ == "__main__":
  sys.exit(main())
