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
"""Race detection of GPU interpret mode has enough clocks for a pipeline."""

from patches.model import Edit, Patch

_PARAMS = "jax/_src/pallas/mosaic_gpu/interpret/params.py"

PATCH = Patch(
    subject="[Pallas:MGPU] See races between operations that are far apart",
    body="""
GPU interpret mode gives each asynchronous operation one of a number of
pseudo-threads in turn, each with an entry in the vector clocks. Waiting
for an operation says that the others of its pseudo-thread are done,
too, also those that nothing has waited for. There were 5, which a step
of a pipelined matmul uses up: a copy to a stage of SMEM that an MMA
still reads was not reported with 3 stages or more.

There are 128 now. That costs half a kilobyte for each device and access
that race detection remembers, and no time that could be measured.

Verified: by the tests, of which those of a failure with 3 or 4 stages
fail with 5.
""",
    edits=(
        Edit(
            file=_PARAMS,
            scope="InterpretGPUParams",
            anchor="num_tma_threads_per_device: int = 5",
            code="num_tma_threads_per_device: int = 128",
        ),
        Edit(
            file=_PARAMS,
            kind="text",
            anchor="      Default: 1.",
            code="""
      They are handed out in turn. Of two operations that share one, either
      counts as done once the other is awaited, so races with an operation are
      missed once this many others were issued after it. Default: 128.
""",
        ),
    ),
    tests=("tests/mosaic/pallas_interpret_races_test.py",),
)
