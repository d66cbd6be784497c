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
"""The hook that the simulator comes in by."""

from patches.model import Edit, Patch

_CORE = "jax/experimental/mosaic/gpu/core.py"

PATCH = Patch(
    subject="[Mosaic GPU] Let a simulator take over the lowering of kernels",
    body="""
Kernels can only be lowered for CUDA. A simulator that runs compiled
kernels on a CPU needs to see them where as_gpu_kernel and Pallas both
hand them to XLA, with their operands and aliases. This adds a variable
for its lowering rule, which is consulted when a program is lowered for
the CPU and nothing else: with no simulator, nothing changes. JAX has no
rules for the CPU that lead there, so a simulator registers those, too.

Verified: with and without a simulator, on the CPU backend.
""",
    edits=(
        Edit(
            file=_CORE,
            anchor="def _mosaic_gpu_lowering_rule($$$ARGS): $$$BODY",
            action="before",
            code="""
# Lowers kernels for the CPU, if a simulator of the GPU has set it.
simulated_lowering_rule: Callable[..., Any] | None = None
""",
        ),
        Edit(
            file=_CORE,
            scope="_mosaic_gpu_lowering_rule",
            anchor="axis_context = ctx.module_context.axis_context",
            action="before",
            code="""
platforms = ctx.platforms or ctx.module_context.platforms
if simulated_lowering_rule is not None and tuple(platforms) == ("cpu",):
  return simulated_lowering_rule(
      ctx,
      *args,
      module=module,
      out_types=out_types,
      inout_types=inout_types,
      input_output_aliases=input_output_aliases,
  )
""",
        ),
    ),
    tests=("tests/mosaic/gpu_simulator_hook_test.py",),
)
