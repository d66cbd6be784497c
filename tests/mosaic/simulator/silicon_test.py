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
"""The simulator gives what a GPU gave, bit by bit.

The recordings in silicon/data are of a Hopper GPU, made by
silicon/run_on_gpu.py.
"""

from __future__ import annotations

import os

from absl.testing import absltest, parameterized
from silicon import families, recording, simulated

_COMMAND = (
    "run `python3 tests/mosaic/simulator/silicon/run_on_gpu.py` on a machine"
    " with a Hopper GPU"
)


class SiliconTest(parameterized.TestCase):

  def recorded(self, family):
    file = recording.path(family)
    if not file.exists():
      self.fail(f"There is no {os.path.basename(file)}: {_COMMAND}.")
    return recording.load(file)

  @parameterized.parameters(*families.NAMES)
  def test_recording_is_of_these_snippets(self, family):
    about, results = self.recorded(family)
    self.assertIn("sm_90", about["target"])
    self.assertContainsSubset({"gpu", "driver", "date", "command"}, about)
    snippets = families.load(family)
    self.assertEqual(
        {n: s.digest() for n, s in snippets.items()},
        {n: digest for n, (digest, _) in results.items()},
        f"The snippets have changed: {_COMMAND}.",
    )
    wrong = {
        name: outputs
        for name, (_, outputs) in results.items()
        if isinstance(outputs, str) != snippets[name].faults
    }
    self.assertEmpty(wrong, "Failed, or should have.")

  @parameterized.parameters(*(n for n in families.NAMES if n != "faults"))
  def test_simulator(self, family):
    _, results = self.recorded(family)
    problems = []
    for one in families.load(family).values():
      _, want = results[one.name]
      if one.faults:
        continue  # See test_faults.
      if one.modelled:
        try:
          got = simulated.run(one)
        except Exception as e:
          problems.append(f"{one.name}: {type(e).__name__}: {e}")
          continue
      else:
        got = one.expected or want  # Without the simulator.
      for i, (g, w, compare) in enumerate(zip(got, want, one.compare)):
        difference = simulated.difference(g, w, compare)
        if difference:
          problems.append(f"{one.name}, output {i}: {difference}")
    if problems:
      self.fail(
          f"{len(problems)} outputs of {family}:\n" + "\n".join(problems[:20])
      )

  def test_faults(self):
    accepted, count = [], 0
    for family in families.NAMES:
      for one in families.load(family).values():
        if not one.faults:
          continue
        count += 1
        try:
          simulated.run(one)
        except (simulated.errors.SimulationError, ValueError):
          continue
        accepted.append(f"{family}: {one.name}")
    self.assertEmpty(accepted)
    self.assertGreater(count, 40)

  def test_outputs_are_not_poison(self):
    """Of every snippet some output was written."""
    plain = []
    poison = {families.POISON}
    for family in families.NAMES:
      _, results = self.recorded(family)
      for name, (_, outputs) in results.items():
        if not isinstance(outputs, str):
          if all(set(o.tobytes()) == poison for o in outputs):
            plain.append(f"{family}: {name}")
    self.assertEmpty(plain)


if __name__ == "__main__":
  absltest.main()
