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
"""Tests of GPU interpret mode with sparse metadata and block scales."""

from __future__ import annotations

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.pallas.mosaic_gpu import helpers
from jax._src.pallas.mosaic_gpu.interpret import tcgen05_operands
from jax.experimental import pallas as pl
from jax.experimental.mosaic.gpu import sparsity
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pallas_tiles_test_util as pallas_util

E4M3 = jnp.float8_e4m3fn
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn
Matmul = pallas_util.Matmul
Pipeline = pallas_util.Pipeline


@dataclasses.dataclass(frozen=True)
class Tf32Matmul(test_util.Tf32Matmul, Matmul):
  pass


# With 4-bit types, B has to be K-major.
_fp4 = dict(dtype=E2M1, b_k_major=True)
_mxfp8 = dict(dtype=E4M3, scale_dtype=E8M0)

_MATMULS = dict(
    f16=Matmul(256, 64, 256),
    f16_accumulator=Matmul(256, 64, 128, acc_dtype=jnp.float16),
    f16_n=Matmul(128, 384, 128),
    f16_transposed_a=Matmul(384, 64, 128, a_k_major=False),
    bf16=Matmul(384, 64, 128, dtype=jnp.bfloat16),
    fp8=Matmul(256, 128, 256, dtype=E4M3),
    fp8_mixed=Matmul(256, 128, 256, dtype=(jnp.float8_e5m2, E4M3)),
    int8=Matmul(256, 128, 256, dtype=jnp.int8, acc_dtype=jnp.int32),
    tf32=Tf32Matmul(256, 64, 64),
    a_in_tmem=Matmul(256, 128, 256, a_in_tmem=True),
    a_in_tmem_int8=Matmul(
        256, 128, 256, dtype=jnp.int8, acc_dtype=jnp.int32, a_in_tmem=True
    ),
    mxfp8=Matmul(256, 128, 256, sparse=False, scale_block=32, **_mxfp8),
    # The rows of the scales of B are padded.
    mxfp8_n=Matmul(
        128, 320, 256, sparse=False, b_k_major=True, scale_block=32, **_mxfp8
    ),
    mxfp4=Matmul(
        256, 128, 256, sparse=False, scale_dtype=E8M0, scale_block=32, **_fp4
    ),
    nvfp4=Matmul(
        256, 128, 256, sparse=False, scale_dtype=E4M3, scale_block=16, **_fp4
    ),
    sparse_mxfp8=Matmul(256, 128, 256, scale_block=64, **_mxfp8),
    sparse_mxfp8_a_in_tmem=Matmul(
        256, 64, 256, scale_block=64, a_in_tmem=True, b_k_major=True, **_mxfp8
    ),
    sparse_mxfp4=Matmul(
        128, 128, 512, scale_dtype=E8M0, scale_block=64, **_fp4
    ),
    sparse_nvfp4=Matmul(
        256, 128, 512, scale_dtype=E4M3, scale_block=32, **_fp4
    ),
)


# Both sparse and scaled, with two row tiles.
_PIPELINE = dict(m=256, n=128, k=768, scale_block=64, **_mxfp8)
_OPERANDS = ("a", "b", "metadata", "a_scale", "b_scale")


class LoopPipeline(Pipeline):
  """The same in a loop, with dynamic stages and slices of metadata."""

  def kernel(self):
    names = list(self.operand_types())
    columns = self.entries // self.steps
    tiles = columns // 64
    step_k = self.k // self.steps

    def body(*refs):
      *inputs, out, smem, loaded, consumed, d, metadata = refs
      inputs = dict(zip(names, inputs, strict=True))

      @pl.loop(0, self.steps)
      def _(step):
        stage = step % self.stages
        if not self.early:

          @pl.when(step >= self.stages)
          def _():
            plgpu.barrier_wait(consumed.at[stage])

        k = pl.ds(step * step_k, step_k)
        parts = {
            "a": (slice(None), pl.ds(step * step_k // 2, step_k // 2)),
            "b": (k, slice(None)),
            "metadata": (slice(None), pl.ds(step * tiles, tiles)),
        }
        for name in names:
          plgpu.copy_gmem_to_smem(
              inputs[name].at[parts[name]], smem[name].at[stage],
              loaded.at[stage],
          )
        plgpu.barrier_wait(loaded.at[stage])
        meta = metadata.at[:, pl.ds(stage * columns, columns)]
        plgpu.async_copy_sparse_metadata_to_tmem(
            smem["metadata"].at[stage], meta
        )
        plgpu.tcgen05_mma(
            d, smem["a"].at[stage], smem["b"].at[stage],
            a_sparse_metadata=meta, accumulate=step > 0,
        )
        plgpu.tcgen05_commit_arrive(consumed.at[stage])

      for step in range(self.steps - self.stages, self.steps):
        plgpu.barrier_wait(consumed.at[step % self.stages])
      self.read_to(out, d)

    one = dataclasses.replace(self, k=step_k)
    transforms = {
        "a": pallas_util.smem_transforms(self.dtype, self.a_swizzle),
        "b": pallas_util.smem_transforms(self.dtype, self.b_swizzle),
        "metadata": (),
    }
    scratch = [
        {
            name: plgpu.SMEM(
                (self.stages, *ty.shape), ty.dtype, transforms=transforms[name]
            )
            for name, ty in one.operand_types().items()
        },
        plgpu.Barrier(num_arrivals=len(names), num_barriers=self.stages),
        plgpu.Barrier(num_barriers=self.stages, orders_tensor_core=True),
        self.tmem_scratch()["d"],
        plgpu.TMEM(
            (self.m, self.stages * columns), jnp.uint2,
            layout=plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT,
        ),
    ]
    return jax.jit(
        pallas_util.kernel(body, self.out_type, scratch, self.semantics)
    )


class PallasInterpretSparseTest(test_util.TestCase):

  @parameterized.product(name=tuple(_MATMULS))
  def test_numbers(self, name):
    _MATMULS[name].check_interpreted(self)

  def test_scales_beyond_float32(self):
    scales = np.array([[2.0**127], [2.0**-127]]).astype(E8M0)
    a = np.full((1, 32), 448).astype(E4M3)
    result = tcgen05_operands.multiply(
        a, a.T, np.dtype(np.float32), a_scale=scales[:1], b_scale=scales[1:]
    )
    np.testing.assert_array_equal(result, [[448.0**2 * 32]])

  @parameterized.product(
      dtype=(E2M1, E4M3, jnp.float16, jnp.float32), shape=((128, 64), (256, 96))
  )
  def test_format_is_its_own_inverse(self, dtype, shape):
    entries = np.random.default_rng(0).integers(0, 4, shape).astype(np.uint8)
    lanes = helpers.sparse_metadata_by_lane(entries, dtype)
    self.assertEqual(
        np.array_equal(lanes, entries), jnp.finfo(dtype).bits < 16
    )
    np.testing.assert_array_equal(
        helpers.sparse_metadata_by_lane(lanes, dtype), entries
    )

  @parameterized.product(how=("row_tiles", "loop", "parts"))
  def test_slices(self, how):

    class Calls(Matmul):

      def call(self, smem, tmem, accumulate, axis=None):

        def issue(rows, start, size):
          compressed = (rows, pl.ds(start // 2, size // 2))
          plgpu.tcgen05_mma(
              tmem["d"].at[rows],
              smem["a"].at[compressed],
              smem["b"].at[pl.ds(start, size)],
              a_sparse_metadata=tmem["metadata"].at[compressed],
              accumulate=start > 0,
          )

        if how == "loop":

          @pl.loop(0, self.m // 128)
          def _(i):
            issue(pl.ds(i * 128, 128), 0, self.k)

          return
        # The middle part begins within a tile of 64 entries.
        bounds = (0, 64, 192, 256) if how == "parts" else (0, self.k)
        for rows in pallas_util.row_tiles(self.m):
          for start, end in zip(bounds, bounds[1:]):
            issue(rows, start, end - start)

    Calls(256, 64, 256).check_interpreted(self)

  @parameterized.product(name=("sparse_mxfp8", "tf32"), failure=(False, True))
  def test_ref_union(self, name, failure):

    class Union(type(_MATMULS[name])):

      def tmem_scratch(self):
        refs = super().tmem_scratch()
        group = [refs[name] for name in refs if name != "d"]
        other = plgpu.TMEM((128, 32), jnp.float32)
        return {
            "d": refs["d"],
            "union": plgpu.RefUnion(group, [other]),
            "copied": plgpu.Barrier(orders_tensor_core=True),
        }

      def copy_to_tmem(self, smem, tmem, axis=None):
        _, (other,) = tmem["union"]

        def overwrite():
          zeros = plgpu.layout_cast(
              jnp.zeros(other.shape, jnp.float32), plgpu.Layout.TCGEN05
          )
          plgpu.async_store_tmem(other, zeros)
          plgpu.commit_tmem()

        overwrite()
        super().copy_to_tmem(smem, self.named(tmem))
        if failure:
          plgpu.tcgen05_commit_arrive(tmem["copied"])
          plgpu.barrier_wait(tmem["copied"])
          overwrite()

      def call(self, smem, tmem, accumulate, axis=None):
        super().call(smem, self.named(tmem), accumulate)

      def named(self, tmem):
        names = [name for name in super().tmem_scratch() if name != "d"]
        group, _ = tmem["union"]
        return dict(zip(names, group, strict=True), d=tmem["d"])

    matmul = Union(**dataclasses.asdict(_MATMULS[name]))
    matmul.check_race(self, failure, "through alias group")

  @parameterized.product(failure=(False, True))
  def test_accumulator_in_ref_union(self, failure):

    class Union(Matmul):

      def tmem_scratch(self):
        d = super().tmem_scratch()["d"]
        return {"d": plgpu.RefUnion([d], [plgpu.TMEM(d.shape, d.dtype)])}

      def issue_in(self, smem, tmem, done, axis):
        (d,), (other,) = tmem["d"]
        zeros = plgpu.layout_cast(
            jnp.zeros(d.shape, jnp.float32), plgpu.Layout.TCGEN05
        )
        plgpu.async_store_tmem(other if failure else d, zeros)
        plgpu.commit_tmem()
        self.call(smem, {"d": d}, True)
        plgpu.tcgen05_commit_arrive(done)

      def read_to(self, out, d):
        super().read_to(out, d[0][0])

    matmul = Union(128, 64, 64, sparse=False)
    matmul.check_race(self, failure, "through alias group")

  @parameterized.parameters(
      {},
      *(dict(unawaited=operand) for operand in _OPERANDS),
      *(dict(early=operand) for operand in _OPERANDS),
      *(dict(one_stage=operand) for operand in _OPERANDS[2:]),
      dict(read_early=True),
  )
  def test_pipeline(self, **failure):
    Pipeline(**_PIPELINE, **failure).check_race(self, bool(failure))

  @parameterized.product(dtype=(jnp.float16, jnp.int8), failure=(False, True))
  def test_loop(self, dtype, failure):
    acc_dtype = jnp.int32 if dtype == jnp.int8 else jnp.float32
    early = "all" if failure else None
    matmul = LoopPipeline(
        128, 128, 1024, dtype, acc_dtype, steps=4, early=early
    )
    matmul.check_race(self, failure)

  @parameterized.product(
      operand=("a", "metadata", "a_scale", "b_scale"), failure=(False, True)
  )
  def test_overwrite_in_tmem(self, operand, failure):
    """The copy follows the first ones, but the MMA only if that is awaited."""

    class Overwrite(Matmul):

      def tmem_scratch(self):
        barriers = plgpu.Barrier(num_barriers=2, orders_tensor_core=True)
        return super().tmem_scratch() | {"barriers": barriers}

      def issue_in(self, smem, tmem, done, axis):
        barriers = tmem.pop("barriers")

        def wait(i):
          plgpu.tcgen05_commit_arrive(barriers.at[i])
          plgpu.barrier_wait(barriers.at[i])

        self.copy_to_tmem(smem, tmem)
        wait(0)
        self.call(smem, tmem, False)
        if not failure:
          wait(1)
        self.copy_operand(operand, smem, tmem)
        plgpu.tcgen05_commit_arrive(done)

    matmul = Overwrite(256, 128, 256, scale_block=64, a_in_tmem=True, **_mxfp8)
    matmul.check_race(
        self, failure, pallas_util.RACE + r"\s+write of .*\n.*\n\s+read of "
    )

  # Not metadata: if the MMA comes first, it finds none, which is an error, too.
  @parameterized.product(operand=("a_scale", "b_scale"), failure=(False, True))
  def test_copy_of_another_warp(self, operand, failure):

    class Warps(Matmul):

      def tmem_scratch(self):
        barrier = plgpu.Barrier(orders_tensor_core=True)
        return super().tmem_scratch() | {"copied": barrier}

      def issue_in(self, smem, tmem, done, axis):
        copied = tmem.pop("copied")
        others = {name: tmem[name] for name in tmem if name != operand}

        @plgpu.warp_map
        def _(warp):

          @pl.when(warp == 0)
          def _():
            self.copy_operand(operand, smem, tmem)
            plgpu.tcgen05_commit_arrive(copied)

          @pl.when(warp == 1)
          def _():
            self.copy_to_tmem(smem, others)
            if not failure:
              plgpu.barrier_wait(copied)
            self.call(smem, tmem, False)
            plgpu.tcgen05_commit_arrive(done)

    Warps(256, 128, 256, scale_block=64, **_mxfp8).check_race(self, failure)

  def test_metadata_that_was_never_copied(self):

    class Uncopied(Matmul):

      def copy_to_tmem(self, smem, tmem, axis=None):
        pass

    with self.assertRaisesRegex(
        Exception,
        r"Expected the sparse metadata of A \(float16\) to hold pairs of"
        r" positions that are two different ones, got \(3, 3\) at row 0, pair"
        r" 0\. Copy metadata",
    ):
      Uncopied(128, 64, 128).check_interpreted(self)

  @parameterized.parameters(
      ((128, 128), (1, 1, 128, 64), "(1, 2, 128, 64)"),
      ((256, 64), (1, 1, 128, 64), "(2, 1, 128, 64)"),
      ((128, 64), (1, 1, 64, 128), "(1, 1, 128, 64)"),
  )
  def test_shape_of_metadata(self, shape, tiles, expected):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        f"Expected an SMEM reference of shape {expected} for a TMEM reference"
        f" of shape {shape}, got shape {tiles}",
    ):
      tcgen05_operands.unpack_metadata(np.zeros(tiles, jnp.uint2), shape)

  @parameterized.parameters(
      ((128, 8), (1, 1, 32, 16), "(1, 2, 32, 16)"),
      ((256, 4), (1, 1, 32, 16), "(2, 1, 32, 16)"),
  )
  def test_shape_of_scales(self, shape, tiles, expected):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        f"Expected an SMEM reference of shape {expected} for a TMEM reference"
        f" of shape {shape}, got shape {tiles}",
    ):
      tcgen05_operands.unpack_scales(np.zeros(tiles, E8M0), shape)

  @parameterized.parameters((64, 64), (128, 32))
  def test_part_of_a_tile(self, *shape):
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a TMEM reference of a multiple of 128 rows and 64 columns,"
        f" got shape {shape}",
    ):
      tcgen05_operands.unpack_metadata(np.zeros((1, 1, 128, 64)), shape)

  def test_tf32_needs_pairs_of_halves(self):
    entries = np.tile([0, 1, 1, 2], 8)[None].repeat(16, 0).astype(np.uint8)
    lanes = helpers.sparse_metadata_by_lane(entries, jnp.float32)
    with self.assertRaisesRegex(
        ValueError, r"are \(0, 1\) or \(2, 3\), got \(1, 2\) at row 0, pair 1"
    ):
      tcgen05_operands.decompress(np.ones((16, 16), np.float32), lanes)

  @parameterized.parameters(jnp.float32, jnp.float16, E4M3, E2M1)
  def test_what_sparsity_compresses(self, dtype):
    values = np.random.default_rng(0).integers(-6, 7, (128, 256))
    a = jnp.asarray(values, jnp.float32).astype(dtype)
    values, positions = map(np.asarray, sparsity.compress(a))
    metadata = helpers.sparse_metadata_by_lane(
        positions.reshape(128, -1), dtype
    )
    np.testing.assert_array_equal(
        tcgen05_operands.decompress(values, metadata).astype(np.float32),
        np.asarray(sparsity.prune(a)).astype(np.float32),
    )


if __name__ == "__main__":
  absltest.main()
