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
"""Tests of the code that issues the instructions of a ``tcgen05.mma`` call."""

import functools
import re

from absl.testing import absltest
from absl.testing import parameterized
from jax._src.interpreters import mlir
from jax.experimental.mosaic.gpu import tcgen05_issue
import jax.numpy as jnp
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith
from jaxlib.mlir.dialects import llvm
from jaxlib.mlir.dialects import scf

import gpu_tiles_test_util as test_util
import sass_util

Matmul = test_util.Matmul
E4M3, E2M1 = jnp.float8_e4m3fn, jnp.float4_e2m1fn
E8M0 = jnp.float8_e8m0fnu
# What the issue of an MMA may cost: three sums of pairs, and a part of the
# branches.
OTHERS_PER_MMA = 3.1

_CALLS = {
    "f16": Matmul(256, 128, 256),
    "f16_N_tiles": Matmul(128, 384, 128),
    "f16_4_M_tiles": Matmul(512, 96, 256, b_swizzle=64),
    "f16_36_MMAs": Matmul(384, 32, 384, b_swizzle=64),
    "f16_swizzle_64": Matmul(256, 64, 512, a_swizzle=64),
    "f16_collective": Matmul(256, 64, 512, collective=True),
    "f16_A_in_TMEM": Matmul(256, 128, 256, a_in_tmem=True),
    "f16_argument": Matmul(256, 128, 256, accumulate="argument"),
    "f16_dense": Matmul(256, 128, 256, sparse=False),
    "f16_dense_512": Matmul(128, 512, 128, sparse=False),
    "f16_dense_A_in_TMEM": Matmul(256, 128, 256, sparse=False, a_in_tmem=True),
    "int8": Matmul(256, 128, 512, dtype=jnp.int8, acc_dtype=jnp.int32),
    "fp8": Matmul(512, 96, 512, dtype=E4M3, b_swizzle=32),
    "mxfp8": Matmul(
        256, 192, 512, dtype=E4M3, b_swizzle=64, scale_dtype=E8M0,
        scale_block=64,
    ),
    "mxfp8_dense": Matmul(
        256, 128, 256, dtype=E4M3, sparse=False, scale_dtype=E8M0,
        scale_block=32,
    ),
    "mxfp4": Matmul(
        256, 128, 512, dtype=E2M1, b_k_major=True, scale_dtype=E8M0,
        scale_block=64,
    ),
    # The most instructions that need no branches, and the fewest that do.
    "f16_12_MMAs": Matmul(384, 128, 128),
    "f16_A_in_TMEM_8_MMAs": Matmul(256, 128, 128, a_in_tmem=True),
    "mxfp8_8_MMAs": Matmul(
        256, 128, 256, dtype=E4M3, scale_dtype=E8M0, scale_block=64
    ),
    "nvfp4_8_MMAs": Matmul(
        256, 64, 512, dtype=E2M1, b_k_major=True, scale_dtype=E4M3,
        scale_block=32,
    ),
}
# Calls in a loop whose operands are the same in each iteration: other
# instructions of an iteration, and uniform spills.
_LOOPS = {
    "f16_8_MMAs": (Matmul(256, 128, 128, accumulate="loop"), 4, 0),
    "f16_12_MMAs": (Matmul(384, 128, 128, accumulate="loop"), 4, 0),
    # As many as without the patches: the operands do not fit into registers.
    "f16_16_MMAs": (Matmul(256, 128, 256, accumulate="loop"), 43, 26),
    "f16_32_MMAs": (
        Matmul(512, 96, 256, b_swizzle=64, accumulate="loop"), 80, 0
    ),
    "f16_dense_32_MMAs": (
        Matmul(256, 128, 256, sparse=False, accumulate="loop"), 56, 0
    ),
}


class MmaIssueTest(test_util.TestCase):

  @parameterized.named_parameters(_CALLS.items())
  def test_sass(self, matmul):
    sass = matmul.compiled.sass
    if sass is None:
      self.skipTest("Needs the nvidia-cuda-nvdisasm wheel")
    cost = sass_util.issue_cost(sass)
    self.assertLessEqual(cost.per_mma, OTHERS_PER_MMA)
    self.assertEqual(cost.spills, 0)

  @parameterized.named_parameters((k, *v) for k, v in _LOOPS.items())
  def test_operands_are_made_before_a_loop(self, matmul, others, spills):
    sass = matmul.compiled.sass
    if sass is None:
      self.skipTest("Needs the nvidia-cuda-nvdisasm wheel")
    cost = sass_util.issue_cost(sass)
    self.assertLessEqual(cost.per_iteration, others)
    self.assertLessEqual(cost.spills, spills)
    self.assertNotIn("@never", matmul.compiled.ptx)

  def test_operands_that_change_in_a_loop(self):
    with mlir.make_ir_context(), ir.Location.unknown():
      module = ir.Module.create()
      i32 = ir.IntegerType.get_signless(32)
      with ir.InsertionPoint(module.body):
        zero, outside = (arith.constant(i32, x) for x in (0, 7))
        pointer = llvm.mlir_zero(ir.Type.parse("!llvm.ptr"))
        loop = scf.ForOp(zero, outside, outside, [outside])
        with ir.InsertionPoint(loop.body):
          index = loop.induction_variable
          same = arith.addi(outside, zero)
          changes = arith.addi(same, index)
          condition = arith.cmpi(arith.CmpIPredicate.eq, index, zero)
          branch = scf.IfOp(condition)
          with ir.InsertionPoint(branch.then_block):
            self.assertEqual(tcgen05_issue._innermost_loop(), loop.operation)
            nested = arith.addi(same, outside)
            scf.yield_([])
          # Neither depends on an operand that changes.
          loaded = llvm.load(i32, pointer)
          always = arith.constant(ir.IntegerType.get_signless(1), 1)
          chosen = scf.IfOp(always, [i32], has_else=True)
          for block in (chosen.then_block, chosen.else_block):
            with ir.InsertionPoint(block):
              scf.yield_([llvm.load(i32, pointer)])
          scf.yield_([loop.inner_iter_args[0]])
      invariant = functools.partial(tcgen05_issue._is_invariant, loop.operation)
      self.assertTrue(invariant([outside, same, nested]))
      self.assertFalse(invariant([same, changes]))
      self.assertFalse(invariant([loop.inner_iter_args[0]]))
      self.assertFalse(invariant([loaded]))
      self.assertFalse(invariant([chosen.results[0]]))

  def test_most_instructions(self):
    # SMEM has no room for the A of more.
    matmul = Matmul(384, 16, 288, sparse=False, a_swizzle=64, b_swizzle=32)
    groups = 54 // tcgen05_issue._GROUPS["A in SMEM"].size
    self.assertLessEqual(groups, len(tcgen05_issue._UNUSED_ADDRESS_BITS))
    ptx = matmul.compiled.ptx
    self.assertEqual(ptx.count("tcgen05.mma."), 54)
    self.assertEqual(ptx.count("@never bra DONE;"), groups)
    matmul.check_instructions(self)
    matmul.check(self)

  @parameterized.parameters(
      Matmul(128, 256, 256), Matmul(64, 512, 64, sparse=False, b_swizzle=64)
  )
  def test_single_tile_has_a_block_for_each_instruction(self, matmul):
    blocks = re.findall(
        r"begin inline asm(.*?)end inline asm", matmul.compiled.ptx, re.DOTALL
    )
    counts = {block.count("tcgen05.mma.") for block in blocks}
    self.assertEqual(counts, {0, 1})
    self.assertNotIn("never", matmul.compiled.ptx)


if __name__ == "__main__":
  absltest.main()
