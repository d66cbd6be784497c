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
"""Helpers that several modules of the instruction set share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import registers

DTYPES = registers.DTYPES
Execute = Callable[[Any], None]


def alternatives(*types: str) -> str:
  """Writes types as the choices of a template field."""
  return "|".join(types)


def elementwise(
    function: Callable[..., np.ndarray], dtype: Any, d: Any, *sources: Any
) -> Execute:
  """An instruction d = function(*sources), all sources read as `dtype`."""
  if len(sources) == 1:
    (a,) = sources

    def execute(step):
      d.write(step, function(a.read(step, dtype)))
  elif len(sources) == 2:
    a, b = sources

    def execute(step):
      d.write(step, function(a.read(step, dtype), b.read(step, dtype)))
  else:

    def execute(step):
      d.write(step, function(*[s.read(step, dtype) for s in sources]))
  return execute


def lanewise(
    function: Callable[..., np.ndarray], dtype: Any, d: Any, *sources: Any
) -> Execute:
  """Like elementwise for packed types: `dtype` is that of an element.

  An f16x2 register has two elements of float16, an f32x2 one two of float32.
  """
  dtype = np.dtype(dtype)
  packed = np.dtype(f"uint{dtype.itemsize * 16}")

  def execute(step):
    values = []
    for source in sources:
      value = np.ascontiguousarray(source.read(step, packed))
      values.append(value[..., None].view(dtype))
    result = np.ascontiguousarray(function(*values))
    d.write(step, result.view(packed)[..., 0])

  return execute
