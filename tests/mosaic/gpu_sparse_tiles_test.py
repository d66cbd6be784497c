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
"""Tests of 2:4-sparse tcgen05.mma calls that cover several M and N tiles."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp

Matmul = test_util.Matmul

_MATMULS = (
    # One tile, as before.
    Matmul(128, 128, 256),
    Matmul(128, 256, 128, a_swizzle=64),
    # Several M tiles.
    Matmul(256, 128, 256),
    Matmul(256, 240, 128, b_swizzle=32),
    Matmul(384, 160, 128, b_swizzle=64),
    Matmul(512, 112, 128, b_swizzle=32),
    Matmul(512, 96, 256, b_swizzle=64),
    Matmul(256, 64, 384, jnp.bfloat16),
    Matmul(256, 128, 128, a_k_major=False),
    Matmul(256, 80, 256, b_k_major=True),
    Matmul(256, 64, 256, b_k_major=True, a_k_major=False, a_swizzle=64),
    Matmul(256, 64, 128, a_swizzle=32, b_swizzle=64),
    Matmul(256, 128, 128, acc_dtype=jnp.float16),
    # Several N tiles.
    Matmul(128, 384, 128),
    Matmul(128, 272, 128, b_swizzle=32),
    Matmul(128, 496, 128, b_k_major=True),
    Matmul(128, 320, 256, a_k_major=False, a_swizzle=64),
    # Eight bits.
    Matmul(256, 128, 256, jnp.float8_e4m3fn),
    Matmul(256, 64, 256, (jnp.float8_e5m2, jnp.float8_e4m3fn), b_swizzle=64),
    Matmul(128, 384, 256, jnp.float8_e5m2),
    Matmul(256, 128, 256, jnp.float8_e4m3fn, acc_dtype=jnp.float16),
    Matmul(256, 128, 256, jnp.int8, acc_dtype=jnp.int32),
    Matmul(128, 384, 128, jnp.int8, acc_dtype=jnp.int32, a_swizzle=64,
           b_k_major=True),
    Matmul(384, 64, 256, jnp.int8, acc_dtype=jnp.int32, b_swizzle=64,
           a_k_major=False),
)


class SparseTilesTest(test_util.TestCase):

  @parameterized.parameters(*_MATMULS)
  def test_numbers(self, matmul):
    matmul.check(self)

  @parameterized.parameters(*_MATMULS)
  def test_instructions(self, matmul):
    matmul.check_instructions(self)

  def call(self, m, n, k, *, metadata_layout=None, b_k_major=False):
    """Emits a call whose operands are just types."""
    f16 = ir.F16Type.get()
    i2 = ir.IntegerType.get_signless(2)
    with ir.InsertionPoint(ir.Module.create().body):
      b = test_util.smem_ref((n // 8, k // 16, 8, 16), f16)
      tcgen05.mma(
          test_util.tmem_ref((m, n), ir.F32Type.get()),
          test_util.smem_ref((m // 8, k // 2 // 16, 8, 16), f16),
          mgpu.memref_transpose(b, (1, 0, 3, 2))
          if b_k_major
          else test_util.smem_ref((k // 8, n // 16, 8, 16), f16),
          a_swizzle=32,
          b_swizzle=32,
          a_sparse_metadata=test_util.tmem_ref(
              (m, k // 2), i2, metadata_layout or tcgen05.sparse_meta_layout()
          ),
      )

  def test_layout_of_metadata(self):
    with self.assertRaisesRegex(
        ValueError,
        "A sparse metadata layout mismatch: expected sparse_meta_layout(), got"
        .replace("(", r"\(").replace(")", r"\)"),
    ):
      self.call(
          256, 64, 128, metadata_layout=tcgen05.tmem_default_layout(16)
      )

  @parameterized.parameters(
      # One step of N above what fits.
      (128, 512, 128, "516", "D: 512, A sparse metadata: 4"),
      (256, 256, 128, "520", "D: 512, A sparse metadata: 8"),
      (384, 176, 128, "540", "D: 528, A sparse metadata: 12"),
      (512, 128, 128, "528", "D: 512, A sparse metadata: 16"),
  )
  def test_too_many_columns(self, m, n, k, total, operands):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        f"MMA operands take {total} TMEM columns ({operands}), but only 512 are"
        " available. Use a smaller M, N or K in each call",
    ):
      self.call(m, n, k)

  def test_wrong_k(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "K must be a multiple of 64, got: 96"
    ):
      self.call(256, 64, 96)

  def test_wrong_n(self):
    with self.assertRaisesWithLiteralMatch(
        NotImplementedError,
        "N must be a multiple of 16 for sparse MMA, but got N=24",
    ):
      with ir.InsertionPoint(ir.Module.create().body):
        f16 = ir.F16Type.get()
        b = test_util.smem_ref((3, 8, 8, 16), f16)
        tcgen05.mma(
            test_util.tmem_ref((256, 24), ir.F32Type.get()),
            test_util.smem_ref((32, 4, 8, 16), f16),
            mgpu.memref_transpose(b, (1, 0, 3, 2)),
            a_swizzle=32,
            b_swizzle=32,
            a_sparse_metadata=test_util.tmem_ref(
                (256, 64), ir.IntegerType.get_signless(2),
                tcgen05.sparse_meta_layout(),
            ),
        )

  def test_b_tiling_is_too_small(self):
    with self.assertRaisesWithLiteralMatch(
        NotImplementedError,
        "B tiling too small. Increase swizzle or transpose the input.",
    ):
      self.call(256, 64, 128, b_k_major=True)

  def test_metadata_slices(self):
    i2 = ir.IntegerType.get_signless(2)
    with ir.InsertionPoint(ir.Module.create().body):
      metadata = test_util.tmem_ref(
          (256, 128), i2, tcgen05.sparse_meta_layout()
      )
      tile = metadata.slice(mgpu.ds(128, 128), mgpu.ds(32, 64))
      self.assertEqual(tile.shape, (128, 64))
      with self.assertRaisesWithLiteralMatch(
          ValueError,
          "Sparse metadata can only be sliced at (known) multiples of 32"
          " entries, but the slice begins at 16: the MMA reads pairs of TMEM"
          " columns, of which the first is even.",
      ):
        metadata.slice(mgpu.ds(0, 128), mgpu.ds(16, 64))
      start = arith.constant(ir.IntegerType.get_signless(32), 16)
      start = arith.addi(start, start)
      with self.assertRaisesRegex(ValueError, "begins at a dynamic entry"):
        metadata.slice(mgpu.ds(0, 128), mgpu.ds(start, 64))

  def test_copy_of_wrong_shape(self):
    i2 = ir.IntegerType.get_signless(2)
    with ir.InsertionPoint(ir.Module.create().body):
      metadata = test_util.tmem_ref(
          (256, 128), i2, tcgen05.sparse_meta_layout()
      )
      with self.assertRaisesWithLiteralMatch(
          NotImplementedError,
          "SMEM has (1, 2, 128, 64), but expected (2, 2, 128, 64) for"
          " TMEM ref shape (256, 128)",
      ):
        tcgen05.async_copy_sparse_metadata_smem_to_tmem(
            test_util.smem_ref((1, 2, 128, 64), i2), metadata
        )
      narrow = test_util.tmem_ref((256, 96), i2, tcgen05.sparse_meta_layout())
      with self.assertRaisesWithLiteralMatch(
          ValueError,
          "TMEM reference must have a multiple of 64 colums, but got 96",
      ):
        tcgen05.async_copy_sparse_metadata_smem_to_tmem(
            test_util.smem_ref((2, 1, 128, 96), i2), narrow
        )


if __name__ == "__main__":
  absltest.main()
