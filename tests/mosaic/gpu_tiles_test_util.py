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
from collections.abc import Callable, Sequence
import dataclasses
import functools
import importlib.util
import itertools
import math
import re
from typing import Any
import unittest

from absl.testing import parameterized
import jax
from jax._src import dtypes
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax._src.lib.mlir.dialects import builtin
from jax._src.lib.mlir.dialects import gpu
from jax._src.lib.mlir.dialects import memref
from jax._src.lib.mlir.dialects import nvvm
from jax._src.lib.mlir.dialects import scf
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

DYNAMIC_SHARED_BASE = 1024
_bits = dtypes.itemsize_bits


def has_blackwell() -> bool:
  """Whether the default device can run tcgen05 instructions."""
  capability = getattr(jax.local_devices()[0], "compute_capability", "0.0")
  return capability.startswith("10.")


def run(kernel, *args, **simulation) -> Any:
  """Calls a kernel on a Blackwell GPU if there is one, or on the simulator.

  Args:
    kernel: What `as_gpu_kernel` returned.
    *args: Its arguments.
    **simulation: Options of the simulator.
  """
  if has_blackwell():
    return jax.tree.map(np.asarray, kernel(*args))
  package = "jax.experimental.mosaic.gpu.simulator"
  if importlib.util.find_spec(package) is None:
    raise unittest.SkipTest("Needs a Blackwell GPU, or the simulator")
  simulator = importlib.import_module(package)
  with simulator.simulate(**simulation):
    return jax.tree.map(np.asarray, kernel(*args))


class TestCase(parameterized.TestCase):
  """A test that can make Mosaic GPU's objects, which need an MLIR context."""

  def setUp(self):
    super().setUp()
    self.enter_context(mlir.make_ir_context())
    self.enter_context(ir.Location.unknown())


def store(dst, value) -> None:
  """Stores to a reference of Pallas, in whatever layout the value is."""
  plgpu.store(dst, value, optimized=False)


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
    m: Rows of A, for each CTA.
    n: Columns of B, for each CTA.
    k: The contraction dimension (before compression).
    dtype: The element type of A and B, or a pair of them.
    acc_dtype: The element type of D.
    sparse: Whether A is 2:4 sparse (4:8 in pairs for 4-bit types).
    a_k_major: Whether A is stored with K as the minor dimension.
    b_k_major: Whether B is stored with K as the minor dimension.
    a_swizzle: The swizzle of A in bytes.
    b_swizzle: The swizzle of B in bytes.
    scale_dtype: The element type of block scales, None without them.
    scale_block: Elements along K that share a scale.
    a_in_tmem: Whether A is copied to TMEM before the call.
    collective: Whether two CTAs share the call.
    accumulate: What the call adds to: nothing (False); what was stored to D
      before (True, or "argument" if an argument of the kernel says whether to);
      what the same call did before ("twice", or "loop" for calls in a loop, of
      which all but the first one accumulate).
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
  scale_dtype: Any = None
  scale_block: int = 0
  a_in_tmem: bool = False
  collective: bool = False
  accumulate: bool | str = False

  @property
  def dtypes(self) -> tuple[Any, Any]:
    return self.dtype if isinstance(self.dtype, tuple) else (self.dtype,) * 2

  @property
  def bits(self) -> int:
    return _bits(self.dtypes[0])

  @property
  def num_cta(self) -> int:
    return 1 + self.collective

  @property
  def row_tile(self) -> int:
    """Rows of an instruction, for each CTA."""
    return min(self.m, 128)

  @property
  def stores_d(self) -> bool:
    """Whether the kernel takes the initial values of D."""
    return self.accumulate in (True, "argument")

  @property
  def takes_count(self) -> bool:
    """Whether the kernel takes a number: to accumulate, or of calls."""
    return self.accumulate in ("argument", "loop")

  @property
  def a_k(self) -> int:
    """Elements that A stores along K."""
    return self.k // 2 if self.sparse else self.k

  @property
  def entries(self) -> int:
    """Metadata entries of a row."""
    return self.k // 2 if self.bits >= 8 else self.k // 4

  @property
  def scales(self) -> int:
    """Scales of a row."""
    return self.k // self.scale_block

  def operand_types(self) -> dict[str, jax.ShapeDtypeStruct]:
    """The arrays that the kernel takes for one CTA, by name."""
    a_dtype, b_dtype = self.dtypes
    struct = jax.ShapeDtypeStruct
    types = {
        "a": struct(
            (self.m, self.a_k) if self.a_k_major else (self.a_k, self.m),
            a_dtype,
        ),
        "b": struct(
            (self.n, self.k) if self.b_k_major else (self.k, self.n), b_dtype
        ),
    }
    if self.sparse:
      types["metadata"] = struct(
          (-(-self.m // 128), self.entries // 64, 128, 64), jnp.uint2
      )
    if self.scale_dtype is not None:
      shape = lambda rows: (-(-rows // 128), self.scales // 4, 32, 16)
      types["a_scale"] = struct(shape(self.m), self.scale_dtype)
      # Each CTA has the scales of all columns.
      n_total = self.n * self.num_cta
      b_shape = shape(n_total)
      if self.m == 64:
        b_shape = (1, self.scales // 4, 64, 16)
      types["b_scale"] = struct(b_shape, self.scale_dtype)
    return types

  def split_axis(self, name: str) -> int | None:
    """The axis of an array that the CTAs share, None if each has all of it."""
    return {
        "a": 1 - self.a_k_major, "b": 1 - self.b_k_major, "metadata": 0,
        "a_scale": 0, "b_scale": None,
    }[name]

  def arg_types(self) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The arguments of the kernel, of all CTAs."""
    types = []
    for name, ty in self.operand_types().items():
      shape = list(ty.shape)
      axis = self.split_axis(name)
      if axis is not None:
        shape[axis] *= self.num_cta
      types.append(jax.ShapeDtypeStruct(tuple(shape), ty.dtype))
    if self.stores_d:
      types.append(self.out_type)
    if self.takes_count:
      types.append(jax.ShapeDtypeStruct((1,), jnp.int32))
    return tuple(types)

  @property
  def out_type(self) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
        (self.num_cta * self.m, self.num_cta * self.n), self.acc_dtype
    )

  def columns(self) -> dict[str, tuple[int, int]]:
    """The first column and the number of columns of the operands in TMEM."""
    row_tiles = -(-self.m // 128)
    widths = {"d": row_tiles * self.n * self.num_cta}
    if self.m == 64:
      widths["d"] //= 2  # Folded over the lanes.
    if self.sparse:
      widths["metadata"] = row_tiles * self.entries // 16
    if self.a_in_tmem:
      widths["a"] = row_tiles * self.a_k * self.bits // 32
    if self.scale_dtype is not None:
      for name in ("a_scale", "b_scale"):
        row_tiles = self.operand_types()[name].shape[0]
        widths[name] = row_tiles * self.scales
    first, columns = 0, {}
    for name, width in widths.items():
      # Where a column of four scales may begin is not documented.
      first = -(-first // 4) * 4
      columns[name] = (first, width)
      first += width
    if first > 512:
      raise ValueError(f"{self} takes {first} columns")
    return columns

  def tilings(self) -> dict[str, tuple[int, int]]:
    a_dtype, b_dtype = self.dtypes
    return {
        "a": (8, 8 * self.a_swizzle // _bits(a_dtype)),
        "b": (8, 8 * self.b_swizzle // _bits(b_dtype)),
    }

  def smem_types(self) -> dict[str, jax.ShapeDtypeStruct]:
    types = self.operand_types()
    for name, tiling in self.tilings().items():
      ty = types[name]
      types[name] = jax.ShapeDtypeStruct(
          mgpu.tile_shape(ty.shape, tiling), ty.dtype
      )
    return types

  def kernel(self):
    """Returns a function of the arrays that `random_args` returns."""
    names = list(self.operand_types())
    tilings = self.tilings()
    swizzles = {"a": self.a_swizzle, "b": self.b_swizzle}

    def body(ctx, *refs):
      *inputs, out, (smem, loaded, done, tmem_alloc) = refs
      inputs, further = inputs[: len(names)], inputs[len(names) :]
      count = None
      if self.takes_count:
        zero = arith.constant(ir.IndexType.get(), 0)
        count = memref.load(further.pop(), [zero])
      smem = dict(zip(names, smem, strict=True))
      for i, (name, src) in enumerate(zip(names, inputs, strict=True)):
        kwargs = {}
        if name in tilings:
          kwargs["swizzle"] = swizzles[name]
          kwargs["gmem_transform"] = mgpu.TileTransform(tilings[name])
        if self.collective:
          axis = self.split_axis(name)
          kwargs["collective"] = gpu.Dimension.x
          kwargs["leader_tracked"] = (
              mgpu.CopyPartition.REPLICATED
              if axis is None
              else mgpu.CopyPartition.PARTITIONED(axis)
          )
        ctx.async_copy(
            src_ref=src, dst_ref=smem[name], barrier=loaded[i], **kwargs
        )
      tmem = self.tmem_refs(tmem_alloc)
      index = ir.IndexType.get()
      cta = arith.constant(index, 0)
      if self.collective:
        cta = gpu.cluster_block_id(gpu.Dimension.x)
      if self.stores_d:
        self.store_d(further.pop(), tmem["d"], cta)
      is_leader = arith.cmpi(
          arith.CmpIPredicate.eq, cta, arith.constant(index, 0)
      )
      with mgpu.when(is_leader):
        for i in range(len(names)):
          loaded[i].wait()
        with mgpu.single_thread():
          self.issue(ctx, smem, tmem, done, count)
      done.wait(orders_tensor_core=True)
      is_signed = True if self.acc_dtype == jnp.int32 else None
      first_row = arith.muli(cta, arith.constant(index, self.m))
      for row in range(0, self.m, self.row_tile):
        tile = tmem["d"].slice(mgpu.ds(row, self.row_tile), slice(None))
        dst_row = arith.addi(first_row, arith.constant(index, row))
        tile.load(is_signed=is_signed).store_untiled(
            mgpu.memref_slice(out, mgpu.ds(dst_row, self.row_tile)),
            optimized=False,
        )

    scratch = [
        list(self.smem_types().values()),
        mgpu.Barrier(1, num_barriers=len(names)),
        mgpu.Barrier(1),
        # All of TMEM, so that operands don't have to be powers of two wide.
        mgpu.TMEM((128, 512), jnp.float32, collective=self.collective),
    ]
    num_cta = self.num_cta
    return as_gpu_kernel(
        body, (num_cta, 1, 1), (128, 1, 1), self.arg_types(),
        self.out_type, scratch, cluster=(num_cta, 1, 1),
    )

  def store_d(self, src, d, cta):
    """Copies the initial values of D from global memory to TMEM."""
    index = ir.IndexType.get()
    first_row = arith.muli(cta, arith.constant(index, self.m))
    is_signed = True if self.acc_dtype == jnp.int32 else None
    for row in range(0, self.m, self.row_tile):
      src_row = arith.addi(first_row, arith.constant(index, row))
      value = fa.FragmentedArray.load_untiled(
          mgpu.memref_slice(src, mgpu.ds(src_row, self.row_tile)),
          layout=tcgen05.LAYOUT, is_signed=is_signed, optimized=False,
      )
      d.slice(mgpu.ds(row, self.row_tile), slice(None)).store(value)
    tcgen05.commit_tmem()
    if self.collective:
      # The other CTA's MMA writes to this one's TMEM.
      nvvm.cluster_arrive(aligned=True)
      nvvm.cluster_wait(aligned=True)

  def issue(self, ctx, smem, tmem, done, count=None):
    """Issues the copies to TMEM, the calls and their commit."""
    mma = self.copy_to_tmem(smem, tmem)
    i32 = ir.IntegerType.get_signless(32)
    constant = lambda x: arith.constant(i32, x)
    is_not_zero = lambda x: arith.cmpi(
        arith.CmpIPredicate.ne, x, constant(0)
    )
    if self.accumulate == "argument":
      mma(is_not_zero(count))
    elif self.accumulate == "twice":
      mma(False)
      mma(True)
    elif self.accumulate == "loop":
      loop = scf.ForOp(constant(0), count, constant(1))
      with ir.InsertionPoint(loop.body):
        mma(is_not_zero(loop.induction_variable))
        scf.yield_([])
    else:
      mma(self.accumulate)
    tcgen05.commit_arrive(done, collective=self.collective, ctx=ctx)

  def copy_to_tmem(self, smem, tmem) -> Callable[[ir.Value | bool], None]:
    """Issues the copies to TMEM, and returns a function for the call.

    Args:
      smem: The operands in SMEM, by name.
      tmem: Those in TMEM.

    Returns:
      A function of whether to accumulate.
    """
    kwargs = {}
    if self.sparse:
      tcgen05.async_copy_sparse_metadata_smem_to_tmem(
          smem["metadata"], tmem["metadata"], collective=self.collective
      )
      kwargs["a_sparse_metadata"] = tmem["metadata"]
    if self.scale_dtype is not None:
      for name in ("a_scale", "b_scale"):
        tcgen05.async_copy_scales_smem_to_tmem(
            smem[name], tmem[name], collective=self.collective
        )
        kwargs[name] = tmem[name]
    a, b = smem["a"], smem["b"]
    if not self.a_k_major:
      a = mgpu.memref_transpose(a, (1, 0, 3, 2))
    if self.b_k_major:
      b = mgpu.memref_transpose(b, (1, 0, 3, 2))
    if self.a_in_tmem:
      tcgen05.async_copy_smem_to_tmem(
          a, tmem["a"], self.a_swizzle, collective=self.collective
      )
      a = tmem["a"]
    return lambda accumulate: tcgen05.mma(
        tmem["d"], a, b, a_swizzle=self.a_swizzle, b_swizzle=self.b_swizzle,
        accumulate=accumulate, collective=self.collective, **kwargs,
    )

  def tmem_types(
      self,
  ) -> dict[str, tuple[tuple[int, int], ir.Type, tcgen05.TMEMLayout]]:
    """Returns shape, element type and layout of the operands in TMEM."""
    ir_type = mgpu.utils.dtype_to_ir_type
    n_total = self.n * self.num_cta
    if self.m != 64:
      layout = tcgen05.tmem_default_layout
    elif self.collective:
      layout = lambda *packing: tcgen05.tmem_m64_collective_layout(
          n_total, *packing
      )
    else:
      layout = lambda *packing: tcgen05.tmem_half_lane_layout(
          n_total, *packing
      )
    types = {"d": ((self.m, n_total), ir_type(self.acc_dtype), layout())}
    if self.sparse:
      types["metadata"] = (
          (self.m, self.entries), ir.IntegerType.get_signless(2),
          tcgen05.sparse_meta_layout(),
      )
    if self.a_in_tmem:
      types["a"] = (
          (self.m, self.a_k), ir_type(self.dtypes[0]),
          tcgen05.tmem_default_layout(32 // self.bits),
      )
    if self.scale_dtype is not None:
      for name in ("a_scale", "b_scale"):
        shape = (self.operand_types()[name].shape[0] * 128, self.scales)
        layout = tcgen05.scales_layout()
        if name == "b_scale" and self.m == 64:
          shape = (256, self.scales)
          layout = tcgen05.b_scales_m64_collective_layout()
        types[name] = (shape, ir_type(self.scale_dtype), layout)
    return types

  def tmem_refs(self, tmem: tcgen05.TMEMRef) -> dict[str, tcgen05.TMEMRef]:
    """Returns references to the operands that are in TMEM."""
    types = self.tmem_types()
    i32 = ir.IntegerType.get_signless(32)
    refs = {}
    for name, (first, _) in self.columns().items():
      address = arith.addi(tmem.address, arith.constant(i32, first))
      refs[name] = tcgen05.TMEMRef(address, *types[name])
    return refs

  def random_values(self, rng: np.random.Generator, shape, dtype):
    if dtype == jnp.int8:
      return rng.integers(-127, 128, shape).astype(dtype)
    if _bits(dtype) == 4:
      return rng.integers(0, 16, shape).astype(np.uint8).view(dtype)
    # Few significant bits keep the rounding of the accumulation small.
    return (rng.integers(-32, 33, shape) / 8).astype(dtype)

  def random_args(self, rng: np.random.Generator):
    """Returns arguments for the kernel, and A (pruned) and B as float64."""
    a_dtype, b_dtype = self.dtypes
    m, n = self.m * self.num_cta, self.n * self.num_cta
    b = self.random_values(rng, (self.k, n), b_dtype)
    values = self.random_values(rng, (m, self.a_k), a_dtype)
    args = [
        values if self.a_k_major else values.T,
        b.T if self.b_k_major else b,
    ]
    a = values.astype(np.float64)
    if self.sparse:
      # Any two positions out of four, in ascending order. With 4-bit types,
      # each stands for two neighbours.
      width = 1 if self.bits >= 8 else 2
      groups = self.k // 4 // width
      order = rng.random((m, groups, 4)).argsort(axis=-1)
      positions = np.sort(order[..., :2], axis=-1)
      compressed = a.reshape(m, groups, 2, width)
      a = np.zeros((m, groups, 4, width))
      np.put_along_axis(a, positions[..., None], compressed, axis=2)
      a = a.reshape(m, self.k)
      args.append(format_metadata(positions.astype(np.uint8), self.bits))
    b = b.astype(np.float64)
    if self.scale_dtype is not None:
      a_scale = self.random_scales(rng, m)
      b_scale = self.random_scales(rng, n)
      args.append(np.concatenate(
          [format_scales(rows) for rows in np.split(a_scale, self.num_cta)]
      ))
      if self.m == 64:
        args.append(format_b_scales_m64(b_scale))
      else:
        args.append(format_scales(b_scale))
      spread = lambda x: x.astype(np.float64).repeat(self.scale_block, axis=1)
      a, b = a * spread(a_scale), b * spread(b_scale).T
    return [jnp.asarray(arg) for arg in args], a, b

  def random_scales(self, rng: np.random.Generator, rows: int) -> np.ndarray:
    exponents = rng.integers(-2, 3, (rows, self.scales))
    scales = 2.0**exponents
    if self.scale_dtype == jnp.float8_e4m3fn:
      scales *= rng.integers(4, 8, scales.shape) / 4
    return scales.astype(self.scale_dtype)

  def check(self, test, seed: int = 0, **simulation) -> None:
    """Runs the kernel and compares its result with a dense matmul."""
    rng = np.random.default_rng(seed)
    args, a, b = self.random_args(rng)
    product = a @ b
    start = np.zeros_like(product)
    if self.stores_d:
      d = self.random_values(rng, product.shape, self.acc_dtype)
      start = d.astype(np.float64)
      args.append(jnp.asarray(d))
    kernel = self.kernel()
    if not self.takes_count:
      calls = 2 if self.accumulate == "twice" else 1
      result = run(kernel, *args, **simulation)
      self.assert_close(test, result, start + calls * product)
      return
    for count in (1, 2) if self.accumulate == "loop" else (0, 1):
      number = jnp.array([count], jnp.int32)
      result = run(kernel, *args, number, **simulation)
      if self.accumulate == "loop":
        expected = count * product
      else:
        expected = count * start + product
      self.assert_close(test, result, expected)

  def assert_close(self, test, result, expected) -> None:
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

    With ``accumulate="twice"``, exactly twice. The compiler may unroll a loop:
    then, each part the same number of times.

    The operands of every tcgen05.mma are decoded from the PTX, each on its own,
    and have to agree on the (M, N, K) part of the matmul that they belong to.
    """
    n_total = self.n * self.num_cta
    instr_k = 32 * 8 // self.bits * (1 + self.sparse)
    columns = {name: first for name, (first, _) in self.columns().items()}
    smem = _smem_addresses(self.smem_types())
    # What a column of metadata describes.
    meta_k = self.k * 16 // self.entries
    row_tiles = -(-self.m // 128)
    done = collections.Counter()
    for mma in read_mmas(self.compiled.ptx):
      test.assertEqual(mma.sparse, self.sparse)
      if self.a_in_tmem:
        per_row_tile = self.a_k * self.bits // 32
        row_tile, a_column = divmod(mma.a - columns["a"], per_row_tile)
        row, a_k = row_tile * 128, a_column * 32 // self.bits
      else:
        row, a_k = _smem_position(
            mma.a_address - smem["a"], self.m, self.a_k, self.bits,
            self.a_swizzle, self.a_k_major,
        )
      column, k = _smem_position(
          mma.b_address - smem["b"], self.n, self.k, _bits(self.dtypes[1]),
          self.b_swizzle, self.b_k_major,
      )
      test.assertEqual(a_k * (1 + self.sparse), k)
      row_tile, d_column = divmod(mma.d, n_total)
      test.assertEqual(
          (row_tile * 128, d_column), (row, column * self.num_cta)
      )
      test.assertEqual(mma.m, self.row_tile * self.num_cta)
      if self.sparse:
        test.assertEqual(mma.metadata % 2, 0)
        selector = mma.selector if self.scale_dtype is None else 0
        meta_row_tile, meta_column = divmod(
            mma.metadata + selector - columns["metadata"], self.k // meta_k
        )
        test.assertEqual((meta_row_tile, meta_column * meta_k), (row_tile, k))
      if self.scale_dtype is not None:
        scale = k // self.scale_block
        test.assertEqual(
            (mma.a_scale - columns["a_scale"], mma.a_scale_id),
            ((scale // 4 * row_tiles + row_tile) * 4, scale % 4),
        )
        # With M=64, half of the rows have lanes of their own.
        b_row_tiles = -(-n_total // 128) if self.m != 64 else 1
        test.assertEqual(
            (mma.b_scale - columns["b_scale"], mma.b_scale_id),
            (
                (scale // 4 * b_row_tiles + d_column // 128) * 4,
                scale % 4,
            ),
        )
      part = [(row_tile, n, k) for n in range(d_column, d_column + mma.n)]
      expected = {
          "argument": (None,),
          "loop": (None, True),
          "twice": (part[0] in done,),
      }.get(self.accumulate, (self.accumulate,))
      test.assertIn(mma.accumulate, expected if k == 0 else (True,))
      done.update(part)
    parts = itertools.product(
        range(row_tiles), range(n_total), range(0, self.k, instr_k)
    )
    calls = 2 if self.accumulate == "twice" else 1
    if self.accumulate == "loop":
      calls = max(done.values())
    test.assertEqual(done, collections.Counter(dict.fromkeys(parts, calls)))


@dataclasses.dataclass(frozen=True)
class Tf32Matmul(Matmul):
  """A matmul of f32 operands, of which the tensor core takes 10 mantissa bits."""

  dtype: object = jnp.float32
  b_k_major: bool = True

  @property
  def entries(self) -> int:
    return self.k

  def random_args(self, rng):
    if not self.sparse:
      return super().random_args(rng)
    m, n = self.m * self.num_cta, self.n * self.num_cta
    b = self.random_values(rng, (self.k, n), jnp.float32)
    values = self.random_values(rng, (m, self.a_k), jnp.float32)
    # One of each two elements is kept.
    kept = rng.integers(0, 2, (m, self.k // 2))
    a = np.zeros((m, self.k // 2, 2))
    np.put_along_axis(a, kept[..., None], values[..., None], axis=-1)
    # Seen as two 16-bit halves each, elements 0 and 1 are 0, 1 and 2, 3.
    positions = np.stack([2 * kept, 2 * kept + 1], axis=-1).astype(np.uint8)
    metadata = format_metadata(positions, bits=16)
    return [values, b.T, metadata], a.reshape(m, self.k), b


def format_metadata(positions: np.ndarray, bits: int) -> np.ndarray:
  """Lays sparse metadata out for the copy to TMEM, entry by entry.

  Args:
    positions: Positions of shape (M, groups, 2).
    bits: Bits of an element of A.

  Returns:
    Tiles of 128 rows of 64 entries. With 16-bit types, a column of 16 entries
    holds those of two rows: see the PTX ISA, sparse matrices, kind::f16.
  """
  m = positions.shape[0]
  entries = positions.reshape(m, -1)
  tiles = np.zeros((m // 128, entries.shape[1] // 64, 128, 64), np.uint8)
  row, entry = np.indices(entries.shape)
  lane, place = row % 128, entry % 64
  if bits == 16:
    # Eight entries of a row lie in the lane that its eighth entries stand for.
    column, half, in_half = place // 16, place // 8 % 2, place % 8
    group, upper, r = lane // 16, lane // 8 % 2, lane % 8
    lane = group * 16 + half * 8 + r
    place = column * 16 + upper * 8 + in_half
  tiles[row // 128, entry // 64, lane, place] = entries
  return tiles.astype(jnp.uint2)


def format_scales(scales: np.ndarray) -> np.ndarray:
  """Lays block scales of shape (rows, scales) out for the copy to TMEM."""
  rows, count = scales.shape
  row_tiles = -(-rows // 128)
  # The padding must not matter.
  tiles = np.full((row_tiles, count // 4, 32, 16), 0xFF, np.uint8)
  row, scale = np.indices(scales.shape)
  tiles[
      row // 128, scale // 4, row % 32, row // 32 % 4 * 4 + scale % 4
  ] = scales.view(np.uint8)
  return tiles.view(scales.dtype)


def format_b_scales_m64(scales: np.ndarray) -> np.ndarray:
  """As ``format_scales``, for the B of two CTAs with 64 rows of A each."""
  rows, count = scales.shape
  tiles = np.full((1, count // 4, 64, 16), 0xFF, np.uint8)
  row, scale = np.indices(scales.shape)
  # Each half of the rows has lanes of its own.
  half, in_half = row // (rows // 2), row % (rows // 2)
  tiles[
      0, scale // 4, half * 32 + in_half % 32, in_half // 32 * 4 + scale % 4
  ] = scales.view(np.uint8)
  return tiles.view(scales.dtype)


def _smem_addresses(
    types: dict[str, jax.ShapeDtypeStruct]
) -> dict[str, int]:
  """The addresses of buffers that follow each other in dynamic SMEM."""
  addresses, address = {}, DYNAMIC_SHARED_BASE
  for name, ty in types.items():
    addresses[name] = address
    address += math.prod(ty.shape) * _bits(ty.dtype) // 8
  return addresses


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
    a_scale: TMEM address of the scales of A.
    b_scale: TMEM address of the scales of B.
  """

  sparse: bool
  d: int
  a: int
  b: int
  metadata: int | None
  descriptor: int
  accumulate: bool | None
  a_scale: int | None = None
  b_scale: int | None = None

  # PTX ISA, tcgen05 instruction descriptor and matrix descriptor.
  @property
  def m(self) -> int:
    # With scales, the lower bits are reserved.
    return (self.descriptor >> 27 & 3) << 7

  @property
  def a_scale_id(self) -> int:
    return self.descriptor >> 29 & 3

  @property
  def b_scale_id(self) -> int:
    return self.descriptor >> 4 & 3

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
    "bfe": lambda a, first, width: a >> first & (1 << width) - 1,
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
    if opcode == "mov.b64" and operands[0].startswith("{"):
      value = registers.value(operands[1])
      for i, half in enumerate(operands[0].strip("{} ").split(",")):
        registers.pop(half.strip(), None)
        if value is not None:
          registers[half.strip()] = value >> 32 * i & 0xFFFFFFFF
      continue
    registers.pop(operands[0], None)
    if function is None:
      continue
    sources = []
    for operand in operands[1:]:
      if operand.startswith("{"):
        low, high = map(registers.value, _operands(operand[1:-1]))
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
  descriptor, *scales, accumulate = rest

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
      **{
          name: known(scale)
          for name, scale in zip(("a_scale", "b_scale"), scales)
      },
  )
