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
"""Tests of the memory spaces of sparse metadata, which are checked early."""

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp

def _trace(body, *scratch_types):
  """Traces a kernel of ``body``, which takes the scratch references."""
  kernel = plgpu.kernel(
      lambda out, *refs: body(*refs),
      out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
      scratch_types=scratch_types,
  )
  jax.jit(kernel).trace()


class PallasSparseMetadataSpaceTest(parameterized.TestCase):

  @parameterized.product(scaled=(False, True))
  def test_mma(self, scaled):

    def body(acc, a, b, metadata, *scales):
      kwargs = dict(zip(("a_scale", "b_scale"), scales, strict=bool(scales)))
      plgpu.tcgen05_mma(acc, a, b, a_sparse_metadata=metadata, **kwargs)

    dtype = jnp.float8_e4m3fn if scaled else jnp.float16
    scale = plgpu.TMEM(
        (128, 4), jnp.float8_e8m0fnu, layout=plgpu.TMEMLayout.SCALES_LAYOUT
    )
    with self.assertRaisesWithLiteralMatch(
        ValueError, "a_sparse_metadata must be a TMEM Ref"
    ):
      _trace(
          body,
          plgpu.TMEM((128, 128), jnp.float32),
          plgpu.SMEM((128, 128), dtype),
          plgpu.SMEM((256, 128), dtype),
          plgpu.SMEM((128, 128), jnp.uint2),
          *[scale] * (2 if scaled else 0),
      )

  @parameterized.parameters(
      (
          plgpu.async_copy_sparse_metadata_to_tmem, jnp.uint2,
          plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT,
      ),
      (
          plgpu.async_copy_scales_to_tmem, jnp.float8_e8m0fnu,
          plgpu.TMEMLayout.SCALES_LAYOUT,
      ),
  )
  def test_copy(self, copy, dtype, layout):
    smem = plgpu.SMEM((128, 64), dtype)
    tmem = plgpu.TMEM((128, 64), dtype, layout=layout)
    _trace(copy, smem, tmem)
    for source, target, message in (
        (tmem, tmem, "source must be an SMEM ref"),
        (smem, smem, "target must be a TMEM ref"),
    ):
      with self.assertRaisesWithLiteralMatch(
          ValueError, f"{copy.__name__} {message}"
      ):
        _trace(copy, source, target)


if __name__ == "__main__":
  absltest.main()
