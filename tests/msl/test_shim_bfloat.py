"""bfloat and half, bit for bit beside ml_dtypes and NumPy: every value, and every way to round."""

import numpy as np
import pytest
from kernel_images import quickly

from metal_dlpack.language.errors import SourceError

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.needs_ml_dtypes

BITS = np.arange(65536, dtype=np.uint16)
KINDS = {"bfloat": ml_dtypes.bfloat16, "half": np.float16}


def assert_same(got, exact, what=""):
    """Bit for bit; one NaN is as good as another."""
    exact = np.asarray(exact, got.dtype)
    with np.errstate(invalid="ignore"):
        right = (got.view(np.uint16) == exact.view(np.uint16)) | (np.isnan(got) & np.isnan(exact))
    wrong = np.flatnonzero(~right)
    assert not wrong.size, (what, wrong.size, wrong[:3], got[wrong[:3]], exact[wrong[:3]])


@pytest.mark.parametrize("kind", quickly("bfloat", of=KINDS))
def test_each_value_becomes_a_float_and_back(shim, kind):
    dtype = KINDS[kind]
    x = BITS.view(dtype)
    wide = shim.evaluate({"float": "float(x)"}, "float", np.float32, x=(kind, x))["float"]
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    back = shim.evaluate({"float": f"{kind}(float(x))", "negative": "-x", "plus": "+x"}, kind, dtype, x=(kind, x))
    assert_same(back["float"], x)
    assert_same(back["negative"], -x)


@pytest.mark.parametrize("kind", quickly("bfloat", of=KINDS))
def test_a_float_becomes_the_nearest_even(shim, kind):
    dtype = KINDS[kind]
    with np.errstate(all="ignore"):
        x = BITS.view(dtype).astype(np.float32)
        halfway = (x + np.nextafter(BITS.view(dtype), dtype(np.inf)).astype(np.float32)) / 2
        random = np.random.default_rng(1).integers(0, 2**32, 100000, dtype=np.uint32).view(np.float32)
        values = [
            halfway,
            np.nextafter(halfway, np.float32(np.inf)),
            np.nextafter(halfway, np.float32(-np.inf)),
            random,
        ]
        values = np.concatenate(values).astype(np.float32)
        exact = values.astype(dtype)
    got = shim.evaluate({"made": f"{kind}(x)"}, kind, dtype, x=("float", values))
    assert_same(got["made"], exact)


def test_bfloat_and_half_become_each_other(shim):
    halves, bfloats = BITS.view(np.float16), BITS.view(ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        made = shim.evaluate({"bfloat": "bfloat(x)"}, "bfloat", ml_dtypes.bfloat16, x=("half", halves))["bfloat"]
        assert_same(made, halves.astype(np.float32).astype(ml_dtypes.bfloat16))
        made = shim.evaluate({"half": "half(x)"}, "half", np.float16, x=("bfloat", bfloats))["half"]
        assert_same(made, bfloats.astype(np.float32).astype(np.float16))


@pytest.mark.parametrize("kind", quickly("bfloat", of=KINDS))
def test_arithmetic_rounds_after_each_operation(shim, kind):
    dtype = KINDS[kind]
    random = np.random.default_rng(2).permutation(BITS)
    x, y = BITS.view(dtype), random.view(dtype)
    operations = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
    texts = {op: f"x {op} y" for op in operations} | {
        f"{op}=": f"[&] {{ auto z = x; z {op}= y; return z; }}()" for op in operations
    }
    got = shim.evaluate(texts, kind, dtype, x=(kind, x), y=(kind, y))
    with np.errstate(all="ignore"):
        for op, function in operations.items():
            exact = function(x.astype(np.float32), y.astype(np.float32)).astype(dtype)
            assert_same(got[op], exact, op)
            assert_same(got[f"{op}="], exact, op)
    wide = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    compared = {f"x {op} y": eval(f"x {op} y", wide) for op in ("==", "!=", "<", ">", "<=", ">=")}
    shim.check_values(compared, "bool", np.bool_, x=(kind, x), y=(kind, y))


@pytest.mark.parametrize("kind", quickly("bfloat", of=KINDS))
def test_integers_and_limits(shim, kind):
    dtype = KINDS[kind]
    x = np.arange(-300, 300, dtype=np.int32) * 77
    got = shim.evaluate({"made": f"{kind}(x)"}, kind, dtype, x=("int", x))["made"]
    assert_same(got, x.astype(np.float32).astype(dtype))
    back = shim.evaluate({"int": "int(x)"}, "int", np.int32, x=(kind, got))["int"]
    np.testing.assert_array_equal(back, got.astype(np.float32).astype(np.int32))
    facts = ml_dtypes.finfo(dtype)
    names = {
        "max": facts.max,
        "min": facts.smallest_normal,
        "lowest": facts.min,
        "epsilon": facts.eps,
        "denorm_min": facts.smallest_subnormal,
    }
    limits = {f"numeric_limits<{kind}>::{name}()": value for name, value in names.items()}
    shim.check_values(limits, kind, dtype, x=("int", x[:1]))


def test_each_operator_makes_the_type_that_metal_says(shim):
    """Arithmetic beside float and half is theirs, beside an integer bfloat's; a comparison is true or false."""
    made = {"b, b": "bfloat", "b, i": "bfloat", "i, b": "bfloat", "b, 2": "bfloat"}
    made |= dict.fromkeys(("b, x", "x, b", "b, h", "h, b"), "float")
    types = dict.fromkeys("+-*/", made) | {op: dict.fromkeys(made, "bool") for op in ("==", "!=", "<", ">", "<=", ">=")}
    asserted = "".join(
        f"static_assert(is_same_v<decltype({operands.replace(',', f' {op}')}), {kind}>);\n"
        for op, of_operands in types.items()
        for operands, kind in of_operands.items()
    )
    shim.check(f"void f(bfloat b, half h, float x, int i) {{\n{asserted}}}")


def test_the_type_of_mixed_arithmetic(shim):
    shim.check("""
    void f(bfloat b, half h, float x, int i, bfloat2 v) {
        static_assert(is_same_v<decltype(h + h), half>);
        static_assert(is_same_v<decltype(v * b), bfloat2>);
        static_assert(is_same_v<decltype(exp(b)), bfloat>);
        static_assert(is_floating_point_v<bfloat> && is_floating_point_v<half> && !is_integral_v<bfloat>);
        float up = b; bfloat down = bfloat(x); half across = half(b); int whole = b; bfloat from = i; bfloat many[4] = {0};
        float chosen = i ? b : 0.0f; b += x; b *= 2; bfloat zero = bfloat();
    }
    """)


@pytest.mark.parametrize("text", ["bfloat b = x;", "bfloat b = 0.5f;", "bfloat b; b = x;", "bfloat b = h;"])
def test_a_float_becomes_a_bfloat_only_by_a_cast(shim, text):
    """Metal's compiler says: cannot initialize a variable of type 'bfloat' with an rvalue of type 'float'."""
    with pytest.raises(SourceError):
        shim.check(f"void f(float x, half h) {{ {text} }}")


def test_a_class_that_converts_to_bool_becomes_a_bfloat(shim):
    """As every scalar does, of which bfloat is one in Metal."""
    before = "struct mask { bool set; operator bool() const { return set; } };"
    exact = {
        "bfloat(mask{x > 0})": [1, 0],
        "[&] { bfloat b; b = mask{x > 0}; return b; }()": [1, 0],
        "bfloat(mask{x > 0} + mask{x > 0})": [2, 0],
    }
    shim.check_values(exact, "bfloat", ml_dtypes.bfloat16, before=before, x=("int", np.int32([2, 0])))


def test_an_integer_chosen_beside_a_number_is_what_it_is_in_metal(shim):
    shim.check(
        """
    template <class T, class R> void f(T x, bool c) {
        static_assert(is_same_v<decltype(c ? x : softmetal::literal<7>()), R>);
        static_assert(is_same_v<decltype(c ? softmetal::literal<7>() : x), R>);
    }
    void g(bool c, const device float *p) {
        f<bfloat, bfloat>(bfloat(1), c), f<half, half>(1, c), f<float, float>(1, c), f<bfloat4, bfloat4>(1, c);
        f<short, int>(1, c), f<uchar, int>(1, c), f<bool, int>(1, c), f<uint, uint>(1, c), f<long, long>(1, c);
        const float *q = c ? p : softmetal::literal<0>();
        static_assert((true ? softmetal::literal<5>() : short(2)) == 5);
        auto wide = c ? softmetal::literal<1 << 30>() : 2L;
    }
    """.replace("device ", "")
    )
    x = np.float32([1.5, -2]).astype(ml_dtypes.bfloat16)
    exact = {f"{chosen} ? x : softmetal::literal<3>()": values for chosen, values in ((0, [3, 3]), (1, [1.5, -2]))}
    shim.check_values(exact, "bfloat", x.dtype, x=("bfloat", x))
