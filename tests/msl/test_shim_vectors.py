"""Vectors, packed vectors and matrices: sizes, construction, swizzles, operators."""

import itertools

import numpy as np
import pytest
from kernel_images import quickly

from metal_dlpack.language.errors import SourceError

pytestmark = pytest.mark.needs_numpy

SIZES = {"bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "bfloat": 2}
SIZES |= {"int": 4, "uint": 4, "float": 4, "long": 8, "ulong": 8}
ALPHABETS = ["xyzw", "rgba"]
X = np.array([[2, 3, 5, 7], [11, 13, 17, 19]], np.int32)
ONE = np.zeros(1, np.int32)


def test_sizes_and_alignments_are_metals(shim):
    """SPEC Metal Shading Language Specification, 2.2 and 2.3: tables of sizes."""
    lines = []
    for kind, size in SIZES.items():
        for n, room in ((2, 2), (3, 4), (4, 4)):
            lines.append(f"static_assert(sizeof({kind}{n}) == {room * size} && alignof({kind}{n}) == {room * size});")
            lines.append(f"static_assert(sizeof(packed_{kind}{n}) == {n * size});")
            lines.append(f"static_assert(alignof(packed_{kind}{n}) == {size});")
            lines.append(f"static_assert(is_same_v<{kind}{n}, vec<{kind}, {n}>>);")
    for kind, columns, rows in itertools.product(["float", "half"], (2, 3, 4), (2, 3, 4)):
        size = columns * SIZES[kind] * (2 if rows == 2 else 4)
        lines.append(f"static_assert(sizeof({kind}{columns}x{rows}) == {size});")
        lines.append(f"static_assert(alignof({kind}{columns}x{rows}) == alignof({kind}{rows}));")
    shim.check("\n".join(lines))


@pytest.mark.parametrize(
    "kind", quickly("int3", of=[f"{packed}int{n}" for packed in ("", "packed_") for n in (2, 3, 4)])
)
def test_each_swizzle_reads_its_components(shim, kind):
    n = int(kind[-1])
    items = X if kind == "int3" else X[:, :n]
    exact = {}
    for alphabet in ALPHABETS:
        for length in (1, 2, 3, 4):
            for letters in itertools.product(range(n), repeat=length):
                name = "".join(alphabet[k] for k in letters)
                value = f"x.{name}" if length == 1 else f"int{length}(x.{name})"
                exact[f"spread({value})"] = np.zeros((2, 4), np.int32)
                exact[f"spread({value})"][:, :length] = items[:, letters]
    before = """
    static int4 spread(int a) { return int4(a, 0, 0, 0); }
    static int4 spread(int2 a) { return int4(a[0], a[1], 0, 0); }
    static int4 spread(int3 a) { return int4(a[0], a[1], a[2], 0); }
    static int4 spread(int4 a) { return a; }
    """
    shim.check_values(exact, "int4", (np.int32, 4), before=before, x=(kind, items))


@pytest.mark.parametrize("packed", quickly("", of=["", "packed_"]))
@pytest.mark.long
def test_each_swizzle_without_repetition_can_be_written(shim, packed):
    exact = {}
    for alphabet in ALPHABETS:
        for length in (1, 2, 3, 4):
            for letters in itertools.permutations(range(4), length):
                name = "".join(alphabet[k] for k in letters)
                values = ", ".join(str(10 + k) for k in range(length))
                written = f"int{length}({values})" if length > 1 else values
                row = [1, 2, 3, 4]
                for k, place in enumerate(letters):
                    row[place] = 110 + k
                # both writes are seen: two that exchange components would undo each other
                text = f"{packed}int4 v(1, 2, 3, 4); v.{name} = {written}; int4 first = v; v.{name} += 1; "
                text += "return first + 100 * (int4(v) - first);"
                exact[f"int4([&] {{ {text} }}())"] = [row]
    shim.check_values(exact, "int4", (np.int32, 4), x=("int", ONE))


@pytest.mark.parametrize("packed", ["", "packed_"])
def test_a_part_of_a_vector_is_changed(shim, packed):
    """What the translator writes in templates for `v.wx += int2(10, 20)`."""
    expressions = {
        op: f"int4([&] {{ {packed}int4 v(x); v.template part<3, 0>() {op} int2(10, 20); return v; }}())"
        for op in ("+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=")
    }
    got = shim.evaluate(expressions, "int4", (np.int32, 4), x=("int4", np.int32([[100, 2, 3, 45]])))
    for op, made in got.items():
        row = [100, 2, 3, 45]
        row[3], row[0] = eval(f"(45 {op[0] * (1 + (op == '/='))} 10, 100 {op[0] * (1 + (op == '/='))} 20)")
        np.testing.assert_array_equal(made[0], row, op)


@pytest.mark.parametrize("text", ["a.xx = 1;", "a.rxy;", "a.xyzwx;", "float2 b(a);", "half4 h = a;", "float2(1).z;"])
def test_what_metal_refuses_is_refused(shim, text):
    with pytest.raises(SourceError):
        shim.check(f"void f(float4 a) {{ {text} }}")


def test_what_the_traits_say_of_vectors(shim):
    """PyTorch's `exp_functor` takes a float2 where `is_floating_point_v` holds, and tells scalars by `is_scalar_v`."""
    shim.check("""
    static_assert(is_floating_point_v<float2> && is_floating_point_v<const half4> && is_floating_point<bfloat3>::value);
    static_assert(!is_floating_point_v<int2> && !is_scalar_v<float2> && !is_arithmetic_v<float2>);
    """)


def test_vectors_are_made_of_parts_and_scalars(shim):
    before = "static float4 v(float a, float b, float c, float d) { return float4(a, b, c, d); }"
    made = {
        "float4(a, 3, 4)": "1, 2, 3, 4",
        "float4(3, a, 4)": "3, 1, 2, 4",
        "float4(3, 4, a)": "3, 4, 1, 2",
        "float4(a, a.yx)": "1, 2, 2, 1",
        "float4(float3(a, 3), 4)": "1, 2, 3, 4",
        "float4(4, float3(3, a))": "4, 3, 1, 2",
        "float4(float3(5, a), h.x)": "5, 1, 2, 7",
        "float4(p, 1)": "4, 5, 6, 1",
        "float4(h)": "7, 8, 9, 10",
        "float4(2)": "2, 2, 2, 2",
        "(float4)h": "7, 8, 9, 10",
        "float4(int4(1.9f, -1.9f, 2, 3))": "1, -1, 2, 3",
        "float4(packed_float4(h))": "7, 8, 9, 10",
        "float4(packed_float3(a, 3), 0)": "1, 2, 3, 0",
    }
    inputs = {
        "a": ("float2", np.float32([[1, 2]])),
        "p": ("packed_float3", np.float32([[4, 5, 6]])),
        "h": ("half4", np.float16([[7, 8, 9, 10]])),
    }
    exact = {text: [list(map(float, row.split(",")))] for text, row in made.items()}
    shim.check_values(exact, "float4", (np.float32, 4), before=before, **inputs)


OPERATORS = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]


@pytest.mark.parametrize("kind", quickly("uchar3", of=["int4", "uchar3", "packed_short4", "ulong2"]))
def test_operators_go_by_component(shim, kind):
    n = int(kind[-1])
    scalar = kind.strip("234").removeprefix("packed_")
    dtype = {"int": np.int32, "uchar": np.uint8, "short": np.int16, "ulong": np.uint64}[scalar]
    random = np.random.default_rng(2)
    x, y = random.integers(1, 100, (2, 40, n)).astype(dtype)
    y = y % (8 * y.itemsize - 1) + 1
    stored, result = kind if kind != "uchar3" else "packed_uchar3", scalar + str(n)
    both = {op: f"packed_{result}(x {op} y)" for op in OPERATORS}
    beside = {f"{op}s": f"packed_{result}(x {op} {scalar}(3))" for op in OPERATORS}
    before = {f"s{op}": f"packed_{result}({scalar}(3) {op} y)" for op in OPERATORS}
    assigned = {f"{op}=": f"packed_{result}([&] {{ auto z = x; z {op}= y; return z; }}())" for op in OPERATORS}
    inputs = {"x": (stored, x), "y": (stored, y)}
    got = shim.evaluate(both | beside | before | assigned, f"packed_{result}", (dtype, n), **inputs)
    three = dtype(3)
    for op in OPERATORS:
        python = "//" if op == "/" else op
        exact = [
            eval(f"{a} {python} {b}", {"x": x, "y": y, "three": three})
            for a, b in (("x", "y"), ("x", "three"), ("three", "y"))
        ]
        for key, values in zip((op, f"{op}s", f"s{op}", f"{op}="), [*exact, exact[0]], strict=True):
            np.testing.assert_array_equal(got[key], values.astype(dtype), key)


def test_comparisons_give_vectors_of_bool(shim):
    x = np.float32([[1, 2, 3, np.nan], [0, -0.0, np.inf, 5]])
    y = np.float32([[2, 2, 2, 2], [0, 0, np.inf, np.nan]])
    inputs = {"x": ("float4", x), "y": ("float4", y)}
    compared = {f"x {op} y": eval(f"x {op} y", {"x": x, "y": y}) for op in ("==", "!=", "<", ">", "<=", ">=")}
    more = {
        "!(x < y)": ~(x < y),
        "x < y && y < 3": (x < y) & (y < 3),
        "x < y || y < 3": (x < y) | (y < 3),
        "isnan(x)": np.isnan(x),
    }
    shim.check_values(compared | more, "bool4", (np.bool_, 4), **inputs)
    single = {"all(x < y)": (x < y).all(axis=1), "any(x < y)": (x < y).any(axis=1)}
    shim.check_values(single, "bool", np.bool_, **inputs)
    chosen = {"select(x, y, x < y)": np.where(x < y, y, x), "select(x, 9.0f, y == 2)": np.where(y == 2, 9, x)}
    shim.check_values(chosen, "float4", (np.float32, 4), **inputs)


def test_shifts_take_the_low_bits_of_their_amount(shim):
    x = np.uint32([[1, 2]])
    shim.check_values({"x << uint2(33, 34)": [[2, 8]]}, "uint2", (np.uint32, 2), x=("uint2", x))


#: (pack, unpack): the components of (-1, 1, 0, 0.5) that are packed, and their bits.
PACKED = {
    ("unorm4x8", "unorm4x8"): ("xyzw", 0x8000FF00),
    ("snorm4x8", "snorm4x8"): ("xyzw", 0x40007F81),
    ("srgb_unorm4x8", "unorm4x8_srgb"): ("wyxw", 0x8000FFBC),
    ("unorm2x16", "unorm2x16"): ("wy", 0xFFFF8000),
    ("snorm2x16", "snorm2x16"): ("wx", 0x80014000),
    ("unorm10a2", "unorm10a2"): ("wzxy", 0xC0000200),
    ("unorm565", "unorm565"): ("zyw", 0x87E0),
}


@pytest.mark.parametrize("kind", ["float", "half"])
def test_the_first_component_is_packed_into_the_lowest_bits(shim, kind):
    x = np.float32([[-1, 1, 0, 0.5]])
    packs = {pack: f"pack_{kind}_to_{pack}({kind}4(x).{of})" for (pack, _), (of, _) in PACKED.items()}
    unpacks = {
        pack: f"float4(float{len(of)}(unpack_{unpack}_to_{kind}({bits}u)){', 0' * (4 - len(of))})"
        for (pack, unpack), (of, bits) in PACKED.items()
    }
    got = shim.evaluate(packs, "uint", np.uint32, x=("float4", x))
    back = shim.evaluate(unpacks, "float4", (np.float32, 4), x=("float4", x))
    for (pack, _), (of, bits) in PACKED.items():
        assert got[pack][0] == bits, f"{pack}: {got[pack][0]:#x}"
        exact = [max(x[0]["xyzw".index(c)], -1 if pack.startswith("snorm") else 0) for c in of]
        np.testing.assert_allclose(back[pack][0, : len(of)], exact, atol=0.02, err_msg=pack)


def test_as_type_keeps_the_bits(shim):
    x = np.random.default_rng(3).integers(0, 2**32, (100, 2), dtype=np.uint32)
    exact = dict.fromkeys(["as_type<uint2>(as_type<half4>(x))", "as_type<uint2>(as_type<ulong>(x))"], x)
    shim.check_values(exact, "uint2", (np.uint32, 2), x=("uint2", x))
    with pytest.raises(SourceError, match="as_type needs a type of the same size"):
        shim.check("float f(half h) { return as_type<float>(h); }")


GEOMETRY = {
    "dot": ("dot(x, y)", lambda x, y: (x * y).sum(1)),
    "length": ("length(x)", lambda x, y: np.linalg.norm(x, axis=1)),
    "length_squared": ("length_squared(x)", lambda x, y: (x * x).sum(1)),
    "distance": ("distance(x, y)", lambda x, y: np.linalg.norm(x - y, axis=1)),
    "distance_squared": ("distance_squared(x, y)", lambda x, y: ((x - y) ** 2).sum(1)),
}


@pytest.mark.parametrize("kind", quickly("float3", of=["float3", "packed_float3", "float2", "float4"]))
def test_geometry(shim, kind):
    n = int(kind[-1])
    x, y = np.random.default_rng(4).normal(size=(2, 50, n)).astype(np.float32)
    stored = kind if kind != "float3" else "packed_float3"
    before = f"static {kind} of(packed_float{n} v) {{ return {kind}(v); }}"
    inputs = {"a": (stored, x), "b": (stored, y)}
    texts = {name: text.replace("x", "of(a)").replace("y", "of(b)") for name, (text, _) in GEOMETRY.items()}
    got = shim.evaluate(texts, "float", np.float32, before=before, **inputs)
    a, b = x.astype(np.float64), y.astype(np.float64)
    for name, (_, exact) in GEOMETRY.items():
        np.testing.assert_allclose(got[name], exact(a, b), rtol=1e-5, atol=1e-5, err_msg=name)
    unit = b / np.linalg.norm(b, axis=1, keepdims=True)
    cosine = (unit * a).sum(1, keepdims=True)
    k = 1 - 0.25 * (1 - cosine**2)
    bent = np.where(k < 0, 0, 0.5 * a - unit * (0.5 * cosine + np.sqrt(np.maximum(k, 0))))
    exact = {
        "normalize(of(a))": a / np.linalg.norm(a, axis=1, keepdims=True),
        "reflect(of(a), normalize(of(b)))": a - 2 * unit * cosine,
        "refract(of(a), normalize(of(b)), 0.5f)": bent,
        "faceforward(of(a), of(b), of(a))": np.where((a * b).sum(1, keepdims=True) < 0, a, -a),
    } | ({"cross(of(a), of(b))": np.cross(a, b)} if n == 3 else {})
    texts = {text: f"packed_float{n}({text})" for text in exact}
    got = shim.evaluate(texts, f"packed_float{n}", (np.float32, n), before=before, **inputs)
    for text, values in exact.items():
        np.testing.assert_allclose(got[text], values, rtol=1e-5, atol=1e-5, err_msg=text)


@pytest.mark.parametrize("size", quickly((4, 2), of=itertools.product((2, 3, 4), repeat=2)))
def test_matrices(shim, size):
    """Memory holds columns, so NumPy sees each matrix transposed."""
    columns, rows = size
    random = np.random.default_rng(5)
    count, kind = 20, f"float{columns}x{rows}"
    a = random.integers(-4, 5, (count, columns, rows)).astype(np.float32)
    b = random.integers(-4, 5, (count, rows, columns)).astype(np.float32)
    room = np.zeros((count, columns, 2 if rows == 2 else 4), np.float32)
    room[:, :, :rows] = a
    wide = np.zeros((count, rows, 2 if columns == 2 else 4), np.float32)
    wide[:, :, :columns] = b
    inputs = {"a": (kind, room), "b": (f"float{rows}x{columns}", wide)}
    before = f"""
    struct square {{ packed_float{rows} columns[{rows}]; }};
    static square flat(float{rows}x{rows} m) {{ square s; for (int i = 0; i < {rows}; i++) s.columns[i] = m[i]; return s; }}
    """
    product = b @ a
    ways = ["flat(a * b)", "flat(transpose(transpose(b) * transpose(a)))", "flat(a * 2 * b - a * b)"]
    kept = (np.float32, (rows, rows))
    shim.check_values(dict.fromkeys(ways, product), "square", kept, before=before, **inputs)
    ways = [f"dot(a * b[0], float{rows}(1))", f"dot(b[0] * transpose(a), float{rows}(1))"]
    shim.check_values(dict.fromkeys(ways, product[:, 0].sum(axis=1)), "float", np.float32, **inputs)
    if columns == rows:
        got = shim.evaluate({"d": "determinant(a)"}, "float", np.float32, **inputs)["d"]
        np.testing.assert_allclose(got, np.linalg.det(a.astype(np.float64)), atol=1e-3)


def test_a_matrix_of_one_number_has_it_on_its_diagonal(shim):
    got = shim.evaluate(
        {"m": "float3x3(2)", "columns": "float3x3(float3(1), float3(2), float3(3))"},
        "float3x3",
        (np.float32, (3, 4)),
        x=("int", ONE),
    )
    np.testing.assert_array_equal(got["m"][0][:, :3], 2 * np.eye(3))
    np.testing.assert_array_equal(got["columns"][0][:, :3], [[1] * 3, [2] * 3, [3] * 3])
