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
"""Runs the host code of a compiled kernel.

The compiler leaves a function in MLIR's LLVM dialect that gets the addresses of
the kernel's arguments, fills in the TMA maps and says how to launch the kernel.
It is evaluated on Python integers here, with the functions that it calls
(``mosaic_gpu_init_tma_desc`` and ``mosaic_gpu_build_kernel_spec``, or
``mosaic_gpu_launch_kernel`` before jaxlib 0.12, of jaxlib's
mosaic/gpu/runtime.cc) replaced by ones that record their arguments.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Sequence
from typing import Any

from jax._src.interpreters import mlir
from jaxlib.mlir import ir

from .errors import SimulationError

_POINTER_BYTES = 8
# The memory of the host function. Device addresses are only passed through.
_STACK_BASE = 0x1000
_DYNAMIC_INDEX = -(2**31)


@dataclasses.dataclass(frozen=True)
class TmaDescriptorArgs:
  """The arguments of mosaic_gpu_init_tma_desc, in its order and units.

  Attributes:
    base: Device address of the array.
    element_type: Code of the element type or its meaning, see `tma.py`.
    sizes: Elements in each dimension, the slowest varying one first.
    strides: Elements between neighbours in each dimension.
    swizzle: Swizzle span in bytes, 16 for none.
    window: Elements of the box in each dimension.
  """

  base: int
  element_type: int
  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  swizzle: int
  window: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TmaIm2colDescriptorArgs:
  """The arguments of mosaic_gpu_init_tma_im2col_desc, likewise.

  Attributes:
    base, element_type, sizes, strides, swizzle: As for a tiled map.
    lower: First position of a window, for each dimension of an image.
    upper: Bound of its positions, relative to the size.
    channels: Elements of a pixel that a copy takes.
    pixels: Windows of a copy.
    steps: From one window to the next, for each dimension of an image.
  """

  base: int
  element_type: int
  sizes: tuple[int, ...]
  strides: tuple[int, ...]
  swizzle: int
  lower: tuple[int, ...]
  upper: tuple[int, ...]
  channels: int
  pixels: int
  steps: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class KernelSpec:
  """How the host launches a kernel.

  Attributes:
    grid: Number of CTAs in x, y and z.
    cluster: Number of CTAs of a cluster in x, y and z.
    block: Number of threads of a CTA in x, y and z.
    dynamic_shared_bytes: Bytes of dynamic shared memory.
    params: The bytes of each kernel parameter. TMA maps in them are made by the
      function that was given to `evaluate`.
  """

  grid: tuple[int, int, int]
  cluster: tuple[int, int, int]
  block: tuple[int, int, int]
  dynamic_shared_bytes: int
  params: tuple[bytes, ...]


class HostProgram:
  """The host function of a kernel."""

  def __init__(self, text: str):
    self._context = mlir.make_ir_context()
    self._context.allow_unregistered_dialects = True
    with self._context:
      self._module = ir.Module.parse(text)
      functions = {
          ir.StringAttr(op.attributes["sym_name"]).value: op
          for op in self._module.body
          if op.operation.name == "llvm.func"
      }
      self._functions = functions
      entries = [n for n in functions if n.startswith("_mlir_ciface_")]
    if len(entries) != 1:
      raise SimulationError(
          f"Expected one host function of the kernel, got {entries}. The host"
          " code of this jaxlib release may not be supported"
      )
    [self._entry] = entries

  def evaluate(
      self,
      arguments: Sequence[int],
      make_tma_map: Callable[
          [TmaDescriptorArgs | TmaIm2colDescriptorArgs], bytes
      ],
      param_bytes: Sequence[int],
  ) -> KernelSpec:
    """Runs the host function.

    Args:
      arguments: Device addresses of the operands and results of the kernel.
      make_tma_map: Makes the 128 bytes of a TMA map.
      param_bytes: Bytes of each parameter, as the kernel declares them.
    """
    with self._context:
      evaluation = _Evaluation(self._functions, make_tma_map, param_bytes)
      buffers = evaluation.allocate(_POINTER_BYTES * max(len(arguments), 1))
      for i, address in enumerate(arguments):
        evaluation.store(buffers + i * _POINTER_BYTES, address, _POINTER_BYTES)
      # Before them come handles of the kernel and, before jaxlib 0.12, of the
      # stream.
      [block] = self._functions[self._entry].operation.regions[0].blocks
      handles = [0] * (len(block.arguments) - 1)
      evaluation.call(self._entry, [*handles, buffers])
    if evaluation.spec is None:
      raise SimulationError("The host function launched no kernel")
    return evaluation.spec


class _Evaluation:
  """One run of the host function."""

  def __init__(self, functions, make_tma_map, param_bytes):
    self._functions = functions
    self._make_tma_map = make_tma_map
    self._param_bytes = param_bytes
    self._memory = bytearray()
    self.spec: KernelSpec | None = None

  def allocate(self, num_bytes: int) -> int:
    address = _STACK_BASE + len(self._memory)
    # A multiple of 128 keeps every alignment that the host code asks for.
    self._memory.extend(bytes(-(-num_bytes // 128) * 128))
    return address

  def load_bytes(self, address: int, num_bytes: int) -> bytes:
    begin = address - _STACK_BASE
    if begin < 0 or begin + num_bytes > len(self._memory):
      raise SimulationError(
          f"The host function reads {num_bytes} bytes at {address:#x}, outside"
          " of its memory"
      )
    return bytes(self._memory[begin:begin + num_bytes])

  def store_bytes(self, address: int, value: bytes) -> None:
    self.load_bytes(address, len(value))  # Checks the range.
    begin = address - _STACK_BASE
    self._memory[begin:begin + len(value)] = value

  def load(self, address: int, num_bytes: int) -> int:
    return int.from_bytes(self.load_bytes(address, num_bytes), "little")

  def store(self, address: int, value: int, num_bytes: int) -> None:
    mask = (1 << 8 * num_bytes) - 1
    self.store_bytes(address, (value & mask).to_bytes(num_bytes, "little"))

  def load_array(self, address: int, length: int) -> tuple[int, ...]:
    return tuple(self.load(address + 8 * i, 8) for i in range(length))

  def load_signed(self, address: int, length: int) -> tuple[int, ...]:
    """Integers of 32 bits."""
    data = self.load_bytes(address, 4 * length)
    return struct.unpack(f"<{length}i", data)

  def call(self, name: str, args: list[Any]) -> Any:
    if name in _RUNTIME:
      return _RUNTIME[name](self, *args)
    function = self._functions.get(name)
    if function is None or not function.operation.regions[0].blocks:
      raise SimulationError(
          f"The host function calls {name}, which is not simulated"
      )
    [block] = function.operation.regions[0].blocks
    values = dict(zip(block.arguments, args, strict=True))
    for op in block.operations:
      handler = _OPERATIONS.get(op.operation.name)
      if handler is None:
        raise SimulationError(
            f"The host function contains {op.operation.name}, which is not"
            f" simulated: {op}"
        )
      operands = [values[operand] for operand in op.operation.operands]
      results = op.operation.results
      value = handler(self, op, operands)
      if len(results) == 1:
        values[results[0]] = value
    return None


def _init_tma_desc(
    run: _Evaluation, desc, base, element_type, rank, sizes, strides, swizzle,
    window,
):
  blob = run._make_tma_map(
      TmaDescriptorArgs(
          base=base,
          element_type=element_type,
          sizes=run.load_array(sizes, rank),
          strides=run.load_array(strides, rank),
          swizzle=swizzle,
          window=run.load_array(window, rank),
      )
  )
  run.store_bytes(desc, blob)


def _init_tma_im2col_desc(
    run: _Evaluation, desc, base, element_type, rank, sizes, strides, swizzle,
    lower, upper, channels, pixels, steps,
):
  blob = run._make_tma_map(
      TmaIm2colDescriptorArgs(
          base=base,
          element_type=element_type,
          sizes=run.load_array(sizes, rank),
          strides=run.load_array(strides, rank),
          swizzle=swizzle,
          lower=run.load_signed(lower, rank - 2),
          upper=run.load_signed(upper, rank - 2),
          channels=channels,
          pixels=pixels,
          steps=run.load_signed(steps, rank - 2),
      )
  )
  run.store_bytes(desc, blob)


def _build_kernel_spec(
    run: _Evaluation, spec, gx, gy, gz, cx, cy, cz, bx, by, bz, shared_bytes,
    unused, num_params, params, sizes,
):
  del spec, unused, sizes
  if num_params != len(run._param_bytes):
    raise SimulationError(
        f"The host function launches a kernel of {len(run._param_bytes)}"
        f" parameters with {num_params}"
    )
  _launch_kernel(
      run, 0, gx, gy, gz, cx, cy, cz, bx, by, bz, shared_bytes, 0, 0, params
  )


def _launch_kernel(
    run: _Evaluation, kernel, gx, gy, gz, cx, cy, cz, bx, by, bz, shared_bytes,
    unused, stream, params,
):
  del kernel, unused, stream
  if run.spec is not None:
    raise SimulationError("The host function launches more than one kernel")
  addresses = run.load_array(params, len(run._param_bytes))
  run.spec = KernelSpec(
      grid=(gx, gy, gz),
      # Without a cluster, the runtime is given zeros.
      cluster=(max(cx, 1), max(cy, 1), max(cz, 1)),
      block=(bx, by, bz),
      dynamic_shared_bytes=shared_bytes,
      params=tuple(
          run.load_bytes(address, num_bytes)
          for address, num_bytes in zip(addresses, run._param_bytes)
      ),
  )
  return 0


_RUNTIME: dict[str, Callable[..., Any]] = {
    "mosaic_gpu_init_tma_desc": _init_tma_desc,
    "mosaic_gpu_init_tma_im2col_desc": _init_tma_im2col_desc,
    "mosaic_gpu_build_kernel_spec": _build_kernel_spec,
    "mosaic_gpu_launch_kernel": _launch_kernel,
}


def _size_and_alignment(ty: str) -> tuple[int, int]:
  """Bytes and alignment of an LLVM type, given as text."""
  ty = ty.removeprefix("!llvm.").strip()
  if ty.startswith("ptr"):
    return _POINTER_BYTES, _POINTER_BYTES
  if ty.startswith("array<"):
    count, _, element = ty[len("array<"):-1].partition(" x ")
    size, alignment = _size_and_alignment(element)
    return int(count) * size, alignment
  if ty.startswith("struct<("):
    offset, alignment = 0, 1
    for field in _struct_fields(ty):
      size, field_alignment = _size_and_alignment(field)
      offset = -(-offset // field_alignment) * field_alignment + size
      alignment = max(alignment, field_alignment)
    return -(-offset // alignment) * alignment, alignment
  if ty.startswith("i") and ty[1:].isdigit():
    size = -(-int(ty[1:]) // 8)
    return size, size
  raise SimulationError(f"The host function uses the type {ty}")


def _struct_fields(ty: str) -> list[str]:
  """Splits ``struct<(a, b)>`` at the commas that are not nested."""
  fields, depth = [""], 0
  for c in ty.removeprefix("struct<(").removesuffix(")>"):
    depth += (c in "<(") - (c in ">)")
    if c == "," and depth == 0:
      fields.append("")
    else:
      fields[-1] += c
  return [field.strip() for field in fields if field.strip()]


def _bits(ty: ir.Type) -> int:
  return 8 * _size_and_alignment(str(ty))[0]


def _constant(run, op, operands):
  value = op.attributes["value"]
  if not isinstance(value, ir.IntegerAttr):
    raise SimulationError(f"The host function uses the constant {value}")
  return value.value


def _undefined(run, op, operands):
  return _empty(str(op.results[0].type))


def _empty(ty: str) -> Any:
  ty = ty.removeprefix("!llvm.")
  if ty.startswith("struct<("):
    return [_empty(field) for field in _struct_fields(ty)]
  if ty.startswith("array<"):
    count, _, element = ty[len("array<"):-1].partition(" x ")
    return [_empty(element) for _ in range(int(count))]
  return 0


def _copy(value: Any) -> Any:
  return [_copy(v) for v in value] if isinstance(value, list) else value


def _insert_value(run, op, operands):
  container, value = operands
  result = inner = _copy(container)
  *path, last = list(op.attributes["position"])
  for i in path:
    inner = inner[i]
  inner[last] = value
  return result


def _extract_value(run, op, operands):
  [value] = operands
  for i in list(op.attributes["position"]):
    value = value[i]
  return value


def _get_element_pointer(run, op, operands):
  base, *dynamic = operands
  indices = [
      dynamic.pop(0) if i == _DYNAMIC_INDEX else i
      for i in list(op.attributes["rawConstantIndices"])
  ]
  ty = str(ir.TypeAttr(op.attributes["elem_type"]).value)
  first, *path = indices
  address = base + first * _size_and_alignment(ty)[0]
  for i in path:
    ty = ty.removeprefix("!llvm.")
    if ty.startswith("array<"):
      ty = ty[len("array<"):-1].partition(" x ")[2]
      address += i * _size_and_alignment(ty)[0]
      continue
    offset = 0
    for n, field in enumerate(_struct_fields(ty)):
      size, alignment = _size_and_alignment(field)
      offset = -(-offset // alignment) * alignment
      if n == i:
        address, ty = address + offset, field
        break
      offset += size
  return address


def _alloca(run, op, operands):
  ty = str(ir.TypeAttr(op.attributes["elem_type"]).value)
  return run.allocate(operands[0] * _size_and_alignment(ty)[0])


def _load(run, op, operands):
  ty = str(op.results[0].type)
  num_bytes = _size_and_alignment(ty)[0]
  if ty.startswith("!llvm.array"):
    return run.load_bytes(operands[0], num_bytes)
  return run.load(operands[0], num_bytes)


def _store(run, op, operands):
  value, address = operands
  if isinstance(value, bytes):
    run.store_bytes(address, value)
  else:
    num_bytes = _size_and_alignment(str(op.operands[0].type))[0]
    run.store(address, value, num_bytes)


def _truncate(run, op, operands):
  return operands[0] & ((1 << _bits(op.results[0].type)) - 1)


def _call(run, op, operands):
  callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
  return run.call(callee, operands)


def _wrapping(function):
  def handler(run, op, operands):
    return function(*operands) & ((1 << _bits(op.results[0].type)) - 1)

  return handler


def _same(run, op, operands):
  return operands[0]


_OPERATIONS: dict[str, Callable[[_Evaluation, Any, list[Any]], Any]] = {
    "builtin.unrealized_conversion_cast": _same,
    "llvm.add": _wrapping(lambda a, b: a + b),
    "llvm.alloca": _alloca,
    "llvm.call": _call,
    "llvm.extractvalue": _extract_value,
    "llvm.getelementptr": _get_element_pointer,
    "llvm.insertvalue": _insert_value,
    "llvm.inttoptr": _same,
    "llvm.load": _load,
    "llvm.mlir.constant": _constant,
    "llvm.mlir.poison": _undefined,
    "llvm.mlir.undef": _undefined,
    "llvm.mlir.zero": _undefined,
    "llvm.mul": _wrapping(lambda a, b: a * b),
    "llvm.ptrtoint": _same,
    "llvm.return": lambda run, op, operands: None,
    "llvm.store": _store,
    "llvm.sub": _wrapping(lambda a, b: a - b),
    "llvm.trunc": _truncate,
    "llvm.zext": _same,
}
