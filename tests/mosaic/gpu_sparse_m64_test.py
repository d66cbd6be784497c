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
"""Test of the refusal of sparse tcgen05.mma with 64 rows."""

from absl.testing import absltest
import gpu_tiles_test_util as test_util
from jax._src.lib.mlir import ir
from jax.experimental.mosaic.gpu import tcgen05


class SparseM64Test(test_util.TestCase):

  def test_message(self):
    f16 = ir.F16Type.get()
    with ir.InsertionPoint(ir.Module.create().body):
      with self.assertRaisesWithLiteralMatch(
          NotImplementedError,
          "Sparse MMA not supported for M=64: the layout of its metadata is"
          " not documented in text. Use M=128, with padding if need be.",
      ):
        tcgen05.mma(
            test_util.tmem_ref((64, 64), ir.F32Type.get()),
            test_util.smem_ref((8, 1, 8, 64), f16),
            test_util.smem_ref((16, 1, 8, 64), f16),
            a_sparse_metadata=test_util.tmem_ref(
                (128, 64), ir.IntegerType.get_signless(2),
                tcgen05.sparse_meta_layout(),
            ),
        )


if __name__ == "__main__":
  absltest.main()
