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
"""Ahead-of-time compilation, which the tests of the series read PTX from."""

from patches.model import Edit, Patch

_DEVICELESS = "jax/experimental/mosaic/gpu/deviceless.py"

PATCH = Patch(
    subject="[Mosaic GPU] Compile kernels for a B200 without a GPU",
    body="""
Whether a lowering emits the right instructions can be seen from the PTX
of a kernel, and ptxas says if they are legal, but so far this needs a
GPU of the right kind. XLA can compile ahead of time for a GPU of which
it only has a description. This packs that into a function for tests: it
returns the PTX, the host code, the figures of ptxas and, if nvdisasm is
installed, the SASS of a kernel.

Needs the wheels of the CUDA plugin, but no driver and no toolkit.

Verified: compiled with ptxas for sm_100a on a machine without a GPU.
""",
    edits=(
        Edit(
            file=_DEVICELESS,
            scope="as_blackwell",
            anchor='mock.patch.object(utils, "_infer_arch", $ARCH)',
            code='mock.patch.object(core, "_infer_arch", $ARCH)',
            versions=("0.11.1",),
        ),
        Edit(
            file=_DEVICELESS,
            anchor="from jax.experimental.mosaic.gpu import utils",
            action="delete",
            versions=("0.11.1",),
        ),
    ),
    new_files=(_DEVICELESS,),
    tests=("tests/mosaic/gpu_deviceless_test.py",),
)
