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
"""Registers: one array over all resident threads each, with written bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from . import errors

if TYPE_CHECKING:
  from .step import Step

# Types by their PTX name. Untyped bits read as unsigned integers.
DTYPES: dict[str, np.dtype] = {
    "pred": np.dtype(np.bool_),
    **{f"s{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"{k}{n}": np.dtype(f"uint{n}") for k in "bu" for n in (8, 16, 32, 64)},
    **{f"f{n}": np.dtype(f"float{n}") for n in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16x2": np.dtype(np.uint32),
    "bf16x2": np.dtype(np.uint32),
}

_STORAGE = {
    "pred": np.dtype(np.bool_),
    **{
        f"{kind}{bits}": np.dtype(f"uint{bits}")
        for kind in "bsuf"
        for bits in (8, 16, 32, 64)
        if (kind, bits) != ("f", 8)
    },
    "f16x2": np.dtype(np.uint32),
    "b128": np.dtype((np.uint64, (2,))),
}


class RegisterSlot:
  """A register of all T threads: the run-time form of `ptx.Register`.

  `data` is bool [T], uint16/32/64 [T], or uint64 [T, 2] for `.b128` (low half
  first).
  """

  __slots__ = ("name", "type", "data", "written", "complete", "_reads",
               "_writes")

  def __init__(self, name: str, type_: str):
    if type_ not in _STORAGE:
      raise errors.UnsupportedPtxError(
          f"Register {name} has type .{type_}; expected one of"
          f" {', '.join('.' + t for t in _STORAGE)}."
      )
    self.name = name
    self.type = type_
    self.allocate(0)

  @property
  def bits(self) -> int:
    if self.type == "pred":
      return 1
    return 128 if self.type == "b128" else self.data.dtype.itemsize * 8

  def allocate(self, num_threads: int) -> None:
    """Makes room for a new set of resident threads; nothing is written."""
    self.data = np.zeros(num_threads, _STORAGE[self.type])
    self.written = np.zeros(num_threads, np.bool_)
    self.complete = False  # All of `written`, so that the check is cheap.
    self._reads: dict[Any, np.ndarray] = {}
    self._writes: dict[Any, np.ndarray] = {}

  def read(self, step: Step, dtype: Any) -> np.ndarray:
    """Value of the active threads; may be a view of the register."""
    view = self._reads.get(dtype)
    if view is None:
      view = self._reads[dtype] = self._read_view(dtype)
    if not self.complete and not self.written[step.index].all():
      self._unwritten(step)
    return view if step.full else view[step.index]

  def write(self, step: Step, values: Any) -> None:
    try:
      view = self._writes[values.dtype]
    except (KeyError, AttributeError):
      values = np.asarray(values)
      view = self._writes[values.dtype] = self._write_view(values.dtype)
    view[step.index] = values
    if not self.complete:
      if step.full:
        self.complete = True
      self.written[step.index] = True

  def forget(self, step: Step, mask: np.ndarray) -> None:
    """Makes the register unwritten in the active threads where `mask` is."""
    self.written[:] |= self.complete
    self.complete = False
    self.written[step.threads[mask]] = False

  def _read_view(self, dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    have = self.data.dtype
    if self.type == "b128":
      if dtype == np.uint64:
        return self.data
    elif (self.type == "pred") == (dtype == np.bool_):
      if dtype.itemsize == have.itemsize:
        return self.data.view(dtype)
      if dtype.itemsize < have.itemsize:
        # PTX lets cvt, ld and st use the low bits of a wider register.
        return self.data.view(dtype)[:: have.itemsize // dtype.itemsize]
    raise errors.UnsupportedPtxError(
        f"Register {self.name} of type .{self.type} is read as {dtype}."
    )

  def _write_view(self, dtype: np.dtype) -> np.ndarray:
    have = self.data.dtype
    if self.type == "b128":
      if dtype == np.uint64:
        return self.data
    elif (self.type == "pred") == (dtype == np.bool_):
      if dtype.itemsize == have.itemsize:
        return self.data.view(dtype)
      if dtype.kind in "iu":
        return self.data  # The assignment extends by the sign of `dtype`.
    raise errors.UnsupportedPtxError(
        f"Register {self.name} of type .{self.type} is written as {dtype}."
    )

  def _unwritten(self, step: Step) -> None:
    missing = np.flatnonzero(~self.written[step.index])
    raise errors.UnwrittenRegisterError(
        f"Register {self.name} is read before it was written, in"
        f" {missing.size} of {step.n} active threads. Write it on every path"
        " that leads here.",
        step.where(int(missing[0])),
    )


class ImmediateValue:
  """A constant operand; reads as a 0-d array of the type asked for."""

  __slots__ = ("value", "_reads")

  def __init__(self, value: int | float, bits: int | None = None):
    """`bits`: width of a floating-point constant, None for an integer."""
    self.value = value
    self._reads: dict[Any, np.ndarray] = {}
    if bits is not None:
      constant = np.array(value, f"float{bits}")
      for dtype in (f"float{bits}", f"uint{bits}", f"int{bits}"):
        dtype = np.dtype(dtype)
        self._reads[dtype] = self._reads[dtype.type] = constant.view(dtype)

  def read(self, step: Step | None, dtype: Any) -> np.ndarray:
    view = self._reads.get(dtype)
    if view is None:
      view = self._reads[dtype] = self._convert(np.dtype(dtype))
    return view

  def write(self, step: Step, values: Any) -> None:
    raise errors.PtxSyntaxError(f"Constant {self.value} as a destination.")

  def _convert(self, dtype: np.dtype) -> np.ndarray:
    if isinstance(self.value, float):
      known = self._reads.get(dtype)
      if known is not None:
        return known
    elif dtype == np.bool_:
      return np.array(self.value != 0)
    elif dtype.kind in "iu":
      mask = (1 << (8 * dtype.itemsize)) - 1
      unsigned = np.dtype(f"uint{8 * dtype.itemsize}")
      return np.array(self.value & mask, unsigned).view(dtype)
    raise errors.UnsupportedPtxError(
        f"Constant {self.value} is read as {dtype}; expected a constant of"
        " that type."
    )


class SinkValue:
  """The operand `_`: takes every write."""

  __slots__ = ()

  def forget(self, step: Step, mask: np.ndarray) -> None:
    pass

  def read(self, step: Step, dtype: Any) -> np.ndarray:
    raise errors.PtxSyntaxError("The sink `_` cannot be read.")

  def write(self, step: Step, values: Any) -> None:
    pass


class NegatedValue:
  """A predicate operand `!p`."""

  __slots__ = ("value",)

  def __init__(self, value: RegisterSlot):
    self.value = value

  def read(self, step: Step, dtype: Any) -> np.ndarray:
    return ~self.value.read(step, np.bool_)

  def write(self, step: Step, values: Any) -> None:
    raise errors.PtxSyntaxError("A negated predicate as a destination.")


class SpecialValue:
  """A special register such as `%tid.x`: a function of the step.

  `function(step)` gives an array broadcastable to [n].
  """

  __slots__ = ("name", "function")

  def __init__(self, name: str, function):
    self.name = name
    self.function = function

  def read(self, step: Step, dtype: Any) -> np.ndarray:
    return np.asarray(self.function(step)).astype(dtype)

  def write(self, step: Step, values: Any) -> None:
    raise errors.PtxSyntaxError(f"{self.name} cannot be written.")


class AddressValue:
  """`[base + offset]`; `space` is the state space of a symbol, if known."""

  __slots__ = ("base", "offset", "wide", "space")

  def __init__(self, base, offset: int, space: str | None = None):
    self.base = base
    self.offset = offset
    self.space = space
    # Addresses in 32-bit registers are zero-extended.
    self.wide = not (isinstance(base, RegisterSlot) and base.bits == 32)

  def read(self, step: Step) -> np.ndarray:
    """Addresses of the active threads, int64 [n]."""
    if self.wide:
      value = self.base.read(step, np.int64)
    else:
      value = self.base.read(step, np.uint32).astype(np.int64)
    if self.offset or not value.ndim:
      value = value + self.offset
    if not np.ndim(value):
      value = np.full(step.n, value, np.int64)
    return value


class VectorValue:
  """`{a, b, ...}`."""

  __slots__ = ("items",)

  def __init__(self, items: tuple):
    self.items = items

  def __len__(self) -> int:
    return len(self.items)

  def __iter__(self):
    return iter(self.items)

  def read(self, step: Step, dtype: Any) -> np.ndarray:
    """Values [n, k], always a copy."""
    result = np.empty((step.n, len(self.items)), dtype)
    for i, item in enumerate(self.items):
      result[:, i] = item.read(step, dtype)
    return result

  def write(self, step: Step, values: np.ndarray) -> None:
    """Takes values [n, k]."""
    for i, item in enumerate(self.items):
      item.write(step, values[:, i])


class LabelValue:
  """The target of a branch: an index into the kernel's body."""

  __slots__ = ("name", "target")

  def __init__(self, name: str, target: int):
    self.name = name
    self.target = target
