"""Metal kernels that others wrote: where the tests find them on this machine.

mlx()     MLX's kernel headers, from the macOS wheel of mlx-metal
ggml()    llama.cpp's kernels, from the sdist of llama-cpp-python
torch()   c10/metal/*.h, which every wheel of torch carries

Each is a folder to include from.  Where it is not to be had, the test that asks skips.
"""

import importlib.util
import os
from pathlib import Path

import fetched_data
import pytest
from machine import has_module


def mlx() -> Path:
    """Include from here: "mlx/backend/metal/kernels/softmax.h"."""
    return fetched_data.folder("mlx-metal")


def ggml() -> Path:
    """The kernels are in ggml-metal/kernels/; `ggml_folders()` is what they include from."""
    return fetched_data.folder("llama-cpp-python")


def ggml_folders() -> tuple[Path, ...]:
    """What llama.cpp's kernels include from."""
    return tuple(ggml() / folder for folder in ("ggml-metal/kernels", "ggml-metal", "."))


def torch() -> Path:
    """Include from here: <c10/metal/special_math.h>."""
    if not has_module("torch"):
        pytest.skip("needs PyTorch, whose wheel carries c10/metal")
    return Path(importlib.util.find_spec("torch").origin).parent / "include"


def reported(why: str) -> pytest.MarkDecorator:
    """The checker reports this kernel of others, and is right by the letter."""
    return pytest.mark.xfail(os.environ.get("SOFTMETAL_KERNEL_CHECK") == "1", reason=why)
