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
"""Runs a compiled kernel on NumPy arrays."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

import jax
from jax.experimental.mosaic.gpu import deviceless

from . import buffers, host, machine, ptx, tma
from . import memory as memory_lib
from . import observers as observers_lib

# A B200 has 148 SMs, each of which runs one CTA of a kernel that uses most of
# its shared memory.
NUM_SMS = 148


class Program:
  """A compiled kernel, ready to be run any number of times.

  Attributes:
    kernel: What the compiler made of it.
    in_types: Shapes and dtypes of the operands.
    out_types: Shapes and dtypes of the results.
    aliases: Pairs of (operand, result) that share their memory.
  """

  def __init__(
      self,
      kernel: deviceless.CompiledKernel,
      in_types: Sequence[jax.ShapeDtypeStruct],
      out_types: Sequence[jax.ShapeDtypeStruct],
      aliases: Sequence[tuple[int, int]] = (),
  ):
    self.kernel = kernel
    self.in_types = tuple(in_types)
    self.out_types = tuple(out_types)
    self.aliases = tuple(aliases)

  @functools.cached_property
  def _host(self) -> host.HostProgram:
    return host.HostProgram(self.kernel.host)

  @functools.cached_property
  def _entry(self) -> ptx.Kernel:
    module = ptx.parse(self.kernel.ptx)
    [entry] = module.entries.values()
    return entry

  def _check(self, args: Sequence[np.ndarray]) -> None:
    if len(args) != len(self.in_types):
      raise ValueError(
          f"Expected {len(self.in_types)} arguments, got {len(args)}. Pass an"
          " array for each operand of the kernel"
      )
    for i, (arg, ty) in enumerate(zip(args, self.in_types)):
      if arg.shape != ty.shape or arg.dtype != ty.dtype:
        raise ValueError(
            f"Expected argument {i} of shape {ty.shape} and dtype {ty.dtype},"
            f" got {arg.shape} and {arg.dtype}. Convert the argument, or create"
            " the kernel for it"
        )

  def run(
      self,
      args: Sequence[np.ndarray],
      *,
      observers: Sequence[observers_lib.Observer] = (),
      order: Any = "eager",
      num_sms: int = NUM_SMS,
  ) -> tuple[list[np.ndarray], machine.RunResult]:
    """Runs the kernel.

    Args:
      args: Arrays of the shapes and dtypes of `in_types`. They are not changed.
      observers: Checkers and counters.
      order: When asynchronous operations take effect.
      num_sms: How many CTAs run at a time. The others wait for their end, or
        for a running CTA to take their work over (clusterlaunchcontrol).

    Returns:
      The results, and what the machine did.

    Raises:
      SimulationError: If the kernel does something that is wrong or unknown.
    """
    self._check(args)
    memory = memory_lib.GlobalMemory()
    in_bytes = [buffers.pack(np.asarray(arg)) for arg in args]
    in_addresses = [
        memory.add_buffer(f"operand {i}", data)
        for i, data in enumerate(in_bytes)
    ]
    out_bytes, out_addresses = [], []
    aliases = {result: operand for operand, result in self.aliases}
    for i, ty in enumerate(self.out_types):
      if i in aliases:
        out_bytes.append(in_bytes[aliases[i]])
        out_addresses.append(in_addresses[aliases[i]])
        continue
      out_bytes.append(buffers.poisoned(ty.shape, ty.dtype))
      out_addresses.append(
          memory.add_buffer(f"result {i}", out_bytes[-1], initialized=False)
      )
    maps: list[tma.TensorMap] = []

    def make_tma_map(args) -> bytes:
      make = {
          host.TmaDescriptorArgs: tma.TensorMap.from_runtime_args,
          host.TmaIm2colDescriptorArgs: tma.TensorMap.from_runtime_im2col_args,
      }[type(args)]
      maps.append(make(**dataclasses.asdict(args)))
      return maps[-1].encode()

    spec = self._host.evaluate(
        [*in_addresses, *out_addresses],
        make_tma_map,
        [param.size for param in self._entry.params],
    )
    result = machine.run(
        self._entry,
        machine.Launch(
            spec.grid, spec.cluster, spec.block, spec.dynamic_shared_bytes
        ),
        spec.params,
        memory,
        maps,
        observers=observers,
        order=order,
        max_resident_ctas=num_sms,
    )
    outputs = [
        buffers.unpack(data, ty.shape, ty.dtype)
        for data, ty in zip(out_bytes, self.out_types)
    ]
    return outputs, result
