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
"""dynamic_scheduling_loop gives a response back that is still being read.

Run it without a GPU, on the simulator: see response_released_early.md.
"""

import inspect
import sys
import textwrap
import types
from collections.abc import Callable

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax._src.pallas.mosaic_gpu import helpers

import jax
from jax import lax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import simulator

ANCHOR = "gpu_primitives.barrier_arrive(cancel_used_barrier.at[slot])"
CLUSTERS = 8


@plgpu.inline_mgpu()
def wait_for_warpgroup(_):
  mgpu.utils.warpgroup_barrier()


def fixed() -> Callable:
  """dynamic_scheduling_loop with a barrier of the warpgroup at the end."""
  source = textwrap.dedent(inspect.getsource(helpers.dynamic_scheduling_loop))
  if source.count(ANCHOR) != 1:
    sys.exit(f"Expected {ANCHOR!r} once; this JAX may have been fixed.")
  source = source.replace(ANCHOR, f"wait_for_warpgroup(); {ANCHOR}")
  result = types.ModuleType("fixed")
  result.__dict__.update(helpers.__dict__)
  result.wait_for_warpgroup = wait_for_warpgroup
  exec(source, result.__dict__)
  return result.dynamic_scheduling_loop


def run(loop: Callable) -> str:
  """Each cluster of two CTAs writes its number, on one pair of SMs."""

  def kernel(out, smem):
    rank = lax.axis_index("cta")

    @loop(("cluster",), cluster_axes=("cta",))
    def _(info):
      (index,) = info.index
      smem[...] = jnp.full((128,), 2 * index + rank, jnp.int32)
      plgpu.commit_smem()
      plgpu.copy_smem_to_gmem(smem, out.at[index, rank])
      plgpu.wait_smem_to_gmem(0)

  try:
    with simulator.simulate(num_sms=2, check_races=True):
      result = plgpu.kernel(
          kernel,
          out_type=jax.ShapeDtypeStruct((CLUSTERS, 2, 128), jnp.int32),
          grid=(CLUSTERS,), grid_names=("cluster",),
          cluster=(2,), cluster_names=("cta",),
          scratch_types=[plgpu.SMEM((128,), jnp.int32)],
      )()
      numbers = np.arange(2 * CLUSTERS).reshape(CLUSTERS, 2, 1)
      wrong = np.asarray(result) != numbers
  except simulator.SimulationError as e:
    return str(e)
  return f"{wrong.sum()} of {wrong.size} elements are wrong"


if __name__ == "__main__":
  print("as it is:", run(plgpu.dynamic_scheduling_loop))
  print("with a barrier:", run(fixed()))
