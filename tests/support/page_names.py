"""What the code of a page of docs/ takes as given: files, arrays, a framework's part.

A function for each page that needs one, named after it; it runs in a folder of its own.  What it yields are the names
that the page's code finds; what comes after the `yield` takes back what the code has changed.
"""

import pickle
import sys
import types
from multiprocessing import shared_memory
from pathlib import Path

import pytest

import metal_dlpack as md
import softmetal

#: What a page calls a module, also where it does not import it.
MODULES = {
    "jnp": "jax.numpy",
    "md": "metal_dlpack",
    "mx": "mlx.core",
    "np": "numpy",
    "torch": "torch",
    "tvm_ffi": "tvm_ffi",
}

KERNELS = """
#include <metal_stdlib>
using namespace metal;
constant bool align_M [[function_constant(0)]];
kernel void sum(device const float *x, device float *y) { y[0] = x[0] + x[1]; }
kernel void scale(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
kernel void gemm(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= align_M ? 2 : 3; }
template <typename T, int N>
kernel void shift(device const T *x, device T *y, uint i [[thread_position_in_grid]]) { y[i] = x[i] + N; }
"""


def c_api():
    from setuptools import Extension

    yield {"Extension": Extension, "metal_dlpack": md}


def files():
    import numpy as np
    import safetensors.torch
    import torch
    from safetensors.numpy import save_file

    save_file({"embed.weight": np.ones((4, 3), "float32")}, "model.safetensors")
    Path("model.safetensors.index.json").write_text('{"weight_map": {"embed.weight": "model.safetensors"}}')
    torch.save({"weight": torch.ones(2, 2)}, "model.pt")
    yield {"arrays": {"weight": md.ones((2, 3))}, "safetensors": safetensors}


def how_to_tinygrad():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEV", "METAL")
        patch.setenv("PARALLEL", "0")
        patch.setitem(sys.modules, "tinygrad.runtime.ops_metal", None)  # the page's stand-in goes with it
        yield {}


def how_to_torch():
    from torch.utils.data._utils.collate import default_collate_fn_map

    known = dict(default_collate_fn_map)
    yield {"a": md.ones((4, 2))}
    default_collate_fn_map.clear()
    default_collate_fn_map.update(known)


def kernels():
    yield {"source": KERNELS}


def kernels_arguments():
    source = (
        "kernel void k(device float *x, constant float &factor, uint i [[thread_position_in_grid]]) { x[i] *= factor; }"
    )
    yield {"k": md.kernel(source), "x": md.ones(1000)}


def loading():
    import torch
    from safetensors.torch import save_file

    layer = torch.nn.Linear(3, 4)
    save_file(layer.state_dict(), "model.safetensors")
    torch.save(layer.state_dict(), "model.pt")
    save_file({"lora_A.weight": torch.ones(2, 3), "lora_B.weight": torch.ones(4, 2)}, "adapter.safetensors")
    Path("raw.bin").write_bytes(bytes(64 + 48))
    names = {}
    yield names
    if "merged" in names:  # the adapter's part is 0.5 * 2 everywhere
        added = torch.from_dlpack(md.load("model.safetensors")["weight"].host) - layer.weight.detach()
        assert torch.allclose(added, torch.ones(4, 3))


def processes():
    """Both sides of a shared memory are one process here.  What the page makes is its own to unlink, later."""
    if sys.platform != "darwin":
        softmetal.torch_mps()
    made = []

    class Remembered(shared_memory.SharedMemory):
        def __init__(self, *arguments, **keywords):
            super().__init__(*arguments, **keywords)
            made.append(self)

    given = {"a": md.ones(3), "pickle": pickle, "total": len}
    original, shared_memory.SharedMemory = shared_memory.SharedMemory, Remembered
    given["name"] = Remembered(create=True, size=4 * 1024).name
    yield given
    shared_memory.SharedMemory = original
    given.clear()
    for memory in {memory.name: memory for memory in made}.values():
        memory.close()
        memory.unlink()


def synchronisation():
    """torch's tensor as its builds for Linux have it: carried."""
    import torch

    tensor = torch.from_dlpack(md.ones(4))
    framework = types.SimpleNamespace(Tensor=type("Tensor", (), {}), synchronize=lambda: None)
    yield {"x": tensor, "model": lambda x: x, "its": framework, "a": md.ones(4)}
    md.register_sync(framework.Tensor, None)


def timeline():
    scale = md.kernel(
        "kernel void scale(device float *x, constant float &by, uint i [[thread_position_in_grid]]) { x[i] *= by; }"
    )
    yield {"a": md.ones(1000), "s1": md.Stream(), "s2": md.Stream(), "scale": scale}
