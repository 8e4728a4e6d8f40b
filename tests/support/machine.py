"""What this machine and this run have."""

import importlib.util
import os
import sys

import metal_dlpack as md
from metal_dlpack import softmetal

IS_MAC = sys.platform == "darwin"
HAS_SOFTMETAL = softmetal.is_present()
SANITIZER = os.environ.get("METAL_DLPACK_SANITIZE", "")


def has_module(name: str) -> bool:
    """Installed, and not left out because a sanitizer cannot run it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    return importlib.util.find_spec(name) is not None


def has_metal() -> bool:
    try:
        return not md.default_device().is_software
    except md.MetalError:
        return False


def has_mps() -> bool:
    if not has_module("torch") or not IS_MAC:
        return False
    import torch

    return torch.backends.mps.is_available()


def has_mlx_metal() -> bool:
    if not has_module("mlx") or not IS_MAC:
        return False
    import mlx.core as mx

    return mx.metal.is_available()
