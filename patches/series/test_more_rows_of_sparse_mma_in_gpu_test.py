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
"""Upstream's own tests, which only a checkout of JAX has."""

import functools

from patches.model import Edit, Patch

_TEST = "tests/mosaic/gpu_test.py"
_K = "k = 256"


def _more_rows(test: str, old: int, before: str) -> tuple[Edit, ...]:
  """Adds twice the rows to a test, as far as they fit into TMEM."""
  edit = functools.partial(Edit, file=_TEST, scope=test, checkout_only=True)
  return (
      edit(
          anchor=f"parameterized.product(m=({old},))",
          selector="keyword_argument",
          code=f"m=({old}, {2 * old})",
          with_comment=True,
      ),
      edit(
          anchor=before,
          action="before",
          code=f"""
if m > {old} and n > 128:
  self.skipTest("Accumulator and metadata do not fit into TMEM together")
""",
      ),
  )


PATCH = Patch(
    subject="[Mosaic GPU][NFC] Test more rows of sparse MMA in gpu_test",
    body="""
The tests of sparse MMA had a TODO for more than one tile of rows. They
take two now, where the accumulator and the metadata fit into TMEM: each
allocation is rounded up to a power of two columns.
""",
    edits=(
        *_more_rows("TCGen05Test.test_mma_sparse", 128, _K),
        *_more_rows("TCGen05Test.test_mma_sparse_lhs_tmem", 128, _K),
        *_more_rows("TCGen05Test.test_mma_sparse_collective", 256, _K),
        *_more_rows(
            "TCGen05Test.test_mma_block_scaled_sparse", 128,
            "out_jax_dtype = jnp.float32",
        ),
        *_more_rows(
            "MosaicGpuDialectTCGen05Test.test_tcgen05_mma_sparse", 128, _K
        ),
    ),
)
