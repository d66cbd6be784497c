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
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from typing import Any
from unittest import mock

import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir
from jax._src.pallas import mpmd

import jax
from jax.experimental.mosaic.gpu import core, deviceless

from . import buffers, errors, lanes, launch, machine, progress, races
from . import observers as observers_lib
from . import report as report_lib


@dataclasses.dataclass(frozen=True)
class Run:
  """One run of a kernel.

  Attributes:
    program: The kernel that ran.
    result: What the machine did.
    report: What was counted on the way. Can be printed.
  """

  program: launch.Program
  result: machine.RunResult
  report: report_lib.Report

  @property
  def statistics(self) -> observers_lib.Statistics:
    """The same as `report`."""
    return self.report


@dataclasses.dataclass
class Simulation:
  """What `simulate` yields.

  Attributes:
    order: When asynchronous operations take effect.
    observers: Makes further observers for a run.
    num_sms: How many CTAs run at a time.
    check_races: Whether accesses that nothing orders are errors, "lanes" for
      also those of the lanes of a warp.
    runs: The runs so far, the oldest one first.
    error: The first error of a run.
    thread: The thread that entered it, None for one that is never left.
  """

  order: Any = "eager"
  observers: Callable[[], Sequence[observers_lib.Observer]] = tuple
  num_sms: int = launch.NUM_SMS
  check_races: bool | str = False
  runs: MutableSequence[Run] = dataclasses.field(default_factory=list)
  error: Exception | None = None
  thread: int | None = None

  def run(
      self, program: launch.Program, args: Sequence[np.ndarray]
  ) -> list[np.ndarray]:
    report = report_lib.Report()
    shown = progress.on_terminal()
    try:
      outputs, result = program.run(
          args,
          observers=[
              observers_lib.UnwrittenReads(),
              observers_lib.TmemRules(),
              report,
              *([races.Races()] if self.check_races else []),
              *([lanes.LaneRaces()] if self.check_races == "lanes" else []),
              *([shown] if shown else []),
              *self.observers(),
          ],
          order=self.order,
          num_sms=self.num_sms,
      )
    except Exception as e:
      self.error = self.error or e
      raise
    finally:
      if shown:
        shown.close()
    self.runs.append(Run(program, result, report))
    return outputs


# Kernels may run in a thread of XLA's: this can't be a context variable.
_active: list[Simulation] = []
_lock = threading.Lock()
# Is never left.
_always = contextlib.ExitStack()


@contextlib.contextmanager
def _as_blackwell() -> Iterator[None]:
  """Lets kernels be traced as on a B200."""

  # Kernels whose CTAs take one tile after the other ask the device how many SMs
  # it has. A CPU does not know of such a thing.
  def core_count(device: jax.Device) -> int:
    if device.platform != "cpu" or not _active:
      raise AttributeError("core_count")  # Makes Python ask the device itself.
    return _active[-1].num_sms

  # JAX logs the error of a callback with a traceback, before it raises it.
  logger = logging.getLogger("jax._src.callback")
  logger.addFilter(_is_no_callback_error)
  try:
    with (
        deviceless.as_blackwell(),
        mock.patch.object(
            jax.Device, "core_count", property(core_count), create=True
        ),
    ):
      yield
  finally:
    logger.removeFilter(_is_no_callback_error)


def _is_no_callback_error(record: logging.LogRecord) -> bool:
  return record.msg != "jax.pure_callback failed"


def _wait_for_kernels() -> None:
  """Waits for the kernels that still run: JAX may return from a call before.

  On several devices, a kernel whose result was dropped may escape.
  """
  for array in jax.live_arrays("cpu"):
    # The error of a kernel is known better, and others are none of ours.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
      jax.block_until_ready(array)
  with _lock:  # Held while a kernel runs.
    pass


@contextlib.contextmanager
def simulate(
    *,
    order: Any = "eager",
    observers: Callable[[], Sequence[observers_lib.Observer]] = tuple,
    num_sms: int = launch.NUM_SMS,
    check_races: bool | str = False,
) -> Iterator[Simulation]:
  """Runs Mosaic GPU kernels on a simulated B200 instead of a GPU.

  Functions from ``as_gpu_kernel`` and ``plgpu.kernel`` can be created and
  called inside of the context, on JAX and NumPy arrays, and under ``jax.jit``,
  on the CPU backend::

    with simulator.simulate() as simulation:
      result = kernel(x, y)
    print(simulation.runs[0].report)

  All threads of the process run their kernels in it, so that only one thread
  can enter it at a time.

  Args:
    order: When asynchronous operations (TMA, MMA, ...) take effect: "eager" for
      at once, "lazy" for as late as possible, a seed (an int) for moments and
      turns of the warps at random. Correct kernels don't notice.
    observers: Called for every run, returns further observers for it.
    num_sms: How many CTAs run at a time, and the `core_count` that the CPU has
      meanwhile. With fewer of them than the grid has, kernels that take over
      the work of others (clusterlaunchcontrol) do so.
    check_races: Whether accesses to shared, tensor and global memory that
      nothing orders are errors, in whatever order they happen this time. It
      makes runs up to twice as long. With "lanes", the lanes of a warp are
      checked against each other, too, in shared memory.

  Raises:
    SimulationError: If a kernel does something that the PTX ISA does not allow,
      or something that is not simulated.
  """
  if num_sms < 1:
    raise ValueError(f"Expected num_sms of at least 1, got {num_sms}")
  if not isinstance(check_races, bool) and check_races != "lanes":
    raise ValueError(
        "Expected check_races to be True, False or 'lanes', got"
        f" {check_races!r}"
    )
  simulation = Simulation(
      order=order, observers=observers, num_sms=num_sms,
      check_races=check_races,
      thread=threading.get_ident(),
  )
  if any(s.thread not in (None, simulation.thread) for s in _active):
    raise RuntimeError(
        "Another thread is inside of simulator.simulate(), which holds for the"
        " whole process. Enter it once, in the thread that starts the others"
    )
  _active.append(simulation)
  try:
    with _as_blackwell():
      try:
        yield simulation
      finally:
        _wait_for_kernels()
  except (jax.errors.JaxRuntimeError, ValueError) as e:
    # XLA only keeps the text of an error in a callback. It is a ValueError if
    # the function was called before.
    is_other = isinstance(e, ValueError) and "CpuCallback" not in str(e)
    if simulation.error is None or is_other:
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
    _always.enter_context(_as_blackwell())


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


def _name(module) -> str:
  attributes = module.operation.attributes
  return str(attributes["sym_name"]) if "sym_name" in attributes else "kernel"


def _lowering_rule(
    ctx, *args, module, out_types, inout_types, input_output_aliases
):
  """Lowers a kernel for the CPU to a callback that simulates it."""
  if core._has_communication(module):
    axes = getattr(ctx.module_context.axis_context, "mesh", None)
    raise NotImplementedError(
        f"The kernel {_name(module)} communicates with other devices"
        f"{f' of the mesh {dict(axes.shape)}' if axes else ''}. The simulator"
        " is one GPU: expected a kernel without remote references and without"
        " semaphore signals to other devices. Run it on GPUs, or simulate the"
        " part of it that computes"
    )
  in_types, results = (
      [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
      for avals in (ctx.avals_in, ctx.avals_out)
  )
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
  # Late, because it imports mosaic.gpu, which may be what imports this module.
  import jax.experimental.pallas.mosaic_gpu as plgpu  # pylint: disable=g-import-not-at-top

  gpu_mesh = all(isinstance(mesh, plgpu.Mesh) for mesh in params["meshes"])
  if _active and gpu_mesh and not params["interpret"]:
    return mpmd._mpmd_map_mgpu_lowering(ctx, *args, **params)
  # The rule for any platform; a decorator leaves no name for it.
  rule = mlir._lowerings[mpmd.mpmd_map_p].rule
  return rule(ctx, *args, **params)


core.simulated_lowering_rule = _lowering_rule
# The CPU's own rules come before those that are for any platform.
mlir.register_lowering(core.mosaic_gpu_p, _kernel_rule, "cpu")
mlir.register_lowering(mpmd.mpmd_map_p, _mpmd_map_rule, "cpu")
