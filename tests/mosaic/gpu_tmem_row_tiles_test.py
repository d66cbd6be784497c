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
"""Tests of TMEM references that have several tiles of 128 rows."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax._src.lib.mlir.dialects import scf
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
import jax.numpy as jnp
import numpy as np


def _random(rng, shape, dtype):
  if jnp.issubdtype(dtype, jnp.integer):
    info = jnp.iinfo(dtype)
    return rng.integers(info.min, info.max, shape).astype(dtype)
  return rng.normal(size=shape).astype(dtype)


def _constant(value: int) -> ir.Value:
  return arith.constant(ir.IndexType.get(), value)


class TmemRowTilesTest(test_util.TestCase):

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

  @parameterized.product(
      shape=((256, 64), (384, 32), (512, 48)),
      case=(
          (jnp.float32, 1, "LAYOUT"),
          (jnp.float32, 1, "TMEM_NATIVE_LAYOUT"),
          (jnp.int32, 1, "LAYOUT"),
          (jnp.float16, 1, "LAYOUT"),
          (jnp.float16, 2, "LAYOUT"),
          (jnp.bfloat16, 1, "TMEM_NATIVE_LAYOUT"),
          (jnp.int8, 4, None),
      ),
  )
  def test_store_and_load(self, shape, case):
    dtype, packing, layout_name = case
    layout = tcgen05.tmem_default_layout(packing)
    regs_layout = (
        layout.as_tiled_layout()
        if layout_name is None
        else getattr(tcgen05, layout_name)
    )
    x = _random(np.random.default_rng(0), shape, dtype)

    def whole(tmem, x, out):
      self.store_all(tmem, x, regs_layout)
      self.load_to(tmem, out, regs_layout)

    def by_row_tile(tmem, x, out):
      self.store_all(tmem, x, regs_layout)
      for row in range(0, shape[0], 128):
        tile = tmem.slice(mgpu.ds(row, 128), slice(None))
        self.load_to(tile, mgpu.memref_slice(out, mgpu.ds(row, 128)), regs_layout)

    for body in (whole, by_row_tile):
      with self.subTest(body.__name__):
        result = self.run_with_tmem(body, shape, dtype, layout=layout, x=x)
        np.testing.assert_array_equal(result, x)

  def test_row_tiles_are_stored_where_their_slices_are(self):
    shape = (384, 64)
    x = _random(np.random.default_rng(1), shape, jnp.float32)

    def body(tmem, x, out):
      for row in (256, 0, 128):
        tile = tmem.slice(slice(row, row + 128), slice(None))
        src = mgpu.memref_slice(x, mgpu.ds(row, 128))
        self.store_all(tile, src, tcgen05.LAYOUT)
      self.load_to(tmem, out)

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    np.testing.assert_array_equal(result, x)

  def test_two_row_tiles_of_four(self):
    shape = (512, 32)
    x = _random(np.random.default_rng(2), shape, jnp.float32)

    def body(tmem, x, out):
      self.store_all(tmem, x, tcgen05.LAYOUT)
      for row in (0, 256):
        half = tmem.slice(mgpu.ds(256 - row, 256), slice(None))
        self.assertEqual(half.shape, (256, 32))
        self.load_to(half, mgpu.memref_slice(out, mgpu.ds(row, 256)))

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    np.testing.assert_array_equal(result, np.concatenate([x[256:], x[:256]]))

  @parameterized.parameters(False, True)
  def test_dynamic_row_tile(self, index_type):
    shape = (384, 32)
    x = _random(np.random.default_rng(3), shape, jnp.float32)

    def body(tmem, x, out):
      self.store_all(tmem, x, tcgen05.LAYOUT)
      loop = scf.ForOp(_constant(0), _constant(3), _constant(1))
      with ir.InsertionPoint(loop.body):
        row = arith.muli(loop.induction_variable, _constant(128))
        tile_row = row
        if not index_type:
          i32 = ir.IntegerType.get_signless(32)
          i = arith.index_cast(i32, loop.induction_variable)
          tile_row = arith.muli(i, arith.constant(i32, 128))
        tile = tmem.slice(mgpu.ds(tile_row, 128), slice(None))
        self.load_to(tile, mgpu.memref_slice(out, mgpu.ds(row, 128)))
        scf.yield_([])

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    np.testing.assert_array_equal(result, x)

  def test_rows_and_columns_together(self):
    shape = (256, 96)
    x = _random(np.random.default_rng(4), shape, jnp.float32)

    def body(tmem, x, out):
      self.store_all(tmem, x, tcgen05.LAYOUT)
      for row in (0, 128):
        for col in (0, 32, 64):
          part = tmem.slice(mgpu.ds(row, 128), mgpu.ds(col, 32))
          self.assertEqual(part.shape, (128, 32))
          dst = mgpu.memref_slice(out, (mgpu.ds(row, 128), mgpu.ds(64 - col, 32)))
          self.load_to(part, dst)

    result = self.run_with_tmem(
        body, shape, jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )
    expected = np.concatenate([x[:, 64:], x[:, 32:64], x[:, :32]], axis=1)
    np.testing.assert_array_equal(result, expected)

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
          NotImplementedError, "except by tiles of 128 rows"
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

  def test_store_of_unsupported_layout(self):
    def body(tmem, x, out):
      del out
      value = fa.FragmentedArray.load_untiled(
          x, layout=fa.WGMMA_LAYOUT, optimized=False
      )
      with self.assertRaisesRegex(ValueError, "Storing from register layout"):
        tmem.store(value)

    x = _random(np.random.default_rng(5), (256, 32), jnp.float32)
    self.run_with_tmem(
        body, (256, 32), jnp.float32, layout=tcgen05.tmem_default_layout(), x=x
    )


if __name__ == "__main__":
  absltest.main()
