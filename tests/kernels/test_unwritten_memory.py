"""Under the checker: kernels that read bytes of md.empty or of out= that nobody has written, and all who may write them."""

import contextlib
import gc

import numpy as np
import pytest

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

COUNT = 96
SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
kernel void add(device float *y, uint i [[thread_position_in_grid]]) { y[i] += 1; }
kernel void set(device float *y, constant uint &first, uint i [[thread_position_in_grid]]) { y[first + i] = 1; }
kernel void twice(device float *y, uint i [[thread_position_in_grid]]) { y[2 * i] = 1; }
kernel void count(device atomic_uint *n) { atomic_fetch_add_explicit(n, 1, memory_order_relaxed); }
kernel void store(device atomic_uint *n) { atomic_store_explicit(n, 1, memory_order_relaxed); }
kernel void out_of(device float *y, uint i [[thread_position_in_grid]]) { y[i == 5 ? 1000 : 0] = 1; }
kernel void vectors(device float3 *y, uint i [[thread_position_in_grid]]) { y[i] = float3(1); y[i] += y[i].x; }
"""


@pytest.fixture(autouse=True)
def checked(metal_settings):
    metal_settings(kernel_check=1, validation_mode="log")
    return metal_settings


@pytest.fixture(scope="module")
def lib():
    softmetal.configure(kernel_check=1)
    library = md.Library(SOURCE)
    softmetal.configure(kernel_check=None)
    return library


@pytest.fixture
def is_read(request):
    """A context in which a kernel reads this item, which nobody has written."""

    @contextlib.contextmanager
    def read(item, name="x"):
        with pytest.raises(
            md.MetalError, match=rf"a thread reads byte {4 * item} of buffer \d \({name}\), which nobody"
        ):
            yield
            md.default_device().synchronize()
        request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them

    return read


def new(dtype="float32"):
    """An array in memory that an earlier one had, all of it written."""
    md.full((COUNT,), 7, dtype=dtype)
    gc.collect()
    return md.empty(COUNT, dtype=dtype)


def test_what_empty_makes_is_unwritten_until_a_kernel_writes_it(lib, is_read):
    x, y = new(), new()
    with is_read(0):
        lib.copy(x, y, n=COUNT)
    x, y = new(), new()
    lib.set(x, 0, n=COUNT)
    lib.copy(x, y, n=COUNT)
    lib.add(y, n=COUNT)
    assert y.tolist() == [2] * COUNT
    with is_read(0, "y"):
        lib.add(md.empty_like(x), n=COUNT)


def test_two_launches_fill_one_array(lib, is_read):
    x, y = new(), md.zeros(COUNT)
    lib.set(x, 0, n=40)
    lib.copy(x, y, n=40)
    with is_read(40):
        lib.copy(x, y, n=41)
    lib.set(x[40:], 0, n=COUNT - 40)
    lib.copy(x, y, n=COUNT)
    md.default_device().synchronize()


def test_what_out_makes_is_unwritten_where_the_launch_leaves_it(lib, is_read):
    x = md.ones(COUNT)
    y = lib.copy(x, n=64, out=((COUNT,), "float32"))
    lib.add(y, n=64)
    with is_read(64, "y"):
        lib.add(y, n=65)
    with is_read(0, "y"):
        lib.add(n=1, out=((COUNT,), "float32"))


def test_every_byte_counts_for_itself(lib, is_read):
    x, y = new(), md.zeros(COUNT)
    lib.twice(x, n=COUNT // 2)
    with is_read(1):
        lib.copy(x, y, n=2)
    whole = new()
    lib.set(whole[1:], 0, n=20)
    lib.copy(whole[1:21], whole[30:], n=20)
    with is_read(0):
        lib.copy(whole, whole[60:], n=2)
    with is_read(0):
        lib.copy(whole[50:], whole[60:], n=2)


def test_an_atomic_sum_wants_a_first_value(lib, is_read):
    with is_read(0, "n"):
        lib.count(new("uint32"), n=40)
    n = new("uint32")
    lib.store(n, n=1)
    lib.count(n, n=40)
    assert n.tolist()[0] == 41


def test_the_gap_in_a_row_of_three_is_nobodys(lib):
    y = md.empty((8, 4))
    lib.vectors(y, n=8)
    lib.vectors(y, n=8)
    md.default_device().synchronize()


def shared(x):
    return md.from_dlpack(np.asarray(x), copy=False)


def written_unchecked(x):
    softmetal.configure(kernel_check=0)
    try:
        md.kernel(SOURCE, "set")(x, 0, n=3)
    finally:
        softmetal.configure(kernel_check=1)


def written_while_nothing_is_checked(x):
    softmetal.configure(kernel_check=0)
    try:
        x[:] = 3
    finally:
        softmetal.configure(kernel_check=1)


def stopped(x):
    with pytest.raises(md.MetalError, match="outside"):
        md.kernel(SOURCE, "out_of")(x, n=9)
        md.default_device().synchronize()


def on_a_stream(act):
    def run(x):
        s = md.Stream()
        act(x, s)
        s.synchronize()

    return run


WRITES = {
    "items": lambda x: x.__setitem__(slice(None), 3),
    "fill": lambda x: x.fill(3),
    "copy_from": lambda x: x.copy_from(np.ones(COUNT, "float32")),
    "fill on a stream": on_a_stream(lambda x, s: x.fill(3, stream=s)),
    "copy on a stream": on_a_stream(lambda x, s: x.copy_from(md.ones(COUNT), stream=s)),
    "a view of NumPy's": np.asarray,
    "a memoryview": memoryview,
    "DLPack for the CPU": lambda x: x.__dlpack__(dl_device=(1, 0)),
    "DLPack for the GPU": lambda x: x.__dlpack__(),
    "the interface": lambda x: x.__array_interface__,
    "another Array of NumPy's view": shared,
    "the handle": lambda x: x.buffer.handle,
    "the address": lambda x: x.buffer.address,
    "the Buffer": lambda x: x.buffer.fill(1),
    "the Buffer's view": lambda x: memoryview(x.buffer),
    "a kernel that is not checked": written_unchecked,
    "the CPU while nothing is checked": written_while_nothing_is_checked,
    "a launch that was stopped": stopped,
}


#: Where the CPU has an address, these alone use it.
BY_ADDRESS = {name for name in WRITES if "NumPy" in name or "view" in name} | {
    "DLPack for the CPU",
    "the interface",
    "the address",
}


@pytest.mark.parametrize(
    ("storage", "name"),
    [("shared", name) for name in WRITES] + [("private", name) for name in WRITES if name not in BY_ADDRESS],
)
def test_all_who_may_write_make_it_written(name, storage, lib, request):
    x, y = md.empty(COUNT, storage=storage), md.zeros(COUNT)
    kept = WRITES[name](x)
    if name == "a launch that was stopped":
        request.node.stash[plugin._reports_before] = softmetal.reports()
    lib.copy(x, y, n=3 if name == "a kernel that is not checked" else COUNT)
    md.default_device().synchronize()
    del kept


def test_numpys_own_memory_may_be_one_that_nobody_had_written(lib):
    with md.numpy_memory():
        for _ in range(3):
            md.empty(1 << 16)
            x = np.ones(1 << 16, "float32")
            lib.copy(md.asarray(x), md.zeros(1 << 16), n=1 << 16)
            md.default_device().synchronize()
            del x
