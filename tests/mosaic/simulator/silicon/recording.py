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
"""The files that keep what a GPU gave."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

DATA = pathlib.Path(__file__).parent / "data"


def path(family: str, folder: pathlib.Path = DATA) -> pathlib.Path:
  return folder / f"{family}.npz"


def save(file: pathlib.Path, about: dict[str, Any], results: dict) -> None:
  """Writes results: name -> (digest, outputs or the text of an error).

  A file has few arrays, for each costs some hundred bytes.
  """
  index, parts, offset = {}, [], 0
  for name, (digest, outputs) in results.items():
    entry: dict[str, Any] = {"digest": digest}
    if isinstance(outputs, str):
      entry["error"] = outputs
    else:
      entry["outputs"] = []
      for output in outputs:
        # Bytes of equal significance together compress better.
        data = output.reshape(-1, 1).view(np.uint8).T.ravel()
        entry["outputs"].append([output.dtype.str, offset, output.size])
        parts.append(data)
        offset += data.size
    index[name] = entry
  text = json.dumps({"about": about, "snippets": index})
  np.savez_compressed(
      file,
      index=np.frombuffer(text.encode(), np.uint8),
      outputs=np.concatenate(parts or [np.zeros(0, np.uint8)]),
  )


def load(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, Any]]:
  """(about, name -> (digest, outputs or the text of an error))."""
  with np.load(file) as archive:
    index = json.loads(archive["index"].tobytes())
    data = archive["outputs"]
  results = {}
  for name, entry in index["snippets"].items():
    outputs = entry.get("error")
    if outputs is None:
      outputs = []
      for dtype, offset, size in entry["outputs"]:
        dtype = np.dtype(dtype)
        part = data[offset : offset + size * dtype.itemsize]
        part = np.ascontiguousarray(part.reshape(dtype.itemsize, size).T)
        outputs.append(part.view(dtype).reshape(size))
    results[name] = entry["digest"], outputs
  return index["about"], results
