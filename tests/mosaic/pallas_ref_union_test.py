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
"""Tests of RefUnions of TMEM references."""

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Layout = plgpu.Layout
SEMANTICS = (
    plgpu.LoweringSemantics.Lane, plgpu.LoweringSemantics.Warpgroup
)


class PallasRefUnionTest(test_util.TestCase):

  def check_groups(self, semantics, *groups, dtype=jnp.float32, packed=None):
    """Stores to the references of a group, loads them back, then the next.

    Args:
      semantics: The lowering semantics.
      *groups: Groups of (shape of a reference, layout of its transfers).
      dtype: The element type of the references.
      packed: Whether a TMEM column holds several elements.
    """
    cases = [case for group in groups for case in group]
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape, _ in cases]

    def body(*refs):
      *refs, union = refs
      transfers = iter(zip(cases, refs[: len(cases)], refs[len(cases) :]))
      for group in union:
        todo = [(tmem, *next(transfers)) for tmem in group]
        for tmem, (_, layout), src, _ in todo:
          value = plgpu.load(src, layout=layout, optimized=False)
          plgpu.async_store_tmem(tmem, value)
        plgpu.commit_tmem()
        for tmem, (_, layout), _, dst in todo:
          value = plgpu.async_load_tmem(tmem, layout=layout)
          test_util.store(dst, value)
        plgpu.wait_load_tmem()

    kernel = plgpu.kernel(
        body,
        out_type=types,
        scratch_types=[
            plgpu.RefUnion(*(
                [plgpu.TMEM(shape, dtype, packed=packed) for shape, _ in group]
                for group in groups
            ))
        ],
        compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
    )
    rng = np.random.default_rng(0)
    args = [rng.integers(0, 2048, ty.shape).astype(dtype) for ty in types]
    for result, arg in zip(test_util.run(jax.jit(kernel), *args), args):
      np.testing.assert_array_equal(result, arg)

  @parameterized.product(semantics=SEMANTICS)
  def test_several_row_tiles(self, semantics):
    self.check_groups(
        semantics,
        [((256, 96), Layout.TCGEN05)],
        [((128, 64), Layout.TCGEN05), ((256, 32), Layout.TCGEN05)],
    )

  @parameterized.product(semantics=SEMANTICS)
  def test_half_a_row_tile(self, semantics):
    self.check_groups(
        semantics, [((64, 32), Layout.WGMMA), ((128, 64), Layout.TCGEN05)]
    )

  @parameterized.product(semantics=SEMANTICS)
  def test_last_reference_of_two_columns(self, semantics):
    native = Layout.TCGEN05_TMEM_NATIVE
    self.check_groups(
        semantics,
        [((128, 8), native), ((128, 2), native)],
        [((128, 4), native)],
    )

  @parameterized.product(semantics=SEMANTICS)
  def test_last_reference_of_two_packed_columns(self, semantics):
    native = Layout.TCGEN05_TMEM_NATIVE
    self.check_groups(
        semantics,
        [((128, 8), native), ((128, 4), native)],
        [((128, 8), native)],
        dtype=jnp.float16,
        packed=True,
    )


if __name__ == "__main__":
  absltest.main()
