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
"""Runs what stands in the simulator's documentation."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

from absl.testing import absltest

_TESTS = pathlib.Path(__file__).parent
# Where the modules that the examples of tests import are.
_SNIPPETS = _TESTS / "mosaic" / "simulator"
_DOCS = _TESTS.parent / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KERNEL = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry kernel() { ret; }
"""


def _blocks(name: str, language: str) -> list[str]:
  text = (_DOCS / name).read_text()
  return [code for kind, code in _BLOCK.findall(text) if kind == language]


class DocsTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(
        self.enter_context(tempfile.TemporaryDirectory())
    )
    [program, *self.code] = _blocks("simulator.md", "python")
    self.assertStartsWith(program, "# my_program.py\n")
    (self.folder / "my_program.py").write_text(program)
    (self.folder / "kernel.ptx").write_text(_KERNEL)

  def run_in_folder(self, command, **kwargs) -> str:
    environment = dict(os.environ, JAX_PLATFORMS="cpu")
    environment["PYTHONPATH"] = f"{self.folder}{os.pathsep}{_SNIPPETS}"
    environment["PATH"] = os.pathsep.join(
        [os.path.dirname(sys.executable), environment["PATH"]]
    )
    result = subprocess.run(
        command, cwd=self.folder, env=environment, capture_output=True,
        text=True, check=False, **kwargs,
    )
    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
    return result.stdout

  def test_python(self):
    # All of it is one program, which the reader types in from top to bottom.
    output = self.run_in_folder([sys.executable, "-c", "\n".join(self.code)])
    self.assertIn("tcgen05.mma f16", output)
    root = ElementTree.parse(self.folder / "tmem.svg").getroot()
    rects = [e.get("class") for e in root.iter()]
    self.assertEqual(rects.count("allocation"), 2)

  def test_shell(self):
    commands = _blocks("simulator.md", "sh")
    self.assertLen(commands, 2)
    output = self.run_in_folder(commands[0], shell=True)
    self.assertIn("[[64. 64. 64.", output)
    output = self.run_in_folder(commands[1], shell=True)
    self.assertEqual(output, "kernel.ptx: 1 of 1 instructions are modelled\n")

  def test_every_block_is_run(self):
    text = (_DOCS / "simulator.md").read_text()
    self.assertEqual(text.count("\n```") / 2, len(_BLOCK.findall(text)))
    self.assertEqual({k for k, _ in _BLOCK.findall(text)}, {"python", "sh"})


if __name__ == "__main__":
  absltest.main()
