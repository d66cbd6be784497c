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
"""GPU interpret mode takes the tcgen05 operations of two CTAs."""

from patches.model import Edit, Patch

_FOLDER = "jax/_src/pallas/mosaic_gpu/interpret"
_CALLBACKS = f"{_FOLDER}/gpu_callbacks.py"
_INTERPRETER = f"{_FOLDER}/jaxpr_interpret.py"
_MEMORY = f"{_FOLDER}/shared_memory.py"

# Blocks, and the allocations of the other block of a pair.
_BLOCKS = (
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma",
        action="before",
        code='''
def _blocks_of_operation(
    thread: memory.Thread, collective_axis: str | None
) -> tuple[int, ...]:
  """Returns the blocks in which a tensor core operation takes place.

  The first block of a pair issues it for both. In the other one, nothing is
  done.
  """
  block_id = thread.block_id
  if collective_axis is None:
    return (block_id,)
  return () if block_id % 2 else (block_id, block_id + 1)


def _key_in_block(key: HostAllocationKey, block_id: int) -> HostAllocationKey:
  """Returns the key of the same allocation in another block of the cluster."""
  if key.block_id != block_id:
    key = dataclasses.replace(key, block_id=block_id)
    _get_shared_memory().await_allocation(key)
  return key


def _task_in_block(task: Any, block_id: int) -> Any:
  """Returns what a tensor core operation does in a block."""
  values = {f.name: getattr(task, f.name) for f in dataclasses.fields(task)}
  return dataclasses.replace(
      task,
      **{
          name: _key_in_block(value, block_id)
          for name, value in values.items()
          if isinstance(value, HostAllocationKey)
      },
  )
''',
    ),
    Edit(
        file=_MEMORY,
        anchor="import threading",
        action="after",
        code="import time",
    ),
    Edit(
        file=_MEMORY,
        scope="GPUSharedMemory.access",
        action="before",
        code='''
def await_allocation(self, key: MemKey, timeout_s: float = 60) -> None:
  """Waits until another block of the cluster has made an allocation.

  On the hardware, the blocks of a cluster make theirs together.
  """
  deadline = time.monotonic() + timeout_s
  while True:
    self.check_failed()
    with self.lock:
      if key in self.mem:
        return
      finished = key.block_id in self.finished_blocks
    if finished or time.monotonic() > deadline:
      raise ValueError(
          f"Expected block {key.block_id} of the cluster to have an allocation"
          f" with key {key}, got none. Both blocks of a collective operation"
          " must make the same allocations, and keep them until it is done"
      )
    time.sleep(1e-3)
''',
    ),
    Edit(
        file=_MEMORY,
        scope="GPUSharedMemory.reset_per_cluster_state",
        anchor="self.named_barriers = {}",
        action="after",
        code="""
# Blocks of which a thread has finished.
self.finished_blocks = set()
""",
    ),
    Edit(
        file=_MEMORY,
        scope="GPUSharedMemory.kernel_thread_finished",
        anchor="if self.detect_races: $$$",
        action="before",
        code="self.finished_blocks.add(thread.block_id)",
    ),
    Edit(
        file=_INTERPRETER,
        scope="JaxprInterpreter.is_thread_block_axis_collective",
        action="before",
        code='''
def check_collective_axis(self, axis: jax_core.AxisName | None) -> None:
  """Raises if an axis is none along which two blocks can work together."""
  if axis is None:
    return
  names = tuple(self.mesh.cluster_names or ()) if self.mesh else ()
  if names[-1:] != (axis,) or self.cluster_dims[-1] != 2:
    raise ValueError(
        "Expected a collective operation along the last cluster axis, of size"
        f" 2, got axis {axis!r} of a cluster with axes {names} and sizes"
        f" {self.cluster_dims}"
    )
''',
    ),
)

_OPERATIONS = (
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="assert self.collective_axis is None, $MESSAGE",
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="self._multiply_by(self._read($$$OPERAND), clock)",
        code="""
# Each block holds rows of A and of the accumulator, and columns of B.
blocks = [
    _task_in_block(self, block_id)
    for block_id in _blocks_of_operation(self.thread, self.collective_axis)
]
b = np.concatenate(
    [block._read(block.b_key, block.b_access, clock) for block in blocks],
    axis=1,
)
for block in blocks:
  block._multiply_by(b, clock)
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="shared_memory.get_barrier(self.barrier_key)",
        code="shared_memory.get_barrier(block.barrier_key)",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="if self.barrier_key: $$$BODY",
        code="""
for block in blocks if self.barrier_key else ():
  $$$BODY
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="tcgen05_mma",
        anchor="shared_memory = _get_shared_memory()",
        action="before",
        code="""
if not _blocks_of_operation(thread, collective_axis):
  return token

""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Copy.__call__",
        anchor="assert (self.collective_axis is None), $MESSAGE",
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="async_copy_smem_to_tmem",
        anchor="shared_memory.execute_pipelineable_async_task($TASK, thread)",
        code="""
task = $TASK
for block_id in _blocks_of_operation(thread, collective_axis):
  shared_memory.execute_pipelineable_async_task(
      _task_in_block(task, block_id), thread
  )
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="tcgen05_commit_arrive",
        anchor="del collective_axis",
        with_comment=True,
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="tcgen05_commit_arrive.f",
        anchor="def f(tma_thread_id: int): pass",
        selector="typed_parameter",
        code="tma_thread_id: int, barrier_key: HostAllocationKey",
    ),
    Edit(
        file=_CALLBACKS,
        scope="tcgen05_commit_arrive",
        anchor="_get_shared_memory().execute_async_task(f)",
        code="""
for block_id in _blocks_of_operation(thread, collective_axis):
  key = _key_in_block(barrier_key, block_id)
  shared_memory.execute_async_task(functools.partial(f, barrier_key=key))
""",
    ),
) + tuple(
    Edit(
        file=_INTERPRETER,
        scope=f"JaxprInterpreter.{scope}",
        anchor=anchor,
        action="after",
        code=f"self.check_collective_axis({axis})",
    )
    for scope, anchor, axis in (
        (
            "_interpret_tcgen05_mma_p",
            "assert eqn.primitive is $PRIMITIVE",
            'eqn.params["collective_axis"]',
        ),
        (
            "_interpret_async_copy_smem_to_tmem_p",
            "unpack = $VALUE",
            "collective_axis",
        ),
        (
            "_interpret_tcgen05_commit_arrive_p",
            "assert eqn.primitive is $PRIMITIVE",
            "collective_axis",
        ),
    )
)

_LEADER_TRACKED_COPIES = (
    Edit(
        file=_INTERPRETER,
        scope="JaxprInterpreter._interpret_copy_gmem_to_smem_p",
        anchor="invals = get_invals()",
        action="after",
        code="""
if (leader_tracked := eqn.params["leader_tracked"]) is not None:
  if len(axes := eqn.params["collective_axes"]) != 1:
    raise ValueError(
        "Expected one collective axis of a leader-tracked copy, got"
        f" {axes}"
    )
  self.check_collective_axis(axes[0])
""",
    ),
    Edit(
        file=_INTERPRETER,
        scope="JaxprInterpreter._interpret_copy_gmem_to_smem_p",
        anchor="f(source_info=eqn.source_info)",
        selector="keyword_argument",
        code="""
leader_tracked=leader_tracked,
source_info=eqn.source_info
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="copy_gmem_to_smem",
        anchor="def f(barrier_allocation_key_as_array: jax.Array): pass",
        selector="typed_parameter",
        code="""
barrier_allocation_key_as_array: jax.Array,
leader_tracked: mgpu.CopyPartition | None = None
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="copy_gmem_to_smem",
        anchor="clock = None",
        action="before",
        code="""
shared_memory = _get_shared_memory()
if leader_tracked is not None:
  leader = thread.block_id // 2 * 2
  barrier_allocation_key = _key_in_block(barrier_allocation_key, leader)
if isinstance(leader_tracked, mgpu.CopyPartition.PARTITIONED):
  shape = shared_memory.access(src_allocation_key, src_transforms).shape
  part = [indexing.Slice(0, size) for size in shape]
  size = shape[leader_tracked.axis] // 2
  part[leader_tracked.axis] = indexing.Slice(thread.block_id % 2 * size, size)
  src_transforms += (indexing.NDIndexer(tuple(part), shape, ()),)

""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="copy_gmem_to_smem",
        anchor="f(clock=clock)",
        selector="keyword_argument",
        code="""
clock=clock,
leader_tracked=leader_tracked is not None
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="AsyncCopyGmemToSmemTask.__init__",
        anchor="def f(clock: VectorClock | None = None): pass",
        selector="typed_default_parameter",
        code="""
clock: VectorClock | None = None,
leader_tracked: bool = False
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="AsyncCopyGmemToSmemTask.__init__",
        anchor="self.clock = clock",
        action="after",
        code="self.leader_tracked = leader_tracked",
    ),
    Edit(
        file=_CALLBACKS,
        scope="AsyncCopyGmemToSmemTask.post_write",
        anchor="self.barrier.arrive($$$ARGS)",
        action="before",
        code="""
barrier = self.barrier
arrive = barrier.arrive_in_pair if self.leader_tracked else barrier.arrive
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="AsyncCopyGmemToSmemTask.post_write",
        anchor="self.barrier.arrive",
        code="arrive",
    ),
    Edit(
        file=_MEMORY,
        scope="Barrier.__init__",
        anchor="self.cv = threading.Condition()",
        action="after",
        code="""
# Clocks of the leader-tracked copies of a block that the other block of the
# pair has not made yet. Protected by `self.cv`'s lock.
self.copies_of_block = collections.defaultdict(collections.deque)
""",
    ),
    Edit(
        file=_MEMORY,
        scope="Barrier.arrive",
        action="after",
        code='''
def arrive_in_pair(
    self,
    thread: Thread,
    clock: VectorClock | None = None,
    logging_info: GPULoggingInfo | None = None,
):
  """Arrives if the other block of the pair has made its part of a copy, too."""
  with self.cv:
    copies_of_other = self.copies_of_block[thread.block_id ^ 1]
    if not copies_of_other:
      self.copies_of_block[thread.block_id].append(clock)
      return
    clock_of_other = copies_of_other.popleft()
  if clock is not None:
    clock = clock.copy()
    clock.update(clock_of_other)
  self.arrive(thread, clock, logging_info)
''',
    ),
)

PATCH = Patch(
    subject="[Pallas:MGPU] Interpret tcgen05 operations of two CTAs",
    body="""
In GPU interpret mode, the tcgen05 operations of two CTAs were either
refused with an assertion or, like tcgen05_commit_arrive, done in each
block for itself. The copies that feed them were wrong, too: those that
the leader tracks did not split their source and arrived at the barriers
of both blocks.

As on the hardware, the first block of a pair now issues MMAs, copies to
TMEM and commits for both: each block holds rows of A, of its metadata
and scales and of the accumulator, and columns of B, and a commit
arrives in both. A leader-tracked copy arrives at the barrier of the
first block once both blocks have made their part of it.

The blocks of a cluster run as threads of their own, so that one can get
to an allocation of the other before that was made: then it waits. If
the other block has finished, that is an error.

Verified: against dense float64 matmuls, with pipelined kernels of which
one wait was removed, which are reported. The correct ones also run on a
simulator of their PTX (not on a Blackwell GPU), with the same results.
""",
    edits=_BLOCKS + _OPERATIONS + _LEADER_TRACKED_COPIES,
    tests=("tests/mosaic/pallas_interpret_two_ctas_test.py",),
    # The interpreter of 0.11.1 reads the operands of MMAs in another way.
    versions=("0.12.0.1", "0.12.0", "0.11.2"),
)
