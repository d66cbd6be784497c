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
"""Tests of the report of a run."""

import collections
import io
import itertools
import os
from unittest import mock
from xml.etree import ElementTree

import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import snippets
from absl.testing import absltest, parameterized
from jax.experimental.pallas.ops.gpu import blackwell_matmul_mgpu

import jax
from jax.experimental.mosaic.gpu import simulator
from jax.experimental.mosaic.gpu.simulator import observers, progress, report

SVG = "{http://www.w3.org/2000/svg}"

# Allocates and frees tensor memory in warp 0 of each CTA.
_ALLOCATIONS = """
.shared .align 16 .b8 at[64];
setp.ge.u32 %p, %warpid, 1;
@%p bra DONE;
mov.u32 %r0, at;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 256;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0+4], 32;
bar.warp.sync -1;
ld.shared.b32 %r1, [%r0];
ld.shared.b32 %r2, [%r0+4];
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0+4], 128;
bar.warp.sync -1;
ld.shared.b32 %r2, [%r0+4];
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 256;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128;
DONE:
"""


def _report(body: str, *arrays: np.ndarray, **kwargs) -> report.Report:
  result = report.Report()
  snippets.run(body, *arrays, observers=[result], **kwargs)
  return result


class _Instructions(observers.Observer):
  """The opcode and the number of threads of every step."""

  def __init__(self):
    self.seen = []

  def on_instruction(self, step):
    self.seen.append((step.instruction.opcode, len(step.threads)))


class NumbersTest(parameterized.TestCase):

  def test_instructions(self):
    # A loop of three rounds in two CTAs of two warps.
    loop = """
        mov.b32 %r0, 0;
        LOOP:
        add.s32 %r0, %r0, 1;
        setp.lt.s32 %p, %r0, 3;
        @%p bra LOOP;
        """
    result = _report(loop, threads=64, ctas=2)
    self.assertEqual(result.instructions["add.s32"], 3)
    self.assertEqual(result.thread_instructions["add.s32"], 3 * 128)
    self.assertEqual(result.thread_instructions["bra"], 3 * 128)
    self.assertEqual(result.thread_instructions["ret"], 128)
    kinds = result.instruction_kinds
    self.assertEqual(kinds.total(), result.thread_instructions.total())
    self.assertEqual((kinds["add"], kinds["setp"]), (3 * 128, 3 * 128))

  @parameterized.parameters(
      ("add.s32", "add"),
      ("ld.shared::cta.v4.b32", "ld.shared"),
      ("st.global.b32", "st.global"),
      ("ld.b32", "ld"),
      ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma"),
      ("tcgen05.ld.sync.aligned.16x256b.x4.b32", "tcgen05.ld"),
      ("mbarrier.try_wait.parity.shared::cta.b64", "mbarrier.try_wait"),
      ("cp.async.bulk.tensor.2d.shared::cta.global.tile"
       ".mbarrier::complete_tx::bytes", "cp.async.bulk.tensor"),
      ("cp.async.bulk.commit_group", "cp.async.bulk.commit_group"),
      ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile"
       ".bulk_group", "cp.reduce.async.bulk.tensor"),
      ("cp.async.mbarrier.arrive.noinc.b64", "cp.async.mbarrier.arrive"),
  )
  def test_kind(self, opcode, expected):
    self.assertEqual(report.kind(opcode), expected)

  @parameterized.parameters(
      ((256, 128, 192), dict(tile_n=64), 148),
      ((512, 256, 128), dict(tile_n=128), 148),
      ((512, 256, 128), dict(tile_n=64), 3),
  )
  def test_matmul(self, shape, config, num_sms):
    m, n, k = shape
    config = blackwell_matmul_mgpu.TuningConfig(
        tile_m=128, tile_k=64, max_concurrent_steps=2, collective=False,
        **config,
    )
    instructions = _Instructions()
    with simulator.simulate(
        num_sms=num_sms, observers=lambda: [instructions]
    ) as simulation:
      blackwell_matmul_mgpu.matmul_kernel(
          jnp.ones((m, k), jnp.float16), jnp.ones((k, n), jnp.float16), config
      )
    [run] = simulation.runs
    result = run.report
    m_tiles, n_tiles = m // 128, n // config.tile_n
    tiles = m_tiles * n_tiles
    # An instruction multiplies 16 elements of K.
    mmas = tiles * k // 16
    self.assertEqual(result.mma_instructions, {"f16": mmas})
    self.assertEqual(result.flops, 2 * m * n * k)
    self.assertEqual(
        result.load_bytes, 2 * k * (m * n_tiles + n * m_tiles)
    )
    self.assertEqual(result.store_bytes, 2 * m * n)
    self.assertEqual(
        result.shared_operand_bytes, mmas * 2 * 16 * (128 + config.tile_n)
    )
    # Two accumulators.
    ctas = min(tiles, num_sms)
    self.assertEqual(
        [(a.column, a.count) for a in result.allocations],
        [(0, 2 * config.tile_n)] * ctas,
    )
    self.assertLen({a.cta for a in result.allocations}, ctas)
    # The MMA warp of each CTA waits for every stage of K.
    self.assertEqual(result.steps, run.result.steps)
    self.assertLen(instructions.seen, result.steps)
    steps, threads = collections.Counter(), collections.Counter()
    for opcode, count in instructions.seen:
      steps[opcode] += 1
      threads[opcode] += count
    self.assertEqual(result.instructions, steps)
    self.assertEqual(result.thread_instructions, threads)

  def test_allocations(self):
    result = _report(_ALLOCATIONS, threads=64, ctas=2)
    rows = [
        (a.cta, a.column, a.count, a.where.warp) for a in result.allocations
    ]
    ctas = [(0, 0, 0), (1, 0, 0)]
    self.assertCountEqual(
        rows,
        [(cta, 0, 256, 0) for cta in ctas]
        + [(cta, 256, 32, 0) for cta in ctas]
        + [(cta, 256, 128, 0) for cta in ctas],
    )
    # Both CTAs allocate in the same step.
    first, second, third = result.allocations[::2]
    self.assertEqual(second.first_step, first.first_step + 1)
    self.assertEqual(third.first_step, second.last_step + 1)
    self.assertEqual(first.last_step + 1, third.last_step)
    self.assertIn("tcgen05.alloc", first.where.text)

  def test_never_freed(self):
    body = _ALLOCATIONS.replace(
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128;", ""
    )
    result = _report(body, threads=32)
    self.assertIsNone(result.allocations[-1].last_step)
    self.assertIn("never freed", str(result))
    self.assertIn("never freed", result.to_svg())

  def test_barrier_waits(self):
    # Warps 1 and 2 wait before warp 0 arrives, warp 3 when all is over.
    body = """
        .shared .align 8 .b8 bars[16];
        mov.u32 %r0, bars;
        shr.u32 %r1, %thread, 5;
        setp.ne.u32 %p, %thread, 0;
        @%p bra SYNC;
        mbarrier.init.shared.b64 [%r0], 1;
        mbarrier.init.shared.b64 [%r0+8], 2;
        SYNC:
        bar.sync 0;
        setp.eq.u32 %p, %r1, 0;
        @%p bra ARRIVE;
        setp.eq.u32 %p, %r1, 3;
        @%p bra LAST;
        W1:
        mbarrier.try_wait.parity.shared.b64 %q, [%r0], 0;
        @!%q bra W1;
        bra.uni LAST;
        ARRIVE:
        setp.ne.u32 %p, %thread, 0;
        @%p bra LAST;
        mbarrier.arrive.shared.b64 _, [%r0];
        LAST:
        bar.sync 0;
        setp.ne.u32 %p, %r1, 3;
        @%p bra END;
        W2:
        mbarrier.try_wait.parity.shared.b64 %q, [%r0], 0;
        @!%q bra W2;
        END:
        """
    result = _report(body, threads=128)
    [((cta, addr), waits)] = result.barrier_waits.items()
    self.assertEqual((cta, addr % 8), ((0, 0, 0), 0))
    self.assertEqual(waits.passed, 3)
    self.assertEqual(waits.parked, 2)

  def test_table(self):
    text = str(_report(_ALLOCATIONS, threads=64, ctas=2))
    self.assertRegex(text, r"(?m)^steps  +\d+$")
    self.assertRegex(text, r"(?m)^tcgen05.alloc +192$")
    self.assertRegex(
        text,
        r"(?m)^0\.\.255 +2 +\d+\.\.\d+  CTA \(0,0,0\) warp 0, PTX line \d+$",
    )
    self.assertNotIn("mbarrier", text)
    self.assertLess(max(map(len, text.splitlines())), 80)


class PictureTest(parameterized.TestCase):

  def _parse(self, text: str) -> ElementTree.Element:
    root = ElementTree.fromstring(text)
    self.assertEqual(root.tag, f"{SVG}svg")
    return root

  def _of_class(self, root, name):
    return [e for e in root.iter(f"{SVG}rect") if e.get("class") == name]

  def _labels(self, root):
    return [e.text for e in root.iter(f"{SVG}text")]

  def _check_no_overlaps(self, root):
    """No text lies on another one, or leaves the picture."""
    boxes = []
    for e in root.iter(f"{SVG}text"):
      if e.get("x") is None:  # Rotated, at the left border.
        continue
      # A character takes at most 7.5 pixels on average.
      width, x = 7.5 * len(e.text), float(e.get("x"))
      x -= {"middle": width / 2, "end": width}.get(e.get("text-anchor"), 0)
      boxes.append((x, float(e.get("y")) - 11, x + width, float(e.get("y"))))
      self.assertGreaterEqual(x, 16, e.text)
      self.assertLessEqual(x + width, float(root.get("width")), e.text)
    for a, b in itertools.combinations(boxes, 2):
      apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
      self.assertTrue(apart, (a, b))
    for rects in (
        self._of_class(root, "use"), self._of_class(root, "allocation")
    ):
      corners = [
          [float(e.get(k)) for k in ("x", "y", "width", "height")]
          for e in rects
      ]
      for a, b in itertools.combinations(corners, 2):
        apart = any(
            a[i] + a[i + 2] <= b[i] + 0.2 or b[i] + b[i + 2] <= a[i] + 0.2
            for i in range(2)
        )
        self.assertTrue(apart, (a, b))

  @parameterized.parameters(1, 2, 6)
  def test_allocations(self, ctas):
    result = _report(_ALLOCATIONS, threads=64, ctas=ctas)
    root = self._parse(result.to_svg())
    pictured = min(ctas, report.PICTURED_CTAS)
    rects = self._of_class(root, "allocation")
    self.assertLen(rects, 3 * pictured)
    # Half of the height is columns 0 to 255.
    heights = sorted(float(e.get("height")) for e in rects)
    self.assertEqual(heights, sorted([128, 16, 64] * pictured))
    labels = self._labels(root)
    for i in range(pictured):
      self.assertIn(f"Tensor memory of CTA ({i},0,0)", labels)
    for text in ("column", "step", "0", "512", "allocated"):
      self.assertIn(text, labels)
    for a in result.allocations:
      self.assertIn(
          f"{a.columns}: steps {a.first_step} to {a.last_step} (PTX line"
          f" {a.where.line})",
          labels,
      )
    self.assertEqual("and 2 more CTAs" in labels, ctas == 6)
    self._check_no_overlaps(root)

  def test_many_allocations(self):
    alloc = "tcgen05.{}alloc.cta_group::1.sync.aligned"
    body = ".shared .align 16 .b8 at[64];\nmov.u32 %r0, at;\n"
    for i in range(40):
      body += (
          f"{alloc.format('')}.shared::cta.b32 [%r0], {32 << i % 3};\n"
          "bar.warp.sync -1;\nld.shared.b32 %r1, [%r0];\n"
          f"{alloc.format('de')}.b32 %r1, {32 << i % 3};\n"
      )
    root = self._parse(_report(body, threads=32).to_svg())
    self.assertLen(self._of_class(root, "allocation"), 40)
    self._check_no_overlaps(root)

  def test_uses(self):
    config = blackwell_matmul_mgpu.TuningConfig(
        tile_m=128, tile_n=64, tile_k=64, max_concurrent_steps=2,
        collective=False,
    )
    with simulator.simulate(num_sms=2) as simulation:
      blackwell_matmul_mgpu.matmul_kernel(
          jnp.ones((256, 128), jnp.float16), jnp.ones((128, 256), jnp.float16),
          config,
      )
    result = simulation.runs[0].report
    root = self._parse(result.to_svg())
    self.assertLen(self._of_class(root, "allocation"), 2)
    labels = self._labels(root)
    self.assertIn("D of MMA", labels)
    self.assertIn("loaded (ld)", labels)
    self.assertNotIn("sparse metadata", labels)
    # Both accumulators are used by both CTAs, and nothing else.
    uses = self._of_class(root, "use")
    tops = {float(e.get("y")) for e in uses}
    self.assertLen(tops, 4)
    for e in uses:
      self.assertEqual(float(e.get("height")), 32)
    self.assertEqual(result.tmem_operands(), [(0, 127, "D of MMA")])
    self.assertEqual(labels.count("0..127: D of MMA"), 2)
    self._check_no_overlaps(root)

  def test_operands(self):
    def stored(first, count):
      return f"""
          add.u32 %r4, %r1, {first};
          tcgen05.st.sync.aligned.32x32b.x{count}.b32 [%r4],
            {{{", ".join(["%r3"] * count)}}};
          """

    body = _ALLOCATIONS.replace(
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;",
        f"""
        mov.u32 %r3, 0;
        {stored(16, 1)} {stored(17, 2)} {stored(250, 4)}
        tcgen05.wait::st.sync.aligned;
        add.u32 %r4, %r1, 16;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r3}}, [%r4];
        tcgen05.wait::ld.sync.aligned;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
        """,
    )
    result = _report(body, threads=64, ctas=2)
    expected = [
        (0, 15, "unused"), (16, 16, "stored (st), loaded (ld)"),
        (17, 18, "stored (st)"), (19, 249, "unused"), (250, 253, "stored (st)"),
        (254, 383, "unused"),
    ]
    self.assertEqual(result.tmem_operands(), expected)
    root = self._parse(result.to_svg())
    for first, last, what in expected:
      self.assertEqual(
          self._labels(root).count(f"{first}..{last}: {what}"), 2
      )
    self._check_no_overlaps(root)
    self.assertEmpty(_report("", threads=32).tmem_operands())

  def test_no_tensor_memory(self):
    root = self._parse(_report("", threads=32).to_svg())
    self.assertEmpty(self._of_class(root, "allocation"))
    self.assertEqual(
        self._labels(root), ["No tensor memory was allocated."]
    )


class _Terminal(io.StringIO):

  def isatty(self):
    return True


class ProgressTest(parameterized.TestCase):

  def test_line(self):
    stream = io.StringIO()
    clock = itertools.count(step=0.05)
    shown = progress.Progress(stream, lambda: next(clock))
    body = """
        mov.b32 %r0, 0;
        LOOP:
        add.s32 %r0, %r0, 1;
        setp.lt.s32 %p, %r0, 20;
        @%p bra LOOP;
        """
    snippets.run(
        body, threads=32, ctas=4, max_resident_ctas=2, observers=[shown]
    )
    shown.close()
    lines = stream.getvalue().split("\r")
    self.assertEqual(lines[0], "")
    self.assertEqual(lines[-1], "")
    self.assertEqual(lines[-2].strip(), "")
    for line in lines[1:-2]:
      self.assertRegex(
          line,
          r"^Simulating snippet: [02] of 4 CTAs done, \d+ steps, \d+ s *$",
      )
    self.assertIn("2 of 4", lines[-3])
    # About 140 steps of 0.05 s; a line comes every 0.3 s after the first one.
    self.assertBetween(len(lines) - 3, 10, 24)

  def test_short_runs_print_nothing(self):
    stream = io.StringIO()
    shown = progress.Progress(stream)
    snippets.run("", threads=32, observers=[shown])
    shown.close()
    self.assertEmpty(stream.getvalue())

  @parameterized.parameters(
      (True, None, True), (True, "0", False), (True, "1", True),
      (False, None, False),
  )
  def test_only_on_a_terminal(self, terminal, variable, shown):
    stream = _Terminal() if terminal else io.StringIO()
    environment = {} if variable is None else {progress.VARIABLE: variable}
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(progress.sys, "stderr", stream),
    ):
      self.assertEqual(progress.on_terminal() is not None, shown)

  def test_a_run_clears_its_line(self):
    stream = _Terminal()

    def body(x, out):
      out[...] = 2 * x[...]

    x = np.ones(128, np.float32)
    with (
        mock.patch.object(progress.sys, "stderr", stream),
        mock.patch.object(progress, "_FIRST_SECONDS", 0),
        simulator.simulate(),
    ):
      kernel = plgpu.kernel(
          body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32)
      )
      np.testing.assert_array_equal(kernel(x), 2 * x)
    self.assertRegex(
        stream.getvalue(), r"^\rSimulating body\w*: 0 of 1 CTAs.*\r +\r$"
    )


if __name__ == "__main__":
  absltest.main()
