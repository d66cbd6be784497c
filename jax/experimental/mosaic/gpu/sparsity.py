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
four elements along K (2:4). With 4-bit types, these are two pairs of neighbours
of every four pairs (4:8), and with float32 (tf32) two halves of every four, so
that one of every two elements is kept (1:2). A is stored compressed: the kept
elements, and the two positions among the four, in ascending order. Those of the
first element of float32 are 0 and 1, those of the second 2 and 3. See
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


def _units(dtype) -> tuple[int, int, int]:
  """What is kept or dropped as one.

  Returns:
    How many units a group has, how many of them are kept, and the elements of a
    unit.
  """
  bits = dtypes.itemsize_bits(jnp.dtype(dtype))
  if bits > 32 or (bits == 32 and dtype != jnp.float32):
    raise ValueError(f"No sparse MMA takes {dtype}. Cast it to another type")
  if bits == 32:  # An element takes two positions.
    return GROUP // 2, KEPT // 2, 1
  return GROUP, KEPT, 2 if bits == 4 else 1


def _check(a: jax.Array, what: str, multiple: int) -> None:
  if a.ndim != 2:
    raise ValueError(f"Expected {what} of two dimensions, got shape {a.shape}")
  if a.shape[1] % multiple:
    raise ValueError(
        f"Expected {what} of type {a.dtype} to have a multiple of {multiple}"
        f" columns, got shape {a.shape}. Pad it with zeros"
    )


def _groups(a: jax.Array) -> jax.Array:
  """Reshapes (M, K) to (M, groups, units of a group, elements of a unit)."""
  units, _, width = _units(a.dtype)
  _check(a, "a matrix", units * width)
  m, k = a.shape
  return a.reshape(m, k // (units * width), units, width)


def _kept_units(positions: jax.Array, dtype) -> jax.Array:
  """Converts positions to the units of (M, groups, kept)."""
  scale = GROUP // _units(dtype)[0]
  return positions.astype(jnp.uint8)[..., ::scale] // scale


def kept_positions(a: jax.Array) -> jax.Array:
  """Returns the two positions of the largest magnitude in every group of four.

  With 4-bit types, the magnitude of a pair is the sum of both. NaNs count as
  the largest, so that they are not dropped silently. Of equals, the first ones
  are kept.

  Args:
    a: A matrix of shape (M, K).

  Returns:
    Positions of shape (M, groups, 2), dtype uint8, ascending.
  """
  a = jnp.asarray(a)
  units, kept, _ = _units(a.dtype)
  groups = lax.stop_gradient(_groups(a)).astype(jnp.float32)
  magnitude = jnp.abs(groups).sum(axis=-1)
  order = jnp.argsort(magnitude, axis=-1, stable=True, descending=True)
  unit = jnp.sort(order[..., :kept], axis=-1).astype(jnp.uint8)
  scale = GROUP // units
  positions = unit[..., None] * scale + jnp.arange(scale, dtype=jnp.uint8)
  return positions.reshape(*unit.shape[:2], KEPT)


def prune(a: jax.Array) -> jax.Array:
  """Returns a matrix with the smaller half of every group zeroed.

  Args:
    a: A matrix of shape (M, K), K a multiple of 4 (4-bit types: 8, float32: 2).
  """
  a = jnp.asarray(a)
  groups = _groups(a)
  unit = _kept_units(kept_positions(a), a.dtype)
  kept = (
      unit[..., None] == jnp.arange(groups.shape[2], dtype=jnp.uint8)
  ).any(-2)
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
  a = jnp.asarray(a)
  groups = _groups(a)
  if positions is None:
    positions = kept_positions(a)
  expected = (*groups.shape[:2], KEPT)
  if positions.shape != expected:
    raise ValueError(
        f"Expected positions of shape {expected} for a matrix of shape"
        f" {a.shape} and type {a.dtype}, got {positions.shape}"
    )
  index = _kept_units(positions, a.dtype).astype(jnp.int32)[..., None]
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
  values = jnp.asarray(values)
  units, num_kept, width = _units(values.dtype)
  _check(values, "values", num_kept * width)
  m, stored = values.shape
  expected = (m, stored // (num_kept * width), KEPT)
  if positions.shape != expected:
    raise ValueError(
        f"Expected positions of shape {expected} for values of shape"
        f" {values.shape} and type {values.dtype}, got {positions.shape}"
    )
  # (M, groups, kept, units): where each kept unit goes.
  goes = _kept_units(positions, values.dtype)[..., None] == jnp.arange(
      units, dtype=jnp.uint8
  )
  kept = values.reshape(*expected[:2], num_kept, width)
  dense = jnp.zeros((*expected[:2], units, width), values.dtype)
  for i in range(num_kept):
    dense = jnp.where(goes[:, :, i, :, None], kept[:, :, i, None], dense)
  return dense.reshape(m, stored * GROUP // KEPT)
