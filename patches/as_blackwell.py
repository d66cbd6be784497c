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
"""A pytest plugin: JAX's tests take the simulator for a Blackwell GPU.

Give it as `-p as_blackwell`, with MOSAIC_GPU_SIMULATE=1 in the environment.
"""

from jax._src import test_util

_COMPUTE_CAPABILITY = (10, 0)


def _version(capability: str) -> tuple[int, ...]:
  return tuple(map(int, capability.split(".")))


test_util.is_device_cuda = lambda: True
test_util.is_cuda_compute_capability_at_least = (
    lambda capability: _COMPUTE_CAPABILITY >= _version(capability)
)
test_util.is_cuda_compute_capability_equal = (
    lambda capability: _COMPUTE_CAPABILITY == _version(capability)
)
# It asks the devices of the CUDA backend.
test_util.CudaArchSpecificTest.skip_unless_tcgen05 = lambda self: None
