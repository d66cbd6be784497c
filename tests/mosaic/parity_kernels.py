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
"""Describes what a release of JAX makes of many uses of tcgen05.

Run as a script, in a process for each release: ``pristine_parity_test.py``
compares what two of them write. Needs nothing of the patches: if the release
does not have ``deviceless``, it is loaded from the file that is given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import dataclasses
import functools
import hashlib
import importlib.util
import itertools
import json
import math
import pathlib
import re
import sys
import types
from typing import Any
from unittest import mock

import jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir import passmanager
from jax._src.lib.mlir.dialects import arith
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import tcgen05
from jax.experimental.pallas.ops.gpu import blackwell_matmul_mgpu
from jax.experimental.pallas.ops.gpu import blackwell_ragged_dot_mgpu
import jax.numpy as jnp
import numpy as np

_DEVICELESS = "jax.experimental.mosaic.gpu.deviceless"
if importlib.util.find_spec(_DEVICELESS) is None:
  _spec = importlib.util.spec_from_file_location(_DEVICELESS, sys.argv[1])
  mgpu.deviceless = sys.modules[_DEVICELESS] = importlib.util.module_from_spec(
      _spec
  )
  _spec.loader.exec_module(mgpu.deviceless)

# pylint: disable=g-import-not-at-top
from jax.experimental.mosaic.gpu import deviceless
import gpu_tiles_test_util as test_util
# pylint: enable=g-import-not-at-top

Matmul = test_util.Matmul

E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2
E8M0 = jnp.float8_e8m0fnu
E2M1 = jnp.float4_e2m1fn

_SWIZZLES = (32, 64, 128)
_COLUMNS = (8, 16, 24, 32, 48, 64, 96, 112, 128, 192, 256, 272, 384, 512)
_DENSE_TYPES = (
    (jnp.float16, jnp.float32),
    (jnp.float16, jnp.float16),
    (jnp.bfloat16, jnp.float32),
    (jnp.float32, jnp.float32),
    (E4M3, jnp.float32),
    (E5M2, jnp.float16),
    ((E4M3, E5M2), jnp.float16),
    ((E5M2, E4M3), jnp.float32),
    (jnp.int8, jnp.int32),
)
_SCALED_TYPES = (
    (E4M3, E8M0, 32),
    ((E5M2, E4M3), E8M0, 32),
    (E2M1, E8M0, 32),
    (E2M1, E8M0, 16),
    (E2M1, E4M3, 16),
)


def _describe(matmul: Matmul) -> str:
  """The fields that differ from the default, to name a case."""
  def show(value):
    if isinstance(value, tuple):
      return "/".join(map(show, value))
    return getattr(value, "__name__", str(value))

  fields = dataclasses.fields(matmul)
  return " ".join(
      f"{f.name}={show(value)}"
      for f in fields
      if (value := getattr(matmul, f.name)) != f.default
  )


def matmuls() -> Iterator[Matmul]:
  """Calls of all kinds, those that must be refused included."""
  yn = (False, True)
  for sparse, collective, a_in_tmem in itertools.product(yn, repeat=3):
    for m, n in itertools.product((64, 128, 256), _COLUMNS):
      if m == 64 and (sparse or a_in_tmem) and n != 64:
        continue  # Refused, whatever else it is.
      for dtypes, groups, a_k_major, b_k_major in itertools.product(
          _DENSE_TYPES, (1, 2), yn, yn
      ):
        if a_in_tmem and not a_k_major:
          continue
        for a_swizzle, b_swizzle in itertools.product(_SWIZZLES, repeat=2):
          if a_in_tmem and a_swizzle != 128:
            continue  # It is only for the copy.
          if m == 256 and (groups != 1 or a_swizzle != b_swizzle):
            continue  # Refused without the patches.
          matmul = Matmul(
              m, n, 0, *dtypes, sparse, a_k_major, b_k_major, a_swizzle,
              b_swizzle, a_in_tmem=a_in_tmem, collective=collective,
          )
          k = 8 * max(a_swizzle * (1 + sparse), b_swizzle) // matmul.bits
          if sparse:
            k = max(k, 128)  # A tile of metadata.
          yield dataclasses.replace(matmul, k=groups * k)
      for dtypes, groups, b_k_major, b_swizzle in itertools.product(
          _SCALED_TYPES, (1, 2), yn, _SWIZZLES
      ):
        dtype, scale_dtype, block = dtypes
        matmul = Matmul(
            m, n, 0, dtype, sparse=sparse, b_k_major=b_k_major,
            a_swizzle=64 if sparse else 128, b_swizzle=b_swizzle,
            scale_dtype=scale_dtype, scale_block=block * (1 + sparse),
            a_in_tmem=a_in_tmem, collective=collective,
        )
        k = max(1024 // matmul.bits, 4 * matmul.scale_block)
        if sparse:
          k = max(k, 1024 // matmul.bits)
        yield dataclasses.replace(matmul, k=groups * k)


def _call(matmul: Matmul) -> None:
  """Emits the copies to TMEM and the call, with operands that lie nowhere."""
  smem = {
      name: test_util.smem_ref(
          ty.shape, mgpu.utils.dtype_to_ir_type(ty.dtype)
      )
      for name, ty in matmul.smem_types().items()
  }
  i32 = ir.IntegerType.get_signless(32)
  # Different addresses, so that operands can't be taken for one another.
  tmem = {
      name: tcgen05.TMEMRef(arith.constant(i32, 1000 * i), *ty)
      for i, (name, ty) in enumerate(matmul.tmem_types().items(), 1)
  }
  matmul.copy_to_tmem(smem, tmem)(False)


def _value(shape, dtype, layout) -> fa.FragmentedArray:
  """Returns an array in registers that are all different."""
  shape_of_registers = layout.registers_shape(shape)
  is_int = isinstance(dtype, ir.IntegerType)
  vector = ir.VectorType.get((layout.vector_length,), dtype)
  registers = np.empty(shape_of_registers, dtype=object)
  for i, index in enumerate(np.ndindex(shape_of_registers)):
    i32 = ir.IntegerType.get_signless(32)
    scalar = arith.constant(i32, i)
    bits = ir.IntegerType.get_signless(mgpu.bitwidth(dtype))
    if mgpu.bitwidth(dtype) < 32:
      scalar = arith.trunci(bits, scalar)
    scalar = mgpu.utils.bitcast(scalar, dtype)
    registers[index] = mgpu.utils.vector.broadcast(vector, scalar)
  return fa.FragmentedArray(
      _registers=registers, _layout=layout, _is_signed=True if is_int else None
  )


def _tmem_uses() -> Iterator[tuple[str, Callable[[], Any]]]:
  """Loads, stores and slices of TMEM references, by name."""
  ir_type = mgpu.utils.dtype_to_ir_type
  address = lambda: arith.constant(ir.IntegerType.get_signless(32), 1000)
  layouts = {
      "default": lambda shape, packing: tcgen05.tmem_default_layout(packing),
      "half lane": lambda shape, packing: tcgen05.tmem_half_lane_layout(
          shape[1], packing
      ),
      "m64 collective": lambda shape, packing: (
          tcgen05.tmem_m64_collective_layout(shape[1], packing)
      ),
      "scales": lambda shape, packing: tcgen05.scales_layout(),
      "m64 scales": lambda shape, packing: (
          tcgen05.b_scales_m64_collective_layout()
      ),
      "metadata": lambda shape, packing: tcgen05.sparse_meta_layout(),
  }
  registers = {
      "LAYOUT": lambda ref: tcgen05.LAYOUT,
      "TMEM_NATIVE_LAYOUT": lambda ref: tcgen05.TMEM_NATIVE_LAYOUT,
      "WGMMA_LAYOUT": lambda ref: fa.WGMMA_LAYOUT,
      "own": lambda ref: ref.layout.as_tiled_layout(),
      "m64": lambda ref: tcgen05.fa_m64_collective_layout(ref.shape[1]),
  }
  dtypes = (
      jnp.float32, jnp.int32, jnp.float16, jnp.bfloat16, jnp.int8, E4M3, E8M0,
      jnp.uint2,
  )
  for layout, dtype, rows, columns in itertools.product(
      layouts, dtypes, (64, 128, 256), (4, 8, 16, 32, 64, 128, 256)
  ):
    for packing in sorted({1, 32 // test_util._bits(dtype)}):
      shape = (rows, columns)
      name = f"layout={layout} dtype={dtype.__name__} packing={packing} {shape}"
      is_signed = True if dtype == jnp.int32 else None

      def ref(shape=shape, dtype=dtype, layout=layout, packing=packing):
        return tcgen05.TMEMRef(
            address(), shape, ir_type(dtype), layouts[layout](shape, packing)
        )

      for regs in registers:
        yield f"load {name} {regs}", lambda ref=ref, regs=regs, s=is_signed: (
            (r := ref()).load(registers[regs](r), is_signed=s)
        )
        yield f"store {name} {regs}", lambda ref=ref, regs=regs: (
            (r := ref()).store(_value(r.shape, r.dtype, registers[regs](r)))
        )
      for reduce in ("max", "absmin"):
        yield f"load {name} {reduce}", lambda ref=ref, r=reduce, s=is_signed: (
            ref().load(tcgen05.TMEM_NATIVE_LAYOUT, is_signed=s, reduce=r)
        )
      yield f"load {name}", lambda ref=ref, s=is_signed: ref().load(is_signed=s)
      for first, width in ((0, 4), (8, 8), (16, 16), (32, 32), (64, 64)):
        if first + width <= columns:
          index = slice(None), mgpu.ds(first, width)
          yield f"slice {name} {first}:{first + width}", (
              lambda ref=ref, index=index: ref().slice(*index)
          )


def _copies() -> Iterator[tuple[str, Callable[[], Any]]]:
  """Copies from SMEM to TMEM, by name."""
  ir_type = mgpu.utils.dtype_to_ir_type
  for dtype, rows, columns, swizzle, collective in itertools.product(
      (jnp.float32, jnp.float16, E4M3, jnp.int8, E2M1),
      (64, 128, 256), (32, 64, 128, 256), (16, 32, 64, 128), (False, True),
  ):
    def copy(
        dtype=dtype, shape=(rows, columns), swizzle=swizzle,
        collective=collective,
    ):
      bits = test_util._bits(dtype)
      tile = mgpu.tile_shape(shape, (8, 8 * swizzle // bits))
      layout = tcgen05.tmem_default_layout(32 // bits)
      tcgen05.async_copy_smem_to_tmem(
          test_util.smem_ref(tile, ir_type(dtype)),
          test_util.tmem_ref(shape, ir_type(dtype), layout),
          swizzle, collective=collective,
      )

    yield (
        f"copy {dtype.__name__} {(rows, columns)} swizzle={swizzle}"
        f" collective={collective}",
        copy,
    )
  for rows, columns, collective in itertools.product(
      (128, 256, 384, 512), (4, 8, 16, 64), (False, True)
  ):
    def copy_scales(shape=(rows, columns), collective=collective):
      tile = (shape[0] // 128, shape[1] // 4, 32, 16)
      tcgen05.async_copy_scales_smem_to_tmem(
          test_util.smem_ref(tile, ir_type(E8M0)),
          test_util.tmem_ref(shape, ir_type(E8M0), tcgen05.scales_layout()),
          collective=collective,
      )

    def copy_metadata(shape=(rows, columns), collective=collective):
      i2 = ir.IntegerType.get_signless(2)
      tile = (shape[0] // 128, shape[1], 128, 64)
      shape = (shape[0], shape[1] * 64)
      tcgen05.async_copy_sparse_metadata_smem_to_tmem(
          test_util.smem_ref(tile, i2),
          test_util.tmem_ref(shape, i2, tcgen05.sparse_meta_layout()),
          collective=collective,
      )

    what = f"{(rows, columns)} collective={collective}"
    yield f"copy scales {what}", copy_scales
    yield f"copy metadata {what}", copy_metadata


def _further_calls() -> Iterator[tuple[str, Callable[[], Any]]]:
  """Calls with operands that are not what `Matmul` makes, by name."""
  i2 = ir.IntegerType.get_signless
  matmul = Matmul(128, 64, 256)
  for layout in (tcgen05.sparse_meta_layout, tcgen05.tmem_default_layout):
    def call(layout=layout):
      types = matmul.smem_types()
      f16 = mgpu.utils.dtype_to_ir_type(jnp.float16)
      metadata = test_util.tmem_ref(
          (128, 128), i2(2),
          layout() if layout is tcgen05.sparse_meta_layout else layout(16),
      )
      tcgen05.mma(
          test_util.tmem_ref((128, 64), ir.F32Type.get()),
          test_util.smem_ref(types["a"].shape, f16),
          test_util.smem_ref(types["b"].shape, f16),
          a_sparse_metadata=metadata, accumulate=False,
      )

    yield f"mma metadata with {layout.__name__}", call


@dataclasses.dataclass(frozen=True)
class Call:
  """A call that emits code.

  Attributes:
    kind: What it is, e.g. "mma dense".
    emit: Emits the code.
    matmul: The call of tcgen05.mma, if it is one.
    what: What is special about it.
  """

  kind: str
  emit: Callable[[], Any]
  matmul: Matmul | None = None
  what: str = ""

  def __str__(self) -> str:
    return f"{self.kind} {self.what or _describe(self.matmul)}"


def calls() -> Iterator[Call]:
  """All calls that are compared."""
  for matmul in matmuls():
    kind = (
        f"mma {'sparse' if matmul.sparse else 'dense'}"
        f"{' scaled' if matmul.scale_dtype is not None else ''}"
        f"{' A in TMEM' if matmul.a_in_tmem else ''}"
    )
    yield Call(kind, functools.partial(_call, matmul), matmul)
  for what, emit in itertools.chain(
      _tmem_uses(), _copies(), _further_calls()
  ):
    kind, what = what.split(" ", 1)
    yield Call(kind, emit, what=what)


def _returned(result) -> list[ir.Value]:
  """The values that the result of a call consists of."""
  if isinstance(result, tuple):
    return [value for part in result for value in _returned(part)]
  if isinstance(result, fa.FragmentedArray):
    return list(result.registers.flat)
  if isinstance(result, tcgen05.TMEMRef):
    return [result.address]
  return []


def trace(emit: Callable[[], Any]) -> dict[str, str]:
  """Returns the code that a function emits, or its error."""
  module = ir.Module.create()
  with ir.InsertionPoint(module.body):
    # The function is called while its code goes to the module.
    try:
      values = _returned(emit())
    # Refusals are of many types.
    except Exception as e:  # pylint: disable=broad-exception-caught
      return {"error": f"{type(e).__name__}: {str(e).splitlines()[:1]}"}
    # What is returned is used, and in this order.
    if values:
      ir.Operation.create("test.use", operands=values)
  _simplify(module)
  return {"code": str(module)}


def _simplify(module: ir.Module) -> None:
  """Folds constants, so that adding zero to an address makes no difference."""
  passes = "builtin.module(canonicalize,cse)"
  passmanager.PassManager.parse(passes).run(module.operation)


def kernels() -> Iterator[tuple[str, Callable[[], tuple[Any, ...]]]]:
  """Kernels by name: functions that return one and its argument types."""
  struct = jax.ShapeDtypeStruct
  f32, f16 = jnp.float32, jnp.float16
  layout = tcgen05.tmem_default_layout
  semantics = mgpu.LoweringSemantics
  scales, metadata = tcgen05.scales_layout, tcgen05.sparse_meta_layout
  for name, *args in (
      ("one", ((128, 64), f32, {})),
      ("collective", ((128, 64), f32, {"collective": True})),
      ("packed", ((128, 64), f16, {"packing": 2})),
      ("16-bit accumulator", ((128, 64), f16, {"layout": layout})),
      ("M=64", ((64, 64), f32, {})),
      (
          "largest first", ((128, 256), f32, {}),
          ((128, 64), f16, {"packing": 2}), ((128, 32), f32, {}),
      ),
      ("smallest first", ((128, 32), f32, {}), ((128, 256), f32, {})),
      ("scales", ((128, 32), E8M0, {"layout": scales})),
      ("scales of 256 rows", ((256, 32), E8M0, {"layout": scales})),
      ("metadata", ((128, 512), jnp.uint2, {"layout": metadata})),
  ):
    for sem in (semantics.Lane, semantics.Warpgroup):
      def alloc(args=args, sem=sem):
        with mlir.make_ir_context(), ir.Location.unknown():
          allocs = [
              mgpu.TMEM(shape, dtype, **{
                  name: value() if name == "layout" else value
                  for name, value in kwargs.items()
              })
              for shape, dtype, kwargs in args
          ]
        cluster = (1 + any(a.collective for a in allocs), 1, 1)

        def body(ctx, out, scratch):
          del ctx, out, scratch

        kernel = test_util.as_gpu_kernel(
            body, cluster, (128, 1, 1), (), struct((1,), jnp.int32), allocs,
            thread_semantics=sem, cluster=cluster,
        )
        return (kernel,)

      yield f"alloc {name} {sem.name}", alloc
  for sparse, dtype in ((False, f32), (True, f32), (False, f16)):
    def allocate_and_use(sparse=sparse, dtype=dtype):
      def body(ctx, out, scratch):
        del ctx, out
        a, b, acc, *metadata = scratch
        mgpu.dialect.tcgen05_mma(
            acc, a, b,
            accumulate=arith.constant(ir.IntegerType.get_signless(1), 0),
            **({"a_sparse_metadata": metadata[0]} if sparse else {}),
        )

      k = 256 if sparse else 128
      allocs = [struct((128, 128), f16), struct((k, 128), f16)]
      allocs += [mgpu.TMEM((128, 128), dtype)]
      if sparse:
        allocs += [mgpu.TMEM((128, k // 2), jnp.uint2)]
      kernel = test_util.as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), (), struct((1,), jnp.int32), allocs,
          thread_semantics=semantics.Warpgroup,
      )
      return (kernel,)

    kind = "sparse" if sparse else "dense"
    yield f"mma Warpgroup {kind} {dtype.__name__}", allocate_and_use
  for rows, dtype, packing, regs in (
      (128, f32, 1, "LAYOUT"),
      (128, f32, 1, "TMEM_NATIVE_LAYOUT"),
      (128, f16, 1, "LAYOUT"),
      (128, f16, 1, "TMEM_NATIVE_LAYOUT"),
      (128, f16, 2, "LAYOUT"),
      (64, f32, 1, "WGMMA_LAYOUT"),
      (64, f16, 2, "WGMMA_LAYOUT"),
  ):
    def copy(rows=rows, dtype=dtype, packing=packing, regs=regs):
      ty = struct((rows, 64), dtype)
      regs = getattr(fa if rows == 64 else tcgen05, regs)

      def body(ctx, x, out, tmem):
        del ctx
        tmem.store(
            fa.FragmentedArray.load_untiled(x, layout=regs, optimized=False)
        )
        tcgen05.commit_tmem()
        tmem.load(regs).store_untiled(out, optimized=False)

      alloc = mgpu.TMEM(ty.shape, dtype, packing=packing)
      kernel = test_util.as_gpu_kernel(
          body, (1, 1, 1), (128, 1, 1), ty, ty, alloc
      )
      return kernel, ty

    yield f"store and load {rows} {dtype.__name__} {packing} {regs}", copy
  # JAX's own kernels.
  for collective, tile_n, dtype in itertools.product(
      (False, True), (64, 128), (f16, jnp.bfloat16)
  ):
    def matmul(collective=collective, tile_n=tile_n, dtype=dtype):
      config = blackwell_matmul_mgpu.TuningConfig(
          tile_m=128, tile_n=tile_n, tile_k=64, max_concurrent_steps=2,
          collective=collective,
      )
      fn = functools.partial(blackwell_matmul_mgpu.matmul_kernel, config=config)
      return fn, struct((512, 256), dtype), struct((256, 512), dtype)

    yield f"Pallas matmul {collective} {tile_n} {dtype.__name__}", matmul

  def ragged_dot():
    config = blackwell_ragged_dot_mgpu.TuningConfig(
        tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=2,
        collective=True, grid_tile_width=1,
        grid_minor_dim=blackwell_matmul_mgpu.MatmulDimension.N,
    )

    def fn(*args):
      # It asks for the number of SMs.
      device = types.SimpleNamespace(core_count=148)
      with mock.patch.object(jax, "local_devices", lambda: [device]):
        return blackwell_ragged_dot_mgpu.ragged_dot_kernel(*args, config)

    return (
        fn, struct((512, 256), f16), struct((4, 256, 512), f16),
        struct((4,), jnp.int32),
    )

  yield "Pallas ragged dot", ragged_dot


def compile_ptx(kernel, *arg_types) -> str:
  """Compiles a function that calls a kernel of Pallas."""
  # pylint: disable=protected-access
  with deviceless.as_blackwell(), deviceless._dumps() as folder:
    sharding = deviceless._sharding()
    jitted = jax.jit(kernel, in_shardings=sharding, out_shardings=sharding)
    jitted.trace(*arg_types).lower().compile()
    [path] = folder.glob("*.ptx")
    return path.read_text()


def normalize(ptx: str) -> str:
  """Drops what says nothing: comments, locations, the numbers of registers."""
  ptx = re.sub(r"//.*", "", ptx)
  ptx = re.sub(r"(?m)^\s*\.(loc|file|reg)\b.*$", "", ptx)
  numbers: dict[str, str] = {}

  def number(match):
    prefix = match[1]
    return numbers.setdefault(match[0], f"{prefix}#{len(numbers)}")

  ptx = re.sub(r"(%[a-z]+|\$L_\w*?)(\d+)\b", number, ptx)
  return "\n".join(line.strip() for line in ptx.splitlines() if line.strip())


def _ptx(
    make: Callable[[], tuple[Any, ...]], pallas: bool = False
) -> dict[str, str]:
  try:
    if pallas:
      return {"code": normalize(compile_ptx(*make()))}
    return {"code": normalize(deviceless.compile_kernel(*make()).ptx)}
  except Exception as e:  # pylint: disable=broad-exception-caught
    return {"error": f"{type(e).__name__}: {str(e).splitlines()[:1]}"}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("deviceless", type=pathlib.Path)
  parser.add_argument("out", type=pathlib.Path)
  parser.add_argument("--stride", type=int, default=1, help="one call of these")
  parser.add_argument("--calls", type=json.loads, help="calls to write in full")
  parser.add_argument("--kernels", type=json.loads, help="calls to compile")
  parser.add_argument("--all-kernels", action="store_true")
  args = parser.parse_args()
  results = {}
  if args.kernels is not None:
    chosen = set(args.kernels)
    for i, call in enumerate(calls()):
      if i in chosen:
        matmul = call.matmul
        results[f"kernel of {call}"] = _ptx(
            lambda m=matmul: (m.kernel(), *m.arg_types())
        )
    for name, make in kernels():
      if args.all_kernels or not name.startswith("Pallas"):
        results[name] = _ptx(make, name.startswith("Pallas"))
  else:
    with mlir.make_ir_context() as context, ir.Location.unknown():
      context.allow_unregistered_dialects = True
      for i, call in enumerate(calls()):
        if args.calls is None:
          if i % args.stride:
            continue
          result = trace(call.emit)
          if "code" in result:
            code = result["code"].encode()
            result["code"] = hashlib.sha256(code).hexdigest()
        elif i in args.calls:
          result = trace(call.emit)
        else:
          continue
        results[i] = result | {
            "kind": call.kind,
            "name": str(call),
            # Whether a kernel can be made of it.
            "fits": call.matmul is not None and _fits(call.matmul),
        }
  args.out.write_text(json.dumps(results))


def _fits(matmul: Matmul) -> bool:
  bits = sum(
      math.prod(ty.shape) * test_util._bits(ty.dtype)
      for ty in matmul.operand_types().values()
  )
  try:
    matmul.columns()
  except ValueError:
    return False
  return bits / 8 < 220 * 1024


if __name__ == "__main__":
  main()
