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
"""Tests of GPU interpret mode with tcgen05 operations of two CTAs."""

from __future__ import annotations

import threading
import types

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.pallas.mosaic_gpu.interpret import shared_memory
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import pallas_tiles_test_util as pallas_util

E4M3 = jnp.float8_e4m3fn
E8M0 = jnp.float8_e8m0fnu
Matmul = pallas_util.Matmul
Pipeline = pallas_util.Pipeline


class Matmul64(Matmul):
  """With 64 rows per block, the scales of B have a layout of their own."""

  def tmem_scratch(self):
    b_scale = plgpu.TMEM(
        (256, self.scales), self.scale_dtype, collective=True,
        layout=plgpu.TMEMLayout.SCALES_M64_COLLECTIVE_LAYOUT,
    )
    return super().tmem_scratch() | {"b_scale": b_scale}


_fp4 = dict(dtype=jnp.float4_e2m1fn, b_k_major=True)
_mxfp8 = dict(dtype=E4M3, scale_dtype=E8M0)

_MATMULS = dict(
    dense=Matmul(128, 64, 64, sparse=False, collective=True),
    f16=Matmul(256, 64, 256, collective=True),
    in_warp=Matmul(256, 64, 256, collective=True, in_warp=True),
    a_in_tmem=Matmul(256, 64, 128, collective=True, a_in_tmem=True),
    transposed=Matmul(
        128, 64, 128, collective=True, a_k_major=False, b_k_major=True
    ),
    int8=Matmul(
        256, 128, 256, dtype=jnp.int8, acc_dtype=jnp.int32, collective=True
    ),
    sparse_mxfp8=Matmul(
        256, 128, 256, scale_block=64, collective=True, **_mxfp8
    ),
    sparse_nvfp4=Matmul(
        128, 128, 512, scale_dtype=E4M3, scale_block=32, collective=True, **_fp4
    ),
    mxfp8_m64=Matmul64(
        64, 128, 256, sparse=False, scale_block=32, collective=True,
        read="whole", **_mxfp8,
    ),
    mxfp8_m64_n=Matmul64(
        64, 96, 256, sparse=False, scale_block=32, collective=True,
        read="whole", b_k_major=True, **_mxfp8,
    ),
)
_PIPELINE = dict(
    m=128, n=128, k=768, scale_block=64, collective=True, **_mxfp8
)
_OPERANDS = ("a", "b", "metadata", "a_scale", "b_scale")


class PallasInterpretTwoCtasTest(test_util.TestCase):

  @parameterized.product(name=tuple(_MATMULS))
  def test_numbers(self, name):
    _MATMULS[name].check_interpreted(self)

  @parameterized.parameters(
      {},
      *(dict(unawaited=operand) for operand in _OPERANDS),
      *(dict(early=operand) for operand in _OPERANDS),
      *(dict(one_stage=operand) for operand in _OPERANDS[2:]),
      dict(read_early=True),
  )
  def test_pipeline(self, **failure):
    Pipeline(**_PIPELINE, **failure).check_race(self, bool(failure))

  def test_barrier_of_the_call(self):
    """It is arrived at in both blocks, after the MMA in both."""

    class Arrive(Matmul):

      def issue_in(self, smem, tmem, done, axis):
        plgpu.tcgen05_mma(
            tmem["d"], smem["a"], smem["b"], done, accumulate=False,
            collective_axis=axis,
        )

    Arrive(128, 64, 64, sparse=False, collective=True).check_interpreted(self)

  @parameterized.parameters(((2, 2), "x"), ((2, 1), "y"), ((2, 4), "y"))
  def test_other_axes(self, cluster, axis):
    def body(_, smem, tmem):
      plgpu.async_copy_sparse_metadata_to_tmem(
          smem, tmem, collective_axis=axis
      )

    layout = plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((1,), jnp.float32),
        scratch_types=[
            plgpu.SMEM((1, 1, 128, 64), jnp.uint2),
            plgpu.TMEM((128, 64), jnp.uint2, layout=layout, collective=True),
        ],
        cluster=cluster,
        cluster_names=("x", "y"),
        interpret=plgpu.InterpretGPUParams(),
    )
    with self.assertRaisesWithLiteralMatch(
        ValueError,
        "Expected a collective operation along the last cluster axis, of size"
        f" 2, got axis {axis!r} of a cluster with axes ('x', 'y') and sizes"
        f" {cluster}",
    ):
      jax.jit(kernel).lower()

  def test_missing_allocation(self):
    key = shared_memory.HostAllocationKey(
        memory_space_id=1, device_id=0, block_id=1, thread_id=0, buffer_id=7
    )
    state = types.SimpleNamespace(
        lock=threading.Lock(), mem={}, finished_blocks=set(),
        check_failed=lambda: None,
    )
    wait = shared_memory.GPUSharedMemory.await_allocation
    with self.assertRaisesRegex(
        ValueError, r"Expected block 1 of the cluster .*buffer_id=7.* got none"
    ):
      wait(state, key, timeout_s=0)
    state.finished_blocks.add(1)
    with self.assertRaisesRegex(ValueError, "got none"):
      wait(state, key)
    state.mem[key] = None
    wait(state, key)


if __name__ == "__main__":
  absltest.main()
