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
"""Brings `docs/tutorial.md` and its pictures up to date with the steps.

The page has places for code, for output and for tables. They begin with a
comment that names what goes there, and reach to the next `<!-- end -->`. Needs
JAX with the patches, and fetches one without them.
"""

from collections.abc import Callable, Iterator
import contextlib
import difflib
import functools
import html
import importlib
import os
import pathlib
import re
import subprocess
import sys

from jax.experimental.mosaic.gpu import tcgen05_tiles
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = HERE.with_suffix(".md")
_PLACE = re.compile(r"<!-- (?P<name>\w+(?: \w+)*) -->\n.*?<!-- end -->", re.S)

# The steps that multiply the same matrices.
SAME = {
    "k_loop": "3. steps along K",
    "warps": "4. a warp for each role",
    "persistent": "5. persistent",
    "two_ctas": "6. two CTAs",
    "finished": "7. `sparse_matmul`",
}
SIZE = dict(m=512, n=256, k=256)


def step(name: str):
  with _steps_importable():
    return importlib.import_module(name)


@contextlib.contextmanager
def _steps_importable() -> Iterator[None]:
  sys.path.insert(0, str(HERE))
  try:
    yield
  finally:
    sys.path.remove(str(HERE))


@functools.cache
def report(name: str, **size):
  """The report of a step, after its numbers were checked."""
  return step("common").run(step(name).matmul, **size)


# What goes into the page.


def _fenced(language: str, text: str) -> str:
  return f"```{language}\n{text.strip()}\n```"


def _source(name: str) -> str:
  """A step without the licence."""
  text = (HERE / f"{name}.py").read_text()
  return text[text.index('"""'):]


def _code(name: str) -> str:
  return _fenced("python", _source(name))


def _changes(old: str, new: str) -> str:
  lines = difflib.unified_diff(
      _source(old).splitlines(), _source(new).splitlines(), f"{old}.py",
      f"{new}.py", n=2, lineterm="",
  )
  return _fenced("diff", "\n".join(lines))


def _result(name: str, **size) -> str:
  return _fenced("text", step("common").summary(report(name, **size)))


def _table(*rows) -> str:
  head, *rest = [[str(cell) for cell in row] for row in rows]
  lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rest]
  return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _used_columns(r) -> int:
  return sum(
      last + 1 - first
      for first, last, what in r.tmem_operands() if what != "unused"
  )


def _overview() -> str:
  rows = [(
      "step", "`tcgen05.mma`", "bytes loaded by TMA", "bytes read by MMAs",
      "TMEM columns used",
  )]
  for name, title in SAME.items():
    r = report(name, **SIZE)
    mmas = sum(r.mma_instructions.values())
    rows.append((
        title, mmas, f"{r.load_bytes:,}", f"{r.shared_operand_bytes:,}",
        _used_columns(r),
    ))
  return _table(*rows)


def _budget() -> str:
  """The widest D for numbers of rows and steps along K."""
  sizes = 128, 256, 512
  rows = [("M", *(f"N at K = {k}" for k in sizes))]
  for m in 128, 256, 384, 512:
    rows.append((m, *(_widest(m, k) for k in sizes)))
  return _table(*rows)


def _widest(m: int, k: int) -> int:
  entries = tcgen05_tiles.metadata_entries(k, 4)
  metadata = tcgen05_tiles.row_tile_column(
      m, tcgen05_tiles.metadata_columns(entries)
  )
  for n in range(512, 0, -16):
    with contextlib.suppress(ValueError):
      tcgen05_tiles.check_columns(
          dict(d=tcgen05_tiles.row_tile_column(m, n), metadata=metadata)
      )
      return n
  raise AssertionError


def _traffic() -> str:
  rows = [(
      "M x N of a call", "TMEM columns", "`tcgen05.mma`",
      "FLOPs per byte loaded by TMA", "FLOPs per byte read by MMAs",
  )]
  for m, n in (128, 64), (256, 64), (128, 128), (256, 128):
    r = report("one_call", m=m, n=n, k=128)
    rows.append((
        f"{m} x {n}", _used_columns(r), sum(r.mma_instructions.values()),
        f"{r.flops / r.load_bytes:.0f}",
        f"{r.flops / r.shared_operand_bytes:.0f}",
    ))
  return _table(*rows)


def _scaled() -> str:
  finished = step("finished")
  return _fenced("text", step("common").summary(_scaled_report(finished)))


@functools.cache
def _scaled_report(finished):
  return finished.run_scaled(m=256, n=128, k=256)


def _too_large() -> str:
  finished = step("finished")
  config = finished.sparse_matmul_blackwell.TuningConfig(tile_m=512, tile_n=128)
  try:
    config.check(jnp.float16)
  except ValueError as e:
    return _fenced("text", f"ValueError: {e}")
  raise AssertionError("It fits")


def _output(name: str) -> str:
  """What a script prints."""
  env = os.environ | {"JAX_PLATFORMS": "cpu"}
  process = subprocess.run(
      [sys.executable, str(HERE / f"{name}.py")], env=env,
      stdout=subprocess.PIPE, text=True, check=True,
  )
  return _fenced("text", process.stdout)


# Runs with the JAX of the release. It brings what that does not have, calls the
# kernel of the first step, and then `tcgen05.mma` itself.
_WITHOUT_PATCHES = """
import importlib.util, sys
import jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import arith, builtin
from jax.experimental.mosaic import gpu as mgpu
from jax.experimental.mosaic.gpu import tcgen05

root, steps = sys.argv[1:]
assert not jax.__file__.startswith(root + "/.venv"), jax.__file__
for name in ("deviceless", "sparsity"):
  path = f"{root}/jax/experimental/mosaic/gpu/{name}.py"
  spec = importlib.util.spec_from_file_location(f"{mgpu.__name__}.{name}", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  setattr(mgpu, name, module)
mgpu.simulator = None
sys.path.insert(0, steps)
import common, one_call

def attempt(what, call):
  try:
    call()
    print(f"{what}: accepted")
  except Exception as e:
    print(f"{what}:", f"  {type(e).__name__}: {e}", sep="\\n")

def pallas(m):
  args, _ = common.problem(m, 64, 128)
  with mgpu.deviceless.as_blackwell():
    lowered = jax.jit(one_call.matmul).trace(*args)
    lowered.lower(lowering_platforms=("cuda",))

def core(m, n):
  zero = arith.constant(ir.IntegerType.get_signless(32), 0)
  def tmem(shape, dtype, layout):
    return tcgen05.TMEMRef(zero, shape, dtype, layout)
  def smem(*shape):
    ty = ir.MemRefType.get(shape, f16, memory_space=mgpu.utils.smem())
    return builtin.unrealized_conversion_cast([ty], [zero])
  f16, f32 = ir.F16Type.get(), ir.F32Type.get()
  tcgen05.mma(
      tmem((m, n), f32, tcgen05.tmem_default_layout()),
      smem(m // 8, 1, 8, 64), smem(16, n // 64, 8, 64),
      a_swizzle=128, b_swizzle=128, accumulate=False,
      a_sparse_metadata=tmem(
          (m, 64), ir.IntegerType.get_signless(2), tcgen05.sparse_meta_layout()
      ),
  )

for m in (128, 256):
  attempt(f"plgpu.tcgen05_mma, M={m} N=64", lambda: pallas(m))
with mlir.make_ir_context(), ir.Location.unknown():
  module = ir.Module.create()
  with ir.InsertionPoint(module.body):
    for m, n in ((256, 64), (128, 384), (128, 512)):
      attempt(f"tcgen05.mma, M={m} N={n}", lambda: core(m, n))
"""


def _without_patches() -> str:
  tree = subprocess.run(
      [sys.executable, "-m", "patches", "pristine"], cwd=ROOT,
      stdout=subprocess.PIPE, text=True, check=True,
  ).stdout.strip()
  process = subprocess.run(
      [sys.executable, "-c", _WITHOUT_PATCHES, str(ROOT), str(HERE)],
      env=os.environ | {"PYTHONPATH": tree, "JAX_PLATFORMS": "cpu"},
      stdout=subprocess.PIPE, text=True, check=True,
  )
  return _fenced("text", process.stdout)


PLACES: dict[str, Callable[[], str]] = {
    "overview": _overview,
    "budget": _budget,
    "traffic": _traffic,
    "too large": _too_large,
    "without patches": _without_patches,
    "output compress": lambda: _output("compress"),
    "output mistakes": lambda: _output("mistakes"),
    "result one row tile": lambda: _result("one_call", m=128, n=64, k=128),
    "result two row tiles": lambda: _result("one_call", m=256, n=64, k=128),
    "result scaled": _scaled,
    "changes two_ctas": lambda: _changes("persistent", "two_ctas"),
    **{
        f"code {name}": functools.partial(_code, name)
        for name in (
            "common", "compress", "one_call", "k_loop", "warps", "persistent",
            "finished", "mistakes",
        )
    },
    **{
        f"result {name}": functools.partial(_result, name, **SIZE)
        for name in SAME
    },
}


def places(page: str) -> dict[str, str]:
  """What stands in the places of the page."""
  return {
      match["name"]: match[0].partition("\n")[2].rpartition("\n")[0]
      for match in _PLACE.finditer(page)
  }


def render(page: str) -> str:
  """Fills the places of the page."""
  return _PLACE.sub(
      lambda match: (
          f"<!-- {match['name']} -->\n{PLACES[match['name']]()}\n<!-- end -->"
      ),
      page,
  )


# Pictures.


def lanes_and_columns(rows: int, entries: int) -> np.ndarray:
  """(lane, column, place in it) -> (row, entry): where metadata goes.

  Numbers all entries, and sends their digits of two bits through the format.
  """
  number = np.arange(rows * entries).reshape(rows, entries // 2, 2)
  result = 0
  for shift in range(0, (rows * entries - 1).bit_length(), 2):
    digit = jnp.asarray(number >> shift & 3, jnp.uint2)
    formatted = plgpu.format_tcgen05_sparse_metadata(digit, jnp.float16)
    result = result + (np.asarray(formatted).astype(int) << shift)
  # A tile of 64 entries takes 4 columns, see `tcgen05_tiles.metadata_copies`.
  row_tiles, k_tiles = result.shape[:2]
  result = result.reshape(row_tiles, k_tiles, 128, 4, 16)
  result = result.transpose(2, 0, 1, 3, 4).reshape(128, -1, 16)
  return np.stack(np.divmod(result, entries), axis=-1)


COLORS = "#5cb89c", "#8fd0bb", "#b3e2cd", "#e5f5f0"


def _range(values: np.ndarray) -> str:
  return f"{values.min()}-{values.max()}"


def _metadata_picture() -> str:
  """Tensor memory with the metadata of 256 rows, and a part of it enlarged."""
  where = lanes_and_columns(256, 64)
  parts = []

  def text(x, y, content, **attributes):
    attributes = "".join(f' {k}="{v}"' for k, v in attributes.items())
    parts.append(
        f'<text x="{x}" y="{y}" text-anchor="middle"{attributes}>'
        f"{html.escape(content)}</text>"
    )

  def rect(x, y, width, height, fill):
    parts.append(
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}"'
        f' fill="{fill}" stroke="#000"/>'
    )

  # All columns, and at their left the first 16 lanes of the first one.
  left, top, cell, height, quarter = 500, 56, 62, 256, 128
  x0 = 70
  text(left + 4 * cell, 20, "tensor memory: 8 columns of 128 lanes")
  for column in range(8):
    x = left + column * cell
    rows, entries = where[:, column, :, 0], where[:, column, :, 1]
    rect(x, top, cell, height, COLORS[1 + column % 3])
    text(x + cell / 2, top - 8, str(column))
    for i, line in enumerate((
        "rows", _range(rows), "K",
        f"{2 * entries.min()}-{2 * entries.max() + 1}",
    )):
      text(x + cell / 2, top + 100 + 18 * i, line)
  rect(left, top, cell, 32, COLORS[0])
  for lane in 16, 127:
    text(left - 16, top + 2 * lane + 4, str(lane))
  for y, y0 in (top, top), (top + 32, top + 2 * quarter):
    parts.append(
        f'<path d="M{left} {y} L{x0 + 2 * quarter} {y0}" stroke="#999"/>'
    )
  text(x0 + quarter, 20, "lanes 0-15 of column 0")
  for i in range(2):
    text(x0 + (i + 0.5) * quarter, top - 8, f"bits {16 * i}-{16 * i + 15}")
    text(x0 - 34, top + (i + 0.5) * quarter, "lanes")
    text(x0 - 34, top + (i + 0.5) * quarter + 18, f"{8 * i}-{8 * i + 7}")
    for j in range(2):
      part = where[8 * i : 8 * i + 8, 0, 8 * j : 8 * j + 8]
      x, y = x0 + j * quarter, top + i * quarter
      rect(x, y, quarter, quarter, COLORS[0 if i == j else 2])
      text(x + quarter / 2, y + 58, f"rows {_range(part[..., 0])}")
      text(x + quarter / 2, y + 78, f"entries {_range(part[..., 1])}")
  return "\n".join([
      '<svg xmlns="http://www.w3.org/2000/svg" width="1040" height="330"'
      ' viewBox="0 0 1040 330" font-family="sans-serif" font-size="13">',
      '<rect width="1040" height="330" fill="#fff"/>', *parts, "</svg>", "",
  ])


def _tmem_picture(name: str, **size) -> str:
  return report(name, **size).to_svg()


PICTURES: dict[str, Callable[[], str]] = {
    "metadata": _metadata_picture,
    "one_row_tile": lambda: _tmem_picture("one_call", m=128, n=64, k=128),
    "two_row_tiles": lambda: _tmem_picture("one_call", m=256, n=64, k=128),
    "scaled": lambda: _scaled_report(step("finished")).to_svg(),
    # Those with CTAs that do the same show one of them.
    "k_loop": lambda: _tmem_picture("k_loop", m=256, n=64, k=512),
    "warps": lambda: _tmem_picture("warps", m=256, n=64, k=512),
    "persistent": lambda: _tmem_picture(
        "persistent", m=512, n=128, k=256, num_sms=1
    ),
    "two_ctas": lambda: _tmem_picture("two_ctas", **SIZE),
}


def main() -> None:
  PAGE.write_text(render(PAGE.read_text()))
  for name, picture in PICTURES.items():
    (HERE / f"{name}.svg").write_text(picture())


if __name__ == "__main__":
  main()
