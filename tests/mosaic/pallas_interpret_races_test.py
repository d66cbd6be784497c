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
"""Tests of the race detection of GPU interpret mode in pipelines."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import pallas_tiles_test_util as pallas_util


class PallasInterpretRacesTest(test_util.TestCase):

  @parameterized.product(stages=(2, 3, 4), early=(None, "a", "b"))
  def test_stage_that_is_overwritten_too_early(self, stages, early):
    steps = stages + 2
    matmul = pallas_util.Pipeline(
        128, 64, 64 * steps, sparse=False, steps=steps, stages=stages,
        early=early,
    )
    matmul.check_race(self, early is not None)


if __name__ == "__main__":
  absltest.main()
