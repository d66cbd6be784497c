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
"""A stand-in for a checkout of JAX, made of a wheel.

A wheel lacks the files that only JAX's repository has, and this repository
holds no text of JAX. So those that the series edits are written here anew, with
no more in them than what the edits are anchored at.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from patches import engine, trees

# What the BUILD files of JAX load, as far as targets of ours need it.
_LOADS = {
    "jax/experimental/mosaic/gpu/examples": ("py_library",),
    "jax/experimental": (
        "if_cuda_is_configured",
        "py_deps",
        "py_library_providing_imports_info",
    ),
    "tests/mosaic": (
        "if_cuda_is_configured",
        "jax_multiplatform_test",
        "jax_py_test",
        "py_deps",
    ),
}

_CHANGELOG = """\
# Changelog

<!--
How to write entries.
-->

## Released

* Changes

  * One.
"""


def _test(name: str, m: str, *statements: str) -> str:
  """Returns a test that has no more than the edits of it are anchored at."""
  body = "".join(f"    {statement}\n" for statement in statements)
  return (
      "  @parameterized.product(\n"
      "      swizzle=(64, 128),\n"
      f"      {m}\n"
      "      n=(128, 192, 256),\n"
      "  )\n"
      f"  def {name}(self, m, n, swizzle):\n"
      f"{body}\n"
  )


_K = "k = 256"
_GPU_TEST = (
    "class TCGen05Test(TestCase):\n\n"
    + _test("test_mma_sparse", "m=(128,),  # TODO", _K)
    + _test("test_mma_sparse_lhs_tmem", "m=(128,),  # TODO", _K)
    + _test("test_mma_sparse_collective", "m=(256,),  # TODO", _K)
    + _test(
        "test_mma_block_scaled_sparse", "m=(128,),",
        "out_jax_dtype = jnp.float32",
    )
    + "\nclass MosaicGpuDialectTCGen05Test(TestCase):\n\n"
    + _test("test_tcgen05_mma_sparse", "m=(128,),", _K)
)
_PALLAS_TEST = (
    "class PallasCallTCGen05Test(PallasTCGen05Test):\n\n"
    + _test("test_simple_sparse_matmul", "m=[128],", "k = 128")
    + _test(
        "test_block_scaled_sparse_matmul", "m=[128],",
        "in_dtype = jnp.float8_e5m2",
    )
    + _test(
        "test_sparse_matmul_collective", "m=[256],",
        "def kernel(a_sparse_gmem, cluster_idx, m_block):",
        "  return pl.ds(cluster_idx, m_block // 128)",
    )
)


def _build(symbols: Sequence[str]) -> str:
  loads = "".join(f'    "{symbol}",\n' for symbol in symbols)
  return f'load(\n    "//jaxlib:jax.bzl",\n{loads})\n\nlicenses(["notice"])\n'


FILES = {f"{package}/BUILD": _build(s) for package, s in _LOADS.items()} | {
    "docs/pallas/CHANGELOG.md": _CHANGELOG,
    "tests/mosaic/gpu_test.py": _GPU_TEST,
    "tests/pallas/mosaic_gpu_test.py": _PALLAS_TEST,
}


def make(wheel: engine.Tree, root: pathlib.Path) -> engine.Tree:
  """Makes a tree that is laid out like a checkout of the same release."""
  trees.copy(wheel.root, root)
  engine.write(root, {path: text.encode() for path, text in FILES.items()})
  return engine.Tree(root, wheel.version)
