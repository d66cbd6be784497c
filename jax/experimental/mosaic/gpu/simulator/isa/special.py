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
"""Special registers. PTX ISA chapter 10.

`REGISTERS[name](step)` gives values broadcastable to the active threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

REGISTERS: dict[str, Callable[[Any], Any]] = {}


def _register(name: str, function: Callable[[Any], Any]) -> None:
  REGISTERS["%" + name] = function


def _by_cta(attribute: str, axis: int) -> Callable[[Any], Any]:
  return lambda step: getattr(step.machine, attribute)[step.ctas, axis]


def _in_launch(function: Callable[[Any], int]) -> Callable[[Any], Any]:
  return lambda step: function(step.machine.launch)


for _axis, _name in enumerate("xyz"):
  _register(
      f"tid.{_name}",
      lambda step, axis=_axis: step.machine.tid[axis][step.index],
  )
  _register(f"ctaid.{_name}", _by_cta("cta_id", _axis))
  _register(f"clusterid.{_name}", _by_cta("cluster_id", _axis))
  _register(f"cluster_ctaid.{_name}", _by_cta("cta_in_cluster_id", _axis))
  _register(f"ntid.{_name}", _in_launch(lambda c, i=_axis: c.block[i]))
  _register(f"nctaid.{_name}", _in_launch(lambda c, i=_axis: c.grid[i]))
  _register(
      f"cluster_nctaid.{_name}", _in_launch(lambda c, i=_axis: c.cluster[i])
  )
  _register(
      f"nclusterid.{_name}",
      _in_launch(lambda c, i=_axis: c.grid[i] // c.cluster[i]),
  )

_register("cluster_ctarank", lambda s: s.machine.cluster_rank[s.ctas])
_register("cluster_nctarank", lambda s: s.machine.cluster_size)
_register("is_explicit_cluster", lambda s: s.machine.kernel.explicit_cluster)
_register("laneid", lambda s: s.lane)
_register("warpid", lambda s: s.warp_in_cta)
_register("nwarpid", lambda s: s.machine.warps_per_cta)
_register("dynamic_smem_size", _in_launch(lambda c: c.dynamic_shared_bytes))
_register("total_smem_size", lambda s: s.machine.context.shared_bytes)

# Which SM a CTA runs on and the time are the simulator's to choose: CTAs have
# an SM each, and the clock counts steps.
_register("smid", lambda s: s.ctas)
_register("nsmid", lambda s: s.machine.num_ctas)
_register("gridid", lambda s: 0)
for _name in ("clock", "clock64", "globaltimer", "globaltimer_lo"):
  _register(_name, lambda s: s.machine.scheduler.steps)
for _name in ("clock_hi", "globaltimer_hi"):
  _register(_name, lambda s: s.machine.scheduler.steps >> 32)

_LANEMASKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "eq": lambda bit: bit,
    "lt": lambda bit: bit - 1,
    "le": lambda bit: 2 * bit - 1,
    "gt": lambda bit: 0x1_0000_0000 - 2 * bit,
    "ge": lambda bit: 0x1_0000_0000 - bit,
}
for _name, _mask in _LANEMASKS.items():
  _register(
      f"lanemask_{_name}",
      lambda step, mask=_mask: mask(np.int64(1) << step.lane),
  )
