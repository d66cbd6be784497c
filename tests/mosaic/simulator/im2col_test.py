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
"""A convolution whose loads are TMA copies in im2col mode."""

import itertools

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import jax
from jax import lax
from jax.experimental.mosaic.gpu import simulator

TILE_M, TILE_C = 128, 64


def convolution(x, w, padding):
  """Convolves x [N, H, W, C] with w [KH, KW, C, K], with any padding.

  A CTA computes 128 pixels of the result, which may be of several images.
  """
  n, *space, c = x.shape
  *window, _, k = w.shape
  out = [s + sum(p) - d + 1 for s, p, d in zip(space, padding, window)]
  pixels = n * out[0] * out[1]
  taps = window[0] * window[1]

  def kernel(x_gmem, w_gmem, out_gmem, a, b, acc, out_smem, loaded, done):
    rows = pl.ds(lax.axis_index("m") * TILE_M, TILE_M)
    windows = plgpu.im2col_ref(x_gmem, window_shape=window, padding=padding)

    @pl.loop(0, taps * (c // TILE_C))
    def _(i):
      tap, part = i // (c // TILE_C), i % (c // TILE_C)
      channels = pl.ds(part * TILE_C, TILE_C)
      plgpu.copy_gmem_to_smem(
          windows.at[rows, tap // window[1], tap % window[1], channels], a,
          loaded,
      )
      plgpu.copy_gmem_to_smem(w_gmem.at[tap, channels], b, loaded)
      plgpu.barrier_wait(loaded)
      plgpu.tcgen05_mma(acc, a, b, done, accumulate=i > 0)
      plgpu.barrier_wait(done)

    out_smem[...] = plgpu.async_load_tmem(acc)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_smem, out_gmem.at[rows])
    plgpu.wait_smem_to_gmem(0)

  def smem(*shape, dtype=jnp.float16):
    tile = (8, 128 // jnp.dtype(dtype).itemsize)
    transforms = plgpu.TilingTransform(tile), plgpu.SwizzleTransform(128)
    return plgpu.SMEM(shape, dtype, transforms=transforms)

  result = plgpu.kernel(
      kernel,
      out_type=jax.ShapeDtypeStruct((pixels, k), jnp.float32),
      grid=(pl.cdiv(pixels, TILE_M),),
      grid_names=("m",),
      scratch_types=[
          smem(TILE_M, TILE_C), smem(TILE_C, k),
          plgpu.TMEM((TILE_M, k), jnp.float32),
          smem(TILE_M, k, dtype=jnp.float32),
          plgpu.Barrier(num_arrivals=2),
          plgpu.Barrier(orders_tensor_core=True),
      ],
      # The other semantics have no im2col copies in JAX 0.12.0.1.
      compiler_params=plgpu.CompilerParams(
          lowering_semantics=plgpu.LoweringSemantics.Lane
      ),
  )(x, w.reshape(taps, c, k))
  return result.reshape(n, *out, k)


def reference(x, w, padding):
  padded = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
  height, width = w.shape[:2]
  out = [s - d + 1 for s, d in zip(padded.shape[1:3], (height, width))]
  result = np.zeros((x.shape[0], *out, w.shape[3]))
  for dh, dw in itertools.product(range(height), range(width)):
    part = padded[:, dh : dh + out[0], dw : dw + out[1]]
    result += part @ w[dh, dw].astype(np.float64)
  return result


class Im2colTest(parameterized.TestCase):

  @parameterized.product(
      case=(
          # 3x3, the images keep their size; tiles go across images, and the
          # last one past the end of them.
          ((7, 6, 8, 64), (3, 3), ((1, 1), (1, 1))),
          # A window that is not square, padded on some sides, two parts of
          # the channels.
          ((2, 8, 11, 128), (2, 5), ((0, 1), (3, 0))),
      ),
      order=("eager", "lazy", 0, 1),
  )
  def test_convolution(self, case, order):
    shape, window, padding = case
    rng = np.random.default_rng(len(shape) + sum(shape))
    x = rng.integers(-4, 5, shape).astype(np.float16)
    w = rng.integers(-4, 5, (*window, shape[-1], 64)).astype(np.float16)
    with simulator.simulate(order=order, check_races=True):
      result = np.asarray(convolution(x, w, padding))
    # Integers, so that no sum is rounded.
    np.testing.assert_array_equal(result, reference(x, w, padding))


if __name__ == "__main__":
  absltest.main()
