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
tests named for it must fail. Run as ``python tests/mutants.py``; prints how
many were killed and exits with 1 if any survived. With names of test files,
only the mutants that those have to notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent import futures
import dataclasses
import functools
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

_INTERPRET = "jax/_src/pallas/mosaic_gpu/interpret/"
_CALLBACKS = _INTERPRET + "gpu_callbacks.py"
_OPERANDS = _INTERPRET + "tcgen05_operands.py"
_HELPERS = "jax/_src/pallas/mosaic_gpu/helpers.py"
_MEMORY = _INTERPRET + "shared_memory.py"

_PLAIN = ("tcgen05_tiles_test.py",)
_SPARSE = ("gpu_sparse_tiles_test.py",)
_DENSE = ("gpu_mma_tiles_test.py",)
_ROWS = ("gpu_tmem_slice_test.py", "gpu_tmem_row_tiles_test.py")
_ALLOC = ("gpu_tmem_alloc_test.py",)
_SCALED = ("gpu_scaled_tiles_test.py",)
_A_IN_TMEM = ("gpu_a_in_tmem_test.py",)
_TWO_CTA = ("gpu_two_cta_tiles_test.py",)
_INTERPRET_SPARSE = ("pallas_interpret_sparse_test.py",)
_INTERPRET_TWO_CTAS = ("pallas_interpret_two_ctas_test.py",)


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


def _tiles(
    old: str, new: str, kernels: tuple[str, ...] = _SPARSE
) -> list[Mutant]:
  """The tests of the arithmetic and those of the kernels must both notice."""
  return [
      Mutant(_TILES, old, new, _PLAIN),
      Mutant(_TILES, old, new, kernels),
  ]


MUTANTS = (
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
    *_tiles(
        "tile.mi * TMEM_ROWS,\n        metadata_columns",
        "0,\n        metadata_columns",
    ),
    *_tiles(
        "tile.mi * TMEM_ROWS,\n        metadata_columns",
        "tile.ni * TMEM_ROWS,\n        metadata_columns",
    ),
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
    # With one CTA, no sparse call has several M and several N tiles.
    *_tiles(
        "return tile.mi * n_total + ni", "return tile.mi * self.n_tile + ni",
        _TWO_CTA,
    ),
    *_tiles("return tile.mi * n_total + ni", "return ni * n_total + tile.mi"),
    *_tiles("return tile.mi * n_total + ni", "return tile.mi * n_total + 0"),
    Mutant(
        _TILES,
        "+ ni * self.n_tile * self.num_cta",
        "+ ni * self.n_tile * (self.num_cta + 1)",
        _PLAIN,
    ),
    *_tiles("self.n * self.num_cta  #", "self.n  #", _TWO_CTA),
    # A in TMEM: the group is not compressed, row tiles overlap or are missing,
    # K does not advance, N does.
    *_tiles(
        "columns = self.k // compression // packing",
        "columns = self.k_group // compression // packing",
        _A_IN_TMEM,
    ),
    *_tiles(
        "columns = self.k // compression // packing",
        "columns = self.k // packing",
        _A_IN_TMEM,
    ),
    *_tiles(
        "group = self.k_group // compression // packing",
        "group = self.k_group // packing",
        _A_IN_TMEM,
    ),
    *_tiles(
        "group = self.k_group // compression // packing",
        "group = self.k_group // compression",
        _A_IN_TMEM,
    ),
    *_tiles(
        "row_tile_column(tile.mi * TMEM_ROWS, columns) + tile.ki * group",
        "tile.ki * group",
        _A_IN_TMEM,
    ),
    *_tiles(
        "row_tile_column(tile.mi * TMEM_ROWS, columns) + tile.ki * group",
        "row_tile_column(tile.mi * TMEM_ROWS, columns)",
        _A_IN_TMEM,
    ),
    *_tiles(
        "row_tile_column(tile.mi * TMEM_ROWS, columns) + tile.ki * group",
        "row_tile_column(tile.mi * TMEM_ROWS, columns)"
        " + (tile.ki + tile.ni) * group",
        _A_IN_TMEM,
    ),
    # Scales: row tiles are major, missing, or of another width.
    *_tiles(
        "scale // SCALES_PER_COLUMN * row_tiles(rows) + row_tiles(row)",
        "scale // SCALES_PER_COLUMN + row_tiles(row) * row_tiles(rows)",
        _SCALED,
    ),
    *_tiles(
        "scale // SCALES_PER_COLUMN * row_tiles(rows) + row_tiles(row)",
        "scale // SCALES_PER_COLUMN * row_tiles(rows)",
        _SCALED,
    ),
    *_tiles(
        "scale // SCALES_PER_COLUMN * row_tiles(rows) + row_tiles(row)",
        "scale // SCALES_PER_COLUMN + row_tiles(row)",
        _SCALED,
    ),
    *_tiles(
        "return tile * SCALE_COLUMNS_PER_ROW_TILE", "return tile * 8", _SCALED
    ),
    Mutant(_TILES, "if scale % SCALES_PER_COLUMN:", "if scale % 2:", _PLAIN),
    # Scales of A: M does not advance, N does, no padding, K does not advance.
    *_tiles(
        "scale_column(rows, tile.mi * TMEM_ROWS, scale)",
        "scale_column(rows, 0, scale)",
        _SCALED,
    ),
    *_tiles(
        "scale_column(rows, tile.mi * TMEM_ROWS, scale)",
        "scale_column(rows, tile.ni * TMEM_ROWS, scale)",
        _SCALED,
    ),
    *_tiles("rows = max(self.m, TMEM_ROWS)", "rows = TMEM_ROWS", _SCALED),
    *_tiles("rows = max(self.m, TMEM_ROWS)", "rows = self.m", _TWO_CTA),
    *_tiles(
        "rows = max(self.m, TMEM_ROWS)\n"
        "    scale = tile.ki * self.k_group // scale_block",
        "rows = max(self.m, TMEM_ROWS)\n    scale = 0",
        _SCALED,
    ),
    # Scales of B: too few rows, N does not advance, M does, K does not.
    *_tiles(
        "rows = columns // SCALE_COLUMNS_PER_ROW_TILE * TMEM_ROWS",
        "rows = TMEM_ROWS",
        _SCALED,
    ),
    *_tiles(
        "rows = columns // SCALE_COLUMNS_PER_ROW_TILE * TMEM_ROWS",
        "rows = max(self.n * self.num_cta // TMEM_ROWS, 1) * TMEM_ROWS",
        _SCALED,
    ),
    *_tiles(
        "row = tile.ni * self.n_tile * self.num_cta\n    scale",
        "row = 0\n    scale",
        _SCALED,
    ),
    *_tiles(
        "row = tile.ni * self.n_tile * self.num_cta\n    scale",
        "row = (tile.ni + tile.mi) * TMEM_ROWS\n    scale",
        _SCALED,
    ),
    *_tiles(
        "self.num_cta\n    scale = tile.ki * self.k_group // scale_block",
        "self.num_cta\n    scale = 0",
        _SCALED,
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
    # Block scales: their shapes, addresses, copies, loads and stores.
    Mutant(_TCGEN05, "a_scale_shape = (max(m, TMEM_ROWS), k_scales)",
           "a_scale_shape = (TMEM_ROWS, k_scales)", _SCALED),
    Mutant(_TCGEN05, "a_scale_shape = (max(m, TMEM_ROWS), k_scales)",
           "a_scale_shape = (m, k_scales)", _TWO_CTA),
    Mutant(_TCGEN05, "elif m % TMEM_ROWS == 0:", "elif m == TMEM_ROWS:",
           _SCALED),
    Mutant(_TCGEN05, "utils.c(tiles.a_scale_column(tile, scale_block), i32)",
           "utils.c(0, i32)", _SCALED),
    Mutant(_TCGEN05,
           "tiles.b_scale_column(tile, scale_block, b_scale_n_stride)", "0",
           _SCALED),
    Mutant(_TCGEN05, "scale_block, b_scale_n_stride)",
           "scale_block, b_scale.shape[0] // 32)", _TWO_CTA),
    Mutant(_TCGEN05, "tmem_ref.shape[0], mn_tile * TMEM_ROWS, k_tile * 4",
           "tmem_ref.shape[0], 0, k_tile * 4", _SCALED),
    Mutant(_TCGEN05, "tmem_ref.shape[0], mn_tile * TMEM_ROWS, k_tile * 4",
           "TMEM_ROWS, mn_tile * TMEM_ROWS, k_tile * 4", _SCALED),
    Mutant(_TCGEN05, "registers.reshape(k_tile_dim, row_tile_dim, *tile_dims)",
           "registers.reshape(row_tile_dim, k_tile_dim, *tile_dims)", _SCALED),
    Mutant(_TCGEN05, "registers = registers.swapaxes(0, 1)\n      _store",
           "pass\n      _store", _SCALED),
    # A in TMEM: the address of a tile, the copy of several row tiles.
    Mutant(_TCGEN05, "tiles.a_column(tile, a.packing, 1 + is_sparse)",
           "tiles.a_column(tile, a.packing, 1)", _A_IN_TMEM),
    Mutant(_TCGEN05, "tiles.a_column(tile, a.packing, 1 + is_sparse)",
           "tiles.a_column(tile, 1, 1 + is_sparse)", _A_IN_TMEM),
    Mutant(_TCGEN05, "a_mk = arith.addi(a.address, utils.c(a_column, i32))",
           "a_mk = a.address", _A_IN_TMEM),
    Mutant(_TCGEN05, "stride_byte_offset * (TMEM_ROWS // 8)",
           "stride_byte_offset * (TMEM_ROWS // 16)", _A_IN_TMEM),
    Mutant(_TCGEN05, "tcgen05_tiles.row_tile_column(row, row_tile_cols)", "0",
           _A_IN_TMEM),
    Mutant(_TCGEN05, "[row_tile_offset + smem_byte_offset]",
           "[smem_byte_offset]", _A_IN_TMEM),
    # What fits is decided by all operands.
    Mutant(_TCGEN05, '"A": a if isinstance(a, TMEMRef) else None,',
           '"A": None,', _A_IN_TMEM),
    Mutant(_TCGEN05, '"A scale": a_scale,', '"A scale": None,', _SCALED),
    Mutant(_TCGEN05, '"B scale": b_scale,', '"B scale": None,', _SCALED),
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
    Mutant(_CORE, "key=_num_cols, reverse=True", "key=_num_cols", _ALLOC),
    Mutant(_CORE, "[_num_cols(alloc) for alloc in tmem_allocs]", "[]", _ALLOC),
    Mutant(_LOWERING, "key=lambda alloc: alloc[0], reverse=True",
           "key=lambda alloc: alloc[0]", _ALLOC),
    Mutant(_LOWERING, "op.operation.move_before(permit.operation)", "pass",
           _ALLOC),
    Mutant(_LOWERING, "[num_cols for num_cols, _ in allocs]", "[]", _ALLOC),
    Mutant(_TCGEN05, "total = sum(tmem_alloc_exact_ncols(n, exact=False)",
           "total = sum(n", _ALLOC),
    Mutant(_LOWERING, "shape = cast(tuple[int, int], tuple(ref_ty.shape))",
           "shape = (128, ref_ty.shape[1])", _ALLOC),
    # GPU interpret mode: formats of metadata and scales.
    Mutant(_HELPERS, "halves.swapaxes(1, 4)", "halves.swapaxes(1, 1)",
           _INTERPRET_SPARSE),
    Mutant(_OPERANDS, "tiles.swapaxes(1, 2).reshape(shape)",
           "tiles.reshape(shape)", _INTERPRET_SPARSE),
    Mutant(_OPERANDS, "parts.transpose(0, 3, 2, 1, 4)",
           "parts.transpose(0, 2, 3, 1, 4)", _INTERPRET_SPARSE),
    Mutant(_OPERANDS, "valid = (first % 2 == 0) &", "valid = (first >= 0) &",
           _INTERPRET_SPARSE),
    Mutant(_OPERANDS, "rows[n // 2 :] += _ROWS - n // 2", "pass",
           _INTERPRET_TWO_CTAS),
    # Reads that race detection does not hear of.
    Mutant(_CALLBACKS, "if clock is not None:\n      in_smem",
           "if False:\n      in_smem", _INTERPRET_SPARSE),
    Mutant(_CALLBACKS,
           "self._read(key, shared_memory.access(key, transforms), clock)",
           "self._read(key, shared_memory.access(key, transforms), None)",
           _INTERPRET_SPARSE),
    Mutant(_CALLBACKS, "self.acc_key, False,\n", "self.a_key, False,\n",
           _INTERPRET_SPARSE),
    Mutant(_CALLBACKS, "self._read(self.a_key, self.a_access, clock)",
           "self._read(self.a_key, self.a_access, None)", _INTERPRET_SPARSE),
    # Two CTAs: the other one's part is missing, the same, or elsewhere.
    Mutant(_CALLBACKS,
           "return () if block_id % 2 else (block_id, block_id + 1)",
           "return (block_id,)", _INTERPRET_TWO_CTAS),
    Mutant(_CALLBACKS, "indexing.Slice(thread.block_id % 2 * size, size)",
           "indexing.Slice(0, size)", _INTERPRET_TWO_CTAS),
    Mutant(_CALLBACKS, "block.b_access, clock) for block in blocks]",
           "block.b_access, clock) for block in blocks[::-1]]",
           _INTERPRET_TWO_CTAS),
    Mutant(_MEMORY, "clock.update(clock_of_other)", "pass",
           _INTERPRET_TWO_CTAS),
)


def _fails(root: pathlib.Path, tests: Sequence[str]) -> bool:
  """Returns whether one of the test files fails in a tree."""
  process = subprocess.run(
      [
          sys.executable, "-m", "pytest", "-q", "-x", "-p",
          "no:cacheprovider", "--rootdir", str(root),
          *(f"tests/mosaic/{test}" for test in tests),
      ],
      cwd=root,
      env=trees.environment(root) | {"PYTHONDONTWRITEBYTECODE": "1"},
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
  )
  # 1 is a failed test. Anything else is a fault of this script.
  if process.returncode not in (0, 1):
    raise RuntimeError(process.stdout)
  return process.returncode == 1


def mutated(files: Mapping[str, bytes], mutant: Mutant) -> bytes:
  """Returns the file of a mutant, changed.

  Raises:
    ValueError: If the place is not there exactly once.
  """
  text = files[mutant.path].decode()
  if text.count(mutant.old) != 1:
    raise ValueError(
        f"Expected {mutant.old!r} once in {mutant.path}, found it"
        f" {text.count(mutant.old)} times"
    )
  return text.replace(mutant.old, mutant.new).encode()


def main() -> int:
  tree = engine.Tree.open(trees.pristine(patches.BASE))
  files = engine.merged(engine.compute(tree, engine.load_series()))
  jobs = 2
  wanted = set(sys.argv[1:])
  mutants = [m for m in MUTANTS if not wanted or wanted & set(m.tests)]
  changed = {mutant: mutated(files, mutant) for mutant in mutants}
  survivors = []

  def run(root: pathlib.Path, mutant: Mutant) -> bool:
    """Returns whether a test fails for the mutant."""
    try:
      engine.write(root, {mutant.path: changed[mutant]})
      return _fails(root, mutant.tests)
    finally:
      engine.write(root, {mutant.path: files[mutant.path]})

  with tempfile.TemporaryDirectory() as folder:
    free: queue.Queue[pathlib.Path] = queue.Queue()
    for i in range(jobs):
      root = pathlib.Path(folder) / f"tree{i}"
      trees.copy(tree.root, root)
      engine.write(root, files)
      free.put(root)

    def in_tree(function, arg) -> bool:
      root = free.get()
      try:
        return function(root, arg)
      finally:
        free.put(root)

    with futures.ThreadPoolExecutor(jobs) as pool:
      # Tests that fail anyway kill everything.
      tests = list(dict.fromkeys(m.tests for m in mutants))
      for names, failed in zip(
          tests, pool.map(functools.partial(in_tree, _fails), tests)
      ):
        if failed:
          raise ValueError(f"Without a mutation, {', '.join(names)} fails")
      verdicts = pool.map(functools.partial(in_tree, run), mutants)
      for mutant, killed in zip(mutants, verdicts):
        verdict = "killed" if killed else "SURVIVED"
        change = f"{mutant.old!r} -> {mutant.new!r}"
        print(f"{verdict:8} {', '.join(mutant.tests)}: {change}", flush=True)
        if not killed:
          survivors.append(mutant)
  print(f"mutants: {len(mutants) - len(survivors)} of {len(mutants)} killed")
  return 1 if survivors else 0


if __name__ == "__main__":
  sys.exit(main())
