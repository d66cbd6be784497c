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
"""The kernel for any size, without and with block scales."""

import common
import jax
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu import sparsity
from jax.experimental.mosaic.gpu.examples import sparse_matmul_blackwell
import jax.numpy as jnp
import numpy as np

sparse_matmul = sparse_matmul_blackwell.sparse_matmul
CONFIG = sparse_matmul_blackwell.TuningConfig(
    tile_m=128, tile_n=64, tile_k=128, max_concurrent_steps=2, collective=True
)
E4M3, E8M0 = jnp.float8_e4m3fn, jnp.float8_e8m0fnu


def matmul(values, positions, b):
  return sparse_matmul(values, positions, b, CONFIG, out_dtype=jnp.float32)


def scaled_problem(m, n, k):
  """mxfp8, with a scale for every 64 elements along K."""
  rng = np.random.default_rng(0)
  a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
  stay = rng.random((m, k // 4, 4)).argsort(axis=-1) < 2
  a = np.where(stay.reshape(m, k), a, 0)
  a_scales = 2.0 ** rng.integers(-2, 3, (m, k // 64))
  b_scales = 2.0 ** rng.integers(-2, 3, (k // 64, n))
  expected = (a * a_scales.repeat(64, axis=1)) @ (
      b * b_scales.repeat(64, axis=0)
  )
  args = sparsity.compress(jnp.asarray(a, E4M3)) + (jnp.asarray(b, E4M3),)
  scales = dict(
      a_scales=jnp.asarray(a_scales, E8M0), b_scales=jnp.asarray(b_scales, E8M0)
  )
  return args, scales, expected


def run_scaled(m, n, k):
  args, scales, expected = scaled_problem(m, n, k)
  for order in ("lazy", "eager"):
    with simulator.simulate(
        order=order, num_sms=2, check_races=True
    ) as simulation:
      result = jax.jit(sparse_matmul, static_argnames="out_dtype")(
          *args, **scales, out_dtype=jnp.float32
      )
    np.testing.assert_array_equal(np.asarray(result), expected)
  return simulation.runs[0].report


if __name__ == "__main__":
  print(common.summary(common.run(matmul, m=512, n=256, k=256)))
  print("mxfp8")
  print(common.summary(run_scaled(m=256, n=128, k=256)))
