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
"""References of more than 128 rows: loads and stores."""

from patches.model import Edit, Patch

_TCGEN05 = "jax/experimental/mosaic/gpu/tcgen05.py"

PATCH = Patch(
    subject=(
        "[Mosaic GPU] Load and store TMEM references of several row tiles"
    ),
    body="""
A load or store moves 128 rows, one for each thread of a warpgroup. A
load of a reference with more of them failed, and a store to one
interleaved its row tiles without an error, because it took the
registers of all of them for the columns of one. Both are now issued for
one row tile after the other.

A load of a whole reference keeps all its elements in registers, as long
as they are used: of large ones, load row tiles one by one.

Verified: loads and stores run on a simulator of the PTX (not on a
Blackwell GPU) and compiled with ptxas for sm_100a.
""",
    edits=(
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            anchor="def _slice_row_tiles($$$ARGS) -> TMEMRef: $$$BODY",
            action="after",
            code='''
def _row_tiles(self) -> list[TMEMRef]:
  """Returns the row tiles of a reference that has several of them.

  Returns an empty list if there is just one, or if they can't be sliced.
  """
  if (
      self.shape[0] == TMEM_ROWS
      or self.layout != tmem_default_layout(self.packing)
  ):
    return []
  return [
      self.slice(utils.DynamicSlice(row, TMEM_ROWS), slice(None))
      for row in range(0, self.shape[0], TMEM_ROWS)
  ]
''',
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            anchor="columns = self.shape[1]",
            action="before",
            code="""
if row_tiles := self._row_tiles():
  # Whichever the layout is, row tiles are the major dim of the registers.
  def concat(tiles):
    registers = np.concatenate([t.registers for t in tiles], axis=0)
    return fa.FragmentedArray(
        _registers=registers,
        _layout=tiles[0].layout,
        _is_signed=tiles[0].is_signed,
    )

  if reduce is None:
    return concat([t.load(layout, is_signed) for t in row_tiles])
  loaded, reduced = zip(
      *(t.load(layout, is_signed, reduce) for t in row_tiles)
  )
  return concat(loaded), concat(reduced)
""",
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef",
            within="def load($$$A) -> fa.FragmentedArray |"
            " tuple[fa.FragmentedArray, fa.FragmentedArray]: $$$B",
            anchor="packing = self.packing",
            code='''
"""Loads the reference into registers.

A warpgroup holds all that is loaded in registers, as long as it is used. Of
references of many elements, slice and load one row tile after the other.
"""
$$$SELF
''',
        ),
        Edit(
            file=_TCGEN05,
            scope="TMEMRef.store",
            anchor="if $SEVERAL: raise"
            ' NotImplementedError("Storing multiple row tiles")',
            code="""
if row_tiles := self._row_tiles():
  if value.registers.shape[0] % len(row_tiles):
    raise ValueError(
        f"Storing from register layout {value.layout} to {len(row_tiles)}"
        f" row tiles of TMEM layout {self.layout} is not supported"
    )
  registers = np.split(value.registers, len(row_tiles), axis=0)
  for tile, tile_registers in zip(row_tiles, registers, strict=True):
    tile.store(
        fa.FragmentedArray(
            _registers=tile_registers,
            _layout=value.layout,
            _is_signed=value.is_signed,
        )
    )
  return
""",
        ),
    ),
    tests=("tests/mosaic/gpu_tmem_row_tiles_test.py",),
)
