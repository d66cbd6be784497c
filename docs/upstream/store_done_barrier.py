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
"""JAX's collective Blackwell ragged dot overtakes the second CTA's epilogue.

Run it without a GPU, on the simulator: see store_done_barrier.md.
"""

import inspect
import re
import sys
import types

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu import (
  blackwell_matmul_mgpu,
  blackwell_ragged_dot_mgpu,
)

from jax.experimental.mosaic.gpu import simulator

ANCHOR = re.compile(r"store_done_barrier=plgpu\.Barrier\(")
FIX = 'store_done_barrier=plgpu.ClusterBarrier(collective_axes=("x",), '


def fixed(module: types.ModuleType) -> types.ModuleType:
  """The module with a barrier that both CTAs arrive at."""
  source, count = ANCHOR.subn(FIX, inspect.getsource(module))
  if count != 1:
    sys.exit(f"Expected {ANCHOR.pattern} once; this JAX may have been fixed.")
  result = types.ModuleType("fixed")
  sys.modules["fixed"] = result  # For dataclasses.
  exec(source, result.__dict__)
  return result


def run(module: types.ModuleType) -> str:
  """Multiplies on two SMs, with groups that leave the first CTA less to do."""
  config = module.TuningConfig(
      tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2,
      collective=True, grid_tile_width=1,
      grid_minor_dim=blackwell_matmul_mgpu.MatmulDimension.N,
  )
  rng = np.random.default_rng(0)
  sizes = np.array([511, 1], np.int32)
  a = rng.integers(-3, 4, (512, 128)).astype(np.float16)
  b = rng.integers(-3, 4, (2, 128, 256)).astype(np.float16)
  try:
    with simulator.simulate(num_sms=2):
      result = module.ragged_dot_kernel(
          jnp.asarray(a), jnp.asarray(b), jnp.asarray(sizes), config
      )
      wide = [x.astype(np.float64) for x in (a[:511], b[0], a[511:], b[1])]
      expected = np.concatenate([wide[0] @ wide[1], wide[2] @ wide[3]])
      wrong = np.asarray(result).astype(np.float64) != expected
  except simulator.SimulationError as e:
    lines = str(e).splitlines()
    return "\n".join([lines[0], *(x for x in lines if "warp 4" in x)])
  return f"{wrong.sum()} of {wrong.size} elements are wrong"


if __name__ == "__main__":
  broken = run(blackwell_ragged_dot_mgpu)
  whole = run(fixed(blackwell_ragged_dot_mgpu))
  print("as it is:", broken)
  print("with a ClusterBarrier:", whole)
  sys.exit(not (broken.startswith("Deadlock") and whole.startswith("0 of")))
