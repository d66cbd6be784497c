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
"""Tests that TMEM allocations take as many columns as their layout needs."""

import re

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.lib.mlir import ir
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp

Semantics = mgpu.LoweringSemantics


def _columns(*allocs: mgpu.TMEM, semantics: Semantics) -> dict[str, list[int]]:
  """The columns of the tcgen05.alloc and dealloc instructions, in order."""

  def body(ctx, out, scratch):
    del ctx, out, scratch

  kernel = test_util.as_gpu_kernel(
      body, (1, 1, 1), (128, 1, 1), (),
      jax.ShapeDtypeStruct((1,), jnp.int32), list(allocs),
      thread_semantics=semantics,
  )
  return _read_columns(deviceless.compile_kernel(kernel).ptx)


def _read_columns(ptx: str) -> dict[str, list[int]]:
  constants = dict(re.findall(r"mov\.b32\s+(%r\d+), (\d+);", ptx))
  return {
      name: [int(constants[r]) for r in re.findall(pattern, ptx)]
      for name, pattern in (
          ("alloc", r"tcgen05\.alloc\S*\s+\[\S+\], (%r\d+);"),
          ("dealloc", r"tcgen05\.dealloc\S*\s+%r\d+, (%r\d+);"),
      )
  }


class TmemAllocTest(test_util.TestCase):

  @parameterized.product(
      semantics=(Semantics.Lane, Semantics.Warpgroup),
      case=(
          # Rows beyond 128 continue in further columns.
          ((256, 96), jnp.float32, 256),
          ((512, 112), jnp.float32, 512),
          ((128, 96), jnp.float32, 128),
          ((256, 96), jnp.float16, 256),
      ),
  )
  def test_row_tiles_take_columns(self, semantics, case):
    shape, dtype, columns = case
    layout = tcgen05.tmem_default_layout()
    self.assertEqual(
        _columns(mgpu.TMEM(shape, dtype, layout=layout), semantics=semantics),
        {"alloc": [columns], "dealloc": [columns]},
    )

  @parameterized.parameters(
      # A column holds two 16-bit elements if they are packed.
      ((256, 96), jnp.float16, lambda: tcgen05.tmem_default_layout(2), 128),
      # A column holds 16 entries of sparse metadata.
      ((128, 512), jnp.uint2, tcgen05.sparse_meta_layout, 32),
      ((512, 256), jnp.uint2, tcgen05.sparse_meta_layout, 64),
      # Four columns for each 128 rows of 4 scales.
      ((256, 32), jnp.float8_e8m0fnu, tcgen05.scales_layout, 64),
  )
  def test_other_layouts(self, shape, dtype, layout, columns):
    alloc = mgpu.TMEM(shape, dtype, layout=layout())
    self.assertEqual(
        _columns(alloc, semantics=Semantics.Lane),
        {"alloc": [columns], "dealloc": [columns]},
    )

  @parameterized.parameters(
      ({"d": mgpu.TMEM((128, 128), jnp.float32)}, (), [128, 32]),
      # It asks to be packed, but accumulators are not.
      ({"d": mgpu.TMEM((128, 128), jnp.float16, packing=2)}, (), [128, 32]),
      # Largest first, by the columns that they really take.
      (
          {"d": mgpu.TMEM((128, 256), jnp.float16, packing=2)},
          (mgpu.TMEM((128, 128), jnp.float32),),
          [256, 128, 32],
      ),
      # Packed, A takes half of its columns.
      (
          {
              "a": mgpu.TMEM((128, 64), jnp.float16, packing=2),
              "d": mgpu.TMEM((128, 256), jnp.float32),
          },
          (),
          [256, 32, 32],
      ),
      (
          {"d": mgpu.TMEM((128, 512), jnp.float16, packing=2)},
          (),
          "Requested 544 .* allocations are \\[512, 4\\] columns",
      ),
      (
          {"d": mgpu.TMEM((128, 256), jnp.float16, packing=2)},
          (mgpu.TMEM((128, 256), jnp.float32),),
          "Requested 544 .* allocations are \\[256, 256, 4\\] columns",
      ),
  )
  def test_inferred_layouts(self, operands, others, expected):
    def body(ctx, out, scratch):
      del ctx, out
      (a, b, metadata, d), _ = scratch
      mgpu.dialect.tcgen05_mma(
          d, a, b, accumulate=mgpu.utils.c(0, ir.IntegerType.get_signless(1)),
          a_sparse_metadata=metadata,
      )

    n = operands["d"].shape[1]
    scratch = [
        operands.get("a", jax.ShapeDtypeStruct((128, 64), jnp.float16)),
        jax.ShapeDtypeStruct((128, n), jnp.float16),
        mgpu.TMEM((128, 64), jnp.uint2),
        operands["d"],
    ]

    def columns():
      kernel = test_util.as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), (),
          jax.ShapeDtypeStruct((1,), jnp.int32), [scratch, list(others)],
          thread_semantics=Semantics.Warpgroup,
      )
      return _read_columns(deviceless.compile_kernel(kernel).ptx)

    if isinstance(expected, str):
      with self.assertRaisesRegex(ValueError, expected):
        columns()
      return
    found = columns()
    self.assertEqual(found["alloc"], expected)
    self.assertCountEqual(found["dealloc"], expected)

  @parameterized.product(semantics=(Semantics.Lane, Semantics.Warpgroup))
  def test_largest_first(self, semantics):
    layout = tcgen05.tmem_default_layout()
    allocs = [
        mgpu.TMEM((rows, 64), jnp.float32, layout=layout)
        for rows in (128, 384, 256)
    ]
    columns = _columns(*allocs[:2], semantics=semantics)
    # 384 rows take 192 columns, and the hardware only gives powers of two.
    self.assertEqual(columns["alloc"], [256, 64])
    self.assertCountEqual(columns["dealloc"], [256, 64])
    columns = _columns(allocs[0], allocs[2], semantics=semantics)
    self.assertEqual(columns["alloc"], [128, 64])

  @parameterized.product(semantics=(Semantics.Lane, Semantics.Warpgroup))
  def test_too_many_columns(self, semantics):
    layout = tcgen05.tmem_default_layout()
    allocs = [
        mgpu.TMEM((128, 32), jnp.float32, layout=layout),
        mgpu.TMEM((256, 192), jnp.float32, layout=layout),
    ]
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Total TMEM allocation exceeds memory limit. Requested 544 columns"
        " which exceeds limit of 512. The allocations are [384, 32] columns"
        " wide and each is rounded up to a power of two. To avoid the rounding,"
        " slice one allocation.",
    ):
      _columns(*allocs, semantics=semantics)


if __name__ == "__main__":
  absltest.main()
