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
"""Runs a few PTX instructions on memories that a test has filled."""

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from jax.experimental.mosaic.gpu.simulator import (
    machine,
    memory,
    observers,
    ptx,
)

BASE = 1024  # Where dynamic shared memory begins; %r1 in the snippets.

_TEXT = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry kernel(
  .param .u64 .ptr .global .align 16 kernel_param_0,
  .param .align 64 .b8 kernel_param_1[{maps}]
)
.maxntid {threads}, 1, 1
{{
  .reg .pred %p<16>;
  .reg .b16 %h<16>;
  .reg .b32 %r<400>;
  .reg .b64 %rd<64>;
  .reg .b128 %q<4>;
  .shared .align 16 .b8 __dynamic_shmem__0[];
  ld.param.b64 %rd0, [kernel_param_0];
  mov.b64 %rd1, kernel_param_1;
  cvta.param.u64 %rd1, %rd1;
  mov.u32 %r0, %tid.x;
  mov.b64 %rd2, __dynamic_shmem__0;
  cvt.u32.u64 %r1, %rd2;
  mov.u32 %r2, %cluster_ctarank;
  {body}
  ret;
}}
"""


class Hold(observers.Observer):
  """Fills the machine before a run and keeps it."""

  def __init__(self, fill: Callable[[machine.Machine], None] | None):
    self.fill = fill
    self.machine = None
    self.mmas = []

  def attach(self, machine):
    self.machine = machine
    if self.fill is not None:
      self.fill(machine)

  def on_mma(self, instruction, ctas):
    self.mmas.append((instruction, ctas))


@dataclasses.dataclass
class Run:
  """State after a run: `out` as uint32, shared and tensor memory."""

  out: np.ndarray
  shared: np.ndarray
  tmem: np.ndarray
  mmas: list
  machine: machine.Machine


def run(
    body: str,
    *,
    fill: Callable[[machine.Machine], None] | None = None,
    threads: int = 32,
    cluster: int = 1,
    clusters: int = 1,
    shared: int = 64 * 1024,
    out_words: int = 4096,
    maps: Callable[[memory.GlobalMemory], Sequence] | None = None,
    checkers: Sequence[observers.Observer] = (),
    order: str = "eager",
    max_resident_ctas: int = 32,
) -> Run:
  """Runs `body` in `cluster` CTAs.

  In the body %r0 is the thread, %r1 the base of dynamic shared memory, %r2 the
  rank of the CTA, %rd0 the address of `out`, and %rd1 that of the tensor maps,
  which `maps` makes. An opcode may be broken after a dot.
  """
  body = re.sub(r"\.\n\s+", ".", body)
  globals_ = memory.GlobalMemory()
  out = np.full(out_words, 0xDEADBEEF, np.uint32)
  address = globals_.add_buffer("out", out.view(np.uint8))
  tensor_maps = list(maps(globals_)) if maps else []
  blob = b"".join(m.encode() for m in tensor_maps) or bytes(128)
  module = ptx.parse(
      _TEXT.format(maps=len(blob), threads=threads, body=body)
  )
  hold = Hold(fill)
  machine.run(
      module.entries["kernel"],
      machine.Launch(
          (cluster * clusters, 1, 1), (cluster, 1, 1), (threads, 1, 1), shared
      ),
      [address.to_bytes(8, "little"), blob],
      globals_,
      tensor_maps,
      observers=[*checkers, hold],
      order=order,
      max_resident_ctas=max_resident_ctas,
  )
  m = hold.machine
  return Run(out, m.shared.data, m.tmem.data, hold.mmas, m)


def garbage(seed: int) -> Callable[[machine.Machine], None]:
  """A `fill` of shared and tensor memory with random words."""

  def fill(m):
    rng = np.random.default_rng(seed)
    m.shared.data[:] = rng.integers(0, 256, m.shared.data.shape)
    m.tmem.data[:] = rng.integers(
        0, 1 << 32, m.tmem.data.shape, dtype=np.uint32
    )

  return fill


def vector(first: int, count: int) -> str:
  """`{%r10, %r11, ...}`."""
  return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


WAIT = """{{
  .reg .pred P1;
  LAB_WAIT:
  mbarrier.try_wait.parity.shared.b64 P1, [{bar}], {parity};
  @P1 bra.uni DONE;
  bra.uni LAB_WAIT;
  DONE:
  }}"""


def wait(bar: str, parity: int = 0) -> str:
  return WAIT.format(bar=bar, parity=parity)
