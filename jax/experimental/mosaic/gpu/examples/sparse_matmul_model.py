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
"""A model on paper of how fast a matmul kernel is on a B200.

It counts what a tile of the result costs in each resource of an SM, divides by
what the chip can do, and takes the largest. Nothing of it was measured here:
see `Chip` for where its figures come from.

Run it as a script to see tables of `sparse_matmul`, of how the result depends
on uncertain figures, and of JAX's dense kernel, whose speed is published.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
from typing import Any

import jax.numpy as jnp

ROWS = 128
MAX_INSTRUCTION_N = 256
# Bytes along K that an MMA reads of A, stored.
A_INSTRUCTION_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Chip:
  """What a B200 can do. Rates are for an SM and a cycle unless they say so.

  Figures marked with "assumed" have no source.
  """

  # Chips and Cheese, "Nvidia's B200": 74 SMs on each of two dies.
  sms: int = 148
  # SemiAnalysis, "Dissecting Nvidia Blackwell" (2026): measured with MMAs of
  # M = 128 per SM, with one or two CTAs, for all types of as many bits, with or
  # without block scales. 8-bit types have twice as many, 2:4 sparsity doubles
  # them (NVIDIA's peaks for a B200: 2.25 and 4.5 PFLOP/s in bf16).
  dense_16_bit_flops: int = 8192
  # The clock with which these are NVIDIA's 2.25 PFLOP/s. B200s boost to
  # 1.965 GHz, and go below this where they reach their limit of power.
  clock_ghz: float = 2.25e6 / (148 * 8192)
  # The same article: measured with MMAs and with loads. An MMA reads its A and
  # B once, and two CTAs read one half of B each.
  smem_bytes: int = 128
  # Assumed: what TMA writes goes through the same port.
  smem_fill_shares_port: bool = True
  # L2 to all SMs in TB/s. Table 3 of "TileSight": measured.
  l2_tb_s: float = 20.5
  # L2 in bytes. pytorch/ao #4002: what the driver says.
  l2_bytes: float = 126.5e6
  # HBM in TB/s. Table 3 of "TileSight": measured (8.0 on paper).
  hbm_tb_s: float = 7.0
  # Tensor memory read with tcgen05.ld. Public notes on a B300: 57 bytes for
  # each of four warps. Other sources: 16 TB/s, of which it is unclear whether
  # they mean an SM or the chip.
  tmem_bytes: int = 228
  # From the issue of a load by TMA to its arrival. Assumed: 600 ns, which is
  # what SemiAnalysis measured for cp.async.
  load_latency: int = 1100
  # Rows of its box that TMA loads. A row is as wide as the swizzle. Assumed:
  # "tcgen05 for dummies" (2025) has a kernel that is 2.7 times slower with rows
  # of 16 bytes than of 128, which is roughly one row.
  tma_rows: float = 1.0
  # Between two instructions of a warp. Notes on a B300: 1.2 (FFMA), 2.2 (IMAD).
  cycles_per_instruction: float = 2.2
  # A bar.sync of a warpgroup. Notes on a B300.
  barrier_cycles: int = 31

  @property
  def l2_bytes_per_cycle(self) -> float:
    return self.l2_tb_s * 1e3 / self.clock_ghz / self.sms

  @property
  def hbm_bytes_per_cycle(self) -> float:
    """Of the whole chip."""
    return self.hbm_tb_s * 1e3 / self.clock_ghz

  def flops(self, bits: int, sparse: bool) -> int:
    """FLOPs, of which a sparse product counts its zeros."""
    return self.dense_16_bit_flops * (16 // bits) * (1 + sparse)


B200 = Chip()

# PTX instructions of the warps that load and that issue MMAs, for each step
# along K and for each MMA, and of each warp of the epilogue for a part of the
# tile and for each of its columns. The simulator counts them, waits aside.
STEP_INSTRUCTIONS = 40
MMA_INSTRUCTIONS = 9
PART_INSTRUCTIONS = 12
COLUMN_INSTRUCTIONS = 1.8
# Times that the warps of the epilogue meet in a part.
PART_BARRIERS = 4
# TMA loads metadata and scales in rows of so many bytes.
METADATA_ROW_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Kernel:
  """What the model knows of a kernel.

  Attributes:
    tile_m: Rows of A of a CTA.
    tile_n: Columns of B of a CTA.
    tile_k: Elements along K (before compression) of a step.
    num_cta: CTAs that multiply together.
    steps: Stages in shared memory.
    accumulators: 2 if the epilogue overlaps with the MMAs of the next tile.
    part_n: Columns that the epilogue moves at a time.
    bits, out_bits: Of an element of A and B, and of the result.
    sparse: Whether A is 2:4 sparse.
    scaled: Whether there are block scales (of sparse A).
    order: Minor dimension and width of ``plgpu.planar_snake``.
    prefetches: Whether the loads of a tile begin during the epilogue of the
      last one.
  """

  tile_m: int
  tile_n: int
  tile_k: int
  num_cta: int
  steps: int
  accumulators: int
  part_n: int
  bits: int
  out_bits: int = 16
  sparse: bool = True
  scaled: bool = False
  order: tuple[int, int] = (1, 1)
  prefetches: bool = True

  @classmethod
  def of(cls, config, dtype, out_dtype=None, *, scaled=False) -> Kernel:
    """The kernel of a ``sparse_matmul_blackwell.TuningConfig``."""
    bits = 8 * jnp.dtype(dtype).itemsize
    out_bits = 16 if out_dtype is None else 8 * jnp.dtype(out_dtype).itemsize
    return cls(
        config.tile_m, config.tile_n, config.tile_k, config.num_cta,
        config.max_concurrent_steps, config.num_accumulators(scaled=scaled),
        config.epilogue_tile_n, bits, out_bits, scaled=scaled,
        order=(config.grid_minor_dim, config.grid_tile_width),
    )

  @property
  def rows(self) -> int:
    """Rows of a tile, over all CTAs."""
    return self.tile_m * self.num_cta

  @property
  def columns(self) -> int:
    """Columns of a tile, of which each CTA has all."""
    return self.tile_n * self.num_cta

  @property
  def parts(self) -> int:
    """Parts of the epilogue of a CTA."""
    return self.tile_m // ROWS * -(-self.columns // self.part_n)

  def a_row_bytes(self, k: int) -> int:
    """Bytes of a row of A, with metadata and scales."""
    if not self.sparse:
      return k * self.bits // 8
    metadata = k // 2 * 2 // 8
    return k // 2 * self.bits // 8 + metadata + self.scaled * (k // 64)

  def b_column_bytes(self, k: int) -> int:
    return k * self.bits // 8 + self.scaled * (k // 64)


@dataclasses.dataclass(frozen=True)
class Counts:
  """What a tile takes: instructions of all CTAs, bytes of each.

  Attributes:
    mmas: MMA instructions.
    flops: FLOPs, of which a sparse product counts its zeros.
    operand_bytes: Shared memory that MMAs read.
    copy_bytes: Shared memory that is copied to tensor memory.
    load_bytes: Global memory that is copied to shared memory.
    store_bytes: Shared memory that is copied to global memory.
    tmem_bytes: Tensor memory that the epilogue reads.
    load_rows: Rows of boxes that TMA loads.
    steps: Steps along K.
  """

  mmas: int
  flops: int
  operand_bytes: int
  copy_bytes: int
  load_bytes: int
  store_bytes: int
  tmem_bytes: int
  load_rows: int
  steps: int


def _swizzle(row_bytes: float) -> int:
  """The widest swizzle of rows of so many bytes."""
  return math.gcd(int(row_bytes), 128)


@functools.lru_cache(maxsize=4096)
def count(kernel: Kernel, k: int) -> Counts:
  """Counts what a tile takes with ``k`` elements along K."""
  steps = -(-k // kernel.tile_k)
  k = steps * kernel.tile_k
  element = kernel.bits / 8
  instruction_k = A_INSTRUCTION_BYTES * 8 // kernel.bits * (1 + kernel.sparse)
  row_tiles, k_groups = kernel.tile_m // ROWS, k // instruction_k
  n_tiles = -(-kernel.columns // MAX_INSTRUCTION_N)
  mmas = row_tiles * n_tiles * k_groups
  operands = mmas * ROWS * A_INSTRUCTION_BYTES
  operands += int(row_tiles * kernel.tile_n * k * element)
  copies = scales = 0
  if kernel.sparse:
    copies = kernel.tile_m * (k // 2) * 2 // 8
  if kernel.scaled:
    # Each CTA has the scales of all columns, padded to whole row tiles.
    scales = (kernel.tile_m + -(-kernel.columns // ROWS) * ROWS) * (k // 64)
  copies += scales
  stored_k = k // 2 if kernel.sparse else k
  a_bytes = int(kernel.tile_m * stored_k * element)
  b_bytes = int(kernel.tile_n * k * element)
  load_rows = a_bytes // _swizzle(stored_k // steps * element)
  load_rows += b_bytes // _swizzle(kernel.tile_n * element)
  load_rows += copies // METADATA_ROW_BYTES
  out = kernel.tile_m * kernel.columns
  return Counts(
      mmas=mmas, flops=2 * kernel.rows * kernel.columns * k,
      operand_bytes=operands, copy_bytes=copies,
      load_bytes=a_bytes + b_bytes + copies,
      store_bytes=out * kernel.out_bits // 8, tmem_bytes=out * 4,
      load_rows=load_rows, steps=steps,
  )


def distinct(
    grid: tuple[int, int], order: tuple[int, int], tiles: int
) -> tuple[int, int]:
  """Distinct indices along M and N of the first tiles.

  Args:
    grid: Tiles along M and N.
    order: Minor dimension and width of ``plgpu.planar_snake``.
    tiles: How many of them.
  """
  minor_dim, width = order
  minor, major = grid[minor_dim], grid[1 - minor_dim]
  width = min(width, minor)
  minors = min(minor, -(-tiles // (width * major)) * width, tiles)
  majors = min(major, -(-tiles // width))
  return (majors, minors) if minor_dim else (minors, majors)


@dataclasses.dataclass(frozen=True)
class Estimate:
  """How long a matmul takes.

  Attributes:
    counts: What a tile takes.
    cycles: Cycles of a tile in each resource, were it the only one.
    epilogue: Cycles of the epilogue of a tile.
    overlapped: Whether it runs beside the MMAs of the next tile.
    waves: Tiles that a CTA does one after the other.
    hbm_bytes: Global memory that does not come from L2, for a wave.
    seconds: Time of the matmul.
    tflops: TFLOP/s, of which a sparse product counts its zeros.
  """

  counts: Counts
  cycles: dict[str, float]
  epilogue: float
  overlapped: bool
  waves: int
  hbm_bytes: float
  seconds: float
  tflops: float

  @property
  def limit(self) -> str:
    """The resource that takes longest."""
    return max(self.cycles, key=lambda name: self.cycles[name])


def estimate(
    kernel: Kernel, m: int, n: int, k: int, chip: Chip = B200
) -> Estimate:
  """Models a matmul of (M, K) by (K, N), K before compression."""
  counts = count(kernel, k)
  grid = -(-m // kernel.rows), -(-n // kernel.columns)
  at_a_time = chip.sms // kernel.num_cta
  waves = -(-math.prod(grid) // at_a_time)
  overlapped = kernel.accumulators > 1
  part_n = min(kernel.part_n, kernel.columns)
  part, instructions = ROWS * part_n, PART_INSTRUCTIONS
  instructions += COLUMN_INSTRUCTIONS * part_n
  epilogue = kernel.parts * (
      part * 4 / chip.tmem_bytes
      + part * kernel.out_bits / 8 / chip.smem_bytes
      + instructions * chip.cycles_per_instruction
      + PART_BARRIERS * chip.barrier_cycles
  )
  smem = counts.operand_bytes + counts.copy_bytes + counts.store_bytes
  smem += counts.store_bytes if overlapped else 0
  if chip.smem_fill_shares_port:
    smem += counts.load_bytes
  rows, columns = distinct(grid, kernel.order, min(at_a_time, math.prod(grid)))
  a_bytes, b_bytes = kernel.a_row_bytes(k), kernel.b_column_bytes(k)
  hbm = rows * kernel.rows * a_bytes + columns * kernel.columns * b_bytes
  if m * a_bytes + n * b_bytes <= chip.l2_bytes:
    hbm = (m * a_bytes + n * b_bytes) / waves
  hbm += m * n * kernel.out_bits / 8 / waves
  # A stage is filled while the MMAs of the others run.
  ring = counts.steps * chip.load_latency
  ring /= kernel.steps - 1 if kernel.steps > 1 else 1
  instructions = counts.steps * STEP_INSTRUCTIONS
  instructions += counts.mmas * MMA_INSTRUCTIONS
  cycles = {
      "tensor core": counts.flops
      / kernel.num_cta / chip.flops(kernel.bits, kernel.sparse),
      "shared memory": smem / chip.smem_bytes,
      "TMA": counts.load_rows / chip.tma_rows,
      "L2": (counts.load_bytes + counts.store_bytes) / chip.l2_bytes_per_cycle,
      "HBM": hbm / chip.hbm_bytes_per_cycle,
      "issue": instructions * chip.cycles_per_instruction,
      "latency": ring,
  }
  if overlapped:
    cycles["epilogue"] = epilogue
  busy = max(cycles.values())
  if kernel.steps == 1:
    busy += ring  # With one stage, loads and MMAs take turns.
  start = chip.load_latency
  total = waves * busy + start + (1 if overlapped else waves) * epilogue
  if not kernel.prefetches:
    total += (waves - 1) * start
  seconds = total / chip.clock_ghz / 1e9
  return Estimate(
      counts=counts, cycles=cycles, epilogue=epilogue, overlapped=overlapped,
      waves=waves, hbm_bytes=hbm, seconds=seconds,
      tflops=2 * m * n * k / seconds / 1e12,
  )


ORDERS = tuple((dim, width) for dim in (0, 1) for width in (1, 4, 8, 16))
MAX_STEPS = 8
# Times that differ by less are the same to the model.
SAME = 0.01
TILES_M = (128, 256, 384, 512)


def fits(config, dtype, scaled: bool = False) -> bool:
  """Whether operands and a float32 result fit into the memories of an SM."""
  try:
    config.check(dtype, jnp.float32, scaled=scaled)
  except ValueError:
    return False
  return True


@functools.lru_cache(maxsize=64)
def _fitting(make, most: int, dtype, scaled: bool) -> tuple[Any, ...]:
  bits = 8 * dtype.itemsize
  # A step of A fills a row of the largest swizzle, 128 bytes. A row of B must
  # be a multiple of the smallest, 32 bytes.
  tile_k, unit = 2 * 128 * 8 // bits, 32 * 8 // bits
  result = []
  for collective, tile_m in itertools.product((False, True), TILES_M):
    for tile_n in range(unit, (128 if collective else 256) + 1, unit):
      found: set[int] = set()
      for steps in range(most, 1, -1):
        config = make(
            tile_m=tile_m, tile_n=tile_n, tile_k=tile_k,
            max_concurrent_steps=steps, collective=collective,
            epilogue_tile_n=math.gcd(tile_n * (1 + collective), 32),
        )
        accumulators = config.num_accumulators(scaled=scaled)
        if accumulators not in found and fits(config, dtype, scaled):
          found.add(accumulators)
          result.append(config)
  return tuple(result)


def candidates(
    make, m: int, n: int, k: int, dtype, scaled: bool = False
) -> list[Any]:
  """Configurations that fit, with as many stages as do.

  Of those that differ in the number of stages only, these are the one with the
  most, and the one with the most that leaves room for two accumulators.

  Args:
    make: ``sparse_matmul_blackwell.TuningConfig``.
    m: Rows of A.
    n: Columns of B.
    k: Columns of A before compression.
    dtype: The type of A and B.
    scaled: Whether there are block scales.
  """
  dtype = jnp.dtype(dtype)
  steps = -(-k * dtype.itemsize // 256)
  fitting = _fitting(make, min(max(steps, 2), MAX_STEPS), dtype, scaled)
  # Tiles of which a smaller one has all of the result are of no use.
  unit = 32 // dtype.itemsize
  return [
      config for config in fitting
      if config.rows < m + ROWS and config.columns < n + unit * 4
      or (config.rows, config.columns) == (ROWS, unit)
  ]


def best(
    make, m: int, n: int, k: int, dtype, scaled: bool = False,
    chip: Chip = B200,
) -> Any:
  """Returns the fastest of `candidates`, in the order that needs HBM least.

  Of those that the model cannot tell apart, it is the one that asks least of
  TMA, of which the least is known.
  """

  def model(config):
    return estimate(Kernel.of(config, dtype, scaled=scaled), m, n, k, chip)

  models = [
      (config, model(config))
      for config in candidates(make, m, n, k, dtype, scaled)
  ]
  fastest = min(result.seconds for _, result in models)
  config, _ = min(
      (x for x in models if x[1].seconds <= fastest * (1 + SAME)),
      key=lambda x: x[1].counts.load_rows / x[1].counts.flops,
  )
  orders = [
      dataclasses.replace(config, grid_minor_dim=dim, grid_tile_width=width)
      for dim, width in ORDERS
  ]
  return min(orders, key=lambda config: model(config).hbm_bytes)


SIZE = 8192
# Table 1: tiles of each number of CTAs, as far as they fit.
TABLE_N = {False: (64, 128, 192, 240, 256), True: (32, 64, 96, 112, 128)}
TYPES = (
    ("bf16", jnp.bfloat16, False),
    ("fp8", jnp.float8_e4m3fn, False),
    ("mxfp8", jnp.float8_e4m3fn, True),
)
# Table 2: what is uncertain, and other values that it may have.
UNCERTAIN: tuple[tuple[str, Chip], ...] = (
    ("", B200),
    ("TMA writes to shared memory by a port of its own",
     Chip(smem_fill_shares_port=False)),
    ("TMA loads 2 rows a cycle", Chip(tma_rows=2.0)),
    ("TMA loads 0.7 rows a cycle", Chip(tma_rows=0.7)),
    ("both: a port of its own, 2 rows",
     Chip(smem_fill_shares_port=False, tma_rows=2.0)),
    ("L2 gives 15 TB/s", Chip(l2_tb_s=15.0)),
    ("HBM gives 4 TB/s", Chip(hbm_tb_s=4.0)),
    ("loads take 2200 cycles", Chip(load_latency=2200)),
    ("tcgen05.ld reads 58 bytes a cycle", Chip(tmem_bytes=58)),
    ("instructions every 1.2 cycles", Chip(cycles_per_instruction=1.2)),
    ("instructions every 4.4 cycles", Chip(cycles_per_instruction=4.4)),
    ("bar.sync takes 100 cycles", Chip(barrier_cycles=100)),
    ("1.965 GHz", Chip(clock_ghz=1.965)),
    ("1.5 GHz", Chip(clock_ghz=1.5)),
)
# Table 3: JAX's tutorial on matmuls for Blackwell: what it measured in percent
# of 2.25 PFLOP/s, for f16 with M = K = 4096 and N = 8192, and those of its
# configurations that fit and that the model finds fastest.
_ONE_CTA = Kernel(
    128, 128, 64, 1, 6, 1, 128, 16, sparse=False, prefetches=False
)
_TWO_CTAS = dataclasses.replace(_ONE_CTA, num_cta=2, part_n=64, order=(1, 32))
_TWO_ACCUMULATORS = dataclasses.replace(
    _TWO_CTAS, accumulators=2, prefetches=True
)
TUTORIAL_SIZE = 4096, 8192, 4096
TUTORIAL = (
    ("0. basic kernel", 37.62, _ONE_CTA),
    ("1. warp specialization", 45.47, _ONE_CTA),
    ("2. tiled epilogue", 55.82,
     dataclasses.replace(_ONE_CTA, tile_n=256, steps=4, part_n=64)),
    ("3. collective MMA", 59.41, _TWO_CTAS),
    ("4. persistent kernel", 61.46, _TWO_CTAS),
    ("5. epilogue warpgroup", 63.38, _TWO_ACCUMULATORS),
    ("6. grid tiling", 69.44,
     dataclasses.replace(_TWO_ACCUMULATORS, order=(0, 12))),
)


def _markdown(header: tuple[str, ...], rows) -> str:
  lines = [header, ["---"] * len(header), *rows]
  return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _thousands(x: float) -> str:
  return f"{x / 1000:.1f}"


def configurations(make) -> str:
  """Table 1: configurations of `sparse_matmul`, as Markdown."""
  header = (
      "type", "CTAs", "tile", "stages", "tensor core", "operands KB",
      "loads KB", "shared memory", "TMA", "L2", "HBM", "issue", "epilogue",
      "tiles a CTA", "limit", "TFLOP/s", "own port",
  )
  own_port = dataclasses.replace(B200, smem_fill_shares_port=False)
  rows = []
  for (name, dtype, scaled), collective, tile_m in itertools.product(
      TYPES, TABLE_N, TILES_M
  ):
    for tile_n in TABLE_N[collective]:
      configs = [
          config for config in candidates(make, SIZE, SIZE, SIZE, dtype, scaled)
          if (config.collective, config.tile_m, config.tile_n)
          == (collective, tile_m, tile_n)
      ]
      if not configs:
        continue
      model = lambda config, chip=B200: estimate(
          Kernel.of(config, dtype, scaled=scaled), SIZE, SIZE, SIZE, chip
      )
      config = min(configs, key=lambda config: model(config).seconds)
      result = model(config)
      cycles, counts = result.cycles, result.counts
      epilogue = _thousands(result.epilogue)
      rows.append((
          name, config.num_cta, f"{config.rows} x {config.columns}",
          config.max_concurrent_steps, _thousands(cycles["tensor core"]),
          round(counts.operand_bytes / 1024), round(counts.load_bytes / 1024),
          *(
              _thousands(cycles[x])
              for x in ("shared memory", "TMA", "L2", "HBM", "issue")
          ),
          f"({epilogue})" if result.overlapped else f"+ {epilogue}",
          result.waves, result.limit, round(result.tflops),
          round(model(config, own_port).tflops),
      ))
  return _markdown(header, rows)


def defaults(make) -> str:
  """What `best` chooses, as Markdown."""
  rows = []
  for (name, dtype, scaled), size in itertools.product(
      TYPES, (1024, 2048, 4096, 8192)
  ):
    config = best(make, size, size, size, dtype, scaled)
    kernel = Kernel.of(config, dtype, scaled=scaled)
    result = estimate(kernel, size, size, size)
    rows.append((
        name, size, config.num_cta, config.tile_m, config.tile_n,
        config.max_concurrent_steps, kernel.accumulators, result.limit,
        round(result.tflops),
    ))
  header = (
      "type", "M = N = K", "CTAs", "tile_m", "tile_n", "stages",
      "accumulators", "limit", "TFLOP/s",
  )
  return _markdown(header, rows)


def sensitivity(make) -> str:
  """Table 2: what uncertain figures of the chip change, as Markdown."""
  dtype = jnp.bfloat16
  tiles = (128, 128), (256, 96), (256, 112)
  fitting = {
      (config.tile_m, config.tile_n): config
      for config in candidates(make, SIZE, SIZE, SIZE, dtype)
      if config.collective
  }
  rows = []
  for name, chip in UNCERTAIN:
    model = lambda config: estimate(
        Kernel.of(config, dtype), SIZE, SIZE, SIZE, chip
    )
    results = [round(model(fitting[tile]).tflops) for tile in tiles]
    config = best(make, SIZE, SIZE, SIZE, dtype, chip=chip)
    rows.append((
        name or "(as assumed)", *results,
        f"{config.rows} x {config.columns}: {round(model(config).tflops)}",
    ))
  header = (
      "if", *(f"{2 * m} x {2 * n}" for m, n in tiles), "the best",
  )
  return _markdown(header, rows)


def tutorial() -> str:
  """Table 3: JAX's dense kernel, as published and as modelled."""
  own_port = dataclasses.replace(B200, smem_fill_shares_port=False)
  peak = B200.sms * B200.clock_ghz * B200.dense_16_bit_flops / 1e3
  rows = []
  for name, published, kernel in TUTORIAL:
    result = estimate(kernel, *TUTORIAL_SIZE)
    other = estimate(kernel, *TUTORIAL_SIZE, own_port)
    shares = [100 * x.tflops / peak for x in (result, other)]
    rows.append((
        name, f"{published:.1f}", f"{shares[0]:.1f}", result.limit,
        f"{published / shares[0]:.2f}", f"{shares[1]:.1f}",
        f"{published / shares[1]:.2f}",
    ))
  header = (
      "step", "published %", "model %", "limit", "published / model",
      "own port: model %", "published / model",
  )
  return _markdown(header, rows)


def report() -> str:
  """All tables, as Markdown."""
  from jax.experimental.mosaic.gpu.examples import sparse_matmul_blackwell  # pylint: disable=g-import-not-at-top
  make = sparse_matmul_blackwell.TuningConfig
  return "\n\n".join((
      f"### Configurations, M = N = K = {SIZE}", configurations(make),
      "### The fastest ones", defaults(make),
      f"### Sensitivity, bf16, two CTAs, M = N = K = {SIZE}, in TFLOP/s",
      sensitivity(make),
      "### JAX's dense kernel", tutorial(),
  ))


def main() -> int:
  print("A model of a B200 on paper: nothing here was measured.\n")
  print(report())
  return 0


if __name__ == "__main__":
  sys.exit(main())
