"""A library of kernels: its names, function constants, options, and who makes what once."""

import gc
import signal
import weakref

import pytest
from own_threads import in_threads

import metal_dlpack as md

pytestmark = pytest.mark.needs_kernels

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
TWO = (
    METAL
    + """
kernel void one(device float *x) { x[0] = 1; }
template <typename T> kernel void any(device T *x) { x[0] = T(2); }
template [[host_name("any_float")]] kernel void any<float>(device float *);
template [[host_name("any_int")]] kernel void any<int>(device int *);
"""
)
CONSTANTS = (
    METAL
    + """
constant bool FLAG [[function_constant(0)]];
constant uint2 PAIR [[function_constant(3)]];
constant float OPTION [[function_constant(7)]];
constant float FACTOR = is_function_constant_defined(OPTION) ? OPTION : 10.0f;
kernel void flags(device float *x) { x[0] = FLAG ? 1 : 0; x[1] = PAIR.x; x[2] = PAIR.y; x[3] = FACTOR; }
kernel void plain(device float *x) { x[0] = 5; }
"""
)


@pytest.fixture(scope="module")
def two():
    return md.Library(TWO)


@pytest.fixture(scope="module")
def constants():
    return md.Library(CONSTANTS)


def run(kernel, dtype="float32", count=4):
    x = md.zeros(count, dtype)
    kernel(x, n=1)
    return x.tolist()


def test_the_names_are_those_of_metal(two):
    assert sorted(two.kernels) == ["any_float", "any_int", "one"]
    assert run(two["one"])[0] == 1
    assert run(two["any_float"])[0] == 2
    assert run(two["any_int"], "int32")[0] == 2
    assert two["any_int"].name == "any_int"
    assert repr(two) == "<metal_dlpack.Library 'program_source' of 3 kernels on metal:0>"
    assert (two.name, two.device) == ("program_source", md.default_device())


def test_what_is_no_kernel_is_not_among_them():
    """Metal lists every function that another can find by its name."""
    others = "vertex float4 v() { return 0; }\nfragment float4 p() { return 0; }\n[[visible]] float g() { return 3; }\n"
    library = md.Library(f"{METAL}{others}kernel void f(device float *x) {{ x[0] = g(); }}")
    assert library.kernels == ("f",)
    assert run(library["f"])[0] == 3
    with pytest.raises(KeyError, match=r"'v' is not a kernel of the library, which has .'f',"):
        library["v"]
    assert md.Library(METAL + others).kernels == ()


def test_another_name_is_a_key_error(two):
    for name in ("two", "any", 1, ("one",), []):
        with pytest.raises(KeyError, match="is not a kernel of the library, which has"):
            two[name]


TEMPLATE = "template <typename T> kernel void f(device T *x) { x[0] = 1; }"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: md.kernel(TEMPLATE), "no kernel; .* A template becomes a kernel"),
        (lambda: md.kernel(TEMPLATE, "f"), "A template becomes a kernel"),
        (lambda: md.kernel(TWO, "one<float>"), "A template becomes a kernel"),
        (lambda: md.kernel(TWO, name="two.metal"), r"What messages call the source is Library\(source, name="),
    ],
)
def test_what_is_no_kernels_name_is_told_what_it_was_meant_for(make, words):
    with pytest.raises((KeyError, TypeError, ValueError), match=words):
        make()


def test_a_kernel_is_made_once(two, constants):
    assert two["one"] is two["one"] is two.kernel("one") is two.kernel("one", {})
    first = constants.kernel("flags", {"FLAG": True, "PAIR": (1, 2)})
    assert first is constants.kernel("flags", constants={0: True, 3: [1, 2]})
    assert first is not constants.kernel("flags", {"FLAG": False, "PAIR": (1, 2)})
    assert first is not constants.kernel("flags", {"FLAG": True, "PAIR": (1, 2), "OPTION": 0})


def test_two_threads_get_the_same_kernel():
    library = md.Library(TWO)
    assert len(set(map(id, in_threads(4, lambda _: library["one"])))) == 1


def test_constants_are_values_of_the_kernel(constants):
    assert run(constants.kernel("flags", {"FLAG": True, "PAIR": (3, 4)})) == [1, 3, 4, 10]
    assert run(constants.kernel("flags", {"FLAG": False, "PAIR": (5, 6), "OPTION": 0.5})) == [0, 5, 6, 0.5]
    assert run(constants["plain"]) == [5, 0, 0, 0]


@pytest.mark.parametrize("value", ["int b = 2 * n + 1", "int a = 1, b = twice(n)", "constexpr int b = n", "int b{n}"])
@pytest.mark.some(2)
def test_a_template_may_name_what_is_made_of_a_constant_that_others_are_not_given(value):
    """As MLX's conv.metal has it: names that depend on no parameter of a template are looked up where it stands."""
    source = f"constant int n [[function_constant(0)]]; int twice(int x) {{ return 2 * x; }} static constant {value};\n"
    source += "constant int c = b + 1; template <typename T> kernel void f(device T *x) { x[b] = c; }\n"
    source += 'template [[host_name("f_float")]] kernel void f<float>(device float *);\n'
    library = md.Library(METAL + source + "kernel void g(device float *x) { x[0] = 7; }")
    assert run(library["g"])[0] == 7
    at = {"int b = 2 * n + 1": 3, "int a = 1, b = twice(n)": 2}.get(value, 1)
    assert run(library.kernel("f_float", constants={"n": 1}))[at] == at + 1


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        (
            None,
            TypeError,
            r"'flags' cannot be made with the constants {}; it needs values for 'FLAG' \(bool\), 'PAIR' \(uint2\)\.",
        ),
        ({"FLAG": True}, TypeError, "it needs values for"),
        (
            {"FLAG": True, "PAIR": (1, 2), "FLOG": 1},
            TypeError,
            "'flags' does not have all of the constants {.*'FLOG'.*}; it has 'FLAG'",
        ),
        ({"FLAG": 1, "PAIR": (1, 2)}, TypeError, "constant 'FLAG' of 'flags': a bool is True or False"),
        ({"FLAG": True, "PAIR": (1, -2)}, OverflowError, "constant 'PAIR' of 'flags'"),
        ({"FLAG": True, "PAIR": 1}, TypeError, "a uint2 is a tuple of 2 numbers"),
        ([("FLAG", True)], TypeError, "constants must be a dict of values by name, not list"),
    ],
)
def test_other_constants_are_refused(constants, given, error, sentence):
    with pytest.raises(error, match=sentence):
        constants.kernel("flags", given)


def test_kernel_takes_the_only_one_or_the_one_that_is_named():
    assert md.kernel(METAL + "kernel void f(device float *x) { x[0] = 3; }").name == "f"
    assert md.kernel(TWO, "one").name == "one"
    assert run(md.kernel(CONSTANTS, name="flags", constants={"FLAG": True, "PAIR": (1, 2)})) == [1, 1, 2, 10]
    with pytest.raises(ValueError, match=r"the source has 3 kernels, .* choose one by name="):
        md.kernel(TWO)
    with pytest.raises(ValueError, match=r"the source has no kernel; declare one as `kernel void"):
        md.kernel(METAL)
    with pytest.raises(KeyError, match=r"'three'.* which has .*\)\.\"$"):
        md.kernel(TWO, "three")


def test_a_kernel_outlives_its_library():
    library = md.Library(TWO)
    kernel = library["one"]
    del library
    gc.collect()
    assert run(kernel)[0] == 1


@pytest.mark.needs_softmetal
def test_ctrl_c_while_it_compiles_is_raised(monkeypatch):
    class Child:
        def __del__(self):
            """Python code, in which a signal would be handled, and its exception be lost."""

    def interrupted(*_):
        _child = Child()
        raise KeyboardInterrupt

    monkeypatch.setattr("softmetal.msl.for_softmetal.functions", interrupted)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
    with pytest.raises(KeyboardInterrupt):
        md.Library("kernel void f() {}")
    signal.signal(signal.SIGINT, previous)


# ---- what is asked of Metal's compiler ----

VERSION = METAL + "kernel void f(device float *x) { x[0] = __METAL_VERSION__; x[1] = BFLOAT; }"
HAS_BFLOAT = "#ifdef __HAVE_BFLOAT__\n#define BFLOAT 1\n#else\n#define BFLOAT 0\n#endif\n"
SETTERS = ("setMathMode:", "setMathFloatingPointFunctions:", "setFastMathEnabled:", "setLanguageVersion:")


@pytest.fixture
def told():
    """What MTLCompileOptions is told, by setter, from now on."""
    from objc_messages import replaced_methods

    with replaced_methods("MTLCompileOptions", SETTERS) as calls:
        yield calls


@pytest.mark.needs_softmetal
@pytest.mark.parametrize(("math", "mode", "precise"), [(None, 0, 1), ("safe", 0, 1), ("relaxed", 1, 0), ("fast", 2, 0)])
def test_the_math_is_told_with_its_functions(told, metal_settings, math, mode, precise):
    """Unless they are named the functions stay fast, whatever the mode is."""
    options = {} if math is None else {"math": math}
    md.Library(TWO, **options)
    assert told == {"setMathMode:": mode, "setMathFloatingPointFunctions:": precise, "setLanguageVersion:": 0x30002}
    told.clear()
    metal_settings(macos=14)  # which has neither: one setter does both
    md.Library(TWO, **options)
    assert told == {"setFastMathEnabled:": mode == 2, "setLanguageVersion:": 0x30001}


@pytest.mark.needs_softmetal
@pytest.mark.parametrize(("macos", "version"), [(14, 310), (15, 320), (26, 400), (27, 410)])
@pytest.mark.some(1)
def test_the_language_is_the_newest_that_the_system_has(metal_settings, macos, version):
    """Not that of the SDK which Python was built with: Metal's own choice."""
    metal_settings(macos=macos)
    assert run(md.kernel(HAS_BFLOAT + VERSION))[:2] == [version, 1]


@pytest.mark.parametrize(("language", "version"), [("3.1", 310), ("3.0", 300), ("2.4", 240), (None, None)])
@pytest.mark.some(2)
def test_an_older_language_can_be_asked_for(language, version):
    found, has_bfloat, *_ = run(md.kernel(HAS_BFLOAT + VERSION, language=language))
    assert found == version or (version is None and found >= 310)
    assert has_bfloat == (found >= 310)
    assert run(md.Library(HAS_BFLOAT + VERSION, language=language)["f"])[0] == found


@pytest.mark.needs_softmetal
def test_a_language_that_the_system_has_not_is_refused(metal_settings):
    metal_settings(macos=14)
    with pytest.raises(
        ValueError, match=r"Library: language '3\.2' is newer than this system's Metal has \(3\.1\); leave"
    ):
        md.Library(VERSION, language="3.2")
    metal_settings(macos=27)
    assert run(md.kernel(HAS_BFLOAT + VERSION, language="4.1"))[0] == 410


ASKS = """
bool isnan(int x) { return false; }  // isnan(x)
kernel void f(device float *x) {
    if (metal::isnan(x[0]) || !isinf(x[1])) {
        x[0] = -INFINITY;
    }
    x[1] = numeric_limits<float>::infinity();
    x[2] = fmax(x[1], 1.0f);
    x[3] = select(NAN, 1.0f, isfinite(x[2]));
}
"""


def test_fast_math_is_told_where_it_meets_nan_and_infinity():
    with pytest.warns(RuntimeWarning) as warned:
        md.Library(METAL + ASKS, math="fast", name="mine.metal")
    (warning,) = warned
    places = (
        "isnan in mine.metal:6, isinf in mine.metal:6, INFINITY in mine.metal:7, infinity in mine.metal:9 and 2 more"
    )
    assert f"the source asks for them ({places}): " in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("math", ["safe", "relaxed"])
def test_other_math_warns_of_nothing(math, recwarn):
    md.Library(METAL + ASKS, math=math)
    md.Library(TWO, math="fast")
    assert not recwarn


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"source": 1}, TypeError, "Library: source must be a str, not int"),
        ({"source": b"kernel"}, TypeError, "Library: source"),
        ({"source": "a\0b"}, ValueError, "null"),
        ({"math": "quick"}, ValueError, "math must be 'safe', 'relaxed' or 'fast', not 'quick'"),
        ({"math": 1}, TypeError, "math"),
        ({"language": 3.1}, TypeError, "language"),
        ({"language": "3.9"}, ValueError, "a version of Metal's from '2.0' to '4.1', such as '3.1', not '3.9'"),
        ({"language": "3.10"}, ValueError, "not '3.10'"),
        ({"device": "metal:9"}, ValueError, "there is no device 'metal:9'"),
        ({"name": 1}, TypeError, "name must be a str, not int"),
        ({"name": 'a"b'}, ValueError, "has quotes"),
        ({"name": "a\\b"}, ValueError, r"^Library: name 'a\\\\b' has quotes, backslashes"),
        ({"name": '"' + "x" * 5000}, ValueError, "; give one without, such as 'sum.metal'."),
        ({"name": ""}, ValueError, "name '' is no name that compilers show"),
        ({"name": "<stdin>"}, ValueError, "name '<stdin>' is no name that compilers show"),
        (
            {"include": 3},
            TypeError,
            "^Library: include must be a folder, a str or a path, or a sequence of folders, not 3.",
        ),
        ({"include": [3]}, TypeError, r"or a sequence of folders, not \[3\]."),
        ({"defines": {"1x": 1}}, ValueError, "'1x' in defines is not the name of a macro; give letters"),
        (
            {"defines": {"X": [1]}},
            TypeError,
            r"defines\['X'\] must be a str of one line, a number, True, False or None",
        ),
        ({"defines": {"X": "a\nb"}}, TypeError, r"defines\['X'\]"),
        ({"defines": {"X": float("nan")}}, ValueError, "has no number in Metal"),
        ({"defines": [1]}, TypeError, "defines must be a dict"),
    ],
)
def test_other_arguments_are_refused(arguments, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        md.Library(**{"source": TWO, **arguments})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["<string>", "softmetal_kernels.metal", "a b.metal"])
@pytest.mark.some(1)
def test_a_source_has_any_name(name):
    assert md.Library("kernel void f() {}", name=name).kernels == ("f",)
    with pytest.raises(md.CompileError) as caught:
        md.Library("kernel void f() { oops; }", name=name)
    assert (caught.value.filename, caught.value.lineno) == (name, 1)


def test_the_defines_are_macros_of_the_source():
    source = METAL + "kernel void f(device float *x) { x[0] = A; x[1] = B; x[2] = C; x[3] = D(2) NOTHING; }"
    defines = {"A": -3, "B": 0.5, "C": True, "D(n)": "((n) * 2)", "NOTHING": None}
    assert run(md.kernel(source, defines=defines)) == [-3, 0.5, 1, 4]


def test_what_is_dropped_is_gone(live_buffers):
    library = md.Library(TWO)
    kernel = library["one"]
    with pytest.raises(TypeError):
        weakref.ref(library)
    del library, kernel
    gc.collect()


def test_the_collector_sees_the_kernels_that_a_library_keeps():
    library = md.Library("kernel void f(device int *x) { *x = 1; }")
    kept = [thing for thing in gc.get_referents(library) if isinstance(thing, dict)]
    assert library["f"] in kept[0].values()
