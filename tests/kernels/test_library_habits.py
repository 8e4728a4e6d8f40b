"""Kernels as attributes of their library, templates that the source does not instantiate, outputs that a call makes."""

import inspect
import random
import re

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

# ---- attributes ----

NAMED = HEAD + "\n".join(
    f"kernel void {name}(device int *x) {{ *x = {value}; }}" for value, name in enumerate(["plain", "name", "device", "kernel"])
).replace("void device(", "void device_(")  # fmt: skip


def test_a_kernel_is_an_attribute_unless_the_library_has_one_of_the_name():
    lib = md.Library(NAMED.replace("void kernel(", "void kernel_("), name="n.metal")
    assert lib.plain is lib["plain"] is lib.kernel("plain")
    assert lib.name == "n.metal" and lib["name"].name == "name"
    assert callable(lib.kernel) and isinstance(lib.device, md.Device)
    listed = dir(lib)
    assert {"plain", "name", "device_", "kernel_", "kernels"} <= set(listed) and len(listed) == len(set(listed))


def test_what_is_no_kernel_is_an_attribute_error_that_names_the_kernels():
    lib = md.Library(NAMED.replace("void kernel(", "void kernel_("))
    with pytest.raises(
        AttributeError, match=r"no attribute 'sum'.*its kernels are \('plain', 'name', 'device_', 'kernel_'\)"
    ):
        lib.sum  # noqa: B018
    assert not hasattr(lib, "sum") and getattr(lib, "__array__", None) is None
    with pytest.raises(AttributeError):
        lib.plain = 3


# ---- templates ----

#: Kinds of parameters, what they can be given, and what an expression with them is.
KINDS = {
    "typename": (["float", "half", "int", "metal::vec<float, 2>"], "sizeof({})"),
    "int": ([0, 1, 7, -3], "{} + 10"),
    "bool": ([True, False], "({} ? 2 : 1)"),
}
SIZES = {"float": 4, "half": 2, "int": 4, "metal::vec<float, 2>": 8}


def value_of(kind, value):
    return SIZES[value] if kind == "typename" else value + 10 if kind == "int" else 2 if value else 1


def text_of(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def make_template(choose, number):
    """Its text, its name, its parameters as (kind, name, default or None)."""
    kinds = [choose.choice(list(KINDS)) for _ in range(choose.randint(1, 4))]
    first_default = choose.randint(0, len(kinds))
    parameters = [
        (kind, f"P{n}", choose.choice(KINDS[kind][0]) if n >= first_default else None) for n, kind in enumerate(kinds)
    ]
    declared = [
        f"{kind} {name}" + ("" if default is None else f" = {text_of(default)}") for kind, name, default in parameters
    ]
    mark = choose.choice(["kernel void", "[[kernel]] void", "[[max_total_threads_per_threadgroup(32)]] kernel void"])
    between, comment = choose.choice([" ", "\n"]), choose.choice(["", "/* template <int Q> kernel void k(); */ "])
    body = " ".join(f"x[{n}] = {KINDS[kind][1].format(name)};" for n, (kind, name, _) in enumerate(parameters))
    return (
        f"{comment}template{between}<{', '.join(declared)}>{between}{mark} k{number}(device int *x) {{ {body} }}",
        f"k{number}",
        parameters,
    )


def check_instance(choose, lib, name, parameters):
    needed = [one for one in parameters if one[2] is None]
    count = choose.randint(max(len(needed), 1), len(parameters))
    given = {one: choose.choice(KINDS[kind][0]) for kind, one, _ in parameters[:count]}
    for _, one, default in parameters[:count]:
        if default is not None and len(given) > 1 and choose.random() < 0.3:
            del given[one]  # the default of one before others
    names = list(given)
    choose.shuffle(names)
    kernel = lib.kernel(name, **{one: given[one] for one in names})
    x = md.zeros(4, dtype="int32")
    kernel(x, n=1)
    wanted = [value_of(kind, given.get(one, default)) for kind, one, default in parameters]
    assert np.asarray(x).tolist()[: len(wanted)] == wanted, (name, parameters, given)
    assert lib.kernel(name, **given) is kernel


@pytest.mark.parametrize("count", [6, pytest.param(60, marks=pytest.mark.long)])
def test_random_templates_have_the_values_that_they_are_given(count):
    choose = random.Random(count)
    templates = [make_template(choose, number) for number in range(count)]
    lib = md.Library(HEAD + "\n".join(text for text, _, _ in templates))
    assert lib.kernels == ()
    for _, name, parameters in templates:
        check_instance(choose, lib, name, parameters)


SCALE = (
    HEAD
    + """
template <typename T, int N>
kernel void scale(device T *x, constant T &by, uint i [[thread_position_in_grid]]) { x[i] *= by * T(N); }
template <typename T> T plain(T x) { return x; }
namespace inner { template <typename T> kernel void set(device T *x) { *x = T(5); } }
"""
)


def test_what_the_source_instantiates_is_not_compiled_again():
    line = 'template [[host_name("mine")]] [[kernel]] decltype(scale<float,  2>) scale<float,  2>;'
    lib = md.Library(SCALE + line)
    assert lib.kernel("scale", T="float", N=2) is lib.mine
    other = lib.kernel("scale", T="float", N=20)
    assert other.name == "scale_float_20" and other.arguments[0].dtype == md.float32
    assert lib.kernels == ("mine",)


def test_templates_in_a_namespace_are_named_with_it_and_names_are_not_taken_twice():
    lib = md.Library(SCALE + "kernel void inner_set_float(device int *x) { *x = 1; }")
    x = md.zeros(1)
    lib.kernel("inner::set", T="float")(x, n=1)
    assert x.tolist() == [5]
    assert lib.kernel("inner::set", T="float").name == "inner_set_float_"


@pytest.mark.parametrize(
    ("name", "given", "error", "words"),
    [
        (
            "other",
            {"T": "float"},
            KeyError,
            "'other' is not a template of a kernel in the source; there are 'scale', 'set'",
        ),
        ("plain", {"T": "float"}, KeyError, "'plain' is not a template"),
        ("scale", {"N": 1}, TypeError, "needs 'T' too"),
        ("scale", {"T": "float", "N": 1, "Q": 2}, TypeError, "has no parameter 'Q'"),
        ("scale", {"T": "float", "N": 1.5}, TypeError, "1.5 is no argument"),
        ("scale", {"T": "float; int y", "N": 1}, TypeError, "is no argument"),
        ("scale", {"T": "", "N": 1}, TypeError, "is no argument"),
        (3, {"T": "float"}, TypeError, "name must be a str"),
    ],
)
def test_wrong_arguments_of_a_template_are_refused(name, given, error, words):
    with pytest.raises(error, match=re.escape(words)):
        md.Library(SCALE).kernel(name, **given)


def test_an_error_in_an_instance_names_the_line_and_the_instance():
    with pytest.raises(md.CompileError) as told:
        md.Library(SCALE, name="scale.metal").kernel("scale", T="unknown", N=1)
    assert "unknown" in told.value.msg and told.value.filename == "scale<unknown, 1>"
    with pytest.raises(TypeError, match="at most its constants"):
        md.Library(SCALE).kernel()
    assert "template" in inspect.signature(md.Library.kernel).parameters


# ---- outputs ----

MADE = (
    HEAD
    + """
kernel void split(device const float *x, device float *out, device int *sign, constant float &by,
                  uint i [[thread_position_in_grid]]) { out[i] = abs(x[i]) * by; sign[i] = x[i] < 0 ? -1 : 1; }
kernel void plus(device const float *x, device float *out, uint i [[thread_position_in_grid]]) { out[i] = x[i] + 1; }
"""
)


@pytest.fixture(scope="module")
def made():
    return md.Library(MADE)


def test_outputs_are_made_for_parameters_that_are_not_given(made):
    x = md.asarray([1.0, -2.0, 3.0], dtype="float32")
    y = made.plus(x, n=3, out=((3,), "float32"))
    assert isinstance(y, md.Array) and y.tolist() == [2, -1, 4]
    assert made.plus(x, n=3, out=(3, md.float32)).shape == (3,)
    assert made.plus(x, n=3, out=[(1, 3), "float32"]).shape == (1, 3)
    for several in ([(3, "float32"), (3, "int32")], ((3, "float32"), (3, "int32"))):
        size, sign = made.split(x, by=2.0, n=3, out=several)
        assert (size.tolist(), sign.tolist()) == ([2, 4, 6], [1, -1, 1])
    (sign,) = made.split(x, y, by=1.0, n=3, out=[(3, "int32")])
    assert (y.tolist(), sign.tolist()) == ([1, 2, 3], [1, -1, 1])
    assert made.plus(x, n=0, out=(0, "float32")).shape == (0,)
    assert made.plus.time(x, n=3, out=(3, "float32")) > 0


def test_a_parameter_called_out_is_given_by_name_as_well(made):
    x, y = md.zeros(3), md.zeros(3)
    assert made.plus(x, out=y, n=3) is None and y.tolist() == [1] * 3
    assert made.plus(x, y, n=3, out=None) is None
    only = md.kernel("kernel void f(device float *x) { *x = 1; }")
    with pytest.raises(TypeError, match="out is \\(shape, dtype\\), or several of them, not Array"):
        only(n=1, out=y)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"out": (3,)}, TypeError, "out is (shape, dtype), or several of them, not 3"),
        ({"out": ("a", "float32")}, TypeError, "the shape in out"),
        ({"out": (-1, "float32")}, ValueError, "-1"),
        ({"out": (3, "float31")}, TypeError, "float31"),
        ({"out": (3, "float16")}, TypeError, "argument 'out' points at float"),
        ({"out": ()}, TypeError, "missing 'out'"),
        ({}, TypeError, "plus: missing 'out' of (x, out)."),
        ({"out": [(3, "float32")] * 2}, TypeError, "more Arrays than there are parameters"),
    ],
)
def test_wrong_outputs_are_refused(made, live_buffers, given, error, words):
    x = md.zeros(3)
    before = live_buffers()
    with pytest.raises(error, match=re.escape(words)):
        made.plus(x, n=3, **given)
    assert live_buffers() <= before + 1  # the pool may keep one
