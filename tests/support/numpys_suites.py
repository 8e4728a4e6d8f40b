"""A pytest plugin: runs test suites of NumPy's own with our Arrays on one side.

The suites are imported from the installed NumPy and used as they are; what they know as `np` and `format` is replaced
by the ROLE (an environment variable): "consumer": np.from_dlpack is ours; "producer": what np makes is ours;
"files": format.read_array and np.load open the file with metal_dlpack.
"""

import io
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

import metal_dlpack as md

try:
    from numpy.lib._format_impl import _read_array_header as read_header
except ImportError:  # NumPy before 2.3
    read_header = npy._read_array_header

ROLE = os.environ["ROLE"]


class Instead:
    """A module with some other names."""

    def __init__(self, module, **names):
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name):
        return getattr(self._module, name)


# ---- consumer: md.from_dlpack ----


def from_dlpack(x, **keywords):
    return np.asarray(md.from_dlpack(x, **keywords))


# ---- producer: an Array's host view ----


class Flags:
    def __init__(self, owner):
        self.__dict__["owner"] = owner

    def __setattr__(self, name, value):
        assert (name, value) == ("writeable", False)
        self.owner.array = self.owner.array.as_readonly()


class Ours:
    """An Array with the few of ndarray's names that the suite uses."""

    def __init__(self, values):
        self.array = values if isinstance(values, md.Array) else md.asarray(values, copy=True)

    def __dlpack__(self, **keywords):
        return self.array.host.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.host.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)

    def __getitem__(self, key):
        return Ours(self.array[key])

    @property
    def dtype(self):
        return self.array.dtype.numpy

    @property
    def flags(self):
        return Flags(self)

    def astype(self, dtype):
        return Ours(self.array.astype(dtype))

    def reshape(self, shape):
        return Ours(self.array.reshape(shape))

    def copy(self):
        return Ours(self.array.copy())


class Old(Ours):
    """Asked for no version."""

    def __dlpack__(self, stream=None):
        return super().__dlpack__(stream=None)


def maker(function):
    return lambda *args, **keywords: Ours(function(*args, **keywords))


def shares_memory(a, b):
    return np.may_share_memory(np.asarray(a), np.asarray(b))


PRODUCER = {name: maker(getattr(np, name)) for name in ("arange", "zeros", "array", "asarray", "ndarray", "diagonal")}
PRODUCER["may_share_memory"] = shares_memory


# ---- files: md.open ----


def as_numpys(array, file):
    """What NumPy has: of items that no dtype here stands for, an Array has the bytes."""
    shape, _, dtype = read_header(file, npy.read_magic(file), max_header_size=1 << 30)
    values = np.asarray(array)
    if values.dtype == dtype:
        return values
    return values.view(dtype).reshape(shape) if values.size else np.empty(shape, dtype)


def open_file(path):
    with open(path, "rb") as file:
        return as_numpys(md.open(path)["arr_0"], file)


class Archive:
    """What np.load gives for an .npz file."""

    def __init__(self, path):
        self.path, self.opened = path, md.open(path)

    def __getitem__(self, name):
        with zipfile.ZipFile(self.path) as members, members.open(f"{name}.npy") as file:
            return as_numpys(self.opened[name], file)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.opened.close()

    def __len__(self):
        return len(self.opened)


def read_array(file, **_keywords):
    with tempfile.NamedTemporaryFile(suffix=".npy") as copy:
        copy.write(file.getvalue() if isinstance(file, io.BytesIO) else file.read())
        copy.flush()
        return open_file(copy.name)


def load(file, **_keywords):
    if isinstance(file, io.BytesIO):
        return read_array(file)
    path = os.fspath(file)  # TypeError for an open file: md.open takes paths
    return Archive(path) if path.endswith(".npz") else open_file(path)


def is_taken(array):
    """Native numbers, and structures, which are bytes here; not objects, not numbers of the other byte order."""
    return not array.dtype.hasobject and (array.dtype.kind == "V" or array.dtype.isnative)


def replace_arrays(module):
    """Takes out of the suite's lists what is refused, and shows that it is."""
    for name in ("basic_arrays", "record_arrays"):
        arrays = getattr(module, name)
        for array in (array for array in arrays if not is_taken(array)):
            buffer = io.BytesIO()
            npy.write_array(buffer, array)
            try:
                read_array(buffer)
            except ValueError:
                continue
            raise AssertionError(f"{array.dtype} is taken")
        setattr(module, name, [array for array in arrays if is_taken(array)])


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        if ROLE == "consumer":
            module.np = Instead(np, from_dlpack=from_dlpack)
        elif ROLE == "producer":
            module.np = Instead(np, **PRODUCER)
            module.new_and_old_dlpack = lambda: (Ours(np.arange(5)), Old(np.arange(5)))
        else:
            module.np = Instead(np, load=load)
            module.format = Instead(npy, read_array=read_array)
            replace_arrays(module)
    for item in items:
        if ROLE == "producer" and "arr" in getattr(item, "callspec", item).__dict__.get("params", {}):
            given = item.callspec.params["arr"]
            item.callspec.params["arr"] = (Ours if type(given) is np.ndarray else Old)(np.asarray(given))


outcomes = {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        name = report.nodeid.rpartition("::")[2]
        outcomes[name] = (report.outcome, str(getattr(report.longrepr, "reprcrash", report.longrepr))[:300])


def pytest_sessionfinish():
    Path(os.environ["OUTCOMES"]).write_text(json.dumps(outcomes))


assert "metal_dlpack" in sys.modules
