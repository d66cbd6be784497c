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
"""Kernels whose waits the tests remove, compiled once each."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith
from jax.experimental.pallas.ops.gpu import (
  blackwell_matmul_mgpu,
  blackwell_ragged_dot_mgpu,
)

import jax
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import fragmented_array as fa
from jax.experimental.mosaic.gpu import simulator, sparsity, tcgen05
from jax.experimental.mosaic.gpu.examples import sparse_matmul_blackwell
from jax.experimental.mosaic.gpu.examples import sparse_mma_tiles_blackwell
from jax.experimental.mosaic.gpu.simulator import errors, launch, observers
from jax.experimental.mosaic.gpu.simulator.races import Races

# The kernels of the series' tests are in the folder above.
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import gpu_tiles_test_util as test_util  # noqa: E402  pylint: disable=g-import-not-at-top


@dataclasses.dataclass
class Kernel:
  """A compiled kernel and the arguments to run it with.

  Attributes:
    program: the compiled kernel.
    args: its arguments.
    expected: its results as bytes.
    num_sms: CTAs at a time.
    last_stores: whether it must wait for its last stores.
  """

  program: launch.Program
  args: tuple[np.ndarray, ...]
  expected: list[bytes]
  num_sms: int
  last_stores: bool = False

  @property
  def ptx(self) -> str:
    return self.program.kernel.ptx

  def run(
      self, order: Any = "eager", ptx: str | None = None, check: bool = True
  ) -> list[bytes]:
    """Runs the kernel, with other PTX if given; returns its results."""
    program = self.program
    if ptx is not None:
      kernel = dataclasses.replace(program.kernel, ptx=ptx)
      program = launch.Program(
          kernel, program.in_types, program.out_types, program.aliases
      )
    checkers = [observers.UnwrittenReads(), observers.TmemRules()]
    if check:
      checkers.append(Races(last_stores=self.last_stores))
    results, _ = program.run(
        self.args, observers=checkers, order=order, num_sms=self.num_sms
    )
    return [np.ascontiguousarray(r).tobytes() for r in results]

  def problem(self, order: Any, ptx: str) -> str | None:
    """What a run of other PTX is reported as, None if it passes."""
    try:
      results = self.run(order, ptx)
    except errors.SimulationError as e:
      return f"{type(e).__name__}: {e}"
    return None if results == self.expected else "wrong results, no report"


def _kernel(
    call: Callable[..., Any], *args, num_sms: int = launch.NUM_SMS,
    repair: Callable[[str], str] | None = None,
) -> Kernel:
  with simulator.simulate(num_sms=num_sms) as simulation:
    jax.block_until_ready(call(*args))
  program = simulation.runs[-1].program
  if repair is not None:
    kernel = dataclasses.replace(
        program.kernel, ptx=repair(program.kernel.ptx)
    )
    program = launch.Program(
        kernel, program.in_types, program.out_types, program.aliases
    )
  result = Kernel(program, tuple(map(np.asarray, args)), [], num_sms)
  result.expected = result.run(check=False)
  return result


def _matmul(**kwargs) -> Kernel:
  matmul = test_util.Matmul(**kwargs)
  args = matmul.random_args(np.random.default_rng(0))[0]
  return _kernel(lambda *args: matmul.kernel()(*args), *args)


def _row_tiles() -> Kernel:
  """Stores two row tiles to tensor memory and loads them again."""
  shape = (256, 64)

  def body(ctx, x, out, scratch):
    del ctx
    tmem = tcgen05.TMEMRef(
        scratch.slice(slice(None), slice(32, 512)).address, shape,
        ir.F32Type.get(), tcgen05.tmem_default_layout(),
    )
    value = fa.FragmentedArray.load_untiled(
        x, layout=tcgen05.LAYOUT, optimized=False
    )
    tmem.store(value)
    tcgen05.commit_tmem()
    tmem.load(tcgen05.LAYOUT).store_untiled(out, optimized=False)

  x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
  ty = jax.ShapeDtypeStruct(shape, jnp.float32)
  kernel = lambda x: test_util.as_gpu_kernel(
      body, (1, 1, 1), (128, 1, 1), ty, ty,
      mgpu.TMEM((128, 512), jnp.float32),
  )(x)
  return _kernel(kernel, x)


def _example() -> Kernel:
  example = sparse_mma_tiles_blackwell
  p = example.Problem(256, 64, 128, jnp.float16)
  rng = np.random.default_rng(2)
  a = rng.integers(-8, 9, (p.m, p.k)).astype(p.dtype)
  b = rng.integers(-8, 9, (p.k, p.n)).astype(p.dtype)
  values, positions = sparsity.compress(a)
  metadata = plgpu.format_tcgen05_sparse_metadata(positions, p.dtype)
  call = lambda *args: example.make_kernel(p)(*args)
  return _kernel(call, values, metadata, b)


def _pipeline() -> Kernel:
  """A matmul of two output tiles, pipelined over K.

  One warp copies A and B to two stages of shared memory in turns, one issues
  the MMAs, and a warpgroup moves the accumulator, which both tiles share, from
  tensor to global memory.
  """
  m, n, k, tile_k, stages = 128, 64, 256, 64, 2
  tiles, steps = 2, k // tile_k
  swizzle = 128
  a_tiling = b_tiling = (8, 64)

  def body(ctx, a, b, out, scratch):
    a_smem, b_smem, full, empty, done, free, acc = scratch
    index = ir.IndexType.get()
    constant = lambda value: arith.constant(index, value)
    i32 = ir.IntegerType.get_signless(32)
    warp = mgpu.warp_idx(sync=True)

    def is_warp(number):
      other = arith.constant(i32, number)
      equal = arith.cmpi(arith.CmpIPredicate.eq, warp, other)
      leader = mgpu.single_thread_predicate(mgpu.ThreadSubset.WARP)
      return arith.andi(equal, leader)

    with mgpu.when(is_warp(0)):
      for tile in range(tiles):
        for step in range(steps):
          slot = step % stages
          if tile * steps + step >= stages:
            empty[slot].wait()
          full[slot].arrive_expect_tx((m + n) * tile_k * 2)
          where = mgpu.ds(constant(step * tile_k), tile_k)
          options = dict(
              swizzle=swizzle, barrier=full[slot], arrive=False, predicate=None
          )
          ctx.async_copy(
              src_ref=a, dst_ref=mgpu.memref_slice(a_smem, slot),
              gmem_slice=(mgpu.ds(constant(tile * m), m), where),
              gmem_transform=mgpu.TileTransform(a_tiling), **options,
          )
          ctx.async_copy(
              src_ref=b, dst_ref=mgpu.memref_slice(b_smem, slot),
              gmem_slice=(where, mgpu.ds(constant(0), n)),
              gmem_transform=mgpu.TileTransform(b_tiling), **options,
          )
    with mgpu.when(is_warp(1)):
      for tile in range(tiles):
        if tile:
          free.wait(orders_tensor_core=True)
        for step in range(steps):
          slot = step % stages
          full[slot].wait()
          tcgen05.mma(
              acc, mgpu.memref_slice(a_smem, slot),
              mgpu.memref_slice(b_smem, slot), a_swizzle=swizzle,
              b_swizzle=swizzle, accumulate=step > 0,
          )
          tcgen05.commit_arrive(empty[slot])
        tcgen05.commit_arrive(done)
    is_second = arith.cmpi(
        arith.CmpIPredicate.sge, warp, arith.constant(i32, 4)
    )
    with mgpu.when(is_second):
      for tile in range(tiles):
        done.wait(orders_tensor_core=True)
        value = acc.load()
        value.store_untiled(
            mgpu.memref_slice(out, mgpu.ds(constant(tile * m), m)),
            optimized=False,
        )
        if tile + 1 < tiles:
          mgpu.utils.inline_ptx("tcgen05.wait::ld.sync.aligned;")
          free.arrive(orders_tensor_core=True)

  struct = jax.ShapeDtypeStruct
  types = struct((tiles * m, k), jnp.float16), struct((k, n), jnp.float16)
  staged = lambda shape, tiling: struct(
      (stages, *mgpu.tile_shape(shape, tiling)), jnp.float16
  )
  scratch = [
      staged((m, tile_k), a_tiling),
      staged((tile_k, n), b_tiling),
      mgpu.Barrier(1, num_barriers=stages),
      mgpu.Barrier(1, num_barriers=stages),
      mgpu.Barrier(1),
      mgpu.Barrier(128),
      mgpu.TMEM((m, n), jnp.float32),
  ]
  rng = np.random.default_rng(3)
  args = [rng.integers(-4, 5, t.shape).astype(t.dtype) for t in types]
  kernel = lambda *args: test_util.as_gpu_kernel(
      body, (1, 1, 1), (256, 1, 1), types,
      struct((tiles * m, n), jnp.float32), scratch,
  )(*args)
  result = _kernel(kernel, *args)
  expected = args[0].astype(np.float32) @ args[1].astype(np.float32)
  assert result.expected == [expected.tobytes()]
  return result


def _sparse_matmul(m, n, k, config, num_sms, scaled=False, **kwargs) -> Kernel:
  """The sparse matmul.

  Five tiles for two (pairs of) CTAs and eight or nine steps along K keep the
  compiler from unrolling loops, so that each instruction is there once.
  """
  dtype = jnp.float8_e4m3fn if scaled else jnp.float16
  rng = np.random.default_rng(6)
  small = lambda *shape: rng.integers(-4, 5, shape).astype(dtype)
  values, positions = sparsity.compress(jnp.asarray(small(m, k)))
  args = (values, positions, small(k, n))
  if scaled:
    block = sparse_matmul_blackwell.SCALE_BLOCK
    scales = lambda *shape: (2.0 ** rng.integers(-2, 3, shape)).astype(
        jnp.float8_e8m0fnu
    )
    kwargs["a_scales"] = scales(m, k // block)
    kwargs["b_scales"] = scales(k // block, n)
  # The kernel gets its operands in other layouts.
  operands = []
  run = launch.Program.run

  def spy(program, args, **kwargs):
    operands.extend(map(np.asarray, args))
    return run(program, args, **kwargs)

  with (
      mock.patch.object(launch.Program, "run", spy),
      simulator.simulate(num_sms=num_sms) as simulation,
  ):
    jax.block_until_ready(
        sparse_matmul_blackwell.sparse_matmul(
            *args, config, out_dtype=jnp.float32, **kwargs
        )
    )
  result = Kernel(
      simulation.runs[-1].program, tuple(operands), [], num_sms,
      last_stores=True,
  )
  result.expected = result.run(check=False)
  return result


# JAX's own kernels.


def _changed(module: types.ModuleType, *changes: tuple[str, str]):
  """A module with some of its text changed."""
  source = inspect.getsource(module)
  for old, new in changes:
    if source.count(old) != 1:
      raise ValueError(f"Expected {old!r} once in {module.__name__}")
    source = source.replace(old, new)
  result = types.ModuleType(module.__name__ + "_changed")
  sys.modules[result.__name__] = result  # For its dataclasses.
  exec(compile(source, module.__file__, "exec"), result.__dict__)
  return result


def _jax_matmul(module=blackwell_matmul_mgpu, collective=False, **kwargs):
  config = blackwell_matmul_mgpu.TuningConfig(
      tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2,
      collective=collective,
  )
  rng = np.random.default_rng(4)
  m = 512 if collective else 256
  a = rng.integers(-4, 5, (m, 256)).astype(np.float16)
  b = rng.integers(-4, 5, (256, 256)).astype(np.float16)
  call = lambda a, b: module.matmul_kernel(a, b, config)
  return _kernel(call, a, b, **kwargs)


def _read_by_whole_warpgroup(ptx: str) -> str:
  """Makes a warpgroup wait for itself before it gives a CLC response back."""
  barrier = (
      ".reg .b32 own_barrier; mov.u32 own_barrier, %tid.x;"
      " shr.u32 own_barrier, own_barrier, 7;"
      " add.s32 own_barrier, own_barrier, 1; bar.sync own_barrier, 128;"
  )
  lines = ptx.splitlines()
  reads = [i for i, line in enumerate(lines) if "get_first_ctaid" in line]
  [read] = reads
  at = next(i for i in range(read, len(lines)) if "mapa." in lines[i])
  lines.insert(at, barrier)
  return "\n".join(lines)


def _jax_collective_matmul() -> Kernel:
  """`blackwell_matmul_mgpu` for CTA pairs, without what is wrong with it."""
  module = _changed(
      blackwell_matmul_mgpu,
      ('thread_axis="wg")', 'thread_axis="wg", cluster_axes=("x",))'),
  )
  return _jax_matmul(
      module, True, num_sms=2, repair=_read_by_whole_warpgroup
  )


def _jax_ragged_dot(module=blackwell_ragged_dot_mgpu) -> Kernel:
  config = blackwell_ragged_dot_mgpu.TuningConfig(
      tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2,
      collective=True, grid_tile_width=1,
      grid_minor_dim=blackwell_matmul_mgpu.MatmulDimension.N,
  )
  rng = np.random.default_rng(5)
  m, k, n, groups = 512, 128, 256, 3
  a = rng.integers(-3, 4, (m, k)).astype(np.float16)
  b = rng.integers(-3, 4, (groups, k, n)).astype(np.float16)
  sizes = np.array([100, 300, 112], np.int32)
  call = lambda *args: module.ragged_dot_kernel(*args, config)
  # Two clusters with several tiles each.
  return _kernel(call, a, b, sizes, num_sms=4)


def _jax_ragged_dot_repaired() -> Kernel:
  return _jax_ragged_dot(
      _changed(
          blackwell_ragged_dot_mgpu,
          (
              "store_done_barrier=plgpu.Barrier(num_arrivals=1",
              "store_done_barrier=plgpu.ClusterBarrier("
              'collective_axes=("x",), num_arrivals=1',
          ),
      )
  )


_FP8 = dict(
    dtype=jnp.float8_e4m3fn, scale_dtype=jnp.float8_e8m0fnu, scale_block=32,
    b_swizzle=64,
)
_Config = sparse_matmul_blackwell.TuningConfig
MAKERS: dict[str, Callable[[], Kernel]] = {
    "dense": lambda: _matmul(m=128, n=64, k=64, sparse=False),
    "sparse": lambda: _matmul(m=256, n=64, k=128),
    "scaled": lambda: _matmul(m=128, n=64, k=128, sparse=False, **_FP8),
    "A in TMEM": lambda: _matmul(
        m=128, n=64, k=128, sparse=False, a_in_tmem=True
    ),
    "pair": lambda: _matmul(m=128, n=64, k=128, collective=True),
    "row tiles": _row_tiles,
    "example": _example,
    "pipeline": _pipeline,
    "sparse matmul": lambda: _sparse_matmul(
        640, 32, 1024, _Config(128, 32, 128, 2, epilogue_tile_n=16), 2
    ),
    "sparse matmul pair": lambda: _sparse_matmul(
        1280, 32, 1024, _Config(128, 16, 128, 2, True, epilogue_tile_n=16), 4
    ),
    "mxfp8 sparse matmul pair": lambda: _sparse_matmul(
        1280, 64, 2304, _Config(128, 32, 256, 2, True), 4, scaled=True,
        lowering_semantics=plgpu.LoweringSemantics.Lane,
    ),
    "JAX matmul": lambda: _jax_matmul(num_sms=1),
    "JAX collective matmul": _jax_collective_matmul,
    "JAX ragged dot": _jax_ragged_dot_repaired,
}
# As JAX ships them, and what is wrong with them.
SHIPPED_WITH_RACES: dict[str, tuple[Callable[[], Kernel], str]] = {
    # matmul_kernel passes no cluster_axes to dynamic_scheduling_loop: both CTAs
    # of a pair issue the multicast try_cancel, each to the other's response.
    "collective matmul": (
        lambda: _jax_matmul(collective=True),
        "write of shared memory .* by clusterlaunchcontrol.try_cancel, and the"
        " earlier write by clusterlaunchcontrol.try_cancel",
    ),
    # store_done_barrier is no ClusterBarrier: the MMA warp of the first CTA
    # does not wait for the second one's loads of the accumulator.
    "ragged dot": (
        _jax_ragged_dot,
        "write of tensor memory .* of CTA .* by tcgen05.mma operand D, and the"
        " earlier read by tcgen05.ld",
    ),
}


@functools.cache
def get(name: str) -> Kernel:
  """A kernel of MAKERS."""
  return MAKERS[name]()


@dataclasses.dataclass(frozen=True)
class Removal:
  """An instruction that a kernel could have been written without.

  Attributes:
    number: its number among those of its kind, from 0.
    kind: what it is, a key of PATTERNS.
    line: its PTX line, from 1.
    text: the instruction.
    lines: indices of all lines that go with it.
  """

  number: int
  kind: str
  line: int
  text: str
  lines: tuple[int, ...]

  @property
  def name(self) -> str:
    return f"{self.kind} {self.number}"


# Everything that waits or orders.
PATTERNS = {
    "mbarrier wait": r"mbarrier\.(try|test)_wait",
    "mbarrier arrive": r"mbarrier\.arrive",
    "bar": r"bar(rier)?\.sync\b|bar\.(red|arrive)",
    "cluster arrive": r"barrier\.cluster\.arrive",
    "cluster wait": r"barrier\.cluster\.wait",
    "commit": r"tcgen05\.commit",
    "wait::ld": r"tcgen05\.wait::ld",
    "wait::st": r"tcgen05\.wait::st",
    "fence::before": r"tcgen05\.fence::before",
    "fence::after": r"tcgen05\.fence::after",
    "commit_group": r"cp\.async\.bulk\.commit_group",
    "wait_group": r"cp\.async\.bulk\.wait_group",
    "proxy fence": r"fence\.proxy|membar\.proxy",
    "init fence": r"fence\.mbarrier_init",
    "fence": r"(?<!tcgen05\.)fence\.(sc|acq)|membar\.(cta|gl|sys)",
}


def removals(ptx: str) -> list[Removal]:
  """All instructions of PATTERNS in a PTX text."""
  result = []
  counts = dict.fromkeys(PATTERNS, 0)
  lines = ptx.splitlines()
  for i, line in enumerate(lines):
    code = line.partition("//")[0]
    for kind, pattern in PATTERNS.items():
      if not re.search(pattern, code):
        continue
      those = [i]
      if "_wait" in code and kind == "mbarrier wait":
        # The loop around it goes with it.
        those += [j for j in range(i + 1, i + 4) if "bra" in lines[j]]
      result.append(
          Removal(
              counts[kind], kind, i + 1, " ".join(code.split()), tuple(those)
          )
      )
      counts[kind] += 1
      break
  return result


def without(ptx: str, *removed: Removal) -> str:
  """The PTX text without some instructions; other lines keep their numbers."""
  lines = ptx.splitlines()
  for removal in removed:
    for i in removal.lines:
      lines[i] = "// removed"
  return "\n".join(lines)
