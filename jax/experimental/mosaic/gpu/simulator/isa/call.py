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
"""Calls: of vprintf, which is what gpu.printf of MLIR becomes."""

from __future__ import annotations

import math
import re
import sys

import numpy as np

from .. import errors, ptx, registers
from ..observers import Access
from ..table import instruction
from .move import LOCAL_BASE, LOCAL_WINDOW

_SECTION = "9.7.12.4 (call)"
_MAX_ARGUMENTS = 32  # CUDA prints the conversions beyond them as they are.


@instruction("call[.<uni>]", "(d), f, (a), prototype?", section=_SECTION)
@instruction("call[.<uni>]", "f, (a), prototype?", section=_SECTION)
@instruction("call[.<uni>]", "f, prototype?", section=_SECTION)
def call(op):
  if op.f != "vprintf" or op.prototype is not None:
    raise op.unsupported(f"only vprintf can be called, not `{op.f}`.")
  d, a = (op.__dict__.get(name, ()) for name in "da")
  if len(d) != 1 or len(a) != 2:
    raise op.unsupported("vprintf has one result and two arguments.")
  parsed = [
      o.items for o in op.instruction.operands if isinstance(o, ptx.Arguments)
  ]
  for items, size in zip(parsed, (4, 8), strict=True):
    if not all(_fits(op, item, size) for item in items):
      raise op.unsupported(
          "expected the result of vprintf in a .param variable of 4 bytes, its"
          " arguments in such of 8."
      )
  (result,), (text, values) = d, a

  def execute(step):
    text_at, values_at = (_read(step, item) for item in (text, values))
    reader = _Reader(step)
    counts, output = np.empty(step.n, np.int32), []
    for i in range(step.n):
      counts[i], printed = _printf(
          reader, i, int(text_at[i]), int(values_at[i])
      )
      output.append(printed)
    if isinstance(result, registers.AddressValue):
      column = result.read(step)[:, None] + np.arange(4)
      step.machine.local[step.threads[:, None], column] = (
          counts[:, None].view(np.uint8)
      )
    else:
      result.write(step, counts)
    printed = b"".join(output).decode(errors="replace")
    sys.stdout.write(printed)
    sys.stdout.flush()

  return execute


def _fits(op, item, size):
  """Whether `item` is no variable, or a whole .param variable of `size`."""
  if not isinstance(item, ptx.Address):
    return True
  if not isinstance(item.base, ptx.Symbol):
    return False
  variable = op.context.kernel.variables.get(item.base.name)
  return (
      variable is not None and variable.space == "param"
      and variable.size == size and not item.base.offset
  )


def _read(step, item):
  """An argument of 8 bytes: int64 [n]."""
  if isinstance(item, registers.AddressValue):
    column = item.read(step)[:, None] + np.arange(8)
    data = step.machine.local[step.threads[:, None], column]
    return np.ascontiguousarray(data).view(np.int64)[:, 0]
  return step.read_full(item, np.int64)


class _Reader:
  """Reads memory for one active thread at a time."""

  def __init__(self, step):
    self.step = step
    self._strings: dict[tuple[int, int], bytes] = {}

  def read(self, i: int, address: int, nbytes: int) -> bytes:
    """Reads at a generic address, for the active thread number `i`."""
    step, machine = self.step, self.step.machine
    offset = address - LOCAL_BASE
    if 0 <= offset < LOCAL_WINDOW:
      local = machine.local[step.threads[i]]
      if offset + nbytes > local.size:
        raise errors.MemoryFault(
            f"vprintf reads {nbytes} bytes at {offset:#x} of local memory; it"
            f" has {local.size} bytes.",
            step.where(i),
        )
      return local[offset : offset + nbytes].tobytes()
    one = slice(i, i + 1)
    who = Access(
        lambda _: step.where(i), "generic", "vprintf", step.threads[one]
    )
    data = machine.spaces.read(
        "generic", step.ctas[one], np.array([address]), nbytes, who
    )
    return data.tobytes()

  def string(self, i: int, address: int) -> bytes:
    """Reads up to a zero byte, once for all threads that see the same."""
    offset = address - LOCAL_BASE
    is_local = 0 <= offset < LOCAL_WINDOW
    owner = self.step.threads[i] if is_local else self.step.ctas[i]
    key = int(owner), address
    if key not in self._strings:
      characters = []
      while (character := self.read(i, address, 1)) != b"\0":
        characters.append(character)
        address += 1
      self._strings[key] = b"".join(characters)
    return self._strings[key]


_CONVERSION = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?"
    rb"(?P<length>hh|h|ll|l|j|z|t)?(?P<type>[diuoxXeEfFgGcsp%])"
)


def _printf(reader, i, text_at, values_at):
  """What vprintf returns and prints in the active thread number `i`."""
  if not text_at:
    return -1, b""
  text = reader.string(i, text_at)
  position, count, at = 0, 0, values_at
  output = []

  def value(dtype):
    nonlocal at
    dtype = np.dtype(dtype)
    at = -(-at // dtype.itemsize) * dtype.itemsize
    data = reader.read(i, at, dtype.itemsize)
    at += dtype.itemsize
    return np.frombuffer(data, dtype)[0].item()

  while (start := text.find(b"%", position)) >= 0:
    output.append(text[position:start])
    found = _CONVERSION.match(text, start)
    if found is None:
      raise errors.UnsupportedPtxError(
          f"vprintf with the format {text!r}: the conversion at byte {start} is"
          " not modelled.",
          reader.step.where(i),
      )
    position = found.end()
    flags, width, length, kind = (
        (found[name] or b"").decode()
        for name in ("flags", "width", "length", "type")
    )
    precision = found["precision"]
    if precision is not None:
      precision = precision.decode()
    if kind == "%":
      output.append(b"%")
      continue
    if count + (width == "*") + (precision == "*") >= _MAX_ARGUMENTS:
      output.append(found[0])
      continue
    if width == "*":
      count += 1
      width = value(np.int32)
      if width < 0:
        flags, width = flags + "-", -width
    if precision == "*":
      count += 1
      precision = value(np.int32)
      precision = None if precision < 0 else precision
    elif precision is not None:
      precision = int(precision or 0)
    count += 1
    width = int(width or 0)
    if kind == "s":
      result = reader.string(i, value(np.int64))[:precision]
    elif kind == "c":
      result = bytes([value(np.int32) & 255])
    elif kind == "p":
      pointer = value(np.uint64)
      result = f"{pointer:#x}".encode() if pointer else b"(nil)"
    elif kind in "diuoxX":
      bits = {"hh": 8, "h": 16, "": 32}.get(length, 64)
      number = value(f"i{max(bits, 32) // 8}")
      result = _integer(number, bits, flags, width, precision, kind)
    else:
      result = _floating(value(np.float64), flags, width, precision, kind)
    justify = result.ljust if "-" in flags else result.rjust
    output.append(justify(width))
  output.append(text[position:])
  return count, b"".join(output)


def _integer(value, bits, flags, width, precision, kind):
  """An integer as C prints it, before it is padded with spaces."""
  value &= (1 << bits) - 1
  sign = ""
  if kind in "di":
    value -= (value >> (bits - 1)) << bits
    sign = _sign(value < 0, flags)
    value = abs(value)
  digits = format(value, {"o": "o", "x": "x", "X": "X"}.get(kind, "d"))
  if precision == 0 and not value:
    digits = ""
  digits = digits.rjust(precision or 0, "0")
  if "#" in flags and kind == "o" and not digits.startswith("0"):
    digits = "0" + digits
  elif "#" in flags and kind in "xX" and value:
    sign = f"0{kind}"
  if "0" in flags and "-" not in flags and precision is None:
    digits = digits.rjust(width - len(sign), "0")
  return (sign + digits).encode()


def _floating(value, flags, width, precision, kind):
  """A double as C prints it, before it is padded with spaces."""
  sign = _sign(math.copysign(1, value) < 0, flags)
  value = abs(value)
  alternate = "#" if "#" in flags else ""
  digits = f"%{alternate}.{6 if precision is None else precision}{kind}" % value
  if "0" in flags and "-" not in flags and math.isfinite(value):
    digits = digits.rjust(width - len(sign), "0")
  return (sign + digits).encode()


def _sign(negative, flags):
  if negative:
    return "-"
  return "+" if "+" in flags else " " if " " in flags else ""
