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
"""Tests of finding imports of what a later patch brings."""

import pathlib
import tempfile

import synthetic
from absl.testing import absltest
from absl.testing import parameterized
from synthetic import make_edit, make_patch

from patches import engine, imports
from patches.model import PatchError

_FIRST = make_patch(make_edit(anchor="LIMIT = 4", code="LIMIT = 5"))
_SECOND = make_patch(
    make_edit(anchor="LIMIT = 5", code="LIMIT = 6"), subject="Second"
)


class ImportsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("jax/a/b.py", "import jax.c", ["jax.c"]),
      ("jax/a/b.py", "from jax.c import d", ["jax.c", "jax.c.d"]),
      ("jax/a/b.py", "from . import c", ["jax.a", "jax.a.c"]),
      ("jax/a/b.py", "from .c import d", ["jax.a.c", "jax.a.c.d"]),
      ("jax/a/b.py", "from ..c import d", ["jax.c", "jax.c.d"]),
      ("jax/a/__init__.py", "from . import c", ["jax.a", "jax.a.c"]),
      ("jax/a.py", "def f():\n  if x:\n    import jax.c as y", ["jax.c"]),
  )
  def test_imported(self, path, source, expected):
    self.assertEqual(list(imports.imported(path, source)), expected)

  @parameterized.parameters(
      # The files of the first patch, those of the second, what is wrong.
      ({"jax/a.py": "import jax.b"}, {"jax/b.py": ""}, "a.py imports jax.b,"),
      ({"jax/a.py": "import jax.c"}, {"jax/c/__init__.py": ""}, "jax.c,"),
      ({"jax/a.py": "import jax.b", "jax/b.py": ""}, {}, ""),
      ({"jax/b.py": ""}, {"jax/a.py": "import jax.b"}, ""),
      ({"jax/b.py": ""}, {"jax/a.py": "import jax.b", "jax/b.py": ""}, ""),
      ({"jax/a.py": "import jax.c", "jax/c/d.py": ""},
       {"jax/c/__init__.py": ""}, ""),
      # It is there already.
      ({"jax/a.py": "import jax.b"}, {"jax/b/new.py": ""}, ""),
      ({"jax/a.py": "from jax import tiles"}, {"jax/tiles.py": ""}, ""),
      # Tests can do without: they run after each patch.
      ({"tests/a.py": "import jax.b"}, {"jax/b.py": ""}, ""),
  )
  def test_order(self, first, second, wrong):
    with tempfile.TemporaryDirectory() as folder:
      tree = synthetic.make_tree(pathlib.Path(folder), {
          path: "" for path in ("jax/tiles.py", "jax/b/__init__.py")
      })
      steps = [
          engine.Step(patch, {p: s.encode() for p, s in files.items()})
          for patch, files in ((_FIRST, first), (_SECOND, second))
      ]
      if wrong:
        with self.assertRaisesRegex(PatchError, f"{wrong} .* with second"):
          imports.require_in_order(tree, steps)
      else:
        imports.require_in_order(tree, steps)


if __name__ == "__main__":
  absltest.main()
