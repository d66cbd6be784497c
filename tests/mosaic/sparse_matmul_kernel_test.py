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
"""Tests of the sparse matmul kernel.

Its waits are removed in tests/mosaic/simulator/removed_waits_test.py. With
MOSAIC_GPU_FULL_TESTS=1 in the environment, a larger grid of configurations and
matmuls of 1024 x 1024 x 1024 run.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import os
import pathlib
import random
import subprocess
import sys
import textwrap
from typing import Any
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import gpu_tiles_test_util as test_util
import jax
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks
from jax.experimental.mosaic.gpu.examples import sparse_matmul_blackwell
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"
example = sparse_matmul_blackwell
Config = example.TuningConfig
E4M3, E5M2, E8M0 = jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e8m0fnu
LANE = plgpu.LoweringSemantics.Lane
WARPGROUP = plgpu.LoweringSemantics.Warpgroup
ORDERS = ("eager", "lazy", 0)


@dataclasses.dataclass(frozen=True)
class Case:
  """A matmul and how it runs.

  Attributes:
    m, n, k: sizes.
    config: the configuration, None for the default one.
    dtype: type of A and B.
    scaled: whether there are block scales.
    out_dtype: type of the result, None for the default one.
    semantics: lowering semantics.
    order: of what is asynchronous on the simulator.
    num_sms: CTAs at a time. With few of them, each has several tiles.
  """

  m: int = 256
  n: int = 128
  k: int = 256
  config: Config | None = None
  dtype: Any = jnp.float16
  scaled: bool = False
  out_dtype: Any = jnp.float32
  semantics: plgpu.LoweringSemantics = WARPGROUP
  order: Any = "eager"
  num_sms: int = 2

  def args(self, seed: int = 0):
    """Returns operands, and A and B as float64."""
    rng = np.random.default_rng(seed)
    small = lambda *shape: rng.integers(-4, 5, shape).astype(self.dtype)
    values, b = small(self.m, self.k // 2), small(self.k, self.n)
    # Any two of four positions, in ascending order.
    order = rng.random((self.m, self.k // 4, 4)).argsort(axis=-1)
    positions = np.sort(order[..., :2], axis=-1)
    dense = np.zeros((self.m, self.k // 4, 4))
    compressed = values.astype(np.float64).reshape(*positions.shape)
    np.put_along_axis(dense, positions, compressed, axis=-1)
    dense, dense_b = dense.reshape(self.m, self.k), b.astype(np.float64)
    args = dict(
        a_values=values, a_metadata=positions.astype(jnp.uint2), b=b
    )
    if self.scaled:
      scales = lambda *shape: 2.0 ** rng.integers(-2, 3, shape)
      a_scales = scales(self.m, self.k // 64)
      b_scales = scales(self.k // 64, self.n)
      dense *= a_scales.repeat(64, axis=1)
      dense_b *= b_scales.repeat(64, axis=0)
      args.update(
          a_scales=a_scales.astype(E8M0), b_scales=b_scales.astype(E8M0)
      )
    args = {name: jnp.asarray(arg) for name, arg in args.items()}
    return args, dense, dense_b

  def matmul(self, **args):
    return example.sparse_matmul(
        **args, config=self.config, out_dtype=self.out_dtype,
        lowering_semantics=self.semantics,
    )

  @property
  def simulation(self) -> dict[str, Any]:
    return dict(
        order=self.order, num_sms=self.num_sms, check_races=True
    )

  def check(self, test) -> None:
    args, a, b = self.args()
    call = lambda *values: self.matmul(**dict(zip(args, values)))
    result = test_util.run(call, *args.values(), **self.simulation)
    # Sums are multiples of a sixteenth that float32 holds exactly.
    expected = (a @ b).astype(np.float32)
    if self.out_dtype is not None:
      test.assertEqual(result.dtype, self.out_dtype)
    np.testing.assert_array_equal(result, expected.astype(result.dtype))


_FP8 = dict(dtype=E4M3, n=128, k=512)
_MX = dict(_FP8, scaled=True)
CASES = dict(
    # One CTA: several rows of tiles, columns, and steps that don't fill the
    # ring; an accumulator that others overtake, and one that they don't.
    one=Case(config=Config(128, 64, 128, 2)),
    one_lane=Case(config=Config(128, 64, 128, 2), semantics=LANE, num_sms=1),
    row_tiles=Case(m=512, k=384, config=Config(256, 64, 128, 2), num_sms=1),
    row_tiles_lane=Case(
        m=512, config=Config(256, 64, 128, 3), semantics=LANE, order="lazy",
        num_sms=1,
    ),
    three_row_tiles=Case(m=384, n=64, config=Config(384, 32, 128, 2), order=0),
    four_row_tiles=Case(
        m=512, n=96, k=128, config=Config(512, 32, 128, 1), num_sms=1
    ),
    one_accumulator=Case(
        m=512, n=256, config=Config(256, 128, 128, 2), order="lazy", num_sms=2
    ),
    two_n_tiles=Case(m=256, n=768, k=128, config=Config(128, 384, 128, 1)),
    short_n_tile=Case(
        m=128, n=576, config=Config(128, 288, 128, 2), semantics=LANE, num_sms=1
    ),
    long_steps=Case(n=64, k=512, config=Config(128, 64, 256, 2), num_sms=1),
    many_stages=Case(n=64, k=512, config=Config(128, 32, 128, 6), order=0),
    odd_parts=Case(
        m=384, n=48, config=Config(128, 48, 128, 2, epilogue_tile_n=16),
        order="lazy", num_sms=1,
    ),
    one_part=Case(
        m=384, n=64, config=Config(128, 64, 128, 2, epilogue_tile_n=64),
        order="lazy", num_sms=1,
    ),
    down_first=Case(
        m=256, n=192, k=128,
        config=Config(128, 64, 128, 2, grid_minor_dim=0, grid_tile_width=2),
    ),
    # Two CTAs.
    two=Case(m=512, config=Config(128, 32, 128, 2, True)),
    two_lane=Case(
        m=512, config=Config(128, 64, 128, 2, True), semantics=LANE,
        order="lazy",
    ),
    two_row_tiles=Case(
        m=512, k=128, config=Config(256, 32, 128, 2, True), order=0
    ),
    two_one_accumulator=Case(
        m=256, n=512, k=128, config=Config(128, 128, 128, 2, True),
    ),
    two_four_ctas=Case(m=512, config=Config(128, 64, 128, 3, True), num_sms=4),
    # Types.
    e5m2=Case(
        **{**_FP8, "dtype": E5M2}, out_dtype=jnp.float16,
        config=Config(128, 128, 128, 3), semantics=LANE,
    ),
    fp8_two=Case(**_FP8, config=Config(128, 64, 256, 2, True), order="lazy"),
    mxfp8_lane=Case(
        **_MX, config=Config(128, 128, 256, 2), semantics=LANE, order="lazy",
        num_sms=1,
    ),
    mxfp8_two_lane=Case(
        m=512, n=192, k=256, dtype=E5M2, scaled=True, semantics=LANE,
        config=Config(256, 32, 256, 2, True),
    ),
    # The compiler lets lanes wait on their own here: some missed a phase.
    lanes=Case(
        m=768, n=192, k=768, dtype=E4M3, scaled=True, order=0,
        config=Config(128, 192, 256, 1),
    ),
    mxfp8_wide=Case(
        m=128, n=320, k=256, dtype=E4M3, scaled=True,
        config=Config(128, 320, 256, 1),
    ),
)


class NumbersTest(parameterized.TestCase):

  @parameterized.named_parameters(*CASES.items())
  def test_case(self, case):
    case.check(self)

  @parameterized.parameters(
      (300, 100, 388, jnp.float16, False, False),
      (129, 65, 132, jnp.bfloat16, False, True),
      (7, 5, 4, jnp.float16, False, False),
      (200, 136, 64, E5M2, True, True),
  )
  def test_ragged(self, m, n, k, dtype, scaled, collective):
    config = Config(
        128, 64, 256 if scaled else 128, 2, collective, epilogue_tile_n=64
    )
    Case(m, n, k, config, dtype, scaled).check(self)

  @parameterized.parameters(
      (256, 128, 256, jnp.float16, False), (100, 32, 128, E4M3, False),
      (256, 64, 256, E4M3, True),
  )
  def test_default_config(self, m, n, k, dtype, scaled):
    Case(m, n, k, None, dtype, scaled, num_sms=148).check(self)

  @parameterized.parameters((0, 8, 8), (8, 0, 8), (8, 8, 0))
  def test_empty(self, m, n, k):
    args, _, _ = Case(m, n, k).args()
    result = example.sparse_matmul(**args)
    self.assertEqual((result.shape, result.dtype), ((m, n), jnp.float16))
    np.testing.assert_array_equal(result, np.zeros((m, n)))

  def test_normally_distributed(self):
    rng = np.random.default_rng(1)
    args, _, _ = Case(256, 64, 512).args()
    values = rng.normal(size=args["a_values"].shape).astype(np.float16)
    b = rng.normal(size=args["b"].shape).astype(np.float16)
    dense = np.zeros((256, 128, 4))
    np.put_along_axis(
        dense, np.asarray(args["a_metadata"]).astype(int),
        values.astype(np.float64).reshape(256, 128, 2), axis=-1,
    )
    call = lambda *args: example.sparse_matmul(*args, out_dtype=jnp.float32)
    result = test_util.run(
        call, values, args["a_metadata"], b, check_races=True
    )
    expected = dense.reshape(256, 512) @ b.astype(np.float64)
    # The tensor core rounds its sums to about 22 bits.
    np.testing.assert_allclose(
        result, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )

  @parameterized.parameters(False, True)
  def test_interpret_mode(self, collective):
    # Its race detection does not take a copy to TMEM after an MMA that reads
    # there to be ordered, as the one place for block scales needs it.
    config = Config(
        tile_m=128 if collective else 256, tile_n=32, tile_k=128,
        max_concurrent_steps=2, collective=collective, epilogue_tile_n=32,
    )
    rng = np.random.default_rng(0)
    args, _, a, b = example._random_problem(
        rng, 512, 64, 512, jnp.float16, False
    )
    params = plgpu.InterpretGPUParams(
        detect_races=True, inline_mgpu="ignore"
    )
    self.addCleanup(gpu_callbacks.reset_gpu_interpret_mode_state)
    with (
        plgpu.force_gpu_interpret_mode(params),
        # So that each cluster has several tiles.
        mock.patch.object(example, "_num_sms", lambda: 2),
    ):
      result = np.asarray(
          example.sparse_matmul(*args, config, out_dtype=jnp.float32)
      )
    self.assertFalse(gpu_callbacks.get_races().races_found)
    expected = a @ b
    np.testing.assert_allclose(
        result, expected, atol=1e-5 * np.abs(expected).max()
    )

  def test_jit(self):
    case = Case(config=Config(128, 64, 128, 2))
    traces = []

    @functools.partial(jax.jit, static_argnames="config")
    def matmul(a_values, a_metadata, b, config):
      traces.append(None)
      return 2 * example.sparse_matmul(a_values, a_metadata, b, config)

    def twice():
      for seed in (0, 1):
        args, a, b = case.args(seed)
        result = matmul(*args.values(), config=case.config)
        self.assertEqual(result.dtype, jnp.float16)
        expected = (2 * a @ b).astype(np.float16)
        np.testing.assert_array_equal(result, expected)

    test_util.run(twice, **case.simulation)
    self.assertLen(traces, 1)

  def test_shard_map(self):
    code = """
        import jax
        import numpy as np
        from jax.sharding import PartitionSpec as P
        import gpu_tiles_test_util as test_util
        import sparse_matmul_kernel_test as test

        mesh = jax.make_mesh(
            (2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,)
        )
        def check(case, in_specs, out_specs, **kwargs):
          args, a, b = case.args()
          kernel = jax.jit(jax.shard_map(
              lambda *values: case.matmul(**dict(zip(args, values))),
              mesh=mesh, in_specs=in_specs, out_specs=out_specs, **kwargs
          ))
          result = test_util.run(
              lambda: kernel(*args.values()), **case.simulation
          )
          np.testing.assert_array_equal(result, a @ b)
          print("right")

        rows, columns, all = P("x"), P(None, "x"), P()
        for case in (
            test.Case(512, 64, 128, test.Config(128, 32, 128, 2)),
            test.Case(512, 128, 128, test.Config(128, 32, 128, 2, True)),
        ):
          check(case, (rows, rows, all), rows, check_vma=False)
          check(case, (all, all, columns), columns, check_vma=False)
        try:
          check(case, (rows, rows, all), rows)
        except NotImplementedError as e:
          print(e)
    """
    if test_util.has_blackwell():
      self.skipTest("Shards over virtual CPU devices")
    # The same JAX, and this file.
    path = [str(pathlib.Path(__file__).parent), *filter(None, sys.path)]
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "PYTHONPATH": os.pathsep.join(path),
        },
        capture_output=True, text=True,
    )
    self.assertEqual(process.returncode, 0, process.stderr)
    self.assertEqual(
        process.stdout,
        4 * "right\n"
        + "Expected arrays that are not tracked to vary over the axes of a"
        " mesh. Pass check_vma=False to jax.shard_map\n",
    )

  def test_script(self):
    with mock.patch.object(sys, "stdout", io.StringIO()) as out:
      self.assertEqual(example.main(), 0)
    for line in (
        r"float16 M=512 N=128 K=256: largest error \S+ \(allowed \S+\) ok",
        r"mx float8_e4m3fn M=256 N=128 K=256: largest error \S+ \(allowed"
        r" \S+\) ok",
    ):
      self.assertRegex(out.getvalue(), line)
    self.assertNotIn("WRONG", out.getvalue())


@functools.cache
def _grid():
  """Configurations of all types, which fit, in a fixed random order."""
  cases = []
  for (dtype, scaled), tile_m, tile_n, steps, collective, width, order in (
      itertools.product(
          ((jnp.float16, False), (jnp.bfloat16, False), (E4M3, False),
           (E5M2, False), (E4M3, True)),
          (128, 256, 384), (32, 64, 96, 128, 192, 256), (1, 2, 4),
          (False, True), (32, 64), ORDERS,
      )
  ):
    try:
      config = Config(
          tile_m, tile_n, 256 if scaled else 128, steps, collective, width
      )
      config.check(dtype, jnp.float32, scaled=scaled)
    except ValueError:
      continue
    for semantics in (LANE, WARPGROUP):
      k = 384 * 2 // jnp.dtype(dtype).itemsize
      cases.append(
          Case(768, 192, k, config, dtype, scaled, semantics=semantics,
               order=order, num_sms=2)
      )
  random.Random(0).shuffle(cases)
  return cases


class LargerTest(parameterized.TestCase):
  """Runs little of what it could, unless all tests are wanted."""

  @parameterized.parameters(range(100 if _FULL else 1))
  def test_grid(self, i):
    _grid()[i].check(self)

  @parameterized.product(
      dtype=(jnp.float16, jnp.bfloat16, E4M3, "mxfp8"),
      collective=(False, True),
  )
  def test_size(self, dtype, collective):
    size, num_sms = (1024, 16) if _FULL else (256, 1 + collective)
    scaled = dtype == "mxfp8"
    dtype = E4M3 if scaled else dtype
    tile_k = 128 if jnp.dtype(dtype).itemsize == 2 else 256
    Case(
        size, size, size,
        Config(128 if collective else 256, 64, tile_k, 2, collective),
        dtype, scaled, None, LANE if collective else WARPGROUP,
        num_sms=num_sms,
    ).check(self)


class ConfigTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(tile_m=64),
       "Expected tile_m to be a positive multiple of 128, got 64"),
      (dict(tile_n=24),
       "Expected tile_n to be a positive multiple of 16, got 24"),
      (dict(tile_n=0),
       "Expected tile_n to be a positive multiple of 16, got 0"),
      (dict(tile_k=64),
       "Expected tile_k to be a positive multiple of 128, got 64"),
      (dict(max_concurrent_steps=0),
       "Expected max_concurrent_steps to be a positive multiple of 1, got 0"),
      (dict(tile_n=528),
       "Expected tile_n of at most 512 with collective=False, got 528"),
      (dict(tile_n=144, collective=True),
       "Expected tile_n of at most 128 with collective=True, got 144"),
      (dict(tile_n=48, collective=True),
       "Expected epilogue_tile_n to divide the 96 columns of a tile, got 64"),
      (dict(grid_minor_dim=2),
       "Expected grid_minor_dim to be 0 (M) or 1 (N), got 2"),
  )
  def test_values(self, values, message):
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      Config(**{"epilogue_tile_n": 16 if len(values) == 1 else 64, **values})

  @parameterized.parameters(
      (Config(512, 128, 128, 1), jnp.float16, False,
       "Expected a configuration that takes at most 512 columns of tensor"
       " memory, got 528 (accumulators: 512, metadata: 16). Use a smaller"
       " tile_m, tile_n or tile_k"),
      (Config(128, 480, 256, 2), E4M3, True,
       "Expected a configuration that takes at most 512 columns of tensor"
       " memory, got 516 (accumulators: 480, metadata: 16, a_scales: 4,"
       " b_scales: 16). Use a smaller tile_m, tile_n or tile_k"),
      (Config(256, 64, 256, 4), jnp.float16, False,
       "Expected a configuration that takes at most 232448 bytes of shared"
       " memory, got 442468 (a: 262144, metadata: 32768, b: 131072, out: 16384,"
       " barriers: 96, tensor memory address: 4). Use a smaller"
       " max_concurrent_steps, tile_m, tile_n, tile_k or epilogue_tile_n"),
      (Config(128, 16, 128, epilogue_tile_n=16), E4M3, False,
       "Expected tile_n columns of B to be a multiple of 32 bytes, which is the"
       " smallest swizzle, got tile_n=16 of float8_e4m3fn"),
      (Config(128, 64, 128), E4M3, True,
       "Expected tile_k to be a multiple of 256 with block scales, of which"
       " four make a column, got 128"),
  )
  def test_refusals(self, config, dtype, scaled, message):
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      config.check(dtype, scaled=scaled)
    # The function says so, too.
    args, _, _ = Case(256, 64, 256, dtype=dtype, scaled=scaled).args()
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      example.sparse_matmul(**args, config=config)

  @parameterized.product(
      case=("one", "one_accumulator", "fp8_two", "mxfp8_two_lane",
            "mxfp8_wide"),
  )
  def test_memory(self, case):
    """The sizes are those of the compiled kernel."""
    if test_util.has_blackwell():
      self.skipTest("Reads the report of the simulator")
    from jax.experimental.mosaic.gpu import simulator  # pylint: disable=g-import-not-at-top
    from jax.experimental.mosaic.gpu.simulator import machine  # pylint: disable=g-import-not-at-top

    case = CASES[case]
    config, scaled = case.config, case.scaled
    launches = []
    make = machine.Launch

    def launch(*args):
      launches.append(make(*args))
      return launches[-1]

    with (
        mock.patch.object(machine, "Launch", launch),
        simulator.simulate(num_sms=case.num_sms) as simulation,
    ):
      jax.block_until_ready(case.matmul(**case.args()[0]))
    [run] = simulation.runs
    sizes = config.smem_bytes(case.dtype, case.out_dtype, scaled=scaled)
    self.assertEqual(launches[0].dynamic_shared_bytes, sum(sizes.values()))
    columns = sum(config.tmem_columns(scaled=scaled).values())
    # The hardware allocates powers of two.
    columns = 1 << (columns - 1).bit_length()
    for allocation in run.report.allocations:
      self.assertEqual((allocation.column, allocation.count), (0, columns))
    # B is loaded once for each row of tiles, however many rows those have.
    rows, wide = config.tile_m * config.num_cta, config.tile_n * config.num_cta
    m_tiles, n_tiles = case.m // rows, case.n // wide
    bits = 8 * jnp.dtype(case.dtype).itemsize
    loaded = case.m * case.k // 2 * (bits + 2) // 8 * n_tiles
    loaded += case.n * case.k * bits // 8 * m_tiles
    if scaled:
      loaded += case.m * case.k // 64 * n_tiles
      # Each CTA loads those of B, of columns that are padded to 128.
      padded = -(-wide // 128) * 128 * n_tiles
      loaded += padded * case.k // 64 * m_tiles * config.num_cta
    self.assertEqual(run.report.load_bytes, loaded)

  def test_default_config(self):
    Config().check(jnp.float16, jnp.float32)
    sizes = (1, 64, 100, 128, 129, 1000, 4096)
    for m, n, k, (dtype, scaled) in itertools.product(
        sizes, sizes, sizes,
        ((jnp.float16, False), (jnp.bfloat16, False), (E4M3, False),
         (E4M3, True)),
    ):
      config = example.default_config(m, n, k, dtype, scaled)
      config.check(dtype, jnp.float32, scaled=scaled)
      self.assertGreater(config.max_concurrent_steps, 1)

  def test_accumulators(self):
    # Two of 192 columns and two stages of four columns of metadata.
    two = Config(128, 192, 128, 2)
    self.assertEqual(
        two.tmem_columns(), {"accumulators": 384, "metadata": 8}
    )
    self.assertEqual(two.num_accumulators(), 2)
    self.assertEqual(Config(128, 256, 128, 2).num_accumulators(), 1)
    # Each of two CTAs has the columns of both.
    self.assertEqual(
        Config(256, 48, 256, 2, True).tmem_columns(scaled=True),
        {"accumulators": 384, "metadata": 32, "a_scales": 8, "b_scales": 4},
    )


class OperandsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(a_values=np.ones(8, np.float16)), ValueError,
       "Expected a_values of shape (M, K // 2) and b of shape (K, N), got (8,)"
       " and (256, 64)"),
      (dict(b=np.ones((64, 64), np.float16)), ValueError,
       "Expected b of K = 256 rows, two for each column of a_values of shape"
       " (128, 128), got shape (64, 64)"),
      (dict(a_values=np.ones((128, 1), np.float16),
            b=np.ones((2, 64), np.float16)), ValueError,
       "Expected K to be a multiple of 4, got 2. Pad A and b with zeros"),
      (dict(b=np.ones((256, 64), jnp.bfloat16)), ValueError,
       "Expected a_values and b of the same type, got float16 and bfloat16"),
      (dict(a_values=np.ones((128, 128), np.int8),
            b=np.ones((256, 64), np.int8)), NotImplementedError,
       "Expected operands of type float16, bfloat16, float8_e4m3fn,"
       " float8_e5m2, got int8"),
      (dict(a_metadata=np.ones((128, 64, 2), np.uint8)), ValueError,
       "Expected a_metadata of shape (128, 64, 2) and type uint2, got (128, 64,"
       " 2) and uint8"),
      (dict(a_metadata=np.ones((128, 128), jnp.uint2)), ValueError,
       "Expected a_metadata of shape (128, 64, 2) and type uint2, got (128,"
       " 128) and uint2"),
      (dict(a_scales=np.ones((128, 4), E8M0)), ValueError,
       "Expected both of a_scales and b_scales or none, got only a_scales"),
      (dict(a_scales=np.ones((128, 4), E8M0), b_scales=np.ones((4, 64), E8M0)),
       ValueError,
       "Expected operands of 8 bits with block scales, got float16"),
      (dict(out_dtype=jnp.int32), NotImplementedError,
       "Expected out_dtype to be one of float32, float16, bfloat16, got int32"),
  )
  def test_errors(self, changes, error, message):
    args, _, _ = Case(128, 64, 256).args()
    with self.assertRaisesWithLiteralMatch(error, message):
      example.sparse_matmul(**{**args, **changes})

  @parameterized.parameters(
      # Blocks of 32, as dense matmuls take them.
      (256, dict(a_scales=np.ones((128, 8), E8M0)),
       "Expected a_scales of shape (128, 4) and type float8_e8m0fnu, got (128,"
       " 8) and float8_e8m0fnu"),
      (256, dict(b_scales=np.ones((64, 4), E8M0)),
       "Expected b_scales of shape (4, 64) and type float8_e8m0fnu, got (64, 4)"
       " and float8_e8m0fnu"),
      (260, {},
       "Expected K to be a multiple of 64 with block scales, got 260. Pad A and"
       " b with zeros"),
  )
  def test_scale_errors(self, k, changes, message):
    args, _, _ = Case(128, 64, k, dtype=E4M3).args()
    args["a_scales"] = np.ones((128, k // 64), E8M0)
    args["b_scales"] = np.ones((k // 64, 64), E8M0)
    with self.assertRaisesWithLiteralMatch(ValueError, message):
      example.sparse_matmul(**{**args, **changes})


if __name__ == "__main__":
  absltest.main()
