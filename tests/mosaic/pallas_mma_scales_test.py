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
"""Tests of what tcgen05_mma checks of block scales in tracing."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pallas_mma_operands_test_util as util

E2M1 = util.E2M1
E4M3 = util.E4M3
E8M0 = util.E8M0
TMEM = util.TMEM
Layouts = util.Layouts
_trace = util.trace
_scale = util.scale


class PallasMmaScalesTest(parameterized.TestCase):

  def test_aliased_scales(self):
    trace = functools.partial(
        _trace, (128, 128, 256), E4M3, at=lambda refs: refs[0]
    )
    union = plgpu.RefUnion(_scale(128, 8))
    trace(a_scale=union, b_scale=union)
    # The union as a whole has the default layout, whatever is in it.
    wrong = plgpu.RefUnion(TMEM((128, 8), E8M0, packed=True))
    with self.assertRaisesRegex(ValueError, "B scale layout mismatch"):
      trace(a_scale=union, b_scale=wrong)

  @parameterized.parameters(
      ((128, 128, 256), E4M3, _scale(128, 8), _scale(128, 8)),
      ((256, 64, 256), E4M3, _scale(256, 8), _scale(128, 8)),
      ((128, 160, 256), E4M3, _scale(128, 8), _scale(256, 8)),
      ((128, 128, 256), jnp.float8_e5m2, _scale(128, 8), _scale(128, 8)),
      ((128, 128, 256), E2M1, _scale(128, 16, E4M3), _scale(128, 16, E4M3)),
      ((128, 128, 256), E2M1, _scale(128, 16), _scale(128, 16)),
      ((128, 128, 256), E2M1, _scale(128, 8), _scale(128, 8)),
  )
  def test_scales(self, shape, dtype, a_scale, b_scale):
    _trace(shape, dtype, a_scale=a_scale, b_scale=b_scale)
    # If A is sparse, a scale is for twice as many elements.
    m, n, k = shape
    _trace(
        (m, n, 2 * k), dtype, a_scale=a_scale, b_scale=b_scale,
        metadata=util.metadata(m, k),
    )

  @parameterized.product(
      case=(
          (E4M3, E8M0, (32,)),
          (E2M1, E8M0, (16, 32)),
          (E2M1, E4M3, (16,)),
      ),
      is_sparse=(False, True),
  )
  def test_number_of_scales(self, case, is_sparse):
    dtype, scale_dtype, blocks = case
    blocks = [block * (1 + is_sparse) for block in blocks]
    metadata = util.metadata(128, 256) if is_sparse else None
    for block in (8, 16, 32, 64, 128):
      scale = _scale(128, 512 // block, scale_dtype)
      trace = functools.partial(
          _trace, (128, 128, 512), dtype, metadata=metadata, a_scale=scale,
          b_scale=scale,
      )
      if block in blocks:
        trace()
      else:
        expected = " or ".join(map(str, blocks))
        with self.assertRaisesWithLiteralMatch(
            ValueError,
            f"Scale block size mismatch: expected {expected}, got {block}",
        ):
          trace()

  def test_scales_that_do_not_divide_k(self):
    scale = _scale(128, 12)
    with self.assertRaisesWithLiteralMatch(
        ValueError, "K=256 is not divisible by A scale second dimension 12"
    ):
      _trace((128, 128, 256), E4M3, a_scale=scale, b_scale=scale)

  @parameterized.parameters(
      jnp.float16, jnp.bfloat16, jnp.float32, jnp.int8, jnp.int4
  )
  def test_types_without_block_scaling(self, dtype):
    scale = _scale(128, 8)
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        f"MMA with element type {jnp.dtype(dtype)} does not support block"
        " scaling",
    ):
      _trace((128, 128, 256), dtype, a_scale=scale, b_scale=scale)

  @parameterized.parameters(
      (64, Layouts.SCALES_M64_COLLECTIVE_LAYOUT, 256),
      (128, Layouts.SCALES_LAYOUT, 256),
  )
  def test_scales_of_two_ctas(self, m, b_layout, b_rows):
    scale = functools.partial(_scale, collective=True)
    for layout in (
        Layouts.SCALES_LAYOUT, Layouts.SCALES_M64_COLLECTIVE_LAYOUT
    ):
      trace = functools.partial(
          _trace, (m, 96, 256), E4M3, collective=True, a_scale=scale(128, 8),
          b_scale=scale(b_rows, 8, layout=layout),
      )
      if layout == b_layout:
        trace()
      else:
        with self.assertRaisesRegex(
            ValueError,
            f"B scale layout mismatch: expected {b_layout}, got TMEMLayout",
        ):
          trace()

  @parameterized.parameters(
      (
          _scale(256, 8), _scale(128, 8),
          "A scale shape mismatch: expected (128, 8), got (256, 8)",
      ),
      (
          _scale(128, 8), _scale(128, 8),
          "B scale shape[0] must be a multiple of 128 and >= N=192, got 128",
      ),
      (
          _scale(128, 8), _scale(256, 4),
          "B scale shape mismatch: expected (256, 8), got (256, 4)",
      ),
      (
          _scale(128, 8, E4M3), _scale(256, 8, E4M3),
          "A scale dtype mismatch: expected float8_e8m0fnu, got float8_e4m3fn",
      ),
      (
          _scale(128, 8), _scale(256, 8, E4M3),
          "B scale dtype mismatch: expected float8_e8m0fnu, got float8_e4m3fn",
      ),
      (
          TMEM((128, 8), E8M0, packed=False), _scale(256, 8),
          "A scale layout mismatch: expected TMEMLayout.SCALES_LAYOUT, got"
          f" {TMEM((128, 8), E8M0, packed=False).layout}",
      ),
      (
          _scale(128, 8), TMEM((256, 8), E8M0, packed=True),
          "B scale layout mismatch: expected TMEMLayout.SCALES_LAYOUT, got"
          f" {TMEM((256, 8), E8M0, packed=True).layout}",
      ),
  )
  def test_scales_that_do_not_fit(self, a_scale, b_scale, message):
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      _trace((128, 192, 256), E4M3, a_scale=a_scale, b_scale=b_scale)

  def test_scales_of_4_bit_types_that_do_not_fit(self):
    scale = _scale(128, 16, jnp.float8_e5m2)
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "A scale dtype mismatch: expected float8_e8m0fnu or float8_e4m3fn, got"
        " float8_e5m2",
    ):
      _trace((128, 128, 256), E2M1, a_scale=scale, b_scale=scale)

  def test_scales_in_smem(self):
    smem = plgpu.SMEM((1, 2, 32, 16), E8M0)
    for a_scale, b_scale in ((smem, _scale(128, 8)), (_scale(128, 8), smem)):
      with self.assertRaisesRegex(ValueError, "_scale must be a TMEM Ref"):
        _trace((128, 128, 256), E4M3, a_scale=a_scale, b_scale=b_scale)


if __name__ == "__main__":
  absltest.main()
