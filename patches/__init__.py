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
"""The patch series on top of a JAX release, and the engine that applies it."""

import pathlib

# The release that our wheel is built from.
BASE = "0.12.0.1"
# Every release that the series must apply to; `check` proves it.
SUPPORTED = ("0.12.0.1", "0.12.0", "0.11.2", "0.11.1")
# Releases that were tried, and what they lack.
REFUSED = {
    "0.11.0": (
        "its tcgen05.mma has one element type for both operands, which 6 edits"
        " and the code of more refer to"
    ),
}
# Local version label of our wheel. No dotted digits: JAX reads the numbers of
# `jax.__version__` by splitting at dots.
LABEL = "sparsetiles"

# The folder that holds `patches/`, the overlay `jax/` and `tests/`.
REPO = pathlib.Path(__file__).resolve().parent.parent
