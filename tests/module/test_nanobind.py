"""The example extension in C++: nb::ndarray on Metal takes our Arrays and gives them back."""

import gc
import sys

import pytest
from extensions import build, build_by_cmake, load, run_demo

import metal_dlpack as md

pytestmark = [pytest.mark.needs_nanobind, pytest.mark.long]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build("nanobind_extension", tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def example(built):
    return load(built, "metal_nanobind")


def test_the_demo_runs(built):
    lines = run_demo(built).splitlines()
    assert lines[0].endswith("True at byte 4")
    assert lines[2] == "C++ keeps the memory: [1.0, 2.0, 42.0, 4.0]"


@pytest.mark.long
@pytest.mark.needs_cmake
@pytest.mark.needs_no_sanitizer
def test_cmake_builds_the_same(built, tmp_path):
    assert run_demo(build_by_cmake("nanobind_extension", tmp_path)) == run_demo(built)


@pytest.mark.parametrize("make", ["a", "a[1:, ::2]", "a.T", "a[0, 0]", "a.as_readonly()", "a.view('int32')"])
def test_cpp_sees_what_the_array_is(example, make, live_buffers):
    array = eval(make, {"a": md.zeros((4, 6))})
    assert example.describe(array) == (array.buffer.handle, array.byte_offset, array.shape, array.strides)


def test_negative_strides_arrive_as_a_copy(example, live_buffers):
    array = md.zeros((4, 6))
    handle, offset, shape, strides = example.describe(array[::-1])
    assert handle != array.buffer.handle
    assert (offset, shape, strides) == (0, (4, 6), (6, 1))


def test_what_cpp_gives_back_shares_the_memory(example, live_buffers):
    array = md.asarray([float(i) for i in range(8)])
    part = md.from_dlpack(example.tail(array[::2], 1))
    assert part.buffer.handle == array.buffer.handle
    assert (part.byte_offset, part.strides, part.tolist()) == (8, (2,), [2.0, 4.0, 6.0])
    part[0] = 20.0
    assert array[2].item() == 20.0
    assert md.from_dlpack(example.tail(array, 8)).shape == (0,)


def test_what_cpp_gives_back_is_torchs_too(torch, example, live_buffers):
    array = md.asarray([float(i) for i in range(8)])
    tensor = torch.from_dlpack(example.tail(array, 3))
    assert (tensor.device.type, tensor.storage_offset(), tuple(tensor.shape)) == ("mps", 3, (5,))
    assert tensor.untyped_storage().data_ptr() == array.buffer.handle
    handle, offset, *_ = example.describe(tensor)
    assert (handle, offset) == (array.buffer.handle, 12)


def test_memory_made_in_cpp_is_an_array_like_any_other(example, live_buffers):
    array = md.from_dlpack(example.zeros(5))
    assert array.tolist() == [0.0] * 5
    assert array.storage == md.get_storage_mode()
    assert live_buffers() == 1


def test_cpp_takes_the_very_types_that_it_names(example, live_buffers):
    array = md.zeros(4)
    for wrong in (md.zeros(4, "int32"), md.zeros((2, 2)), array.host, array.as_readonly(), [1.0]):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            example.tail(wrong, 0)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        example.total(array)
    with pytest.raises(IndexError, match="passes the end"):
        example.tail(array, 5)


def test_the_host_view_is_an_address_to_cpp(example, live_buffers):
    array = md.asarray([1.0, 2.0, 3.0, 4.0])
    assert example.total(array.host) == 10.0
    assert example.total(array[::2].as_readonly().host) == 4.0


# ---- lifetime ----


def test_cpp_keeps_the_memory_and_lets_it_go(example, live_buffers):
    array = md.full(4, 2.0)
    keeper = example.Keeper(array)
    assert keeper.get() is array
    del array
    assert live_buffers() == 1
    part = md.from_dlpack(keeper.view())
    del keeper
    assert (part.tolist(), live_buffers()) == ([2.0] * 4, 1)
    del part
    assert live_buffers() == 0


def test_a_thousand_exchanges_leave_nothing_behind(example, live_buffers):
    array = md.zeros(16)
    before = sys.getrefcount(array)
    for _ in range(1000):
        md.from_dlpack(example.tail(example.tail(array, 1), 1))
        example.describe(array)
        example.Keeper(array).view()
    gc.collect()
    assert sys.getrefcount(array) == before
    assert live_buffers() == 1
