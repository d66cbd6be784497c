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
from jax.experimental.mosaic.gpu import sparsity
from jax.experimental.mosaic.gpu.examples import sparse_mma_tiles_blackwell
import numpy as np

example = sparse_mma_tiles_blackwell


class SparseMatmulTest(parameterized.TestCase):

  @parameterized.parameters(*example.PROBLEMS)
  def test_kernel(self, p):
    rng = np.random.default_rng(2)
    random = lambda shape: rng.integers(-8, 9, shape).astype(p.dtype)
    a, b = np.asarray(sparsity.prune(random((p.m, p.k)))), random((p.k, p.n))
    values, positions = sparsity.compress(a)
    metadata = plgpu.format_tcgen05_sparse_metadata(positions, p.dtype)
    # The kernel is made for the device that it runs on.
    call = lambda *args: example.make_kernel(p)(*args)
    result = test_util.run(call, values, metadata, b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    # All sums are integers that float32 holds exactly.
    np.testing.assert_array_equal(result.astype(np.float64), expected)


if __name__ == "__main__":
  absltest.main()
