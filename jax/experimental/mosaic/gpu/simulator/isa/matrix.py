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
"""Matrices of a warp: ldmatrix, stmatrix and mma.sync.

PTX ISA 9.7.14.5.15 (ldmatrix), 9.7.14.5.16 (stmatrix), 9.7.14.5 (mma). Of an
8x8 matrix m of 16-bit elements, lane 8 m + r gives the address of row r. Lane t
holds the elements 2 (t % 4) and 2 (t % 4) + 1 of row t // 4 in register m, the
first in the lower half; with .trans the same of the transposed matrix.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ..observers import Access
from ..table import instruction
from . import rounding
from .common import DTYPES

_MODIFIERS = ".sync.aligned.m8n8.x<count:1|2|4>[.<trans>]"
_SPACE = "[.<space:shared|shared::cta>]"


def _matrices(step, op, name, rows=8):
  """Addresses and CTAs of all rows of the matrices, both [w * m * rows]."""
  count = rows * int(op.count)
  step.warps()  # Checks that the warps are whole.
  # Lanes beyond the matrices need not have a valid address.
  address = step.by_warp(op.address.read(step))[:, :count]
  ctas = step.by_warp(step.ctas)[:, :count]
  lanes = np.arange(step.n).reshape(-1, 32)[:, :count].ravel()
  who = Access(
      lambda i: step.where(int(lanes[i])), "generic", name,
      step.threads[lanes],
  )
  return address.ravel(), ctas.ravel(), who


def _check(op, vector, registers=1):
  count = registers * int(op.count)
  if len(vector) != count:
    raise op.unsupported(f"expected {count} registers.")
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
    f"ldmatrix.sync.aligned.m16n16.x<count:1|2>.trans{_SPACE}.b8",
    "{d}, [address]", section="9.7.14.5.15 (ldmatrix)",
)
def ldmatrix_b8(op):
  """16x16 matrices of bytes, of which lane 16 m + r gives the address of row r.

  Registers 2 m and 2 m + 1 hold the upper and lower 8 rows of the transposed
  matrix, in lane t the elements 4 (t % 4) to 4 (t % 4) + 3 of row t // 4. The
  ISA shows this in a figure only; it is how Mosaic GPU uses it.
  """
  space = _check(op, op.d, registers=2)

  def execute(step):
    address, ctas, who = _matrices(step, op, "ldmatrix", rows=16)
    data = step.machine.spaces.read(space, ctas, address, 16, who)
    data = data.reshape(-1, int(op.count), 16, 16).swapaxes(2, 3)
    words = np.ascontiguousarray(data).view(np.uint32)
    words = words.reshape(-1, len(op.d), 32)
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


# mma.sync: D = A B + C of a warp, with M = 16 and N = 8.

_TYPES = {
    "f16": DTYPES["f16"], "bf16": DTYPES["bf16"], "tf32": DTYPES["f32"],
    "f64": DTYPES["f64"], "s8": DTYPES["s8"], "u8": DTYPES["u8"],
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


def _fragment(values, rows, width):
  """Registers [w, 32, r, e] of A or B as a matrix [w, rows, width].

  Lane t holds e consecutive elements from e (t % 4) on of row t // 4 in
  register 0. Further registers hold row + 8 (if there are 16) and then
  column + 4 e.
  """
  e = values.shape[-1]
  values = values.reshape(-1, 8, 4, width // (4 * e), rows // 8, e)
  # [w, row % 8, lane % 4, column group, row // 8, e]
  return values.transpose(0, 4, 1, 3, 2, 5).reshape(-1, rows, width)


@instruction(
    "mma.sync.aligned.m16n8k<k:16>.row.col.<d_type:f32>.<a_type:f16|bf16>"
    ".<b_type:f16|bf16>.<c_type:f32>",
    "{d}, {a}, {b}, {c}", section="9.7.14.5 (mma)",
)
@instruction(
    "mma.sync.aligned.m16n8k<k:8>.row.col.<d_type:f32>.<a_type:tf32>"
    ".<b_type:tf32>.<c_type:f32>",
    "{d}, {a}, {b}, {c}", section="9.7.14.5 (mma)",
)
@instruction(
    "mma.sync.aligned.m16n8k<k:32>.row.col.<d_type:f32>.<a_type:e4m3|e5m2>"
    ".<b_type:e4m3|e5m2>.<c_type:f32>",
    "{d}, {a}, {b}, {c}", section="9.7.14.5 (mma)",
)
@instruction(
    "mma.sync.aligned.m16n8k<k:32>.row.col[.<satfinite>].<d_type:s32>"
    ".<a_type:s8|u8>.<b_type:s8|u8>.<c_type:s32>",
    "{d}, {a}, {b}, {c}", section="9.7.14.5 (mma)",
)
@instruction(
    "mma.sync.aligned.m16n8k<k:8>.row.col.<d_type:f64>.<a_type:f64>"
    ".<b_type:f64>.<c_type:f64>",
    "{d}, {a}, {b}, {c}", section="9.7.14.5 (mma)",
)
def mma_sync(op):
  """Exact products, summed in float64 and rounded once; integers wrap.

  The hardware's order and rounding of the sum are not documented.
  """
  if [len(v) for v in (op.d, op.a, op.b, op.c)] != [4, 4, 2, 4]:
    raise op.unsupported("expected 4, 4, 2 and 4 registers.")
  if op.__dict__.get("satfinite"):
    raise op.unsupported(".satfinite of integers.")
  k = int(op.k)
  d_dtype = DTYPES[op.d_type]
  word = np.dtype(np.uint64 if op.a_type == "f64" else np.uint32)
  per_word = word.itemsize // _TYPES[op.a_type].itemsize

  def read(step, vector, type_, rows):
    values = vector.read(step, word)
    if type_ == "tf32":
      values &= np.uint32(0xFFFFE000)
    # The last axis: the elements of a register.
    values = values.view(_TYPES[type_]).reshape(-1, 32, len(vector), per_word)
    return _fragment(values.astype(np.float64), rows, k)

  def execute(step):
    step.warps()  # Checks that the warps are whole.
    a = read(step, op.a, op.a_type, 16)
    b = read(step, op.b, op.b_type, 8)
    # Lane t holds columns 2 (t % 4) and + 1 of rows t // 4 and t // 4 + 8.
    c = op.c.read(step, d_dtype).reshape(-1, 8, 4, 2, 2)
    product = a @ b.swapaxes(1, 2)  # [w, 16, 8]
    product = product.reshape(-1, 2, 8, 4, 2).transpose(0, 2, 3, 1, 4)
    if d_dtype.kind == "i":
      result = product.astype(np.int64) + c
    else:
      result = rounding.canonical_nan((product + c).astype(d_dtype))
    op.d.write(step, result.astype(d_dtype).reshape(step.n, 4))

  return execute
