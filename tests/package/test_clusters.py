"""Arrays on more than one machine: what Dask believes they weigh."""

import gc
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from children import output_of

import metal_dlpack as md


@pytest.fixture(autouse=True)
def pool_of_other_tests():
    """Where Dask has seen an Array, collections empty the pool."""
    known = list(gc.callbacks)
    yield
    gc.callbacks[:] = known


# ---- what it weighs ----

MAKERS = {
    "zeros": (md.zeros, np.zeros),
    "asarray": (md.asarray, np.asarray),
    "astype": (lambda x: md.asarray(x).astype("int8"), lambda x: np.asarray(x).astype("int8")),
    "copy": (lambda x: md.asarray(x).T.copy(), lambda x: np.asarray(x).T.copy()),
    "shared": (lambda x: md.asarray(np.asarray(x)), lambda x: np.asarray(x)[...]),
    "view": (lambda x: md.asarray(x)[1:], lambda x: np.asarray(x)[1:]),
    "same items": (lambda x: md.asarray(x)[...], lambda x: np.asarray(x)[...]),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("given", [(30, 40), (5,), (0, 3)])
def test_sys_getsizeof_counts_the_items_where_numpy_s_does(name, given):
    ours, theirs = (make(given) for make in MAKERS[name])
    alone = sys.getsizeof(md.empty([0] * ours.ndim))
    assert sys.getsizeof(ours) - alone == (ours.nbytes if theirs.flags.owndata else 0)
    ours.buffer  # noqa: B018 - the object exists from here on, and changes nothing
    assert sys.getsizeof(ours) - alone == (ours.nbytes if theirs.flags.owndata else 0)


def test_sys_getsizeof_counts_what_a_buffer_made_until_it_is_closed():
    alone = sys.getsizeof(md.Buffer.from_host(bytearray(100)))
    buffer = md.Buffer(100)
    assert sys.getsizeof(md.zeros(100).buffer) == alone, "its Array counts the items"
    assert sys.getsizeof(buffer) == alone + 100
    buffer.close()
    assert sys.getsizeof(buffer) == alone


@st.composite
def views(draw):
    """Of the same items ours and NumPy's."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    array = md.zeros(shape, "int16")
    for act in draw(st.lists(st.sampled_from(["slice", "broadcast", "transpose"]), max_size=3)):
        if act == "transpose":
            array = array.T
        elif act == "broadcast":
            array = array.broadcast_to((draw(st.integers(1, 3)), *array.shape))
        else:
            array = array[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1]))) for _ in array.shape)]
    return array, np.asarray(array)


@hypothesis.given(views())
def test_dask_counts_an_array_as_it_counts_numpy_s(pair):
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    ours, theirs = pair
    assert sizeof(ours) == sizeof(ours.host) == sizeof(theirs)


def test_dask_counts_packed_items_and_private_memory():
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    assert sizeof(md.zeros((3, 4), "int4")) == 6
    assert sizeof(md.zeros((2, 4), "int4").broadcast_to((9, 2, 4))) == 4
    assert sizeof(md.zeros((3, 4), storage="private")) == 48


def test_dask_starts_without_the_package():
    pytest.importorskip("dask")
    assert output_of("import sys, dask.sizeof\nprint('metal_dlpack' in sys.modules)") == "False\n"


def test_a_collection_of_dask_s_gives_the_pool_s_memory_back():
    pytest.importorskip("dask")
    code = """
        import gc, dask.sizeof, metal_dlpack as md
        a = md.zeros(1 << 20)
        gc.collect()
        dask.sizeof.sizeof(a)
        del a
        gc.collect(1)
        print(md.memory_stats()["cached"] > 0)
        gc.collect()
        print(md.memory_stats()["cached"])
    """
    assert output_of(code) == "True\n0\n"
