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
"""What the steps of the tutorial share: a problem, buffers and a check."""

import jax
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu import sparsity
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np


def problem(m, n, k):
  """Returns the arguments of a kernel, and the product that NumPy computes."""
  rng = np.random.default_rng(0)
  # Small integers: all sums are exact in float32, so that any error shows.
  a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
  # Two of every four elements of a row, at random, stay.
  stay = rng.random((m, k // 4, 4)).argsort(axis=-1) < 2
  a = np.where(stay.reshape(m, k), a, 0)
  values, positions = sparsity.compress(jnp.asarray(a, jnp.float16))
  return (values, positions, jnp.asarray(b, jnp.float16)), a @ b


def smem(*shape, dtype=jnp.float16):
  """A buffer in shared memory, with rows of 128 bytes that are swizzled."""
  columns = 128 // jnp.dtype(dtype).itemsize
  return plgpu.SMEM(
      shape, dtype, transforms=(
          plgpu.TilingTransform((8, columns)), plgpu.SwizzleTransform(128)
      ),
  )


def metadata_tmem(m, k, **kwargs):
  """Metadata of M rows in tensor memory: K // 2 entries of two bits each."""
  return plgpu.TMEM(
      (m, k // 2), jnp.uint2,
      layout=plgpu.TMEMLayout.SPARSE_METADATA_LAYOUT, **kwargs,
  )


def run(matmul, m, n, k, num_sms=2):
  """Runs a step on the simulator, and returns the report of its last run."""
  args, expected = problem(m, n, k)
  for order in ("lazy", "eager"):
    with simulator.simulate(
        order=order, num_sms=num_sms, check_races=True
    ) as simulation:
      result = np.asarray(jax.jit(matmul)(*args))
    np.testing.assert_array_equal(result, expected)
  return simulation.runs[0].report


def summary(report):
  """What the page quotes of a report."""
  waits = report.barrier_waits.values()
  tmem = [
      f"{first}..{last} {name}" for first, last, name in report.tmem_operands()
  ]
  ctas = {allocation.cta for allocation in report.allocations}
  rows = [
      ("CTAs", len(ctas)),
      ("tcgen05.mma", sum(report.mma_instructions.values())),
      ("FLOPs, zeros of A included", report.flops),
      ("bytes loaded by TMA", report.load_bytes),
      ("bytes stored by TMA", report.store_bytes),
      ("bytes of A and B read by tcgen05.mma", report.shared_operand_bytes),
      ("waits of warps at mbarriers", sum(w.passed for w in waits)),
      ("times a warp had to stand there", sum(w.parked for w in waits)),
  ]
  lines = [f"{name:38}{count:>12,}" for name, count in rows]
  return "\n".join([*lines, *(f"TMEM columns {part}" for part in tmem)])
