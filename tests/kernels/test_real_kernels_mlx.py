"""MLX's own kernels, from the headers of its wheel, launched as MLX launches them and beside NumPy.

A tolerance is 4 ulp, or its reason stands beside it.  MLX asks for `fast::exp` in much of what follows: Metal grants
that 2**-21 of its value near one and more far from it, so what contains one is held to 1e-5.
"""

import math

import kernel_sources
import numpy as np
import pytest
from kernel_images import quickly
from kernel_sources import reported
from own_kernels import on_metal, random

import metal_dlpack as md

HEAD = "".join(f"#include <metal_{name}>\n" for name in ("stdlib", "atomic", "simdgroup", "simdgroup_matrix"))
FAST_EXP = 1e-5


def mlx(headers, *instances):
    """A library of MLX's headers, with these (name, kernel, template arguments)."""
    paths = [f"mlx/backend/metal/kernels/{header}" for header in ("utils.h", *headers.split())]
    text = HEAD + "using namespace metal;\n" + "".join(f'#include "{path}"\n' for path in paths)
    text += "".join(f'instantiate_kernel("{name}", {kernel}, {types})\n' for name, kernel, types in instances)
    return md.Library(text, include=(kernel_sources.mlx(),))


# ---- one item, one result ----


#: MLX's operation: (NumPy's, range, ulp; what passes 4 is Metal's own bound of that function).
UNARY = {
    "Abs": (np.abs, -9, 9, 0),
    "Ceil": (np.ceil, -9, 9, 0),
    "Cosh": (np.cosh, -9, 9, 4),
    "Exp": (np.exp, -80, 80, 4),
    "Floor": (np.floor, -9, 9, 0),
    "Log1p": (np.log1p, 0.5, 100, 4),
    "Negative": (np.negative, -9, 9, 0),
    "Round": (np.rint, -9, 9, 0),
    "Rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 100, 1),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -20, 20, 8),  # exp within 4, a sum, a division
    "Sign": (np.sign, -9, 9, 0),
    "Sinh": (np.sinh, 0.5, 9, 4),
    "Sqrt": (np.sqrt, 0, 100, 0),
    "Square": (np.square, -9, 9, 0),
    "Tanh": (np.tanh, -9, 9, 5),
    "Erf": (np.vectorize(math.erf), 0.5, 4, 16),  # a polynomial of 1 ulp, whose exp MLX computes fast
    "Expm1": (np.expm1, -0.3, 0.3, 1),  # further out MLX leaves out the lower half of log(2)
}


@pytest.mark.long
def test_unary_operations():
    library = mlx("unary_ops.h unary.h", *[(name, "unary_v", f"float, float, {name}") for name in UNARY])
    for name, (function, low, high, ulp) in UNARY.items():
        x = np.linspace(low, high, 1001, dtype="f4")
        y = md.zeros(1001, dtype="float32")
        library[name](on_metal(x), y, 1001, threads=501)  # two items a thread
        np.testing.assert_array_max_ulp(np.asarray(y), function(x.astype("f8")).astype("f4"), ulp)


def test_a_unary_operation_on_a_view():
    library = mlx("unary_ops.h unary.h", ("square", "unary_g", "float, float, Square, 2, int"))
    x = random().standard_normal((5, 7, 11), dtype="float32")
    y = md.zeros((11, 5, 7), dtype="float32")
    shape, strides = on_metal([11, 5, 7], "i4"), on_metal([1, 77, 11], "i8")
    library["square"](on_metal(x), y, shape, strides, 3, threads=(4, 5, 11))
    np.testing.assert_array_equal(np.asarray(y), np.square(x.transpose(2, 0, 1)))


@pytest.mark.long
def test_complex_numbers():
    library = mlx(
        "unary_ops.h unary.h", *[(n, "unary_v", f"complex64_t, complex64_t, {n}") for n in ("Exp", "Sqrt", "Conjugate")]
    )
    x = (random().uniform(-2, 2, 300) + 1j * random(1).uniform(-2, 2, 300)).astype("c8")
    found = {}
    for name in ("Exp", "Sqrt", "Conjugate"):
        y = md.zeros(300, dtype="complex64")
        library[name](on_metal(x), y, 300, threads=300)
        found[name] = np.asarray(y)
    np.testing.assert_array_equal(found["Conjugate"], x.conj())
    # A part that cancels is off by an ulp of the whole.
    np.testing.assert_allclose(found["Exp"], np.exp(x.astype("c16")), rtol=1e-6)
    # The roots of abs(x) + x.real and abs(x) - x.real, halved: it is their squares that are off by as much.
    squares = np.square([found["Sqrt"].real, found["Sqrt"].imag], dtype="f8")
    np.testing.assert_allclose(squares, (np.abs(x) + [x.real, -x.real]) / 2, atol=1e-6)
    np.testing.assert_array_equal(np.signbit(found["Sqrt"].imag), np.signbit(x.imag))


BINARY = {
    "Add": (np.add, "float", 0),
    "Subtract": (np.subtract, "float", 0),
    "Multiply": (np.multiply, "float", 0),
    "Divide": (np.divide, "float", 0),
    "Maximum": (np.maximum, "float", 0),
    "Minimum": (np.minimum, "float", 0),
    "Remainder": (np.remainder, "int", 0),
    "BitwiseXor": (np.bitwise_xor, "int", 0),
    "ArcTan2": (np.arctan2, "float", 6),
}


@pytest.mark.long
def test_binary_operations():
    library = mlx("binary_ops.h binary.h", *[(n, "binary_vv", f"{t}, {t}, {n}") for n, (_, t, _) in BINARY.items()])
    for name, (function, kind, ulp) in BINARY.items():
        dtype = "f4" if kind == "float" else "i4"
        a, b = random().uniform(-100, 100, (2, 777)).astype(dtype)
        b[b == 0] = 3
        c = md.zeros(777, dtype=np.dtype(dtype).name)
        library[name](on_metal(a), on_metal(b), c, 777, threads=389)
        if kind == "int":
            np.testing.assert_array_equal(np.asarray(c), function(a, b))
        else:
            expected = function(a, b) if ulp == 0 else function(a.astype("f8"), b.astype("f8")).astype("f4")
            np.testing.assert_array_max_ulp(np.asarray(c), expected, ulp)


# ---- rows ----


def test_softmax_of_a_row():
    library = mlx(
        "defines.h softmax.h",
        ("block", "softmax_single_row", "float, float, SOFTMAX_N_READS"),
        ("looped", "softmax_looped", "half, float, SOFTMAX_N_READS"),
    )
    of_half = {"rtol": 1e-3, "atol": 6e-8}  # its ulp, and its smallest number
    for name, dtype, shape, group, bound in (
        ("block", "float32", (7, 1000), 256, {"rtol": FAST_EXP}),
        ("looped", "float16", (3, 5000), 1024, of_half),
    ):
        x = (random().standard_normal(shape) * 4).astype(dtype)
        y = md.zeros(shape, dtype=dtype)
        library[name](on_metal(x), y, shape[1], groups=shape[0], group=group)
        exact = np.exp(x.astype("f8") - x.max(1, keepdims=True))
        np.testing.assert_allclose(np.asarray(y), exact / exact.sum(1, keepdims=True), **bound)


@pytest.mark.long
def test_scans_along_rows():
    library = mlx(
        "scan.h",
        ("sum", "contiguous_scan", "int, int, CumSum<int>, 4, true, false"),
        ("max_back", "contiguous_scan", "float, float, CumMax<float>, 4, true, true"),
        ("product", "contiguous_scan", "uint, uint, CumProd<uint>, 4, false, false"),
    )
    x = random().integers(-1000, 1000, (3, 5001), dtype="int32")
    y = md.zeros(x.shape, dtype="int32")
    library["sum"](on_metal(x), y, 5001, groups=(1, 3), group=1024)
    np.testing.assert_array_equal(np.asarray(y), x.cumsum(1))
    z = md.zeros(x.shape, dtype="float32")
    library["max_back"](on_metal(x, "f4"), z, 5001, groups=(1, 3), group=1024)
    np.testing.assert_array_equal(np.asarray(z), np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1])
    w = md.zeros(x.shape, dtype="uint32")
    odd = (2 * x + 1).view("uint32")
    library["product"](on_metal(odd), w, 5001, groups=(1, 3), group=1024)
    before = np.concatenate([np.ones((3, 1), "u4"), odd[:, :-1]], 1)
    np.testing.assert_array_equal(np.asarray(w), before.cumprod(1, dtype="uint32"))


@pytest.mark.long
def test_a_scan_down_columns():
    library = mlx("scan.h", ("sum", "strided_scan", "float, float, CumSum<float>, 4, true, false"))
    x = random().integers(-100, 100, (2, 77, 50)).astype("f4")
    y = md.zeros(x.shape, dtype="float32")
    library["sum"](on_metal(x), y, 77, 50, 2, groups=(1, 4), group=256)  # two blocks of 32 columns each
    np.testing.assert_array_equal(np.asarray(y), x.cumsum(1))


# ---- reductions ----

REDUCE = "defines.h atomic.h reduction/ops.h reduce.h"


@pytest.mark.long
def test_reductions_to_one_item():
    library = mlx(
        REDUCE,
        ("sum", "all_reduce", "int, int, Sum<int>"),
        ("max", "all_reduce", "float, float, Max<float>"),
        ("any", "all_reduce", "bool, bool, Or<bool>"),
        ("product", "all_reduce", "int64_t, int64_t, Prod<int64_t>"),
    )
    x = random().integers(-1000, 1000, 10_001, dtype="int32")
    cases = [("sum", x, x.sum()), ("max", x.astype("f4"), x.max()), ("any", x > 998, (x > 998).any())]
    cases.append(("product", (2 * x + 1).astype("i8"), np.multiply.reduce(2 * x + 1, dtype="i8")))
    for name, items, expected in cases:
        out = md.zeros(1, dtype=items.dtype.name)
        library[name](on_metal(items), out, items.size, items.size, groups=1, group=512)
        assert np.asarray(out)[0] == expected, name


@pytest.mark.long
@reported("Where rows are no multiple of four, two threadgroups write the same sums.")
def test_reductions_of_rows():
    library = mlx(
        REDUCE,
        ("sum", "row_reduce_simple", "float, float, Sum<float>, int"),
        ("min", "row_reduce_simple", "uchar, uchar, Min<uchar>, int"),
    )
    x = random().integers(3, 255, (10, 1003))
    for name, dtype, expected in (("sum", "float32", x.sum(1)), ("min", "uint8", x.min(1))):
        out = md.zeros(10, dtype=dtype)
        library[name](on_metal(x, dtype), out, 1003, 10, groups=(1, 3), group=128)
        np.testing.assert_array_equal(np.asarray(out), expected)


@pytest.mark.long
def test_a_reduction_of_columns():
    library = mlx(REDUCE, ("sum", "col_reduce_longcolumn", "int, int, Sum<int>, int, 1"))
    x = random().integers(-1000, 1000, (300, 24), dtype="int32")
    out = md.zeros(24, dtype="int32")
    no_axes = 300, 24, on_metal([1], "i4"), on_metal([1], "i8"), 0  # besides the columns; `strides` has no other name
    rows = on_metal([300], "i4"), on_metal([24], "i8"), 1
    library["sum"](on_metal(x), out, *no_axes, *rows, 1, 24, groups=1, group=(24, 32))
    np.testing.assert_array_equal(np.asarray(out), x.sum(0))


# ---- order ----


@pytest.mark.long
def test_sorts_in_a_block():
    library = mlx(
        "sort.h",
        ("sort", "block_sort", "float, float, false, 128, 4"),
        ("argsort", "block_sort", "short, uint, true, 128, 4"),
    )
    x = random().standard_normal((5, 500), dtype="float32")
    y = md.zeros(x.shape, dtype="float32")
    library["sort"](on_metal(x), y, 500, 1, 1, 500, 500, groups=(1, 5), group=128)
    np.testing.assert_array_equal(np.asarray(y), np.sort(x, 1))
    keys = random().integers(0, 40, (4, 301), dtype="int16")  # equal keys keep their order
    order = md.zeros(keys.shape, dtype="uint32")
    library["argsort"](on_metal(keys), order, 301, 1, 1, 301, 301, groups=(1, 4), group=128)
    np.testing.assert_array_equal(np.asarray(order), np.argsort(keys, 1, kind="stable"))


# ---- indices ----


@pytest.mark.long
def test_gather_and_scatter_along_an_axis():
    library = mlx(
        "atomic.h reduction/ops.h indexing/gather_axis.h indexing/scatter_axis.h",
        ("gather", "gather_axis", "float, int, int, true, true"),
        ("scatter", "scatter_axis", "int, int, int, Sum<int>, true, true"),
    )
    x, where = random().standard_normal((4, 9, 6), dtype="float32"), random().integers(-9, 9, (4, 13, 6), dtype="int32")
    shape, ones, two = on_metal([4, 6], "i4"), on_metal([1, 1], "i8"), 2
    out = md.zeros(where.shape, dtype="float32")
    library["gather"](on_metal(x), on_metal(where), out, shape, ones, ones, two, 1, 9, 6, 6, threads=(6, 13, 4))
    np.testing.assert_array_equal(np.asarray(out), np.take_along_axis(x, where, 1))
    updates = random().integers(-50, 50, where.shape, dtype="int32")
    sums = md.zeros(x.shape, dtype="int32")
    library["scatter"](on_metal(updates), on_metal(where), sums, shape, ones, ones, two, 1, 9, 6, 6, threads=(6, 13, 4))
    expected = np.zeros(x.shape, "i4")
    i, _, k = np.indices(where.shape)
    np.add.at(expected, (i, where, k), updates)
    np.testing.assert_array_equal(np.asarray(sums), expected)


# ---- products ----


@pytest.mark.long
@reported("Only the first lane of each SIMD-group comes to its threadgroup_barrier.")
@pytest.mark.parametrize(("kind", "dtype"), [("float", "float32"), ("half", "float16")])
def test_a_matrix_times_a_vector(kind, dtype):
    library = mlx("gemv.h", ("gemv", "gemv", f"{kind}, 1, 8, 1, 32, 4, 4, false, false"))
    matrix, vector = random().integers(-3, 4, (42, 600)), random(1).integers(-3, 4, 600)  # exact in each order
    out = md.zeros(42, dtype=dtype)
    nothing, zeros = on_metal([1], "i4"), on_metal([0], "i8")
    library["gemv"](
        mat=on_metal(matrix, dtype), in_vec=on_metal(vector, dtype), bias=on_metal([0], dtype), out_vec=out,
        in_vec_size=600, out_vec_size=42, marix_ld=600, alpha=1.0, beta=0.0, batch_ndim=1, batch_shape=nothing,
        vector_batch_stride=zeros, matrix_batch_stride=zeros, bias_batch_stride=zeros, bias_stride=1,
        groups=11, group=(32, 8, 1),
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(out), (matrix @ vector).astype(dtype))


GEMM = np.dtype(
    {
        "names": [*("M", "N", "K", "lda", "ldb", "ldd", "tiles_n", "tiles_m"), "batch_a", "batch_b", "batch_d"]
        + ["swizzle_log", "iterations", "batch_ndim"],
        "formats": ["i4"] * 8 + ["i8"] * 3 + ["i4"] * 3,
        "offsets": [*range(0, 32, 4), 32, 40, 48, 56, 60, 64],
        "itemsize": 72,
    }
)


@pytest.mark.parametrize(
    ("kind", "dtype", "m", "n", "k"),
    [("half", "float16", 70, 45, 50), pytest.param("float", "float32", 64, 64, 32, marks=pytest.mark.long)],
)
def test_a_product_of_matrices(kind, dtype, m, n, k):
    """Steel: tiles in threadgroup memory, simdgroup_matrix, function constants for what is no multiple of a tile."""
    library = mlx(
        "steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_fused.h",
        ("gemm", "gemm", f"{kind}, 32, 32, 16, 2, 2, false, true, float"),
    )
    aligned = {"align_M": m % 32 == 0, "align_N": n % 32 == 0, "align_K": k % 16 == 0}
    constants = {"has_batch": False, "use_out_source": False, "do_axpby": False, **aligned}
    a, b = random().integers(-4, 5, (m, k)), random(1).integers(-4, 5, (n, k))  # exact in each order
    out = md.zeros((m, n), dtype=dtype)
    tiles = -(-n // 32), -(-m // 32)
    params = np.zeros((), GEMM)
    params[()] = (m, n, k, k, k, n, *tiles, m * k, n * k, m * n, 0, k // 16, 1)
    library.kernel("gemm", constants=constants)(
        A=on_metal(a, dtype), B=on_metal(b, dtype), D=out, params=params[()], groups=tiles, group=(32, 2, 2)
    )
    np.testing.assert_array_equal(np.asarray(out), a @ b.T)


@pytest.mark.long
def test_quantised_weights():
    """Four bits in groups of 64: quantise, dequantise, and a product with them."""
    library = mlx(
        "steel/gemm/gemm.h quantized_utils.h quantized.h",
        ("quantize", "affine_quantize", "float, 64, 4"),
        ("dequantize", "affine_dequantize", "float, 64, 4"),
        ("multiply", "affine_qmv", "float, 64, 4, false"),
    )
    x = random().standard_normal((24, 512), dtype="float32")
    packed, scales = md.zeros((24, 256), dtype="uint8"), md.zeros((24, 8), dtype="float32")
    biases = md.zeros((24, 8), dtype="float32")
    library["quantize"](on_metal(x), packed, scales, biases, threads=(32 * 24 * 8, 1), group=(256, 1))
    words, scale, bias = (np.asarray(array) for array in (packed, scales, biases))
    codes = np.stack([words & 15, words >> 4], -1).reshape(24, 8, 64)
    back = (codes * scale[..., None] + bias[..., None]).reshape(x.shape)
    # The nearest code; at the far end of a group there may be none nearer than one step.
    assert (np.abs(back - x) <= 1.001 * np.abs(scale).repeat(64, 1)).all()
    assert np.mean(np.abs(back - x) / np.abs(scale).repeat(64, 1)) < 0.3
    out = md.zeros(x.shape, dtype="float32")
    library["dequantize"](packed, scales, biases, out, threads=(24 * 256, 1))
    # A product and a sum, which Metal may round once or twice.
    fused = (np.float64(codes) * scale[..., None] + bias[..., None]).astype("float32").reshape(x.shape)
    assert ((np.asarray(out) == back) | (np.asarray(out) == fused)).all()
    vector, result = random(1).standard_normal(512, dtype="float32"), md.zeros(24, dtype="float32")
    nothing, zero = on_metal([1], "i4"), on_metal([0], "i8")
    library["multiply"](
        w=packed.view("uint32"), scales=scales, biases=biases, x=on_metal(vector), y=result, in_vec_size=512,
        out_vec_size=24, x_batch_ndims=0, x_shape=nothing, x_strides=zero, w_batch_ndims=0, w_shape=nothing,
        w_strides=zero, s_strides=zero, b_strides=zero, groups=(1, 3), group=(32, 2),
    )  # fmt: skip
    exact = back.astype("f8") @ vector
    # 512 products that cancel: the error follows the sum of magnitudes.
    assert (np.abs(np.asarray(result) - exact) < 1e-6 * (np.abs(back) @ np.abs(vector))).all()


@pytest.mark.parametrize("do_causal", quickly(True, of=[False, True]))
def test_attention_of_a_query(do_causal):
    library = mlx("sdpa_vector.h", ("sdpa", "sdpa_vector", "float, 64, 64"))
    heads, length, queries = 4, 77, 3
    q = random().standard_normal((heads, queries, 64), dtype="float32")
    k, v = random(1).standard_normal((2, heads // 2, length, 64), dtype="float32")
    out = md.zeros(q.shape, dtype="float32")
    off = dict.fromkeys(("has_mask", "query_transposed", "bool_mask", "float_mask", "has_sinks"), False)
    library.kernel("sdpa", constants={**off, "do_causal": do_causal})(
        queries=on_metal(q), keys=on_metal(k), values=on_metal(v), out=out, gqa_factor=2, N=length,
        k_head_stride=length * 64, k_seq_stride=64, v_head_stride=length * 64, v_seq_stride=64, scale=0.125,
        groups=(heads, queries), group=1024,
    )  # fmt: skip
    k, v = k.repeat(2, 0).astype("f8"), v.repeat(2, 0).astype("f8")
    scores = 0.125 * q.astype("f8") @ k.transpose(0, 2, 1)
    if do_causal:
        scores[:, np.arange(length)[None, :] > length - queries + np.arange(queries)[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(np.asarray(out), exact, rtol=FAST_EXP, atol=5e-6)  # weighted values of about 1 cancel


# ---- transforms ----


@pytest.mark.long
def test_a_fourier_transform():
    library = mlx("steel/defines.h fft.h", ("fft", "fft", "256, float2, float2"))
    # Seven rounds: 256 = 4 ** 4, so radix 4 four times; one transform is 64 threads that hold four items each.
    constants = {"inv_": False, "is_power_of_2_": True, "elems_per_thread_": 4}
    constants |= {f"radix_{radix}_steps_": 4 if radix == 4 else 0 for radix in (13, 11, 8, 7, 6, 5, 4, 3, 2)}
    constants |= {f"rader_{radix}_steps_": 0 for radix in (13, 11, 8, 7, 6, 5, 4, 3, 2)}
    x = (random().standard_normal((6, 256)) + 1j * random(1).standard_normal((6, 256))).astype("c8")
    out = md.zeros(x.shape, dtype="complex64")
    library.kernel("fft", constants=constants)(on_metal(x), out, 256, 6, groups=(6, 1, 1), group=(1, 1, 64))
    # MLX's sines are fast ones; each round is within an ulp of numbers of up to 60.
    np.testing.assert_allclose(np.asarray(out), np.fft.fft(x.astype("c16")), atol=5e-5)
