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
"""Tests of the hook that a simulator of the GPU comes in by."""

from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.interpreters import mlir
from jax._src.pallas import mpmd
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import core
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np


def _mosaic_kernel():
  def body(ctx, src, dst, scratch):
    del ctx, scratch
    mgpu.FragmentedArray.load_strided(src).store_untiled(dst)

  return test_util.as_gpu_kernel(body, (1, 1, 1), (128, 1, 1), _TYPE, _TYPE, ())


def _pallas_kernel():
  def body(src, dst):
    dst[...] = src[...]

  return jax.jit(plgpu.kernel(body, out_type=_TYPE))


_KERNELS = (_mosaic_kernel, _pallas_kernel)
_TYPE = jax.ShapeDtypeStruct((128,), jnp.float32)
_X = np.arange(128, dtype=np.float32)


def _add_one(ctx, *args, **params):
  # Whatever the kernel does.
  del params
  add = lambda x: (x + 1,)
  return mlir.lower_fun(add, multiple_results=True)(ctx, *args)


class SimulatorHookTest(test_util.TestCase):

  def setUp(self):
    super().setUp()
    # As a simulator registers them.
    self.enter_context(
        mock.patch.dict(mlir._platform_specific_lowerings["cpu"])
    )
    for primitive, rule in (
        (core.mosaic_gpu_p, core._mosaic_gpu_lowering_rule),
        (mpmd.mpmd_map_p, mpmd._mpmd_map_mgpu_lowering),
    ):
      mlir.register_lowering(primitive, rule, "cpu")

  def call_on_cpu(self, kernel):
    with jax.default_device(jax.devices("cpu")[0]), deviceless.as_blackwell():
      return kernel(_X)

  @parameterized.product(make_kernel=_KERNELS)
  def test_rule_is_called_for_the_cpu(self, make_kernel):
    kernel, rule = make_kernel(), mock.Mock(side_effect=_add_one)
    with mock.patch.object(core, "simulated_lowering_rule", rule):
      np.testing.assert_array_equal(self.call_on_cpu(kernel), _X + 1)
      rule.assert_called_once()
      self.assertContainsSubset(
          {"module", "out_types", "inout_types", "input_output_aliases"},
          rule.call_args.kwargs,
      )
      # For another platform, the rule is left alone.
      with deviceless.as_blackwell():
        traced = jax.jit(kernel).trace(_X)
        lowered = traced.lower(lowering_platforms=("cuda",))
    rule.assert_called_once()
    self.assertIn("mosaic_gpu", lowered.as_text())

  def test_rule_is_not_called_for_a_gpu(self):
    kernel, rule = _mosaic_kernel(), mock.Mock(side_effect=_add_one)
    with mock.patch.object(core, "simulated_lowering_rule", rule):
      compiled = deviceless.compile_kernel(kernel, _X)
    rule.assert_not_called()
    self.assertIn(".target sm_100a", compiled.ptx)

  @parameterized.product(make_kernel=_KERNELS)
  def test_without_a_rule(self, make_kernel):
    # The lowering for CUDA, of which the CPU's backend makes nothing.
    with (
        # The simulator may be there, because of other tests.
        mock.patch.object(core, "simulated_lowering_rule", None),
        self.assertRaisesRegex(Exception, "mosaic_gpu"),
    ):
      self.call_on_cpu(make_kernel())


if __name__ == "__main__":
  absltest.main()
