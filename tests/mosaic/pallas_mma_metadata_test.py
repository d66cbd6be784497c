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
"""Tests of what tcgen05_mma checks of sparse metadata in tracing."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pallas_mma_operands_test_util as util

E2M1 = util.E2M1
E4M3 = util.E4M3
Layouts = util.Layouts
_trace = util.trace
_metadata = util.metadata
_scale = util.scale


class PallasMmaMetadataTest(parameterized.TestCase):

  @parameterized.parameters(
      (jnp.float16, (128, 64)),
      (jnp.int8, (128, 64)),
      (jnp.float32, (128, 128)),
      # What two entries describe depends on the GPU.
      (E2M1, (128, 32)),
      (E2M1, (128, 64)),
      (jnp.float16, (384, 64)),
  )
  def test_metadata(self, dtype, metadata_shape):
    shape = (metadata_shape[0], 128, 128)
    _trace(shape, dtype, metadata=_metadata(*metadata_shape))
    _trace(shape, dtype, metadata=_metadata(*metadata_shape), in_warp=True)

  @parameterized.parameters(
      (E4M3, (128, 128)), (E4M3, (384, 128)), (E2M1, (128, 64)),
      (E2M1, (128, 128)),
  )
  def test_metadata_and_scales(self, dtype, metadata_shape):
    m = metadata_shape[0]
    _trace(
        (m, 128, 256), dtype, metadata=_metadata(*metadata_shape),
        a_scale=_scale(m, 4), b_scale=_scale(128, 4),
    )

  def test_slices_of_metadata(self):
    trace = functools.partial(
        _trace, (128, 128, 128), jnp.float16, metadata=_metadata(256, 128)
    )
    trace(at=lambda ref: ref.at[pl.ds(128, 128), pl.ds(64, 64)])
    with self.assertRaisesRegex(
        ValueError, r"expected \(128, 64\), got \(128, 128\)"
    ):
      trace(at=lambda ref: ref.at[pl.ds(128, 128)])

  def test_aliased_metadata(self):
    union = plgpu.RefUnion(_metadata(128, 64), _scale(128, 4))
    _trace(
        (128, 128, 128), jnp.float16, metadata=union, at=lambda refs: refs[0]
    )
    with self.assertRaisesRegex(ValueError, "metadata shape mismatch"):
      _trace(
          (128, 128, 128), jnp.float16, metadata=union, at=lambda refs: refs[1]
      )

  @parameterized.parameters(
      (_metadata(128, 32), "shape mismatch: expected (128, 64), got (128, 32)"),
      (_metadata(256, 64), "shape mismatch: expected (128, 64), got (256, 64)"),
      (
          _metadata(128, 64, jnp.int8),
          "dtype mismatch: expected uint2 or int2, got int8",
      ),
      (
          _metadata(128, 64, layout=Layouts.SCALES_LAYOUT),
          "layout mismatch: expected TMEMLayout.SPARSE_METADATA_LAYOUT, got"
          f" {Layouts.SCALES_LAYOUT.to_mgpu()}",
      ),
  )
  def test_metadata_that_does_not_fit(self, metadata, message):
    with self.assertRaisesWithLiteralMatch(
        ValueError, f"A sparse metadata {message}"
    ):
      _trace((128, 128, 128), jnp.float16, metadata=metadata)

  def test_metadata_of_4_bit_types_that_does_not_fit(self):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "A sparse metadata shape mismatch: expected (128, 32) or (128, 64), got"
        " (128, 128)",
    ):
      _trace((128, 128, 128), E2M1, metadata=_metadata(128, 128))


if __name__ == "__main__":
  absltest.main()
