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
"""Tests of compiling for a B200 without having one."""

import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

from absl.testing import absltest
import jax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless
import jax.numpy as jnp


def _copy_kernel(size: int, make=deviceless.as_gpu_kernel):
  def body(ctx, src, dst, scratch):
    tile, barrier = scratch
    ctx.async_copy(src_ref=src, dst_ref=tile, barrier=barrier)
    barrier.wait()
    ctx.async_copy(src_ref=tile, dst_ref=dst)
    ctx.await_async_copy(0)

  ty = jax.ShapeDtypeStruct((size, 128), jnp.float16)
  kernel = make(
      body, (1, 1, 1), (128, 1, 1), ty, ty, [ty, mgpu.Barrier(1)]
  )
  return kernel, ty


class DevicelessTest(absltest.TestCase):

  def test_compile(self):
    compiled = deviceless.compile_kernel(*_copy_kernel(64))
    self.assertIn(".target sm_100a", compiled.ptx)
    self.assertEqual(compiled.ptx.count("cp.async.bulk.tensor"), 2)
    self.assertIn("mosaic_gpu_init_tma_desc", compiled.host)
    self.assertBetween(compiled.registers, 1, 255)
    self.assertEqual(compiled.spill_bytes, 0)

  def test_cache_between_processes(self):
    kernel, ty = _copy_kernel(48)
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {deviceless.CACHE_VARIABLE: folder}),
    ):
      compiled = deviceless.compile_kernel(kernel, ty)
      [path] = pathlib.Path(folder).iterdir()
      self.assertEqual(path.suffix, ".json")
      # As in another process, which has compiled nothing yet.
      with (
          mock.patch.object(deviceless, "_compiled", {}),
          mock.patch.object(deviceless, "_read_dump", self.fail),
      ):
        self.assertEqual(deviceless.compile_kernel(kernel, ty), compiled)

  def test_kernel_of_another_architecture(self):
    with mock.patch.object(deviceless, "ARCH", (9, 0)):
      kernel, ty = _copy_kernel(64)
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "The kernel was traced for compute capability 9.0, but only 10.0 is"
        " supported here. Create the kernel under the same context manager that"
        " it is called in",
    ):
      deviceless.compile_kernel(kernel, ty)

  def test_after_the_plugin_failed_its_checks(self):
    # The plugin alone, without cuDNN and a driver, refuses to initialize.
    if os.path.exists("/dev/nvidiactl"):
      self.skipTest("With a GPU, the plugin initializes")
    program = """
import jax
print(jax.devices())
import gpu_deviceless_test as test
compiled = test.deviceless.compile_kernel(*test._copy_kernel(64))
print(".target sm_100a" in compiled.ptx)
"""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            [str(pathlib.Path(__file__).parent), *sys.path]
        ),
        deviceless.CACHE_VARIABLE: "",
    }
    for name in ("JAX_PLATFORMS", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"):
      env.pop(name, None)
    process = subprocess.run(
        [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )
    self.assertEqual(process.returncode, 0, process.stderr)
    self.assertEqual(process.stdout, "[CpuDevice(id=0)]\nTrue\n")

  def test_no_kernel(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError, "Expected a single Mosaic GPU kernel, got 0"
    ):
      deviceless.compile_kernel(lambda x: x + 1, jnp.ones(3))

  def test_without_plugin(self):
    deviceless._sharding.cache_clear()
    self.addCleanup(deviceless._sharding.cache_clear)
    with (
        mock.patch.object(
            deviceless.importlib.util, "find_spec", lambda name: None
        ),
        mock.patch.object(deviceless, "_compiled", {}),
        mock.patch.dict(os.environ, {deviceless.CACHE_VARIABLE: ""}),
        self.assertRaisesRegex(
            RuntimeError, "needs jax-cuda13-plugin and jax-cuda13-pjrt"
        ),
    ):
      deviceless.compile_kernel(*_copy_kernel(64))


if __name__ == "__main__":
  absltest.main()
