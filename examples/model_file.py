"""A model file as Metal arrays: mapped, shared with PyTorch, copied to the GPU's own memory.

    python examples/model_file.py [FILE]

FILE is a .safetensors, .gguf, .npz or .npy file; without one a small .npz file is made.
"""

import importlib.util
import sys
import tempfile
from pathlib import Path

import metal_dlpack as md


def make_file(folder: Path) -> Path:
    import numpy as np

    path = folder / "model.npz"
    np.savez(path, weight=np.arange(12, dtype="float32").reshape(3, 4), bias=np.ones(3, dtype="float16"))
    return path


def show_file(path: Path) -> None:
    with md.open(path) as model:
        print(f"{path.name}: {len(model)} tensors, {'mapped' if model.is_mapped else 'read'}")
        for name in list(model)[:10]:
            info = model.info(name)
            print(f"  {name:<24}{info.type:<8}{info.dtype.name:<10}{info.shape!s:<16}{info.nbytes} bytes")
        first = model[next(iter(model))]

    # The file is closed; what was taken from it stays good.
    on_gpu = first.copy(storage="private")
    print(f"copied to {on_gpu.storage} memory: {on_gpu.shape}")
    if importlib.util.find_spec("torch") is not None:
        import torch

        tensor = torch.from_dlpack(first)
        same = tensor.untyped_storage().data_ptr() == first.buffer.handle
        print(f"torch on {tensor.device}: {'the same buffer' if same else 'a copy'}")
        assert same


def main() -> None:
    if len(sys.argv) > 1:
        show_file(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        show_file(make_file(Path(folder)))


if __name__ == "__main__":
    main()
