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
"""Breaks the formulas one by one and sees that the tests notice.

Each mutant changes one place of the patched JAX, in a tree of its own; then the
tests named for it must fail. Run as ``python tests/mutants.py``; prints how many
were killed and exits with 1 if any survived.
"""

from __future__ import annotations

from concurrent import futures
import dataclasses
import os
import pathlib
import queue
import subprocess
import sys
import tempfile

import patches
from patches import engine
from patches import trees

_GPU = "jax/experimental/mosaic/gpu/"
_TILES = _GPU + "tcgen05_tiles.py"
_TCGEN05 = _GPU + "tcgen05.py"
_CORE = _GPU + "core.py"
_LOWERING = _GPU + "dialect_lowering.py"

_PLAIN = ("tcgen05_tiles_test.py",)
_SPARSE = ("gpu_sparse_tiles_test.py",)
_DENSE = ("gpu_mma_tiles_test.py",)
_ROWS = ("gpu_tmem_row_tiles_test.py",)
_ALLOC = ("gpu_tmem_alloc_test.py",)


@dataclasses.dataclass(frozen=True)
class Mutant:
  """A change that must make a test fail.

  Attributes:
    path: The file that is changed.
    old: What is there, exactly once.
    new: What takes its place.
    tests: The test files, of which one must fail.
  """

  path: str
  old: str
  new: str
  tests: tuple[str, ...]


def _tiles(old: str, new: str) -> list[Mutant]:
  """The tests of the arithmetic and those of the kernels must both notice."""
  return [
      Mutant(_TILES, old, new, _PLAIN),
      Mutant(_TILES, old, new, _SPARSE),
  ]


_MUTANTS = (
    # The stride of row tiles is off by one column, or by a tile.
    *_tiles(
        "return row_tiles(row) * columns_per_row_tile",
        "return row_tiles(row) * (columns_per_row_tile + 2)",
    ),
    Mutant(
        _TILES,
        "return row_tiles(row) * columns_per_row_tile",
        "return (row_tiles(row) + 1) * columns_per_row_tile",
        _PLAIN + _ROWS,
    ),
    # Metadata: entries, columns, pairs.
    *_tiles("return k // group_elems * 2", "return k // group_elems * 4"),
    *_tiles(
        "METADATA_ENTRIES_PER_COLUMN = 16", "METADATA_ENTRIES_PER_COLUMN = 8"
    ),
    Mutant(
        _TILES,
        "METADATA_ENTRIES_PER_COLUMN_PAIR = 2 *",
        "METADATA_ENTRIES_PER_COLUMN_PAIR = 1 *",
        _SPARSE,
    ),
    # Metadata does not advance with M, advances with N, not with K.
    *_tiles("tile.mi * TMEM_ROWS,", "0,"),
    *_tiles("tile.mi * TMEM_ROWS,", "tile.ni * TMEM_ROWS,"),
    *_tiles("return row_tile + tile.ki * group", "return row_tile"),
    *_tiles(
        "return row_tile + tile.ki * group",
        "return row_tile + (tile.ki + tile.ni) * group",
    ),
    # The copy takes tiles in the wrong order, or misplaces them.
    *_tiles(
        "(m_tile * k_tiles + k_tile) * METADATA_TILE_BYTES",
        "(k_tile * row_tiles(rows) + m_tile) * METADATA_TILE_BYTES",
    ),
    *_tiles("+ k_tile * tile_columns", "+ k_tile * tile_columns // 2"),
    *_tiles(
        "m_tile * TMEM_ROWS, metadata_columns(entries)",
        "m_tile * TMEM_ROWS, tile_columns",
    ),
    *_tiles(
        "TMEM_ROWS * METADATA_TILE_ENTRIES * 2 // 8",
        "TMEM_ROWS * METADATA_TILE_ENTRIES // 8",
    ),
    # The last N tile is as wide as the others, or missing.
    *_tiles(
        "min(self.n_tile, self.n - ni * self.n_tile)", "self.n_tile"
    ),
    *_tiles("return -(-self.n // self.n_tile)", "return self.n // self.n_tile"),
    *_tiles("MAX_INSTRUCTION_N = 256", "MAX_INSTRUCTION_N = 240"),
    # D: row tiles overlap, M and N swapped, N tiles overlap.
    Mutant(_TILES, "return tile.mi * n_total + ni",
           "return tile.mi * self.n_tile + ni", _PLAIN),
    *_tiles("return tile.mi * n_total + ni", "return ni * n_total + tile.mi"),
    *_tiles("return tile.mi * n_total + ni", "return tile.mi * n_total + 0"),
    Mutant(
        _TILES,
        "ni * self.n_tile * self.num_cta",
        "ni * self.n_tile * (self.num_cta + 1)",
        _PLAIN,
    ),
    Mutant(
        _TILES, "self.n * self.num_cta  #", "self.n  #", _PLAIN,
    ),
    Mutant(
        _TILES,
        "return tile.ni // (self.n_tiles // self.n_lane_groups)",
        "return 0",
        _PLAIN,
    ),
    # K does not ascend.
    *_tiles(
        "for ki in range(self.k_groups)",
        "for ki in reversed(range(self.k_groups))",
    ),
    # The budget is off by one.
    *_tiles("if total <= TMEM_COLUMNS", "if total <= TMEM_COLUMNS + 15"),
    Mutant(_TILES, "if total <= TMEM_COLUMNS", "if total < TMEM_COLUMNS",
           _DENSE),
    # The call of tcgen05.mma.
    Mutant(_TCGEN05, "n=tile.n,", "n=n_group_elems,", _SPARSE),
    Mutant(_TCGEN05, "n=tile.n,", "n=n_group_elems,", _DENSE),
    Mutant(_TCGEN05, "+ tiles.d_column(tile)", "", _DENSE),
    Mutant(_TCGEN05, "mi * a_m_group_stride", "ni * a_m_group_stride", _DENSE),
    Mutant(_TCGEN05, "ni * b_n_group_stride", "mi * b_n_group_stride", _DENSE),
    Mutant(_TCGEN05, "utils.c(a_sparse_column, i32)", "utils.c(0, i32)",
           _SPARSE),
    Mutant(_TCGEN05, "utils.memref_ptr(smem_ref), [offset], i8",
           "utils.memref_ptr(smem_ref), [0], i8", _SPARSE),
    Mutant(_TCGEN05, "tmem_ref.address, arith.constant(i32, column)",
           "tmem_ref.address, arith.constant(i32, 0)", _SPARSE),
    # Slices, loads and stores of row tiles.
    Mutant(_TCGEN05, "address=arith.addi(self.address, column),",
           "address=self.address,", _ROWS),
    Mutant(_TCGEN05, "arith.constant(i32, stride)",
           "arith.constant(i32, stride + 1)", _ROWS),
    Mutant(_TCGEN05, "shape=(num_rows, self.shape[1]),", "shape=self.shape,",
           _ROWS),
    Mutant(_TCGEN05, "[t.registers for t in tiles]",
           "[t.registers for t in tiles[::-1]]", _ROWS),
    Mutant(_TCGEN05, "np.split(value.registers, len(row_tiles), axis=0)",
           "np.split(value.registers, len(row_tiles), axis=0)[::-1]", _ROWS),
    # Allocations.
    Mutant(_CORE, "key=lambda alloc: alloc.num_cols, reverse=True",
           "key=lambda alloc: alloc.num_cols", _ALLOC),
    Mutant(_CORE, "max(shape[0] // tcgen05.TMEM_ROWS, 1) * shape[1]",
           "shape[1]", _ALLOC),
    Mutant(_CORE, "if layout is None and bitwidth == 2:",
           "if layout is None and bitwidth == 1:", _ALLOC),
    Mutant(_LOWERING, "shape = cast(tuple[int, int], tuple(ref_ty.shape))",
           "shape = (128, ref_ty.shape[1])", _ALLOC),
)


def _run(root: pathlib.Path, mutant: Mutant) -> bool:
  """Returns whether a test fails for the mutant."""
  path = root / mutant.path
  text = path.read_text()
  if text.count(mutant.old) != 1:
    raise ValueError(
        f"Expected {mutant.old!r} once in {mutant.path}, found it"
        f" {text.count(mutant.old)} times"
    )
  try:
    engine.write(root, {mutant.path: text.replace(
        mutant.old, mutant.new).encode()})
    process = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-x", "-p",
            "no:cacheprovider", "--rootdir", str(root),
            *(f"tests/mosaic/{test}" for test in mutant.tests),
        ],
        cwd=root,
        env={
            **os.environ,
            "PYTHONPATH": str(root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
        },
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
  finally:
    engine.write(root, {mutant.path: text.encode()})
  # 1 is a failed test. Anything else is a fault of this script.
  if process.returncode not in (0, 1):
    raise RuntimeError(process.stdout)
  return process.returncode == 1


def main() -> int:
  tree = engine.Tree.open(trees.pristine(patches.BASE))
  files = engine.merged(engine.compute(tree, engine.load_series()))
  jobs = 2
  survivors = []
  with tempfile.TemporaryDirectory() as folder:
    free: queue.Queue[pathlib.Path] = queue.Queue()
    for i in range(jobs):
      root = pathlib.Path(folder) / f"tree{i}"
      trees.copy(tree.root, root)
      engine.write(root, files)
      free.put(root)

    def run(mutant: Mutant) -> bool:
      root = free.get()
      try:
        return _run(root, mutant)
      finally:
        free.put(root)

    with futures.ThreadPoolExecutor(jobs) as pool:
      for mutant, killed in zip(_MUTANTS, pool.map(run, _MUTANTS)):
        verdict = "killed" if killed else "SURVIVED"
        change = f"{mutant.old!r} -> {mutant.new!r}"
        print(f"{verdict:8} {', '.join(mutant.tests)}: {change}", flush=True)
        if not killed:
          survivors.append(mutant)
  print(f"mutants: {len(_MUTANTS) - len(survivors)} of {len(_MUTANTS)} killed")
  return 1 if survivors else 0


if __name__ == "__main__":
  sys.exit(main())
