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
"""One call of tcgen05.mma of every kind that fits, picked pairwise.

The factors are those of `_factors` below. Their cross product has millions of
cases, so each family (dense or sparse, one CTA or two) is covered pairwise: for
any two values of two factors, there is a case in the family with both, unless
none can have both. The reasons are printed and counted. For every case the
result is compared with a dense matmul, and the operands of each instruction are
decoded from the PTX.

Takes about ten minutes, so it only runs with MOSAIC_GPU_FULL_TESTS=1
(``make test-full``); else a few cases of each family do.
"""

from collections.abc import Iterator
import dataclasses
import functools
import inspect
import math
import os
from typing import Any

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
from jax._src import dtypes
from jax.experimental.mosaic.gpu.simulator import asynchrony
import jax.numpy as jnp
import pairwise

_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn

# Of 227 KiB, Mosaic GPU needs a few bytes for barriers and the like.
_SMEM_BYTES = 226 * 1024


@dataclasses.dataclass(frozen=True)
class _Type:
  """Element types of A and B, of D, and the block scales of a dense A."""

  dtype: Any
  acc_dtype: Any = jnp.float32
  scale_dtype: Any = None
  scale_block: int = 0


_TYPES = {
    "f16": _Type(jnp.float16),
    "f16 to f16": _Type(jnp.float16, jnp.float16),
    "bf16": _Type(jnp.bfloat16),
    "e4m3": _Type(E4M3),
    "e4m3 to f16": _Type(E4M3, jnp.float16),
    "e5m2": _Type(E5M2),
    "e4m3 x e5m2": _Type((E4M3, E5M2)),
    "e5m2 x e4m3": _Type((E5M2, E4M3)),
    "e5m2 x e4m3 to f16": _Type((E5M2, E4M3), jnp.float16),
    "int8": _Type(jnp.int8, jnp.int32),
    "mxfp8": _Type(E4M3, scale_dtype=E8M0, scale_block=32),
    "mxfp8 e5m2": _Type(E5M2, scale_dtype=E8M0, scale_block=32),
    "mxfp8 e4m3 x e5m2": _Type((E4M3, E5M2), scale_dtype=E8M0, scale_block=32),
    "mxfp8 e5m2 x e4m3": _Type((E5M2, E4M3), scale_dtype=E8M0, scale_block=32),
    "mxfp4": _Type(E2M1, scale_dtype=E8M0, scale_block=32),
    "mxfp4 in blocks of 16": _Type(E2M1, scale_dtype=E8M0, scale_block=16),
    "nvfp4": _Type(E2M1, scale_dtype=E4M3, scale_block=16),
}


def _bits(type_name: str) -> int:
  dtype = _TYPES[type_name].dtype
  return dtypes.itemsize_bits(dtype[0] if isinstance(dtype, tuple) else dtype)


def _factors(sparse: bool, collective: bool) -> dict[str, tuple[Any, ...]]:
  return {
      "sparse": (sparse,),
      "collective": (collective,),
      "m": (128, 256, 384, 512),
      "n": (16, 48, 96, 128, 176, 240, 256, 272, 384, 496, "largest"),
      "type": tuple(_TYPES),
      "a": ("K-major", "M-major", "TMEM"),
      "b": ("K-major", "N-major"),
      "a_swizzle": (32, 64, 128),
      "b_swizzle": (32, 64, 128),
      "k": ("smallest", "twice", "largest"),
      "accumulate": (False, True, "argument", "twice", "loop"),
      "order": ("eager", "other"),
  }


def _n_step(type_name, collective, b, b_swizzle) -> int:
  """What N has to be a multiple of."""
  step = 32 if collective and type_name == "int8" else 16
  if b == "N-major":
    step = math.lcm(step, 8 * b_swizzle // _bits(type_name))
  return step


def _k_step(type_name, sparse, a_swizzle, b_swizzle) -> int:
  """The smallest K."""
  bits = _bits(type_name)
  step = 8 * max(a_swizzle * (1 + sparse), b_swizzle) // bits
  if block := _TYPES[type_name].scale_block:
    step = math.lcm(step, 4 * block * (1 + sparse))
  if sparse:
    step = math.lcm(step, 128 if bits >= 8 else 256)  # A tile of metadata.
  return step


def _fits(matmul: test_util.Matmul) -> bool:
  smem_bits = sum(
      math.prod(ty.shape) * dtypes.itemsize_bits(ty.dtype)
      for ty in matmul.operand_types().values()
  )
  if smem_bits > 8 * _SMEM_BYTES:
    return False
  try:
    matmul.columns()
  except ValueError:
    return False
  return True


def _can_be_shared(matmul: test_util.Matmul) -> bool:
  """Whether two CTAs can load the scales of B together, each one half."""
  if not matmul.collective or matmul.scale_dtype is None:
    return True
  shape = matmul.operand_types()["b_scale"].shape
  return next(size for size in shape if size != 1) % 2 == 0


@functools.cache
def _matmul(
    sparse, collective, m, n, type_name, a, b, a_swizzle, b_swizzle, k
) -> test_util.Matmul | None:
  """Returns the call, or None if its operands don't fit."""
  ty = _TYPES[type_name]
  step = _k_step(type_name, sparse, a_swizzle, b_swizzle)
  matmul = test_util.Matmul(
      m, 0, step, ty.dtype, ty.acc_dtype, sparse, a != "M-major",
      b == "K-major", a_swizzle, b_swizzle, ty.scale_dtype,
      ty.scale_block * (1 + sparse), a == "TMEM", collective,
  )
  widths = [n]
  if n == "largest":
    n_step = _n_step(type_name, collective, b, b_swizzle)
    widths = range(512 // n_step * n_step, 0, -n_step)
    if collective:
      widths = [w for w in widths if w <= 128]
  fitting = [dataclasses.replace(matmul, n=w) for w in widths]
  matmul = next((x for x in fitting if _fits(x)), None)
  if matmul is None or k == "smallest":
    return matmul
  deeper = dataclasses.replace(matmul, k=2 * step)
  if k == "twice":
    return deeper if _fits(deeper) else None
  while _fits(deeper):
    if _can_be_shared(deeper):
      matmul = deeper
    deeper = dataclasses.replace(deeper, k=deeper.k + step)
  return matmul


_SHAPE = (
    "sparse", "collective", "m", "n", "type", "a", "b", "a_swizzle",
    "b_swizzle", "k",
)
_RULES = (
    pairwise.Rule(
        "two CTAs: N <= 128 per CTA", ("collective", "n"),
        lambda collective, n: not collective or n == "largest" or n <= 128,
    ),
    pairwise.Rule(
        "D takes more than 512 columns", ("collective", "m", "n"),
        lambda collective, m, n: (
            n == "largest" or m // 128 * n * (1 + collective) <= 512
        ),
    ),
    pairwise.Rule(
        "4-bit A must be K-major", ("type", "a"),
        lambda type_name, a: _bits(type_name) > 4 or a != "M-major",
    ),
    pairwise.Rule(
        "4-bit B must be K-major", ("type", "b"),
        lambda type_name, b: _bits(type_name) > 4 or b != "N-major",
    ),
    pairwise.Rule(
        "sparse: swizzle 32 is too narrow for a K-major B",
        ("sparse", "b", "b_swizzle"),
        lambda sparse, b, b_swizzle: not (
            sparse and b == "K-major" and b_swizzle == 32
        ),
    ),
    pairwise.Rule(
        "two CTAs, int8: N must be a multiple of 32",
        ("type", "collective", "n"),
        lambda type_name, collective, n: n == "largest" or not (
            collective and type_name == "int8" and n % 32
        ),
    ),
    pairwise.Rule(
        "N must be a multiple of the N-major tiles of B",
        ("type", "collective", "n", "b", "b_swizzle"),
        lambda type_name, collective, n, b, b_swizzle: (
            n == "largest"
            or not n % _n_step(type_name, collective, b, b_swizzle)
        ),
    ),
    pairwise.Rule(
        "the operands don't fit into SMEM and TMEM", _SHAPE,
        lambda *values: _matmul(*values) is not None,
    ),
)


@functools.cache
def _other_order() -> Any:
  """An order of asynchronous operations: a seed, if those are supported."""
  parameter = inspect.signature(asynchrony.Asynchrony).parameters["order"]
  return 1234 if "int" in str(parameter.annotation) else "lazy"


@functools.cache
def _family(sparse: bool, collective: bool) -> pairwise.Cover:
  return pairwise.cover(_factors(sparse, collective), _RULES)


_FAMILIES = {
    f"{'sparse' if sparse else 'dense'}_{'two_ctas' if pair else 'one_cta'}": (
        sparse, pair,
    )
    for sparse in (False, True)
    for pair in (False, True)
}


def _cases() -> Iterator[dict[str, Any]]:
  for name, family in _FAMILIES.items():
    for i, case in enumerate(_family(*family).cases):
      if _FULL or i % 40 == 0:
        yield {"testcase_name": f"_{name}_{i}", "case": case}


class FullMatrixTest(test_util.TestCase):

  @parameterized.named_parameters(*_cases())
  def test_case(self, case):
    matmul = dataclasses.replace(
        _matmul(*(case[f] for f in _SHAPE)), accumulate=case["accumulate"]
    )
    order = "eager" if case["order"] == "eager" else _other_order()
    matmul.check(self, order=order)
    matmul.check_instructions(self)

  @parameterized.named_parameters(
      (f"_{name}", *family) for name, family in _FAMILIES.items()
  )
  def test_cover(self, sparse, collective):
    cover = _family(sparse, collective)
    covered = set()
    for case in cover.cases:
      for rule in _RULES:
        self.assertTrue(rule.holds(*(case[f] for f in rule.factors)))
      covered.update(pairwise.pairs({f: (v,) for f, v in case.items()}))
    expected = set(pairwise.pairs(_factors(sparse, collective)))
    self.assertEqual(covered | cover.impossible.keys(), expected)
    self.assertEmpty(covered & cover.impossible.keys())
    print(
        f"{'sparse' if sparse else 'dense'}, {1 + collective} CTA:"
        f" {len(cover.cases)} cases for {len(covered)} pairs;"
        f" {len(cover.impossible)} impossible pairs:"
    )
    for reason, count in cover.reasons().most_common():
      print(f"  {count} {reason}")


if __name__ == "__main__":
  absltest.main()
