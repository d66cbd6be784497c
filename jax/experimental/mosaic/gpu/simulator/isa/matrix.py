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
"""ldmatrix and stmatrix: 8x8 matrices of 16-bit elements.

PTX ISA 9.7.14.5.15 (ldmatrix) and 9.7.14.5.16 (stmatrix). Lane 8 m + r gives
the address of row r of matrix m. Lane t holds, of matrix m, the elements 2 (t %
4) and 2 (t % 4) + 1 of row t // 4 in register m, the first in the lower half;
with .trans the same of the transposed matrix.
"""

from __future__ import annotations

import numpy as np

from ..observers import Access
from ..table import instruction

_MODIFIERS = ".sync.aligned.m8n8.x<count:1|2|4>[.<trans>]"
_SPACE = "[.<space:shared|shared::cta>]"


def _matrices(step, op, name):
  """Row addresses [w, m, 8] and CTAs [w, 1, 1] of the matrices, and who."""
  count = int(op.count)
  step.warps()  # Checks that the warps are whole.
  # Lanes beyond the matrices need not have a valid address.
  address = step.by_warp(op.address.read(step))[:, : 8 * count]
  ctas = step.by_warp(step.ctas)[:, : 8 * count]
  lanes = np.arange(step.n).reshape(-1, 32)[:, : 8 * count].ravel()
  who = Access(
      lambda i: step.where(int(lanes[i])), "generic", name,
      step.threads[lanes],
  )
  return address.ravel(), ctas.ravel(), who


def _check(op, vector):
  if len(vector) != int(op.count):
    raise op.unsupported(f"expected {op.count} registers.")
  return op.space or op.address.space or "generic"


@instruction(
    f"ldmatrix{_MODIFIERS}{_SPACE}.b16", "{d}, [address]",
    section="9.7.14.5.15 (ldmatrix)",
)
def ldmatrix(op):
  space = _check(op, op.d)

  def execute(step):
    address, ctas, who = _matrices(step, op, "ldmatrix")
    data = step.machine.spaces.read(space, ctas, address, 16, who)
    # [warp, matrix, row, column]
    data = np.ascontiguousarray(data).view(np.uint16)
    data = data.reshape(-1, int(op.count), 8, 8)
    if op.trans:
      data = data.swapaxes(2, 3)
    words = np.ascontiguousarray(data).view(np.uint32)  # Two columns each.
    words = words.reshape(-1, int(op.count), 32)
    for i, destination in enumerate(op.d):
      destination.write(step, words[:, i].ravel())

  return execute


@instruction(
    f"stmatrix{_MODIFIERS}{_SPACE}.b16", "[address], {a}",
    section="9.7.14.5.16 (stmatrix)",
)
def stmatrix(op):
  space = _check(op, op.a)

  def execute(step):
    address, ctas, who = _matrices(step, op, "stmatrix")
    words = op.a.read(step, np.uint32).reshape(-1, 32, int(op.count))
    words = np.ascontiguousarray(words.transpose(0, 2, 1))
    data = words.view(np.uint16).reshape(-1, int(op.count), 8, 8)
    if op.trans:
      data = data.swapaxes(2, 3)
    data = np.ascontiguousarray(data).view(np.uint8).reshape(-1, 16)
    step.machine.spaces.write(space, ctas, address, data, who)

  return execute
