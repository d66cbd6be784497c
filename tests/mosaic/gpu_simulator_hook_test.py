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
import gpu_tiles_test_util as test_util
import jax
from jax._src.interpreters import mlir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import core
from jax.experimental.mosaic.gpu import deviceless
import jax.numpy as jnp
import numpy as np


class SimulatorHookTest(test_util.TestCase):

  def test_rule_is_called_for_the_cpu(self):
    def body(ctx, src, dst, scratch):
      del ctx, scratch
      mgpu.FragmentedArray.load_strided(src).store_untiled(dst)

    ty = jax.ShapeDtypeStruct((128,), jnp.float32)
    kernel = test_util.as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1), ty, ty, ()
    )
    seen = []

    def rule(ctx, *args, **params):
      # Whatever the kernel does, it adds one.
      seen.append(params)
      add = lambda x: (x + 1,)
      return mlir.lower_fun(add, multiple_results=True)(ctx, *args)

    x = np.arange(128, dtype=np.float32)
    with (
        mock.patch.dict(mlir._platform_specific_lowerings["cpu"]),
        mock.patch.object(core, "simulated_lowering_rule", rule),
    ):
      mlir.register_lowering(
          core.mosaic_gpu_p, core._mosaic_gpu_lowering_rule, "cpu"
      )
      with jax.default_device(jax.devices("cpu")[0]):
        result = kernel(x)
      # For another platform, the rule is left alone.
      compiled = deviceless.compile_kernel(kernel, x)
    np.testing.assert_array_equal(result, x + 1)
    self.assertIn(".target sm_100a", compiled.ptx)
    [params] = seen
    self.assertContainsSubset(
        {"module", "out_types", "inout_types", "input_output_aliases"}, params
    )


if __name__ == "__main__":
  absltest.main()
