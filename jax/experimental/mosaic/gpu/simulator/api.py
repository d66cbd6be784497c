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
"""Lets Mosaic GPU kernels run on a CPU, through JAX's own functions."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, MutableSequence, Sequence
import contextlib
import dataclasses
import threading
from typing import Any

import jax
from jax._src.interpreters import mlir
from jax._src.pallas import mpmd
from jax.experimental.mosaic.gpu import core
from jax.experimental.mosaic.gpu import deviceless
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

from . import buffers
from . import errors
from . import launch
from . import machine
from . import observers as observers_lib


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a kernel.

  Attributes:
    program: The kernel that ran.
    result: What the machine did.
    statistics: What was counted on the way.
  """

  program: launch.Program
  result: machine.RunResult
  statistics: observers_lib.Statistics


@dataclasses.dataclass
class Simulation:
  """What `simulate` yields.

  Attributes:
    order: When asynchronous operations take effect.
    observers: Makes further observers for a run.
    num_sms: How many CTAs run at a time.
    runs: The runs so far, the oldest one first.
    error: The first error of a run.
  """

  order: Any = "eager"
  observers: Callable[[], Sequence[observers_lib.Observer]] = tuple
  num_sms: int = launch.NUM_SMS
  runs: MutableSequence[Run] = dataclasses.field(default_factory=list)
  error: Exception | None = None

  def run(
      self, program: launch.Program, args: Sequence[np.ndarray]
  ) -> list[np.ndarray]:
    statistics = observers_lib.Statistics()
    try:
      outputs, result = program.run(
          args,
          observers=[
              observers_lib.UnwrittenReads(),
              observers_lib.TmemRules(),
              statistics,
              *self.observers(),
          ],
          order=self.order,
          num_sms=self.num_sms,
      )
    except Exception as e:
      self.error = self.error or e
      raise
    self.runs.append(Run(program, result, statistics))
    return outputs


# Kernels run in a thread of XLA's, so that this can't be a context variable.
_active: list[Simulation] = []
_lock = threading.Lock()
# Is never left.
_always = contextlib.ExitStack()


@contextlib.contextmanager
def simulate(
    *,
    order: Any = "eager",
    observers: Callable[[], Sequence[observers_lib.Observer]] = tuple,
    num_sms: int = launch.NUM_SMS,
) -> Iterator[Simulation]:
  """Runs Mosaic GPU kernels on a simulated B200 instead of a GPU.

  Functions from ``as_gpu_kernel`` and ``plgpu.kernel`` can be created and called
  inside of the context, on JAX and NumPy arrays, and under ``jax.jit``, on the
  CPU backend::

    with simulator.simulate() as simulation:
      result = kernel(x, y)
    print(simulation.runs[0].statistics)

  Args:
    order: When asynchronous operations (TMA, MMA, ...) take effect: "eager" for
      at once.
    observers: Called for every run, returns further observers for it.
    num_sms: How many CTAs run at a time. With fewer of them than the grid has,
      kernels that take over the work of others (clusterlaunchcontrol) do so.

  Raises:
    SimulationError: If a kernel does something that the PTX ISA does not allow,
      or something that is not simulated.
  """
  simulation = Simulation(order=order, observers=observers, num_sms=num_sms)
  _active.append(simulation)
  try:
    with deviceless.as_blackwell():
      yield simulation
      # JAX returns from a call before the kernel has run.
      jax.block_until_ready(jax.live_arrays("cpu"))
  except jax.errors.JaxRuntimeError:
    # XLA only keeps the text of an error in a callback.
    if simulation.error is None:
      raise
    raise simulation.error from None
  finally:
    _active.remove(simulation)
  if simulation.error is not None:
    raise simulation.error


def enable() -> None:
  """Lets all kernels of this process run on the simulator.

  This is what ``MOSAIC_GPU_SIMULATE=1`` in the environment does.
  """
  if not _active:
    # Nobody asks for the runs, so only the last one is kept.
    _active.append(Simulation(runs=collections.deque(maxlen=1)))
    _always.enter_context(deviceless.as_blackwell())


def _call_program(program: launch.Program, *args) -> list[np.ndarray]:
  with _lock:
    if not _active:
      raise errors.SimulationError(
          "The kernel was traced for the simulator, but none is active. Call it"
          " inside of simulator.simulate()"
      )
    arrays = [
        np.asarray(arg).view(ty.dtype)
        if buffers.sub_byte_bits(ty.dtype)
        else np.asarray(arg)
        for arg, ty in zip(args, program.in_types)
    ]
    return [
        out.view(np.uint8) if buffers.sub_byte_bits(out.dtype) else out
        for out in _active[-1].run(program, arrays)
    ]


# A callback gets no elements of less than a byte, so that they travel as uint8.
def _widen(x: jax.Array) -> jax.Array:
  bits = buffers.sub_byte_bits(x.dtype)
  if bits is None:
    return x
  unsigned = jnp.dtype(f"uint{bits}")
  if x.dtype != unsigned:
    x = jax.lax.bitcast_convert_type(x, unsigned)
  return x.astype(jnp.uint8)


def _narrow(x: jax.Array, dtype) -> jax.Array:
  bits = buffers.sub_byte_bits(dtype)
  if bits is None:
    return x
  x = x.astype(jnp.dtype(f"uint{bits}"))
  return x if x.dtype == dtype else jax.lax.bitcast_convert_type(x, dtype)


def _lowering_rule(
    ctx, *args, module, out_types, inout_types, input_output_aliases
):
  """Lowers a kernel for the CPU to a callback that simulates it."""
  struct = lambda aval: jax.ShapeDtypeStruct(aval.shape, aval.dtype)
  in_types = [struct(aval) for aval in ctx.avals_in]
  results = [struct(aval) for aval in ctx.avals_out]
  compiled = deviceless.compile_module(
      module, in_types, out_types, inout_types
  )
  if inout_types:
    # As for a GPU: the last results are the last operands, in reverse order.
    aliases = [
        (len(in_types) - 1 - i, len(results) - 1 - i)
        for i in range(len(inout_types))
    ]
  else:
    aliases = list(input_output_aliases)
  program = launch.Program(compiled, in_types, results, aliases)
  wide = [
      jax.ShapeDtypeStruct(t.shape, jnp.uint8)
      if buffers.sub_byte_bits(t.dtype)
      else t
      for t in results
  ]

  def call(*args):
    outs = jax.pure_callback(
        lambda *args: _call_program(program, *args),
        wide,
        *(_widen(arg) for arg in args),
        vmap_method="sequential",
    )
    return [_narrow(out, t.dtype) for out, t in zip(outs, results)]

  return mlir.lower_fun(call, multiple_results=True)(ctx, *args)


def _kernel_rule(
    ctx, *args, module, out_types, inout_types, input_output_aliases=()
):
  """Lowers a kernel from ``as_gpu_kernel`` for the CPU."""
  if not _active:
    raise NotImplementedError(
        "Mosaic GPU kernels don't run on a CPU. To simulate them, call them"
        " inside of jax.experimental.mosaic.gpu.simulator.simulate()"
    )
  return _lowering_rule(
      ctx,
      *args,
      module=module,
      out_types=out_types,
      inout_types=inout_types,
      input_output_aliases=input_output_aliases,
  )


def _mpmd_map_rule(ctx, *args, **params):
  """Lowers a ``plgpu.kernel`` for the CPU."""
  gpu_mesh = all(isinstance(mesh, plgpu.Mesh) for mesh in params["meshes"])
  if _active and gpu_mesh and not params["interpret"]:
    return mpmd._mpmd_map_mgpu_lowering(ctx, *args, **params)
  return mpmd._mpmd_map_lowering(ctx, *args, **params)


core.simulated_lowering_rule = _lowering_rule
# The CPU's own rules come before those that are for any platform.
mlir.register_lowering(core.mosaic_gpu_p, _kernel_rule, "cpu")
mlir.register_lowering(mpmd.mpmd_map_p, _mpmd_map_rule, "cpu")
