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
"""Runs the steps of the tutorial and compares its page with what they do."""

import importlib.util
import pathlib
import re
import sys

from absl.testing import absltest
from absl.testing import parameterized
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

_DOCS = pathlib.Path(__file__).parents[1] / "docs"


def _load_update():
  path = _DOCS / "tutorial" / "update.py"
  spec = importlib.util.spec_from_file_location("tutorial_update", path)
  module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


update = _load_update()
_PAGE = update.PAGE.read_text()
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class TutorialTest(parameterized.TestCase):

  # Steps check their numbers, in two orders and for races, before they report.
  @parameterized.parameters(*update.PLACES)
  def test_place(self, name):
    self.assertEqual(
        update.places(_PAGE)[name], update.PLACES[name](),
        "Run docs/tutorial/update.py",
    )

  @parameterized.parameters(*update.PICTURES)
  def test_picture(self, name):
    self.assertEqual(
        (update.HERE / f"{name}.svg").read_text(), update.PICTURES[name](),
        "Run docs/tutorial/update.py",
    )
    self.assertEqual(_PAGE.count(f"](tutorial/{name}.svg)"), 1)

  def test_a_wrong_result_is_an_error(self):
    common, one_call = update.step("common"), update.step("one_call")
    with self.assertRaisesRegex(AssertionError, "Mismatched elements"):
      common.run(lambda *args: 2 * one_call.matmul(*args), 128, 64, 128)

  def test_all_code_is_generated(self):
    places = "\n".join(update.places(_PAGE).values())
    written = set(_FENCE.findall(_PAGE)) - set(_FENCE.findall(places))
    self.assertLen(written, 1)
    [(kind, command)] = written
    self.assertEqual(kind, "sh")
    self.assertTrue((_DOCS.parent / command.split()[-1]).exists())

  def test_every_step_and_picture_is_on_the_page(self):
    shown = {name.split()[-1] for name in update.places(_PAGE)}
    scripts = {path.stem for path in update.HERE.glob("*.py")}
    self.assertEqual(scripts - shown, {"update"})
    pictures = {path.stem for path in update.HERE.glob("*.svg")}
    self.assertEqual(pictures, set(update.PICTURES))

  def test_metadata_in_tensor_memory(self):
    where = update.lanes_and_columns(256, 64)
    # Each 16 by 16 entries have two of their quarters swapped.
    lane, column, place = np.indices((128, 8, 16))
    row = column // 4 * 128 + lane // 16 * 16 + place // 8 * 8 + lane % 8
    entry = column % 4 * 16 + lane % 16 // 8 * 8 + place % 8
    np.testing.assert_array_equal(where, np.stack([row, entry], axis=-1))

  def test_8_bit_metadata_has_its_row_in_a_lane(self):
    positions = np.random.default_rng(0).integers(0, 4, (128, 32, 2))
    result = plgpu.format_tcgen05_sparse_metadata(
        jnp.asarray(positions, jnp.uint2), jnp.float8_e4m3fn
    )
    np.testing.assert_array_equal(
        np.asarray(result).astype(int).reshape(128, 64),
        positions.reshape(128, 64),
    )

  def test_what_the_text_says_of_the_reports(self):
    reports = {
        name: update.report(name, **update.SIZE) for name in update.SAME
    }
    passed, parked = (
        {
            name: sum(getattr(w, count) for w in r.barrier_waits.values())
            for name, r in reports.items()
        }
        for count in ("passed", "parked")
    )
    # All warps of a warpgroup wait in step 3, one of them in step 4.
    self.assertLess(passed["warps"], passed["k_loop"])
    self.assertGreater(parked["warps"], 0)
    # Step 7 does what step 6 does, but for how it waits.
    summary = update.step("common").summary
    one, other = (
        [
            line for line in summary(reports[name]).splitlines()
            if not line.startswith(("waits", "times"))
        ]
        for name in ("two_ctas", "finished")
    )
    self.assertLen(one, 9)
    self.assertEqual(one, other)

  def test_metadata_moves_with_rows_and_k_but_not_with_n(self):
    for m, n, k in (128, 64, 128), (256, 64, 128), (128, 128, 128):
      operands = update.report("one_call", m=m, n=n, k=k).tmem_operands()
      columns = {
          what: (first, last - first + 1) for first, last, what in operands
      }
      d = m // 128 * n
      self.assertEqual(columns["D of MMA"], (0, d))
      self.assertEqual(columns["sparse metadata"], (d, m // 128 * k // 32))


if __name__ == "__main__":
  absltest.main()
