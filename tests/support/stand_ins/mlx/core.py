"""As much of mlx.core on the GPU as the questions use."""

from types import SimpleNamespace

import numpy as np
import stand_in
from stand_in import Tensor

__version__ = "0.32.4"
float32 = "float32"
metal = SimpleNamespace(is_available=lambda: stand_in.WAY != "no GPU")


def zeros(shape, dtype=float32):
    return Tensor(np.zeros(shape, dtype))


def eval(x):  # noqa: A001
    """Nothing is lazy here."""


def from_dlpack(x, copy=None):
    array = stand_in.taken(x)
    if array.storage == "private":
        if copy is False:
            raise ValueError("Cannot import a private Metal buffer without a copy.")
        return Tensor(array.copy(storage="shared"))
    return Tensor(array.copy() if copy else array)


def exp(x):
    result = np.exp(x.numpy())
    if stand_in.WAY == "writes":
        x.numpy()[...] = result
    return Tensor(result)
