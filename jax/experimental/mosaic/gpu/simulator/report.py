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
"""What a kernel did, as numbers, as a table and as a picture.

Times are steps: instructions executed so far, each by one set of threads.
"""

from __future__ import annotations

import collections
import dataclasses
import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import errors, observers
from .step import WARP

# The picture shows the tensor memory of this many CTAs.
PICTURED_CTAS = 4
_COLUMNS = 512

Cta = tuple[int, int, int]


@dataclasses.dataclass
class TmemAllocation:
  """Columns of tensor memory, from tcgen05.alloc to tcgen05.dealloc.

  Attributes:
    cta: the CTA in whose tensor memory they lie, as grid coordinates.
    column, count: which columns.
    first_step, last_step: when; last_step is None if they were never freed.
    where: the instruction that allocated them.
  """

  cta: Cta
  column: int
  count: int
  first_step: int
  last_step: int | None = None
  where: errors.Where | None = None

  @property
  def columns(self) -> str:
    return f"{self.column}..{self.column + self.count - 1}"


@dataclasses.dataclass
class BarrierWaits:
  """How warps waited for one mbarrier.

  Attributes:
    passed: waits that found the phase complete.
    parked: waits that did not: the warp stood until the phase was complete, or
      went on to try again.
  """

  passed: int = 0
  parked: int = 0


@dataclasses.dataclass(frozen=True)
class _Use:
  """An access of the tensor core or a warp to columns first..last."""

  step: int
  first: int
  last: int
  what: str


@dataclasses.dataclass
class Report(observers.Statistics):
  """Counts what a kernel did, beyond what `Statistics` counts.

  Attributes:
    steps: executed steps.
    thread_instructions: instructions of single threads, by opcode. Those whose
      guard is false count, too.
    allocations: of tensor memory, in order.
    barrier_waits: by CTA (grid coordinates) and address of the mbarrier.
  """

  steps: int = 0
  thread_instructions: collections.Counter[str] = dataclasses.field(
      default_factory=collections.Counter
  )
  allocations: list[TmemAllocation] = dataclasses.field(default_factory=list)
  barrier_waits: dict[tuple[Cta, int], BarrierWaits] = dataclasses.field(
      default_factory=dict
  )
  _machine: Any = dataclasses.field(default=None, repr=False)
  _uses: dict[Cta, list[_Use]] = dataclasses.field(
      default_factory=dict, repr=False
  )

  # Observing.

  def attach(self, machine):
    self._machine = machine

  def on_exit(self, machine):
    self._machine = None  # It is large.

  def _cta(self, slot: int) -> Cta:
    x, y, z = self._machine.cta_id[slot].tolist()
    return x, y, z

  def on_instruction(self, step):
    super().on_instruction(step)
    self.steps += 1
    self.thread_instructions[step.instruction.opcode] += step.n

  def on_alloc(self, cta, column, count, who):
    super().on_alloc(cta, column, count, who)
    self.allocations.append(
        TmemAllocation(
            self._cta(cta), column, count, self.steps, where=who.locate()
        )
    )

  def on_dealloc(self, cta, column, count, who):
    cta = self._cta(cta)
    for allocation in reversed(self.allocations):
      if (allocation.cta, allocation.column) == (cta, column):
        allocation.last_step = self.steps
        return

  def on_tmem_read(self, cta, lanes, columns, who):
    super().on_tmem_read(cta, lanes, columns, who)
    self._use(cta, columns, who)

  def on_tmem_write(self, cta, lanes, columns, who):
    super().on_tmem_write(cta, lanes, columns, who)
    self._use(cta, columns, who)

  def _use(self, slots, columns, who) -> None:
    if np.min(slots) >= PICTURED_CTAS:
      return
    slots, columns = np.broadcast_arrays(slots, columns)
    for slot in range(PICTURED_CTAS):
      mine = columns[slots == slot]
      if not mine.size:
        continue
      cta = self._cta(slot)
      if cta in self._uses or len(self._uses) < PICTURED_CTAS:
        self._uses.setdefault(cta, []).append(
            _Use(self.steps, int(mine.min()), int(mine.max()), who.what)
        )

  def on_wait(self, ctas, addrs, passed, threads):
    warps = threads // WARP
    first = np.flatnonzero(np.diff(warps, prepend=-1))
    for slot, addr, done in zip(
        ctas[first].tolist(), addrs[first].tolist(), passed[first].tolist()
    ):
      key = (self._cta(slot), addr)
      waits = self.barrier_waits.get(key)
      if waits is None:
        waits = self.barrier_waits[key] = BarrierWaits()
      if done:
        waits.passed += 1
      else:
        waits.parked += 1

  # Reading.

  @property
  def instruction_kinds(self) -> collections.Counter[str]:
    """Instructions of single threads, by `kind`."""
    result: collections.Counter[str] = collections.Counter()
    for opcode, count in self.thread_instructions.items():
      result[kind(opcode)] += count
    return result

  def tmem_operands(self) -> list[tuple[int, int, str]]:
    """Returns what lies where in tensor memory, of the CTA that allocates first.

    Returns:
      The first column, the last one and what was in them, for all parts of the
      allocated columns. Parts that are never accessed are "unused".
    """
    if not self.allocations:
      return []
    cta = self.allocations[0].cta
    mine = [a for a in self.allocations if a.cta == cta]
    return _operands(mine, self._uses.get(cta, ()))

  def __str__(self) -> str:
    return "\n".join(self._lines())

  def _lines(self) -> Iterator[str]:
    count = "{:,}".format
    yield from _table([
        ("steps", count(self.steps)),
        ("instructions of threads", count(self.thread_instructions.total())),
        *(
            (f"tcgen05.mma {name}", count(n))
            for name, n in sorted(self.mma_instructions.items())
        ),
        ("FLOPs of tcgen05.mma", count(self.flops)),
        ("bytes from global memory (TMA)", count(self.load_bytes)),
        ("bytes to global memory (TMA)", count(self.store_bytes)),
        *(
            [("bytes reduced in global memory (TMA)",
              count(self.reduce_bytes))]
            if self.reduce_bytes else []
        ),
        ("shared memory bytes read by tcgen05.mma",
         count(self.shared_operand_bytes)),
    ])
    kinds = self.instruction_kinds.most_common()
    rows = [("instructions", "threads")]
    rows += [(name, count(n)) for name, n in kinds[:16]]
    if others := kinds[16:]:
      rows.append(
          (f"{len(others)} other kinds", count(sum(n for _, n in others)))
      )
    yield ""
    yield from _table(rows)
    if self.allocations:
      rows = [("TMEM columns", "CTAs", "steps", "first allocated by")]
      groups = collections.defaultdict(list)
      for allocation in self.allocations:
        groups[allocation.column, allocation.count].append(allocation)
      for group in groups.values():
        first = group[0]
        ends = [a.last_step for a in group]
        end = "never freed" if None in ends else max(ends)
        rows.append((
            first.columns, count(len({a.cta for a in group})),
            f"{min(a.first_step for a in group)}..{end}", _who(first),
        ))
      yield ""
      yield from _table(rows)
    if self.barrier_waits:
      by_addr = collections.defaultdict(list)
      for (_, addr), waits in self.barrier_waits.items():
        by_addr[addr].append(waits)
      yield ""
      yield from _table([
          ("mbarrier", "CTAs", "waits", "parked"),
          *(
              (
                  f"{addr:#x}", count(len(waits)),
                  count(sum(w.passed for w in waits)),
                  count(sum(w.parked for w in waits)),
              )
              for addr, waits in sorted(by_addr.items())
          ),
      ])

  def to_svg(self) -> str:
    """Draws the tensor memory of the first CTAs over time, as an SVG file.

    A rectangle for each allocation, with what was accessed in it and when.
    """
    return _svg(self.allocations, self._uses, self.steps)


_TWO_WORDS = frozenset((
    "bar", "barrier", "clusterlaunchcontrol", "fence", "mbarrier", "tcgen05",
))
_SPACES = frozenset(("global", "local", "param", "shared"))


def kind(opcode: str) -> str:
  """Groups opcodes: `ld.shared.v4.b32` is a `ld.shared`, for example."""
  words = opcode.replace("::", ".").split(".")
  if words[0] in _TWO_WORDS:
    return ".".join(words[:2])
  if words[0] == "cp":
    parts = ("cp", "async", "reduce", "bulk", "tensor", "commit_group",
             "wait_group", "prefetch")
    if "arrive" in words:
      return "cp.async.mbarrier.arrive"
    return ".".join(word for word in words if word in parts)
  if words[0] in ("ld", "st", "atom", "red"):
    return ".".join([words[0], *(w for w in words[1:] if w in _SPACES)])
  return words[0]


def _who(allocation: TmemAllocation) -> str:
  where = allocation.where
  if where is None:
    return ""
  cta = ",".join(map(str, where.cta)) if where.cta else "?"
  return f"CTA ({cta}) warp {where.warp}, PTX line {where.line}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
  """Aligns rows of texts, numbers to the right."""
  widths = [max(map(len, column)) for column in zip(*rows)]
  for row in rows:
    cells = [
        text.rjust(width) if i and i < len(row) - (len(row) > 3) else
        text.ljust(width)
        for i, (text, width) in enumerate(zip(row, widths))
    ]
    yield "  ".join(cells).rstrip()


# The picture.

_LOAD = "tcgen05.ld"
# What accesses columns (how its name begins), how the legend calls it, and in
# which colour. Where several do at a time, the picture shows the first one.
_PURPOSES = (
    ("tcgen05.mma operand D", "D of MMA", "#d95f02"),
    ("tcgen05.mma operand A", "A of MMA", "#377eb8"),
    ("tcgen05.mma.sp metadata", "sparse metadata", "#1b9e77"),
    ("tcgen05.mma scale factors of A", "scales of A", "#7570b3"),
    ("tcgen05.mma scale factors of B", "scales of B", "#b15fa5"),
    ("tcgen05.cp destination", "copied in (cp)", "#66a61e"),
    ("tcgen05.st", "stored (st)", "#e6ab02"),
    (_LOAD, "loaded (ld)", "#555555"),
    ("", "other", "#a6761d"),
)
_OPERANDS = 5  # So many of them are operands of MMAs.

# All in pixels.
_WIDTH, _LEFT, _PLOT, _HEIGHT = 1080, 64, 640, 256
_TOP, _GAP, _LINE = 64, 72, 14
_BINS, _UNIT = 160, 8  # Of the plot: bins of time, columns of a row.


def _purpose(what: str) -> int:
  starts = (what.startswith(prefix) for prefix, _, _ in _PURPOSES)
  return list(starts).index(True)


def _areas(uses: Sequence[_Use], steps: int) -> Iterator[tuple[int, ...]]:
  """(first bin, end, first row, end, purpose) of rectangles of equal colour.

  The purpose is ~i where the columns are not accessed, but will be later.
  """
  none = len(_PURPOSES)
  grid = np.full((_COLUMNS // _UNIT, _BINS), none)
  for use in uses:
    rows = slice(use.first // _UNIT, use.last // _UNIT + 1)
    time = min(use.step * _BINS // (steps + 1), _BINS - 1)
    grid[rows, time] = np.minimum(grid[rows, time], _purpose(use.what))
  for row in grid:
    used, owner = np.flatnonzero(row < none), none
    for time in range(used[-1]) if used.size else ():
      if row[time] == none:
        row[time] = ~owner if owner < none else none
      else:  # A load is the end of what lies there.
        owner = none if _PURPOSES[row[time]][0] == _LOAD else row[time]
  open_runs: dict[tuple[int, int, int], int] = {}  # Run -> its first row.
  for row in range(len(grid) + 1):
    runs = set()
    if row < len(grid):
      cuts = (np.flatnonzero(np.diff(grid[row])) + 1).tolist()
      for begin, end in zip([0, *cuts], [*cuts, _BINS]):
        if grid[row, begin] != none:
          runs.add((begin, end, int(grid[row, begin])))
    for run in [r for r in open_runs if r not in runs]:
      yield run[0], run[1], open_runs.pop(run), row, run[2]
    for run in sorted(runs):
      open_runs.setdefault(run, row)


def _operands(
    allocations: Sequence[TmemAllocation], uses: Sequence[_Use]
) -> list[tuple[int, int, str]]:
  """(first column, last, what for) of the parts of the allocated columns."""
  purposes = [set() for _ in range(_COLUMNS)]
  for first, last, what in {(u.first, u.last, u.what) for u in uses}:
    for column in range(first, last + 1):
      purposes[column].add(_purpose(what))
  names = [""] * _COLUMNS
  for a in allocations:
    for column in range(a.column, a.column + a.count):
      # Whatever an MMA has there was copied or stored before.
      mine = sorted(purposes[column])
      operands = [p for p in mine if p < _OPERANDS] or mine
      names[column] = ", ".join(_PURPOSES[p][1] for p in operands) or "unused"
  parts, first = [], 0
  for column in range(1, _COLUMNS + 1):
    if column == _COLUMNS or names[column] != names[first]:
      if names[first]:
        parts.append((first, column - 1, names[first]))
      first = column
  return parts


def _spread(wanted: Sequence[float], bottom: float) -> list[float]:
  """Moves ascending positions of labels until they are a line apart."""
  spots: list[float] = []
  for y in wanted:
    spots.append(max(y, spots[-1] + _LINE) if spots else y)
  for i in reversed(range(len(spots))):
    spots[i] = min(spots[i], bottom)
    bottom = spots[i] - _LINE
  return spots


def _ticks(steps: int) -> list[int]:
  """About six round numbers from 0 to steps."""
  size = 10 ** max(len(str(max(steps, 1))) - 2, 0)
  while steps / size > 7:
    size *= 2 if str(size)[0] != "2" else 2.5
    size = int(size)
  return list(range(0, steps + 1, size))


def _svg(
    allocations: Sequence[TmemAllocation],
    uses: dict[Cta, list[_Use]],
    steps: int,
) -> str:
  all_ctas = list(dict.fromkeys(a.cta for a in allocations))
  ctas = all_ctas[:PICTURED_CTAS]
  parts = []

  def text(x, y, content, **attributes):
    attributes = "".join(
        f' {k.replace("_", "-")}="{v}"' for k, v in attributes.items()
    )
    parts.append(
        f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{html.escape(content)}'
        "</text>"
    )

  def rect(x, y, width, height, title="", **attributes):
    attributes = "".join(
        f' {k.rstrip("_").replace("_", "-")}="{v}"'
        for k, v in attributes.items()
    )
    title = f"<title>{html.escape(title)}</title>" if title else ""
    parts.append(
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
        f' height="{height:.1f}"{attributes}>{title}</rect>'
    )

  def line(x1, y1, x2, y2, color="#ccc"):
    parts.append(
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="{color}"/>'
    )


  def at_step(step):
    return _LEFT + _PLOT * step / max(steps, 1)

  def at_column(column):
    return top + height * column / _COLUMNS

  seen = set()
  top = _TOP
  for cta in ctas:
    mine = [a for a in allocations if a.cta == cta]
    operands = _operands(mine, uses.get(cta, ()))
    height = max(_HEIGHT, _LINE * (len(mine) + len(operands)))
    text(
        _LEFT, top - 8, f"Tensor memory of CTA ({','.join(map(str, cta))})",
        font_weight="bold",
    )
    rect(_LEFT, top, _PLOT, height, fill="#fff", stroke="#999")
    for column in range(0, _COLUMNS + 1, 64):
      y = at_column(column)
      line(_LEFT - 4, y, _LEFT, y, "#999")
      text(_LEFT - 8, y + 4, str(column), text_anchor="end")
    parts.append(
        f'<text transform="translate(16,{top + height / 2:.1f}) rotate(-90)"'
        ' text-anchor="middle">column</text>'
    )
    for step in _ticks(steps):
      x = at_step(step)
      line(x, top + height, x, top + height + 4, "#999")
      text(x, top + height + 17, f"{step:,}", text_anchor="middle")
    text(
        _LEFT + _PLOT / 2, top + height + 34, "step", text_anchor="middle"
    )
    labels = []  # The y that they belong to, where their line begins, text.
    for a in sorted(mine, key=lambda a: (a.column, a.first_step)):
      end = steps if a.last_step is None else a.last_step
      x, y = at_step(a.first_step), at_column(a.column)
      width, bottom = at_step(end) - x, at_column(a.column + a.count)
      until = "the end, never freed" if a.last_step is None else f"{end:,}"
      what = f"{a.columns}: steps {a.first_step:,} to {until}"
      rect(
          x, y, max(width, 1), bottom - y, f"{what}; {_who(a)}",
          class_="allocation", fill="#f0f0f0", stroke="#000",
      )
      labels.append((
          (y + bottom) / 2, x + width, f"{what} ({_who(a).partition(', ')[2]})"
      ))
    for begin, end, first, last, purpose in _areas(uses.get(cta, ()), steps):
      used = purpose >= 0
      _, name, color = _PURPOSES[purpose if used else ~purpose]
      seen.add((color, name))
      y = at_column(first * _UNIT)
      rect(
          _LEFT + _PLOT * begin / _BINS, y, _PLOT * (end - begin) / _BINS,
          at_column(last * _UNIT) - y, name if used else f"kept: {name}",
          class_="use", fill=color, fill_opacity=1 if used else 0.25,
      )
    for first, last, name in operands:
      labels.append((
          at_column((first + last + 1) / 2), _LEFT + _PLOT,
          f"{first}..{last}: {name}",
      ))
    labels.sort(key=lambda label: label[0])
    spots = _spread([y for y, _, _ in labels], top + height)
    for spot, (y, x, label) in zip(spots, labels):
      line(x, y, _LEFT + _PLOT + 20, spot, "#999")
      text(_LEFT + _PLOT + 24, spot + 4, label)
    top += height + _GAP
  x = _LEFT
  if ctas:
    legend = [("#f0f0f0", "allocated")]
    legend += [p[:0:-1] for p in _PURPOSES if p[:0:-1] in seen]
    for color, name in legend:
      rect(x, 16, 12, 12, class_="legend", fill=color, stroke="#000")
      text(x + 18, 26, name)
      x += 34 + 7 * len(name)
    if seen:
      text(x, 26, "(faint: kept for later)")
  else:
    text(_LEFT, top, "No tensor memory was allocated.")
  if more := len(all_ctas) - len(ctas):
    text(_LEFT, top - 20, f"and {more:,} more CTAs")
  size = f'width="{_WIDTH}" height="{top}"'
  return "\n".join([
      f'<svg xmlns="http://www.w3.org/2000/svg" {size}'
      f' viewBox="0 0 {_WIDTH} {top}" font-family="sans-serif"'
      ' font-size="12">',
      f'<rect {size} fill="#fff"/>', *parts, "</svg>", "",
  ])
