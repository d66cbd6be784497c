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
"""Tests of slices of TMEM references that have several tiles of 128 rows."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tmem_test_util as test_util
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax._src.lib.mlir.dialects import scf
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp
import numpy as np

ROWS = 128


def _constant(value: int) -> ir.Value:
  return arith.constant(ir.IndexType.get(), value)


def _part(tmem, row_tile: int, columns: slice) -> tcgen05.TMEMRef:
  """A reference to columns of a row tile, made by hand."""
  i32 = ir.IntegerType.get_signless(32)
  column = row_tile * tmem.shape[1] + columns.start
  return tcgen05.TMEMRef(
      arith.addi(tmem.address, arith.constant(i32, column)),
      (ROWS, columns.stop - columns.start), tmem.dtype, tmem.layout,
  )


class TmemSliceTest(test_util.TestCase):

  def run_with_tmem(self, body, x):
    return super().run_with_tmem(
        body, x.shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )

  @parameterized.parameters(False, True)
  def test_row_tiles_follow_each_other(self, by_hand_first):
    x = test_util.random(np.random.default_rng(0), (384, 64), jnp.float32)

    def by_slice(tmem, row_tile):
      return tmem.slice(mgpu.ds(row_tile * ROWS, ROWS), slice(None))

    def by_hand(tmem, row_tile):
      return _part(tmem, row_tile, slice(0, 64))

    refs = [by_slice, by_hand]
    if by_hand_first:
      refs.reverse()

    def body(tmem, x, out):
      for row_tile in (2, 0, 1):
        rows = mgpu.ds(row_tile * ROWS, ROWS)
        src = mgpu.memref_slice(x, rows)
        self.store_all(refs[0](tmem, row_tile), src, tcgen05.LAYOUT)
      for row_tile in (1, 2, 0):
        rows = mgpu.ds(row_tile * ROWS, ROWS)
        self.load_to(refs[1](tmem, row_tile), mgpu.memref_slice(out, rows))

    np.testing.assert_array_equal(self.run_with_tmem(body, x), x)

  @parameterized.parameters(False, True)
  def test_dynamic_row_tile(self, index_type):
    x = test_util.random(np.random.default_rng(1), (384, 32), jnp.float32)

    def body(tmem, x, out):
      for i in range(3):
        src = mgpu.memref_slice(x, mgpu.ds(i * ROWS, ROWS))
        self.store_all(_part(tmem, i, slice(0, 32)), src, tcgen05.LAYOUT)
      loop = scf.ForOp(_constant(0), _constant(3), _constant(1))
      with ir.InsertionPoint(loop.body):
        row = arith.muli(loop.induction_variable, _constant(ROWS))
        tile_row = row
        if not index_type:
          i32 = ir.IntegerType.get_signless(32)
          i = arith.index_cast(i32, loop.induction_variable)
          tile_row = arith.muli(i, arith.constant(i32, ROWS))
        tile = tmem.slice(mgpu.ds(tile_row, ROWS), slice(None))
        self.load_to(tile, mgpu.memref_slice(out, mgpu.ds(row, ROWS)))
        scf.yield_([])

    np.testing.assert_array_equal(self.run_with_tmem(body, x), x)

  def test_rows_and_columns_together(self):
    x = test_util.random(np.random.default_rng(2), (256, 96), jnp.float32)

    def body(tmem, x, out):
      for row in (0, ROWS):
        for col in (0, 32, 64):
          index = (mgpu.ds(row, ROWS), mgpu.ds(col, 32))
          part = tmem.slice(*index)
          self.assertEqual(part.shape, (ROWS, 32))
          src = mgpu.memref_slice(x, index)
          self.store_all(part, src, tcgen05.LAYOUT)
      for row in (0, ROWS):
        for col in (0, 32, 64):
          part = _part(tmem, row // ROWS, slice(col, col + 32))
          index = (mgpu.ds(row, ROWS), mgpu.ds(col, 32))
          self.load_to(part, mgpu.memref_slice(out, index))

    np.testing.assert_array_equal(self.run_with_tmem(body, x), x)

  def make_ref(self, shape, dtype=None, layout=None):
    return tcgen05.TMEMRef(
        arith.constant(ir.IntegerType.get_signless(32), 0),
        shape,
        dtype or ir.F32Type.get(),
        layout or tcgen05.tmem_default_layout(),
    )

  def in_function(self):
    module = ir.Module.create()
    return ir.InsertionPoint(module.body)

  @parameterized.parameters(
      (
          lambda ref: ref.slice(mgpu.ds(64, 128), slice(None)),
          "TMEM cannot be sliced along rows, except by tiles of 128 rows: got"
          " 128 rows from row 64 on, of which both must be (known to be)"
          " multiples of 128.",
      ),
      (
          lambda ref: ref.slice(mgpu.ds(128, 64), slice(None)),
          "TMEM cannot be sliced along rows, except by tiles of 128 rows: got"
          " 64 rows from row 128 on, of which both must be (known to be)"
          " multiples of 128.",
      ),
      (
          lambda ref: ref.slice(slice(None), mgpu.ds(32, 32)),
          "Cannot slice TMEM with multiple tiles along rows. Slice one row tile"
          " of the (256, 96) reference first, then its columns.",
      ),
  )
  def test_slice_errors(self, do_slice, message):
    with self.in_function():
      ref = self.make_ref((256, 96))
      with self.assertRaisesWithLiteralMatch(NotImplementedError, message):
        do_slice(ref)

  def test_dynamic_row_must_be_divisible(self):
    with self.in_function():
      ref = self.make_ref((256, 96))
      x = arith.constant(ir.IntegerType.get_signless(32), 1)
      row = arith.addi(x, x)
      with self.assertRaisesRegex(
          NotImplementedError,
          "except by tiles of 128 rows: got 128 rows from a dynamic row on",
      ):
        ref.slice(mgpu.ds(row, 128), slice(None))

  def test_scales_have_no_row_tiles(self):
    with self.in_function():
      ref = self.make_ref(
          (256, 8), ir.Float8E8M0FNUType.get(), tcgen05.scales_layout()
      )
      with self.assertRaisesRegex(
          NotImplementedError,
          "TMEM cannot be sliced along rows: the rows of a reference with"
          " layout .* are not contiguous. Allocate a TMEM reference for each"
          " part instead.",
      ):
        ref.slice(mgpu.ds(128, 128), slice(None))
      # So it must not be said that row tiles have to be sliced first.
      with self.assertRaisesWithLiteralMatch(
          NotImplementedError,
          "Cannot slice TMEM with multiple tiles along rows. Allocate a TMEM"
          " reference for each part instead.",
      ):
        ref.slice(slice(None), mgpu.ds(4, 4))

  def test_inferred_layout(self):
    for rows in (128, 256, 512):
      self.assertEqual(
          tcgen05._infer_tmem_layout((rows, 64), collective=False, packing=1),
          tcgen05.tmem_default_layout(),
      )
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Unsupported shape: (192, 64). TMEM references must have 64 rows or a"
        " multiple of 128 rows, but got 192.",
    ):
      tcgen05._infer_tmem_layout((192, 64), collective=False, packing=1)


if __name__ == "__main__":
  absltest.main()
