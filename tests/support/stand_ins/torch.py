"""A torch with MPS for the questions that are asked on a Mac: as much of it as they use, computed by NumPy.

STAND_IN says how it behaves: "shares" (as on a Mac), "copies", "copies matrices", "refuses", "missing", "no GPU",
"one stream".
"""

import os
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

import metal_dlpack as md

WAY = os.environ.get("STAND_IN", "shares")
if WAY == "missing":
    raise ModuleNotFoundError("No module named 'torch'", name="torch")

__version__ = "2.15.0"


class Tensor:
    """Over an Array."""

    device = SimpleNamespace(type="mps")

    def __init__(self, array):
        self.array = array if isinstance(array, md.Array) else md.asarray(np.ascontiguousarray(array)).copy()

    def __dlpack__(self, **keywords):
        return (self.array.copy() if WAY == "copies" else self.array).__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (8, 0)

    def __getitem__(self, key):
        return Tensor(self.array[key])

    def item(self):
        return self.array.item()

    def numpy(self):
        return np.asarray(self.array)

    def __add__(self, other):
        return Tensor(self.numpy() + np.float32(other))

    def __matmul__(self, other):
        return Tensor(self.numpy() @ other.numpy())

    def fill_(self, value):
        self.array.fill(value)

    def clone(self):
        return Tensor(self.numpy().copy())

    def cpu(self):
        return self

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=lambda: self.array.buffer.handle)


def from_dlpack(x):
    """The same memory, where it shares."""
    if WAY == "refuses":
        raise ValueError("not without a copy")
    array = md.from_dlpack(x)
    return Tensor(array.copy() if WAY == "copies" or (WAY == "copies matrices" and array.ndim > 1) else array)


def zeros(shape, device):
    return Tensor(np.zeros(shape, "float32"))


def full(shape, value, device):
    return Tensor(np.full(shape, value, "float32"))


def rand(shape, device):
    return Tensor(np.random.default_rng(1).random(shape, "float32"))


def softmax(x, axis):
    powers = np.exp(x.numpy())
    return Tensor(powers / powers.sum(axis, keepdims=True))


def linear(x, weights):
    return Tensor(x.numpy() @ weights.numpy().T)


@contextmanager
def select(stream):
    yield stream


nn = SimpleNamespace(functional=SimpleNamespace(linear=linear))
mps = SimpleNamespace(synchronize=lambda: None)
if WAY != "one stream":
    mps.Stream, mps.stream = object, select
backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: WAY != "no GPU"))
