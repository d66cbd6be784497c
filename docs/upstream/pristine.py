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
"""Runs the reports of this folder on JAX without and with the patches.

    python REPORT.py            # The release as it is, with the simulator.
    python REPORT.py --patched  # The JAX installed here, with the patches.
    python pristine.py          # All reports; --patched as well.

A report compares what it expects with what it finds. The exit code is 0 if all
of it differs on the release, and if none does with the patches.

The files of the release stay untouched: `deviceless` and `simulator` come from
this repository, and the simulator's hook is set in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator

_HERE = pathlib.Path(__file__).resolve().parent
_REPO = _HERE.parent.parent
_GPU = "jax/experimental/mosaic/gpu"
_PATCHED = "--patched" in sys.argv


@dataclasses.dataclass(frozen=True)
class Finding:
  """What a report compares. It is a fault if the two texts differ."""

  what: str
  expected: str
  found: str


Findings = Callable[[], Iterable[Finding]]


def _jax() -> pathlib.Path:
  """The folder that JAX is imported from."""
  spec = importlib.util.find_spec("jax")
  if spec is None or spec.origin is None:
    sys.exit("Expected JAX to be installed, found none; run `make demo` once")
  return pathlib.Path(spec.origin).parent.parent


def _is_patched() -> bool:
  return (_jax() / _GPU / "tcgen05_tiles.py").exists()


def enter() -> None:
  """Makes sure of the right JAX. Call it before JAX is imported.

  Starts the script again in a process that finds the release first.
  """
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  if str(_REPO) not in sys.path:
    sys.path.append(str(_REPO))
  if _PATCHED:
    if not _is_patched():
      sys.exit(
          f"Expected JAX with the patches, got {_jax()}; use the Python of"
          " .venv, which `make demo` builds"
      )
    return
  # pylint: disable=g-import-not-at-top
  import patches
  from patches import trees

  tree = trees.pristine(patches.BASE)
  if _jax() != tree:
    if "jax" in sys.modules:
      sys.exit("Expected enter() to be called before JAX is imported")
    paths = [str(tree), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",  # The tree is shared.
    }
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], env)
  _add_simulator()


def _add_simulator() -> None:
  """Lets the release find the simulator, and kernels of Pallas run on it."""
  from jax.experimental.mosaic import gpu as mgpu
  from jax.experimental.mosaic.gpu import core

  folder = str(_REPO / _GPU)
  if folder in mgpu.__path__:
    return
  mgpu.__path__.append(folder)
  lower = core._mosaic_gpu_lowering_rule  # pylint: disable=protected-access

  def rule(ctx, *args, module, out_types, inout_types, **params):
    simulated = getattr(core, "simulated_lowering_rule", None)
    platforms = ctx.platforms or ctx.module_context.platforms
    if simulated is None or tuple(platforms) != ("cpu",):
      return lower(
          ctx, *args, module=module, out_types=out_types,
          inout_types=inout_types, **params,
      )
    return simulated(
        ctx, *args, module=module, out_types=out_types,
        inout_types=inout_types,
        input_output_aliases=params.get("input_output_aliases", ()),
    )

  core._mosaic_gpu_lowering_rule = rule  # pylint: disable=protected-access


@contextlib.contextmanager
def simulate() -> Iterator[None]:
  """`simulator.simulate()`, with an MLIR context for types and layouts."""
  # pylint: disable=g-import-not-at-top
  from jax._src.interpreters import mlir
  from jax._src.lib.mlir import ir
  from jax.experimental.mosaic.gpu import simulator

  with (
      simulator.simulate(), mlir.make_ir_context(), ir.Location.unknown()
  ):
    yield


def error_of(function: Callable[..., object], *args) -> str:
  """Calls a function. Returns its error in a line, or "no error"."""
  try:
    function(*args)
  # Faults show as errors of many types.
  except Exception as e:  # pylint: disable=broad-exception-caught
    lines = [line for line in str(e).splitlines() if line.strip()]
    return f"{type(e).__name__}: {lines[0]}" if lines else type(e).__name__
  return "no error"


def show(findings: Findings) -> int:
  """Prints what a report finds, and returns the exit code."""
  faults = []
  for finding in findings():
    faults.append(finding.expected != finding.found)
    print(f"{'FAULT' if faults[-1] else 'ok'}: {finding.what}")
    print(f"  expected: {finding.expected}")
    print(f"  found:    {finding.found}")
  as_said = bool(faults) and all(fault != _PATCHED for fault in faults)
  print(
      f"{sum(faults)} faults in {len(faults)} cases"
      f" {'with' if _PATCHED else 'without'} the patches:"
      f" {'as' if as_said else 'NOT as'} the report says"
  )
  return 0 if as_said else 1


def main(findings: Findings) -> None:
  """Runs a report as a script."""
  sys.exit(show(findings))


def reports() -> list[str]:
  """The names of the reports that compare the two."""
  return sorted(
      path.stem
      for path in _HERE.glob("*.py")
      if "\ndef findings(" in path.read_text()
  )


def _run_all() -> int:
  codes = []
  for name in reports():
    print(f"== {name}")
    codes.append(show(importlib.import_module(name).findings))
  return max(codes, default=1)


if __name__ == "__main__":
  # The reports import this file under its name.
  sys.modules["pristine"] = sys.modules[__name__]
  enter()
  sys.exit(_run_all())
