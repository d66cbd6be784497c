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
"""TMEM allocations take the columns of their layout, largest first."""

from patches.model import Edit, Patch

_CORE = "jax/experimental/mosaic/gpu/core.py"
_LOWERING = "jax/experimental/mosaic/gpu/dialect_lowering.py"

PATCH = Patch(
    subject="[Mosaic GPU] Size TMEM allocations by their layout",
    body="""
With Warpgroup semantics, the number of TMEM columns to allocate was
shape[1] // packing. That ignores the rows beyond 128, which continue in
further columns, so a (256, 96) accumulator got 128 columns although it
ends at column 192: the MMA wrote over its neighbours. It also took too
few columns for scales of more than 128 rows and for 16-bit accumulators
that ask for packing=2 but are laid out unpacked, and 16 times too many
for sparse metadata, of which a column holds 16 entries. The layout
knows the number (TMEMLayout.cols_in_shape), and it is an attribute of
the allocation by the time it is lowered.

The PTX ISA also asks that an allocation never takes more columns than
an earlier one of the same CTA, so allocations are now issued in order
of decreasing size, and the error for a kernel that takes too many
columns lists them.

Verified: compiled with ptxas for sm_100a, with the columns of every
tcgen05.alloc and dealloc read back from the PTX.
""",
    edits=(
        Edit(
            file=_CORE,
            scope="_TMEMDialectAlloc",
            anchor="collective: bool",
            action="after",
            code="num_cols: int",
        ),
        Edit(
            file=_CORE,
            scope="_TMEMDialectAlloc.alloc",
            anchor="ncols = self.shape[1] // self.packing",
            action="delete",
        ),
        Edit(
            file=_CORE,
            scope="_TMEMDialectAlloc.alloc",
            anchor="tcgen05.tmem_alloc_exact_ncols(ncols, exact=False)",
            code="tcgen05.tmem_alloc_exact_ncols(self.num_cols, exact=False)",
        ),
        Edit(
            file=_CORE,
            anchor="def _slice_smem($$$ARGS) -> ir.Value: $$$BODY",
            action="before",
            code='''
def _dialect_alloc_num_cols(
    shape: tuple[int, int],
    dtype: ir.Type,
    layout: tcgen05.TMEMLayout | None,
    packing: int,
) -> int:
  """The number of TMEM columns that an allocation takes.

  If the layout is yet to be inferred, this is the most that it can take.
  """
  bitwidth = utils.bitwidth(dtype)
  if layout is None and bitwidth == 2:
    # Only sparse metadata has 2-bit elements.
    layout = tcgen05.sparse_meta_layout()
  if layout is not None:
    return layout.cols_in_shape(shape, bitwidth)
  return max(shape[0] // tcgen05.TMEM_ROWS, 1) * shape[1] // packing
''',
        ),
        Edit(
            file=_CORE,
            scope="_construct_smem_reftree",
            anchor="alloc = _TMEMDialectAlloc($$$ARGS)",
            code="""
num_cols = _dialect_alloc_num_cols(shape, ir_dtype, layout, packing)
alloc = _TMEMDialectAlloc(
    addr_ref, shape, ir_dtype, packing, collective, num_cols
)
""",
        ),
        Edit(
            file=_CORE,
            scope="_launch",
            anchor="cols_used = 0",
            action="before",
            code="""
# PTX does not allow an allocation to take more columns than an earlier
# one of the same CTA.
tmem_allocs.sort(key=lambda alloc: alloc.num_cols, reverse=True)
""",
        ),
        Edit(
            file=_CORE,
            scope="_launch",
            within="if cols_used > tcgen05.TMEM_MAX_COLS: $$$",
            anchor="ValueError($MESSAGE)",
            code="""
ValueError(
    $MESSAGE
    f" The allocations are {[a.num_cols for a in tmem_allocs]} columns"
    " wide and each is rounded up to a power of two. To avoid the"
    " rounding, slice one allocation."
)
""",
        ),
        Edit(
            file=_LOWERING,
            anchor=(
                "@_register_lowering(mgpu.TmemAllocOp)\n"
                "def _tmem_alloc_op_lowering_rule($$$ARGS)"
                " -> Sequence[ir.Value]: $$$BODY"
            ),
            action="before",
            code='''
def _tmem_num_cols(ref_ty: ir.MemRefType, layout_attr: ir.Attribute) -> int:
  """Returns the number of TMEM columns taken by a reference."""
  layout = layouts_lib.from_layout_attr(layout_attr)
  assert isinstance(layout, fa.TiledLayout)
  tmem_layout = tcgen05.TMEMLayout(
      layout.tiling, layout.warp_dims, layout.lane_dims, layout.vector_dim
  )
  shape = cast(tuple[int, int], tuple(ref_ty.shape))
  return tmem_layout.cols_in_shape(shape, utils.bitwidth(ref_ty.element_type))
''',
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_alloc_op_lowering_rule",
            anchor="output_shape = ir.MemRefType(op.result.type).shape",
            action="delete",
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_alloc_op_lowering_rule",
            anchor="ncols = output_shape[1] // op.packing.value",
            code="""
layout = inference_utils.out_tmem_layouts(op)[0]
ncols = _tmem_num_cols(ir.MemRefType(op.result.type), layout)
""",
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_alloc_op_lowering_rule",
            anchor=(
                'cast_op.attributes["layout"] ='
                " inference_utils.out_tmem_layouts(op)[0]"
            ),
            code='cast_op.attributes["layout"] = layout',
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_dealloc_op_lowering_rule",
            anchor=(
                "packing: int ="
                ' ir.IntegerAttr(conversion_cast.attributes["packing"]).value'
            ),
            action="delete",
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_dealloc_op_lowering_rule",
            anchor="output_shape = ir.MemRefType(op.tmem_ref.type).shape",
            action="delete",
        ),
        Edit(
            file=_LOWERING,
            scope="_tmem_dealloc_op_lowering_rule",
            anchor="ncols = output_shape[1] // packing",
            code="""
ncols = _tmem_num_cols(
    ir.MemRefType(op.tmem_ref.type), conversion_cast.attributes["layout"]
)
""",
        ),
    ),
    tests=("tests/mosaic/gpu_tmem_alloc_test.py",),
)
