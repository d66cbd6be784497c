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
"""Exchanges between the lanes of a warp."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from . import snippet
from .snippet import Snippet, each

_LANES = np.arange(32, dtype=np.uint32)
_MASKS = np.array(
    [0xFFFFFFFF, 0x0000FFFF, 0xFFFF0000, 0x00FF00FF, 0x80000001, 0x00000010,
     0x7FFFFFFE, 0xA5A5A5A5, 0x55555555, 0x00F0000F, 0xFFFFFFFE, 0x7FFFFFFF,
     0x12345678, 0x80000000, 0x00000003, 0xDEADBEEF],
    np.uint32,
)
# Lanes outside %c leave.
_MEMBERS = """mov.u32 %r1, %laneid;
shl.b32 %r2, 1, %r1;
and.b32 %r2, %r2, %c;
setp.eq.u32 %p0, %r2, 0;
mov.b32 %x, 0x11111111;
mov.b32 %y, 0x22222222;
mov.b32 %z, 0x33333333;
mov.b32 %u, 0x44444444;
@%p0 bra LEAVE;
"""
_LEAVE = "\nLEAVE:"


def _masks() -> np.ndarray:
  return np.repeat(_MASKS, 32)


def snippets() -> Iterator[Snippet]:
  yield from _shuffles()
  yield from _elect()
  yield from _votes()
  yield from _matches()
  yield from _reductions()
  yield from _active()


def _shuffles() -> Iterator[Snippet]:
  bs = [0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 64, 0xFFFFFFFF]
  cs = [0x1F, 0, 0x181F, 0x1C1F, 0x101F, 0x1800, 0x1C00, 0x1E1F, 0x1C03, 0x0F,
        0x10, 0x1F1F, 0x1F00, 0x17, 0x21F, 0xFFFFFFFF]
  b, c = snippet.combinations(
      [np.array(bs, np.uint32), np.array(cs, np.uint32)]
  )
  b, c = (np.repeat(v, 32) for v in (b, c))
  values = snippet.random("shfl", b.size)
  values = (values & ~np.uint32(31)) | np.resize(_LANES, b.size)
  for mode in ("up", "down", "bfly", "idx"):
    yield each(
        f"shfl.sync.{mode}.b32",
        # The predicate goes into the top bit.
        f"shfl.sync.{mode}.b32 %x|%p1, %a, %b, %c, -1;\n"
        "selp.b32 %r1, 0x80000000, 0, %p1;\nxor.b32 %x, %x, %r1;",
        [values, b, c], "b32",
    )
    # Different in each lane.
    size = 512
    lane_b = snippet.random(f"b{mode}", size) % np.uint32(40)
    lane_c = np.repeat(np.resize(np.array(cs, np.uint32), size // 32), 32)
    if mode == "idx":
      lane_c = np.full(size, 0x1F, np.uint32)
    yield each(
        f"shfl.sync.{mode}.b32 by lane",
        f"shfl.sync.{mode}.b32 %x|%p1, %a, %b, %c, -1;\n"
        "selp.b32 %y, 1, 0, %p1;",
        [values[:size], lane_b, lane_c], "b32 b32",
    )
  # Half a warp, in segments that keep the sources inside.
  yield each(
      "shfl.sync of members",
      "mov.u32 %r1, %laneid;\nmov.b32 %x, 0;\nmov.b32 %y, 0;\nmov.b32 %z, 0;\n"
      "mov.b32 %u, 0;\nsetp.lt.u32 %p0, %r1, 16;\n@%p0 bra LOWER;\n"
      "shfl.sync.bfly.b32 %x, %a, 3, 0x1f, 0xffff0000;\n"
      "shfl.sync.down.b32 %y|%p1, %a, 5, 0x101f, 0xffff0000;\n"
      "selp.b32 %z, 1, 2, %p1;\n"
      "shfl.sync.idx.b32 %u, %a, 21, 0x1f, 0xffff0000;\n"
      "bra DONE;\nLOWER:\n"
      "shfl.sync.up.b32 %x, %a, 3, 0x1000, 0x0000ffff;\n"
      "shfl.sync.idx.b32 %y|%p1, %a, 35, 0x181f, 0x0000ffff;\n"
      "selp.b32 %z, 3, 4, %p1;\n"
      "shfl.sync.bfly.b32 %u, %a, 9, 0x1f, 0x0000ffff;\n"
      "DONE:",
      [values[:128]], "b32 b32 b32 b32",
  )


def _elect() -> Iterator[Snippet]:
  yield each(
      "elect.sync",
      _MEMBERS + "elect.sync %x|%p1, %c;\nselp.b32 %y, 1, 0, %p1;" + _LEAVE,
      [_masks(), _masks(), _masks()], "b32 b32 b32 b32",
  )


def _votes() -> Iterator[Snippet]:
  masks = np.tile(_masks(), 4)
  values = snippet.random("vote", masks.size)
  kind = np.repeat(np.arange(4), masks.size // 4)
  values = np.where(kind == 0, values & 1, np.where(kind == 1, 1, kind - 2))
  values = np.where((kind == 3) & (np.arange(masks.size) % 37 == 0), 0, values)
  values = values.astype(np.uint32)
  for negated in ("", "!"):
    yield each(
        f"vote.sync {negated}p",
        _MEMBERS
        + f"setp.ne.u32 %p1, %a, 0;\nvote.sync.ballot.b32 %x, {negated}%p1, %c;"
        f"\nvote.sync.all.pred %p2, {negated}%p1, %c;\nselp.b32 %y, 1, 0, %p2;"
        f"\nvote.sync.any.pred %p2, {negated}%p1, %c;\nselp.b32 %z, 1, 0, %p2;"
        f"\nvote.sync.uni.pred %p2, {negated}%p1, %c;\nselp.b32 %u, 1, 0, %p2;"
        + _LEAVE,
        [values, values, masks], "b32 b32 b32 b32",
    )


def _matches() -> Iterator[Snippet]:
  masks = np.tile(_masks(), 2)
  few = snippet.random("match", masks.size) % np.uint32(3) * np.uint32(0x10001)
  few[masks.size // 2 :] = np.repeat(few[masks.size // 2 :: 32], 32)
  yield each(
      "match.sync.b32",
      _MEMBERS
      + "match.any.sync.b32 %x, %a, %c;\nmatch.all.sync.b32 %y|%p1, %a, %c;\n"
      "selp.b32 %z, 1, 0, %p1;" + _LEAVE,
      [few, few, masks], "b32 b32 b32 b32",
  )
  yield each(
      "match.sync.b64",
      _MEMBERS
      + "mov.b64 %rd1, {%b, %a};\nmatch.any.sync.b64 %x, %rd1, %c;\n"
      "match.all.sync.b64 %y|%p1, %rd1, %c;\nselp.b32 %z, 1, 0, %p1;" + _LEAVE,
      [few, few[::-1].copy(), masks], "b32 b32 b32 b32",
  )


def _reductions() -> Iterator[Snippet]:
  values = snippet.int_values("redux", 32, 512)
  for kind, type_ in (
      ("add", "u32"), ("add", "s32"), ("min", "u32"), ("min", "s32"),
      ("max", "u32"), ("max", "s32"), ("and", "b32"), ("or", "b32"),
      ("xor", "b32"),
  ):
    data = values | np.uint32(0x10) if kind == "and" else values
    name = f"redux.sync.{kind}.{type_}"
    yield each(
        name, _MEMBERS + f"{name} %x, %a, %c;" + _LEAVE,
        [data, data, _masks()], "b32 b32 b32 b32",
    )


def _active() -> Iterator[Snippet]:
  values = snippet.random("active", 256)
  yield each(
      "activemask",
      "activemask.b32 %x;\nmov.u32 %r1, %laneid;\nmov.b32 %y, 7;\n"
      "setp.ge.u32 %p0, %r1, 20;\n@%p0 activemask.b32 %y;\n"
      "bar.warp.sync 0xffffffff;\n"
      "mov.u32 %z, %lanemask_lt;\nmov.u32 %u, %lanemask_ge;",
      # Lanes may not be together after a guard, so only a whole warp counts.
      [values], "b32 b32 b32 b32",
  )
