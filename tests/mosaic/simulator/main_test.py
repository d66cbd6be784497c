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
"""Tests of `python -m jax.experimental.mosaic.gpu.simulator`."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile

from absl.testing import absltest, parameterized

from jax.experimental.mosaic.gpu.simulator import __main__ as command
from jax.experimental.mosaic.gpu.simulator import errors, ptx

_HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"


def _kernel(*lines: str) -> str:
  return "\n".join([
      f"{_HEADER}.visible .entry kernel(.param .u64 out)",
      "{", ".reg .b32 %r<9>;", ".reg .b64 %rd<9>;", *lines, "ret;", "}", "",
  ])


class MainTest(parameterized.TestCase):

  def run_on(self, *contents: str | bytes | None) -> tuple[int, str, str]:
    """Runs the command on files; None stands for one that does not exist.

    Returns the exit code and what it printed, with short names of the files.
    """
    folder = self.enter_context(tempfile.TemporaryDirectory())
    paths = []
    for i, content in enumerate(contents):
      paths.append(os.path.join(folder, f"{i}.ptx"))
      if content is not None:
        data = content.encode() if isinstance(content, str) else content
        with open(paths[-1], "wb") as f:
          f.write(data)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      code = command.main(paths)
    out, err = (
        text.getvalue().replace(folder + os.sep, "") for text in (out, err)
    )
    return code, out, err

  def test_all_modelled(self):
    code, out, err = self.run_on(_kernel("add.s32 %r1, %r2, 3;"))
    self.assertEqual(code, 0)
    self.assertEqual(out, "0.ptx: 2 of 2 instructions are modelled\n")
    self.assertEmpty(err)

  def test_some_not_modelled(self):
    code, out, err = self.run_on(_kernel(
        "add.s32 %r1, %r2, 3;",
        "tex.2d %r1, %r2;",
        "add.s31 %r1, %r2, 3;",
        "mov.u32 %r1, %no_such_register;",
        # Its opcode is in the table, but not with two registers.
        "ld.global.v4.b32 {%r1, %r2}, [%rd1];",
    ))
    self.assertEqual(code, 1)
    self.assertEmpty(err)
    lines = out.splitlines()
    self.assertEqual(lines[0], "0.ptx:9: tex.2d %r1, %r2;")
    self.assertIn("no instruction of this name is in the table", lines[1])
    self.assertEqual(lines[2], "0.ptx:10: add.s31 %r1, %r2, 3;")
    self.assertIn("expected a form of", lines[3])
    self.assertStartsWith(lines[4], "0.ptx:11: mov.u32")
    self.assertIn("%no_such_register is neither declared nor", lines[5])
    self.assertStartsWith(lines[6], "0.ptx:12: ld.global.v4")
    self.assertIn("number of registers does not fit", lines[7])
    self.assertEqual(lines[8:], ["0.ptx: 2 of 6 instructions are modelled"])

  def test_several_files(self):
    code, out, err = self.run_on(
        _kernel("tex.2d %r1, %r2;"), None, _kernel("nanosleep.u32 1;")
    )
    self.assertEqual(code, 2)
    self.assertIn("0.ptx: 1 of 2 instructions", out)
    self.assertIn("2.ptx: 2 of 2 instructions", out)
    self.assertEqual(err, "1.ptx: can't be read: No such file or directory\n")

  def test_truncated(self):
    text = _kernel("add.s32 %r1, %r2, 3;")
    code, out, err = self.run_on(text[:text.index("%r2")])
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, "0.ptx:8: The PTX text is truncated: ")

  def test_truncated_anywhere(self):
    text = _kernel("L:", "@!%p bra L;", "mov.b64 {%r1, %r2}, [%rd1+4];")
    text = text.replace(".reg .b32", ".reg .pred %p; .reg .b32")
    ptx.parse(text)
    # The last brace ends the text.
    for length in range(len(text.rstrip())):
      with self.subTest(text[:length][-20:]):
        with self.assertRaisesRegex(
            errors.SimulationError, "The PTX text is truncated"
        ):
          ptx.parse(text[:length])

  @parameterized.parameters("sm_90a", "sm_100", "sm_120a")
  def test_another_target(self, target):
    code, out, err = self.run_on(_kernel().replace("sm_100a", target))
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertEqual(
        err,
        f"0.ptx:2: PTX for {target}; expected sm_100a. Compile the kernel for"
        " that target.\n",
    )

  def test_no_ptx(self):
    code, _, err = self.run_on(b"\x7fELF\x02\x01\xff\xfe", "", "Hello there.")
    self.assertEqual(code, 2)
    lines = err.splitlines()
    self.assertIn("is no text; expected PTX", lines[0])
    self.assertIn("no .entry in it", lines[1])
    self.assertIn("2.ptx:1: Unknown directive or statement 'Hello'", lines[2])

  def test_as_a_module(self):
    folder = self.enter_context(tempfile.TemporaryDirectory())
    path = os.path.join(folder, "kernel.ptx")
    with open(path, "w") as f:
      f.write(_kernel("tex.2d %r1, %r2;"))
    result = subprocess.run(
        [sys.executable, "-m", "jax.experimental.mosaic.gpu.simulator", path],
        capture_output=True, text=True, check=False,
    )
    self.assertEqual(result.returncode, 1, result.stderr)
    self.assertIn("tex.2d", result.stdout)
    self.assertEmpty(result.stderr)


if __name__ == "__main__":
  absltest.main()
