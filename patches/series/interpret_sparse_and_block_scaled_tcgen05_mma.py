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
"""GPU interpret mode takes sparse metadata and block scales."""

from patches.model import Edit, Patch

_FOLDER = "jax/_src/pallas/mosaic_gpu"
_HELPERS = f"{_FOLDER}/helpers.py"
_CALLBACKS = f"{_FOLDER}/interpret/gpu_callbacks.py"
_INTERPRETER = f"{_FOLDER}/interpret/jaxpr_interpret.py"
_COPY = "JaxprInterpreter._interpret_async_copy_smem_to_tmem_p"
_MMA = "JaxprInterpreter._interpret_tcgen05_mma_p"

_FORMAT = (
    Edit(
        file=_HELPERS,
        anchor="def format_tcgen05_sparse_metadata($$$ARGS): $$$BODY",
        action="before",
        code='''
def sparse_metadata_by_lane(entries, operand_dtype):
  """Converts rows of sparse metadata to what the lanes of TMEM hold, and back.

  With operands of 16 bits or more, a column of 16 entries holds eight of a row
  and eight of the row eight lanes away. The conversion is its own inverse.

  Args:
    entries: Metadata of shape (M, entries), both multiples of 16. A NumPy or
      JAX array.
    operand_dtype: Data type of MMA operands.
  """
  bitsize = dtypes.itemsize_bits(operand_dtype)
  if bitsize in (4, 8):
    return entries
  if bitsize not in (16, 32):
    raise NotImplementedError(
        f"Sparse metadata format not implemented for {operand_dtype=}"
    )
  m, k = entries.shape
  halves = entries.reshape(m // 16, 2, 8, k // 16, 2, 8)
  return halves.swapaxes(1, 4).reshape(m, k)
''',
    ),
    Edit(
        file=_HELPERS,
        scope="format_tcgen05_sparse_metadata",
        anchor="if bitsize in (4, 8): $$$",
        code="""
lanes = sparse_metadata_by_lane(meta.reshape(m, k), operand_dtype)
meta_tiled = lanes.reshape(m // 128, 128, k // 64, 64).swapaxes(1, 2)
""",
    ),
)

_COPIES = (
    Edit(
        file=_CALLBACKS,
        anchor="from collections.abc import Sequence",
        code="from collections.abc import Callable, Sequence",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Copy",
        anchor="collective_axis: str | None = None",
        action="before",
        code="""
# What the copy writes, given what it reads and the shape of the destination.
unpack: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] | None = None
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Copy.__call__",
        anchor="assert smem is not None",
        action="after",
        code="""
if self.unpack is not None:
  smem = self.unpack(smem, self.tmem_access.shape)
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="async_copy_smem_to_tmem",
        anchor="def f(collective_axis: str | None = None): pass",
        selector="typed_default_parameter",
        code="""
unpack: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] | None = None,
collective_axis: str | None = None
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="async_copy_smem_to_tmem",
        anchor="f(collective_axis=collective_axis)",
        selector="keyword_argument",
        code="""
unpack=unpack,
collective_axis=collective_axis
""",
    ),
    Edit(
        file=_INTERPRETER,
        scope="JaxprInterpreter",
        action="before",
        code="""
# The copies from SMEM to TMEM, and what they write.
_SMEM_TO_TMEM_COPIES = {
    gpu_primitives.async_copy_smem_to_tmem_p: None,
    gpu_primitives.async_copy_scales_to_tmem_p: tcgen05_operands.unpack_scales,
    gpu_primitives.async_copy_sparse_metadata_to_tmem_p: (
        tcgen05_operands.unpack_metadata
    ),
}
""",
    ),
    Edit(
        file=_INTERPRETER,
        scope=_COPY,
        anchor="assert eqn.primitive is $PRIMITIVE",
        code="unpack = _SMEM_TO_TMEM_COPIES[eqn.primitive]",
    ),
    Edit(
        file=_INTERPRETER,
        scope=_COPY,
        anchor="f(collective_axis=collective_axis)",
        selector="keyword_argument",
        code="""
unpack=unpack,
collective_axis=collective_axis
""",
    ),
    Edit(
        file=_INTERPRETER,
        scope="JaxprInterpreter.interpret",
        anchor="import gpu_primitives.async_copy_smem_to_tmem_p",
        selector="dotted_name",
        code="""
(
    gpu_primitives.async_copy_smem_to_tmem_p
    | gpu_primitives.async_copy_scales_to_tmem_p
    | gpu_primitives.async_copy_sparse_metadata_to_tmem_p
)
""",
    ),
)

_IMPORT = "from jax._src.pallas.mosaic_gpu.interpret import tcgen05_operands"

_OPERANDS = tuple(
    Edit(
        file=file,
        anchor="""
from jax._src.pallas.mosaic_gpu.interpret import shared_memory as memory
""",
        action="after",
        code=_IMPORT,
    )
    for file in (_CALLBACKS, _INTERPRETER)
) + (
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        action="before",
        code='''
@property
def _logging_info(self) -> memory.GPULoggingInfo:
  return memory.GPULoggingInfo(
      self.mesh_location, self.thread, self.source_info
  )

def _read(
    self,
    key: HostAllocationKey,
    access: interpret_utils.Access,
    clock: memory.GpuClockBundle | None,
) -> np.ndarray:
  """Returns what an operand holds, after a check for races."""
  shared_memory = _get_shared_memory()
  value, _, _ = shared_memory.get_buffer_content(
      key,
      access,
      self.thread,
      increment_clock=False,
      logging_info=self._logging_info,
  )
  assert value is not None
  if clock is not None:
    in_smem = key.memory_space_id == memory.get_memory_space_idx(
        mosaic_gpu_core.MemorySpace.SMEM
    )
    get_races().check_read(
        self.thread,
        clock.async_smem_clock if in_smem else clock.generic_clock,
        key,
        access,
        source_info=self.source_info,
    )
  return value

def _multiply_by(
    self, b: np.ndarray, clock: memory.GpuClockBundle | None
) -> None:
  """Updates the accumulator."""
  shared_memory = _get_shared_memory()
  further = {
      name: self._read(key, shared_memory.access(key, transforms), clock)
      for name, key, transforms in (
          ("a_scale", self.a_scale_key, self.a_scale_transforms),
          ("b_scale", self.b_scale_key, self.b_scale_transforms),
          (
              "a_sparse_metadata",
              self.a_sparse_metadata_key,
              self.a_sparse_metadata_transforms,
          ),
      )
      if key is not None
  }
  result = tcgen05_operands.multiply(
      self._read(self.a_key, self.a_access, clock),
      b,
      shared_memory.buffer_shape_and_dtype(self.acc_key).dtype,
      **further,
  )
  if self.accumulate:
    acc, _, _ = shared_memory.get_buffer_content(
        self.acc_key, self.acc_access, None, logging_info=self._logging_info
    )
    assert acc is not None
    result += acc
    if clock is not None:
      # Only that it is not read through another group of a RefUnion: other
      # races of this read are races of the write below.
      get_races()._check_ref_union(
          self.thread, clock.generic_clock, self.acc_key, False,
          self.source_info,
      )
  shared_memory.store_buffer_content(
      self.acc_key,
      self.acc_access,
      result,
      self.thread,
      increment_clock=False,
      logging_info=self._logging_info,
  )
  if clock is not None:
    get_races().check_write(
        self.thread,
        clock.generic_clock,
        self.acc_key,
        self.acc_access,
        source_info=self.source_info,
    )
''',
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="assert self.a_scale_key is None",
        through="assert self.a_sparse_metadata_key is None",
        with_comment=True,
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="logging_info = $VALUE",
        through="assert b is not None",
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="a_clock = $VALUE",
        through="""
get_races().check_read(self.thread, clock.async_smem_clock, $$$REST)
""",
        with_comment=True,
        action="delete",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="acc_range = self.acc_access",
        through="if shared_memory.detect_races: $$$",
        code="""
self._multiply_by(self._read(self.b_key, self.b_access, clock), clock)
""",
    ),
    Edit(
        file=_CALLBACKS,
        scope="TcGen05Mma.__call__",
        anchor="f(logging_info=logging_info)",
        selector="keyword_argument",
        code="logging_info=self._logging_info",
    ),
    Edit(
        file=_INTERPRETER,
        scope=_MMA,
        anchor="b, b_transforms = $VALUE",
        action="after",
        code="""
# After the accumulator, A, B, whether to accumulate, and the barrier.
further_avals = [v.aval for v in eqn.invars[4 + eqn.params["arrive"] :]]
if eqn.params["scaled"]:
  a_scale_aval, b_scale_aval, *further_avals = further_avals
  a_scale, a_scale_transforms = resolve_ref(
      a_scale_aval, a_scale, a_scale_transforms)
  b_scale, b_scale_transforms = resolve_ref(
      b_scale_aval, b_scale, b_scale_transforms)
if eqn.params["sparse"]:
  a_sparse_metadata, a_sparse_metadata_transforms = resolve_ref(
      further_avals[0], a_sparse_metadata, a_sparse_metadata_transforms)
""",
    ),
)

# It does not say what a race is between.
_RACE_OF_0_11_2 = Edit(
    file="tests/mosaic/pallas_interpret_sparse_test.py",
    scope="PallasInterpretSparseTest.test_overwrite_in_tmem",
    anchor="matmul.check_race(self, failure, $REGEX)",
    code="matmul.check_race(self, failure)",
    versions=("0.11.2",),
)

PATCH = Patch(
    subject="[Pallas:MGPU] Interpret sparse and block-scaled tcgen05_mma",
    body="""
GPU interpret mode had no case for the copies of sparse metadata and of
block scales to TMEM, and asserted that an MMA has neither, so that its
race detection covered none of these kernels.

The copies now follow the rules of async_copy_smem_to_tmem: MMAs that
the same thread issues later see what they wrote, everything else has to
wait for a commit. What TMEM holds of metadata is kept lane by lane, as
on the hardware, because only the MMA knows the element type of A that
decides which entries those are. The conversion, which is its own
inverse, becomes a function that format_tcgen05_sparse_metadata uses,
too. Metadata that holds no valid positions (that was never copied, for
example) is an error.

The MMA reads all of its operands through one method that tells race
detection. Products are rounded to the type of the accumulator once. For
f16, NumPy used to round every partial sum.

Verified: all kinds of operands against dense float64 matmuls, and
kernels with one wait removed, which are reported. The pipelined kernels
also run on a simulator of their PTX (not on a Blackwell GPU), with the
same results.
""",
    edits=_FORMAT + _COPIES + _OPERANDS + (_RACE_OF_0_11_2,),
    new_files=(f"{_FOLDER}/interpret/tcgen05_operands.py",),
    tests=("tests/mosaic/pallas_interpret_sparse_test.py",),
    # The interpreter of 0.11.1 reads the operands of MMAs in another way.
    versions=("0.12.0.1", "0.12.0", "0.11.2"),
)
