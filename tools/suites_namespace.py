"""The array API's names over metal_dlpack, or NumPy itself where $SUITE_DEVICE is cpu: for array-api-tests.

Its arrays are made and exchanged by metal_dlpack alone.  What the tests compare, they compare as NumPy's views of the
same memory: metal_dlpack has no arithmetic.
"""

import os
import sys

import numpy as np

import metal_dlpack as md

__array_api_version__ = "2024.12"
NAMES = list(np.__array_namespace_info__().dtypes())


class Array:
    """A metal_dlpack.Array that answers the operators which these tests use."""

    def __init__(self, held):
        self.held = held

    def __getattr__(self, name):
        return getattr(self.held, name)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.held)

    def __eq__(self, other):
        return np.asarray(self) == np.asarray(other)

    def __getitem__(self, key):
        return np.asarray(self)[key]

    def __setitem__(self, key, value):
        np.asarray(self)[key] = value


class Info:
    devices = staticmethod(md.devices)


def over(make):
    return lambda x, *words, **more: Array(make(getattr(x, "held", x), *words, **more))


names = globals()
names.update({name: getattr(md, name) for name in NAMES}, __array_namespace_info__=Info)
names.update({name: getattr(np, name) for name in ("all", "isnan", "isfinite", "nan", "inf")})
names.update({name: over(getattr(md, name)) for name in ("asarray", "empty", "zeros", "from_dlpack")})
names.update(reshape=over(lambda held, shape: held.reshape(shape)))
names.update(iinfo=lambda dtype: np.iinfo(str(dtype)), finfo=lambda dtype: np.finfo(str(dtype)))
if os.environ["SUITE_DEVICE"] == "cpu":
    sys.modules[__name__] = np
