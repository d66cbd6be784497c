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
"""TMA loads in im2col mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from . import snippet
from .barriers import wait
from .bulk import _BITS, BAR, _tensor, elected, prepare
from .memory import dump_shared, fill_shared
from .snippet import Im2colMap, Map, Snippet

# Bounds by the number of image dimensions, as of small windows with padding.
_BOUNDS = {
    1: ((-2,), (-2,)),
    2: ((-1, -2), (-1, 1)),
    3: ((0, -1, -1), (-2, 1, -1)),
}
_SIZES = {1: (3, 11), 2: (2, 5, 7), 3: (2, 3, 4, 5)}


def snippets() -> Iterator[Snippet]:
  yield from _walks()
  yield from _steps()
  yield from _channels()
  yield from _unusual()
  yield from _faults()


def _load(
    name, loads, space=2, element="u16", sizes=None, columns=40, lower=None,
    upper=None, steps=None, pixels=24, channels=16, swizzle=16, faults=False,
    opcode="im2col",
):
  """Copies one after another in shared memory.

  Args:
    loads: (coordinates, offsets) of each, innermost first.
    space: dimensions of an image.
  """
  sizes = (sizes or _SIZES[space]) + (columns,)
  data, sizes, strides = _tensor(element, sizes, "images")
  lower = _BOUNDS[space][0] if lower is None else lower
  upper = _BOUNDS[space][1] if upper is None else upper
  tensor_map = Im2colMap(
      0, element, sizes, strides, lower, upper, steps or (1,) * space, pixels,
      channels, swizzle,
  )
  tile = pixels * channels * _BITS[element] // 8
  pitch = max(-(-tile // 128) * 128, 128)
  if swizzle > 16:
    pitch = -(-pixels * swizzle // 1024) * 1024
  dumped = pitch * len(loads)
  total = 1024 + dumped
  lines = [
      "mbarrier.arrive.expect_tx.shared::cta.b64 _,"
      f" [{BAR}], {tile * len(loads)};"
  ]
  for i, (coordinates, offsets) in enumerate(loads):
    registers = ", ".join(f"%h{j}" for j in range(len(offsets)))
    lines += [f"mov.b16 %h{j}, {o};" for j, o in enumerate(offsets)]
    lines.append(
        f"cp.async.bulk.tensor.{len(coordinates)}d.shared::cluster.global"
        f".{opcode}.mbarrier::complete_tx::bytes [%smem+{1024 + i * pitch}],"
        f" [%maps, {{{', '.join(map(str, coordinates))}}}], [{BAR}]"
        + (f", {{{registers}}};" if opcode == "im2col" else ";")
    )
  pattern = snippet.random("im2col pattern", total // 4)
  return Snippet(
      name,
      fill_shared("%in1", total) + "  fence.proxy.async;\n" + prepare()
      + elected(*lines) + wait(BAR)
      + dump_shared("%in2", dumped, "%r30").replace(
          "bar.sync 0;", "bar.sync 0;\n    add.u32 %r30, %smem, 1024;"
      ),
      (data, pattern, snippet.poison(dumped // 4)), (2,), ("bits",),
      block=(128, 1, 1), shared=total, maps=(tensor_map,), faults=faults,
  )


def _walks() -> Iterator[Snippet]:
  """From every corner of the bounding box, over rows, planes and images."""
  for swizzle in (16, 32, 64, 128):
    # As wide as the swizzle.
    kwargs = dict(swizzle=swizzle, channels=max(swizzle, 32) // 2, columns=72)
    yield _load(
        f"3d swizzle {swizzle}",
        [((0, -2, 0), (0,)), ((8, 3, 1), (3,)), ((0, 8, 2), (1,))],
        space=1, **kwargs,
    )
    yield _load(
        f"4d swizzle {swizzle}",
        [((0, -2, -1, 0), (0, 0)), ((8, 5, 3, 0), (2, 1)),
         ((0, 7, 2, 1), (1, 2))],
        **kwargs,
    )
    yield _load(
        f"5d swizzle {swizzle}",
        [((0, -1, -1, 0, 0), (0, 0, 0)), ((8, 3, 4, 0, 0), (2, 1, 2)),
         ((0, 0, 1, 0, 1), (1, 2, 1))],
        space=3, **kwargs,
    )
  for element in ("u8", "u32", "s32", "u64", "s64", "f16", "bf16", "f32"):
    yield _load(
        f"4d {element}", [((0, 5, 3, 0), (2, 1))], element=element,
        channels=256 // _BITS[element], columns=512 // _BITS[element],
    )
  for pixels in (1, 7, 37, 131):
    yield _load(f"{pixels} pixels", [((16, 1, 1, 0), (1, 0))], pixels=pixels)
  yield _load(
      "1024 pixels", [((0, 0, 0, 0), (1, 1))], pixels=1024, channels=8,
      sizes=(9, 11, 13),
  )
  # The second image ends: zeros are what follows.
  yield _load("past the last image", [((0, 6, 3, 1), (0, 0)),
                                      ((0, 0, 0, 2), (0, 0)),
                                      ((0, 0, 0, 100), (0, 0))])
  yield _load("before the first image", [((0, 6, 3, -1), (0, 0)),
                                         ((0, 0, 0, -7), (0, 0))])
  yield _load("far offsets", [((0, 0, 0, 0), (255, 0)),
                              ((0, 0, 0, 0), (0, 255)),
                              ((0, -2, -1, 0), (6, 4))])
  yield _load("far offsets 3d", [((0, 0, 0), (65535,)), ((0, 0, 0), (10,))],
              space=1)
  yield _load("far offsets 5d", [((0, 0, 0, 0, 0), (31, 0, 0)),
                                 ((0, 0, 0, 0, 0), (0, 31, 1)),
                                 ((0, 0, 0, 0, 0), (1, 0, 31))], space=3)
  yield _load("a box of one window", [((0, 1, 2, 0), (1, 0))], lower=(2, 1),
              upper=(-2, -5))
  yield _load("a box around the image", [((0, -9, -8, 0), (9, 9))],
              lower=(-8, -9), upper=(6, 9), pixels=131)
  yield _load("bounds at their ends", [((0, -128, -3, 0), (128, 3))],
              lower=(-3, -128), upper=(127, -128), sizes=(2, 5, 9), pixels=37)


def _steps() -> Iterator[Snippet]:
  for steps in ((2, 2), (1, 3), (3, 1), (8, 2), (2, 8)):
    yield _load(
        f"steps {steps}",
        [((0, -2, -1, 0), (1, 0)), ((0, -2 + steps[1], -1, 0), (0, 2))],
        steps=steps,
    )
  yield _load("steps 3d", [((0, 1, 0), (0,)), ((0, -2, 1), (2,))], space=1,
              steps=(3,))
  yield _load("steps 5d", [((0, -1, 1, 0, 0), (1, 2, 0)),
                           ((0, 1, 2, 0, 1), (0, 1, 2))], space=3,
              steps=(1, 3, 2))


def _channels() -> Iterator[Snippet]:
  for name, start in (("past the end", 32), ("before the first", -8),
                      ("beyond the end", 48), ("before all", -16)):
    for swizzle in (16, 32):
      yield _load(f"channels {name} swizzle {swizzle}",
                  [((start, 1, 1, 0), (1, 0))], swizzle=swizzle)
  yield _load("37 channels", [((24, 1, 1, 0), (1, 0))], columns=37)
  yield _load("37 channels of u8", [((32, 1, 1, 0), (1, 0))], columns=37,
              element="u8")
  for swizzle in (32, 64, 128):
    for channels in (16, 48, 112):
      if channels < swizzle:
        yield _load(
            f"{channels} bytes of channels swizzle {swizzle}",
            [((16, 1, 1, 0), (1, 0))], element="u8", columns=144,
            channels=channels, swizzle=swizzle,
        )


def _unusual() -> Iterator[Snippet]:
  """What the ISA leaves open, or JAX cannot ask for."""
  # Where no window begins, given the steps.
  yield _load("steps (2, 3), off the grid",
              [((0, -1, 0, 0), (1, 0)), ((0, 3, 2, 0), (0, 2))], steps=(2, 3))
  # Outside of the bounding box.
  for name, c in (("after in a row", (0, 8, 1, 0)),
                  ("far after in a row", (0, 12, 1, 0)),
                  ("before in a row", (0, -4, 1, 0)),
                  ("after the rows", (0, 1, 4, 0)),
                  ("before the rows", (0, 1, -3, 0))):
    yield _load(f"begins {name}", [(c, (0, 0))], faults=True)
  # Offsets that are too large: the GPU reports no error.
  for one in (
      _load("offset 256", [((0, 0, 0, 0), (256, 0))]),
      _load("offset 32 5d", [((0, 0, 0, 0, 0), (32, 0, 0))], space=3),
  ):
    yield dataclasses.replace(one, compare=("record",), modelled=False)


def _faults() -> Iterator[Snippet]:
  one = [((0, 0, 0, 0), (0, 0))]

  def fault(name, loads=one, **kwargs):
    return _load(name, loads, faults=True, **kwargs)

  yield fault("channel of 8 bytes", [((4, 0, 0, 0), (0, 0))])
  yield fault("257 channels", element="u8", columns=512, channels=257)
  yield fault("272 channels", element="u8", columns=512, channels=272)
  yield fault("8 bytes of channels", channels=4)
  yield fault("channels wider than the swizzle", channels=32, swizzle=32)
  yield fault("1025 pixels", pixels=1025, channels=8)
  yield fault("0 pixels", pixels=0)
  yield fault("steps of 9", steps=(1, 9))
  yield fault("steps of 0", steps=(0, 1))
  yield fault("lower bound of -129", lower=(0, -129))
  yield fault("upper bound of 128", upper=(128, 0))
  yield fault("bounds of -17 5d", [((0, 0, 0, 0, 0), (0, 0, 0))], space=3,
              lower=(0, -17, 0))
  yield fault("no window", lower=(0, 0), upper=(0, -7))
  yield fault("tile load of an im2col map", [((0, 0, 0, 0), ())],
              opcode="tile")
  plain = _load("im2col load of a tiled map", one, faults=True)
  m = plain.maps[0]
  yield dataclasses.replace(
      plain, maps=(Map(0, "u16", m.sizes, m.strides, (1, 1, 24, 16)),)
  )
