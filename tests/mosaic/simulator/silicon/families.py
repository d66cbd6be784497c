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
"""All families, by name."""

from __future__ import annotations

from . import (
    approximate,
    barriers,
    bulk,
    cluster,
    convert,
    directed,
    faults,
    floating,
    im2col,
    integer,
    matrices,
    memory,
    warp,
)
from .snippet import POISON, Snippet  # noqa: F401  (for the test)

_MODULES = (
    integer, floating, approximate, convert, warp, memory, barriers, bulk,
    cluster, matrices, faults, im2col, directed,
)
NAMES = tuple(m.__name__.rpartition(".")[2] for m in _MODULES)


def load(name: str) -> dict[str, Snippet]:
  """The snippets of a family, by name."""
  result: dict[str, Snippet] = {}
  for one in _MODULES[NAMES.index(name)].snippets():
    if one.name in result:
      raise ValueError(f"{name}: two snippets are called {one.name!r}.")
    result[one.name] = one
  return result
