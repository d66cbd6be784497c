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
"""The patterns of JAX's guide to Blackwell matmuls, on the simulator.

The guide (docs/pallas/gpu/blackwell_matmul.md in JAX's sources) goes in seven
steps from a plain kernel to a fast one. Each step is a kernel here, written for
this test: one builder, whose parameters are what the steps add.
"""

from __future__ import annotations

import dataclasses

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import jax
from jax import lax
from jax.experimental.mosaic.gpu import simulator

LOADER, MULTIPLIER = 0, 1  # Warps.


@dataclasses.dataclass(frozen=True)
class Pattern:
  """What a kernel does.

  Attributes:
    store_n: columns of the epilogue's tiles, None for all.
    pair: whether two CTAs multiply together.
    persistent: whether CTAs take one tile after the other.
    store_warpgroup: whether a second warpgroup does the epilogue.
    snake: (minor dimension, width) of the order of the tiles, None for rows.
  """

  store_n: int | None = None
  pair: bool = False
  persistent: bool = False
  store_warpgroup: bool = False
  snake: tuple[int, int] | None = None
  tile_m: int = 128
  tile_n: int = 64
  tile_k: int = 64
  stages: int = 2


def _transforms(columns: int, dtype) -> tuple[plgpu.MemoryRefTransform, ...]:
  bits = 8 * jnp.dtype(dtype).itemsize
  swizzle = plgpu.find_swizzle(columns * bits)
  return (
      plgpu.TilingTransform((8, 8 * swizzle // bits)),
      plgpu.SwizzleTransform(swizzle),
  )


def pipelined(a, b, p: Pattern):
  """Step 0: one warpgroup, with the loads in a pipeline of JAX's."""
  (m, k), (_, n), dtype = a.shape, b.shape, a.dtype
  steps = k // p.tile_k

  def kernel(a_gmem, b_gmem, out_gmem, acc, out_smem, done):
    row, column = lax.axis_index("row"), lax.axis_index("column")

    def multiply(index, a_smem, b_smem):
      (step,) = index
      now = lax.rem(step, jnp.int32(2))
      plgpu.tcgen05_mma(
          acc, a_smem, b_smem, barrier=done.at[now], accumulate=step > 0
      )
      # Lets the MMA of this step run while the next operands come in.
      plgpu.barrier_wait(done.at[1 - now])

    plgpu.barrier_arrive(done.at[1])  # There is none before the first.
    spec = dict(delay_release=1, transforms=_transforms(p.tile_k, dtype))
    b_spec = dict(delay_release=1, transforms=_transforms(p.tile_n, dtype))
    plgpu.emit_pipeline(
        multiply,
        grid=(steps,),
        in_specs=[
            plgpu.BlockSpec(
                (p.tile_m, p.tile_k), lambda step: (row, step), **spec
            ),
            plgpu.BlockSpec(
                (p.tile_k, p.tile_n), lambda step: (step, column), **b_spec
            ),
        ],
        max_concurrent_steps=p.stages,
    )(a_gmem, b_gmem)
    plgpu.barrier_wait(done.at[(steps - 1) % 2])
    out_smem[...] = plgpu.async_load_tmem(acc).astype(dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(
        out_smem,
        out_gmem.at[
            pl.ds(row * p.tile_m, p.tile_m), pl.ds(column * p.tile_n, p.tile_n)
        ],
    )
    plgpu.wait_smem_to_gmem(0)

  return plgpu.kernel(
      kernel,
      out_type=jax.ShapeDtypeStruct((m, n), dtype),
      grid=(m // p.tile_m, n // p.tile_n),
      grid_names=("row", "column"),
      scratch_types=[
          plgpu.TMEM((p.tile_m, p.tile_n), jnp.float32),
          plgpu.SMEM(
              (p.tile_m, p.tile_n), dtype,
              transforms=_transforms(p.tile_n, dtype),
          ),
          plgpu.Barrier(num_barriers=2, orders_tensor_core=True),
      ],
  )(a, b)


def specialized(a, b, p: Pattern):
  """Steps 1 to 6: one warp loads, another one multiplies."""
  (m, k), (_, n), dtype = a.shape, b.shape, a.dtype
  ctas = 2 if p.pair else 1
  full_m, full_n = ctas * p.tile_m, ctas * p.tile_n
  rows, columns, steps = m // full_m, n // full_n, k // p.tile_k
  store_n = p.store_n or full_n
  slots = 2 if p.store_warpgroup else 1
  axis = "pair" if p.pair else None

  def kernel(a_gmem, b_gmem, out_gmem, a_smem, b_smem, acc, out_smem, loaded,
             consumed, multiplied, stored=None):
    rank = lax.axis_index("pair") if p.pair else 0
    thread = lax.axis_index("thread") if p.store_warpgroup else None

    def tile(row, column, turn):
      slot = lax.rem(turn, jnp.int32(slots))
      slot_acc = acc.at[:, pl.ds(slot * full_n, full_n)]
      at_row = pl.ds(row * full_m, full_m)
      at_column = pl.ds(column * full_n, full_n)

      def load(step, _):
        stage = lax.rem(step, p.stages)

        @pl.when(jnp.logical_or(step >= p.stages, turn > 0))
        def _():
          plgpu.barrier_wait(consumed.at[stage])

        at_step = pl.ds(step * p.tile_k, p.tile_k)
        for split, source, target in (
            (0, a_gmem.at[at_row, at_step], a_smem),
            (1, b_gmem.at[at_step, at_column], b_smem),
        ):
          plgpu.copy_gmem_to_smem(
              source, target.at[stage], loaded.at[stage],
              collective_axes=axis,
              leader_tracked=(
                  plgpu.CopyPartition.PARTITIONED(split) if p.pair else None
              ),
          )

      def multiply(step, _):
        stage = lax.rem(step, p.stages)
        plgpu.barrier_wait(loaded.at[stage])
        plgpu.tcgen05_mma(
            slot_acc, a_smem.at[stage], b_smem.at[stage], consumed.at[stage],
            accumulate=step > 0, collective_axis=axis,
        )

      def compute():
        @plgpu.warp_map
        def _(warp):
          @pl.when(warp == LOADER)
          def _():
            lax.fori_loop(0, steps, load, None)

          if p.store_warpgroup:
            @pl.when(jnp.logical_and(warp == MULTIPLIER, turn >= slots))
            def _():
              plgpu.barrier_wait(stored.at[slot])

          @pl.when(jnp.logical_and(warp == MULTIPLIER, rank == 0))
          def _():
            lax.fori_loop(0, steps, multiply, None)
            plgpu.tcgen05_commit_arrive(
                multiplied.at[slot], collective_axis=axis
            )

      def store():
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        plgpu.barrier_wait(multiplied.at[slot])
        target = out_gmem.at[
            pl.ds((row * ctas + rank) * p.tile_m, p.tile_m), at_column
        ]
        for i in range(full_n // store_n):
          part = pl.ds(i * store_n, store_n)
          buffer = out_smem.at[i % 2]
          plgpu.wait_smem_to_gmem(1, wait_read_only=True)
          buffer[...] = plgpu.async_load_tmem(slot_acc.at[:, part]).astype(
              dtype
          )
          plgpu.commit_smem()
          plgpu.copy_smem_to_gmem(buffer, target.at[:, part])
        plgpu.wait_load_tmem()  # Before the accumulator is overwritten.
        if p.store_warpgroup:
          plgpu.barrier_arrive(stored.at[slot])

      if p.store_warpgroup:
        pl.when(thread == 0)(compute)
        pl.when(thread == 1)(store)
      else:
        compute()
        store()

    if not p.persistent:
      tile(lax.axis_index("row"), lax.axis_index("column"), jnp.int32(0))
    elif p.snake is None:

      @plgpu.nd_loop((rows, columns), collective_axes="worker")
      def _(info):
        tile(*info.index, info.local_index)

    else:

      @plgpu.nd_loop((rows * columns,), collective_axes="worker")
      def _(info):
        row, column = plgpu.planar_snake(
            info.index[0], (rows, columns), *p.snake
        )
        tile(row, column, info.local_index)

    plgpu.wait_smem_to_gmem(0)

  def barrier(count):
    return plgpu.Barrier(num_barriers=count, orders_tensor_core=True)

  scratch = [
      plgpu.SMEM((p.stages, p.tile_m, p.tile_k), dtype,
                 transforms=_transforms(p.tile_k, dtype)),
      plgpu.SMEM((p.stages, p.tile_k, p.tile_n), dtype,
                 transforms=_transforms(p.tile_n, dtype)),
      plgpu.TMEM((p.tile_m, slots * full_n), jnp.float32, collective=p.pair),
      plgpu.SMEM((2, p.tile_m, store_n), dtype,
                 transforms=_transforms(store_n, dtype)),
      plgpu.Barrier(num_arrivals=2, num_barriers=p.stages),
      barrier(p.stages),
      barrier(slots),
  ]
  if p.store_warpgroup and p.pair:
    scratch.append(
        plgpu.ClusterBarrier(
            collective_axes=("pair",), num_barriers=slots,
            orders_tensor_core=True,
        )
    )
  elif p.store_warpgroup:
    scratch.append(barrier(slots))
  options = dict(grid=(rows, columns), grid_names=("row", "column"))
  if p.persistent:
    # As the guide does: as many clusters as the device has room for.
    workers = jax.local_devices()[0].core_count // ctas
    options = dict(grid=(workers,), grid_names=("worker",))
  if p.pair:
    options |= dict(cluster=(2,), cluster_names=("pair",))
  if p.store_warpgroup:
    options |= dict(num_threads=2, thread_name="thread")
  return plgpu.kernel(
      kernel, out_type=jax.ShapeDtypeStruct((m, n), dtype),
      scratch_types=scratch, **options,
  )(a, b)


PATTERNS = dict(
    basic=(pipelined, Pattern()),
    basic_three_stages=(pipelined, Pattern(stages=3, tile_n=128)),
    warp_specialized=(specialized, Pattern()),
    tiled_epilogue=(specialized, Pattern(tile_n=128, store_n=32)),
    pair=(specialized, Pattern(store_n=64, pair=True)),
    persistent=(specialized, Pattern(store_n=64, pair=True, persistent=True)),
    persistent_alone=(specialized, Pattern(store_n=32, persistent=True)),
    store_warpgroup=(specialized, Pattern(
        store_n=64, pair=True, persistent=True, store_warpgroup=True)),
    store_warpgroup_alone=(specialized, Pattern(
        store_n=64, persistent=True, store_warpgroup=True, stages=3)),
    grid_tiling=(specialized, Pattern(
        store_n=64, pair=True, persistent=True, store_warpgroup=True,
        snake=(1, 2))),
    grid_tiling_by_rows=(specialized, Pattern(
        store_n=32, pair=True, persistent=True, store_warpgroup=True,
        snake=(0, 3), stages=4)),
)


class TutorialPatternsTest(parameterized.TestCase):

  def _check(self, name, order="eager", num_sms=4, dtype=jnp.float16):
    function, pattern = PATTERNS[name]
    m, n, k = 512, 256, 256
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, (m, k)).astype(np.float32).astype(dtype)
    b = rng.integers(-2, 3, (k, n)).astype(np.float32).astype(dtype)
    with simulator.simulate(order=order, num_sms=num_sms) as simulation:
      result = np.asarray(function(jnp.asarray(a), jnp.asarray(b), pattern))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(
        result.astype(np.float64), expected.astype(dtype).astype(np.float64)
    )
    report = simulation.runs[0].report
    ctas = 2 if pattern.pair else 1
    self.assertEqual(report.flops, 2 * m * n * k)
    self.assertEqual(report.store_bytes, 2 * m * n)
    # Every tile loads its operands once; a pair shares them.
    tile_m, tile_n = ctas * pattern.tile_m, ctas * pattern.tile_n
    self.assertEqual(
        report.load_bytes, 2 * k * (m * (n // tile_n) + n * (m // tile_m))
    )

  @parameterized.parameters(*PATTERNS)
  def test_pattern(self, name):
    self._check(name)

  @parameterized.parameters(
      "basic", "pair", "store_warpgroup_alone", "grid_tiling"
  )
  def test_lazy(self, name):
    self._check(name, order="lazy")

  @parameterized.parameters(
      ("persistent", 2), ("grid_tiling", 2), ("grid_tiling", 148),
  )
  def test_num_sms(self, name, num_sms):
    self._check(name, num_sms=num_sms)

  def test_bfloat16(self):
    self._check("grid_tiling", dtype=jnp.bfloat16)


if __name__ == "__main__":
  absltest.main()
