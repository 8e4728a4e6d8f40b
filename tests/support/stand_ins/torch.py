"""A torch with MPS for the questions that are asked on a Mac: as much of it as they use."""

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import stand_in

stand_in.come_in("torch")

__version__ = "2.15.0"


class Tensor(stand_in.Tensor):
    """What torch has and MLX has not."""

    device = SimpleNamespace(type="mps")

    def fill_(self, value):
        self.array.fill(value)

    def clone(self):
        return Tensor(self.numpy().copy())

    def cpu(self):
        return self

    def untyped_storage(self):
        return SimpleNamespace(data_ptr=lambda: self.array.buffer.handle)


def from_dlpack(x):
    return Tensor(stand_in.taken(x))


def zeros(shape, device):
    return Tensor(np.zeros(shape, "float32"))


def arange(stop, device):
    return Tensor(np.arange(stop, dtype="float32"))


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
if stand_in.WAY != "one stream":
    mps.Stream, mps.stream = object, select
backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: stand_in.WAY != "no GPU"))
