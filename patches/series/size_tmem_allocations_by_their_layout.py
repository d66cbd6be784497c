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

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"
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
the allocation once layouts are inferred.

So that is also when the allocations are checked to fit: kernels that
took too many columns by the old estimate may fit, and others would have
waited forever for columns that are not free. The PTX ISA also asks that
an allocation never takes more columns than an earlier one of the same
CTA, so allocations are now issued in order of decreasing size. The
error for a kernel that takes too many columns lists them.

Verified: compiled with ptxas for sm_100a, with the columns of every
tcgen05.alloc and dealloc read back from the PTX.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            anchor=(
                "def tmem_alloc_exact_ncols(ncols: int, exact: bool) -> int:"
                " $$$BODY"
            ),
            action="after",
            code='''
def check_tmem_allocs(num_cols: list[int]) -> None:
  """Raises a ``ValueError`` if allocations of so many columns do not fit."""
  total = sum(tmem_alloc_exact_ncols(n, exact=False) for n in num_cols)
  if total > TMEM_MAX_COLS:
    raise ValueError(
        "Total TMEM allocation exceeds memory limit. Requested"
        f" {total} columns which exceeds limit of {TMEM_MAX_COLS}. The"
        f" allocations are {num_cols} columns wide and each is rounded"
        " up to a power of two. To avoid the rounding, slice one allocation."
    )
''',
        ),
        Edit(
            file=_CORE,
            scope="_launch",
            anchor="cols_used = 0",
            code="""
# With Warpgroup semantics, dialect_lowering.order_tmem_allocs does this.
if lowering_semantics == LoweringSemantics.Lane:
  # PTX does not allow an allocation to take more columns than an earlier
  # one of the same CTA.
  tmem_allocs.sort(key=_num_cols, reverse=True)
  tcgen05.check_tmem_allocs([_num_cols(alloc) for alloc in tmem_allocs])
""",
        ),
        Edit(
            file=_CORE,
            scope="_launch",
            anchor="cols_used += alloc.alloc()",
            code="alloc.alloc()",
        ),
        Edit(
            file=_CORE,
            scope="_launch",
            anchor="if cols_used > tcgen05.TMEM_MAX_COLS: $$$",
            action="delete",
        ),
        Edit(
            file=_CORE,
            anchor="def _slice_smem($$$ARGS) -> ir.Value: $$$BODY",
            action="before",
            code="""
def _num_cols(alloc: _TMEMAlloc | _TMEMDialectAlloc) -> int:
  assert isinstance(alloc, _TMEMAlloc)
  return alloc.num_cols
""",
        ),
        Edit(
            file=_CORE,
            scope="lower_mgpu_module",
            anchor="dialect_lowering.lower_mgpu_dialect($$$ARGS)",
            action="before",
            code="dialect_lowering.order_tmem_allocs(module)",
        ),
        Edit(
            file=_LOWERING,
            anchor="from . import launch_context as lc",
            action="after",
            code="from . import layout_inference",
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
  layout = layout_inference._tmem_layout_from_layout_attr(layout_attr)
  shape = cast(tuple[int, int], tuple(ref_ty.shape))
  return layout.cols_in_shape(shape, utils.bitwidth(ref_ty.element_type))


def order_tmem_allocs(module: ir.Module) -> None:
  """Issues the largest TMEM allocations first, and checks that all of them fit.

  PTX does not allow an allocation to take more columns than an earlier one of
  the same CTA. Needs the layouts to be inferred.

  Raises:
    ValueError: If they take more columns than there are.
  """
  permits = []

  def find_permits(op: ir.OpView):
    if isinstance(op, mgpu.TmemRelinquishAllocPermitOp):
      permits.append(op)

  for op in module.body:
    layout_inference.traverse_op(op, find_permits)
  for permit in permits:
    allocs = []
    for op in permit.operation.block:
      if isinstance(op, mgpu.TmemAllocOp):
        layout = inference_utils.out_tmem_layouts(op)[0]
        num_cols = _tmem_num_cols(ir.MemRefType(op.result.type), layout)
        allocs.append((num_cols, op))
    allocs.sort(key=lambda alloc: alloc[0], reverse=True)
    tcgen05.check_tmem_allocs([num_cols for num_cols, _ in allocs])
    for _, op in allocs:
      op.operation.move_before(permit.operation)
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
            scope="_tmem_alloc_op_lowering_rule",
            anchor='cast_op.attributes["packing"] = op.packing',
            action="delete",
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
