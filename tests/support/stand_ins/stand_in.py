"""What the stand-ins for a Mac's frameworks have in common: how they behave, and tensors over Arrays.

STAND_IN says how: "shares" (as on a Mac), "copies", "copies matrices", "refuses", "missing", "broken", "no GPU"; of torch
"one stream", of MLX "writes" (results go into what is not to be written).
"""

import os

import numpy as np

import metal_dlpack as md

WAY = os.environ.get("STAND_IN", "shares")


def come_in(name: str) -> None:
    """What an import of the framework does."""
    if WAY == "missing":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    if WAY == "broken":
        raise ImportError(f"{name}: a library is missing")


def taken(x) -> md.Array:
    """An import of the framework's: the same memory, where it shares."""
    if WAY == "refuses":
        raise ValueError("not without a copy")
    array = md.from_dlpack(x)
    is_matrix = array.ndim > 1
    return array.copy() if WAY == "copies" or (WAY == "copies matrices" and is_matrix) else array


class Tensor:
    """Over an Array, computed by NumPy."""

    def __init__(self, array):
        self.array = array if isinstance(array, md.Array) else md.asarray(np.ascontiguousarray(array)).copy()

    def __dlpack__(self, **keywords):
        return (self.array.copy() if WAY == "copies" else self.array).__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (8, 0)

    def __getitem__(self, key):
        return type(self)(self.array[key])

    def item(self):
        return self.array.item()

    def tolist(self):
        return self.array.tolist()

    def numpy(self):
        return np.asarray(self.array)

    def __add__(self, other):
        return type(self)(self.numpy() + np.float32(other))

    def __mul__(self, other):
        return type(self)(self.numpy() * np.float32(other))

    def __matmul__(self, other):
        return type(self)(self.numpy() @ other.numpy())
