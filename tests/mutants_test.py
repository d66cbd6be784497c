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
"""Every mutant still finds the place that it changes.

Whether tests notice takes minutes: `make mutants`.
"""

from absl.testing import absltest
import mutants
import patches
from patches import engine
from patches import trees


class MutantsTest(absltest.TestCase):

  def test_places(self):
    tree = engine.Tree.open(trees.pristine(patches.BASE))
    files = engine.merged(engine.compute(tree, engine.load_series()))
    for mutant in mutants.MUTANTS:
      with self.subTest(mutant.path, old=mutant.old):
        self.assertNotEqual(
            mutants.mutated(files, mutant), files[mutant.path]
        )
        for name in mutant.tests:
          self.assertIn(f"tests/mosaic/{name}", files)


if __name__ == "__main__":
  absltest.main()
