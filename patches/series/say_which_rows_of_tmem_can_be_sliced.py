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
"""The reason why rows of TMEM can't be sliced, in Warpgroup semantics."""

from patches.model import Edit, Patch

_LAYOUT_INFERENCE = "jax/experimental/mosaic/gpu/layout_inference.py"

PATCH = Patch(
    subject="[Mosaic GPU] Say which rows of TMEM can be sliced",
    body="""
A slice of TMEM along rows that is not one of whole row tiles has no
layout. With Warpgroup semantics, layout inference finds that out before
the lowering can say so, and all that a user got to see was "Failed to
infer a possible set of layouts". It now looks for such slices when it
failed, and says which ones there are.

The tests store, load and slice several row tiles through Pallas, in
both semantics.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_LAYOUT_INFERENCE,
            scope="_check_unsatisfiable_divisibility_constraints",
            action="before",
            code="""
def _check_tmem_row_slices(ctx: DerivationContext) -> None:
  \"""Raises a `ValueError` if rows of TMEM are sliced, but not by row tiles.\"""
  tile_rows = tcgen05.TMEM_ROWS
  for value_sites in ctx.value_sites_for_variable.values():
    for op in (value_site.operation for value_site in value_sites):
      if not isinstance(op, memref.SubViewOp) or not _is_tmem_ref(op.source):
        continue
      source_rows = op.source.type.shape[0]
      rows, row = op.static_sizes[0], op.static_offsets[0]
      if rows == source_rows:
        continue
      if row == ir.ShapedType.get_dynamic_size():
        divisor, start = dynamic_gcd(rows, op.offsets[0]), "a dynamic row"
      else:
        divisor, start = math.gcd(rows, row), f"row {row}"
      if source_rows < tile_rows:
        reason = (
            f": the {source_rows} rows of this reference are not contiguous."
            " Allocate a TMEM reference for each part instead."
        )
      elif divisor % tile_rows:
        reason = (
            f", except by tiles of {tile_rows} rows: got {rows} rows from"
            f" {start} on, of which both must be (known to be) multiples of"
            f" {tile_rows}."
        )
      else:
        continue
      raise _construct_value_error_with_op_stacktrace(
          "Failed to infer a possible set of layouts: TMEM cannot be sliced"
          f" along rows{reason}",
          op,
      )
""",
        ),
        Edit(
            file=_LAYOUT_INFERENCE,
            scope="_check_unsatisfiable_divisibility_constraints",
            anchor="divides_per_var = $CONSTRAINTS",
            action="before",
            code="_check_tmem_row_slices(ctx)",
        ),
        Edit(
            file=_LAYOUT_INFERENCE,
            scope="_check_tmem_row_slices",
            anchor="_construct_value_error_with_op_stacktrace($$$MESSAGE, op)",
            code="""
_construct_value_error_with_op_stacktrace($$$MESSAGE, op.operation)
""",
            versions=("0.11.1",),
        ),
    ),
    tests=("tests/mosaic/pallas_tmem_row_tiles_test.py",),
)
