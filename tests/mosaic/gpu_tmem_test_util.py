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
"""Kernels that store to TMEM and load from it."""

import gpu_tiles_test_util as test_util
import jax
from jax._src.lib.mlir import ir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp


def random(rng, shape, dtype):
  if jnp.issubdtype(dtype, jnp.integer):
    info = jnp.iinfo(dtype)
    return rng.integers(info.min, info.max, shape).astype(dtype)
  return rng.normal(size=shape).astype(dtype)


class TestCase(test_util.TestCase):

  def run_with_tmem(self, body, shape, dtype, *, layout, x):
    """Runs ``body(tmem, x, out)`` with a TMEM reference; returns ``out``."""

    def kernel_body(ctx, x, out, scratch):
      del ctx
      # The reference does not begin at the first column.
      columns = scratch.slice(slice(None), slice(32, 512))
      tmem = tcgen05.TMEMRef(
          columns.address, shape, mgpu.utils.dtype_to_ir_type(dtype), layout
      )
      body(tmem, x, out)

    ty = jax.ShapeDtypeStruct(shape, dtype)
    kernel = test_util.as_gpu_kernel(
        kernel_body, (1, 1, 1), (128, 1, 1), ty, ty,
        mgpu.TMEM((128, 512), jnp.float32),
    )
    return test_util.run(kernel, x)

  def store_all(self, tmem, x, layout):
    is_signed = True if isinstance(tmem.dtype, ir.IntegerType) else None
    value = fa.FragmentedArray.load_untiled(
        x, layout=layout, is_signed=is_signed, optimized=False
    )
    tmem.store(value)
    tcgen05.commit_tmem()

  def load_to(self, tmem, out, layout=None):
    is_signed = True if isinstance(tmem.dtype, ir.IntegerType) else None
    value = tmem.load(layout, is_signed=is_signed)
    value.store_untiled(out, optimized=False)
