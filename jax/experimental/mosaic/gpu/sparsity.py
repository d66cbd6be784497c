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
"""Structured sparsity: pruning, compression and its inverse.

The sparse tensor cores take a matrix A of which each row keeps two of every
four elements along K (2:4), or, with 4-bit types, two pairs of neighbours of
every four pairs (4:8). A is stored compressed: the kept elements, and for each
one (or pair) its position among the four, in ascending order. See
https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-sparse-matrices

All functions work under ``jax.jit`` and are differentiable in the values; what
is kept is taken to be constant.
"""

from __future__ import annotations

import jax
from jax import lax
import jax.numpy as jnp
from jax._src import dtypes

GROUP = 4  # Positions to choose from.
KEPT = 2  # Positions that are kept.


def elements_per_position(dtype) -> int:
  """Elements that a position stands for: two with 4-bit types, else one."""
  return 2 if dtypes.itemsize_bits(jnp.dtype(dtype)) == 4 else 1


def _check(a: jax.Array, what: str, multiple: int) -> None:
  if a.ndim != 2:
    raise ValueError(f"Expected {what} of two dimensions, got shape {a.shape}")
  if a.shape[1] % multiple:
    raise ValueError(
        f"Expected {what} of type {a.dtype} to have a multiple of {multiple}"
        f" columns, got shape {a.shape}. Pad it with zeros"
    )


def _groups(a: jax.Array) -> jax.Array:
  """Reshapes (M, K) to (M, groups, 4, elements of a position)."""
  width = elements_per_position(a.dtype)
  _check(a, "a matrix", GROUP * width)
  m, k = a.shape
  return a.reshape(m, k // (GROUP * width), GROUP, width)


def kept_positions(a: jax.Array) -> jax.Array:
  """Returns the two positions of the largest magnitude in every group of four.

  With 4-bit types, the magnitude of a pair is the sum of both. Of equals, the
  first ones are kept.

  Args:
    a: A matrix of shape (M, K).

  Returns:
    Positions of shape (M, groups, 2), dtype uint8, ascending.
  """
  magnitude = jnp.abs(_groups(a).astype(jnp.float32)).sum(axis=-1)
  # NaNs count as the largest, so that they are not dropped silently.
  magnitude = jnp.where(jnp.isnan(magnitude), jnp.inf, magnitude)
  order = jnp.argsort(-magnitude, axis=-1, stable=True)[..., :KEPT]
  return jnp.sort(lax.stop_gradient(order), axis=-1).astype(jnp.uint8)


def prune(a: jax.Array) -> jax.Array:
  """Returns a matrix with the smaller half of every group zeroed.

  Args:
    a: A matrix of shape (M, K), K a multiple of 4 (4-bit types: 8).
  """
  groups = _groups(a)
  positions = kept_positions(a)
  kept = (positions[..., None] == jnp.arange(GROUP, dtype=jnp.uint8)).any(-2)
  zero = jnp.zeros((), a.dtype)
  return jnp.where(kept[..., None], groups, zero).reshape(a.shape)


def compress(
    a: jax.Array, positions: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
  """Returns the values at the kept positions, and the positions.

  Args:
    a: A matrix of shape (M, K). Whatever is at other positions is dropped.
    positions: What to keep, as `kept_positions` returns it (the default).

  Returns:
    The values, of shape (M, K // 2), and the positions, of shape (M, groups, 2)
    and dtype uint2, which ``plgpu.format_tcgen05_sparse_metadata`` lays out for
    the hardware.
  """
  groups = _groups(a)
  if positions is None:
    positions = kept_positions(a)
  expected = (*groups.shape[:2], KEPT)
  if positions.shape != expected:
    raise ValueError(
        f"Expected positions of shape {expected} for a matrix of shape"
        f" {a.shape} and type {a.dtype}, got {positions.shape}"
    )
  index = positions.astype(jnp.int32)[..., None]
  values = jnp.take_along_axis(groups, index, axis=2)
  return values.reshape(a.shape[0], -1), positions.astype(jnp.uint2)


def decompress(values: jax.Array, positions: jax.Array) -> jax.Array:
  """Returns the dense matrix that a compressed one stands for.

  Args:
    values: The kept elements, of shape (M, K // 2).
    positions: Their positions, of shape (M, groups, 2).

  Returns:
    A matrix of shape (M, K).
  """
  width = elements_per_position(values.dtype)
  _check(values, "values", KEPT * width)
  m, stored = values.shape
  expected = (m, stored // (KEPT * width), KEPT)
  if positions.shape != expected:
    raise ValueError(
        f"Expected positions of shape {expected} for values of shape"
        f" {values.shape} and type {values.dtype}, got {positions.shape}"
    )
  # (M, groups, kept, 4): where each kept element goes.
  goes = positions.astype(jnp.uint8)[..., None] == jnp.arange(
      GROUP, dtype=jnp.uint8
  )
  kept = values.reshape(*expected, 1, width)
  zero = jnp.zeros((), values.dtype)
  placed = jnp.where(goes[..., None], kept, zero)
  # The positions of a group differ, so at most one of both is not zero.
  first, second = placed[:, :, 0], placed[:, :, 1]
  dense = jnp.where(goes[:, :, 1, :, None], second, first)
  return dense.reshape(m, stored * GROUP // KEPT)
