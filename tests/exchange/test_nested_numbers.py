"""asarray of Python's numbers and nested lists: NumPy's shape, type, items and errors; the same where NumPy is missing."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from machine import tries

import metal_dlpack as md

#: Reads a pickle a line, in a process that cannot import NumPy, and prints what asarray makes of it.
CHILD = """
import json, pickle, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numpy":
            raise ImportError("NumPy is blocked")

sys.meta_path.insert(0, Blocker())
import metal_dlpack as md

for line in sys.stdin:
    value, dtype = pickle.loads(bytes.fromhex(line))
    try:
        made = md.asarray(value, dtype=dtype)
        answer = [made.dtype.name, list(made.shape), repr(made.tolist())]
        repr(made)
    except Exception as error:
        answer = [type(error).__name__, str(error)]
    print(json.dumps(answer), flush=True)
"""
NUMBERS = {
    "bool": st.booleans(),
    "int": st.integers(-300, 300),
    "large int": st.one_of(
        st.integers(-(2**66), 2**66), st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63)])
    ),
    "float": st.floats(),
    "complex": st.complex_numbers(),
}


@pytest.fixture(scope="module")
def without_numpy():
    env = {**os.environ, "PYTHONPATH": str(Path(md.__file__).parent.parent)}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as child:

        def ask(value, dtype=None):
            child.stdin.write(pickle.dumps((value, dtype)).hex() + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield ask
        child.stdin.close()


def ours(value, dtype=None):
    try:
        made = md.asarray(value, dtype=dtype)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return [made.dtype.name, list(made.shape), repr(made.tolist())]


def numpys(value):
    """What NumPy makes of it, floats and complex numbers narrowed, ints beyond int64 refused; the name of an error."""
    try:
        items = np.asarray(value)
    except ValueError:
        return ["ValueError"]
    if items.dtype.kind not in "biufc" or is_beyond_int64(value):
        return ["TypeError"]
    narrow = {"d": "float32", "D": "complex64"}.get(items.dtype.char)
    with np.errstate(all="ignore"):
        items = items if narrow is None else items.astype(narrow)
    return [items.dtype.name, list(items.shape), repr(items.tolist())]


def leaves(value):
    return [leaf for entry in value for leaf in leaves(entry)] if isinstance(value, list | tuple | range) else [value]


def is_beyond_int64(value):
    return any(isinstance(leaf, int) and not -(2**63) <= leaf < 2**63 for leaf in leaves(value))


def is_rounded_twice(value):
    """NumPy rounds large ints to float64 first, where there are floats among them."""
    return any(isinstance(leaf, int) and abs(leaf) > 2**53 for leaf in leaves(value))


@st.composite
def nested(draw):
    """Lists of a shape, of one or several kinds of numbers; now and then not of one shape."""
    kinds = draw(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=1, max_size=3))
    number = st.one_of([NUMBERS[kind] for kind in kinds])
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    slips = draw(st.sampled_from([0, 0, 0, 1]))

    def build(depth):
        nonlocal slips
        if slips and draw(st.integers(0, 3)) == 0:
            slips -= 1
            return draw(
                st.one_of(number, st.lists(number, max_size=3), st.lists(st.lists(number, max_size=2), max_size=2))
            )
        if depth == len(shape):
            return draw(number)
        entries = [build(depth + 1) for _ in range(shape[depth])]
        return tuple(entries) if draw(st.booleans()) else entries

    return build(0)


@settings(max_examples=tries(200))
@given(value=nested())
@example([])
@example([[], []])
@example([[[]], [[]]])
@example([2**63, -1])
@example([2**63, True])
@example([2**64, 1.0])
@example([True, 2.5, 1j])
@example([[1, 2], [3]])
@example([[], [1]])
@example([[], 1])
@example([1, [2]])
@example([[1], 2])
@example([range(3), (4, 5, 6)])
@example(range(0))
def test_lists_are_numpys_and_the_same_without_numpy(without_numpy, value):
    made, wanted = ours(value), numpys(value)
    assert made == without_numpy(value)
    if wanted[0] in ("float32", "complex64") and is_rounded_twice(value):
        wanted = wanted[:2]
    assert made[: len(wanted)] == wanted


@settings(max_examples=tries(100))
@given(value=nested(), name=st.sampled_from(["bool", "int8", "uint64", "float16", "bfloat16", "complex64", "int4"]))
def test_lists_with_a_dtype_need_no_numpy(without_numpy, value, name):
    assert ours(value, name) == without_numpy(value, name)


def test_what_is_no_number_is_a_type_error_without_numpy_too(without_numpy, subtests):
    for value in ["a", None, {}, {1}, ["a"], [[1], [None]], [b"1"], [{}], [1, 2**63], 2**64, -(2**63) - 1]:
        with subtests.test(value=value):
            assert numpys(value) == ["TypeError"]
            assert ours(value)[0] == "TypeError"
            assert ours(value) == without_numpy(value)


def test_ragged_lists_are_refused_where_they_differ(subtests):
    for value, where in [
        ([[1, 2], [3]], r"x\[1\] has length 1 where x\[0\] has length 2"),
        ([[[1], [2]], [[3], [4, 5]]], r"x\[1\]\[1\] has length 2 where x\[0\]\[0\] has length 1"),
        ([1, 2, [3]], r"x\[2\] is a list where x\[0\] is none"),
        ([[1], 2], r"x\[1\] is no list where x\[0\] is one"),
        ([[], [[]]], r"x\[1\] has length 1 where x\[0\] has length 0"),
    ]:
        for dtype in [None, "float64"]:
            with subtests.test(value=value, dtype=dtype):
                words = rf"^asarray: the nested lists differ in length or depth: {where}\.$"
                with pytest.raises(ValueError, match=words):
                    md.asarray(value, dtype=dtype)


def test_an_item_that_is_no_number_is_named_by_its_place():
    with pytest.raises(TypeError, match=r"^asarray: list \(x\[1\]\[0\] is of type str\) .*; give a number"):
        md.asarray([[np.float64(1), 2], ["3", "4"]])
    with pytest.raises(TypeError, match=r"^asarray: list \(x\[1\] is beyond int64\) .*dtype: 'uint64'"):
        md.asarray([1, 2**63])
    assert md.asarray([1, 2**63], dtype="uint64").tolist() == [1, 2**63]


def test_lists_nest_as_deep_as_an_array_has_axes():
    deep = 1.0
    for _ in range(64):
        deep = [deep]
    assert md.asarray(deep).ndim == 64
    with pytest.raises(ValueError, match="more than 64 deep"):
        md.asarray([deep])
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="more than 64 deep"):
        md.asarray(endless)


def test_lists_with_arrays_in_them_are_numpys_to_read(without_numpy):
    rows = [md.asarray([1.5, 2.5]), np.array([3, 4]), [5, 6]]
    for dtype in (None, "float64"):
        assert md.asarray(rows, dtype=dtype).tolist() == [[1.5, 2.5], [3.0, 4.0], [5.0, 6.0]]
    assert md.asarray([np.float32(1), np.float32(2)]).dtype == md.float32
    assert md.asarray([np.int8(1), np.int8(2)]).dtype == md.int8
    assert without_numpy([bytearray(2), [1, 2]])[0] == "ImportError"
    assert "install numpy" in without_numpy([bytearray(2), [1, 2]])[1]


def test_a_list_that_changes_while_it_is_read_is_read_as_it_was():
    class Shrinking:
        def __float__(self):
            values.clear()
            return 1.0

    values = [Shrinking(), 2.0, 3.0]
    assert md.asarray(values, dtype="float32").tolist() == [1.0, 2.0, 3.0]
    assert values == []
