"""Strides that take no step: of axes of extent 1 and of arrays without items.  They are kept by every import and export."""

import ctypes
import pickle

import numpy as np
import pytest
from dlpack_structs import Producer, delete, open_capsule, table_of, tensor_from
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import metal_dlpack as md

LONG = [2**62, -(2**62), 2**63 - 1, -(2**63), 0, -1, 7]
BOTH = pytest.mark.parametrize("versioned", [True, False], ids=["versioned", "legacy"])


@BOTH
@pytest.mark.parametrize("device", [(1, 0), (8, 0)])
@pytest.mark.rule("import-size-1-strides", "import-empty")
def test_an_empty_tensor_keeps_its_strides(versioned, device):
    fields = {"shape": (2, 0, 3), "strides": (2**63 - 1, 5, -(2**63)), "data": None, "device": device}
    array = md.from_dlpack(Producer(versioned=versioned, **fields))
    assert array.strides == (2**63 - 1, 5, -(2**63))
    assert (array.tolist(), array.copy().shape) == ([[], []], (2, 0, 3))
    assert md.from_dlpack(Producer(versioned=versioned, **fields), copy=True).strides == (3, 3, 1)
    assert md.from_dlpack(Producer(versioned=versioned, **{**fields, "strides": None})).strides == (3, 3, 1)
    assert np.asarray(array).shape == (2, 0, 3)


@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack])
def test_numpys_strides_are_kept(take):
    x = as_strided(np.arange(100.0), (1, 3, 1), (640, 8, 24))
    assert take(x).strides == (80, 1, 3)
    # the buffer protocol says what follows from the order, as NumPy's own memoryviews do
    assert np.asarray(take(x)).strides == memoryview(x).strides
    assert np.from_dlpack(take(x).host).strides == x.strides
    assert take(x[:0]).strides == (80, 1, 3)


def test_numpys_strides_that_are_no_whole_items_are_let_pass_where_no_step_is_taken():
    x = as_strided(np.arange(4.0), (1, 4), (7, 8))
    assert md.asarray(x).tolist() == [[0, 1, 2, 3]]
    assert md.asarray(x[:, :0]).shape == (1, 0)
    for axis, strides in enumerate([(7, 8), (8, 7)]):
        words = rf"asarray: .*stride 7 of axis {axis} is not a multiple of the itemsize \(8 bytes\); copy it"
        for take in (md.asarray, md.zeros((2, 2), "float64").copy_from):
            with pytest.raises(ValueError, match=words):
                take(memoryview(as_strided(np.arange(4.0), (2, 2), strides)))


@pytest.mark.parametrize("make", ["host", "to"])
def test_torch_keeps_its_memory_format(torch, make):
    x = torch.randn(1, 3, 4, 5).to(memory_format=torch.channels_last)
    array = md.from_dlpack(x)
    assert array.strides == x.stride() == (60, 1, 15, 3)
    again = torch.from_dlpack(array.host) if make == "host" else array.to(torch.Tensor)
    assert (again.stride(), again.is_contiguous(memory_format=torch.channels_last)) == (x.stride(), True)
    assert md.from_dlpack(again).strides == x.stride()
    if make == "to":
        return  # there may be no GPU to compute on
    assert torch.equal(again, x)
    weight = torch.randn(2, 3, 1, 1)
    assert torch.nn.functional.conv2d(again, weight).stride() == torch.nn.functional.conv2d(x, weight).stride()


# ---- what is done with such Arrays ----

shapes = st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4)


@st.composite
def cases(draw):
    """A shape, its C strides with any number in place of those that take no step, and a dtype."""
    shape = draw(shapes)
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    any_number = st.sampled_from(LONG) | st.integers(-(2**63), 2**63 - 1)
    strides = [draw(any_number) if extent == 1 else step for extent, step in zip(shape, strides, strict=True)]
    return tuple(shape), tuple(strides), draw(st.sampled_from([(0, 32, 1), (1, 64, 1), (0, 8, 1), (0, 4, 1)]))


@given(case=cases(), device=st.sampled_from([(1, 0), (8, 0)]), versioned=st.booleans())
@pytest.mark.rule("import-size-1-strides", "export-strides-as-they-are")
def test_nothing_stumbles_over_a_stride_that_takes_no_step(case, device, versioned):
    shape, strides, dtype = case
    plain = md.asarray(np.arange(1024, dtype="uint16"), copy=True)
    data = plain.buffer.handle if device == (8, 0) else np.asarray(plain).ctypes.data
    fields = {"shape": shape, "dtype": dtype, "data": data, "device": device, "versioned": versioned}
    array = md.from_dlpack(Producer(strides=strides, **fields), copy=False)
    expected = md.from_dlpack(Producer(**fields), copy=False)
    same = expected.tolist()
    assert open_capsule(array.__dlpack__()).tensor.strides[: array.ndim] == list(strides)
    managed = tensor_from(table_of(md.Array), array)
    assert managed.tensor.strides[: array.ndim] == list(strides)
    delete(ctypes.addressof(managed))
    assert (array.shape, array.strides, array.nbytes) == (shape, strides, expected.nbytes)
    assert array.tolist() == same
    layout = array.layout
    assert (layout.strides, layout.is_contiguous_c, layout.is_dense, layout.is_unique) == (strides, True, True, True)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert (layout == array.layout, hash(layout) == hash(array.layout), repr(array) != "") == (True, True, True)
    for other in (
        array.copy(),
        array.copy(storage="private"),
        array.permute(*range(array.ndim)),
        array[None],
        array[...],
    ):
        assert other.tolist() == (same if other.ndim == array.ndim else [same])
    assert array.reshape(-1).tolist() == expected.reshape(-1).tolist()
    assert array.reshape(1, *shape, 1).squeeze().tolist() == expected.squeeze().tolist()
    assert array.flatten().tolist() == expected.flatten().tolist()
    assert array.expand_dims(0).tolist() == [same]
    assert array.T.T.tolist() == same
    assert array.broadcast_to((2, *shape)).tolist() == [same, same]
    assert pickle.loads(pickle.dumps(array)).tolist() == same
    assert md.shares_memory(array, expected)
    target = md.empty(shape, array.dtype)
    target.copy_from(array)
    assert target.tolist() == same
    if dtype != (0, 4, 1):
        assert array[::-1][::-1].tolist() == same
        assert np.asarray(array).tolist() == same
        assert memoryview(array).tolist() == same
        assert memoryview(array).strides == memoryview(expected).strides
        assert md.asarray(np.asarray(array)).tolist() == same
    array.copy_from(target)
    array.fill(1)
    assert expected.reshape(-1).tolist() == [1] * expected.size
