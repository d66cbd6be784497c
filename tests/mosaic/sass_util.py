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
"""Counts what the machine code of a kernel does between its MMAs."""

from __future__ import annotations

import dataclasses
import re

# The address in front of an instruction, and a predicate.
_INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)"
)
_MMA = re.compile(r"UTC[A-Z]*MMA\b")


@dataclasses.dataclass(frozen=True)
class IssueCost:
  """How many instructions it takes to issue the MMAs of a kernel.

  Attributes:
    mmas: The MMAs.
    others: All other instructions between the first and the last of them.
    spills: Spills and fills of uniform registers, in the whole kernel.
    size: Instructions of the whole kernel.
    per_iteration: Other instructions from where a branch behind the MMAs leads
      to, in front of them, up to that branch. None if there is no such one.
  """

  mmas: int
  others: int
  spills: int
  size: int
  per_iteration: int | None = None

  @property
  def per_mma(self) -> float:
    return self.others / self.mmas


def issue_cost(sass: str) -> IssueCost:
  """Counts the instructions in the output of nvdisasm for one kernel."""
  opcodes = _INSTRUCTION.findall(sass)
  mmas = [i for i, opcode in enumerate(opcodes) if _MMA.match(opcode)]
  if not mmas:
    raise ValueError("Expected SASS with UTC*MMA instructions")
  return IssueCost(
      mmas=len(mmas),
      others=mmas[-1] - mmas[0] + 1 - len(mmas),
      spills=sum(
          opcode in ("MOV.SPILL", "R2UR.FILL") for opcode in opcodes
      ),
      size=len(opcodes),
      per_iteration=_per_iteration(sass),
  )


def _per_iteration(sass: str) -> int | None:
  lines = [
      line for line in sass.splitlines()
      if _INSTRUCTION.search(line) or re.match(r"\.L_\w+:", line)
  ]
  mmas = [i for i, line in enumerate(lines) if re.search(r"UTC[A-Z]*MMA", line)]
  for end in range(mmas[-1] + 1, len(lines)):
    branch = re.search(r"BRA[.U]*\s.*`\((\.L_\w+)\)", lines[end])
    if branch is None or f"{branch[1]}:" not in lines[: mmas[0]]:
      continue
    body = lines[lines.index(f"{branch[1]}:") : end + 1]
    return sum(not line.startswith(".L") for line in body) - len(mmas)
  return None
