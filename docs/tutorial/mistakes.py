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
"""What the simulator says when a wait is missing."""

import pathlib
import re
import textwrap

import common
import jax
from jax.experimental.mosaic.gpu import simulator
import numpy as np
import warps

WAITS = (
    "plgpu.barrier_wait(done)",
    "plgpu.barrier_wait(loaded.at[slot])",
    "plgpu.barrier_wait(consumed.at[slot])",
)
OPTIONS = (
    dict(order="eager"), dict(order="lazy"),
    dict(order="eager", check_races=True),
)


def outcome(matmul, options):
  args, expected = common.problem(m=256, n=64, k=512)
  try:
    with simulator.simulate(**options):
      result = jax.jit(matmul)(*args)
  except simulator.SimulationError as e:
    return f"{type(e).__name__}: {e}"
  return "right" if (np.asarray(result) == expected).all() else "wrong"


def main():
  source = pathlib.Path(warps.__file__).read_text()
  for wait in WAITS:
    assert source.count(wait) == 1
    broken = {"__name__": "broken"}
    exec(source.replace(wait, "pass"), broken)
    print(f"without {wait}")
    for options in OPTIONS:
      settings = ", ".join(f"{name}={x!r}" for name, x in options.items())
      print(f"  {settings}:")
      for line in outcome(broken["matmul"], options).splitlines():
        line = re.sub("(`[^`]{36})[^`]+`", r"\1...`", line)  # Long PTX.
        print(textwrap.fill(line, 78, initial_indent="    ",
                            subsequent_indent="      "))


if __name__ == "__main__":
  main()
