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
"""Tests of the sparse matmul example."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax.experimental.pallas.mosaic_gpu as plgpu
from jax.experimental.mosaic.gpu.examples import sparse_mma_tiles_blackwell
import jax.numpy as jnp
import numpy as np

example = sparse_mma_tiles_blackwell


def _prune_slowly(a: np.ndarray) -> np.ndarray:
  """Keeps the larger two of every four, the later one of equals."""
  pruned = np.zeros_like(a)
  for row in range(a.shape[0]):
    for first in range(0, a.shape[1], 4):
      group = range(first, first + 4)
      kept = sorted(group, key=lambda i: (abs(float(a[row, i])), i))[2:]
      for i in kept:
        pruned[row, i] = a[row, i]
  return pruned


def _decompress_slowly(values: np.ndarray, positions: np.ndarray):
  m, k = values.shape[0], values.shape[1] * 2
  dense = np.zeros((m, k), values.dtype)
  for row in range(m):
    for i in range(values.shape[1]):
      position = int(positions[row, i // 2, i % 2])
      dense[row, i // 2 * 4 + position] = values[row, i]
  return dense


class SparseMatmulTest(parameterized.TestCase):

  @parameterized.parameters(np.float32, jnp.bfloat16, jnp.int8)
  def test_prune(self, dtype):
    rng = np.random.default_rng(0)
    # Few values, so that there are equals.
    a = rng.integers(-4, 5, (16, 64)).astype(dtype)
    np.testing.assert_array_equal(example.prune(a), _prune_slowly(a))

  def test_prune_the_smallest_integer(self):
    a = np.array([[-128, 127, 3, -5]], np.int8)
    self.assertEqual(example.prune(a).tolist(), [[-128, 127, 0, 0]])

  def test_compress(self):
    rng = np.random.default_rng(1)
    # Some groups have fewer than two nonzeros, or none at all.
    a = example.prune(rng.integers(-2, 3, (32, 128)).astype(np.float32))
    values, positions = example.compress(a)
    self.assertEqual(values.shape, (32, 64))
    self.assertEqual(positions.shape, (32, 32, 2))
    self.assertEqual(positions.dtype, jnp.uint2)
    first, second = positions[..., 0], positions[..., 1]
    self.assertTrue((first.astype(int) < second.astype(int)).all())
    np.testing.assert_array_equal(_decompress_slowly(values, positions), a)

  def test_errors(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected K to be a multiple of 4, got 6"
    ):
      example.prune(np.ones((2, 6)))
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected at most two nonzeros in every four elements of a row",
    ):
      example.compress(np.ones((2, 8)))

  @parameterized.parameters(*example.PROBLEMS)
  def test_kernel(self, p):
    rng = np.random.default_rng(2)
    random = lambda shape: rng.integers(-8, 9, shape).astype(p.dtype)
    a, b = example.prune(random((p.m, p.k))), random((p.k, p.n))
    values, positions = example.compress(a)
    metadata = plgpu.format_tcgen05_sparse_metadata(
        jnp.asarray(positions), p.dtype
    )
    # The kernel is made for the device that it runs on.
    call = lambda *args: example.make_kernel(p)(*args)
    result = test_util.run(call, values, metadata, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    # All sums are integers that float32 holds exactly.
    np.testing.assert_array_equal(result.astype(np.float64), expected)


if __name__ == "__main__":
  absltest.main()
