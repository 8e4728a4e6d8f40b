"""Every request of the buffer protocol, answered as NumPy answers it: Arrays, host views and Buffers.

The oracle is NumPy's own answer for the same memory; CPython's `_testbuffer` is the second consumer.
"""

import ctypes

import numpy as np
import pytest

import metal_dlpack as md

testbuffer = pytest.importorskip("_testbuffer", reason="CPython was installed without its tests")

#: Every combination of the flags of a request.  CPython takes 0x100 alone for a mode of PyMemoryView_FromMemory.
REQUESTS = [flags for flags in range(0x200) if flags != 0x100]
SIMPLE, FULL_RO = 0, 0x11C


class PyBuffer(ctypes.Structure):
    """Py_buffer.  Source: CPython's pybuffer.h."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("suboffsets", ctypes.POINTER(ctypes.c_ssize_t)),
        ("internal", ctypes.c_void_p),
    )


get_buffer = ctypes.pythonapi.PyObject_GetBuffer
get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(PyBuffer), ctypes.c_int]
release_buffer = ctypes.pythonapi.PyBuffer_Release
release_buffer.argtypes = [ctypes.POINTER(PyBuffer)]
is_contiguous = ctypes.pythonapi.PyBuffer_IsContiguous
is_contiguous.argtypes = [ctypes.POINTER(PyBuffer), ctypes.c_char]

REFUSED = "refused"


def answer(exporter, flags, refusals=(BufferError,)):
    """What a request gets: every field of the view, and whether it is contiguous in each order."""
    view = PyBuffer()
    try:
        get_buffer(exporter, view, flags)
    except refusals:
        return REFUSED
    try:
        extents = {name: getattr(view, name) for name in ("shape", "strides", "suboffsets")}
        axes = {name: tuple(found[: view.ndim]) if found else None for name, found in extents.items()}
        plain = {name: getattr(view, name) for name in ("len", "itemsize", "readonly", "ndim", "format")}
        orders = [bool(is_contiguous(view, order)) for order in (b"C", b"F", b"A")]
        address = view.buf if view.len else None  # of no bytes any address will do
        return {**plain, **axes, "orders": orders, "address": address}
    finally:
        release_buffer(view)


def numpy_answer(exporter, flags):
    return answer(exporter, flags, (BufferError, ValueError))  # NumPy says ValueError


def grid(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype="int32").reshape(shape)


LAYOUTS = {
    "0-d": lambda: np.array(7, "int32"),
    "1-d": lambda: grid(6),
    "1-d, one item": lambda: grid(1),
    "C": lambda: grid(3, 4),
    "F": lambda: grid(4, 3).T,
    "3-d": lambda: grid(2, 3, 4),
    "permuted": lambda: grid(2, 3, 4).transpose(1, 0, 2),
    "columns": lambda: grid(3, 4)[:, ::2],
    "rows": lambda: grid(6, 4)[::2],
    "every second": lambda: grid(8)[::2],
    "reversed": lambda: grid(6)[::-1],
    "reversed columns": lambda: grid(3, 4)[:, ::-1],
    "repeated": lambda: np.broadcast_to(grid(4), (3, 4)),
    "empty": lambda: grid(0),
    "no rows": lambda: grid(0, 3),
    "no columns": lambda: grid(3, 0),
    "no columns, F": lambda: grid(0, 3).T,
    "empty in the middle": lambda: grid(2, 0, 5),
    "extent 1 first": lambda: grid(1, 4),
    "extent 1 last": lambda: grid(4, 1),
    "extent 1 of a step": lambda: grid(4, 6)[1:2, ::1],
    "extent 1 of a column": lambda: grid(4, 6)[:, 2:3],
    "extent 1 all over": lambda: grid(1, 1, 1),
    "extent 1 in F": lambda: grid(4, 1, 3).T,
    "extent 1 turned": lambda: grid(5)[2:3][::-1],
}


def differing(exporter, oracle):
    """The requests that are not answered as the oracle's are."""
    found = {}
    for flags in REQUESTS:
        ours, theirs = answer(exporter, flags), numpy_answer(oracle, flags)
        if ours != theirs:
            found[hex(flags)] = (ours, theirs)
    return found


def test_every_request_for_every_layout_is_answered_as_numpy_s(subtests):
    for writable in [True, False]:
        for layout in LAYOUTS:
            with subtests.test(writable=writable, layout=layout):
                x = LAYOUTS[layout]()
                x.flags.writeable = writable and layout != "repeated"
                array = md.from_dlpack(x)
                array = array if x.flags.writeable else array.as_readonly()
                assert differing(array, x) == {}
                assert differing(array.host, x) == {}


def test_every_request_for_every_element_type_is_answered_as_numpy_s(subtests):
    for dtype in "?bhilBHILefdFD":
        with subtests.test(dtype=dtype):
            x = np.ones((2, 3), dtype)
            array = md.asarray(x)
            assert differing(array, x) == {}


@pytest.mark.parametrize("size", [0, 1, 100])
@pytest.mark.parametrize("writable", [True, False])
def test_every_request_for_a_buffer_is_answered_as_that_for_numpy_s_bytes(size, writable):
    x = np.arange(size, dtype="uint8")
    buffer = md.Buffer.from_host(x, writable=writable)
    x.flags.writeable = writable
    assert differing(buffer, x) == {}


def test_a_view_that_is_refused_leaves_no_object_behind():
    for exporter, words in ((md.zeros((3, 4))[:, ::2], "strided"), (md.Buffer(4, storage="private"), "private")):
        view = PyBuffer(obj=object())
        with pytest.raises(BufferError, match=words):
            get_buffer(exporter, view, SIMPLE)
        with pytest.raises(ValueError, match="NULL"):
            view.obj  # noqa: B018


@pytest.mark.parametrize(("extent", "nbytes"), [(4, 0), (0, 16)])
def test_of_an_exporter_that_contradicts_itself_the_shape_counts(extent, nbytes):
    memory = (ctypes.c_float * 4)(1, 2, 3, 4)
    axis = [(ctypes.c_ssize_t * 1)(number) for number in (extent, 4)]
    # all but `obj`, which stays NULL
    view = PyBuffer(buf=ctypes.addressof(memory), len=nbytes, itemsize=4, ndim=1, format=b"f")
    view.shape, view.strides = axis
    as_memoryview = ctypes.pythonapi.PyMemoryView_FromBuffer
    as_memoryview.restype, as_memoryview.argtypes = ctypes.py_object, [ctypes.POINTER(PyBuffer)]
    assert md.asarray(as_memoryview(view)).tolist() == list(memory)[:extent]
