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
"""Matrix multiplication: mma.sync and one wgmma."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import snippet
from .memory import fill_shared
from .snippet import Snippet


def snippets() -> Iterator[Snippet]:
  yield from _mma()
  yield _wgmma()
  yield from _rounding()


def _registers(first: int, count: int) -> str:
  return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def _whole_numbers(kind: str, seed: str, words: int) -> np.ndarray:
  """Words of small integers, so that every sum is exact."""
  if kind in ("s8", "u8"):
    return snippet.random(seed, words)
  raw = (snippet.random(seed, 4 * words, 8) % np.uint8(17)).astype(np.int64) - 8
  if kind in ("f16", "bf16"):
    half = raw[: 2 * words].astype(np.float32)
    if kind == "f16":
      return half.astype(np.float16).view(np.uint32)
    return (half.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)
  if kind in ("e4m3", "e5m2"):
    # -8 to 8 in steps that both formats have.
    steps = np.array([0, 1, 2, 4, 8, 3, 6, 0.5, 1.5])[np.abs(raw)]
    mantissa = {"e4m3": 3, "e5m2": 2}[kind]
    bias = {"e4m3": 7, "e5m2": 15}[kind]
    significand, exponent = np.frexp(steps)
    fraction = np.round((2 * significand - 1) * 2**mantissa).astype(np.int64)
    code = np.where(steps == 0, 0, (exponent - 1 + bias << mantissa) + fraction)
    code |= np.where(raw < 0, 128, 0)
    return code.astype(np.uint8).view(np.uint32)
  return raw[:words].astype(np.float32).view(np.uint32)  # f32


def _mma() -> Iterator[Snippet]:
  for k, d, a, b in (
      (16, "f32", "f16", "f16"), (16, "f32", "bf16", "bf16"),
      (8, "f32", "tf32", "tf32"), (32, "f32", "e4m3", "e4m3"),
      (32, "f32", "e5m2", "e4m3"), (32, "s32", "s8", "s8"),
      (32, "s32", "u8", "s8"),
  ):
    opcode = f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{a}.{b}.{d}"
    count = 64
    buffers = [
        _whole_numbers(a, f"a{opcode}", 4 * count),
        _whole_numbers(b, f"b{opcode}", 2 * count),
        _whole_numbers("f32" if d == "f32" else "s8", f"c{opcode}", 4 * count),
        snippet.poison(4 * count),
    ]
    yield Snippet(opcode, _mma_body(opcode), tuple(buffers), (3,), ("bits",),
                  block=(count, 1, 1))


def _rounding() -> Iterator[Snippet]:
  """Sums that are not exact: only kept, for PTX does not say how they round."""
  for a, k in (("f16", 16), ("bf16", 16), ("tf32", 8), ("e4m3", 32)):
    opcode = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{a}.{a}.f32"
    count = 128
    type_ = {"tf32": "f32"}.get(a, a)
    if a == "e4m3":
      words = [snippet.random(f"{a}{i}", n * count) & np.uint32(0xBFBFBFBF)
               for i, n in enumerate((4, 2))]
    else:
      per = 2 if type_ != "f32" else 1
      words = []
      for i, n in enumerate((4, 2)):
        seed, size = f"round {a}{i}", n * count * per
        values = snippet.random(seed, size, 32)
        bits, mantissa = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23)}[
            type_
        ]
        bias = (1 << (bits - 2 - mantissa)) - 1
        exponent = bias - (snippet.random(seed + "e", size) % np.uint32(4))
        low = values & np.uint32((1 << mantissa) - 1)
        sign = (values >> np.uint32(31)) << np.uint32(bits - 1)
        raw = low | exponent.astype(np.uint32) << np.uint32(mantissa) | sign
        words.append(raw.astype(f"u{bits // 8}").view(np.uint32))
    c = snippet.float_values(f"c {a}", "f32", 4 * count)
    c = c & np.uint32(0x807FFFFF) | np.uint32(0x3F800000)
    yield Snippet(
        f"{opcode} rounding", _mma_body(opcode),
        (*words, c, snippet.poison(4 * count)), (3,), ("record",),
        block=(count, 1, 1),
    )


def _mma_body(opcode: str) -> str:
  return f"""
  mad.wide.u32 %rd0, %thread, 16, %in0;
  mad.wide.u32 %rd1, %thread, 8, %in1;
  mad.wide.u32 %rd2, %thread, 16, %in2;
  mad.wide.u32 %rd3, %thread, 16, %in3;
  ld.global.v4.b32 {_registers(10, 4)}, [%rd0];
  ld.global.v2.b32 {_registers(20, 2)}, [%rd1];
  ld.global.v4.b32 {_registers(30, 4)}, [%rd2];
  {opcode}
    {_registers(40, 4)}, {_registers(10, 4)},
    {_registers(20, 2)}, {_registers(30, 4)};
  st.global.v4.b32 [%rd3], {_registers(40, 4)};
"""


def _wgmma() -> Snippet:
  """m64n64k16, f16 to f32, both operands K-major without swizzle.

  The layout is that of the 8x8 core matrices of PTX ISA 9.7.15.5: row r and
  byte kb along K at (r // 8) * SBO + (r % 8) * 16 + (kb // 16) * LBO.
  """
  shape, depth = 64, 16
  values = _whole_numbers("f16", "wgmma", shape * depth).view(np.float16)
  a, b = values.reshape(2, shape, depth)
  shared = np.zeros((2, 2048 // 2), np.float16)
  row, k = np.meshgrid(np.arange(shape), np.arange(depth), indexing="ij")
  lbo, sbo = 128, 256
  place = (row // 8) * sbo + (row % 8) * 16 + (k // 8) * lbo + (k % 8) * 2
  for i, operand in enumerate((a, b)):
    shared[i][place // 2] = operand
  product = a.astype(np.float32) @ b.astype(np.float32).T
  # Lane t of warp w: rows 16 w + t // 4 (+ 8), columns 8 j + 2 (t % 4) (+ 1).
  thread, register = np.meshgrid(np.arange(128), np.arange(32), indexing="ij")
  rows = 16 * (thread // 32) + thread % 32 // 4 + 8 * (register // 2 % 2)
  columns = 8 * (register // 4) + 2 * (thread % 4) + register % 2
  expected = product[rows, columns].ravel().view(np.uint32)
  accumulators = "{" + ", ".join(f"%f{i}" for i in range(32)) + "}"
  body = fill_shared("%in0", 4096) + f"""
  fence.proxy.async;
  bar.sync 0;
  .reg .f32 %f<32>;
  shr.u32 %r1, %smem, 4;
  or.b32 %r2, %r1, {(lbo >> 4) << 16:#x};
  add.u32 %r3, %r2, {2048 >> 4};
  mov.b64 %rd1, {{%r2, {sbo >> 4}}};
  mov.b64 %rd2, {{%r3, {sbo >> 4}}};
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16
    {accumulators}, %rd1, %rd2, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  mad.wide.u32 %rd3, %thread, 128, %in1;
""" + "\n".join(
      f"  st.global.f32 [%rd3+{4 * i}], %f{i};" for i in range(32)
  )
  return Snippet(
      "wgmma.m64n64k16.f32.f16.f16", body,
      (shared.reshape(-1).view(np.uint32), snippet.poison(4096)), (1,),
      ("bits",), block=(128, 1, 1), shared=4096, modelled=False,
      expected=(expected,),
  )
