"""CPython's own tests of the buffer protocol, with Arrays where they use NumPy's arrays; _testbuffer's arrays and ours.

The suite comes with most Pythons as test.test_buffer; nothing of it is changed but the name `numpy_array`.
"""

import importlib.util
import inspect
import random
import struct
import unittest

import numpy as np
import pytest

import metal_dlpack as md

_testbuffer = pytest.importorskip("_testbuffer", reason="needs CPython's _testbuffer")

#: Formats that name no element type here: characters and pointers.
NOT_OURS = {"c", "P"}
FORMATS = "?bBhHiIlLqQfd"


class FromBuffer:
    """Made as numpy.ndarray is, an Array: what the suite calls numpy_array."""

    asked = 0

    def __init__(self, buffer, shape, dtype, strides=None, offset=0, order="C"):
        FromBuffer.asked += 1
        wanted = np.ndarray(shape, dtype, buffer, offset, strides, order)
        self.array = md.asarray(wanted)
        is_shared = wanted.size > 0 and md.shares_memory(self.array, wanted)
        ours = [step * self.array.itemsize for step in self.array.strides]
        pairs = zip(self.array.shape, ours, wanted.strides, strict=True)
        #: the memory's strides; where it was copied, and where no step is taken, the ones that were asked for
        self.strides = tuple(step if is_shared and extent > 1 else asked for extent, step, asked in pairs)

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    itemsize = property(lambda self: self.array.itemsize)

    def tolist(self):
        return self.array.tolist()

    def tobytes(self, order):
        return np.asarray(self.array).tobytes(order)

    tostring = tobytes  # its name before Python 3.13

    def __getitem__(self, key):
        return self.array[key]

    def __setitem__(self, key, value):
        self.array[key] = value


def make_numpy_array(buffer, shape, dtype, **keywords):
    make = np.ndarray if dtype in NOT_OURS else FromBuffer
    return make(buffer=buffer, shape=tuple(shape), dtype=dtype, **keywords)


@pytest.fixture(scope="module")
def suite():
    spec = importlib.util.find_spec("test.test_buffer")
    if spec is None:
        pytest.skip("this Python comes without its tests")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.numpy_array = make_numpy_array
    return module


#: Tests that compare with NumPy's arrays.
CASES = [
    "test_ndarray_random",
    "test_ndarray_random_invalid",
    "test_ndarray_random_slice_assign",
    "test_py_buffer_to_contiguous",
]


def test_no_other_case_of_the_suite_uses_numpy(suite):
    cases = suite.TestBufferProtocol
    names = unittest.defaultTestLoader.getTestCaseNames(cases)
    assert [name for name in names if "numpy_array" in inspect.getsource(getattr(cases, name))] == CASES


@pytest.mark.parametrize("case", CASES)
def test_the_suite_of_cpython(suite, case):
    random.seed(7)
    before = FromBuffer.asked
    result = unittest.TestResult()
    suite.TestBufferProtocol(case).run(result)
    assert [text for _, text in result.failures + result.errors] == []
    assert not result.skipped
    assert FromBuffer.asked > before


def structures(suite, count):
    """Arrays of CPython's own, of every layout that they can have without a table of pointers."""
    for _ in range(count):
        for letter in FORMATS:
            structure = suite.rand_structure(struct.calcsize(letter), True, maxdim=4, maxshape=6)
            items = suite.randitems_from_structure(letter, structure)
            yield letter, suite.ndarray_from_structure(items, letter, structure)


def test_arrays_of_cpython_come_in_go_out_and_share_their_memory(suite):
    random.seed(11)
    nshared = 0
    for letter, theirs in structures(suite, 10):
        ours = md.asarray(theirs)
        back = _testbuffer.ndarray(ours, getbuf=_testbuffer.PyBUF_FULL)
        for made in (ours, back):
            assert (made.tolist(), made.shape, made.itemsize) == (theirs.tolist(), theirs.shape, theirs.itemsize), (
                letter
            )
        if ours.size:  # an empty array's strides are those of C order, as NumPy's
            assert tuple(back.strides) == tuple(step * ours.itemsize for step in ours.strides)
        assert memoryview(back) == memoryview(theirs)
        assert md.asarray(back).tolist() == ours.tolist()
        assert not ours.readonly
        ours.fill(1)
        if ours.size and md.shares_memory(ours, theirs):
            nshared += 1
            assert memoryview(theirs).tobytes() == struct.pack(letter, 1) * ours.size
    assert nshared > 25


def test_a_read_only_array_stays_so(suite):
    theirs = _testbuffer.ndarray([1, 2, 3], shape=[3], format="i")
    assert md.asarray(theirs).readonly
    back = _testbuffer.ndarray(md.zeros(3).as_readonly(), getbuf=_testbuffer.PyBUF_FULL_RO)
    assert back.readonly
    with pytest.raises(BufferError):
        _testbuffer.ndarray(md.zeros(3).as_readonly(), getbuf=_testbuffer.PyBUF_FULL)
