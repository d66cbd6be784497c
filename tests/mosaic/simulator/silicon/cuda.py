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
"""The few functions of the CUDA driver that the snippets need, by ctypes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np

from .snippet import Im2colMap, Map, Snippet

TARGET = "sm_90a"
_LOG_BYTES = 1 << 14
# CUjit_option.
_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE = 3, 4, 5, 6
_MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute.
_CLUSTER_DIMENSION = 4  # CUlaunchAttributeID.
# CUtensorMapDataType, and elements of it in a byte where it is smaller.
_ELEMENTS = {
    "u8": (0, 1), "u16": (1, 1), "u32": (2, 1), "s32": (3, 1), "u64": (4, 1),
    "s64": (5, 1), "f16": (6, 1), "f32": (7, 1), "bf16": (9, 1),
    "int4": (0, 2), "int2": (0, 4),
}
_ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 9: 2}
_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}


class CudaError(RuntimeError):
  """A driver call failed.

  Attributes:
    sticky: whether the context is of no more use.
  """

  def __init__(self, message: str, sticky: bool = False):
    super().__init__(message)
    self.sticky = sticky


class _Attribute(ctypes.Structure):
  _fields_ = [
      ("id", ctypes.c_int),
      ("pad", ctypes.c_char * 4),
      ("value", ctypes.c_uint * 16),
  ]


class _Config(ctypes.Structure):
  _fields_ = [
      *[(f"grid_{a}", ctypes.c_uint) for a in "xyz"],
      *[(f"block_{a}", ctypes.c_uint) for a in "xyz"],
      ("shared", ctypes.c_uint),
      ("stream", ctypes.c_void_p),
      ("attributes", ctypes.POINTER(_Attribute)),
      ("num_attributes", ctypes.c_uint),
  ]


def _driver_version() -> str:
  try:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
  except OSError:
    return "unknown"
  nvml.nvmlInit_v2()
  text = ctypes.create_string_buffer(96)
  nvml.nvmlSystemGetDriverVersion(text, 96)
  return text.value.decode() or "unknown"


class Gpu:
  """Device 0."""

  def __init__(self):
    self._lib = ctypes.CDLL("libcuda.so.1")
    self._call("cuInit", 0)
    device = ctypes.c_int()
    self._call("cuDeviceGet", ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(256)
    self._call("cuDeviceGetName", name, 256, device)
    self.name = name.value.decode()
    version = ctypes.c_int()
    self._call("cuDriverGetVersion", ctypes.byref(version))
    self.driver = f"{_driver_version()} (CUDA {version.value})"
    context = ctypes.c_void_p()
    self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    self._call("cuCtxSetCurrent", context)

  def _call(self, function: str, *args, sticky: bool = False) -> None:
    code = getattr(self._lib, function)(*args)
    if code:
      text = ctypes.c_char_p()
      self._lib.cuGetErrorString(code, ctypes.byref(text))
      reason = (text.value or b"?").decode()
      raise CudaError(f"{function}: error {code}, {reason}", sticky)

  def run(self, snippet: Snippet) -> list[np.ndarray]:
    """Runs a snippet; returns its outputs."""
    module, kernel = self._load(snippet.ptx(TARGET))
    if snippet.shared > 48 * 1024:
      self._call("cuFuncSetAttribute", kernel, _MAX_DYNAMIC_SHARED,
                 snippet.shared)
    addresses = []
    try:
      for buffer in snippet.buffers:
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address),
                   ctypes.c_size_t(buffer.nbytes))
        addresses.append(address)
        host = np.ascontiguousarray(buffer)
        pointer = ctypes.c_void_p(host.ctypes.data)
        self._call("cuMemcpyHtoD_v2", address, pointer,
                   ctypes.c_size_t(host.nbytes))
      maps = b"".join(
          self._encode(m, addresses[m.buffer].value) for m in snippet.maps
      )
      self._launch(kernel, snippet, addresses, maps)
      self._call("cuCtxSynchronize", sticky=True)
      if snippet.faults:
        # A fault of an mbarrier may come after the kernel has ended.
        time.sleep(0.5)
        self._call("cuCtxSynchronize", sticky=True)
      outputs = []
      for i in snippet.outputs:
        host = np.empty_like(np.ascontiguousarray(snippet.buffers[i]))
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(host.ctypes.data),
                   addresses[i], ctypes.c_size_t(host.nbytes), sticky=True)
        outputs.append(host)
      return outputs
    finally:
      for address in addresses:
        self._lib.cuMemFree_v2(address)
      self._lib.cuModuleUnload(module)

  def _load(self, text: str):
    info, error = (ctypes.create_string_buffer(_LOG_BYTES) for _ in range(2))
    options = (ctypes.c_int * 4)(_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE)
    values = (ctypes.c_void_p * 4)(
        ctypes.cast(info, ctypes.c_void_p), _LOG_BYTES,
        ctypes.cast(error, ctypes.c_void_p), _LOG_BYTES,
    )
    module = ctypes.c_void_p()
    try:
      self._call("cuModuleLoadDataEx", ctypes.byref(module), text.encode(), 4,
                 options, values)
    except CudaError as e:
      log = error.value.decode(errors="replace").strip()
      raise CudaError(f"{e}: {log}") from None
    kernel = ctypes.c_void_p()
    self._call("cuModuleGetFunction", ctypes.byref(kernel), module, b"snippet")
    return module, kernel

  def _encode(self, tensor_map: Map | Im2colMap, base: int) -> bytes:
    """The arguments that JAX's runtime gives the driver."""
    element, per_byte = _ELEMENTS[tensor_map.element]
    sizes = list(tensor_map.sizes)
    sizes[-1] //= per_byte
    strides = [
        s * _ELEMENT_BYTES[element] // per_byte for s in tensor_map.strides[:-1]
    ]
    rank = len(sizes)
    storage = ctypes.create_string_buffer(128 + 64)
    aligned = (ctypes.addressof(storage) + 63) // 64 * 64

    def array(type_, values):
      return (type_ * max(len(values), 1))(*reversed(values))

    u32, i32 = ctypes.c_uint32, ctypes.c_int32
    if isinstance(tensor_map, Im2colMap):
      function = "cuTensorMapEncodeIm2col"
      steps = (1, *tensor_map.steps, 1)
      shape = [
          array(i32, tensor_map.lower), array(i32, tensor_map.upper),
          tensor_map.channels, tensor_map.pixels,
      ]
    else:
      function = "cuTensorMapEncodeTiled"
      steps = (1,) * rank
      box = list(tensor_map.box)
      box[-1] //= per_byte
      shape = [array(u32, box)]
    self._call(
        function, ctypes.c_void_p(aligned), element, rank,
        ctypes.c_void_p(base), array(ctypes.c_uint64, sizes),
        array(ctypes.c_uint64, strides), *shape, array(u32, steps), 0,
        _SWIZZLES[tensor_map.swizzle], 0, 0,
    )
    return ctypes.string_at(aligned, 128)

  def _launch(
      self, kernel, snippet: Snippet, addresses: Sequence[ctypes.c_uint64],
      maps: bytes,
  ) -> None:
    values: list = list(addresses)
    if maps:
      values.append(ctypes.create_string_buffer(maps, len(maps)))
    params = (ctypes.c_void_p * len(values))(
        *[ctypes.addressof(v) for v in values]
    )
    config = _Config(*snippet.grid, *snippet.block, snippet.shared, None, None,
                     0)
    attribute = _Attribute(id=_CLUSTER_DIMENSION)
    if snippet.cluster != (1, 1, 1):
      attribute.value[:3] = snippet.cluster
      config.attributes = ctypes.pointer(attribute)
      config.num_attributes = 1
    self._call("cuLaunchKernelEx", ctypes.byref(config), kernel, params, None)
