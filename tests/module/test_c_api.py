"""The C API: its table called through ctypes, its header compiled."""

import ctypes
import re
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest
from c_api import INT64, Access, Api, Dtype, View, table
from children import run_child
from dlpack_structs import Producer, delete
from places import ROOT

import metal_dlpack as md

FLOAT32, INT16, INT4 = (2, 32, 1), (0, 16, 1), (0, 4, 1)
DEFAULT, SHARED, MANAGED, PRIVATE = range(4)
STORAGE = {"shared": SHARED, "managed": MANAGED, "private": PRIVATE}


API = table()


def numbers(*values):
    return (INT64 * max(len(values), 1))(*values)


def view_of(array):
    view = View()
    assert API.array_get(array, ctypes.byref(view)) == 0
    return view


def new(shape=(2, 3), dtype=FLOAT32, storage=DEFAULT):
    return API.array_new(len(shape), numbers(*shape), Dtype(*dtype), storage)


class Owner:
    pass


# ---- the table ----


def test_the_table_has_its_version_and_all_its_functions():
    assert (API.major, API.minor) == (1, 0)
    for name, _ in Api._fields_[2:]:
        assert ctypes.cast(getattr(API, name), ctypes.c_void_p).value, name


def test_the_page_names_every_function_and_the_table_here_too():
    header = (Path(md.get_include()) / "metal_dlpack.h").read_text()
    names = re.findall(r"\(\*(\w+)\)\(", header)
    assert names == [name for name, _ in Api._fields_[2:]]
    page = (ROOT / "docs" / "c_api.md").read_text()
    assert [name for name in names if f"`{name}`" not in page] == []


HEADER_USERS = {
    "c99": ["cc", "-std=c99", "-x", "c"],
    "c17": ["cc", "-std=c17", "-x", "c"],
    "c++11": ["c++", "-std=c++11", "-x", "c++"],
    "c++20": ["c++", "-std=c++20", "-x", "c++"],
}
USER = """
#include <metal_dlpack.h>
int start(void);
int start(void) { return metal_dlpack_import(); }
"""


def sizes_here():
    """An assertion for each struct that the tests above describe to ctypes."""
    lines = []
    for name, struct in [("dtype", Dtype), ("view", View), ("access", Access), ("api", Api)]:
        lines.append(f"char size_of_{name}[sizeof(metal_dlpack_{name}) == {ctypes.sizeof(struct)} ? 1 : -1];")
        for field, _ in struct._fields_:
            here = f"offsetof(metal_dlpack_{name}, {field}) == {getattr(struct, field).offset}"
            lines.append(f"char at_{name}_{field}[{here} ? 1 : -1];")
    return "\n".join(lines)


@pytest.mark.parametrize("language", HEADER_USERS)
def test_the_header_compiles_alone_and_lays_its_structs_out_as_here(language):
    """The structs are a promise: a change of one makes a new major version."""
    result = subprocess.run(
        [
            *HEADER_USERS[language],
            *["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", md.get_include()],
            *["-isystem", sysconfig.get_path("include"), "-"],
        ],
        input=USER + sizes_here(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_a_module_compiled_for_another_version_is_told_so(tmp_path):
    """The number in the header is read at import, by the module that was compiled with it."""
    text = (Path(md.get_include()) / "metal_dlpack.h").read_text()
    program = """
        import ctypes, sys
        for library in sys.argv[1:]:
            try:
                print(ctypes.PyDLL(library).start())
            except ImportError as error:
                print(error)
    """
    flags = ["-shared", "-fPIC", *(["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else [])]
    libraries = [tmp_path / f"user_{major}_{minor}.so" for major, minor in ((1, 0), (2, 0), (1, 1))]
    for library in libraries:
        _, major, minor = library.stem.split("_")
        changed = re.sub(r"(define METAL_DLPACK_API_MAJOR) 1", rf"\1 {major}", text)
        changed = re.sub(r"(define METAL_DLPACK_API_MINOR) 0", rf"\1 {minor}", changed)
        assert (changed == text) == (library is libraries[0])
        (tmp_path / "metal_dlpack.h").write_text(changed)
        subprocess.run(
            ["cc", *flags, "-x", "c", "-", "-o", library, "-I", tmp_path, "-I", sysconfig.get_path("include")],
            input=USER,
            text=True,
            check=True,
        )
    said = run_child(program, *libraries, check=True).stdout.splitlines()
    assert said[0] == "0"
    assert "compiled for version 2.0" in said[1] and "compiled for version 1.1" in said[2]


# ---- looking ----


def test_array_check_knows_arrays_only():
    array = md.zeros(2)
    assert API.array_check(array) == 1
    for other in (array.host, array.buffer, memoryview(b"1"), b"1", 1, None, md.Array):
        assert API.array_check(other) == 0


VIEWED = {
    **{storage: (lambda s=storage: md.zeros((4, 6), "int16", storage=s)[1:, ::-2]) for storage in STORAGE},
    "read-only": lambda: md.zeros(2).as_readonly(),
    "packed": lambda: md.zeros(8, "int4")[2:],
    "padded": lambda: md.zeros(8, "int4").copy(padded=True),
    "no items": lambda: md.zeros((0, 3)),
    "no dimensions": lambda: md.zeros(()),
}


@pytest.mark.parametrize("name", VIEWED)
def test_a_view_has_what_the_array_has(name, live_buffers):
    array = VIEWED[name]()
    view = view_of(array)
    assert (view.nbytes, view.nitems, view.ndim) == (array.nbytes, array.size, array.ndim)
    assert view.shape and view.strides, "real pointers"
    assert (tuple(view.shape[: view.ndim]), tuple(view.strides[: view.ndim])) == (array.shape, array.strides)
    dtype = array.dtype
    assert (view.dtype.code, view.dtype.bits, view.dtype.lanes) == (dtype.code, dtype.bits, dtype.lanes)
    assert (view.storage, view.is_readonly) == (STORAGE[array.storage], array.readonly)
    assert view.is_padded == array.padded
    if not array.size:
        assert (view.handle, view.address) == (None, None)
        return
    assert (view.handle, view.byte_offset) == (array.buffer.handle, array.byte_offset)
    assert view.address == (None if array.storage == "private" else array.buffer.address + array.byte_offset)


def test_what_fails_leaves_zeroes():
    view, access = View(ndim=7), Access(address=1)
    with pytest.raises(TypeError, match=r"an Array is needed, not list\."):
        API.array_get([], ctypes.byref(view))
    with pytest.raises(ValueError, match="array_begin: the array is read-only"):
        API.array_begin(md.zeros(2).as_readonly(), 1, ctypes.byref(access))
    assert (view.ndim, access.address) == (0, None)


# ---- making ----


@pytest.mark.parametrize("storage", [DEFAULT, *STORAGE.values()])
def test_a_made_array_is_an_array_like_any_other(storage, live_buffers):
    array = new((2, 3), INT16, storage)
    assert (array.shape, array.strides, array.dtype) == ((2, 3), (3, 1), md.int16)
    assert STORAGE[array.storage] == (storage or STORAGE[md.get_storage_mode()])
    assert sys.getrefcount(array) == 2
    assert live_buffers() == 1
    assert API.array_new(0, None, Dtype(*FLOAT32), storage).shape == ()


def over(shape, strides, dtype, offset):
    """An Array over a Buffer of 64 bytes."""
    strides = strides and numbers(*strides)
    return API.buffer_array(OVER, len(shape), numbers(*shape), strides, Dtype(*dtype), offset)


OVER, OWNER = md.Buffer(64), Owner()
REFUSED = [
    (lambda: new((2, -1)), "array_new: .*extent -1 of axis 1 is negative"),
    (lambda: new((1 << 40, 1 << 40)), "array_new: .*more than one buffer"),
    (lambda: new((2,), (2, 33, 1)), r"array_new: .*element type \(code 2, bits 33, lanes 1\)"),
    (lambda: new((2,), FLOAT32, 4), r"array_new: .*storage \(4\)"),
    (lambda: new((2,), FLOAT32, -1), r"array_new: .*storage \(-1\)"),
    (lambda: new((1,) * 65), "array_new: .*0 to 64 dimensions, not 65"),
    (lambda: API.array_new(3, None, Dtype(*FLOAT32), 0), "array_new: shape is NULL, and ndim is 3"),
    (lambda: API.buffer_array(OVER, 1, None, None, Dtype(*FLOAT32), 0), "buffer_array: shape is NULL, and ndim is 1"),
    (lambda: API.buffer_wrap(OVER.handle, 2**64 - 1, id(OWNER)), "buffer_wrap: .*passes the end of any MTLBuffer"),
    (lambda: over((17,), None, FLOAT32, 0), "bytes 0 to 68, past the Buffer's 64 bytes"),
    (lambda: over((2,), (-1,), FLOAT32, 0), "bytes -4 to 4"),
    (lambda: over((2,), None, FLOAT32, 2), r"byte_offset \(2\) is not a multiple"),
    (lambda: over((2,), None, FLOAT32, -8), "bytes -8 to 0"),
    (lambda: over((2,), None, (9, 9, 9), 0), "element type"),
    (lambda: over((-2,), None, FLOAT32, 0), "extent -2 of axis 0 is negative"),
    (lambda: over((4,), (2,), INT4, 0), "sub-byte items must be compact"),
    (lambda: API.buffer_wrap(OVER.handle, 65, id(OWNER)), r"size \(65 bytes\) passes the end .* \(64 bytes\)"),
    (lambda: API.buffer_wrap(OVER.address, 64, id(OWNER)), "not the address of an id<MTLBuffer>"),
    (lambda: API.buffer_wrap(None, 0, id(OWNER)), "the handle is 0, which is not an id<MTLBuffer>"),
    (lambda: API.array_to_dlpack(md.zeros(2), 2), r"copy \(2\) is none of -1, 0 and 1"),
]
NO_ARRAY = [
    (lambda: API.array_get([], ctypes.byref(View())), r"array_get: an Array is needed, not list\."),
    (lambda: API.buffer_array(b"12", 1, numbers(2), None, Dtype(*INT16), 0), "buffer_array: a Buffer .* not bytes"),
    (lambda: API.array_to_dlpack(1, -1), r"array_to_dlpack: an Array is needed, not int\."),
    (lambda: API.array_begin(None, 0, ctypes.byref(Access())), "array_begin: an Array is needed, not NoneType"),
    (lambda: API.array_end(None, ctypes.byref(Access()), 1), "array_end: an Array is needed, not NoneType"),
]


def test_what_cannot_be_is_refused_and_leaves_everything_alone(live_buffers, subtests):
    before = sys.getrefcount(OVER), sys.getrefcount(OWNER), live_buffers()
    for error, calls in ((ValueError, REFUSED), (TypeError, NO_ARRAY)):
        for call, sentence in calls:
            with subtests.test(sentence):
                with pytest.raises(error, match=sentence):
                    call()
                assert (sys.getrefcount(OVER), sys.getrefcount(OWNER), live_buffers()) == before


def test_a_wrapped_handle_keeps_its_owner_until_the_last_share_is_gone(live_buffers):
    memory, owner = md.Buffer(64), Owner()
    before = sys.getrefcount(owner)
    buffer = API.buffer_wrap(memory.handle, 64, id(owner))
    assert (buffer.handle, buffer.size, buffer.owner) == (memory.handle, 64, owner)
    array = API.buffer_array(buffer, 1, numbers(4), None, Dtype(*FLOAT32), 16)
    del buffer
    assert sys.getrefcount(owner) == before + 1
    address = API.array_to_dlpack(array, -1)
    del array
    assert sys.getrefcount(owner) == before + 1
    thread = threading.Thread(target=delete, args=(address,))
    thread.start()
    thread.join()
    md.from_dlpack(md.zeros(1))  # what a thread without the GIL left behind is let go here
    assert sys.getrefcount(owner) == before


def test_a_handle_without_an_owner_is_retained(live_buffers):
    memory = md.Buffer(64)
    buffer = API.buffer_wrap(memory.handle, 32, None)
    assert buffer.owner is None
    assert buffer.size == 32
    del memory
    assert live_buffers() == 1
    buffer.fill(1)


def test_an_array_over_a_buffer_takes_strides_in_items(live_buffers):
    buffer = md.Buffer(64)
    array = API.buffer_array(buffer, 2, numbers(3, 2), numbers(-2, 1), Dtype(*FLOAT32), 32)
    assert (array.shape, array.strides, array.byte_offset) == ((3, 2), (-2, 1), 32)
    assert array.buffer is buffer


# ---- DLPack ----


def test_a_tensor_outlives_its_array_and_comes_back_as_the_same_memory(live_buffers):
    array = md.full((2, 3), 2.0)[:, 1:]
    handle = array.buffer.handle
    address = API.array_to_dlpack(array, -1)
    del array
    back = API.array_from_dlpack(address, -1)
    assert (back.buffer.handle, back.byte_offset, back.strides) == (handle, 4, (3, 1))
    assert back.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert live_buffers() == 1


def test_copy_is_obeyed_both_ways(live_buffers):
    array = md.full((3,), 1.0)
    with pytest.raises(md.CopyRequiredError):
        API.array_to_dlpack(array[::-1], 0)
    other = API.array_from_dlpack(API.array_to_dlpack(array, -1), 1)
    assert other.buffer.handle != array.buffer.handle
    third = API.array_from_dlpack(API.array_to_dlpack(array, 1), 0)
    assert third.buffer.handle != array.buffer.handle


def test_a_refused_tensor_is_deleted_once(live_buffers):
    for copy, fault in [(-1, {"device": (2, 0)}), (-1, {"version": (2, 0)}), (7, {}), (-1, {"dtype": (2, 33, 1)})]:
        producer = Producer(**fault)
        with pytest.raises((BufferError, ValueError)):
            API.array_from_dlpack(ctypes.addressof(producer.struct), copy)
        assert producer.deletions == 1, fault


def test_a_tensor_of_the_cpu_is_deleted_when_its_memory_is_free(live_buffers):
    memory = (ctypes.c_float * 6)(*range(6))
    producer = Producer(data=ctypes.addressof(memory))
    array = API.array_from_dlpack(ctypes.addressof(producer.struct), -1)
    assert array.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    del array
    assert producer.deletions == 1


# ---- the items ----


@pytest.mark.parametrize("is_written", [1, 0])
@pytest.mark.parametrize("storage", STORAGE)
def test_what_is_written_in_an_access_is_read_by_all(storage, is_written, live_buffers):
    """What is not said to be written stays out of private memory."""
    array = md.zeros((2, 3), storage=storage)
    access = Access()
    assert API.array_begin(array[1], 1, ctypes.byref(access)) == 0
    (ctypes.c_float * 3).from_address(access.address)[:] = [1, 2, 3]
    assert API.array_end(array[1], ctypes.byref(access), is_written) == 0
    assert access.address is None
    if is_written or storage == "private":
        assert array.tolist() == [[0.0] * 3, [1.0, 2.0, 3.0] if is_written else [0.0] * 3]


def test_an_access_to_nothing_has_no_address(live_buffers):
    access = Access(address=1)
    array = md.zeros((0,))
    assert API.array_begin(array, 1, ctypes.byref(access)) == 0
    assert access.address is None
    assert API.array_end(array, ctypes.byref(access), 1) == 0


@pytest.mark.parametrize("storage", ["shared", "private"])
def test_an_access_for_reading_cannot_end_as_written(storage, live_buffers):
    array, access = md.zeros(2, storage=storage), Access()
    assert API.array_begin(array, 0, ctypes.byref(access)) == 0
    with pytest.raises(ValueError, match="begun for reading"):
        API.array_end(array, ctypes.byref(access), 1)
    assert access.address is None


@pytest.mark.parametrize("other", [slice(1, None), slice(3), slice(0)])
def test_what_was_written_to_one_array_does_not_go_back_to_another(other, live_buffers):
    """Its bytes would be others of the buffer, or of a smaller one."""
    array, access = md.zeros(4, storage="private"), Access()
    assert API.array_begin(array, 1, ctypes.byref(access)) == 0
    with pytest.raises(ValueError, match="array_end: the access was begun on another Array"):
        API.array_end(array[other], ctypes.byref(access), 1)
    assert access.address is None
    assert array.tolist() == [0.0] * 4
