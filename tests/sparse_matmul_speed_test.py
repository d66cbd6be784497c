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
"""Compares docs/sparse_matmul_speed.md with what the model says."""

import pathlib

from absl.testing import absltest
from jax.experimental.mosaic.gpu.examples import sparse_matmul_model

_DOC = pathlib.Path(__file__).parents[1] / "docs" / "sparse_matmul_speed.md"


class DocTest(absltest.TestCase):

  def test_tables(self):
    """The tables at its end are the output of `make model`."""
    text = _DOC.read_text()
    self.assertEndsWith(text, "\n\n" + sparse_matmul_model.report() + "\n")


if __name__ == "__main__":
  absltest.main()
