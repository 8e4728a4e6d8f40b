"""One Metal buffer, seen by every framework that is installed.

Each framework gets a view of the same bytes.  One write, and all of them show it.
"""

import importlib.util
import warnings
from types import ModuleType

import metal_dlpack as md
import softmetal


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def starts_mps(torch: ModuleType) -> bool:
    """Torch's builds for Linux have no MPS: there the CPU computes, in the same memory."""
    if softmetal.is_present():
        try:
            softmetal.torch_mps()
        except RuntimeError as error:  # there is no C++ compiler
            print(error)
    return bool(torch.backends.mps.is_available())


def main() -> None:
    array = md.zeros((2, 4), dtype="float32")
    print(f"One MTLBuffer of {array.buffer.size} bytes: id<MTLBuffer> {array.buffer.handle:#x}")
    views: dict[str, object] = {"metal_dlpack": array}
    mps = None

    if has("numpy"):
        import numpy as np

        views["NumPy"] = np.from_dlpack(array, device="cpu")
    if has("torch"):
        import torch

        views["PyTorch CPU"] = torch.from_dlpack(array.host)
        with warnings.catch_warnings():  # on Linux torch has no mps yet: it computes at the end
            warnings.simplefilter("ignore", RuntimeWarning)
            mps = torch.from_dlpack(array)
        handle = mps.untyped_storage().data_ptr()
        print(f"A torch tensor on {mps.device}, whose storage is {handle:#x}")
        assert handle == array.buffer.handle
        views["PyTorch MPS"] = mps if torch.backends.mps.is_available() else md.from_dlpack(mps)
    if has("tvm_ffi"):
        import tvm_ffi

        tensor = tvm_ffi.from_dlpack(array)
        print(f"A tvm-ffi tensor on {tensor.device}")
        views["tvm-ffi"] = md.from_dlpack(tensor)
    if has("jax"):
        import jax.numpy as jnp

        views["JAX"] = jnp.from_dlpack(array.host)

    array[1, 2] = 42.0
    print("\nAfter array[1, 2] = 42:")
    for name, view in views.items():
        row = [float(view[1, i]) for i in range(4)]  # type: ignore[index]
        print(f"  {name:<14}{row}")
        assert row[2] == 42.0, f"{name} does not see the write"

    if mps is not None and starts_mps(torch):
        mps += 1
        print(f"\nAfter torch has added 1 on {mps.device}:\n  metal_dlpack  {md.from_dlpack(mps)[1].tolist()}")
        assert array[1].tolist() == [1.0, 1.0, 43.0, 1.0]


if __name__ == "__main__":
    main()
