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
"""Lets the tests run as they are on machines with and without a GPU."""

import os
import pathlib

# JAX's CUDA plugin prints an error on a machine without a driver.
if not os.path.exists("/dev/nvidiactl"):
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Workers and later runs share what they compile.
os.environ.setdefault(
    "MOSAIC_GPU_DEVICELESS_CACHE",
    str(pathlib.Path(__file__).parents[1] / ".cache" / "kernels"),
)
