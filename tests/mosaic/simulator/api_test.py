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

import contextlib
import os
import subprocess
import sys
import textwrap
import threading

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith, gpu, memref

import jax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu.simulator import errors, launch


def _as_gpu_kernel(*args, **kwargs):
  with mlir.make_ir_context(), ir.Location.unknown():
    return mgpu.as_gpu_kernel(*args, **kwargs)


def _add_kernel(shape=(128, 64), dtype=jnp.float32):
  """Adds two arrays."""

  def body(ctx, x, y, out, scratch):
    del ctx, scratch
    load = mgpu.FragmentedArray.load_strided
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


def _add_to_kernel(shape=(128, 64), dtype=jnp.float32):
  """Adds an array to another one, in place."""

  def body(ctx, x, y, scratch):
    del ctx, scratch
    load = mgpu.FragmentedArray.load_strided
    (load(x) + load(y)).store_untiled(y)

  ty = jax.ShapeDtypeStruct(shape, dtype)
  return _as_gpu_kernel(
      body, (1, 1, 1), (128, 1, 1), (ty,), (), (), inout_shape=(ty,)
  )


def _pallas_add(**kwargs):
  """Adds two arrays of shape (128, 64)."""

  def body(x, y, out):
    out[...] = x[...] + y[...]

  ty = jax.ShapeDtypeStruct((128, 64), jnp.float32)
  return plgpu.kernel(body, out_type=ty, **kwargs)


def _run_python(code: str, **variables: str) -> subprocess.CompletedProcess:
  return subprocess.run(
      [sys.executable, "-c", textwrap.dedent(code)],
      env=dict(os.environ, **variables), capture_output=True, text=True,
      check=False,
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

  def test_errors_of_a_function_that_was_called_before(self):
    def body(x, out, x_smem, barrier):
      plgpu.copy_gmem_to_smem(x, x_smem, barrier)
      out[...] = x_smem[...]  # Does not wait for the copy.

    x = _random((128,), np.float32)
    kernel = jax.jit(
        plgpu.kernel(
            body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
            scratch_types=[
                plgpu.SMEM(x.shape, x.dtype), plgpu.Barrier(),
            ],
        )
    )
    with simulator.simulate():
      for _ in range(2):
        np.testing.assert_array_equal(kernel(x), x)
    with self.assertRaisesRegex(simulator.SimulationError, "never written"):
      with simulator.simulate(order="lazy"):
        kernel(x)

  def test_a_run_has_a_report(self):
    x = _random((128, 64), np.float32)
    with simulator.simulate() as simulation:
      _pallas_add()(x, x)
    [run] = simulation.runs
    self.assertEqual(run.report.steps, run.result.steps)
    self.assertIn("instructions of threads", str(run.report))
    self.assertIs(run.statistics, run.report)

  def test_bad_num_sms(self):
    with self.assertRaisesRegex(ValueError, "num_sms of at least 1, got 0"):
      with simulator.simulate(num_sms=0):
        pass

  def test_bad_check_races(self):
    with self.assertRaisesRegex(ValueError, "True, False or 'lanes', got 'w'"):
      with simulator.simulate(check_races="w"):
        pass

  @parameterized.product(
      ordered=(True, False), check_races=(True, "lanes")
  )
  def test_lanes_race(self, ordered, check_races):
    """Neighbours exchange numbers through shared memory."""

    def body(ctx, x, out, smem):
      del ctx
      index = ir.IndexType.get()
      thread = gpu.thread_id(gpu.Dimension.x)
      memref.store(memref.load(x, [thread]), smem, [thread])
      if ordered:
        mgpu.utils.warp_barrier()
      other = arith.xori(thread, arith.constant(index, 1))
      memref.store(memref.load(smem, [other]), out, [thread])

    ty = jax.ShapeDtypeStruct((128,), jnp.int32)
    x = _random((128,), np.int32)
    # Only a checker of lanes can tell: the simulator executes them together.
    reported = not ordered and check_races == "lanes"
    with (
        self.assertRaisesRegex(errors.RaceError, "by lane . of the same warp")
        if reported
        else contextlib.nullcontext()
    ):
      with simulator.simulate(check_races=check_races):
        kernel = _as_gpu_kernel(body, (1, 1, 1), (128, 1, 1), ty, ty, ty)
        result = np.asarray(kernel(x))
      np.testing.assert_array_equal(result, x.reshape(-1, 2)[:, ::-1].ravel())

  def test_bad_order(self):
    x = np.ones((128, 64), np.float32)
    with self.assertRaisesRegex(ValueError, "order 'late'"):
      with simulator.simulate(order="late"):
        _pallas_add()(x, x)

  def test_core_count(self):
    device = jax.local_devices(backend="cpu")[0]
    self.assertFalse(hasattr(device, "core_count"))
    with simulator.simulate():
      self.assertEqual(device.core_count, 148)
      with simulator.simulate(num_sms=6):
        self.assertEqual(device.core_count, 6)
      self.assertEqual(device.core_count, 148)
    self.assertFalse(hasattr(device, "core_count"))

  def test_profiler_markers_do_no_harm(self):
    def body(x, y, out):
      with jax.named_scope("adds"):
        out[...] = x[...] + y[...]

    x = _random((128, 64), np.float32)
    with simulator.simulate():
      kernel = plgpu.kernel(
          body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype)
      )
      np.testing.assert_array_equal(kernel(x, x), 2 * x)


class TransformationsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.x = _random((128, 64), np.float32, 0)
    self.y = _random((128, 64), np.float32, 1)
    self.xs = np.stack([self.x, self.y, self.x + self.y])

  @parameterized.parameters(True, False)
  def test_vmap(self, jit):
    with simulator.simulate() as simulation:
      kernel = jax.vmap(_pallas_add(), in_axes=(0, None))
      result = (jax.jit(kernel) if jit else kernel)(self.xs, self.y)
    np.testing.assert_array_equal(result, self.xs + self.y)
    # JAX makes the batch a dimension of the grid.
    self.assertLen(simulation.runs, 1)

  def test_vmap_of_as_gpu_kernel(self):
    # JAX can't do it for a GPU either.
    with simulator.simulate():
      with self.assertRaisesRegex(NotImplementedError, "Batching rule for"):
        jax.vmap(_add_kernel())(self.xs, self.xs)

  def test_scan(self):
    with simulator.simulate() as simulation:
      kernel = _add_kernel()

      @jax.jit
      def cumulate(x, xs):
        def step(carry, x):
          carry = kernel(carry, x)
          return carry, carry.sum()

        return jax.lax.scan(step, x, xs)

      result, sums = cumulate(self.x, self.xs)
    np.testing.assert_array_equal(result, self.x + self.xs.sum(0))
    sums_by_numpy = (self.x + self.xs.cumsum(0)).sum((1, 2))
    np.testing.assert_array_equal(sums, sums_by_numpy)
    self.assertLen(simulation.runs, 3)

  def test_scan_over_vmap(self):
    with simulator.simulate() as simulation:
      kernel = jax.vmap(_pallas_add())
      result, _ = jax.lax.scan(
          lambda carry, x: (kernel(carry, x), None),
          self.xs, np.stack([self.xs, self.xs]),
      )
    np.testing.assert_array_equal(result, 3 * self.xs)
    self.assertLen(simulation.runs, 2)

  def test_control_flow(self):
    with simulator.simulate():
      kernel = _add_kernel()
      double = jax.jit(
          lambda x: jax.lax.while_loop(
              lambda x: x.max() < 100, lambda x: kernel(x, x), x
          )
      )
      np.testing.assert_array_equal(
          double(np.ones((128, 64), np.float32)), np.full((128, 64), 128)
      )
      maybe = jax.jit(
          lambda p, x: jax.lax.cond(p, lambda x: kernel(x, x), jnp.copy, x)
      )
      np.testing.assert_array_equal(maybe(True, self.x), 2 * self.x)
      np.testing.assert_array_equal(maybe(False, self.x), self.x)

  def test_gradients_by_custom_vjp(self):
    with simulator.simulate():
      kernel = _add_kernel()
      add = jax.custom_vjp(kernel)
      add.defvjp(lambda x, y: (kernel(x, y), None), lambda _, g: (g, g))
      gradient = jax.grad(lambda x: (add(x, self.y) ** 2).sum())(self.x)
    np.testing.assert_array_equal(gradient, 2 * (self.x + self.y))

  def test_checkpoint(self):
    with simulator.simulate():
      result = jax.jit(jax.checkpoint(_pallas_add()))(self.x, self.y)
    np.testing.assert_array_equal(result, self.x + self.y)

  def test_several_kernels_in_one_jit(self):
    with simulator.simulate() as simulation:
      first, second = _add_kernel(), _pallas_add()

      @jax.jit
      def many(x, y):
        return [first(x, second(x, y * i)) for i in range(4)]

      results = jax.block_until_ready(many(self.x, self.y))
    for i, result in enumerate(results):
      np.testing.assert_array_equal(result, 2 * self.x + i * self.y)
    self.assertLen(simulation.runs, 8)

  def test_block_until_ready(self):
    with simulator.simulate() as simulation:
      result = _add_kernel()(self.x, self.y)
      self.assertIs(jax.block_until_ready(result), result)
      self.assertLen(simulation.runs, 1)
      self.assertIs(result.block_until_ready(), result)
    np.testing.assert_array_equal(result, self.x + self.y)

  def test_dropped_result(self):
    with simulator.simulate() as simulation:
      _add_kernel()(self.x, self.y)
    self.assertLen(simulation.runs, 1)


class AliasTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.x = _random((128, 64), np.float32, 0)
    self.y = _random((128, 64), np.float32, 1)

  def test_inout(self):
    y = jnp.asarray(self.y)
    with simulator.simulate():
      [result] = jax.tree.leaves(_add_to_kernel()(self.x, y))
    np.testing.assert_array_equal(result, self.x + self.y)
    # Without a donation, the operand stays what it was.
    np.testing.assert_array_equal(y, self.y)

  def test_inout_of_numpy_arrays(self):
    y = self.y.copy()
    with simulator.simulate():
      [result] = jax.tree.leaves(_add_to_kernel()(self.x, y))
    np.testing.assert_array_equal(result, self.x + self.y)
    np.testing.assert_array_equal(y, self.y)

  def test_several_inouts_and_a_result(self):
    def body(ctx, x, y, z, out, scratch):
      del ctx, scratch
      load = mgpu.FragmentedArray.load_strided
      x, old_y, old_z = load(x), load(y), load(z)
      (x + old_y).store_untiled(y)
      (x + old_z).store_untiled(z)
      (old_y * old_z).store_untiled(out)

    ty = jax.ShapeDtypeStruct((128, 64), jnp.float32)
    x, y = self.x, self.y
    z = x * y - 1
    with simulator.simulate():
      kernel = _as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), (ty,), (ty,), (), inout_shape=(ty, ty)
      )
      out, *inouts = jax.tree.leaves(kernel(x, y, z))
    np.testing.assert_array_equal(out, y * z)
    np.testing.assert_array_equal(inouts[0], x + y)
    np.testing.assert_array_equal(inouts[1], x + z)

  def test_donation(self):
    x, y = jnp.asarray(self.x), jnp.asarray(self.y)
    with simulator.simulate():
      result = jax.jit(_add_kernel(), donate_argnums=0)(x, y)
    np.testing.assert_array_equal(result, self.x + self.y)
    self.assertTrue(x.is_deleted())
    self.assertFalse(y.is_deleted())

  def test_donation_of_an_inout(self):
    y = jnp.asarray(self.y)
    with simulator.simulate():
      kernel = jax.jit(_add_to_kernel(), donate_argnums=1)
      [result] = jax.tree.leaves(kernel(self.x, y))
    np.testing.assert_array_equal(result, self.x + self.y)
    self.assertTrue(y.is_deleted())

  def test_mutable_array(self):
    # plgpu.kernel makes it an alias of an operand and a result.
    def body(x, y):
      y[...] = x[...] + y[...]

    @jax.jit
    def twice(x, y):
      ref = jax.new_ref(y)
      plgpu.kernel(body)(x, ref)
      plgpu.kernel(body)(x, ref)
      return ref[...]

    with simulator.simulate() as simulation:
      result = twice(self.x, self.y)
    np.testing.assert_array_equal(result, 2 * self.x + self.y)
    self.assertEqual([r.program.aliases for r in simulation.runs],
                     [((1, 0),)] * 2)

  def test_semaphores(self):
    # Global scratch memory is an alias, too, and zero at the start.
    def body(x, out, semaphore):
      pl.semaphore_signal(semaphore)
      pl.semaphore_wait(semaphore)
      out[...] = x[...]

    ty = jax.ShapeDtypeStruct((128, 64), jnp.float32)
    with simulator.simulate() as simulation:
      kernel = plgpu.kernel(
          body, out_type=ty, scratch_types=[plgpu.SemaphoreType.REGULAR]
      )
      np.testing.assert_array_equal(kernel(self.x), self.x)
    self.assertEqual(simulation.runs[0].program.aliases, ((1, 1),))


class ThreadsTest(parameterized.TestCase):

  def _in_threads(self, function, count=4):
    """Runs function(i) in threads; raises the first error of one."""
    raised = []

    def run(i):
      try:
        function(i)
      except Exception as e:  # pylint: disable=broad-exception-caught
        raised.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    if raised:
      raise raised[0]

  def test_one_kernel(self):
    x, y = _random((128, 64), np.float32, 0), _random((128, 64), np.float32, 1)
    results = {}
    with simulator.simulate() as simulation:
      kernel = _add_kernel()

      def call(i):
        for j in range(3):
          results[i, j] = np.asarray(kernel(x * i, y * j))

      self._in_threads(call)
    self.assertLen(simulation.runs, 12)
    self.assertLen(results, 12)
    for (i, j), result in results.items():
      np.testing.assert_array_equal(result, x * i + y * j)

  def test_a_kernel_of_each_thread(self):
    x, y = _random((128, 64), np.float32, 0), _random((128, 64), np.float32, 1)
    results = {}
    with simulator.simulate():
      def call(i):
        results[i] = np.asarray(_pallas_add()(x * i, y))

      self._in_threads(call)
    for i in range(4):
      np.testing.assert_array_equal(results[i], x * i + y)

  def test_a_simulation_is_entered_by_one_thread(self):
    def call(i):
      del i
      with simulator.simulate():
        self.fail("entered")

    with simulator.simulate():
      with self.assertRaisesRegex(
          RuntimeError, "Another thread is inside of simulator.simulate"
      ):
        self._in_threads(call, 1)
      with simulator.simulate():  # The same thread may.
        pass
    with simulator.simulate():
      pass


class BadInputTest(parameterized.TestCase):

  def test_shape_of_a_pallas_kernel(self):
    x = np.ones((128, 64), np.float32)
    with simulator.simulate():
      with self.assertRaisesRegex(Exception, r"\(128, 64\).*\(64, 64\)"):
        _pallas_add()(x[:64], x[:64])

  def test_arguments_of_a_program(self):
    x = np.ones((128, 64), np.float32)
    with simulator.simulate() as simulation:
      _add_kernel()(x, x)
    program = simulation.runs[0].program
    with self.assertRaisesRegex(
        ValueError,
        "Expected 2 arguments, got 1. Pass an array for each operand",
    ):
      program.run([x])
    with self.assertRaisesRegex(
        ValueError,
        r"Expected argument 1 of shape \(128, 64\) and dtype float32, got"
        r" \(64, 64\) and float32. Convert the argument",
    ):
      program.run([x, x[:64]])
    with self.assertRaisesRegex(
        ValueError, r"argument 0 .* dtype float32, got \(128, 64\) and int32",
    ):
      program.run([x.astype(np.int32), x])

  def test_another_target(self):
    x = np.ones((128, 64), np.float32)
    with simulator.simulate() as simulation:
      _add_kernel()(x, x)
    program = simulation.runs[0].program
    kernel = type(program.kernel)(
        ptx=program.kernel.ptx.replace("sm_100a", "sm_90a"),
        host=program.kernel.host, ptxas="", sass=None,
    )
    program = launch.Program(kernel, program.in_types, program.out_types)
    with self.assertRaisesRegex(
        errors.UnsupportedPtxError,
        "PTX for sm_90a; expected sm_100a. Compile the kernel for that target",
    ):
      program.run([x, x])

  def test_shared_memory(self):
    x = np.ones((512, 256), np.float32)
    # JAX's own error.
    with self.assertRaisesRegex(
        ValueError,
        "exceeds available shared memory: smem_bytes=524296 >"
        " max_smem_bytes=232448",
    ):
      with simulator.simulate():
        _copy_kernel(x.shape, jnp.float32)(x)

  def test_tensor_memory(self):
    def body(out, *refs):
      del out, refs

    # JAX's own error.
    with self.assertRaisesRegex(
        ValueError, "got 1024 columns, exceeding the limit of 512"
    ):
      with simulator.simulate():
        plgpu.kernel(
            body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
            scratch_types=[
                plgpu.TMEM((128, columns), jnp.float32) for columns in (512, 32)
            ],
        )()

  def test_several_devices(self):
    result = _run_python("""
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.experimental import pallas as pl
        from jax.experimental.mosaic.gpu import simulator
        import jax.experimental.pallas.mosaic_gpu as plgpu

        mesh = jax.make_mesh(
            (2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)
        )
        spec = jax.sharding.PartitionSpec("x")
        x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)

        def on_both(body, **kwargs):
          ty = jax.ShapeDtypeStruct((64, 64), jnp.float32)
          return jax.jit(jax.shard_map(
              plgpu.kernel(body, out_type=ty, **kwargs), mesh=mesh,
              in_specs=spec, out_specs=spec, check_vma=False,
          ))

        def double(x, out):
          out[...] = 2 * x[...]

        def exchange(x, out, semaphore):
          other = 1 - jax.lax.axis_index("x")
          pl.semaphore_signal(semaphore, 1, device_id=other)
          pl.semaphore_wait(semaphore)
          out[...] = x[...]

        with simulator.simulate() as simulation:
          # A kernel on each of two devices is fine.
          np.testing.assert_array_equal(on_both(double)(x), 2 * x)
          assert len(simulation.runs) == 2
          scratch = [plgpu.SemaphoreType.REGULAR]
          try:
            on_both(exchange, scratch_types=scratch)(x)
          except NotImplementedError as e:
            print(e)
    """, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    self.assertEqual(result.returncode, 0, result.stderr)
    self.assertStartsWith(
        result.stdout,
        'The kernel "exchange" communicates with other devices of the mesh'
        " {'x': 2}. The simulator is one GPU: expected a kernel without remote",
    )


class OtherModesTest(parameterized.TestCase):
  """The rules of the simulator leave alone what is not for it."""

  @parameterized.parameters(True, False)
  def test_interpret_mode(self, simulate):
    x = _random((128, 64), np.float32)
    with contextlib.ExitStack() as stack:
      if simulate:
        simulation = stack.enter_context(simulator.simulate())
      kernel = _pallas_add(interpret=plgpu.InterpretGPUParams())
      np.testing.assert_array_equal(kernel(x, x), 2 * x)
    if simulate:
      self.assertEmpty(simulation.runs)

  def test_pallas_without_simulation(self):
    x = np.ones((128, 64), np.float32)
    with self.assertRaisesRegex(Exception, "(?i)cpu"):
      _pallas_add()(x, x)


class EnvironmentTest(parameterized.TestCase):

  CODE = """
      import jax
      import jax.numpy as jnp
      import numpy as np
      import jax.experimental.pallas.mosaic_gpu as plgpu

      def body(x, y, out):
        {line}
        out[...] = x[...] + y[...]

      ty = jax.ShapeDtypeStruct((128,), jnp.float32)
      kernel = plgpu.kernel(
          body, out_type=ty,
          grid=(getattr(jax.devices()[0], "core_count", 1),),
          grid_names=("x",),
      )
      x = np.arange(128, dtype=np.float32)
      cores = getattr(jax.devices()[0], "core_count", 1)
      print(jax.jit(kernel)(x, x)[:4], cores)
  """

  def test_unmodified_program(self):
    result = _run_python(
        self.CODE.format(line=""), MOSAIC_GPU_SIMULATE="1", JAX_PLATFORMS="cpu"
    )
    self.assertEqual(result.returncode, 0, result.stderr)
    self.assertEqual(result.stdout, "[0. 2. 4. 6.] 148\n")
    self.assertEmpty(result.stderr)

  @parameterized.parameters(
      "jax._src.pallas.mosaic_gpu.core",
      "jax.experimental.mosaic.gpu.core",
      "jax.experimental.pallas.ops.gpu.blackwell_matmul_mgpu",
  )
  def test_whatever_is_imported_first(self, module):
    result = _run_python(
        f"import {module}\n" + textwrap.dedent(self.CODE.format(line="")),
        MOSAIC_GPU_SIMULATE="1", JAX_PLATFORMS="cpu",
    )
    self.assertEqual(result.returncode, 0, result.stderr)
    self.assertEqual(result.stdout, "[0. 2. 4. 6.] 148\n")

  def test_error(self):
    line = "out[0] = out[1]"
    result = _run_python(
        self.CODE.format(line=line), MOSAIC_GPU_SIMULATE="1",
        JAX_PLATFORMS="cpu",
    )
    self.assertNotEqual(result.returncode, 0)
    self.assertIn("that were never written", result.stderr)

  def test_not_set(self):
    result = _run_python(
        self.CODE.format(line=""), MOSAIC_GPU_SIMULATE="0", JAX_PLATFORMS="cpu"
    )
    self.assertNotEqual(result.returncode, 0)
    self.assertEmpty(result.stdout)


if __name__ == "__main__":
  absltest.main()
