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
from jax.experimental.mosaic.gpu import deviceless
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
import jax.numpy as jnp

Semantics = plgpu.LoweringSemantics
SEMANTICS = (Semantics.Lane, Semantics.Warpgroup)

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
store = functools.partial(plgpu.store, optimized=False)


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
        kwargs = {}
        if self.collective:
          split = self.split_axis(name)
          kwargs["collective_axes"] = axis
          kwargs["leader_tracked"] = (
              plgpu.CopyPartition.REPLICATED
              if split is None
              else plgpu.CopyPartition.PARTITIONED(split)
          )
        plgpu.copy_gmem_to_smem(src, smem[name], loaded, **kwargs)
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

    ctas = {}
    if self.collective:
      ctas = dict(cluster=(2,), cluster_names=(axis,))
    scratch = [
        self.smem_refs(),
        plgpu.Barrier(num_arrivals=len(names)),
        plgpu.Barrier(orders_tensor_core=True),
        self.tmem_scratch(),
    ]
    out_type = jax.ShapeDtypeStruct(
        (self.m * self.num_cta, self.n * self.num_cta), self.acc_dtype
    )
    return jax.jit(kernel(body, out_type, scratch, self.semantics, **ctas))

  def issue_in(self, smem, tmem, done, axis: str | None):
    """Issues the copies to TMEM and the call."""
    kwargs = {}
    if self.sparse:
      plgpu.async_copy_sparse_metadata_to_tmem(
          smem["metadata"], tmem["metadata"], collective_axis=axis
      )
      kwargs["a_sparse_metadata"] = tmem["metadata"]
    if self.scale_dtype is not None:
      for name in ("a_scale", "b_scale"):
        plgpu.async_copy_scales_to_tmem(
            smem[name], tmem[name], collective_axis=axis
        )
        kwargs[name] = tmem[name]
    a, b = smem["a"], smem["b"]
    if not self.a_k_major:
      a = a.transpose((1, 0))
    if self.b_k_major:
      b = b.transpose((1, 0))
    if self.a_in_tmem:
      plgpu.async_copy_smem_to_tmem(a, tmem["a"], collective_axis=axis)
      a = tmem["a"]
    plgpu.tcgen05_mma(
        tmem["d"], a, b, accumulate=False, collective_axis=axis, **kwargs
    )
    plgpu.tcgen05_commit_arrive(done, collective_axis=axis)

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
