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
"""Tests of pruning and compression, against loops over the elements."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.experimental.mosaic.gpu import sparsity
import jax.numpy as jnp
import numpy as np

_DTYPES = (
    jnp.float32, jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2,
    jnp.int8, jnp.float4_e2m1fn,
)


def _group(dtype) -> tuple[int, int, int]:
  """Units of a group, kept ones, and the elements of a unit."""
  if dtype == jnp.float32:
    return 2, 1, 1
  return 4, 2, 2 if dtype == jnp.float4_e2m1fn else 1


def _random(rng, shape, dtype):
  if dtype == jnp.float4_e2m1fn:
    return rng.integers(0, 16, shape).astype(np.uint8).view(dtype)
  return rng.integers(-6, 7, shape).astype(dtype)


def _slow_positions(a: np.ndarray) -> np.ndarray:
  units, num_kept, width = _group(a.dtype)
  m, k = a.shape
  result = np.zeros((m, k // (units * width), 2), np.uint8)
  for row in range(m):
    for group in range(result.shape[1]):
      first = group * units * width
      sizes = []
      for unit in range(units):
        at = first + unit * width
        elements = a[row, at : at + width].astype(np.float64)
        sizes.append((-np.abs(elements).sum(), unit))
      kept = sorted(unit for _, unit in sorted(sizes)[:num_kept])
      # The unit of float32 is two positions.
      result[row, group] = (
          kept if num_kept == 2 else [(0, 1), (2, 3)][kept[0]]
      )
  return result


def _slow_decompress(values: np.ndarray, positions: np.ndarray) -> np.ndarray:
  units, num_kept, width = _group(values.dtype)
  m, stored = values.shape
  dense = np.zeros((m, stored * 2), values.dtype)
  for row in range(m):
    for i in range(stored):
      entry, within = divmod(i, width)
      group, which = divmod(entry, num_kept)
      unit = int(positions[row, group, which]) * units // 4
      dense[row, (group * units + unit) * width + within] = values[row, i]
  return dense


class SparsityTest(parameterized.TestCase):

  @parameterized.product(dtype=_DTYPES, jit=(False, True))
  def test_round_trip(self, dtype, jit):
    a = _random(np.random.default_rng(0), (8, 64), dtype)
    f = jax.jit if jit else lambda f: f
    positions = _slow_positions(a)
    np.testing.assert_array_equal(f(sparsity.kept_positions)(a), positions)
    values, entries = f(sparsity.compress)(a)
    self.assertEqual(values.dtype, dtype)
    self.assertEqual(values.shape, (8, 32))
    self.assertEqual(entries.dtype, jnp.uint2)
    np.testing.assert_array_equal(np.asarray(entries).astype(int), positions)
    expected = _slow_decompress(np.asarray(values), positions)
    pruned = np.asarray(f(sparsity.prune)(a))
    np.testing.assert_array_equal(
        pruned.astype(np.float32), expected.astype(np.float32)
    )
    dense = np.asarray(f(sparsity.decompress)(values, entries))
    self.assertEqual(dense.dtype, dtype)
    np.testing.assert_array_equal(
        dense.astype(np.float32), expected.astype(np.float32)
    )

  @parameterized.parameters(jnp.float16, jnp.float32)
  def test_what_is_kept_is_large(self, dtype):
    units, num_kept, _ = _group(dtype)
    a = np.random.default_rng(1).normal(size=(16, 128)).astype(dtype)
    pruned = np.asarray(sparsity.prune(a)).reshape(16, -1, units)
    groups = np.abs(a.reshape(16, -1, units))
    dropped = np.where(pruned == 0, groups, 0).max(-1)
    kept = np.where(pruned != 0, groups, np.inf).min(-1)
    self.assertTrue((dropped <= kept).all())
    self.assertTrue(((pruned != 0).sum(-1) == num_kept).all())

  @parameterized.parameters(
      ([3, np.nan, 5, 4], [1, 2]),
      ([np.inf, -np.inf, np.nan, 1], [0, 2]),
      ([np.inf, -np.nan, np.nan, np.inf], [1, 2]),
      ([1, np.inf, 2, -np.inf], [1, 3]),
  )
  def test_nan_is_not_dropped(self, group, expected):
    for dtype in (jnp.float16, jnp.bfloat16):
      a = np.array([group], dtype)
      self.assertEqual(sparsity.kept_positions(a).tolist(), [[expected]])

  def test_nan_of_float32_is_not_dropped(self):
    a = np.array([[np.inf, np.nan, np.nan, -np.inf]], np.float32)
    self.assertEqual(sparsity.kept_positions(a).tolist(), [[[2, 3], [0, 1]]])

  def test_smallest_integer(self):
    # Its positive counterpart is no int8.
    a = np.array([[-128, 127, 3, -5]], np.int8)
    self.assertEqual(sparsity.prune(a).tolist(), [[-128, 127, 0, 0]])

  def test_given_positions(self):
    a = np.arange(8, dtype=np.float16)[None] + 1
    positions = jnp.asarray([[[0, 3], [1, 2]]], jnp.uint8)
    values, _ = sparsity.compress(a, positions)
    self.assertEqual(values.tolist(), [[1, 4, 6, 7]])

  def test_given_positions_of_float32(self):
    a = np.arange(4, dtype=np.float32)[None] + 1
    positions = jnp.asarray([[[2, 3], [0, 1]]], jnp.uint2)
    values, _ = sparsity.compress(a, positions)
    self.assertEqual(values.tolist(), [[2, 3]])

  def test_types_without_a_sparse_mma(self):
    with jax.enable_x64(True):
      for dtype in (jnp.float64, jnp.int64, jnp.int32):
        # Equal in float32.
        a = jnp.asarray([[2**24, 2**24 + 1, 0, 0]], dtype)
        positions = jnp.zeros((1, 1, 2), jnp.uint8)
        for call in (
            lambda: sparsity.kept_positions(a),
            lambda: sparsity.prune(a),
            lambda: sparsity.compress(a),
            lambda: sparsity.compress(a, positions),
            lambda: sparsity.decompress(a, positions),
        ):
          with self.assertRaisesWithLiteralMatch(
              ValueError,
              f"No sparse MMA takes {jnp.dtype(dtype)}. Cast it to another"
              " type",
          ):
            call()

  @parameterized.parameters(jnp.bfloat16, jnp.float32)
  def test_gradients(self, dtype):
    rng = np.random.default_rng(2)
    a = rng.normal(size=(4, 16)).astype(dtype)
    weights = rng.normal(size=(4, 16)).astype(dtype)
    mask = (np.asarray(sparsity.prune(a)) != 0).astype(dtype)
    for f in (
        lambda a: sparsity.prune(a),
        lambda a: sparsity.decompress(*sparsity.compress(a)),
    ):
      gradient = jax.grad(lambda a: (f(a) * weights).sum())(a)
      np.testing.assert_array_equal(gradient, weights * mask)

  def test_errors(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a matrix of type float16 to have a multiple of 4 columns, got"
        " shape (2, 6). Pad it with zeros",
    ):
      sparsity.prune(jnp.ones((2, 6), jnp.float16))
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a matrix of type float32 to have a multiple of 2 columns, got"
        " shape (2, 5). Pad it with zeros",
    ):
      sparsity.prune(jnp.ones((2, 5)))
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a matrix of type float4_e2m1fn to have a multiple of 8"
        " columns, got shape (2, 4). Pad it with zeros",
    ):
      sparsity.compress(jnp.ones((2, 4), jnp.float4_e2m1fn))
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected a matrix of two dimensions, got shape (8,)"
    ):
      sparsity.prune(jnp.ones(8))
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected positions of shape (2, 16, 2) for values of shape (2, 16) and"
        " type float32, got (2, 3, 2)",
    ):
      sparsity.decompress(jnp.ones((2, 16)), jnp.ones((2, 3, 2)))
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected positions of shape (2, 8, 2) for a matrix of shape (2, 16) and"
        " type float32, got (2, 16)",
    ):
      sparsity.compress(jnp.ones((2, 16)), jnp.ones((2, 16)))


if __name__ == "__main__":
  absltest.main()
