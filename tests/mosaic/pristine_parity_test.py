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
"""Compares the code that JAX emits with and without the patches.

What the release of JAX accepts must still be accepted, and give the same code:
the MLIR of each call (with constants folded) over a grid of calls, and the PTX
(but for the numbers of registers) of whole kernels. Differences are explained
here, one by one.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
from jax.experimental.mosaic.gpu import deviceless

import patches
from patches import trees

_FULL = os.environ.get("MOSAIC_GPU_FULL_TESTS") == "1"
_SCRIPT = pathlib.Path(__file__).with_name("parity_kernels.py")

# Patterns of names of calls and kernels, and why their code differs.
_DIFFERENCES = {
    r"(kernel of )?mma dense (A in TMEM )?m=128 n=512 ": (
        "Calls of several tiles issue all their instructions in one block."
    ),
    r"(kernel of )?mma dense .*m=128 n=512 ": (
        "The instructions of several tiles are emitted as one block."
    ),
    r"store layout=default .* \(256, \d+\) ": (
        "Row tiles are stored one by one. Without the patches, register layouts"
        " of pairs of rows went to the wrong rows."
    ),
    r"store layout=scales .* \(256, \d+\) ": (
        "Row tiles of scales are minor in TMEM. Without the patches, they were"
        " stored as if they were major."
    ),
    r"alloc smallest first ": "The largest allocation comes first.",
    r"mma Warpgroup sparse": "16 entries of metadata share a column.",
    r"alloc M=64 Warpgroup": "M=64 folds D, which then takes half the columns.",
    r"alloc (packed|largest first|metadata) Warpgroup": (
        "Allocations that are not used have no layout but the default one,"
        " which is not packed, and their columns follow from the layout."
    ),
}
# Patterns of names and of errors: what only the patches refuse, and why.
_REFUSALS = {
    (r"mma .* A in TMEM .*n=(384|512) ", "MMA operands take"): (
        "D and A cannot both lie in the 512 columns of TMEM."
    ),
    (r"mma metadata with tmem_default_layout", "metadata layout mismatch"): (
        "The copy of the metadata writes another layout than this."
    ),
    (r"slice layout=metadata .* 16:32", "can only be sliced at"): (
        "The hardware reads pairs of columns, of which the first is even."
    ),
}


def _run(*args: str) -> tuple[dict[str, dict], dict[str, dict]]:
  """Runs the script without and with the patches, side by side."""
  folders = [str(trees.pristine(patches.BASE)), None]
  with tempfile.TemporaryDirectory() as out:
    paths = [pathlib.Path(out) / f"{i}.json" for i in range(len(folders))]
    processes = []
    for folder, path in zip(folders, paths, strict=True):
      env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
      env.setdefault("JAX_PLATFORMS", "cpu")
      if folder is not None:
        env["PYTHONPATH"] = folder
      # Each of them has to compile by itself.
      env.pop(deviceless.CACHE_VARIABLE, None)
      processes.append(subprocess.Popen(
          [sys.executable, str(_SCRIPT), deviceless.__file__, str(path), *args],
          env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
      ))
    for process in processes:
      output, _ = process.communicate()
      if process.returncode:
        raise RuntimeError(output)
    before, after = [json.loads(path.read_text()) for path in paths]
  return before, after


def _reason(table, name: str, error: str = "") -> str | None:
  for pattern, reason in table.items():
    name_pattern, error_pattern = (
        pattern if isinstance(pattern, tuple) else (pattern, "")
    )
    if re.match(name_pattern, name) and error_pattern in error:
      return reason
  return None


class PristineParityTest(parameterized.TestCase):

  def compare(self, before, after) -> None:
    """Compares results by name, and prints how many there were of each kind."""
    self.assertEqual(before.keys(), after.keys())
    counts = collections.Counter()
    for key, old in before.items():
      new = after[key]
      name = old.get("name", key)
      kind = old.get("kind", "kernel")
      with self.subTest(f"{key}: {name}"):
        if "error" in old:
          outcome = "refused" if "error" in new else "newly accepted"
          if outcome == "refused" and kind == "kernel":
            self.fail(f"Refused with and without the patches: {new['error']}")
        elif "error" in new:
          outcome = "explained refusals"
          if _reason(_REFUSALS, name, new["error"]) is None:
            self.fail(f"Only refused with the patches: {new['error']}")
        elif old["code"] == new["code"]:
          outcome = "equal"
        else:
          outcome = "explained differences"
          if _reason(_DIFFERENCES, name) is None:
            self.fail("The code differs")
        counts[kind, outcome] += 1
    for (kind, outcome), count in sorted(counts.items()):
      print(f"{kind}: {count} {outcome}")
    # Were everything refused, the comparison would say nothing.
    for kind in {kind for kind, _ in counts}:
      if "sparse scaled A in TMEM" not in kind:  # Never accepted before.
        self.assertGreater(counts[kind, "equal"], 0, kind)

  def test_calls_and_kernels(self):
    before, after = _run("--stride", "1" if _FULL else "97")
    self.compare(before, after)
    # Some of each kind, as kernels.
    accepted = collections.defaultdict(list)
    for key, result in before.items():
      if "code" in result and result["fits"]:
        accepted[result["kind"]].append(int(key))
    number = 24 if _FULL else 1
    chosen = [
        keys[i * len(keys) // number]
        for keys in accepted.values()
        for i in range(number)
    ]
    args = ["--all-kernels"] if _FULL else []
    self.compare(*_run("--kernels", json.dumps(sorted(set(chosen))), *args))


if __name__ == "__main__":
  absltest.main()
