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
"""Metadata of another shape than A gets through the verifier of the MMA op."""

from patches.model import Edit, Patch

_LOWERING = "jax/experimental/mosaic/gpu/dialect_lowering.py"
_PRIMITIVES = "jax/_src/pallas/mosaic_gpu/primitives.py"

_OLD = ("0.11.1", "0.11.2")
_UTIL = "tests/mosaic/pallas_tiles_test_util.py"

PATCH = Patch(
    subject=(
        "[Pallas:MGPU] Support sparse 4-bit and tf32 MMA in Warpgroup semantics"
    ),
    body="""
The verifier of the tcgen05_mma op wants sparse metadata to have the
shape of A. That is right for 8 and 16-bit types only: two entries
describe two stored elements of A there, but four of them (in pairs)
with 4-bit types on sm_100, and one with tf32.

The op now gets a view of the metadata with the shape of A. It is a
slice_tmem of whatever the metadata is (an allocation, or a slice, at a
static or a dynamic position), and the lowering of the op derives the
real shape from that of A again.

The changelog of Pallas gets an entry for what tcgen05_mma can do now
with several tiles.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        # There, interpret mode does not raise races, and may complain first
        # about a phase that no thread observed.
        Edit(
            file=_UTIL,
            anchor='RACE = "RACE DETECTED"',
            code='RACE = "RACE DETECTED|no threads observed phase"',
            versions=_OLD,
        ),
        Edit(
            file=_UTIL,
            scope="Matmul.check_interpreted",
            anchor="result = np.asarray(self.kernel()(*args))",
            code="""
$$$SELF
races = gpu_callbacks.get_races()
test.assertFalse(races.races_found, "RACE DETECTED")
""",
            versions=_OLD,
        ),
        Edit(
            file=_LOWERING,
            scope="_tcgen05_mma_op_lowering_rule",
            anchor=(
                "a_sparse_metadata ="
                " _tmem_ref_from_ir(op.a_sparse_metadata, $LAYOUT)"
            ),
            action="after",
            code="""
# The verifier of the op makes its type have the shape of A.
m, a_k = op.a.type.shape
group_elems = tcgen05.sparse_group_elems(op.a.type.element_type)
if group_elems != 4:
  entries = a_k * 2 // group_elems * 2
  a_sparse_metadata = dataclasses.replace(
      a_sparse_metadata, shape=(m, entries)
  )
""",
        ),
        Edit(
            file=_PRIMITIVES,
            scope="_tcgen05_mma_lowering_wg",
            anchor=(
                "a_sparse_metadata_ref = handle_transforms_and_get_ref("
                "a_sparse_metadata_transforms_tree, $$$REST)"
            ),
            action="after",
            code="""
if a_sparse_metadata_ref is not None:
  a_sparse_metadata_ref = _sparse_metadata_like_a(a_sparse_metadata_ref, a_ref)
""",
        ),
        Edit(
            file=_PRIMITIVES,
            anchor="tcgen05_commit_arrive_p = $PRIMITIVE",
            action="before",
            code='''
def _sparse_metadata_like_a(metadata: ir.Value, a: ir.Value) -> ir.Value:
  """Returns metadata with the shape of A, as the MMA op's verifier wants it.

  For 4-bit types and tf32 that is just a view: how many elements of A two
  entries describe depends on the type. The lowering of the op undoes this.
  """
  m, a_k = a.type.shape
  group_elems = tcgen05.sparse_group_elems(a.type.element_type)
  expected_shape = [m, a_k * 2 // group_elems * 2]
  if metadata.type.shape != expected_shape:
    raise ValueError(
        f"A sparse metadata shape mismatch: expected {expected_shape}, got"
        f" {metadata.type.shape}"
    )
  if expected_shape == [m, a_k]:
    return metadata
  ty = ir.MemRefType.get(
      [m, a_k],
      metadata.type.element_type,
      memory_space=mgpu_utils.tmem(),
  )
  return mgpu.dialect.slice_tmem(ty, metadata, 0)
''',
        ),
        Edit(
            file="docs/pallas/CHANGELOG.md",
            kind="text",
            anchor="-->",
            action="after",
            code="""

## Unreleased

* New functionality

  * Mosaic GPU: {func}`jax.experimental.pallas.mosaic_gpu.tcgen05_mma` takes
    operands of several tiles, dense, sparse and block-scaled, as far as they
    fit into TMEM.
""",
            checkout_only=True,
        ),
    ),
    new_files=(_UTIL,),
    tests=("tests/mosaic/pallas_sparse_metadata_shape_test.py",),
)
