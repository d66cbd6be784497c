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
"""Tests of the sparsity selector of tcgen05.mma's instruction descriptor."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax._src.lib.mlir import ir
from jax.experimental.mosaic.gpu import tcgen05


class SparsitySelectorTest(test_util.TestCase):

  def descriptor(self, selector):
    f16, f32 = ir.F16Type.get(), ir.F32Type.get()
    with ir.InsertionPoint(ir.Module.create().body):
      value = tcgen05.create_instr_descriptor(
          128, 128, f32, f16, f16, sparsity_selector=selector
      )
    return ir.IntegerAttr(value.owner.attributes["value"]).value

  @parameterized.parameters(0, 1)
  def test_a_column_of_the_pair(self, selector):
    # PTX ISA, tcgen05 instruction descriptor: bits 0-1, and 2 for sparsity.
    self.assertEqual(self.descriptor(selector) & 0b111, 0b100 | selector)

  @parameterized.parameters(-1, 2, 3)
  def test_no_column_of_the_pair(self, selector):
    with self.assertRaisesRegex(ValueError, f"of 0 or 1, got {selector}"):
      self.descriptor(selector)


if __name__ == "__main__":
  absltest.main()
