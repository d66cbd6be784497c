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
"""Shows on a terminal how far a kernel is."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any, TextIO

from . import observers, scheduler

VARIABLE = "MOSAIC_GPU_SIMULATE_PROGRESS"
_FIRST_SECONDS = 1.0  # Short runs print nothing.
_SECONDS = 0.3


class Progress(observers.Observer):
  """Keeps one line up to date while a kernel runs."""

  def __init__(self, stream: TextIO, clock=time.monotonic):
    self._stream = stream
    self._clock = clock
    self._start = clock()
    self._due = self._start + _FIRST_SECONDS
    self._steps = 0
    self._width = 0
    self._machine: Any = None

  def attach(self, machine):
    self._machine = machine

  def on_instruction(self, step):
    self._steps += 1
    now = self._clock()
    if now < self._due:
      return
    self._due = now + _SECONDS
    self._write(
        f"Simulating {self._machine.kernel.name}: {self._done()} of"
        f" {math.prod(self._machine.launch.grid)} CTAs done,"
        f" {self._steps:,} steps, {now - self._start:.0f} s"
    )

  def _done(self) -> int:
    machine = self._machine
    waiting = len(machine.unlaunched) * machine.cluster_size
    states = machine.scheduler.state.reshape(machine.num_ctas, -1)
    running = int((states != scheduler.EXITED).any(axis=1).sum())
    return math.prod(machine.launch.grid) - waiting - running

  def _write(self, line: str) -> None:
    self._stream.write("\r" + line.ljust(self._width))
    self._stream.flush()
    self._width = len(line)

  def close(self) -> None:
    """Removes the line."""
    if self._width:
      self._stream.write("\r" + " " * self._width + "\r")
      self._stream.flush()


def on_terminal() -> Progress | None:
  """What to show on the terminal, None if there is none."""
  if os.environ.get(VARIABLE) == "0" or not sys.stderr.isatty():
    return None
  return Progress(sys.stderr)
