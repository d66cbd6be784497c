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
"""Lists the instructions of PTX files that the simulator does not model.

    python -m jax.experimental.mosaic.gpu.simulator KERNEL.ptx ...

The exit code is 0 if all of them are modelled, 1 if some are not, and 2 if a
file is not the PTX of a kernel for a B200.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import errors, machine, ptx

_OK, _UNMODELLED, _FAILED = range(3)


def _read(path: str) -> ptx.Module:
  with open(path, encoding="utf-8") as f:
    return ptx.parse(f.read())


def _report(path: str) -> int:
  """Prints what one file needs; returns its exit code."""
  try:
    module = _read(path)
  except OSError as e:
    print(f"{path}: can't be read: {e.strerror}", file=sys.stderr)
    return _FAILED
  except UnicodeDecodeError:
    print(
        f"{path}: is no text; expected PTX, not what ptxas makes of it",
        file=sys.stderr,
    )
    return _FAILED
  except errors.SimulationError as e:
    line = f":{e.where.line}" if e.where else ""
    print(f"{path}{line}: {e.message}", file=sys.stderr)
    return _FAILED
  rows = [
      row for kernel in module.entries.values()
      for row in machine.unmodelled(kernel)
  ]
  for line, text, reason in sorted(rows):
    print(f"{path}:{line}: {' '.join(text.split())}\n    {reason}")
  total = sum(len(kernel.body) for kernel in module.entries.values())
  print(f"{path}: {total - len(rows)} of {total} instructions are modelled")
  return _UNMODELLED if rows else _OK


def main(argv: Sequence[str] | None = None) -> int:
  """Runs the command with these arguments; returns its exit code."""
  parser = argparse.ArgumentParser(
      prog="python -m jax.experimental.mosaic.gpu.simulator",
      description=(
          "Lists the instructions of PTX files that the simulator does not"
          " model."
      ),
      epilog="JAX writes the PTX of a kernel where MOSAIC_GPU_DUMP_TO says.",
  )
  parser.add_argument("files", nargs="+", metavar="FILE.ptx")
  args = parser.parse_args(argv)
  return max(_report(path) for path in args.files)


if __name__ == "__main__":
  sys.exit(main())
