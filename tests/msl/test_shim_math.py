"""The shim's functions of floats and halves, beside NumPy's in twice the precision."""

import numpy as np
import pytest
from kernel_images import quickly

pytestmark = pytest.mark.needs_numpy

#: Kernels are allowed four; one function alone may take two.
ULP = 2
EDGES = np.array(
    [0, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 10, 88.5, 89, 1e-20, 1e20, 65504, 65520, 2**23 + 1, 3.4e38, 1e-45, 1e-38, np.inf],
    np.float32,
)


def numbers(count=4000):
    """Edges with both signs, NaN, bits at random, and what is near one."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    bits[np.isnan(bits)] = np.nan  # of one that signals an arm64 makes what it likes, and so does libm
    near = random.normal(size=count).astype(np.float32)
    return np.concatenate([EDGES, -EDGES, [np.float32(np.nan)], bits, near]).astype(np.float32)


def assert_within(got, exact, ulp, name, arguments):
    """exact: in twice the precision; a result may be as far off as `ulp` of its own last places."""
    kind = got.dtype.type
    with np.errstate(all="ignore"):
        rounded = exact.astype(kind)
        distance = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
        right = (np.isnan(got) & np.isnan(exact)) | (got == rounded) | (distance <= ulp)
    wrong = np.flatnonzero(~right)
    shown = [(*(a[k] for a in arguments), got[k], exact[k]) for k in wrong[:3]]
    assert not wrong.size, f"{name}: {wrong.size} wrong, {shown}"


def round_half_away(x):
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def turn(x):
    return x - 2 * np.rint(x / 2)


def sine_pi(x):
    r = turn(x)
    return np.sin(np.pi * np.where(np.abs(r) > 0.5, np.copysign(1, r) - r, r))


def cosine_pi(x):
    return np.sin(np.pi * (0.5 - np.abs(turn(x))))


ONE = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": cosine_pi,
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "fabs": np.abs,
    "abs": np.abs,
    "floor": np.floor,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "rint": np.rint,
    "round": round_half_away,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": sine_pi,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tanpi": lambda x: sine_pi(x) / cosine_pi(x),
    "trunc": np.trunc,
    "saturate": lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)),
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
}
TWO = {
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "divide": np.divide,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "max": np.fmax,
    "min": np.fmin,
    "fmod": np.fmod,
    "pow": np.power,
    "powr": lambda x, y: np.where(x < 0, np.nan, np.power(x, y)),
    "step": lambda edge, x: np.where(x < edge, 0.0, 1.0),
}
SPACES = ["", "fast::", "precise::"]


@pytest.mark.parametrize("space", quickly("precise::", of=SPACES))
def test_functions_of_one_float(shim, space):
    x = numbers()
    got = shim.evaluate({name: f"{space}{name}(x)" for name in ONE}, "float", np.float32, x=("float", x))
    with np.errstate(all="ignore"):
        for name, exact in ONE.items():
            assert_within(got[name], exact(x.astype(np.float64)), ULP, name, [x])


@pytest.mark.parametrize("space", quickly("", of=SPACES))
def test_functions_of_two_floats(shim, space):
    x, y = numbers(), np.roll(numbers(), 17)
    edges = np.array(np.meshgrid(np.append(EDGES, np.float32(np.nan)), -EDGES)).reshape(2, -1)
    x, y = (np.concatenate([a, e, -e]) for a, e in zip((x, y), edges, strict=True))
    inputs = {"x": ("float", x), "y": ("float", y)}
    got = shim.evaluate({name: f"{space}{name}(x, y)" for name in TWO}, "float", np.float32, **inputs)
    with np.errstate(all="ignore"):
        for name, exact in TWO.items():
            assert_within(got[name], exact(x.astype(np.float64), y.astype(np.float64)), ULP, name, [x, y])


def test_functions_of_halves_give_the_nearest_half(shim):
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    got = shim.evaluate({name: f"{name}(x)" for name in ONE}, "half", np.float16, x=("half", x))
    with np.errstate(all="ignore"):
        for name, exact in ONE.items():
            assert_within(got[name], exact(x.astype(np.float64)), 1, name, [x])


def test_functions_of_three_floats(shim):
    x, y, z = numbers(), np.roll(numbers(), 17), np.roll(numbers(), 41)
    finite = [np.nan_to_num(a, nan=1.0, posinf=2.0, neginf=-2.0) for a in (x, y, z)]
    inputs = {name: ("float", a) for name, a in zip("xyz", finite, strict=True)}
    names = ["fma", "clamp", "max3", "min3", "median3", "fmax3", "fmin3", "fmedian3"]
    got = shim.evaluate({name: f"{name}(x, y, z)" for name in names}, "float", np.float32, **inputs)
    with np.errstate(all="ignore"):
        a, b, c = (values.astype(np.float64) for values in finite)
        rows = np.sort([a, b, c], axis=0)
        assert_within(got["fma"], a * b + c, 1, "fma", finite)
        np.testing.assert_array_equal(got["clamp"], np.minimum(np.maximum(a, b), c).astype(np.float32))
        for name, row in (("min3", 0), ("median3", 1), ("max3", 2)):
            np.testing.assert_array_equal(got[name], rows[row].astype(np.float32), name)
            np.testing.assert_array_equal(got[f"f{name}"], rows[row].astype(np.float32), name)


def test_mix_and_smoothstep(shim):
    random = np.random.default_rng(7)
    x, y, t = (random.uniform(-2, 2, 500).astype(np.float32) for _ in range(3))
    inputs = {"x": ("float", x), "y": ("float", y), "t": ("float", t)}
    expressions = {"mix": "mix(x, y, t)", "smoothstep": "smoothstep(-1.0f, 1.5f, t)"}
    got = shim.evaluate(expressions, "float", np.float32, **inputs)
    np.testing.assert_allclose(got["mix"], x + (y.astype(np.float64) - x) * t, rtol=1e-6, atol=1e-6)
    u = np.clip((t.astype(np.float64) + 1) / 2.5, 0, 1)
    np.testing.assert_allclose(got["smoothstep"], u * u * (3 - 2 * u), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("half", np.float16)])
def test_functions_with_a_second_result(shim, kind, dtype):
    with np.errstate(all="ignore"):
        x = numbers().astype(dtype)
    finite = x[np.isfinite(x)]
    mantissa, exponent = np.frexp(finite)
    part, whole = np.modf(finite)
    with np.errstate(all="ignore"):
        exact = {
            "[&] { int e; return frexp(x, e); }()": mantissa,
            f"[&] {{ int e; frexp(x, e); return {kind}(e); }}()": exponent,
            f"[&] {{ {kind} whole; return modf(x, whole); }}()": part,
            f"[&] {{ {kind} whole; modf(x, whole); return whole; }}()": whole,
            "ldexp(x, 3)": np.ldexp(finite, 3),
            "ldexp(x, -3)": np.ldexp(finite, -3),
            f"nextafter(x, {kind}(INFINITY))": np.nextafter(finite, dtype(np.inf)),
            f"nextafter(x, {kind}(-INFINITY))": np.nextafter(finite, dtype(-np.inf)),
        }
    shim.check_values(exact, kind, dtype, x=(kind, finite))
    expressions = {
        "sine": f"[&] {{ {kind} c; return sincos(x, c); }}()",
        "cosine": f"[&] {{ {kind} c; sincos(x, c); return c; }}()",
    }
    got = shim.evaluate(expressions, kind, dtype, x=(kind, finite))
    with np.errstate(all="ignore"):
        assert_within(got["sine"], np.sin(finite.astype(np.float64)), ULP, "sincos", [finite])
        assert_within(got["cosine"], np.cos(finite.astype(np.float64)), ULP, "sincos", [finite])


def test_fract_stays_below_one(shim):
    x = np.concatenate([numbers(), np.float32([-1e-10, -1e-45, 0.75, -0.25])])
    x = x[np.isfinite(x)]
    got = shim.evaluate({"fract": "fract(x)"}, "float", np.float32, x=("float", x))["fract"]
    exact = x.astype(np.float64) - np.floor(x.astype(np.float64))
    np.testing.assert_array_equal(got, np.minimum(exact, 1 - 2.0**-24).astype(np.float32))
    assert got.max() < 1


RELATIONS = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "isnormal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).smallest_normal),
}


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("half", np.float16)])
def test_relations(shim, kind, dtype):
    x = np.arange(65536, dtype=np.uint16).view(np.float16) if kind == "half" else numbers()
    shim.check_values({f"{name}(x)": exact(x) for name, exact in RELATIONS.items()}, "bool", np.bool_, x=(kind, x))


def test_a_users_overload_of_more_arguments_is_called(shim):
    shim.check("int max(int a, int b, int c) { return a; } int f(short a) { return max(a, 2, 3); }")


def test_ilogb(shim):
    x = numbers()
    x = x[np.isfinite(x) & (x != 0)]
    shim.check_values({"ilogb(x)": np.frexp(x)[1] - 1}, "int", np.int32, x=("float", x))
