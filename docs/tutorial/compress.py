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
"""What 2:4 sparsity stores."""

from jax.experimental.mosaic.gpu import sparsity
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

if __name__ == "__main__":
  a = jnp.array([[3, -1, 0, 4, 1, 0, 2, -5]], jnp.float16)
  values, positions = sparsity.compress(a)
  print("pruned", sparsity.prune(a))
  print("values", values)
  print("positions", positions.astype(int).tolist())
  np.testing.assert_array_equal(
      sparsity.decompress(values, positions), sparsity.prune(a)
  )

  a = np.random.default_rng(0).normal(size=(256, 128))
  values, positions = sparsity.compress(jnp.asarray(a, jnp.float16))
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, values.dtype)
  for name, array in (
      ("values", values), ("positions", positions), ("metadata", metadata)
  ):
    print(name, array.shape, array.dtype)
