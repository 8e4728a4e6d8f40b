"""What an Array does not do: operators, comparisons and methods that compute.  Each says what to write instead."""

import itertools
import math
import operator
import pydoc
import re
import subprocess
import sys
import warnings
from unittest import mock

import numpy as np
import pytest
from children import output_of
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md
from metal_dlpack import absent_names

ARITHMETIC = [
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor",
]  # fmt: skip
BINARY = {name: getattr(operator, name) for name in ARITHMETIC} | {"divmod": divmod, "pow()": pow}
INPLACE = {f"i{name}": getattr(operator, f"i{name.rstrip('_')}") for name in ARITHMETIC}
COMPARISONS = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
UNARY = {name: getattr(operator, name) for name in ("neg", "pos", "abs", "invert")}
#: Operands that know no Arrays; texts have a % of their own.
STRANGERS = [None, 1, 2.5, 1j, True, (1, 2), {}, object(), md.float32, md.zeros(3), md.full((), 1, "int32")]
WAY_OUT = r"np\.asarray\(a\).*a\.to\(torch\.Tensor\)"


def make():
    return md.asarray([3.0, 1.0, 2.0])


def said(call, *operands):
    """The TypeError's text; that nothing was raised is no such text."""
    try:
        return f"gave {call(*operands)!r}"
    except TypeError as error:
        return str(error)


def unlike(pattern, calls):
    """Return the calls that do not say so: (name, operands, what they say)."""
    said_by = [(name, operands, said(call, *operands)) for name, call, operands in calls]
    return [each for each in said_by if not re.search(pattern, each[2])]


def both_sides(calls, others):
    for (name, call), other in itertools.product(calls.items(), others):
        yield name, call, (make(), other)
        yield name, call, (other, make())


def test_arithmetic_says_where_to_compute():
    assert unlike(f"Array.*: an Array does no arithmetic; .*{WAY_OUT}", both_sides(BINARY, STRANGERS)) == []
    unary = [(name, call, (make(),)) for name, call in UNARY.items()]
    assert unlike(f"Array: an Array does no arithmetic; .*{WAY_OUT}", unary) == []


def test_arithmetic_in_place_never_binds_another_array_to_the_name():
    others = [1, make(), np.ones(3, "float32")]
    calls = [(name, call, (make(), other)) for name, call in INPLACE.items() for other in others]
    assert unlike(r"Array \S+= .*x = np\.asarray\(a\) shares its memory", calls) == []


def test_comparisons_say_where_to_compare_and_never_answer_by_identity():
    a = make()
    calls = [*both_sides(COMPARISONS, STRANGERS)]
    calls += [(name, call, each) for name, call in COMPARISONS.items() for each in ((a, a), (a[0], 3))]
    assert unlike(f"Array.*: an Array compares no items; .*{WAY_OUT}.*`is`", calls) == []


def test_numpys_arrays_compute_with_arrays_on_both_sides():
    items, other = np.array([3, 1, 2], "int32"), np.array([1, 2, 2], "int32")
    a = md.asarray(items)
    for (name, call), operand in itertools.product((BINARY | COMPARISONS).items(), (other, other[0])):
        if name == "matmul" and operand.ndim == 0:
            continue
        for ours, theirs in (((a, operand), (items, operand)), ((operand, a), (operand, items))):
            assert np.array_equal(call(*ours), call(*theirs)), name


def test_torchs_tensors_leave_it_to_us_on_both_sides(torch):
    t, a = torch.ones(3), make()
    for left, right in ((t, a), (a, t)):
        with pytest.raises(TypeError, match="an Array does no arithmetic"):
            left + right
        with pytest.raises(TypeError, match="an Array compares no items"):
            left == right  # noqa: B015


def test_an_operand_that_knows_arrays_is_asked():
    class Knows:
        def __radd__(self, other):
            return "sum"

        def __rpow__(self, other):
            return "power"

        def __eq__(self, other):
            return "equal"

        def __gt__(self, other):
            raise ZeroDivisionError

        __hash__ = None

    a = make()
    assert (a + Knows(), a ** Knows(), a == Knows(), Knows() == a) == ("sum", "power", "equal", "equal")
    with pytest.raises(ZeroDivisionError):
        a < Knows()  # noqa: B015
    assert a == mock.ANY


def test_lists_and_bytearrays_are_extended():
    a = md.asarray([1, 2], dtype="uint8")
    rows, memory = [], bytearray(b"x")
    rows += a
    memory += a
    assert [row.item() for row in rows] == [1, 2]
    assert memory == b"x\1\2"
    assert "%s %d" % ("n", a[0]) == "n 1"  # noqa: UP031


@pytest.mark.long
def test_mypy_refuses_what_raises(tmp_path):
    """An operator whose operand is a Never takes nothing; `==` must be there for every object."""
    program = "import metal_dlpack as md\na = md.zeros(3)\n" + "".join(
        f"{line}\n" for line in ("a + 1", "1 * a", "a < 2", "3 in a", "a.sum()", "a == 1")
    )
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-incremental", file], capture_output=True, text=True)
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [3, 4, 5, 6, 7], done.stdout


def test_hash_and_containers_go_by_identity():
    a, b = make(), make()
    assert len({a, b, a}) == 2
    assert {a: 1, b: 2}[b] == 2
    assert a in [a, b]
    with pytest.raises(TypeError, match="compares no items"):
        a in [b]  # noqa: B015

    assert (a, 1) == (a, 1)
    call = mock.Mock()
    call(a, axis=0)
    call.assert_called_once_with(a, axis=0)


# ---- methods that Array has not ----


#: What stands in the MRO beside object.
ABSENT = sorted(name for name in vars(md.Array.__mro__[1]) if not name.startswith("__"))


def test_the_best_known_methods_are_among_those_that_say_what_to_write():
    known = {"sum", "mean", "max", "numpy", "cpu", "data_ptr", "unbind", "tofile", "clone", "bool"}
    assert known <= {*ABSENT}


def test_every_name_that_has_a_text_is_asked_for():
    names = {name for name in absent_names._INSTEAD if "." not in name}
    names |= {*f"{absent_names._METHODS} {absent_names._FUNCTIONS} {absent_names._OF_NUMPY}".split()}
    assert names <= {*ABSENT}


def test_every_name_of_numpys_arrays_is_here_or_says_what_to_write():
    assert {name for name in dir(np.ndarray) if name[0] != "_"} <= {*dir(md.Array), *ABSENT}
    assert not {*ABSENT} & {*dir(md.Array)}


def test_a_method_of_other_arrays_is_absent_and_says_what_to_write():
    a = md.zeros((2, 2))
    for name in ABSENT:
        for touch in (lambda a, name: setattr(a, name, 1), delattr, getattr):
            with pytest.raises(AttributeError, match=f"^Array has no attribute '{name}'[;:] .*a") as caught:
                touch(a, name)
        assert (caught.value.name, caught.value.obj is a, hasattr(a, name)) == (name, True, False)
        ours = re.findall(r"\ba\.(\w+)", str(caught.value))
        theirs = re.findall(r"np\.asarray\(a\)\.(\w+)", str(caught.value))
        assert all(hasattr(a, instead) for instead in ours)
        assert all(hasattr(np.ndarray, instead) for instead in theirs)


def test_a_method_of_other_arrays_is_absent_while_python_ends_too():
    """Then nothing is imported any more, the texts neither."""
    code = """
        import os
        import metal_dlpack as md

        class Late:
            def __init__(self):
                self.array, self.asks, self.writes = md.zeros(1), hasattr, os.write

            def __del__(self):
                self.writes(1, b"it has: %d" % self.asks(self.array, "numpy"))

        kept = Late()
    """
    assert output_of(code) == "it has: 0"


def test_nothing_lists_the_names_of_methods_that_array_has_not():
    a = md.zeros((2, 2))
    assert all(hasattr(a, name) for name in dir(a))
    assert {"shape", "copy", "__dlpack__", "__add__"} <= set(dir(a))
    for listed in (dir(a), dir(md.Array), vars(md.Array)):
        assert not set(ABSENT) & set(listed)
    assert "does no arithmetic; call" not in pydoc.plain(pydoc.render_doc(md.Array))
    assert md.Array.__bases__ == (object,)


def test_what_computes_is_a_method_of_numpys_arrays_and_of_torchs_tensors(torch):
    for name in ABSENT:
        with pytest.raises(AttributeError) as caught:
            getattr(make(), name)
        for owner, named in re.findall(r"(np\.asarray\(a\)|np|a\.to\(torch\.Tensor\))\.(\w+)", str(caught.value)):
            where = {"np": np, "np.asarray(a)": np.ndarray}.get(owner, torch.Tensor)
            assert hasattr(where, named), caught.value
        if "does no arithmetic" in str(caught.value):
            assert hasattr(torch.Tensor, name)


# ---- Python's numbers ----

NUMPY_TYPES = ["?", "b", "h", "i", "l", "B", "H", "I", "L", "e", "f", "d", "F", "D"]
CONVERSIONS = [
    bool,
    int,
    float,
    complex,
    operator.index,
    round,
    math.floor,
    math.ceil,
    math.trunc,
    hex,
    "{:.3g}".format,
    operator.methodcaller("item"),
]


def outcome(convert, thing):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = convert(thing)
    except Exception as error:
        return type(error)
    return type(result), repr(result)


@given(st.data())
def test_an_array_of_one_item_converts_as_numpys_do(data):
    letter = data.draw(st.sampled_from(NUMPY_TYPES))
    dtype = np.dtype(letter)
    raw = data.draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize))
    items = np.frombuffer(raw if letter != "?" else bytes([raw[0] & 1]), dtype).reshape(()).copy()
    convert = data.draw(st.sampled_from(CONVERSIONS))
    assert outcome(convert, md.asarray(items)) == outcome(convert, items)
    # of one item with axes too, as torch's and as NumPy's once were
    is_with_axes = convert in (int, float, complex, math.floor, math.ceil)
    wanted = outcome(convert, items if is_with_axes else items.reshape(1, 1))
    assert outcome(convert, md.asarray(items.reshape(1, 1))) == wanted


def test_arrays_of_none_or_several_items_are_refused_as_numpys_are():
    for letter, shape in itertools.product(NUMPY_TYPES, [(0,), (2,), (2, 0), (1, 3)]):
        items = np.zeros(shape, letter)
        for convert in CONVERSIONS:
            wanted = outcome(convert, items)
            assert outcome(convert, md.asarray(items)) == wanted, (convert, letter, shape)
            assert wanted in (TypeError, ValueError)


@pytest.mark.parametrize(
    ("convert", "way_out"),
    [(bool, r"np\.asarray\(a\)\.any\(\)"), (int, r"a\.tolist\(\)"), (float, r"a\[i\]"), ("{:d}".format, r"a\[i\]")],
)
def test_several_items_have_a_way_out(convert, way_out):
    with pytest.raises((TypeError, ValueError), match=way_out):
        convert(md.zeros(3))


def test_an_array_with_axes_is_no_index_so_its_bytes_are_its_memory():
    a = md.full((1,), 3, "int32")
    assert bytes(a) == bytearray(a) == b"\3\0\0\0"
    with pytest.raises(TypeError, match="no axes can be used as an index"):
        [0, 1, 2, 3][a]
    assert [0, 1, 2, 3][a[0]] == 3


def test_items_of_several_lanes_are_no_numbers():
    a = md.zeros(1, "float32x2")
    for convert in (bool, int, float, complex):
        with pytest.raises(TypeError, match="2 lanes"):
            convert(a)


def test_formats_are_the_items():
    a = md.asarray([1.23456, 2.0])
    assert f"{a[0]:.3f}" == "1.235"
    assert f"{a}" == str(a)
