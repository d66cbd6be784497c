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
"""Runs all snippets on a Hopper GPU and writes data/*.npz.

    python3 run_on_gpu.py [--out FOLDER] [FAMILY ...]

Needs NumPy and the driver's libcuda.so.1; the driver assembles the PTX. Every
snippet is tried on its own, in a process that is replaced when a snippet
spoils its context or does not end.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from silicon import cuda, families, recording  # noqa: E402

TIMEOUT = 30  # Seconds for one snippet.


def _work(connection) -> None:
  gpu = cuda.Gpu()
  connection.send((gpu.name, gpu.driver))
  known: dict[str, dict] = {}
  while True:
    family, name = connection.recv()
    if family not in known:
      known[family] = families.load(family)
    try:
      connection.send(gpu.run(known[family][name]))
    except cuda.CudaError as e:
      connection.send(str(e))
      if e.sticky:
        return


class Worker:
  """A process with a CUDA context, made anew when it breaks."""

  def __init__(self):
    self.process = None
    self.about: tuple[str, str] | None = None

  def start(self) -> None:
    if self.process is not None and self.process.is_alive():
      return
    context = multiprocessing.get_context("spawn")
    self.connection, other = context.Pipe()
    self.process = context.Process(target=_work, args=(other,), daemon=True)
    self.process.start()
    other.close()
    if not self.connection.poll(120):
      self.process.kill()
      raise RuntimeError("No GPU answers.")
    self.about = self.connection.recv()

  def stop(self) -> None:
    self.process.kill()
    self.process.join()
    self.process = None

  def run(self, family: str, name: str):
    """The outputs, or the text of an error."""
    self.start()
    self.connection.send((family, name))
    if not self.connection.poll(TIMEOUT):
      self.stop()
      return f"no result within {TIMEOUT} s"
    try:
      result = self.connection.recv()
    except EOFError:
      result = "the process ended"
    if isinstance(result, str):
      # Whatever went wrong may have spoiled the context.
      self.stop()
    return result


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", type=pathlib.Path, default=recording.DATA)
  parser.add_argument("families", nargs="*", default=families.NAMES)
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)
  worker = Worker()
  worker.start()
  name, driver = worker.about
  print(f"{name}, driver {driver}", flush=True)
  failures = 0
  for family in args.families:
    start = time.monotonic()
    results = {}
    for one in families.load(family).values():
      outputs = worker.run(family, one.name)
      if isinstance(outputs, str) != one.faults:
        failures += 1
        print(f"FAILED {family}: {one.name}: {outputs}", flush=True)
      results[one.name] = one.digest(), outputs
    about = {
        "gpu": name,
        "driver": driver,
        "date": datetime.date.today().isoformat(),
        "target": cuda.TARGET,
        "command": "python3 tests/mosaic/simulator/silicon/run_on_gpu.py",
    }
    file = recording.path(family, args.out)
    recording.save(file, about, results)
    print(
        f"{family}: {len(results)} snippets, {file.stat().st_size} bytes,"
        f" {time.monotonic() - start:.1f} s", flush=True,
    )
  print(f"{failures} failures", flush=True)
  return 1 if failures else 0


if __name__ == "__main__":
  sys.exit(main())
