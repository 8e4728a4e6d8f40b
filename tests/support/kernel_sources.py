"""Metal kernels that others wrote: where the tests find them on this machine.

mlx()     MLX's kernel headers, from the macOS wheel of mlx-metal
ggml()    llama.cpp's kernels, from the sdist of llama-cpp-python
torch()   c10/metal/*.h, which every wheel of torch carries

Each is a folder to include from.  Where it is not to be had, the test that asks skips.
"""

import importlib.util
from pathlib import Path

import fetched_data
import pytest
from machine import has_module

KEPT_IN = "kernel-sources"
MLX = fetched_data.Package(
    "mlx-metal==0.32.4",
    "8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947",
    ("--only-binary=:all:", "--platform=macosx_14_0_arm64"),
    r"mlx/include/(?P<path>mlx/backend/metal/kernels/.*\.h)",
    KEPT_IN,
)
#: pip asks the build backend for an sdist's metadata, even of one that it only downloads: that of `make test` answers.
GGML = fetched_data.Package(
    "llama-cpp-python==0.3.36",
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    ("--no-binary=:all:", "--no-build-isolation"),
    r".*/vendor/llama\.cpp/ggml/src/(?P<path>ggml-metal/kernels/.*|ggml-metal/ggml-metal-impl\.h|ggml-common\.h)",
    KEPT_IN,
)


def mlx() -> Path:
    """Include from here: "mlx/backend/metal/kernels/softmax.h"."""
    return fetched_data.ready(MLX)


def ggml() -> Path:
    """The kernels are in ggml-metal/kernels/; `ggml_folders()` is what they include from."""
    return fetched_data.ready(GGML)


def ggml_folders() -> tuple[Path, ...]:
    """What llama.cpp's kernels include from."""
    return tuple(ggml() / folder for folder in ("ggml-metal/kernels", "ggml-metal", "."))


def torch() -> Path:
    """Include from here: <c10/metal/special_math.h>."""
    if not has_module("torch"):
        pytest.skip("needs PyTorch, whose wheel carries c10/metal")
    return Path(importlib.util.find_spec("torch").origin).parent / "include"
