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
"""Compiles Mosaic GPU kernels for a B200 on a machine without a GPU.

XLA compiles ahead of time for a GPU of which it only knows a description. That
needs the ``jax-cuda13-plugin`` and ``jax-cuda13-pjrt`` wheels, but no driver and
no CUDA toolkit. With the ``nvidia-cuda-nvdisasm`` wheel the SASS is available,
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import io
import itertools
import json
import os
import pathlib
import re
import sys
import tempfile
from typing import Any
from unittest import mock

import jax
from jax._src.interpreters import mlir
import jax.experimental.mosaic.gpu as mgpu
from jax.experimental.mosaic.gpu import core
from jax.experimental.mosaic.gpu import utils
from jaxlib import version as jaxlib_version
from jaxlib.mlir import ir

ARCH = (10, 0)
_PLUGIN = "jax_plugins.xla_cuda13"
# A folder that keeps compiled kernels between processes.
CACHE_VARIABLE = "MOSAIC_GPU_DEVICELESS_CACHE"
_CACHE_FORMAT = 1

# What XLA has to know of a B200 (148 SMs, compute capability 10.0). Source: the
# device properties that NVIDIA publishes, in the units of XLA's
# stream_executor::GpuDeviceInfoProto.
_B200 = """
gpu_device_info {
  cuda_compute_capability {
    major: 10 minor: 0 feature_extension: ACCELERATED_FEATURES
  }
  core_count: 148
  fpus_per_core: 128
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 132644864
  device_memory_size: 190000000000
  memory_bandwidth: 8000000000000
  clock_rate_ghz: 1.965
}
platform_name: "CUDA"
device_description_str: "NVIDIA B200"
runtime_version { major: 13 minor: 0 }
dnn_version_info { major: 9 minor: 12 }
"""


@dataclasses.dataclass(frozen=True)
class CompiledKernel:
  """What the compiler made of a kernel.

  Attributes:
    ptx: The PTX of the kernel.
    host: The host code that launches it, a module in MLIR's LLVM dialect.
    ptxas: What ptxas said of the registers, the stack and the spills.
    sass: The machine code, or None without nvdisasm.
  """

  ptx: str
  host: str
  ptxas: str
  sass: str | None

  def _usage(self, pattern: str) -> int:
    match = re.search(pattern, self.ptxas)
    if match is None:
      raise ValueError(
          f"Expected {pattern!r} in the output of ptxas, got: {self.ptxas!r}"
      )
    return int(match[1])

  @property
  def registers(self) -> int:
    """Registers of a thread."""
    return self._usage(r"Used (\d+) registers")

  @property
  def spill_bytes(self) -> int:
    """Bytes that a thread stores and loads because it runs out of registers."""
    return self._usage(r"(\d+) bytes spill stores") + self._usage(
        r"(\d+) bytes spill loads"
    )


@contextlib.contextmanager
def as_blackwell() -> Iterator[None]:
  """Lets kernels be traced as on a B200, whatever the default device is."""
  # On a CPU, Mosaic GPU takes the architecture to be 9.0.
  with mock.patch.object(utils, "_infer_arch", lambda: ARCH):
    yield


@functools.cache
def _sharding() -> jax.sharding.Sharding:
  from jax.experimental import topologies  # pylint: disable=g-import-not-at-top

  if importlib.util.find_spec(_PLUGIN) is None:
    raise RuntimeError(
        "Compiling for a GPU needs jax-cuda13-plugin and jax-cuda13-pjrt, which"
        " are not installed. Install them with the version of jaxlib:"
        f" pip install jax-cuda13-plugin=={jaxlib_version.__version__}"
        f" jax-cuda13-pjrt=={jaxlib_version.__version__}"
    )
  get_topology = functools.partial(
      topologies.get_topology_desc,
      "b200", platform="cuda", topology="1x1x1", target_config=_B200,
  )
  # Compiling needs none of the libraries whose versions the plugin checks.
  skip = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
  with mock.patch.dict(os.environ, skip):
    # Asking for the CPU first lets JAX discover the CUDA plugin, even though it
    # finds no GPU.
    jax.devices("cpu")
    try:
      topology = get_topology()
    except NotImplementedError:  # The plugin failed the check before.
      importlib.import_module(_PLUGIN).initialize()
      topology = get_topology()
  mesh = jax.sharding.Mesh(topology.devices[:1], ("x",))
  return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _nvdisasm_root() -> str | None:
  spec = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec(
      "nvidia"
  ) else None
  for folder in (spec and spec.submodule_search_locations) or ():
    if os.path.exists(os.path.join(folder, "bin", "nvdisasm")):
      return folder
  return None


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
  """Hides what the compiler writes about the lack of nvdisasm."""
  sys.stderr.flush()
  with tempfile.TemporaryFile() as sink:
    saved = os.dup(2)
    os.dup2(sink.fileno(), 2)
    try:
      yield
    except Exception as e:
      sink.seek(0)
      if text := sink.read().decode(errors="replace").strip():
        e.add_note(f"The compiler wrote: {text}")
      raise
    finally:
      os.dup2(saved, 2)
      os.close(saved)


@contextlib.contextmanager
def _dumps() -> Iterator[pathlib.Path]:
  """Lets the compiler write what it does to a folder, and yields it."""
  with tempfile.TemporaryDirectory() as folder:
    variables = {"MOSAIC_GPU_DUMP_TO": folder}
    root = _nvdisasm_root()
    if root is not None:
      variables["MOSAIC_GPU_CUDA_ROOT"] = root
      output = contextlib.nullcontext()
    else:
      output = _silent_stderr()
    with mock.patch.dict(os.environ, variables), output:
      yield pathlib.Path(folder)


def _read_dump(folder: pathlib.Path) -> CompiledKernel:
  ptx_paths = sorted(folder.glob("*.ptx"))
  if len(ptx_paths) != 1:
    raise RuntimeError(
        "Expected the compiler to write the PTX of one kernel, got"
        f" {[p.name for p in ptx_paths]}"
    )
  [path] = ptx_paths
  passes = path.with_suffix(".mlir-passes.log").read_text()
  # The last pass gets a module that has nothing but LLVM operations in it.
  _, _, host = passes.rpartition("// -----// IR Dump Before ")
  sass = path.with_suffix(".sass_ctrl")
  return CompiledKernel(
      ptx=path.read_text(),
      host=host.partition("\n")[2],
      ptxas=path.with_suffix(".ptxas").read_text(),
      sass=sass.read_text() if sass.exists() else None,
  )


_compiled: dict[bytes, CompiledKernel] = {}


def _cached(key: bytes, compile_fn) -> CompiledKernel:
  if key in _compiled:
    return _compiled[key]
  path = None
  if folder := os.environ.get(CACHE_VARIABLE):
    path = pathlib.Path(folder) / f"{key.hex()}.json"
    if path.exists():
      _compiled[key] = CompiledKernel(**json.loads(path.read_text()))
      return _compiled[key]
  result = _compiled[key] = compile_fn()
  if path is not None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be writing the same kernel.
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(dataclasses.asdict(result)))
    temporary.replace(path)
  return result


def compile_module(
    module: ir.Module,
    in_types: Sequence[jax.ShapeDtypeStruct],
    out_types: Sequence[jax.ShapeDtypeStruct],
    inout_types: Sequence[jax.ShapeDtypeStruct] = (),
) -> CompiledKernel:
  """Compiles a lowered kernel for a B200.

  Args:
    module: The module that ``mosaic_gpu_p`` takes.
    in_types: The operands of the kernel, including those it writes to.
    out_types: Its results.
    inout_types: The operands that it writes to.

  Raises:
    RuntimeError: If the CUDA plugin of JAX is not installed.
  """
  major, minor = (
      ir.IntegerAttr(module.operation.attributes[f"mosaic_gpu.arch_{part}"]).value
      for part in ("major", "minor")
  )
  if (major, minor) != ARCH:
    raise ValueError(
        f"The kernel was traced for compute capability {major}.{minor}, but"
        f" only {ARCH[0]}.{ARCH[1]} is supported here. Create the kernel under"
        " the same context manager that it is called in"
    )

  def compile_fn() -> CompiledKernel:
    def call(*args):
      return core.mosaic_gpu_p.bind(
          *args,
          module=module,
          out_types=tuple(out_types),
          inout_types=tuple(inout_types),
      )

    # XLA compiles equal kernels once in a process, and only writes what it does
    # the first time.
    with _attribute(module, "mosaic_gpu.deviceless", str(next(_counter))):
      with _dumps() as folder:
        jitted = jax.jit(
            call, in_shardings=_sharding(), out_shardings=_sharding()
        )
        jitted.trace(*in_types).lower().compile()
        return _read_dump(folder)

  buffer = io.BytesIO()
  # The name that the compiler gives its files is different for every module.
  with _attribute(module, "mosaic_gpu.dump_basename", ""):
    module.operation.write_bytecode(buffer)
  key = hashlib.sha256(buffer.getvalue())
  types = [(t.shape, str(t.dtype)) for t in (*in_types, *out_types)]
  key.update(repr((
      _CACHE_FORMAT, jax.__version__, jaxlib_version.__version__, types,
      len(inout_types), _nvdisasm_root() is None,
  )).encode())
  return _cached(key.digest(), compile_fn)


_counter = itertools.count()


@contextlib.contextmanager
def _attribute(module: ir.Module, name: str, value: str) -> Iterator[None]:
  """Gives a module an attribute for a while."""
  attributes = module.operation.attributes
  old = attributes[name] if name in attributes else None
  attributes[name] = ir.StringAttr.get(value, module.context)
  try:
    yield
  finally:
    if old is None:
      del attributes[name]
    else:
      attributes[name] = old


def compile_kernel(kernel: Any, *args: Any) -> CompiledKernel:
  """Compiles a function that calls one Mosaic GPU kernel, for a B200.

  Args:
    kernel: A function of JAX arrays, e.g. what ``as_gpu_kernel`` returns.
    *args: Arrays or shapes (``jax.ShapeDtypeStruct``) to call it with.
  """
  with as_blackwell():
    jaxpr = jax.make_jaxpr(kernel)(*args)
  calls = list(_kernel_calls(jaxpr.jaxpr))
  if len(calls) != 1:
    raise ValueError(f"Expected a single Mosaic GPU kernel, got {len(calls)}")
  [eqn] = calls
  struct = lambda v: jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)
  return compile_module(
      eqn.params["module"],
      [struct(v) for v in eqn.invars],
      eqn.params["out_types"],
      eqn.params["inout_types"],
  )


def _kernel_calls(jaxpr) -> Iterator[Any]:
  for eqn in jaxpr.eqns:
    if eqn.primitive is core.mosaic_gpu_p:
      yield eqn
    for param in eqn.params.values():
      if hasattr(param, "jaxpr"):
        yield from _kernel_calls(param.jaxpr)


def as_gpu_kernel(*args, **kwargs) -> Any:
  """``mosaic.gpu.as_gpu_kernel``, traced as on a B200."""
  with as_blackwell(), mlir.make_ir_context(), ir.Location.unknown():
    return mgpu.as_gpu_kernel(*args, **kwargs)
