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
"""cvt."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet, each

_INTS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
_FLOATS = ("f16", "bf16", "f32", "f64")


def _bits(type_: str) -> int:
  return int(type_.strip("bfsu"))


def _limits(type_: str) -> tuple[int, int]:
  bits = _bits(type_)
  if type_[0] == "u":
    return 0, (1 << bits) - 1
  return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _register(type_: str) -> str:
  """An output register; 8-bit results show how they are extended."""
  return f"b{max(_bits(type_), 32)}"


def _ints(seed, type_, count=256) -> np.ndarray:
  bits = _bits(type_)
  edges = snippet.int_edges(bits)
  # Halfway between floats, and just beside.
  more = [
      (1 << p) + d & ((1 << bits) - 1)
      for p in (8, 11, 12, 16, 24, 25, 31, 33, 53, 54, 63) if p < bits
      for d in (-1, 0, 1, 1 << max(p - 11, 0), 3 << max(p - 24, 0))
  ]
  values = [edges, np.array(more, edges.dtype),
            snippet.int_values(seed, bits, count)]
  return np.concatenate(values)[:count]


def _floats(seed, type_, count=384) -> np.ndarray:
  """Floats around the limits of integers, halves, and any others."""
  bits = _bits(type_)
  near = [0.5, 1.5, 2.5, 0.49, 0.51, 0.99, 1.01, 126.5, 127.0, 127.5, 128.0,
          128.5, 255.0, 255.5, 256.0, 32767.0, 32767.5, 32768.0, 65535.0,
          65535.5, 65536.0, 2147483520.0, 2147483647.0, 2147483648.0,
          4294967040.0, 4294967295.0, 4294967296.0, 9.2e18, 9223372036854775808,
          1.8e19, 18446744073709551616.0, 65504.0, 65519.0, 65520.0, 447.0,
          448.0, 463.0, 464.0, 465.0, 57344.0, 61439.0, 61440.0]
  near = np.array(near + [-n for n in near])
  if type_ == "bf16":
    near = (near.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
  else:
    with np.errstate(over="ignore"):
      near = near.astype(f"f{bits // 8}").view(f"u{bits // 8}")
  values = snippet.float_values(seed, type_, count)
  # Numbers of the size of 8- to 64-bit integers.
  random = snippet.random(f"{seed}size", count, 64)
  signed = random.view(np.int64) >> (random % 64).astype(np.int64)
  sized = signed / 4.0 if bits != 16 else signed % 200000 / 4.0
  with np.errstate(over="ignore"):
    sized = sized.astype(np.float32)
    if type_ == "bf16":
      sized = (sized.view(np.uint32) >> 16).astype(np.uint16)
    else:
      sized = sized.astype(f"f{bits // 8}").view(f"u{bits // 8}")
  nans = snippet.float_edges(type_)[19] | snippet.random(f"{seed}nan", 8, bits)
  parts = [snippet.float_edges(type_), nans, near, sized[: count // 3], values]
  return np.concatenate(parts)[:count]


def snippets() -> Iterator[Snippet]:
  yield from _int_to_int()
  yield from _float_to_int()
  yield from _int_to_float()
  yield from _float_to_float()
  yield from _packed()
  yield from _narrow()


def _form(opcode, operand, out, compare="bits"):
  return each(opcode, f"{opcode} %x, %a;", [operand], out, compare)


def _int_to_int() -> Iterator[Snippet]:
  for to, of in itertools.product(_INTS, _INTS):
    operand = _ints(f"{to}{of}", of, 128)
    for sat in ("", ".sat"):
      # ptxas takes .sat only where a value may not fit.
      (low, high), (least, most) = _limits(to), _limits(of)
      fits = low <= least and most <= high
      if to != of and not (sat and fits):
        yield _form(f"cvt{sat}.{to}.{of}", operand, _register(to))


def _float_to_int() -> Iterator[Snippet]:
  for to, of in itertools.product(_INTS, _FLOATS):
    if of == "bf16" and _bits(to) == 8:
      continue  # ptxas refuses it, and so the reverse.
    # To 16 bits, bf16 needs a register of 16 bits.
    out = "b16" if of == "bf16" and _bits(to) == 16 else _register(to)
    for mode in ("rni", "rzi", "rmi", "rpi"):
      for ftz in ("", ".ftz") if of == "f32" else ("",):
        opcode = f"cvt.{mode}{ftz}.{to}.{of}"
        yield _form(opcode, _floats(opcode, of), out)


def _int_to_float() -> Iterator[Snippet]:
  for to, of in itertools.product(_FLOATS, _INTS):
    if to == "bf16" and _bits(of) == 8:
      continue
    for mode in ("rn", "rz", "rm", "rp"):
      opcode = f"cvt.{mode}.{to}.{of}"
      yield _form(opcode, _ints(opcode, of), f"b{_bits(to)}")
  for of in ("s32", "u8"):
    opcode = f"cvt.rn.sat.f32.{of}"
    yield _form(opcode, _ints(opcode, of), "b32")


def _float_to_float() -> Iterator[Snippet]:
  modes = ("rn", "rz", "rm", "rp")
  opcodes = [f"cvt.{m}{f}{s}.f16.f32" for m in modes for f in ("", ".ftz")
             for s in ("", ".sat")]
  opcodes += [f"cvt.{m}{f}{s}.f32.f64" for m in modes for f in ("", ".ftz")
              for s in ("", ".sat")]
  opcodes += [f"cvt.{m}{s}.f16.f64" for m in modes for s in ("", ".sat")]
  opcodes += [f"cvt.{m}{r}.{t}.f32" for m in ("rn", "rz") for r in ("", ".relu")
              for t in ("f16", "bf16") if t == "bf16" or r]
  opcodes += [f"cvt.{m}.bf16.f32" for m in ("rm", "rp")]
  opcodes += [f"cvt.{m}.bf16.{t}" for m in modes for t in ("f16", "f64")]
  opcodes += [f"cvt{f}{s}.f32.f16" for f in ("", ".ftz") for s in ("", ".sat")]
  opcodes += ["cvt.f64.f16", "cvt.f64.f32", "cvt.ftz.f64.f32", "cvt.f32.bf16",
              "cvt.f64.bf16", "cvt.sat.f64.f32", "cvt.sat.f32.f32",
              "cvt.sat.f16.f16", "cvt.rn.f16.bf16", "cvt.rz.f16.bf16"]
  opcodes += [f"cvt.{m}i{f}.f32.f32" for m in modes for f in ("", ".ftz")]
  opcodes += [f"cvt.{m}i.f64.f64" for m in modes]
  opcodes += [f"cvt.{m}i.f16.f16" for m in modes]
  for opcode in opcodes:
    to, of = opcode.split(".")[-2:]
    yield _form(opcode, _floats(opcode, of, 512), f"b{_bits(to)}")
  for mode in ("rna", "rn", "rz"):
    for relu in ("",) if mode == "rna" else ("", ".relu"):
      opcode = f"cvt.{mode}{relu}.tf32.f32"
      yield _form(opcode, _floats(opcode, "f32", 512), "b32")
  yield _form("cvt.rna.satfinite.tf32.f32", _floats("tf32", "f32", 512), "b32")


def _packed() -> Iterator[Snippet]:
  for mode, relu, t in itertools.product(
      ("rn", "rz"), ("", ".relu"), ("f16x2", "bf16x2")
  ):
    opcode = f"cvt.{mode}{relu}.{t}.f32"
    a = _floats(opcode, "f32", 512)
    yield each(opcode, f"{opcode} %x, %a, %b;", [a, np.roll(a, 77)], "b32")


def _fp8_edges() -> np.ndarray:
  """float32 at, between and beside all values of the fp8 formats."""
  codes = np.arange(128)
  e4m3 = np.ldexp((codes % 8 + 8 * (codes > 7)) / 8.0,
                  np.maximum(codes // 8, 1) - 7)
  e5m2 = np.ldexp((codes % 4 + 4 * (codes > 3)) / 4.0,
                  np.maximum(codes // 4, 1) - 15)
  values = []
  for table in (e4m3[:127], e5m2[:124]):
    middle = (table[1:] + table[:-1]) / 2
    values += [table, middle, middle * (1 + 2.0**-20), middle * (1 - 2.0**-20)]
  values = np.concatenate(values).astype(np.float32).view(np.uint32)
  return _signed(values)


def _signed(values):
  return values | (snippet.random("sign", values.size) & np.uint32(1 << 31))


def _narrow() -> Iterator[Snippet]:
  edges = _fp8_edges()
  f32 = np.concatenate([edges, _floats("fp8", "f32", 384)])
  f32 = f32[: f32.size // 128 * 128]
  for to, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", ".relu")):
    opcode = f"cvt.rn.satfinite{relu}.{to}.f32"
    yield each(opcode, f"{opcode} %x, %a, %b;", [f32, np.roll(f32, 77)], "b16")
    opcode = f"cvt.rn.satfinite{relu}.{to}.f16x2"
    half = np.concatenate([
        edges.view(np.float32).astype(np.float16).view(np.uint16),
        snippet.float_edges("f16"), snippet.float_values("fp8", "f16", 600),
    ])[:1408]
    pair = half | np.roll(half, 99).astype(np.uint32) << np.uint32(16)
    yield _form(opcode, pair, "b16")
    codes = np.arange(256, dtype=np.uint16)
    codes = codes | codes[::-1] << np.uint16(8)
    yield _form(f"cvt.rn{relu}.f16x2.{to}", codes, "b32")
