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
"""Every wait, fence, commit and barrier of every kernel is removed once.

Each removal must be reported: as a race, a deadlock, a read of something never
written, or a misuse of a barrier. Those that need not be, because something
else orders the same, are listed with the reason (and, where that is another
removable instruction, it is shown that without both there is a report).

By default, the small kernels are tested. With MOSAIC_GPU_ALL_REMOVALS=1 in the
environment, also JAX's own, and what is redundant in all orders (minutes).
"""

import os

import race_kernels
from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import errors

ALL = bool(os.environ.get("MOSAIC_GPU_ALL_REMOVALS"))
ORDERS = ("eager", "lazy", 0, 1)
SMALL = (
    "dense", "sparse", "scaled", "A in TMEM", "pair", "row tiles", "example",
    "pipeline", "sparse matmul", "sparse matmul pair",
)
# Of these kernels, by default, only the waits and the fences.
ONLY_WAITS = ("sparse matmul", "sparse matmul pair")
WAITS = (
    "mbarrier wait", "cluster wait", "wait::ld", "fence::before",
    "fence::after", "commit_group", "wait_group", "proxy fence", "init fence",
)

_START = "bar 0 orders the set-up, and nothing happens until this one"
_ROLES = (
    "begins or ends the part in which each warp has its own role; they meet at"
    " mbarriers only"
)
_COPIES = "orders tcgen05 instructions behind it; this warp issues only copies"
_LAST_COMMIT = "nobody waits for the last use of a stage"
_CLC = (
    "every thread arrives at the barrier of the next try_cancel after its"
    " epilogue, and all wait for that"
)
_TWICE = "Warpgroup semantics put a barrier before and behind; either will do"
_STAGING = (
    "the barriers around it (of this step or the next one) order the same uses"
    " of the staging buffer and of the accumulator"
)
_FENCED = "there is a barrier before and behind the fence; either will do"
_END = "three waits in a row for the other threads, before the end"
_NOT_RUN = (
    "each bit of the row count has its copy: with these group sizes it does not"
    " run, or a later commit_group covers it"
)


def _table(*rows):
  """{removal: (reason, what else to remove for a report)} of a kernel."""
  return {
      name: (reason, tuple(others))
      for names, reason, *others in rows
      for name in names
  }


def _numbers(kind, *numbers):
  return [f"{kind} {number}" for number in numbers]


def _either(reason, first, second):
  """Rows of a table for two barriers of which one is enough."""
  first, second = f"bar {first}", f"bar {second}"
  return ([first], reason, second), ([second], reason, first)


def _sparse_matmul(first, *end):
  """What is redundant in the sparse matmul.

  Args:
    first: the barrier in front of the roles.
    *end: the barriers before the last one.
  """
  b = first + 1
  return _table(
      (_numbers("bar", *range(1, first)), _START),
      (_numbers("bar", first, first + 1), _ROLES),
      (["fence::after 2"], _COPIES),
      *_either(_TWICE, b + 1, b + 2),
      *_either(_FENCED, b + 3, b + 4),
      ([f"bar {b + 5}"], _TWICE, f"bar {b + 6}"),
      *_either(_TWICE, b + 7, b + 8),
      *_either(_FENCED, b + 9, b + 10),
      (_numbers("bar", *end), "the last barrier follows"),
  )


REDUNDANT = {
    "row tiles": _table(
        (["init fence 0"], "the kernel has no mbarriers"),
        (["bar 1"], "a warp loads only lanes that it stored itself"),
    ),
    "pipeline": _table((_numbers("commit", 7, 8), _LAST_COMMIT)),
    "sparse matmul": _sparse_matmul(3, 15),
    "sparse matmul pair": _sparse_matmul(3, 15, 16),
    "mxfp8 sparse matmul pair": _sparse_matmul(2, 14, 15),
    "JAX matmul": _table(
        (_numbers("bar", 1, 2, 3), _START),
        (_numbers("bar", 4, 5), _ROLES),
        (_numbers("mbarrier wait", 1, 6), _CLC),
        (_numbers("fence::after", 0, 1, 2, 3), _COPIES),
        (["bar 6"], _TWICE, "bar 7"),
        (["bar 7"], _TWICE, "bar 6"),
        (["bar 8"], _TWICE, "bar 9"),
        (["bar 9"], _TWICE, "bar 8"),
        (["wait_group 1"], _STAGING, "wait_group 0"),
        (["bar 10"], _STAGING),
        (_numbers("bar", 11, 12), _CLC),
        (["mbarrier wait 12"], "bar 13 follows", "bar 13"),
        (["bar 13"], "mbarrier wait 12 precedes", "mbarrier wait 12"),
    ),
    "JAX collective matmul": _table(
        (_numbers("bar", 1, 2, 3), _START),
        (_numbers("bar", 5, 6), _ROLES),
        (["mbarrier wait 6"], _CLC),
        (_numbers("fence::after", 0, 1, 2, 3), _COPIES),
        (_numbers("bar", 7, 8, 11, 12, 15), _STAGING),
        (["bar 9"], _TWICE, "bar 10"),
        (["bar 10"], _TWICE, "bar 9"),
        (["bar 13"], _TWICE, "bar 14"),
        (["bar 14"], _TWICE, "bar 13"),
        (["wait_group 0"], _STAGING, "wait_group 1", "wait_group 2"),
        (["wait_group 1"], _STAGING, "wait_group 0", "wait_group 2"),
        (["wait_group 2"], _STAGING, "wait_group 0", "wait_group 1"),
        (["commit_group 0"], "commit_group 1 covers it", "commit_group 1"),
        (_numbers("bar", 16, 17), _CLC),
        (["mbarrier wait 12"], _END, "cluster wait 1"),
        (["cluster wait 1"], _END, "mbarrier wait 12"),
        (["bar 18"], _END, "mbarrier wait 12", "cluster wait 1"),
    ),
    "JAX ragged dot": _table(
        (_numbers("bar", 1, 2, 3), _START),
        (_numbers("bar", 7, 8), _ROLES),
        (_numbers("fence::after", 0, 1), _COPIES),
        (_numbers("bar", 4, 5, 9, 12, 13), _STAGING),
        (["bar 10"], _TWICE, "bar 11"),
        (["bar 11"], _TWICE, "bar 10"),
        (["bar 14"], _TWICE, "bar 15"),
        (["bar 15"], _TWICE, "bar 14"),
        (
            _numbers("commit_group", 1, 2, 4, 6, 7, 9, 10, 12, 14, 15),
            _NOT_RUN,
        ),
        (["bar 16"], "a barrier of the cluster follows"),
    ),
}


class RemovedWaitsTest(parameterized.TestCase):

  @parameterized.parameters(*(race_kernels.MAKERS if ALL else SMALL))
  def test_kernel(self, name):
    kernel = race_kernels.get(name)
    removals = race_kernels.removals(kernel.ptx)
    by_name = {removal.name: removal for removal in removals}
    redundant = REDUNDANT.get(name, {})
    self.assertContainsSubset(redundant, by_name)
    kinds = race_kernels.PATTERNS
    if not ALL and name in ONLY_WAITS:
      kinds = WAITS
    for removal in removals:
      if removal.kind not in kinds:
        continue
      with self.subTest(f"{removal.name}, line {removal.line}"):
        ptx = race_kernels.without(kernel.ptx, removal)
        if removal.name in redundant:
          reason, others = redundant[removal.name]
          for order in ORDERS if ALL else ORDERS[:1]:
            self.assertIsNone(
                kernel.problem(order, ptx),
                f"{removal.name} is listed as redundant ({reason})",
            )
          if others:
            more = [by_name[other] for other in others]
            ptx = race_kernels.without(kernel.ptx, removal, *more)
            self.assert_reported(kernel, ptx, removal)
          continue
        self.assert_reported(kernel, ptx, removal)

  def assert_reported(self, kernel, ptx, removal) -> None:
    problem = None
    for order in ORDERS:
      problem = kernel.problem(order, ptx)
      if problem is not None:
        break
    self.assertIsNotNone(problem, f"Nobody noticed: no `{removal.text}`")
    self.assertNotStartsWith(problem, "wrong results", removal.text)
    if problem.startswith("RaceError"):
      self.assertRegex(problem, r"CTA \(\d+,\d+,\d+\), warp \d+")

  @parameterized.parameters(*(race_kernels.MAKERS if ALL else SMALL))
  def test_no_false_alarm(self, name):
    kernel = race_kernels.get(name)
    for order in ("eager", "lazy", *range(12 if ALL else 3)):
      with self.subTest(order=order):
        self.assertEqual(kernel.run(order), kernel.expected)

  @parameterized.parameters(*race_kernels.SHIPPED_WITH_RACES)
  def test_races_of_shipped_kernels(self, name):
    make, message = race_kernels.SHIPPED_WITH_RACES[name]
    kernel = make()
    for order in ("eager", "lazy", 0):
      with self.assertRaisesRegex(errors.RaceError, message):
        kernel.run(order)


if __name__ == "__main__":
  absltest.main()
