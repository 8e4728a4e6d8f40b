"""The example extension in C: built as others would build it, and run."""

import sys

import numpy as np
import pytest
from extensions import build, load, run_demo
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build("c_extension", tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def example(built):
    return load(built, "metal_example")


class Owner:
    pass


# ---- the C API ----


def test_the_demo_runs(built):
    lines = run_demo(built).splitlines()
    assert len(lines) == 4
    assert lines[-1].endswith("the same memory: True")


keys = st.tuples(*[st.builds(slice, st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([1, 2, -1, -3]))] * 2)


@given(key=keys, storage=st.sampled_from(["shared", "managed", "private"]), turned=st.booleans())
def test_c_walks_any_layout_as_numpy_does(example, key, storage, turned):
    mirror = np.arange(20, dtype="float32").reshape(4, 5)
    array = md.asarray(mirror, copy=True, storage=storage)
    part, expected = (array.T, mirror.T) if turned else (array, mirror)
    example.scale(part[key], 3.0)
    expected[key] *= 3
    assert array.tolist() == mirror.tolist()
    assert example.total(part[key]) == expected[key].sum()


def test_a_handle_of_a_c_library_becomes_an_array(example, live_buffers):
    memory, owner = md.Buffer(8), Owner()
    memory.fill(7)
    before = sys.getrefcount(owner)
    array = example.wrap(memory.handle, 8, owner)
    view = array[2:]
    assert (array.buffer.handle, array.buffer.owner, array.tolist()) == (memory.handle, owner, [7] * 8)
    del array
    assert sys.getrefcount(owner) == before + 1
    del view
    assert sys.getrefcount(owner) == before
    with pytest.raises(ValueError, match="not the address of an id<MTLBuffer>"):
        example.wrap(memory.address, 8, owner)
    assert sys.getrefcount(owner) == before


# ---- DLPack's exchange table, all five members, from C: test_exchange_table.py asks what they promise ----


@pytest.mark.rule("exchange-stream")
@pytest.mark.parametrize("make", ["a", "a[1:, ::2]", "a.T", "a[0, 0]", "a[:0]"])
def test_c_describes_passes_on_and_makes_the_like(example, make, live_buffers):
    array = eval(make, {"a": md.zeros((3, 6), "int16")})
    device, dtype, shape, strides, offset = example.describe(array)
    assert (device, dtype) == ((8, 0), (0, 16, 1))
    assert (shape, strides) == (array.shape, array.strides)
    assert offset == (array.byte_offset if array.size else 0)
    again = example.round_trip(array)
    assert (again.shape, again.strides) == (array.shape, array.strides)
    assert md.shares_memory(again, array) == (array.size > 0)
    made = example.allocate_like(md.Array, array)
    assert (made.shape, made.strides, made.dtype) == (array.shape, array.copy().strides, md.int16)
    assert example.work_stream(array) is None
    del array, made
    again.fill(5)
    assert live_buffers() == (again.size > 0)


def test_c_raises_what_the_table_refuses(example, live_buffers):
    turned = md.zeros(4)[::-1]
    assert not md.shares_memory(example.round_trip(turned), turned)
    with pytest.raises(BufferError, match="negative"):
        example.describe(turned)
    with pytest.raises(TypeError, match="__dlpack_c_exchange_api__"):
        example.describe(5)
    with pytest.raises(TypeError, match="has no __dlpack_c_exchange_api__"):
        example.allocate_like(md.Array, md.zeros(3).host)


def test_the_same_c_code_takes_torchs_tensors(torch, example, live_buffers):
    array = md.zeros((2, 3))
    tensor = array.to(torch.Tensor)
    assert example.describe(tensor) == example.describe(array)
    assert example.round_trip(tensor).data_ptr() == tensor.data_ptr()
    assert example.round_trip(torch.arange(3)).tolist() == [0, 1, 2]
    refusal = r"BufferError: Array: the allocator makes tensors on Metal \(8, 0\), not on"
    with pytest.raises(RuntimeError, match=refusal):
        example.allocate_like(md.Array, torch.zeros(3))
