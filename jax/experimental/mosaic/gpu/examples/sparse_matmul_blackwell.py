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
"""A 2:4-sparse matmul for Blackwell GPUs, as a Pallas kernel.

`sparse_matmul` multiplies a compressed A with a dense B. Its kernel is
persistent and warp-specialised. In each CTA, one warp copies steps along K of
A, its metadata, B and the block scales to a ring of stages in shared memory.
One warp copies the metadata and the scales on to tensor memory and issues the
MMAs. A warpgroup moves the accumulators to global memory, while the MMAs of the
next tile run, if tensor memory has room for two accumulators.

A CTA multiplies several tiles of 128 rows of A with the same columns of B, so
that B travels to shared memory once for all of them. Two CTAs can share their
columns of B, too (`collective`).

Run it as a script to see a few shapes and types. It runs on a Blackwell GPU if
there is one, and on the simulator otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
import functools
import math
import sys
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.mosaic.gpu import sparsity
from jax.experimental.mosaic.gpu import tcgen05_tiles
from jax.experimental.mosaic.gpu import utils
from jax.experimental.mosaic.gpu.examples import sparse_matmul_model
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

# What a CTA of a B200 can have, and how many of them there are.
MAX_SMEM_BYTES = 227 * 1024
NUM_SMS = 148
# Pallas aligns buffers in shared memory so.
SMEM_ALIGNMENT = 1024
BARRIER_BYTES = 8
# An MMA with 2:4 sparsity applies a scale to so many elements along K, half of
# which A stores: with ``kind::mxf8f6f4`` it has one scale for its whole K.
SCALE_BLOCK = 64
# Two metadata entries describe so many elements of A.
GROUP = sparsity.GROUP
# Staging buffers of the epilogue: one is written while the other is copied.
EPILOGUE_BUFFERS = 2
# Widest N of a CTA, and of each of two that share an MMA.
MAX_TILE_N = {False: 512, True: 128}
ROWS = tcgen05_tiles.TMEM_ROWS

DTYPES = (jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2)
OUT_DTYPES = (jnp.float32, jnp.float16, jnp.bfloat16)
SCALE_DTYPE = jnp.float8_e8m0fnu

LOAD_WARP, MMA_WARP = 0, 1
MAIN_WARPGROUP, EPILOGUE_WARPGROUP = 0, 1


def _names(dtypes) -> str:
  return ", ".join(jnp.dtype(dtype).name for dtype in dtypes)


def _round_up(x: int, multiple: int) -> int:
  return -(-x // multiple) * multiple


def _bits(dtype) -> int:
  return 8 * jnp.dtype(dtype).itemsize


@dataclasses.dataclass(frozen=True)
class TuningConfig:
  """How `sparse_matmul` is cut into tiles.

  A tile of the result has ``tile_m`` rows and ``tile_n`` columns for a CTA
  alone. Two CTAs (``collective``) make a tile of twice as many of both, of
  which each has half of the rows.

  Attributes:
    tile_m: Rows of A of a CTA, a multiple of 128. All of them meet the same
      columns of B.
    tile_n: Columns of B that a CTA loads, a multiple of 16. At most 512, or 128
      if ``collective``.
    tile_k: Elements along K (before compression) of a step, a multiple of 128,
      and of 256 with block scales.
    max_concurrent_steps: Stages in shared memory, each of which holds a step.
    collective: Whether two CTAs multiply together.
    epilogue_tile_n: Columns of the result that are moved to global memory at a
      time. Divides the columns of a tile.
    grid_minor_dim: The dimension (0 for M, 1 for N) along which tiles follow
      each other, see ``plgpu.planar_snake``.
    grid_tile_width: Tiles along that dimension before the other one advances.
  """

  tile_m: int = 256
  tile_n: int = 64
  tile_k: int = 128
  max_concurrent_steps: int = 3
  collective: bool = False
  epilogue_tile_n: int = 32
  grid_minor_dim: int = 1
  grid_tile_width: int = 1

  def __post_init__(self):
    for name, multiple in (
        ("tile_m", ROWS), ("tile_n", 16), ("tile_k", 128),
        ("max_concurrent_steps", 1), ("epilogue_tile_n", 16),
        ("grid_tile_width", 1),
    ):
      value = getattr(self, name)
      if value <= 0 or value % multiple:
        raise ValueError(
            f"Expected {name} to be a positive multiple of {multiple}, got"
            f" {value}"
        )
    if self.tile_n > MAX_TILE_N[self.collective]:
      raise ValueError(
          f"Expected tile_n of at most {MAX_TILE_N[self.collective]} with"
          f" collective={self.collective}, got {self.tile_n}"
      )
    if self.columns % self.epilogue_tile_n:
      raise ValueError(
          f"Expected epilogue_tile_n to divide the {self.columns} columns of a"
          f" tile, got {self.epilogue_tile_n}"
      )
    if self.grid_minor_dim not in (0, 1):
      raise ValueError(
          "Expected grid_minor_dim to be 0 (M) or 1 (N), got"
          f" {self.grid_minor_dim}"
      )

  @property
  def num_cta(self) -> int:
    """CTAs that multiply together."""
    return 1 + self.collective

  @property
  def rows(self) -> int:
    """Rows of a tile of the result, over all CTAs."""
    return self.tile_m * self.num_cta

  @property
  def columns(self) -> int:
    """Columns of a tile of the result. Each CTA has all of them."""
    return self.tile_n * self.num_cta

  @property
  def scales(self) -> int:
    """Scales of a row or column in a step."""
    return self.tile_k // SCALE_BLOCK

  @property
  def b_scale_rows(self) -> int:
    """Columns of B whose scales a CTA loads, with padding."""
    return _round_up(self.columns, ROWS)

  def tmem_columns(self, *, scaled: bool = False) -> dict[str, int]:
    """Columns of tensor memory by operand, with as many accumulators as fit.

    Args:
      scaled: Whether there are block scales.
    """
    entries = tcgen05_tiles.metadata_entries(self.tile_k, GROUP)
    operands = {
        "metadata": tcgen05_tiles.row_tile_column(
            self.tile_m * self.max_concurrent_steps,
            tcgen05_tiles.metadata_columns(entries),
        ),
    }
    if scaled:
      for name, rows in (("a", self.tile_m), ("b", self.b_scale_rows)):
        operands[f"{name}_scales"] = tcgen05_tiles.scale_column(
            rows, 0, self.scales
        )
    accumulator = tcgen05_tiles.row_tile_column(self.tile_m, self.columns)
    rest = tcgen05_tiles.TMEM_COLUMNS - sum(operands.values())
    count = 2 if 2 * accumulator <= rest else 1
    return {"accumulators": count * accumulator, **operands}

  def num_accumulators(self, *, scaled: bool = False) -> int:
    """2 if the epilogue overlaps with the MMAs of the next tile, else 1."""
    total = self.tmem_columns(scaled=scaled)["accumulators"]
    return total // tcgen05_tiles.row_tile_column(self.tile_m, self.columns)

  def smem_bytes(
      self, dtype, out_dtype=None, *, scaled: bool = False
  ) -> dict[str, int]:
    """Bytes of shared memory of a CTA, by operand.

    Args:
      dtype: The type of A and B.
      out_dtype: The type of the result, by default as in `sparse_matmul`.
      scaled: Whether there are block scales.
    """
    out_dtype = _default_out_dtype(dtype) if out_dtype is None else out_dtype
    sizes = {
        name: math.prod(shape) * bits // 8
        for name, (shape, bits) in self._smem(dtype, out_dtype, scaled).items()
    }
    sizes = {
        name: _round_up(size, SMEM_ALIGNMENT) for name, size in sizes.items()
    }
    barriers = 2 * self.max_concurrent_steps
    barriers += 2 * self.num_accumulators(scaled=scaled)
    sizes["barriers"] = barriers * BARRIER_BYTES
    sizes["tensor memory address"] = 4
    return sizes

  def _smem(self, dtype, out_dtype, scaled):
    """Shapes and bits of an element of the buffers in shared memory."""
    steps, bits = self.max_concurrent_steps, _bits(dtype)
    a_tiles = self.tile_m // ROWS
    entries = tcgen05_tiles.metadata_entries(self.tile_k, GROUP)
    tile_entries = tcgen05_tiles.METADATA_TILE_ENTRIES
    buffers = {
        "a": ((steps, self.tile_m, self.tile_k // 2), bits),
        "metadata": (
            (steps, a_tiles, entries // tile_entries, ROWS, tile_entries), 2
        ),
        "b": ((steps, self.tile_k, self.tile_n), bits),
    }
    if scaled:
      for name, tiles in (("a", a_tiles), ("b", self.b_scale_rows // ROWS)):
        shape = (steps, tiles, self.scales // 4, 32, 16)
        buffers[f"{name}_scales"] = shape, 8
    buffers["out"] = (
        (EPILOGUE_BUFFERS, ROWS, self.epilogue_tile_n), _bits(out_dtype)
    )
    return buffers

  def check(self, dtype, out_dtype=None, *, scaled: bool = False) -> None:
    """Checks that the operands fit into shared and tensor memory.

    Args:
      dtype: The type of A and B.
      out_dtype: The type of the result, by default as in `sparse_matmul`.
      scaled: Whether there are block scales.

    Raises:
      ValueError: If they do not.
    """
    if scaled and self.tile_k % (4 * SCALE_BLOCK):
      raise ValueError(
          f"Expected tile_k to be a multiple of {4 * SCALE_BLOCK} with block"
          f" scales, of which four make a column, got {self.tile_k}"
      )
    if self.tile_n * _bits(dtype) % 256:
      raise ValueError(
          "Expected tile_n columns of B to be a multiple of 32 bytes, which is"
          f" the smallest swizzle, got tile_n={self.tile_n} of"
          f" {jnp.dtype(dtype).name}"
      )
    _check_fits(
        "tensor memory", "columns", tcgen05_tiles.TMEM_COLUMNS,
        self.tmem_columns(scaled=scaled), "tile_m, tile_n or tile_k",
    )
    _check_fits(
        "shared memory", "bytes", MAX_SMEM_BYTES,
        self.smem_bytes(dtype, out_dtype, scaled=scaled),
        "max_concurrent_steps, tile_m, tile_n, tile_k or epilogue_tile_n",
    )


def _check_fits(
    memory: str, unit: str, limit: int, sizes: Mapping[str, int], what: str
) -> None:
  total = sum(sizes.values())
  if total > limit:
    operands = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    raise ValueError(
        f"Expected a configuration that takes at most {limit} {unit} of"
        f" {memory}, got {total} ({operands}). Use a smaller {what}"
    )


def _default_out_dtype(dtype):
  return jnp.dtype(dtype if _bits(dtype) == 16 else jnp.bfloat16)


def default_config(
    m: int, n: int, k: int, dtype, scaled: bool = False
) -> TuningConfig:
  """Returns a configuration for a size and a type.

  It is the fastest one by `sparse_matmul_model`, which is a model of a B200 on
  paper. It was not measured on a GPU.

  Args:
    m: Rows of A.
    n: Columns of B.
    k: Columns of A before compression.
    dtype: The type of A and B.
    scaled: Whether there are block scales.
  """
  m, n, k = (max(size, 1) for size in (m, n, k))
  return sparse_matmul_model.best(TuningConfig, m, n, k, dtype, scaled)


def sparse_matmul(
    a_values: jax.Array,
    a_metadata: jax.Array,
    b: jax.Array,
    config: TuningConfig | None = None,
    *,
    a_scales: jax.Array | None = None,
    b_scales: jax.Array | None = None,
    out_dtype: Any = None,
    lowering_semantics: plgpu.LoweringSemantics = (
        plgpu.LoweringSemantics.Warpgroup
    ),
) -> jax.Array:
  """Multiplies a 2:4-sparse A with a dense B on a Blackwell GPU.

  A is compressed, as `sparsity.compress` does it: of every four elements of a
  row, two are stored, with their positions. Products are summed in float32.

  Sizes need not be multiples of the tiles: any M and N will do, and K in whole
  groups of four. But an array whose rows are no multiple of the swizzle of its
  tile (at most 128 bytes), or whose number of rows is no multiple of 8, is
  padded with zeros first, which costs a copy. Metadata and scales are laid out
  for the hardware in front of the kernel, which costs one, too.

  It works under ``jax.jit``, and under ``jax.shard_map`` (with
  ``check_vma=False``) for shards of the rows of A or the columns of B.

  Args:
    a_values: The stored elements of A, of shape (M, K // 2) and type float16,
      bfloat16, float8_e4m3fn or float8_e5m2.
    a_metadata: Their positions among the four, of shape (M, K // 4, 2) and type
      uint2, in ascending order.
    b: B, of shape (K, N) and the type of ``a_values``.
    config: The tiles, by default those of `default_config`.
    a_scales: Block scales of A (mxfp8), of shape (M, K // 64) and type
      float8_e8m0fnu: each multiplies 64 elements of a row, of which 32 are
      stored. The hardware takes no smaller blocks with a sparse A.
    b_scales: Block scales of B, of shape (K // 64, N): each multiplies 64
      elements of a column.
    out_dtype: The type of the result, float32, float16 or bfloat16. By default
      the type of B, or bfloat16 if that has 8 bits.
    lowering_semantics: How Pallas lowers the kernel. Both give the same result.

  Returns:
    A @ B, of shape (M, N).

  Raises:
    ValueError: If shapes or types do not fit together, or if the operands do
      not fit into shared or tensor memory with this configuration.
    NotImplementedError: If a type is not supported, or under a
      ``jax.shard_map`` with ``check_vma=True``.
  """
  scaled = _check_operands(a_values, a_metadata, b, a_scales, b_scales)
  (m, stored), n, dtype = a_values.shape, b.shape[1], b.dtype
  if out_dtype is None:
    out_dtype = _default_out_dtype(dtype)
  if out_dtype not in OUT_DTYPES:
    raise NotImplementedError(
        f"Expected out_dtype to be one of {_names(OUT_DTYPES)}, got"
        f" {jnp.dtype(out_dtype).name}"
    )
  if config is None:
    config = default_config(m, n, 2 * stored, dtype, scaled)
  config.check(dtype, out_dtype, scaled=scaled)
  if 0 in (m, n, stored):
    return jnp.zeros((m, n), out_dtype)

  spec = _KernelSpec(
      config, m, n, 2 * stored, jnp.dtype(dtype), jnp.dtype(out_dtype), scaled,
      lowering_semantics,
  )
  operands = {
      "a": _pad(a_values, spec.gmem_shape["a"]),
      "metadata": spec.format_metadata(a_metadata),
      "b": _pad(b, spec.gmem_shape["b"]),
  }
  if a_scales is not None and b_scales is not None:
    operands["a_scales"] = spec.format_scales(a_scales, config.tile_m)
    operands["b_scales"] = spec.format_scales(b_scales.T, config.columns)
  return spec.kernel(operands)[:m, :n]


def _check_operands(a_values, a_metadata, b, a_scales, b_scales) -> bool:
  """Checks shapes and types, and returns whether there are scales."""
  if a_values.ndim != 2 or b.ndim != 2:
    raise ValueError(
        "Expected a_values of shape (M, K // 2) and b of shape (K, N), got"
        f" {a_values.shape} and {b.shape}"
    )
  (m, stored), (k, n) = a_values.shape, b.shape
  if k != 2 * stored:
    raise ValueError(
        f"Expected b of K = {2 * stored} rows, two for each column of a_values"
        f" of shape {a_values.shape}, got shape {b.shape}"
    )
  if k % GROUP:
    raise ValueError(
        f"Expected K to be a multiple of {GROUP}, got {k}. Pad A and b with"
        " zeros"
    )
  if any(not jax.typeof(x).manual_axis_type.empty for x in (a_values, b)):
    # The warps of Pallas kernels take no references that vary over a mesh.
    raise NotImplementedError(
        "Expected arrays that are not tracked to vary over the axes of a mesh."
        " Pass check_vma=False to jax.shard_map"
    )
  if a_values.dtype != b.dtype:
    raise ValueError(
        f"Expected a_values and b of the same type, got {a_values.dtype} and"
        f" {b.dtype}"
    )
  if b.dtype not in DTYPES:
    raise NotImplementedError(
        f"Expected operands of type {_names(DTYPES)}, got {b.dtype}"
    )
  _check_array("a_metadata", a_metadata, (m, k // GROUP, 2), jnp.uint2)
  if (a_scales is None) != (b_scales is None):
    raise ValueError(
        "Expected both of a_scales and b_scales or none, got only"
        f" {'b_scales' if a_scales is None else 'a_scales'}"
    )
  if a_scales is None:
    return False
  if _bits(b.dtype) != 8:
    raise ValueError(
        f"Expected operands of 8 bits with block scales, got {b.dtype}"
    )
  if k % SCALE_BLOCK:
    raise ValueError(
        f"Expected K to be a multiple of {SCALE_BLOCK} with block scales, got"
        f" {k}. Pad A and b with zeros"
    )
  _check_array("a_scales", a_scales, (m, k // SCALE_BLOCK), SCALE_DTYPE)
  _check_array("b_scales", b_scales, (k // SCALE_BLOCK, n), SCALE_DTYPE)
  return True


def _check_array(name: str, array: jax.Array, shape, dtype) -> None:
  if array.shape != shape or array.dtype != dtype:
    raise ValueError(
        f"Expected {name} of shape {shape} and type {jnp.dtype(dtype).name},"
        f" got {array.shape} and {array.dtype}"
    )


def _pad(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Pads an array with zeros at the end of its dimensions."""
  if x.shape == shape:
    return x
  return jnp.pad(x, [(0, new - old) for old, new in zip(x.shape, shape)])


def _num_sms() -> int:
  """SMs of the GPU that the kernel will run on."""
  return getattr(jax.local_devices()[0], "core_count", NUM_SMS)


def _wait_in_warp(barrier) -> None:
  """Waits for a barrier with all lanes of a warp, then for all lanes.

  All lanes wait, but a single one issues what completes the next phases. If it
  went on alone, the others could miss a phase, and wait forever.
  """
  plgpu.barrier_wait(barrier)

  @plgpu.inline_mgpu()
  def sync_lanes(_):
    utils.warp_barrier()

  sync_lanes()


@dataclasses.dataclass(frozen=True)
class _Tile:
  """A tile of the result, in a kernel.

  Attributes:
    m, n: its indices among the tiles.
    first_step: the steps before it. The ring of stages goes on from tile to
      tile.
    reuses_acc: whether an earlier tile had the same accumulator.
    acc_slot: which accumulator.
  """

  m: jax.Array
  n: jax.Array
  first_step: jax.Array | int
  reuses_acc: jax.Array | bool
  acc_slot: jax.Array


@dataclasses.dataclass(frozen=True)
class _KernelSpec:
  """A kernel: its configuration, sizes (before padding) and types."""

  config: TuningConfig
  m: int
  n: int
  k: int
  dtype: np.dtype
  out_dtype: np.dtype
  scaled: bool
  semantics: plgpu.LoweringSemantics

  @property
  def grid(self) -> tuple[int, int]:
    """Tiles of the result along M and N."""
    config = self.config
    return -(-self.m // config.rows), -(-self.n // config.columns)

  @property
  def k_steps(self) -> int:
    return -(-self.k // self.config.tile_k)

  @functools.cached_property
  def swizzles(self) -> dict[str, int]:
    """Bytes of the swizzles of the operands in shared memory."""
    config = self.config
    widths = {
        "a": (config.tile_k // 2, self.dtype),
        "b": (config.tile_n, self.dtype),
        "out": (config.epilogue_tile_n, self.out_dtype),
    }
    swizzles = {
        name: plgpu.find_swizzle(width * _bits(dtype), name)
        for name, (width, dtype) in widths.items()
    }
    if self.semantics == plgpu.LoweringSemantics.Lane:
      # There, Pallas takes only equal ones.
      swizzles["a"] = swizzles["b"] = min(swizzles["a"], swizzles["b"])
    return swizzles

  def _tiling(self, name: str) -> tuple[int, int]:
    bits = _bits(self.out_dtype if name == "out" else self.dtype)
    return 8, 8 * self.swizzles[name] // bits

  @functools.cached_property
  def gmem_shape(self) -> dict[str, tuple[int, int]]:
    """Shapes of A, B and the result in global memory, in whole tilings.

    Whole tilings can lie outside of an array: loads of them give zeros, stores
    to them do nothing.
    """
    n = _round_up(self.n, max(self._tiling(x)[1] for x in ("b", "out")))
    shapes = {
        "a": (self.m, self.k // 2), "b": (self.k, n), "out": (self.m, n)
    }
    result = {}
    for name, (rows, columns) in shapes.items():
      tiling = self._tiling(name)
      result[name] = _round_up(rows, tiling[0]), _round_up(columns, tiling[1])
    return result

  def format_metadata(self, positions: jax.Array) -> jax.Array:
    """Lays positions out for the copy to tensor memory, for whole tiles."""
    rows = self.grid[0] * self.config.rows
    groups = self.k_steps * self.config.tile_k // GROUP
    if positions.shape[:2] != (rows, groups):
      # Those of the padding must differ, too.
      filler = jnp.broadcast_to(jnp.array([0, 1], jnp.uint2), (rows, groups, 2))
      positions = lax.dynamic_update_slice(filler, positions, (0, 0, 0))
    return plgpu.format_tcgen05_sparse_metadata(positions, self.dtype)

  def format_scales(self, scales: jax.Array, tile: int) -> jax.Array:
    """Lays scales of shape (rows, scales) out for the copy to tensor memory.

    Returns:
      (row tiles, scales // 4, 32, 16): of 128 rows, each 32 lie side by side.
      Every tile begins with a row tile of its own.
    """
    rows = scales.shape[0]
    tiles = _round_up(rows, tile * self.config.num_cta) // tile
    count = self.k_steps * self.config.scales
    # float8_e8m0fnu has no zero to pad with, and any number will do.
    scales = lax.bitcast_convert_type(scales, jnp.uint8)
    scales = _pad(scales, (tiles * tile, count)).reshape(tiles, tile, count)
    scales = _pad(scales, (tiles, _round_up(tile, ROWS), count))
    scales = scales.reshape(-1, 4, 32, count // 4, 4)
    scales = scales.transpose(0, 3, 2, 1, 4).reshape(-1, count // 4, 32, 16)
    return lax.bitcast_convert_type(scales, SCALE_DTYPE)

  def _smem_refs(self):
    dtypes = {
        "a": self.dtype, "b": self.dtype, "out": self.out_dtype,
        "metadata": jnp.uint2, "a_scales": SCALE_DTYPE, "b_scales": SCALE_DTYPE,
    }
    refs = {}
    buffers = self.config._smem(self.dtype, self.out_dtype, self.scaled)
    for name, (shape, _) in buffers.items():
      transforms = ()
      if name in self.swizzles:
        transforms = (
            plgpu.TilingTransform(self._tiling(name)),
            plgpu.SwizzleTransform(self.swizzles[name]),
        )
      refs[name] = plgpu.SMEM(shape, dtypes[name], transforms=transforms)
    return refs

  def _tmem_refs(self):
    config, layouts = self.config, plgpu.TMEMLayout
    accumulators = config.num_accumulators(scaled=self.scaled)
    entries = tcgen05_tiles.metadata_entries(config.tile_k, GROUP)
    # Stages follow each other along the rows, which can be sliced by row tiles.
    refs = {
        "acc": plgpu.TMEM(
            (accumulators * config.tile_m, config.columns), jnp.float32,
            collective=config.collective,
        ),
        "metadata": plgpu.TMEM(
            (config.max_concurrent_steps * config.tile_m, entries), jnp.uint2,
            collective=config.collective,
            layout=layouts.SPARSE_METADATA_LAYOUT,
        ),
    }
    if self.scaled:
      rows = {"a_scales": config.tile_m, "b_scales": config.b_scale_rows}
      for name in rows:
        refs[name] = plgpu.TMEM(
            (rows[name], config.scales), SCALE_DTYPE,
            collective=config.collective, layout=layouts.SCALES_LAYOUT,
        )
    return refs

  def _barriers(self):
    config = self.config
    steps = config.max_concurrent_steps
    accumulators = config.num_accumulators(scaled=self.scaled)
    tensor_core = functools.partial(plgpu.Barrier, orders_tensor_core=True)
    if config.collective:
      # The first CTA's MMAs write to the tensor memory of both.
      read = plgpu.ClusterBarrier(
          collective_axes=("cta",), num_arrivals=1, num_barriers=accumulators,
          orders_tensor_core=True,
      )
    else:
      read = tensor_core(num_arrivals=1, num_barriers=accumulators)
    return dict(
        loaded=plgpu.Barrier(
            num_arrivals=5 if self.scaled else 3, num_barriers=steps
        ),
        consumed=tensor_core(num_barriers=steps),
        done=tensor_core(num_barriers=accumulators),
        read=read,
    )

  def kernel(self, operands: dict[str, jax.Array]) -> jax.Array:
    """Runs the kernel on padded and formatted operands."""
    config = self.config
    clusters = max(_num_sms() // config.num_cta, 1)
    return plgpu.kernel(
        self._body,
        out_type=jax.ShapeDtypeStruct(self.gmem_shape["out"], self.out_dtype),
        grid=(min(math.prod(self.grid), clusters),),
        grid_names=("cluster",),
        cluster=(config.num_cta,),
        cluster_names=("cta",),
        num_threads=2,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(
            lowering_semantics=self.semantics
        ),
        scratch_types=dict(
            smem=self._smem_refs(), tmem=self._tmem_refs(), **self._barriers()
        ),
    )(operands)

  def _body(self, gmem, out, *, smem, tmem, loaded, consumed, done, read):
    """What each warpgroup of each CTA does."""
    warpgroup, cta = lax.axis_index("warpgroup"), lax.axis_index("cta")

    @pl.when(warpgroup == MAIN_WARPGROUP)
    def _():
      # Each warp has a loop over the tiles of its own: the loads of the next
      # tile need not wait for the last MMA of this one.
      @plgpu.warp_map
      def _(warp):
        @pl.when(warp == LOAD_WARP)
        def _():
          self._for_tiles(
              lambda tile: self._load(gmem, smem, loaded, consumed, tile)
          )

        @pl.when(jnp.logical_and(warp == MMA_WARP, cta == 0))
        def _():
          self._for_tiles(
              lambda tile: self._multiply(
                  smem, tmem, loaded, consumed, done, read, tile
              )
          )

    @pl.when(warpgroup == EPILOGUE_WARPGROUP)
    def _():
      self._for_tiles(
          lambda tile: self._store(
              tmem["acc"], smem["out"], out, done, read, tile
          )
      )
      plgpu.wait_smem_to_gmem(0, wait_read_only=True)

  def _for_tiles(self, body: Callable[[_Tile], None]) -> None:
    """Calls a function for each tile of this cluster."""
    config = self.config
    accumulators = config.num_accumulators(scaled=self.scaled)

    @plgpu.nd_loop((math.prod(self.grid),), collective_axes="cluster")
    def _(loop):
      [index] = loop.index
      m_index, n_index = plgpu.planar_snake(
          index, self.grid, config.grid_minor_dim, config.grid_tile_width
      )
      body(
          _Tile(
              m_index, n_index, loop.local_index * self.k_steps,
              loop.local_index >= accumulators,
              lax.rem(loop.local_index, jnp.int32(accumulators)),
          )
      )

  def _load(self, gmem, smem, loaded, consumed, tile: _Tile) -> None:
    """Copies the steps of a tile to shared memory."""
    config = self.config
    steps = config.max_concurrent_steps
    a_tiles = config.rows // ROWS
    b_tiles = config.b_scale_rows // ROWS
    partitioned = plgpu.CopyPartition.PARTITIONED

    def part(index, size):
      return pl.ds(index * size, size)

    def load(i, _):
      slot = lax.rem(tile.first_step + i, jnp.int32(steps))

      @pl.when(tile.first_step + i >= steps)
      def _():
        _wait_in_warp(consumed.at[slot])

      rows, row_tiles = part(tile.m, config.rows), part(tile.m, a_tiles)
      k_tiles = part(i, smem["metadata"].shape[2])
      # Where each operand lies, and along which axis two CTAs share it.
      copies: dict[str, tuple[pl.Slice, pl.Slice, plgpu.CopyPartition]] = {
          "a": (rows, part(i, config.tile_k // 2), partitioned(0)),
          "metadata": (row_tiles, k_tiles, partitioned(0)),
          "b": (
              part(i, config.tile_k), part(tile.n, config.columns),
              partitioned(1),
          ),
      }
      if self.scaled:
        k_tiles = part(i, config.scales // 4)
        copies["a_scales"] = row_tiles, k_tiles, partitioned(0)
        # Each CTA needs the scales of the columns of both.
        replicated = plgpu.CopyPartition.REPLICATED
        copies["b_scales"] = part(tile.n, b_tiles), k_tiles, replicated
      for name, (*where, partition) in copies.items():
        plgpu.copy_gmem_to_smem(
            gmem[name].at[tuple(where)], smem[name].at[slot], loaded.at[slot],
            collective_axes="cta" if config.collective else None,
            # The first CTA waits for the copies of both.
            leader_tracked=partition if config.collective else None,
        )

    lax.fori_loop(0, self.k_steps, load, None)

  def _multiply(
      self, smem, tmem, loaded, consumed, done, read, tile: _Tile
  ) -> None:
    """Issues the MMAs of a tile."""
    config = self.config
    axis = "cta" if config.collective else None

    @pl.when(tile.reuses_acc)
    def _():
      _wait_in_warp(read.at[tile.acc_slot])

    acc = tmem["acc"].at[pl.ds(tile.acc_slot * config.tile_m, config.tile_m)]

    def multiply(i, _):
      slot = lax.rem(
          tile.first_step + i, jnp.int32(config.max_concurrent_steps)
      )
      _wait_in_warp(loaded.at[slot])
      # Whoever loaded this stage of shared memory had waited for the MMAs that
      # read it last, and with it the same stage of tensor memory.
      metadata = tmem["metadata"].at[pl.ds(slot * config.tile_m, config.tile_m)]
      plgpu.async_copy_sparse_metadata_to_tmem(
          smem["metadata"].at[slot], metadata, collective_axis=axis
      )
      scales = {}
      if self.scaled:
        # Copies to tensor memory and MMAs of a thread run in order.
        for name, ref in (("a_scale", "a_scales"), ("b_scale", "b_scales")):
          plgpu.async_copy_scales_to_tmem(
              smem[ref].at[slot], tmem[ref], collective_axis=axis
          )
          scales[name] = tmem[ref]
      plgpu.tcgen05_mma(
          acc, smem["a"].at[slot], smem["b"].at[slot], consumed.at[slot],
          a_sparse_metadata=metadata, accumulate=i > 0, collective_axis=axis,
          **scales,
      )

    lax.fori_loop(0, self.k_steps, multiply, None)
    plgpu.tcgen05_commit_arrive(done.at[tile.acc_slot], collective_axis=axis)

  def _store(self, acc, smem, out, done, read, tile: _Tile) -> None:
    """Moves this CTA's part of a tile to global memory."""
    config = self.config
    width = config.epilogue_tile_n
    acc_row = tile.acc_slot * config.tile_m
    first_row = tile.m * config.num_cta + lax.axis_index("cta")
    first_row, first_column = first_row * config.tile_m, tile.n * config.columns
    parts = [
        (row, column)
        for row in range(0, config.tile_m, ROWS)
        for column in range(0, config.columns, width)
    ]
    plgpu.barrier_wait(done.at[tile.acc_slot])
    for i, (row, column) in enumerate(parts):
      value = plgpu.async_load_tmem(
          acc.at[pl.ds(acc_row + row, ROWS), pl.ds(column, width)]
      )
      if i == len(parts) - 1:
        # All is in registers: the next MMAs may overwrite the accumulator.
        plgpu.wait_load_tmem()
        plgpu.barrier_arrive(read.at[tile.acc_slot])
      # Of the copies from the other buffer, the last one may be on its way. A
      # tile of an odd number of parts ends with the buffer that it began with.
      is_other_buffer = i > 0 or len(parts) % EPILOGUE_BUFFERS == 0
      plgpu.wait_smem_to_gmem(int(is_other_buffer), wait_read_only=True)
      buffer = smem.at[i % EPILOGUE_BUFFERS]
      # With Lane semantics, `buffer[...] = ` would read what was there before.
      plgpu.store(buffer, value.astype(self.out_dtype))
      plgpu.commit_smem()
      plgpu.copy_smem_to_gmem(
          buffer,
          out.at[
              pl.ds(first_row + row, ROWS), pl.ds(first_column + column, width)
          ],
      )


def _random_problem(rng, m: int, n: int, k: int, dtype, scaled: bool):
  """Returns arguments of `sparse_matmul`, and A and B as float64."""
  a = jnp.asarray(rng.normal(size=(m, k)), dtype)
  b = jnp.asarray(rng.normal(size=(k, n)), dtype)
  values, positions = sparsity.compress(a)
  kwargs = {}
  a, b_dense = sparsity.prune(a), b
  a, b_dense = (np.asarray(x).astype(np.float64) for x in (a, b_dense))
  if scaled:
    scales = lambda *shape: 2.0 ** rng.integers(-3, 4, shape)
    a_scales = scales(m, k // SCALE_BLOCK)
    b_scales = scales(k // SCALE_BLOCK, n)
    a *= a_scales.repeat(SCALE_BLOCK, axis=1)
    b_dense *= b_scales.repeat(SCALE_BLOCK, axis=0)
    kwargs = dict(
        a_scales=jnp.asarray(a_scales, SCALE_DTYPE),
        b_scales=jnp.asarray(b_scales, SCALE_DTYPE),
    )
  return (values, positions, b), kwargs, a, b_dense


def main() -> int:
  capability = getattr(jax.local_devices()[0], "compute_capability", "0.0")
  if capability.startswith("10."):
    device = contextlib.nullcontext()
    print(f"running on {jax.local_devices()[0].device_kind}")
  else:
    from jax.experimental.mosaic.gpu import simulator  # pylint: disable=g-import-not-at-top
    device = simulator.simulate()
    print("running on the simulator of a B200: no Blackwell GPU here")
  e4m3 = jnp.float8_e4m3fn
  problems = (
      (512, 128, 256, jnp.float16, False),
      (200, 72, 136, jnp.bfloat16, False),
      (256, 64, 256, e4m3, False),
      (256, 128, 256, e4m3, True),
  )
  ok = True
  rng = np.random.default_rng(0)
  with device:
    for m, n, k, dtype, scaled in problems:
      args, kwargs, a, b = _random_problem(rng, m, n, k, dtype, scaled)
      config = default_config(m, n, k, dtype, scaled)
      result = sparse_matmul(
          *args, config=config, out_dtype=jnp.float32, **kwargs
      )
      expected = a @ b
      error = np.abs(np.asarray(result).astype(np.float64) - expected).max()
      # The tensor core rounds its sums to about 22 bits.
      bound = np.abs(expected).max() * 1e-5
      ok &= bool(error <= bound)
      print(
          f"{'mx ' if scaled else ''}{jnp.dtype(dtype).name} M={m} N={n} K={k}:"
          f" largest error {error:.2e} (allowed {bound:.2e})"
          f" {'ok' if error <= bound else 'WRONG'}\n  {config}"
      )
  return 0 if ok else 1


if __name__ == "__main__":
  sys.exit(main())
