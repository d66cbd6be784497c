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
"""JAX's own Blackwell kernels on the simulator, unmodified.

Nobody who wrote the simulator wrote them: they are what it is calibrated on.
The operands are small integers, so that the accumulators are exact, and the
results must equal NumPy's in float64 in every bit after the rounding to the
type of the result. Or they are normally distributed, and the results may differ
by a rounding.

By default a few combinations of the tuning parameters run. With
MOSAIC_GPU_TEST_ALL_SHIPPED=100 in the environment, a hundred of each kernel do,
drawn from the whole grid with a fixed seed; with MOSAIC_GPU_TEST_ALL_SHIPPED=0,
none.
"""

import itertools
import os
import random

import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax.experimental.pallas.ops.gpu import (
  blackwell_matmul_mgpu,
  blackwell_ragged_dot_mgpu,
)

from jax.experimental.mosaic.gpu import simulator

M, N = blackwell_matmul_mgpu.MatmulDimension
_CHOICE = os.environ.get("MOSAIC_GPU_TEST_ALL_SHIPPED", "")

_BASE = dict(
    dtype=jnp.float16, tile_m=128, tile_n=64, tile_k=64,
    max_concurrent_steps=2, collective=False, epilogue_tile_n=64,
    grid_minor_dim=N, grid_tile_width=1, num_sms=148, order="eager",
)


def _cases(few, **many):
  """The cases to run: dicts of what differs from the base."""
  if _CHOICE == "0":
    few = []
  elif _CHOICE:
    few = [
        dict(zip(many, values)) for values in itertools.product(*many.values())
    ]
    few = random.Random(0).sample(few, min(len(few), int(_CHOICE)))
  names = [
      "_".join(
          f"{key}_{getattr(value, 'name', getattr(value, '__name__', value))}"
          for key, value in case.items()
      )
      for case in few
  ]
  return [
      {**_BASE, **case, "testcase_name": f"_{i}_{name}"}
      for i, (name, case) in enumerate(zip(names, few))
  ]


def _operand(rng, shape, dtype, exact: bool) -> np.ndarray:
  values = rng.integers(-2, 3, shape) if exact else rng.standard_normal(shape)
  return values.astype(np.float32).astype(dtype)


class _TestCase(parameterized.TestCase):

  def check(self, result, expected: np.ndarray, dtype, exact: bool):
    """Compares a result with one in float64."""
    result = np.asarray(result)
    self.assertEqual(result.dtype, dtype)
    rounded = expected.astype(np.float32).astype(dtype).astype(np.float64)
    if exact:
      np.testing.assert_array_equal(result.astype(np.float64), rounded)
    else:
      epsilon = float(jnp.finfo(dtype).eps)
      np.testing.assert_allclose(
          result.astype(np.float64), expected, rtol=epsilon, atol=1e-3
      )


class MatmulTest(_TestCase):

  def run_on(self, shape, exact, *, dtype, num_sms, order, **config):
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = _operand(rng, (m, k), dtype, exact)
    b = _operand(rng, (k, n), dtype, exact)
    config = blackwell_matmul_mgpu.TuningConfig(**config)
    with simulator.simulate(num_sms=num_sms, order=order) as simulation:
      result = blackwell_matmul_mgpu.matmul_kernel(
          jnp.asarray(a), jnp.asarray(b), config
      )
    self.check(result, a.astype(np.float64) @ b.astype(np.float64), dtype,
               exact)
    return simulation.runs[0]

  @parameterized.named_parameters(_cases(
      [
          dict(),
          dict(collective=True),
          dict(dtype=jnp.bfloat16, tile_n=128, epilogue_tile_n=32),
          dict(dtype=jnp.bfloat16, collective=True, tile_k=128),
          dict(dtype=jnp.float8_e4m3fn, num_sms=4),
          dict(dtype=jnp.float8_e5m2, collective=True),
          dict(tile_n=256, epilogue_tile_n=128, order="lazy"),
          dict(num_sms=3, max_concurrent_steps=4, grid_minor_dim=M),
          dict(num_sms=2, tile_k=32, grid_tile_width=2, order="lazy"),
          dict(collective=True, tile_n=128, epilogue_tile_n=128,
               max_concurrent_steps=4, grid_minor_dim=M, order="lazy"),
      ],
      collective=(False, True),
      dtype=(jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2),
      tile_n=(64, 128, 256),
      tile_k=(64, 128),
      max_concurrent_steps=(2, 4),
      epilogue_tile_n=(32, 64),
      grid_minor_dim=(M, N),
      grid_tile_width=(1, 2),
      num_sms=(4, 148),
  ))
  def test_tuning(self, **config):
    bits = jnp.finfo(config["dtype"]).bits
    limits = [
        # JAX asserts that swizzle tiles divide fp8's N.
        bits == 8 and config["tile_k"] == 128,
        config["collective"] and config["tile_n"] == 256,
        # Shared memory.
        config["max_concurrent_steps"] * config["tile_k"] * bits // 8
        * (128 + config["tile_n"]) + 2 * 128 * config["epilogue_tile_n"]
        * bits // 8 > 230_000,
        # An upstream bug; see test_collective_with_few_sms.
        config["collective"] and config["num_sms"] < 8,
    ]
    if any(limits):
      self.skipTest("The kernel does not support this combination")
    shape = (512, 512, 256) if _CHOICE else (512, 256, 128)
    self.run_on(shape, True, **config)

  @parameterized.named_parameters(_cases(
      [dict(collective=True)],
      collective=(False, True), dtype=(jnp.float16, jnp.bfloat16),
  ))
  def test_normally_distributed(self, **config):
    self.run_on((256, 128, 512), False, **config)

  def test_report(self):
    if _CHOICE == "0":
      self.skipTest("Switched off by MOSAIC_GPU_TEST_ALL_SHIPPED=0")
    run = self.run_on((512, 256, 256), True, **{**_BASE, "collective": True})
    # A pair of CTAs multiplies 256 x 128 x 16 with one instruction.
    self.assertEqual(run.report.mma_count, 2 * 2 * 16)
    self.assertEqual(run.report.flops, 2 * 512 * 256 * 256)
    # Each CTA loads half of A and of B; no tile twice.
    self.assertEqual(
        run.report.load_bytes, 2 * 256 * (512 * 2 + 256 * 2)
    )

  def test_collective_with_few_sms(self):
    # An upstream bug that the simulator found: docs/upstream/cluster_axes.md.
    if _CHOICE == "0":
      self.skipTest("Switched off by MOSAIC_GPU_TEST_ALL_SHIPPED=0")
    with self.assertRaisesRegex(simulator.SimulationError, "tx -16"):
      self.run_on(
          (512, 256, 128), True, **{**_BASE, "collective": True, "num_sms": 4}
      )


class RaggedDotTest(_TestCase):

  def run_on(self, shape, sizes, exact, *, dtype, num_sms, order, **config):
    m, n, k = shape
    rng = np.random.default_rng(0)
    a = _operand(rng, (m, k), dtype, exact)
    b = _operand(rng, (len(sizes), k, n), dtype, exact)
    config = blackwell_ragged_dot_mgpu.TuningConfig(**config)
    with simulator.simulate(num_sms=num_sms, order=order):
      result = blackwell_ragged_dot_mgpu.ragged_dot_kernel(
          jnp.asarray(a), jnp.asarray(b), jnp.asarray(sizes, jnp.int32), config
      )
    ends = np.cumsum(sizes)
    expected = np.concatenate([
        a[end - size:end].astype(np.float64) @ group.astype(np.float64)
        for end, size, group in zip(ends, sizes, b)
    ])
    self.check(result, expected, dtype, exact)

  @parameterized.named_parameters(_cases(
      [
          dict(sizes=(100, 300, 112), num_sms=8),
          dict(sizes=(512,), dtype=jnp.bfloat16, num_sms=4,
               max_concurrent_steps=3),
          dict(sizes=(256, 256), dtype=jnp.float8_e4m3fn, num_sms=2,
               grid_minor_dim=M, grid_tile_width=2),
          dict(sizes=(0, 256, 0, 256), tile_n=128, epilogue_tile_n=32,
               num_sms=148),
      ],
      sizes=((512,), (256, 256), (0, 256, 0, 256), (100, 300, 112)),
      dtype=(jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn),
      tile_n=(64, 128),
      max_concurrent_steps=(2, 4),
      epilogue_tile_n=(32, 64),
      grid_minor_dim=(M, N),
      grid_tile_width=(1, 2),
      num_sms=(2, 8, 148),
  ))
  def test_tuning(self, sizes, **config):
    self.run_on((512, 256, 128), sizes, True, **{**config, "collective": True})

  def test_second_cta_is_overtaken(self):
    # An upstream bug that the simulator found:
    # docs/upstream/store_done_barrier.md.
    if _CHOICE == "0":
      self.skipTest("Switched off by MOSAIC_GPU_TEST_ALL_SHIPPED=0")
    config = {**_BASE, "collective": True, "num_sms": 2}
    with self.assertRaisesRegex(simulator.SimulationError, "Deadlock"):
      self.run_on((512, 256, 128), (511, 1), True, **config)

  def test_not_collective(self):
    # JAX's kernel asks for an axis that it only has in collective kernels.
    if _CHOICE == "0":
      self.skipTest("Switched off by MOSAIC_GPU_TEST_ALL_SHIPPED=0")
    with self.assertRaisesRegex(NameError, "unbound axis name: x"):
      self.run_on((512, 256, 128), (512,), True, **_BASE)


if __name__ == "__main__":
  absltest.main()
