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
"""A machine that runs the resident clusters of a launch, batch by batch."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Callable, Hashable

import numpy as np

from . import asynchrony as asynchrony_lib
from . import barriers as barriers_lib
from . import errors, mbarrier, ptx, registers, table
from . import memory as memory_lib
from . import observers as observers_lib
from . import scheduler as scheduler_lib
from . import tmem as tmem_lib
from .step import WARP, Step

MAX_THREADS_PER_CTA = 1024
MAX_CLUSTER_SIZE = 16  # Above 8 a kernel must opt in.

Execute = Callable[[Step], None]


@dataclasses.dataclass(frozen=True)
class Launch:
  """A launch configuration: CTAs in x, y, z, and threads in x, y, z."""

  grid: tuple[int, int, int] = (1, 1, 1)
  cluster: tuple[int, int, int] = (1, 1, 1)
  block: tuple[int, int, int] = (128, 1, 1)
  dynamic_shared_bytes: int = 0


@dataclasses.dataclass
class RunResult:
  """What a run did.

  Attributes:
    steps: executed steps: instruction times set of threads.
    batches: how often the machine was filled with clusters.
  """

  steps: int = 0
  batches: int = 0


@dataclasses.dataclass(frozen=True)
class _Place:
  """Where a variable lies: its state space and address in it."""

  space: str
  address: int


class Context:
  """What decoding an instruction may ask for.

  Attributes:
    kernel: the kernel being decoded.
    launch: its launch configuration.
    slots: a RegisterSlot for each register in use, by name.
    shared_bytes, local_bytes: what a CTA and a thread need, in bytes. The
      former includes what the hardware keeps for itself.
  """

  def __init__(
      self,
      kernel: ptx.Kernel,
      launch: Launch,
      memory: memory_lib.GlobalMemory,
  ):
    self.kernel = kernel
    self.launch = launch
    self.slots: dict[str, registers.RegisterSlot] = {}
    self._constants: dict[ptx.Immediate, registers.ImmediateValue] = {}
    self.places = {p.name: _Place("param", p.offset) for p in kernel.params}
    # Dynamic shared memory comes first: kernels rely on its alignment.
    self.shared_bytes = (
        memory_lib.DYNAMIC_SHARED_BASE + launch.dynamic_shared_bytes
    )
    self.local_bytes = 0
    for variable in kernel.variables.values():
      if variable.dynamic:
        place = _Place("shared", memory_lib.DYNAMIC_SHARED_BASE)
      elif variable.space == "shared":
        address = _align(self.shared_bytes, variable.align)
        place = _Place("shared", address)
        self.shared_bytes = address + variable.size
      elif variable.space in ("local", "param"):
        # A call's arguments lie among the thread's own variables.
        address = _align(self.local_bytes, variable.align)
        is_param = variable.space == "param"
        place = _Place("param::func" if is_param else "local", address)
        self.local_bytes = address + variable.size
      else:
        data = np.zeros(variable.size, np.uint8)
        if variable.data is not None:
          data[:] = np.frombuffer(variable.data, np.uint8)
        address = memory.add_buffer(variable.name, data)
        place = _Place("global", address)
      self.places[variable.name] = place

  @property
  def carry(self) -> registers.RegisterSlot:
    """The condition code register CC.CF, as a predicate."""
    return self.slots.setdefault(
        "CC.CF", registers.RegisterSlot("CC.CF", "pred")
    )

  def bind(self, operand: ptx.Operand | None) -> Any:
    """The run-time form of an operand of the program."""
    match operand:
      case None:
        return None
      case ptx.Register(name):
        slot = self.slots.get(name)
        if slot is None:
          type_ = self.kernel.registers[name]
          slot = self.slots[name] = registers.RegisterSlot(name, type_)
        return slot
      case ptx.Immediate(value, bits):
        # NaN is not equal to itself; such constants are just not shared.
        constant = self._constants.get(operand)
        if constant is None or isinstance(value, float):
          constant = registers.ImmediateValue(value, bits)
          self._constants[operand] = constant
        return constant
      case ptx.Symbol(name, offset):
        place = self.places[name]
        if place.space == "param::func":
          raise errors.UnsupportedPtxError(
              f"The address of the .param variable {name.partition('@')[0]};"
              " expected it in `[ ]` or as an argument of a call."
          )
        return registers.ImmediateValue(place.address + offset)
      case ptx.Address(base, offset):
        if not isinstance(base, ptx.Symbol):
          return registers.AddressValue(self.bind(base), offset)
        place = self.places[base.name]
        value = registers.ImmediateValue(place.address + base.offset)
        return registers.AddressValue(value, offset, place.space)
      case ptx.Arguments(items):
        return registers.VectorValue(tuple(map(self.bind, items)))
      case ptx.Function(name):
        return name
      case ptx.Vector(items):
        return registers.VectorValue(tuple(map(self.bind, items)))
      case ptx.Negated(register):
        return registers.NegatedValue(self.bind(register))
      case ptx.Sink():
        return registers.SinkValue()
      case ptx.Label(name, target):
        return registers.LabelValue(name, target)
      case ptx.Special(name):
        from .isa import special  # The ISA modules import the table.

        function = special.REGISTERS.get(name)
        if function is None:
          raise errors.UnsupportedPtxError(
              f"{name} is neither declared nor a special register that is"
              " modelled."
          )
        return registers.SpecialValue(name, function)
    raise TypeError(f"Operand {operand!r}.")

  def decode(self) -> list[Execute]:
    """Decodes the kernel: a function of the step for each instruction."""
    return [self.decode_one(ins) for ins in self.kernel.body]

  def decode_one(self, ins: ptx.Instruction) -> Execute:
    """Decodes an instruction of the kernel."""
    entry, values = table.lookup(ins)
    try:
      values = {
          name: value if isinstance(value, str) else self.bind(value)
          for name, value in values.items()
      }
      execute = entry.decode(table.Op(ins, self, values))
      if entry.aligned or ".aligned" in ins.opcode:
        execute = _aligned(execute)
      if ins.guard is not None:
        predicate, negated = ins.guard
        execute = _guarded(execute, self.bind(predicate), negated)
    except errors.SimulationError as e:
      if e.where is None:
        e.where = errors.Where(ins.line, ins.text)
      raise
    return execute


def _guarded(
    execute: Execute, predicate: registers.RegisterSlot, negated: bool
) -> Execute:
  """Executes only where the predicate is set.

  A function that `execute` has as its attribute `otherwise` is called with the
  step of the other threads.
  """
  otherwise = getattr(execute, "otherwise", None)

  def run(step: Step) -> None:
    mask = predicate.read(step, np.bool_)
    if negated:
      mask = ~mask
    if mask.all():
      execute(step)
      return
    if otherwise is not None:
      otherwise(step.select(~mask))
    if mask.any():
      part = step.select(mask)
      try:
        execute(part)
      except errors.SimulationError as e:
        if e.where is None:  # Else it would name a thread that is not active.
          e.where = part.where(0)
        raise

  return run


def _aligned(execute: Execute) -> Execute:
  def run(step: Step) -> None:
    if step.full:
      execute(step)
      return
    together = step.machine.scheduler.converge(step, None)
    if together is not None:
      execute(together)

  return run


def _align(value: int, alignment: int) -> int:
  return -(-value // alignment) * alignment


class Machine:
  """The SMs that a batch of clusters occupies.

  T is the number of resident threads; the threads of a CTA are contiguous and
  padded to whole warps, and the CTAs of a cluster are contiguous.

  Attributes:
    launch: the launch configuration.
    num_ctas, num_clusters, num_threads: resident ones.
    threads_per_cta, warps_per_cta: including padding.
    exists: whether a thread is no padding, bool [T].
    cta_of_thread: resident CTA of each thread, int64 [T].
    tid: thread index within the CTA, int64 [3][T].
    cta_id: grid coordinates of each CTA, int64 [ctas, 3].
    cluster_id: grid coordinates of its cluster, int64 [ctas, 3].
    cta_in_cluster_id: coordinates within the cluster, int64 [ctas, 3].
    cluster_rank: rank within the cluster, int64 [ctas].
    cluster_of_cta: resident cluster, int64 [ctas].
    unlaunched: numbers of the clusters that no batch has run yet.
    local: local memory, uint8 [T, bytes].
    on_wait: hooks of the observers, for waits for mbarriers.
  """

  def __init__(
      self,
      context: Context,
      clusters: Sequence[int],
      params: bytes,
      memory: memory_lib.GlobalMemory,
      tensor_maps: Sequence[Any] = (),
      observers: Sequence[observers_lib.Observer] = (),
      order: Any = "eager",
      unlaunched: collections.deque[int] | None = None,
  ):
    self.context = context
    self.kernel = context.kernel
    self.launch = launch = context.launch
    self.tensor_maps = list(tensor_maps)
    self.observers = list(observers)
    self.on_wait = observers_lib.listeners(self.observers, "on_wait")
    self.unlaunched = collections.deque() if unlaunched is None else unlaunched
    self._steps: dict[bytes, Step] = {}

    threads = math.prod(launch.block)
    self.cluster_size = math.prod(launch.cluster)
    self.num_clusters = len(clusters)
    self.num_ctas = num_ctas = self.num_clusters * self.cluster_size
    self.warps_per_cta = -(-threads // WARP)
    self.threads_per_cta = self.warps_per_cta * WARP
    self.num_threads = num_ctas * self.threads_per_cta

    thread = np.arange(self.threads_per_cta)
    self.exists = np.tile(thread < threads, num_ctas)
    self.tid = tuple(
        np.tile(part, num_ctas) for part in _coordinates(thread, launch.block)
    )
    self.cta_of_thread = np.arange(self.num_threads) // self.threads_per_cta
    rank = np.tile(np.arange(self.cluster_size), self.num_clusters)
    self.cluster_rank = rank
    self.cluster_of_cta = np.arange(num_ctas) // self.cluster_size
    self.cta_in_cluster_id = np.stack(_coordinates(rank, launch.cluster), 1)
    number = np.repeat(np.asarray(clusters, np.int64), self.cluster_size)
    self.cluster_id = np.stack(_coordinates(number, cluster_grid(launch)), 1)
    self.cta_id = (
        self.cluster_id * np.array(launch.cluster) + self.cta_in_cluster_id
    )

    self.shared = memory_lib.SharedMemory(
        num_ctas, context.shared_bytes, self.observers
    )
    memory.attach(self.observers)
    self.spaces = memory_lib.AddressSpaces(
        memory, self.shared, memory_lib.ParamMemory(params), self.cluster_size
    )
    self.tmem = tmem_lib.TensorMemory(
        num_ctas, self.observers, wake=self.wake
    )
    self.mbarriers = mbarrier.Mbarriers(
        self.shared, self.wake, self.observers
    )
    self.asynchrony = asynchrony_lib.Asynchrony(
        order, wake=self.wake, observers=self.observers
    )
    self.local = np.zeros((self.num_threads, context.local_bytes), np.uint8)
    self.barriers = barriers_lib.Barriers(self)
    for slot in context.slots.values():
      slot.allocate(self.num_threads)

  def run(
      self,
      program: list[Execute],
      policy: scheduler_lib.Policy | None = None,
      max_steps: int | None = None,
  ) -> int:
    """Runs all resident threads to their end; returns the number of steps."""
    self.scheduler = scheduler_lib.Scheduler(self, program, policy, max_steps)
    for observer in self.observers:
      observer.attach(self)
    with np.errstate(all="ignore"):
      self.scheduler.run()
      while self.asynchrony.drain_one():
        pass
    for observer in self.observers:
      observer.on_exit(self)
    return self.scheduler.steps

  def step_of(self, threads: np.ndarray) -> Step:
    """The Step of a sorted set of threads (not empty), made once for each."""
    key = threads.tobytes()
    step = self._steps.get(key)
    if step is None:
      if len(self._steps) > 512:
        self._steps.clear()
      step = self._steps[key] = Step(self, threads)
    return step

  def wake(self, key: Hashable) -> None:
    """Lets the threads that wait for `key` execute their instruction again."""
    self.scheduler.wake(key)

  def identify(self, thread: int) -> tuple[tuple[int, int, int], int, int]:
    """CTA coordinates, warp in the CTA and lane of a thread."""
    cta, in_cta = divmod(thread, self.threads_per_cta)
    x, y, z = self.cta_id[cta].tolist()
    return (x, y, z), in_cta // WARP, in_cta % WARP

  def cta_in_cluster(self, cta: Any, rank: Any) -> Any:
    """Resident CTA with this rank in the cluster of `cta`."""
    return cta - cta % self.cluster_size + rank

  def cancel_next_cluster(self) -> tuple[int, int, int] | None:
    """Takes a cluster that has not been launched out of the launch.

    Returns the grid coordinates of its first CTA, None if all were launched.
    """
    if not self.unlaunched:
      return None
    number = np.array([self.unlaunched.popleft()])
    x, y, z = (
        int(c[0]) * size
        for c, size in zip(
            _coordinates(number, cluster_grid(self.launch)),
            self.launch.cluster,
        )
    )
    return x, y, z


def cluster_grid(launch: Launch) -> tuple[int, ...]:
  """Clusters in x, y, z."""
  return tuple(g // c for g, c in zip(launch.grid, launch.cluster))


def _coordinates(
    number: np.ndarray, shape: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """x, y, z of linear numbers; x runs fastest."""
  nx, ny, _ = shape
  return number % nx, number // nx % ny, number // (nx * ny)


def run(
    kernel: ptx.Kernel,
    launch: Launch,
    params: Sequence[bytes],
    memory: memory_lib.GlobalMemory,
    tensor_maps: Sequence[Any] = (),
    *,
    observers: Sequence[observers_lib.Observer] = (),
    order: Any = "eager",
    max_resident_ctas: int = 32,
    max_steps: int | None = None,
    policy: scheduler_lib.Policy | None = None,
) -> RunResult:
  """Runs a kernel.

  Args:
    kernel: from `ptx.parse`.
    launch: its launch configuration.
    params: the bytes of each kernel parameter.
    memory: global memory with the buffers that the parameters point to.
    tensor_maps: TMA maps, for reports.
    observers: checkers and counters.
    order: when asynchronous operations take effect; see `asynchrony`. A seed
      (int) also shuffles which warps run next, unless there is a policy.
    max_resident_ctas: CTAs to simulate at once (at least one cluster).
    max_steps: limit of the steps of each batch, against endless loops.
    policy: which threads run next.
  """
  _check_launch(kernel, launch)
  if policy is None and isinstance(order, int):
    policy = scheduler_lib.Shuffled(order)
  context = Context(kernel, launch, memory)
  _check_shared_memory(context)
  program = context.decode()
  blob = _pack_params(kernel, params)
  unlaunched = collections.deque(range(math.prod(cluster_grid(launch))))
  at_once = max(1, max_resident_ctas // math.prod(launch.cluster))
  result = RunResult()
  while unlaunched:
    count = min(at_once, len(unlaunched))
    clusters = [unlaunched.popleft() for _ in range(count)]
    machine = Machine(
        context, clusters, blob, memory, tensor_maps, observers, order,
        unlaunched,
    )
    result.steps += machine.run(program, policy, max_steps)
    result.batches += 1
  return result


def unmodelled(kernel: ptx.Kernel) -> list[tuple[int, str, str]]:
  """Line, text and reason of every instruction that can't be decoded.

  Unlike `table.unmodelled`, it also finds combinations of an instruction in the
  table that its entry refuses.
  """
  launch = Launch(
      cluster=_three(kernel.reqnctapercluster or ()),
      block=_three(kernel.reqntid or kernel.maxntid or ()),
  )
  context = Context(kernel, launch, memory_lib.GlobalMemory())
  rows = []
  for ins in kernel.body:
    try:
      context.decode_one(ins)
    except errors.SimulationError as e:
      rows.append((ins.line, ins.text, e.message))
  return rows


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
  """Sizes in x, y, z, of which the last may be missing."""
  x, y, z = (*sizes, 1, 1, 1)[:3]
  return x, y, z


def _check_launch(kernel: ptx.Kernel, launch: Launch) -> None:
  threads = math.prod(launch.block)
  if not 0 < threads <= MAX_THREADS_PER_CTA:
    raise errors.ResourceError(
        f"Block {launch.block} has {threads} threads; expected 1 to"
        f" {MAX_THREADS_PER_CTA}."
    )
  if kernel.maxntid and threads > math.prod(kernel.maxntid):
    raise errors.ResourceError(
        f"Block {launch.block} has {threads} threads; kernel {kernel.name} was"
        f" compiled for at most {math.prod(kernel.maxntid)} (.maxntid)."
    )
  required = kernel.reqnctapercluster
  if required:
    required = _three(required)
    if required != launch.cluster:
      raise errors.ResourceError(
          f"Cluster {launch.cluster}; kernel {kernel.name} was compiled for"
          f" {required} (.reqnctapercluster)."
      )
  if math.prod(launch.cluster) > MAX_CLUSTER_SIZE:
    raise errors.ResourceError(
        f"Cluster {launch.cluster}; expected at most {MAX_CLUSTER_SIZE} CTAs."
    )
  if not math.prod(launch.grid) or any(
      g % c for g, c in zip(launch.grid, launch.cluster)
  ):
    raise errors.ResourceError(
        f"Grid {launch.grid} must be a positive multiple of the cluster"
        f" {launch.cluster} in every dimension."
    )


def _check_shared_memory(context: Context) -> None:
  most = memory_lib.MAX_SHARED_BYTES
  if context.shared_bytes <= most:
    return
  reserved = memory_lib.DYNAMIC_SHARED_BASE
  dynamic = context.launch.dynamic_shared_bytes
  static = context.shared_bytes - dynamic - reserved
  raise errors.ResourceError(
      f"Kernel {context.kernel.name} needs {dynamic} bytes of dynamic and"
      f" {static} bytes of static shared memory; expected at most"
      f" {most - reserved} in all. Use smaller tiles or fewer stages."
  )


def _pack_params(kernel: ptx.Kernel, params: Sequence[bytes]) -> bytes:
  if len(params) != len(kernel.params):
    raise ValueError(
        f"Kernel {kernel.name} takes {len(kernel.params)} parameters, got"
        f" {len(params)}."
    )
  blob = bytearray(
      max((p.offset + p.size for p in kernel.params), default=0)
  )
  for param, data in zip(kernel.params, params):
    if len(data) != param.size:
      raise ValueError(
          f"Parameter {param.name} takes {param.size} bytes, got {len(data)}."
      )
    blob[param.offset : param.offset + param.size] = data
  return bytes(blob)
