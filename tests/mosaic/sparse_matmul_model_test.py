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
"""Tests of the model of the sparse matmul kernel's speed.

What it counts is compared with what the simulator counts. Its figures of the
chip can only be checked for consistency: nothing runs on a GPU. With
MOSAIC_GPU_FULL_TESTS=1 in the environment, more kernels are compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re

from absl.testing import absltest
from absl.testing import parameterized
import jax
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu.examples import sparse_matmul_blackwell
from jax.experimental.mosaic.gpu.examples import sparse_matmul_model as model
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"
Config = sparse_matmul_blackwell.TuningConfig
BF16, E4M3 = jnp.bfloat16, jnp.float8_e4m3fn
# Bytes that a tcgen05.cp of a CTA reads, by its shape.
_COPY_BYTES = {"128x128b": 128 * 16, "32x128b": 32 * 16}


def _simulate(config, steps, dtype, scaled, seed=0):
  """Runs a tile of ``steps`` steps and returns the simulator's report."""
  rng = np.random.default_rng(seed)
  m, n, k = config.rows, config.columns, steps * config.tile_k
  small = lambda *shape: jnp.asarray(rng.integers(-4, 5, shape), dtype)
  order = rng.random((m, k // 4, 4)).argsort(axis=-1)
  positions = jnp.asarray(np.sort(order[..., :2], axis=-1), jnp.uint2)
  kwargs = {}
  if scaled:
    scales = lambda *shape: jnp.asarray(
        2.0 ** rng.integers(-2, 3, shape), jnp.float8_e8m0fnu
    )
    kwargs = dict(a_scales=scales(m, k // 64), b_scales=scales(k // 64, n))
  with simulator.simulate(num_sms=config.num_cta) as simulation:
    sparse_matmul_blackwell.sparse_matmul(
        small(m, k // 2), positions, small(k, n), config, **kwargs
    ).block_until_ready()
  [run] = [run for run in simulation.runs if run.report.mma_count]
  return run.report


_ONE = Config(128, 64, 128, 3)
_COUNTED = (
    ("row_tiles", Config(256, 64, 128, 2), BF16, False),
    ("mxfp8_two_ctas", Config(128, 64, 256, 2, True), E4M3, True),
    *((
        ("one", _ONE, BF16, False),
        ("n_tiles", Config(128, 320, 128, 2), BF16, False),
        ("two_ctas", Config(256, 48, 128, 2, True), BF16, False),
        ("fp8", Config(128, 32, 256, 2, True), E4M3, False),
        ("mxfp8", Config(256, 32, 256, 2), E4M3, True),
    ) if _FULL else ()),
)
_MAIN_LOOPS = (
    ("one", _ONE),
    *((
        ("row_tiles", Config(256, 64, 128, 3)),
        ("two_ctas", Config(256, 48, 128, 3, True)),
    ) if _FULL else ()),
)


class CountsTest(parameterized.TestCase):

  @parameterized.named_parameters(*_COUNTED)
  def test_counts(self, config, dtype, scaled):
    report = _simulate(config, 2, dtype, scaled)
    kernel = model.Kernel.of(config, dtype, scaled=scaled)
    counts = model.count(kernel, 2 * config.tile_k)
    ctas = config.num_cta
    self.assertEqual(report.mma_count, counts.mmas)
    self.assertEqual(report.flops, counts.flops)
    self.assertEqual(report.shared_operand_bytes, ctas * counts.operand_bytes)
    self.assertEqual(report.load_bytes, ctas * counts.load_bytes)
    self.assertEqual(report.store_bytes, ctas * counts.store_bytes)
    copied = read = 0
    for opcode, count in report.thread_instructions.items():
      if opcode.startswith("tcgen05.cp"):
        [shape] = [x for x in _COPY_BYTES if f".{x}" in opcode]
        copied += count * _COPY_BYTES[shape]
      elif opcode.startswith("tcgen05.ld"):
        [(shape, num)] = re.findall(r"\.(\w+)\.x(\d+)\.b32", opcode)
        registers = {"16x256b": 4, "32x32b": 1}[shape] * int(num)
        read += count * registers * 4
    # One thread issues copies, for both CTAs.
    self.assertEqual(copied, counts.copy_bytes)
    self.assertEqual(read, ctas * counts.tmem_bytes)

  @parameterized.named_parameters(*_MAIN_LOOPS)
  def test_main_loop_instructions(self, config):
    # The ring has all steps, so that nothing spins to wait for a stage.
    one, three = (_simulate(config, i, BF16, False) for i in (1, 3))
    counted = (three.steps - one.steps) / 2
    mmas = (three.mma_count - one.mma_count) / 2
    modelled = model.STEP_INSTRUCTIONS + mmas * model.MMA_INSTRUCTIONS
    self.assertBetween(counted, 0.7 * modelled, 1.02 * modelled)

  def test_epilogue_instructions(self):
    # All that differs are the parts of the epilogue.
    reports = {
        n: _simulate(Config(128, n, 128, 3), 1, BF16, False) for n in (64, 128)
    }
    counted = (reports[128].steps - reports[64].steps) / 2
    modelled = model.PART_INSTRUCTIONS + 32 * model.COLUMN_INSTRUCTIONS
    self.assertBetween(counted, 0.9 * modelled, 1.02 * modelled)
    barriers = [
        r.thread_instructions["bar.sync"] / 128 for r in reports.values()
    ]
    self.assertEqual(barriers[1] - barriers[0], 2 * model.PART_BARRIERS)


class ModelTest(parameterized.TestCase):

  def test_instructions_that_were_measured(self):
    # SemiAnalysis: a dense f16 MMA of 128 x 64 x 16 takes 48 cycles to read its
    # operands and 32 to multiply; it is balanced with 128 columns.
    for columns, operands, multiply in ((64, 48, 32), (128, 64, 64)):
      kernel = model.Kernel(
          128, columns, 16, 1, 2, 1, columns, 16, sparse=False
      )
      counts = model.count(kernel, 16)
      self.assertEqual(counts.mmas, 1)
      self.assertEqual(counts.operand_bytes / model.B200.smem_bytes, operands)
      self.assertEqual(counts.flops / model.B200.flops(16, False), multiply)

  @parameterized.parameters((16, False), (16, True), (8, False), (8, True))
  def test_peak(self, bits, sparse):
    chip = model.B200
    peak = chip.sms * chip.clock_ghz * chip.flops(bits, sparse) / 1e6
    # NVIDIA's, in PFLOP/s.
    nvidia = {(16, False): 2.25, (16, True): 4.5, (8, False): 4.5, (8, True): 9}
    self.assertAlmostEqual(peak, nvidia[bits, sparse])

  def test_swizzle(self):
    for row in (32, 64, 96, 128, 160, 192, 224, 256, 480):
      self.assertEqual(model._swizzle(row), plgpu.find_swizzle(8 * row))

  @parameterized.parameters(
      ((8, 8), (0, 2)), ((8, 8), (1, 4)), ((12, 5), (0, 4)), ((5, 12), (1, 1)),
      ((16, 37), (0, 8)), ((3, 3), (1, 16)),
  )
  def test_distinct(self, grid, order):
    count = math.prod(grid)
    snake = jax.jit(jax.vmap(lambda i: plgpu.planar_snake(i, grid, *order)))
    indices = np.stack(snake(jnp.arange(count, dtype=jnp.int32)), axis=1)
    line = min(order[1], grid[order[0]])
    for tiles in {line, 2 * line, 3 * line, count}:
      expected = tuple(len(set(x)) for x in indices[:tiles].T.tolist())
      self.assertEqual(model.distinct(grid, order, tiles), expected)

  def test_no_faster_than_the_chip(self):
    for name, dtype, scaled in model.TYPES:
      peak = 4500 if name == "bf16" else 9000
      for size in (1024, 8192):
        for config in model.candidates(Config, size, size, size, dtype, scaled):
          kernel = model.Kernel.of(config, dtype, scaled=scaled)
          result = model.estimate(kernel, size, size, size)
          self.assertLess(result.tflops, peak)
          self.assertGreaterEqual(
              result.seconds * model.B200.clock_ghz * 1e9,
              result.waves * max(result.cycles.values()),
          )

  @parameterized.parameters(
      ("tensor core", dict(dense_16_bit_flops=16384)),
      ("shared memory", dict(smem_bytes=256)),
      ("shared memory", dict(smem_fill_shares_port=False)),
      ("TMA", dict(tma_rows=4.0)),
      ("L2", dict(l2_tb_s=100.0)),
      ("HBM", dict(hbm_tb_s=16.0)),
      ("HBM", dict(l2_bytes=1e9)),
      ("latency", dict(load_latency=100)),
      ("issue", dict(cycles_per_instruction=1.0)),
      ("epilogue", dict(cycles_per_instruction=1.0)),
      ("epilogue", dict(tmem_bytes=512)),
      ("epilogue", dict(barrier_cycles=1)),
  )
  def test_a_better_chip_is_no_slower(self, resource, change):
    chip = dataclasses.replace(model.B200, **change)
    size = 8192
    for dtype in (BF16, E4M3):
      for config in model.candidates(Config, size, size, size, dtype):
        kernel = model.Kernel.of(config, dtype)
        before = model.estimate(kernel, size, size, size)
        after = model.estimate(kernel, size, size, size, chip)
        self.assertLessEqual(after.seconds, before.seconds)
        if resource == "epilogue":
          self.assertLess(after.epilogue, before.epilogue)
        elif dtype == BF16 or "l2_bytes" not in change:  # fp8 fits already.
          self.assertLess(after.cycles[resource], before.cycles[resource])

  def test_one_stage_does_not_overlap(self):
    one, two = (
        model.estimate(
            model.Kernel.of(Config(128, 64, 128, steps), BF16), 128, 64, 1024
        ).seconds
        for steps in (1, 2)
    )
    self.assertGreater(one, two)

  def test_tutorial(self):
    """What was measured of the dense kernel is below the model, not far."""
    for name, published, kernel in model.TUTORIAL:
      m, n, k = model.TUTORIAL_SIZE
      result = model.estimate(kernel, m, n, k)
      ratio = published / (100 * result.tflops / 2250)
      self.assertBetween(ratio, 0.6, 1, name)


def _all_configurations(dtype, scaled):
  """Configurations that fit, independent of `model.candidates`."""
  for collective in (False, True):
    for tile_m, tile_n, tile_k, steps in itertools.product(
        (128, 256, 384, 512), range(16, 513, 16), (128, 256), range(2, 9)
    ):
      if tile_n > (128 if collective else 512):
        continue
      config = Config(
          tile_m, tile_n, tile_k, steps, collective,
          epilogue_tile_n=32 if tile_n * (1 + collective) % 32 == 0 else 16,
      )
      try:
        config.check(dtype, jnp.float32, scaled=scaled)
      except ValueError:
        continue
      yield config


class DefaultTest(parameterized.TestCase):

  @parameterized.named_parameters(*model.TYPES)
  def test_within_2_percent_of_the_best(self, dtype, scaled):
    configs = list(_all_configurations(dtype, scaled))
    self.assertGreater(len(configs), 50)
    for m, n, k in (
        *((size, size, size) for size in (1024, 2048, 4096, 8192)),
        (2048, 8192, 4096), (8192, 1024, 8192),
    ):

      def seconds(config):
        kernel = model.Kernel.of(config, dtype, scaled=scaled)
        return model.estimate(kernel, m, n, k).seconds

      default = sparse_matmul_blackwell.default_config(m, n, k, dtype, scaled)
      default.check(dtype, jnp.float32, scaled=scaled)
      self.assertLess(
          seconds(default), 1.02 * min(map(seconds, configs)), (m, n, k)
      )


if __name__ == "__main__":
  absltest.main()
