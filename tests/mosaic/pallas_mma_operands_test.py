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
"""Tests of what tcgen05_mma checks of sparse metadata and scales in tracing."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp

E2M1, E4M3, E8M0 = jnp.float4_e2m1fn, jnp.float8_e4m3fn, jnp.float8_e8m0fnu
TMEM = plgpu.TMEM
Layouts = plgpu.TMEMLayout


def _metadata(rows, entries, dtype=jnp.uint2, *,
              layout=Layouts.SPARSE_METADATA_LAYOUT):
  return TMEM((rows, entries), dtype, layout=layout)


def _scale(rows, count, dtype=E8M0, *, layout=Layouts.SCALES_LAYOUT, **kwargs):
  return TMEM((rows, count), dtype, layout=layout, **kwargs)


def _trace(
    shape, dtype, *, metadata=None, a_scale=None, b_scale=None,
    collective=False, at=lambda ref: ref, in_warp=False,
):
  """Traces a kernel with a matmul.

  Args:
    shape: M, N and K.
    dtype: The element type of A and B.
    metadata: The type of the sparse metadata, if A is sparse.
    a_scale: The type of the scales of A, if any.
    b_scale: The type of the scales of B, if any.
    collective: Whether two CTAs share the call.
    at: What to pass of each operand that describes A or B.
    in_warp: Whether a single warp makes the call.
  """
  m, n, k = shape
  types = dict(a_sparse_metadata=metadata, a_scale=a_scale, b_scale=b_scale)
  types = {name: ty for name, ty in types.items() if ty is not None}

  def body(out, acc, a, b, operands):
    del out
    operands = {name: at(ref) for name, ref in operands.items()}
    call = functools.partial(
        plgpu.tcgen05_mma, acc, a, b, **operands,
        collective_axis="x" if collective else None,
    )
    if in_warp:
      plgpu.warp_map(lambda warp: pl.when(warp == 0)(call))
    else:
      call()

  a_k = k if metadata is None else k // 2
  kernel = plgpu.kernel(
      body,
      out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
      scratch_types=[
          TMEM((m, n * (1 + collective)), jnp.float32, collective=collective),
          plgpu.SMEM((m, a_k), dtype),
          plgpu.SMEM((k, n), dtype),
          types,
      ],
      **(dict(cluster=(2,), cluster_names=("x",)) if collective else {}),
  )
  jax.jit(kernel).trace()


class PallasMmaOperandsTest(parameterized.TestCase):

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
    _trace(
        shape, dtype, metadata=_metadata(*metadata_shape),
        a_scale=_scale(shape[0], 4), b_scale=_scale(128, 4),
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

  @parameterized.parameters(
      ((128, 128, 256), E4M3, _scale(128, 8), _scale(128, 8)),
      ((256, 64, 256), E4M3, _scale(256, 8), _scale(128, 8)),
      ((128, 160, 256), E4M3, _scale(128, 8), _scale(256, 8)),
      ((128, 128, 256), E2M1, _scale(128, 16, E4M3), _scale(128, 16, E4M3)),
  )
  def test_scales(self, shape, dtype, a_scale, b_scale):
    _trace(shape, dtype, a_scale=a_scale, b_scale=b_scale)

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
