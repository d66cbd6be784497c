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
"""Tests of the series as a whole, through Pallas."""

from patches.model import Edit, Patch

_TEST = "tests/pallas/mosaic_gpu_test.py"


def _more_rows(test: str, old: int) -> Edit:
  """Adds twice the rows to a test."""
  return Edit(
      file=_TEST, scope=f"PallasCallTCGen05Test.{test}",
      anchor=f"parameterized.product(m=[{old}])",
      selector="keyword_argument",
      code=f"m=[{old}, {2 * old}]",
      checkout_only=True,
  )


def _skip(test: str, before: str) -> Edit:
  """Skips what takes all columns for the accumulator."""
  return Edit(
      file=_TEST, scope=f"PallasCallTCGen05Test.{test}",
      anchor=before,
      action="before",
      code="""
if m * n >= 128 * 512:
  self.skipTest("Accumulator and metadata do not fit into TMEM together")
""",
      checkout_only=True,
  )


PATCH = Patch(
    subject="[Pallas:MGPU] Test tcgen05_mma over several tiles",
    body="""
Everything that tcgen05.mma can do over several M and N tiles, in both
lowering semantics, issued by a warpgroup or by a single warp: dense and
sparse, block scales, A in TMEM, two CTAs; by one call, or by calls for
parts of A that are sliced from the same references.

Verified: run on a simulator of the PTX (not on a Blackwell GPU), and
compiled with ptxas for sm_100a.
""",
    edits=(
        _more_rows("test_simple_sparse_matmul", 128),
        _skip("test_simple_sparse_matmul", "k = 128"),
        _more_rows("test_block_scaled_sparse_matmul", 128),
        _skip("test_block_scaled_sparse_matmul", "in_dtype = jnp.float8_e5m2"),
        _more_rows("test_sparse_matmul_collective", 256),
        Edit(
            file=_TEST,
            scope="PallasCallTCGen05Test.test_sparse_matmul_collective.kernel",
            anchor="pl.ds(cluster_idx, m_block // 128)",
            code="pl.ds(cluster_idx * (m_block // 128), m_block // 128)",
            checkout_only=True,
        ),
    ),
    tests=("tests/mosaic/pallas_tiles_test.py",),
)
