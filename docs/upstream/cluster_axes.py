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
"""JAX's collective Blackwell matmul leaves cluster_axes out.

Run it without a GPU, on the simulator: see cluster_axes.md.
"""

import inspect
import sys
import types

import pristine

pristine.enter()

# pylint: disable=g-import-not-at-top
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.gpu import blackwell_matmul_mgpu

from jax.experimental.mosaic.gpu import simulator

ANCHOR = 'thread_axis="wg")'
FIX = 'thread_axis="wg", cluster_axes=("x",))'


def fixed(module: types.ModuleType) -> types.ModuleType:
  """The module with the missing argument."""
  source = inspect.getsource(module)
  if source.count(ANCHOR) != 1:
    sys.exit(f"Expected {ANCHOR!r} once; this JAX may have been fixed.")
  result = types.ModuleType("fixed")
  sys.modules["fixed"] = result  # For dataclasses.
  exec(source.replace(ANCHOR, FIX), result.__dict__)
  return result


def run(module: types.ModuleType) -> str:
  """Multiplies on four SMs: two clusters at a time, of four in all."""
  config = module.TuningConfig(
      tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2, collective=True
  )
  rng = np.random.default_rng(0)
  a = rng.integers(-3, 4, (512, 128)).astype(np.float16)
  b = rng.integers(-3, 4, (128, 256)).astype(np.float16)
  try:
    with simulator.simulate(num_sms=4):
      result = module.matmul_kernel(jnp.asarray(a), jnp.asarray(b), config)
      wrong = np.asarray(result).astype(np.float64) != (
          a.astype(np.float64) @ b.astype(np.float64)
      )
  except simulator.SimulationError as e:
    return "\n".join(str(e).splitlines()[:2])
  return f"{wrong.sum()} of {wrong.size} elements are wrong"


if __name__ == "__main__":
  broken, whole = run(blackwell_matmul_mgpu), run(fixed(blackwell_matmul_mgpu))
  print("as it is:", broken)
  print("with cluster_axes:", whole)
  sys.exit(not (broken.startswith("Deadlock") and whole.startswith("0 of")))
