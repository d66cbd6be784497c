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
"""Tests of format_tcgen05_sparse_metadata."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np


class PallasSparseMetadataFormatTest(parameterized.TestCase):

  @parameterized.product(
      dtype=(
          jnp.float4_e2m1fn, jnp.float8_e4m3fn, jnp.int8, jnp.float16,
          jnp.bfloat16, jnp.float32,
      ),
      shape=((128, 32), (256, 96)),
  )
  def test_layout(self, dtype, shape):
    rng = np.random.default_rng(0)
    positions = rng.integers(0, 4, (*shape, 2)).astype(np.uint8)
    result = plgpu.format_tcgen05_sparse_metadata(
        positions.astype(jnp.uint2), dtype
    )
    # tf32 is laid out like the 16-bit types, 4-bit types like 8-bit ones.
    bits = 16 if dtype in (jnp.float16, jnp.bfloat16, jnp.float32) else 8
    expected = test_util.format_metadata(positions, bits)
    self.assertEqual(result.dtype, jnp.uint2)
    np.testing.assert_array_equal(
        result.astype(np.uint8), expected.astype(np.uint8)
    )

  @parameterized.parameters(64, 192)
  def test_part_of_a_row_tile(self, m):
    with self.assertRaisesWithLiteralMatch(
        ValueError, f"Expected metadata of a multiple of 128 rows (M), got: {m}"
    ):
      plgpu.format_tcgen05_sparse_metadata(
          np.zeros((m, 32, 2), jnp.uint2), jnp.float16
      )

  @parameterized.parameters(
      (jnp.float16, 128), (jnp.int8, 128), (jnp.float4_e2m1fn, 256),
      (jnp.float32, 64),
  )
  def test_part_of_a_tile_along_k(self, dtype, elems):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected metadata of a multiple of 64 entries in a row, which describe"
        f" {elems} elements of A along K, got: 96 entries",
    ):
      plgpu.format_tcgen05_sparse_metadata(
          np.zeros((128, 48, 2), jnp.uint2), dtype
      )

  @parameterized.parameters(
      (jnp.float16, 4), (jnp.int8, 4), (jnp.float4_e2m1fn, 8), (jnp.float32, 2)
  )
  def test_dimensions(self, dtype, elems):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected metadata to be 3-dimensional (M, groups, 2), a group being"
        f" {elems} elements of A along K, but it is 2D",
    ):
      plgpu.format_tcgen05_sparse_metadata(
          np.zeros((128, 64), jnp.uint2), dtype
      )

  @parameterized.parameters((128, 32), (64, 32), (128, 48))
  def test_unsupported_type(self, *shape):
    with self.assertRaisesRegex(NotImplementedError, "for operand_dtype=.*64"):
      plgpu.format_tcgen05_sparse_metadata(
          np.zeros((*shape, 2), jnp.uint2), jnp.float64
      )


if __name__ == "__main__":
  absltest.main()
