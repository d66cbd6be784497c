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
"""Tests of running kernels through JAX's functions."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax._src.lib.mlir.dialects import gpu
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import simulator
import jax.numpy as jnp
import numpy as np


def _as_gpu_kernel(*args, **kwargs):
  with mlir.make_ir_context(), ir.Location.unknown():
    return mgpu.as_gpu_kernel(*args, **kwargs)


def _add_kernel(shape=(128, 64), dtype=jnp.float32):
  """Adds two arrays."""

  def body(ctx, x, y, out, scratch):
    del ctx, scratch
    load = lambda ref: mgpu.FragmentedArray.load_strided(ref)
    (load(x) + load(y)).store_untiled(out)

  ty = jax.ShapeDtypeStruct(shape, dtype)
  return _as_gpu_kernel(
      body, (1, 1, 1), (128, 1, 1), (ty, ty), ty, smem_scratch_shape=()
  )


def _copy_kernel(shape, dtype, grid=(1, 1, 1)):
  """Copies an array, a row block in each CTA, through shared memory."""
  rows = shape[0] // grid[0]

  def body(ctx, src, dst, scratch):
    tile, barrier = scratch
    block = gpu.block_id(gpu.Dimension.x)
    first = arith.muli(block, arith.constant(ir.IndexType.get(), rows))
    at = (mgpu.ds(first, rows),)
    ctx.async_copy(
        src_ref=src, dst_ref=tile, gmem_slice=at, barrier=barrier
    )
    barrier.wait()
    ctx.async_copy(src_ref=tile, dst_ref=dst, gmem_slice=at)
    ctx.await_async_copy(0)

  ty = jax.ShapeDtypeStruct(shape, dtype)
  tile = jax.ShapeDtypeStruct((rows, *shape[1:]), dtype)
  return _as_gpu_kernel(
      body, grid, (128, 1, 1), ty, ty, [tile, mgpu.Barrier(1)]
  )


def _random(shape, dtype, seed=0):
  rng = np.random.default_rng(seed)
  return rng.integers(-3, 4, shape).astype(np.int8).astype(dtype)


class ApiTest(parameterized.TestCase):

  def test_numpy_and_jax_arrays(self):
    x, y = _random((128, 64), np.float32, 0), _random((128, 64), np.float32, 1)
    with simulator.simulate() as simulation:
      kernel = _add_kernel()
      np.testing.assert_array_equal(kernel(x, y), x + y)
      result = kernel(jnp.asarray(x), jnp.asarray(y))
      self.assertIsInstance(result, jax.Array)
      np.testing.assert_array_equal(result, x + y)
    self.assertLen(simulation.runs, 2)

  def test_under_jit(self):
    x, y = _random((128, 64), np.float32, 0), _random((128, 64), np.float32, 1)
    with simulator.simulate():
      kernel = _add_kernel()

      @jax.jit
      def f(x, y):
        return kernel(kernel(x, y) * 2, y) - 1

      np.testing.assert_array_equal(f(x, y), (x + y) * 2 + y - 1)

  @parameterized.parameters(
      jnp.float32, jnp.bfloat16, jnp.float8_e5m2, jnp.int8, jnp.uint2,
      jnp.int4, jnp.float4_e2m1fn,
  )
  def test_dtypes(self, dtype):
    x = _random((64, 128), np.float32)
    if jnp.dtype(dtype).name.startswith("uint"):
      x = np.abs(x)
    x = jnp.asarray(x.astype(dtype))
    with simulator.simulate():
      result = _copy_kernel(x.shape, dtype)(x)
    self.assertEqual(result.dtype, dtype)
    np.testing.assert_array_equal(
        np.asarray(result).astype(np.float32), np.asarray(x).astype(np.float32)
    )

  def test_grid(self):
    x = _random((512, 32), np.float32)
    with simulator.simulate() as simulation:
      result = _copy_kernel(x.shape, jnp.float32, grid=(8, 1, 1))(x)
    np.testing.assert_array_equal(result, x)
    self.assertEqual(simulation.runs[0].statistics.load_bytes, x.nbytes)
    self.assertEqual(simulation.runs[0].statistics.store_bytes, x.nbytes)

  def test_wrong_arguments(self):
    with simulator.simulate():
      kernel = _add_kernel()
      x = np.ones((128, 64), np.float32)
      with self.assertRaisesRegex(ValueError, "Argument shape mismatch"):
        kernel(x, x[:64])
      with self.assertRaisesRegex(ValueError, "Argument dtype mismatch"):
        kernel(x, x.astype(np.int32))

  def test_without_simulation(self):
    x = np.ones((128, 64), np.float32)
    kernel = _add_kernel()
    with self.assertRaisesRegex(
        NotImplementedError,
        r"inside of jax.experimental.mosaic.gpu.simulator.simulate\(\)",
    ):
      kernel(x, x)

  def test_kernel_from_outside(self):
    # It was traced for the architecture that Mosaic GPU assumes on a CPU.
    kernel = _add_kernel()
    x = np.ones((128, 64), np.float32)
    with self.assertRaisesRegex(
        ValueError, "was traced for compute capability 9.0"
    ):
      with simulator.simulate():
        kernel(x, x)

  def test_called_after_the_simulation(self):
    x = np.ones((128, 64), np.float32)
    with simulator.simulate():
      kernel = _add_kernel()
      kernel(x, x)
    with self.assertRaisesRegex(Exception, "none is active"):
      jax.block_until_ready(kernel(x, x))

  def test_errors_reach_the_caller(self):
    def body(ctx, out, barrier):
      del ctx, out
      barrier.wait()  # Nothing arrives.

    ty = jax.ShapeDtypeStruct((128,), jnp.float32)
    for wait in (True, False):
      with self.assertRaisesRegex(simulator.SimulationError, "mbarrier"):
        with simulator.simulate():
          kernel = _as_gpu_kernel(
              body, (1, 1, 1), (128, 1, 1), (), ty, mgpu.Barrier(1)
          )
          result = kernel()
          if wait:
            jax.block_until_ready(result)

  def test_inout(self):
    def body(ctx, x, y, scratch):
      del ctx, scratch
      load = mgpu.FragmentedArray.load_strided
      (load(x) + load(y)).store_untiled(y)

    ty = jax.ShapeDtypeStruct((128,), jnp.float32)
    x, y = _random((128,), np.float32, 0), _random((128,), np.float32, 1)
    with simulator.simulate():
      kernel = _as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), (ty,), (), (), inout_shape=(ty,)
      )
      result = kernel(x, y)
    np.testing.assert_array_equal(jax.tree.leaves(result)[0], x + y)


if __name__ == "__main__":
  absltest.main()
