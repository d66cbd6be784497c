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
"""Pallas kernels of one ``tcgen05_mma`` call."""

from __future__ import annotations

import dataclasses
import functools

import gpu_tiles_test_util as test_util
import jax
from jax import lax
from jax._src import dtypes
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

Semantics = plgpu.LoweringSemantics
SEMANTICS = (Semantics.Lane, Semantics.Warpgroup)
# What interpret mode says of a missing wait.
RACE = "RACE DETECTED"

run = test_util.run


def kernel(body, out_type, scratch_types, semantics, **kwargs):
  """``plgpu.kernel`` with the given lowering semantics."""
  return plgpu.kernel(
      body,
      out_type=out_type,
      scratch_types=scratch_types,
      compiler_params=plgpu.CompilerParams(lowering_semantics=semantics),
      **kwargs,
  )


def lower(kernel, *args) -> None:
  """Lowers a kernel for a B200, without compiling it."""
  with deviceless.as_blackwell():
    jax.jit(kernel).trace(*args).lower(lowering_platforms=("cuda",))


# In the kernels here, the layout of registers matters more than speed.
store = test_util.store


def row_tiles(rows: int) -> list[slice]:
  return [slice(row, row + 128) for row in range(0, rows, 128)]


def smem_transforms(dtype, swizzle: int):
  tiling = (8, 8 * swizzle // dtypes.itemsize_bits(dtype))
  return (plgpu.TilingTransform(tiling), plgpu.SwizzleTransform(swizzle))


@dataclasses.dataclass(frozen=True)
class Matmul(test_util.Matmul):
  """A matmul that is done by one tcgen05_mma call in a Pallas kernel.

  Attributes:
    semantics: The lowering semantics.
    in_warp: Whether a single warp issues the copies and the call.
    read: How D is read: "row_tiles" one by one, in a "loop" over them, in a
      loop over them and by their "column_halves", or as a "whole".
  """

  semantics: Semantics = Semantics.Lane
  in_warp: bool = False
  read: str = "row_tiles"

  def kernel(self):
    names = list(self.operand_types())
    axis = "x" if self.collective else None

    def body(*refs):
      *inputs, out, smem, loaded, done, tmem = refs
      for name, src in zip(names, inputs, strict=True):
        plgpu.copy_gmem_to_smem(
            src, smem[name], loaded, **self.copy_kwargs(name, axis)
        )
      cta = lax.axis_index(axis) if self.collective else 0

      def issue():
        plgpu.barrier_wait(loaded)
        if self.in_warp:

          @plgpu.warp_map
          def _(warp):
            pl.when(warp == 0)(lambda: self.issue_in(smem, tmem, done, axis))

        else:
          self.issue_in(smem, tmem, done, axis)

      if self.collective:
        pl.when(cta == 0)(issue)
      else:
        issue()
      plgpu.barrier_wait(done)
      self.read_to(out.at[pl.ds(cta * self.m, self.m)], tmem["d"])

    scratch = [
        self.smem_refs(),
        plgpu.Barrier(num_arrivals=len(names)),
        plgpu.Barrier(orders_tensor_core=True),
        self.tmem_scratch(),
    ]
    return jax.jit(
        kernel(
            body, self.out_type, scratch, self.semantics, **self.cluster(axis)
        )
    )

  def cluster(self, axis: str | None):
    """Arguments of a kernel for its cluster."""
    return {} if axis is None else dict(cluster=(2,), cluster_names=(axis,))

  def copy_kwargs(self, name: str, axis: str | None):
    """Arguments of the copy of an operand to SMEM."""
    if axis is None:
      return {}
    split = self.split_axis(name)
    partition = plgpu.CopyPartition.REPLICATED
    if split is not None:
      partition = plgpu.CopyPartition.PARTITIONED(split)
    return dict(collective_axes=axis, leader_tracked=partition)

  def check_interpreted(self, test, seed: int = 0) -> None:
    """Runs the kernel in GPU interpret mode, which looks for races."""
    args, a, b = self.random_args(np.random.default_rng(seed))
    params = plgpu.InterpretGPUParams(detect_races=True)
    try:
      with plgpu.force_gpu_interpret_mode(params):
        result = np.asarray(self.kernel()(*args))
    finally:
      gpu_callbacks.reset_gpu_interpret_mode_state()
    self.assert_close(test, result, a @ b)

  def check_race(self, test, expected: bool, regex: str = RACE) -> None:
    """Checks that interpret mode reports a race if, and only if, expected."""
    if expected:
      with test.assertRaisesRegex(Exception, regex):
        self.check_interpreted(test)
    else:
      self.check_interpreted(test)

  def issue_in(self, smem, tmem, done, axis: str | None):
    """Issues the copies to TMEM, the call and its commit."""
    self.copy_to_tmem(smem, tmem, axis)
    self.call(smem, tmem, False, axis)
    plgpu.tcgen05_commit_arrive(done, collective_axis=axis)

  def copy_to_tmem(self, smem, tmem, axis: str | None = None):
    for name in tmem:
      if name != "d":
        self.copy_operand(name, smem, tmem, axis)

  def copy_operand(self, name, smem, tmem, axis: str | None = None):
    copy = {
        "a": plgpu.async_copy_smem_to_tmem,
        "metadata": plgpu.async_copy_sparse_metadata_to_tmem,
    }.get(name, plgpu.async_copy_scales_to_tmem)
    src = smem[name]
    if name == "a" and not self.a_k_major:
      src = src.transpose((1, 0))
    copy(src, tmem[name], collective_axis=axis)

  def call(self, smem, tmem, accumulate, axis: str | None = None):
    a, b = smem["a"], smem["b"]
    if not self.a_k_major:
      a = a.transpose((1, 0))
    if self.b_k_major:
      b = b.transpose((1, 0))
    plgpu.tcgen05_mma(
        tmem["d"],
        tmem["a"] if self.a_in_tmem else a,
        b,
        a_sparse_metadata=tmem.get("metadata"),
        a_scale=tmem.get("a_scale"),
        b_scale=tmem.get("b_scale"),
        accumulate=accumulate,
        collective_axis=axis,
    )

  def read_to(self, out, d):
    if self.read == "whole":
      store(out, plgpu.async_load_tmem(d))
    elif self.read == "row_tiles":
      for rows in row_tiles(self.m):
        store(out.at[rows], plgpu.async_load_tmem(d.at[rows]))
    else:
      halves = 2 if self.read == "column_halves" else 1
      n = self.n * self.num_cta // halves

      @pl.loop(0, self.m // 128)
      def _(i):
        for half in range(halves):
          part = (pl.ds(i * 128, 128), pl.ds(half * n, n))
          store(out.at[part], plgpu.async_load_tmem(d.at[part]))

  def smem_refs(self):
    swizzles = {"a": self.a_swizzle, "b": self.b_swizzle}
    return {
        name: plgpu.SMEM(
            ty.shape,
            ty.dtype,
            transforms=smem_transforms(ty.dtype, swizzles[name])
            if name in swizzles
            else (),
        )
        for name, ty in self.operand_types().items()
    }

  def tmem_scratch(self):
    tmem = functools.partial(plgpu.TMEM, collective=self.collective)
    layouts = plgpu.TMEMLayout
    refs = {
        "d": tmem((self.m, self.n * self.num_cta), self.acc_dtype, packed=False)
    }
    if self.sparse:
      refs["metadata"] = tmem(
          (self.m, self.entries), jnp.uint2,
          layout=layouts.SPARSE_METADATA_LAYOUT,
      )
    if self.a_in_tmem:
      refs["a"] = tmem((self.m, self.a_k), self.dtypes[0], packed=True)
    if self.scale_dtype is not None:
      for name in ("a_scale", "b_scale"):
        rows = self.operand_types()[name].shape[0] * 128
        refs[name] = tmem(
            (rows, self.scales), self.scale_dtype, layout=layouts.SCALES_LAYOUT
        )
    return refs


@dataclasses.dataclass(frozen=True)
class Pipeline(Matmul):
  """A matmul in steps along K, each with a stage of SMEM and TMEM.

  Attributes:
    steps: The number of steps.
    stages: The number of stages.
    unawaited: Operand that is used before its copy to SMEM was awaited.
    early: Operand whose stage in SMEM is overwritten too early.
    one_stage: Operand of which all steps take the first stage in TMEM.
    read_early: Whether the accumulator is read before the last MMA is done.
  """

  steps: int = 3
  stages: int = 2
  unawaited: str | None = None
  early: str | None = None
  one_stage: str | None = None
  read_early: bool = False

  def kernel(self):
    fields = [field.name for field in dataclasses.fields(Matmul)]
    one = Matmul(**{name: getattr(self, name) for name in fields})
    one = dataclasses.replace(one, k=self.k // self.steps)
    step_types = one.operand_types()
    names = list(step_types)
    axis = "x" if self.collective else None

    def body(*refs):
      *inputs, out, smem, loaded, consumed, d, tmem = refs
      inputs = dict(zip(names, inputs, strict=True))
      cta = lax.axis_index(axis) if self.collective else 0

      def load(name, step):
        # All operands are split along K.
        k_axis = 0 if name == "b" and not self.b_k_major else 1
        size = step_types[name].shape[k_axis]
        index = (slice(None),) * k_axis + (pl.ds(step * size, size),)
        stage = step % self.stages
        plgpu.copy_gmem_to_smem(
            inputs[name].at[index],
            smem[stage][name],
            loaded[name].at[stage],
            **self.copy_kwargs(name, axis),
        )

      def issue(step):
        stage = step % self.stages
        for name in names:
          if name != self.unawaited:
            plgpu.barrier_wait(loaded[name].at[stage])
        operands = dict(tmem[stage], d=d)
        if self.one_stage:
          operands[self.one_stage] = tmem[0][self.one_stage]
        one.copy_to_tmem(smem[stage], operands, axis)
        one.call(smem[stage], operands, step > 0, axis)
        plgpu.tcgen05_commit_arrive(consumed.at[stage], collective_axis=axis)

      for step in range(self.steps):
        if self.early:
          load(self.early, step)
        if step >= self.stages:
          plgpu.barrier_wait(consumed.at[step % self.stages])
        for name in names:
          if name != self.early:
            load(name, step)
        if self.collective:
          pl.when(cta == 0)(functools.partial(issue, step))
        else:
          issue(step)
      read = lambda: self.read_to(out.at[pl.ds(cta * self.m, self.m)], d)
      if self.read_early:
        read()
      for step in range(self.steps - self.stages, self.steps):
        plgpu.barrier_wait(consumed.at[step % self.stages])
      read()

    tmem = [one.tmem_scratch() for _ in range(self.stages)]
    d = [refs.pop("d") for refs in tmem][0]
    barrier = functools.partial(plgpu.Barrier, num_barriers=self.stages)
    scratch = [
        [one.smem_refs() for _ in range(self.stages)],
        {name: barrier() for name in names},
        barrier(orders_tensor_core=True),
        d,
        tmem,
    ]
    return jax.jit(
        kernel(
            body, self.out_type, scratch, self.semantics, **self.cluster(axis)
        )
    )
