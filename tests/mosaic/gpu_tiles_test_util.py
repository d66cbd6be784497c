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
"""Kernels of one ``tcgen05.mma`` call, and ways to run and to read them."""

from __future__ import annotations

import collections
from collections.abc import Sequence
import dataclasses
import functools
import importlib.util
import itertools
import re
from typing import Any
import unittest

from absl.testing import parameterized
import jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax._src.lib.mlir.dialects import builtin
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental.mosaic.gpu import tcgen05
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

DYNAMIC_SHARED_BASE = 1024
_bits = lambda dtype: jnp.dtype(dtype).itemsize * 8


def has_blackwell() -> bool:
  """Whether the default device can run tcgen05 instructions."""
  capability = getattr(jax.local_devices()[0], "compute_capability", "0.0")
  return capability.startswith("10.")


def run(kernel, *args) -> Any:
  """Calls a kernel on a Blackwell GPU if there is one, or on the simulator."""
  if has_blackwell():
    return jax.tree.map(np.asarray, kernel(*args))
  package = "jax.experimental.mosaic.gpu.simulator"
  if importlib.util.find_spec(package) is None:
    raise unittest.SkipTest("Needs a Blackwell GPU, or the simulator")
  simulator = importlib.import_module(package)
  with simulator.simulate():
    return jax.tree.map(np.asarray, kernel(*args))


class TestCase(parameterized.TestCase):
  """A test that can make Mosaic GPU's objects, which need an MLIR context."""

  def setUp(self):
    super().setUp()
    self.enter_context(mlir.make_ir_context())
    self.enter_context(ir.Location.unknown())


def as_gpu_kernel(*args, **kwargs):
  """``mgpu.as_gpu_kernel`` that also works without a GPU."""
  if has_blackwell():
    with mlir.make_ir_context(), ir.Location.unknown():
      return mgpu.as_gpu_kernel(*args, **kwargs)
  return deviceless.as_gpu_kernel(*args, **kwargs)


def tmem_ref(shape, dtype, layout=None) -> tcgen05.TMEMRef:
  """Returns a TMEM reference to the columns from 0 on."""
  address = arith.constant(ir.IntegerType.get_signless(32), 0)
  if layout is None and shape[0] % 128:
    layout = tcgen05.tmem_half_lane_layout(shape[1])
  elif layout is None:
    layout = tcgen05.tmem_default_layout()
  return tcgen05.TMEMRef(address, shape, dtype, layout)


def smem_ref(shape, dtype) -> ir.Value:
  """Returns an SMEM reference that lies nowhere."""
  ty = ir.MemRefType.get(shape, dtype, memory_space=mgpu.utils.smem())
  address = arith.constant(ir.IntegerType.get_signless(32), 0)
  return builtin.unrealized_conversion_cast([ty], [address])


@dataclasses.dataclass(frozen=True)
class Matmul:
  """A matmul that is done by one tcgen05.mma call.

  Attributes:
    m: Rows of A.
    n: Columns of B.
    k: The contraction dimension (before compression).
    dtype: The element type of A and B, or a pair of them.
    acc_dtype: The element type of D.
    sparse: Whether A is 2:4 sparse.
    a_k_major: Whether A is stored with K as the minor dimension.
    b_k_major: Whether B is stored with K as the minor dimension.
    a_swizzle: The swizzle of A in bytes.
    b_swizzle: The swizzle of B in bytes.
  """

  m: int
  n: int
  k: int
  dtype: Any = jnp.float16
  acc_dtype: Any = jnp.float32
  sparse: bool = True
  a_k_major: bool = True
  b_k_major: bool = False
  a_swizzle: int = 128
  b_swizzle: int = 128

  @property
  def dtypes(self) -> tuple[Any, Any]:
    return self.dtype if isinstance(self.dtype, tuple) else (self.dtype,) * 2

  @property
  def a_k(self) -> int:
    """Elements that A stores along K."""
    return self.k // 2 if self.sparse else self.k

  @property
  def metadata_shape(self) -> tuple[int, ...]:
    return (self.m // 128, self.k // 128, 128, 64)

  @property
  def metadata_column(self) -> int:
    """The metadata follows the accumulator in TMEM."""
    return self.m // 128 * self.n

  def arg_types(self) -> tuple[jax.ShapeDtypeStruct, ...]:
    a_dtype, b_dtype = self.dtypes
    a_shape = (self.m, self.a_k) if self.a_k_major else (self.a_k, self.m)
    b_shape = (self.n, self.k) if self.b_k_major else (self.k, self.n)
    types = [
        jax.ShapeDtypeStruct(a_shape, a_dtype),
        jax.ShapeDtypeStruct(b_shape, b_dtype),
    ]
    if self.sparse:
      types.append(jax.ShapeDtypeStruct(self.metadata_shape, jnp.uint2))
    return tuple(types)

  def kernel(self):
    """Returns a function of A, B and the metadata if there is any."""
    a_type, b_type, *_ = self.arg_types()
    a_tiling = (8, 8 * self.a_swizzle // _bits(a_type.dtype))
    b_tiling = (8, 8 * self.b_swizzle // _bits(b_type.dtype))

    def body(ctx, *refs):
      *inputs, out, (a_smem, b_smem, meta_smem, loaded, done, tmem) = refs
      loads = [
          (inputs[0], a_smem, dict(
              swizzle=self.a_swizzle,
              gmem_transform=mgpu.TileTransform(a_tiling),
          )),
          (inputs[1], b_smem, dict(
              swizzle=self.b_swizzle,
              gmem_transform=mgpu.TileTransform(b_tiling),
          )),
      ]
      if self.sparse:
        loads.append((inputs[2], meta_smem, {}))
      for i, (src, dst, kwargs) in enumerate(loads):
        ctx.async_copy(src_ref=src, dst_ref=dst, barrier=loaded[i], **kwargs)
      for i in range(len(loads)):
        loaded[i].wait()
      a_ref, b_ref = a_smem, b_smem
      if not self.a_k_major:
        a_ref = mgpu.memref_transpose(a_ref, (1, 0, 3, 2))
      if self.b_k_major:
        b_ref = mgpu.memref_transpose(b_ref, (1, 0, 3, 2))
      acc, metadata = self.tmem_refs(tmem)
      with mgpu.single_thread():
        kwargs = {}
        if self.sparse:
          tcgen05.async_copy_sparse_metadata_smem_to_tmem(meta_smem, metadata)
          kwargs["a_sparse_metadata"] = metadata
        tcgen05.mma(
            acc, a_ref, b_ref, a_swizzle=self.a_swizzle,
            b_swizzle=self.b_swizzle, accumulate=False, **kwargs,
        )
        tcgen05.commit_arrive(done)
      done.wait(orders_tensor_core=True)
      is_signed = True if self.acc_dtype == jnp.int32 else None
      for row in range(0, self.m, 128):
        tile = mgpu.ds(row, 128)
        value = acc.slice(tile, slice(None)).load(is_signed=is_signed)
        value.store_untiled(mgpu.memref_slice(out, tile), optimized=False)

    tiled = lambda ty, tiling: jax.ShapeDtypeStruct(
        mgpu.tile_shape(ty.shape, tiling), ty.dtype
    )
    scratch = [
        tiled(a_type, a_tiling),
        tiled(b_type, b_tiling),
        jax.ShapeDtypeStruct(self.metadata_shape, jnp.uint2)
        if self.sparse
        else (),
        mgpu.Barrier(1, num_barriers=3),
        mgpu.Barrier(1),
        # All of TMEM, so that operands don't have to be powers of two wide.
        mgpu.TMEM((128, 512), jnp.float32),
    ]
    return as_gpu_kernel(
        body, (1, 1, 1), (128, 1, 1), self.arg_types(),
        jax.ShapeDtypeStruct((self.m, self.n), self.acc_dtype), scratch,
    )

  def tmem_refs(self, tmem: tcgen05.TMEMRef):
    """Returns references to the accumulator and to the metadata."""
    d_type = mgpu.utils.dtype_to_ir_type(self.acc_dtype)
    acc = tcgen05.TMEMRef(
        tmem.address, (self.m, self.n), d_type, tcgen05.tmem_default_layout()
    )
    if not self.sparse:
      return acc, None
    i32 = ir.IntegerType.get_signless(32)
    column = arith.constant(i32, self.metadata_column)
    metadata = tcgen05.TMEMRef(
        arith.addi(tmem.address, column),
        (self.m, self.k // 2),
        ir.IntegerType.get_signless(2),
        tcgen05.sparse_meta_layout(),
    )
    return acc, metadata

  def random_args(self, rng: np.random.Generator):
    """Returns arguments for the kernel, and A (pruned) and B as float64."""
    a_dtype, b_dtype = self.dtypes
    if self.acc_dtype == jnp.int32:
      random = lambda shape, dtype: rng.integers(-127, 128, shape).astype(dtype)
    else:
      # Few significant bits keep the rounding of the accumulation small.
      random = lambda shape, dtype: (
          rng.integers(-32, 33, shape) / 8
      ).astype(dtype)
    b = random((self.k, self.n), b_dtype)
    values = random((self.m, self.a_k), a_dtype)
    args = [
        values if self.a_k_major else values.T,
        b.T if self.b_k_major else b,
    ]
    if self.sparse:
      # Any two positions out of four, in ascending order.
      order = rng.random((self.m, self.k // 4, 4)).argsort(axis=-1)
      positions = np.sort(order[..., :2], axis=-1)
      a = np.zeros((self.m, self.k // 4, 4))
      np.put_along_axis(
          a, positions,
          values.astype(np.float64).reshape(self.m, self.k // 4, 2), axis=-1,
      )
      a = a.reshape(self.m, self.k)
      args.append(
          plgpu.format_tcgen05_sparse_metadata(
              jnp.asarray(positions.astype(jnp.uint2)), a_dtype
          )
      )
    else:
      a = values.astype(np.float64)
    return [jnp.asarray(arg) for arg in args], a, b.astype(np.float64)

  def check(self, test, seed: int = 0) -> None:
    """Runs the kernel and compares its result with a dense matmul."""
    args, a, b = self.random_args(np.random.default_rng(seed))
    result = run(self.kernel(), *args)
    expected = a @ b
    test.assertEqual(result.dtype, self.acc_dtype)
    if self.acc_dtype == jnp.int32:
      np.testing.assert_array_equal(result, expected.astype(np.int64))
      return
    # The products and their sums fit into the 24 bits of a float32 here.
    tolerance = 1e-6 if self.acc_dtype == jnp.float32 else 2e-3
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=tolerance,
        atol=tolerance * np.abs(expected).max(),
    )

  @functools.cached_property
  def compiled(self) -> deviceless.CompiledKernel:
    return deviceless.compile_kernel(self.kernel(), *self.arg_types())


  def check_instructions(self, test) -> None:
    """Checks that the instructions do each part of the matmul exactly once.

    The operands of every tcgen05.mma are decoded from the PTX, each on its own,
    and have to agree on the (M, N, K) part of the matmul that they belong to.
    """
    a_dtype, b_dtype = self.dtypes
    instr_k = 32 * 8 // _bits(a_dtype) * (1 + self.sparse)
    a_base = DYNAMIC_SHARED_BASE
    b_base = a_base + self.m * self.a_k * _bits(a_dtype) // 8
    done = collections.Counter()
    for mma in read_mmas(self.compiled.ptx):
      test.assertEqual(mma.sparse, self.sparse)
      row, a_k = _smem_position(
          mma.a_address - a_base, self.m, self.a_k, _bits(a_dtype),
          self.a_swizzle, self.a_k_major,
      )
      column, k = _smem_position(
          mma.b_address - b_base, self.n, self.k, _bits(b_dtype),
          self.b_swizzle, self.b_k_major,
      )
      test.assertEqual(a_k * (1 + self.sparse), k)
      row_tile, d_column = divmod(mma.d, self.n)
      test.assertEqual((row_tile * 128, d_column), (row, column))
      test.assertEqual(mma.m, 128)
      if self.sparse:
        test.assertEqual(mma.metadata % 2, 0)
        # 16 entries of a column describe 32 elements of A.
        meta_row_tile, meta_column = divmod(
            mma.metadata + mma.selector - self.metadata_column, self.k // 32
        )
        test.assertEqual((meta_row_tile, meta_column * 32), (row_tile, k))
      test.assertEqual(mma.accumulate, k != 0)
      done.update((row_tile, n, k) for n in range(column, column + mma.n))
    test.assertEqual(
        done,
        collections.Counter(
            itertools.product(
                range(self.m // 128), range(self.n), range(0, self.k, instr_k)
            )
        ),
    )


def _smem_position(
    offset: int, mn: int, k: int, bits: int, swizzle: int, k_major: bool
) -> tuple[int, int]:
  """The (M or N, K) position of a byte offset into a tiled SMEM operand."""
  elems = 8 * swizzle // bits
  tile, in_tile = divmod(offset, 8 * swizzle)
  if k_major:
    mn_tile, k_tile = divmod(tile, k // elems)
    position = mn_tile * 8, k_tile * elems + in_tile * 8 // bits
    assert in_tile < swizzle, offset
  else:
    k_tile, mn_tile = divmod(tile, mn // elems)
    position = mn_tile * elems, k_tile * 8
    assert in_tile == 0, offset
  return position


@dataclasses.dataclass(frozen=True)
class Instruction:
  """The operands of a tcgen05.mma in PTX, as far as they are constants.

  Attributes:
    sparse: Whether A is sparse.
    d: TMEM address of D.
    a: SMEM descriptor of A.
    b: SMEM descriptor of B.
    metadata: TMEM address of the sparse metadata.
    descriptor: The instruction descriptor.
    accumulate: Whether D is added to, None if that is not known.
  """

  sparse: bool
  d: int
  a: int
  b: int
  metadata: int | None
  descriptor: int
  accumulate: bool | None

  # PTX ISA, tcgen05 instruction descriptor and matrix descriptor.
  @property
  def m(self) -> int:
    return (self.descriptor >> 24 & 0x1F) << 4

  @property
  def n(self) -> int:
    return (self.descriptor >> 17 & 0x3F) << 3

  @property
  def selector(self) -> int:
    return self.descriptor & 3

  @property
  def a_address(self) -> int:
    return (self.a & 0x3FFF) << 4

  @property
  def b_address(self) -> int:
    return (self.b & 0x3FFF) << 4


_STATEMENT = re.compile(r"([a-z][\w.:]*)\s+([^;{}]*(?:\{[^;]*\}[^;{}]*)*);")


class _Registers(dict):
  """Values of registers that are constants, given the bases of memories."""

  def value(self, operand: str) -> int | None:
    if operand in self:
      return self[operand]
    if operand.startswith("__dynamic_shmem__"):
      return DYNAMIC_SHARED_BASE
    try:
      return int(operand, 0)
    except ValueError:
      return None


_FUNCTIONS = {
    "add": lambda a, b: a + b,
    "and": lambda a, b: a & b,
    "cvt": lambda a: a,
    "mov": lambda a: a,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "sub": lambda a, b: a - b,
}


def _operands(text: str) -> list[str]:
  """Splits at the commas that are not inside of braces."""
  return [p.strip() for p in re.split(r",(?![^{]*\})", text)]


def read_mmas(ptx: str) -> list[Instruction]:
  """Reads the tcgen05.mma instructions of a kernel from its PTX.

  TMEM addresses are relative to the allocation, of which there may be just one.
  SMEM addresses assume that dynamic shared memory begins at 1024, as it does on
  the hardware.
  """
  if ptx.count("tcgen05.alloc") != 1:
    raise ValueError("Expected a kernel with one TMEM allocation")
  registers = _Registers()
  mmas = []
  code = re.sub(r"//.*|\$?\w+:(?!:)", "", ptx)  # No comments, no labels.
  for opcode, text in _STATEMENT.findall(code):
    operands = _operands(text)
    if opcode.startswith("tcgen05.mma"):
      mmas.append(_read_mma(opcode, operands, registers))
      continue
    if opcode.startswith("ld.shared"):
      # The address of the allocation is all that such kernels load.
      registers[operands[0]] = 0
      continue
    function = _FUNCTIONS.get(opcode.partition(".")[0])
    registers.pop(operands[0], None)
    if function is None:
      continue
    sources = []
    for operand in operands[1:]:
      if operand.startswith("{"):
        low, high = map(registers.value, operand[1:-1].split(","))
        known = low is not None and high is not None
        sources.append((low & 0xFFFFFFFF) | high << 32 if known else None)
      else:
        sources.append(registers.value(operand))
    if None not in sources:
      registers[operands[0]] = function(*sources)
  return mmas


def _read_mma(
    opcode: str, operands: Sequence[str], registers: _Registers
) -> Instruction:
  sparse = ".sp." in opcode
  d, a, b, *rest = [operand.strip("[] ") for operand in operands]
  metadata = rest.pop(0) if sparse else None
  descriptor, accumulate = rest

  def known(name):
    value = registers.value(name)
    if value is None:
      raise ValueError(f"Expected {name} of {opcode} to be a constant")
    return value

  p = registers.value(accumulate)
  return Instruction(
      sparse=sparse,
      d=known(d),
      a=known(a),
      b=known(b),
      metadata=known(metadata) if metadata is not None else None,
      descriptor=known(descriptor),
      accumulate=None if p is None else bool(p),
  )
