"""llama.cpp's own kernels, from the sdist of llama-cpp-python, launched as it launches them and beside NumPy.

Its pointers are `device const char *`: the arrays go in as bytes.  A tolerance is 4 ulp, or its reason stands beside it.
"""

import os
import re
from functools import cache

import kernel_sources
import numpy as np
import pytest
from kernel_images import quickly
from machine import HAS_SOFTMETAL
from own_kernels import random

import metal_dlpack as md


def ggml(file, kernel, **constants):
    folder, *others = kernel_sources.ggml_folders()
    library = md.Library((folder / file).read_text(), include=(folder, *others))
    return library.kernel(kernel, constants=constants)


def on_metal(items, dtype=None):
    """A copy, as bytes."""
    return md.asarray(np.array(items, dtype, order="C"), copy=True).view("int8")


def empty(shape, dtype="float32"):
    """Room for a result, as such and as bytes."""
    out = md.zeros(shape, dtype=dtype)
    return out, out.view("int8")


# ---- its argument structs, read from its own header ----

#: C's types in its argument structs.
C_TYPES = {"int32_t": "i4", "int64_t": "i8", "uint64_t": "u8", "size_t": "u8", "float": "f4", "bool": "?"}
C_TYPES |= {"int16_t": "i2", "uint32_t": "u4"}


@cache
def struct_dtype(name: str) -> np.dtype:
    header = (kernel_sources.ggml() / "ggml-metal" / "ggml-metal-impl.h").read_text()
    (body,) = re.findall(r"typedef struct\s*\{([^}]*)\} ggml_metal_kargs_" + name + ";", header)
    fields = re.findall(r"^\s*(\w+)\s+(\w+)(?:\[(\d+)\])?;", body, re.MULTILINE)
    return np.dtype(
        [(field, C_TYPES[kind], *([int(count)] if count else [])) for kind, field, count in fields], align=True
    )


def struct(name: str, *layouts: dict[str, int], **values: object) -> np.void:
    """What is not given is zero; a layout may have more than the struct."""
    made = np.zeros((), struct_dtype(name))
    given = {key: value for part in layouts for key, value in part.items() if key in made.dtype.names}
    for key, value in (given | values).items():
        made[key] = value
    return made[()]


def layout(array: np.ndarray, which: str) -> dict[str, int]:
    """ne and nb of tensor `which`, the innermost axis first, as llama.cpp counts: "0" of src0, "1" of src1, "" of dst."""
    axes = range(4)
    shape = [*reversed(array.shape), 1, 1, 1, 1][:4]
    strides = [array.itemsize * int(np.prod(shape[:axis])) for axis in axes]
    return {f"ne{which}{axis}": shape[axis] for axis in axes} | {f"nb{which}{axis}": strides[axis] for axis in axes}


# ---- one item, one result ----


#: As llama.cpp numbers them.
OPERATIONS = ["add", "subtract", "multiply", "divide"]


@pytest.mark.parametrize("name", quickly("add", of=OPERATIONS))
def test_arithmetic_with_rows_repeated(name):
    op, rows = OPERATIONS.index(name), 6 if name == "add" else 1
    a, b = random().standard_normal((6, 100), dtype="float32"), random(1).standard_normal((rows, 100), dtype="float32")
    out, to = empty(a.shape)
    args = struct("bin", layout(a, "0"), layout(b, "1"), layout(a, ""))
    kernel = ggml(
        "binbcast.metal", "kernel_bin_fuse_f32_f32_f32", FC_bin_op=op, FC_bin_f=1, FC_bin_rb=False, FC_bin_cb=False
    )
    kernel(args, on_metal(a), on_metal(b), to, groups=(6, 1, 1), group=(64, 1, 1))
    np.testing.assert_array_equal(np.asarray(out), getattr(np, name)(a, b))


@pytest.mark.parametrize("kind", quickly("neox", of=["norm", "neox"]))
def test_rope(kind):
    heads, tokens, size = 3, 5, 32
    x = random().standard_normal((tokens, heads, size), dtype="float32")
    positions = np.arange(4, 4 + tokens, dtype="i4")
    out, to = empty(x.shape)
    args = struct(
        "rope", layout(x, "0"), layout(x, ""), n_dims=size, n_ctx_orig=4096, freq_base=10000, freq_scale=1,
        attn_factor=1, beta_fast=32, beta_slow=1,
    )  # fmt: skip
    source = on_metal(x)
    kernel = ggml("rope.metal", f"kernel_rope_{kind}_f32", FC_rope_is_back=False)
    kernel(args, source, on_metal(positions), source, to, groups=(heads, tokens, 1), group=(size // 2, 1, 1))
    angle = positions[:, None, None] * 10000.0 ** (-2 * np.arange(size // 2) / size)
    first, second = (x[..., ::2], x[..., 1::2]) if kind == "norm" else (x[..., : size // 2], x[..., size // 2 :])
    turned = first * np.cos(angle) - second * np.sin(angle), first * np.sin(angle) + second * np.cos(angle)
    expected = np.stack(turned, -1).reshape(x.shape) if kind == "norm" else np.concatenate(turned, -1)
    # An angle of up to 8 whose power is within 16 ulp: 8e-6.
    np.testing.assert_allclose(np.asarray(out), expected, atol=2e-5)


# ---- rows ----


def test_softmax_with_a_mask():
    x, mask = random().standard_normal((2, 6, 200), dtype="float32"), random(1).standard_normal((6, 200)).astype("f2")
    out, to = empty(x.shape)
    args = struct(
        "soft_max", layout(x, "0"), layout(mask, "1"), layout(x, ""), scale=0.5, max_bias=0, m0=1, m1=1, n_head_log2=1
    )
    source = on_metal(x)
    kernel = ggml("softmax.metal", "kernel_soft_max_f16")
    kernel(
        args, source, on_metal(mask), source, to, groups=(6, 2, 1), group=(128, 1, 1), threadgroup_memory={"buf": 128}
    )
    scores = 0.5 * x.astype("f8") + mask
    exact = np.exp(scores - scores.max(-1, keepdims=True))
    # exp within 4 ulp of an argument that is rounded at up to 8.
    np.testing.assert_allclose(np.asarray(out), exact / exact.sum(-1, keepdims=True), rtol=3e-6)


def norm_arguments(x, weight, eps):
    nb = [layout(array, "")[f"nb{axis}"] for axis in (1, 2, 3) for array in (x, weight, weight)]
    return struct(
        "norm", layout(x, ""), ne00=x.shape[-1], ne00_t=x.shape[-1], eps=eps, nef1=[x.shape[-2], 1, 1], nef2=[1, 1, 1],
        nef3=[1, 1, 1], nbf1=nb[:3], nbf2=nb[3:6], nbf3=nb[6:], scale=1,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", ["norm", "rms_norm"])
def test_norms_with_a_weight(kind):
    x = random().standard_normal((5, 300), dtype="float32") + 1
    weight = random(1).standard_normal((1, 300), dtype="float32")
    out, to = empty(x.shape)
    factor = on_metal(weight)
    kernel = ggml("norm.metal", f"kernel_{kind}_mul_f32", FC_norm_use_scale=False)
    args = norm_arguments(x, weight, 1e-5)
    kernel(
        args, on_metal(x), factor, factor, to, groups=(5, 1, 1), group=(96, 1, 1), threadgroup_memory={"shmem_f32": 128}
    )
    wide = x.astype("f8")
    wide = wide - wide.mean(-1, keepdims=True) if kind == "norm" else wide
    exact = wide / np.sqrt(np.square(wide).mean(-1, keepdims=True) + 1e-5) * weight
    # The mean of 300 is off by some ulp of one, and what is left of x near it by as much.
    np.testing.assert_allclose(np.asarray(out), exact, rtol=2e-6, atol=1e-6)


def test_sums():
    x = random().integers(-500, 500, (3, 7, 333)).astype("f4")  # exact in each order
    out, to = empty((3, 7, 1))
    args = struct("sum_rows", layout(x, "0"), layout(np.empty((3, 7, 1), "f4"), ""))
    kernel = ggml("reduce.metal", "kernel_sum_rows_f32_f32", FC_sum_rows_op=10)
    kernel(args, on_metal(x), to, groups=(7, 3, 1), group=(96, 1, 1), threadgroup_memory={"shmem": 128})
    np.testing.assert_array_equal(np.asarray(out)[..., 0], x.sum(-1))
    out = md.zeros(1, dtype="float32")
    kernel = ggml("reduce.metal", "kernel_op_sum_f32")
    args = struct("sum", np=x.size)
    kernel(args, md.asarray(x, copy=True), out, groups=1, group=256, threadgroup_memory={"shmem_f32": 128})
    assert np.asarray(out)[0] == x.sum()


@pytest.mark.long
def test_argsort_and_argmax():
    x = random().permutation(6 * 100).astype("f4").reshape(6, 100)
    out = md.zeros((6, 100), dtype="int32")
    args = struct("argsort", layout(x, "0"), layout(x, ""), top_k=100)
    kernel = ggml("argsort.metal", "kernel_argsort_f32_i32_desc")
    kernel(args, on_metal(x), out, groups=(6, 1, 1), group=(128, 1, 1), threadgroup_memory={"shmem_i32": 512})
    np.testing.assert_array_equal(np.asarray(out), np.argsort(-x, 1))
    out, to = empty(6, "int32")
    kernel = ggml("misc.metal", "kernel_argmax_f32")
    args = struct("argmax", ne00=100, nb01=400)
    kernel(args, on_metal(x), to, groups=6, group=96, threadgroup_memory={"shmem": 256})
    np.testing.assert_array_equal(np.asarray(out), x.argmax(1))


# ---- quantised numbers ----


def blocks(kind, rows, columns, seed=0):
    """Random blocks whose scales are ordinary numbers, and what the gguf package makes of them."""
    quants = pytest.importorskip("gguf").quants
    kind = quants.GGMLQuantizationType[kind]
    size, nbytes = quants.GGML_QUANT_SIZES[kind]
    packed = random(seed).integers(0, 256, (rows, columns // size, nbytes), dtype="uint8")
    scales = {"Q6_K": (208,), "Q2_K": (80, 82), "Q3_K": (108,)}
    scales |= dict.fromkeys(("Q4_K", "Q5_K", "Q4_1", "Q5_1"), (0, 2))
    for at in scales.get(kind.name, (0,)):
        scale = random(at).uniform(0.01, 1, packed.shape[:2]).astype("f2")
        packed[..., at : at + 2] = scale[..., None].view("uint8")
    packed = packed.reshape(rows, -1)
    return packed, quants.dequantize(packed, kind)


#: True: its numbers are one product, and so exact; in the others a minimum is subtracted.
KINDS = {"Q4_0": True, "Q8_0": True, "Q6_K": True, "Q5_0": True, "Q3_K": True, "IQ4_NL": True}
KINDS |= {"Q4_1": False, "Q5_1": False, "Q2_K": False, "Q4_K": False, "Q5_K": False}


@pytest.mark.parametrize("kind", quickly("Q4_0", of=KINDS))
def test_rows_of_quantised_numbers(kind):
    packed, expected = blocks(kind, 9, 512)
    rows = random(1).integers(0, 9, 14, dtype="int32")
    out = md.zeros((14, 512), dtype="float32")
    name = kind.lower().replace("_k", "_K")
    args = struct(
        "get_rows", ne00t=32, ne00=512, nb01=packed.shape[1], nb02=packed.nbytes, nb03=packed.nbytes, ne10=14, nb10=4,
        nb11=56, nb12=56, nb1=2048, nb2=out.nbytes, nb3=out.nbytes,
    )  # fmt: skip
    kernel = ggml("quantize.metal", f"kernel_get_rows_{name}")
    kernel(args, on_metal(packed), on_metal(rows), out.view("int8"), groups=(14, 1, 1), group=(32, 1, 1))
    if KINDS[kind]:
        np.testing.assert_array_equal(np.asarray(out), expected[rows])
    else:  # what cancels leaves an ulp of the product
        np.testing.assert_allclose(np.asarray(out), expected[rows], rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_numbers_are_quantised(kind):
    quants = pytest.importorskip("gguf").quants
    x = random().standard_normal((5, 128), dtype="float32")
    expected = quants.quantize(x, quants.GGMLQuantizationType[kind])
    out, to = empty(expected.shape, "uint8")
    args = struct("cpy", layout(x, "0"), layout(x, ""), nk0=4, nb0=expected.shape[1] // 4)
    args["nb1"] = expected.shape[1]
    kernel = ggml("quantize.metal", f"kernel_cpy_f32_{kind.lower()}")
    kernel(args, on_metal(x), to, groups=(5, 1, 1), group=(4, 1, 1))
    back = quants.dequantize(np.asarray(out), quants.GGMLQuantizationType[kind])
    # A tie between two codes may go either way: half a step, beside what gguf makes of it.
    np.testing.assert_allclose(
        back, quants.dequantize(expected, quants.GGMLQuantizationType[kind]), atol=np.abs(x).max() / 7
    )
    assert (np.asarray(out) == expected).mean() > 0.99


# ---- products ----


@pytest.mark.long
@pytest.mark.parametrize(("kind", "groups", "group"), [("Q4_0", 3, 2), ("Q8_0", 12, 4), ("Q6_K", 6, 2)])
def test_quantised_matrix_times_vectors(kind, groups, group):
    packed, matrix = blocks(kind, 24, 512)
    vectors = random(1).standard_normal((3, 512), dtype="float32")
    out, to = empty((3, 24))
    args = struct(
        "mul_mv", layout(vectors, "1"), ne00=512, ne01=24, ne02=1, nb00=1, nb01=packed.shape[1], nb02=packed.nbytes,
        nb03=packed.nbytes, ne0=24, ne1=3, r2=1, r3=1,
    )  # fmt: skip
    constants = {"FC_mul_mv_nsg": group, "FC_mul_mv_ne12": 1, "FC_mul_mv_r2": 1, "FC_mul_mv_r3": 1}
    name = kind.lower().replace("_k", "_K")
    kernel = ggml("mul_mv.metal", f"kernel_mul_mv_{name}_f32", **constants)
    memory = {} if kind == "Q6_K" else {"shmem": 256}  # which uses none
    sides = on_metal(packed), on_metal(vectors), to
    kernel(args, *sides, groups=(groups, 3, 1), group=(32, group, 1), threadgroup_memory=memory)
    matrix = matrix.astype("f8")
    # 512 products that cancel, of which llama.cpp sums the codes apart: the error follows the sum of magnitudes.
    error = np.abs(np.asarray(out) - vectors @ matrix.T)
    assert (error < 2e-6 * (np.abs(vectors) @ np.abs(matrix).T)).all()


def run_product(kind, a, b, to, *layouts, ne0, ne1, **more):
    args = struct("mul_mm", *layouts, ne0=ne0, ne1=ne1, r2=1, r3=1, **more)
    is_edge = {"FC_mul_mm_bc_inp": args["ne00"] % 32 != 0, "FC_mul_mm_bc_out": ne0 % 64 != 0 or ne1 % 32 != 0}
    constants = {**is_edge, "FC_mul_mm_ne12": 1, "FC_mul_mm_r2": 1, "FC_mul_mm_r3": 1}
    kernel = ggml("mul_mm.metal", f"kernel_mul_mm_{kind}_f32", **constants)
    groups = -(-ne1 // 32), -(-ne0 // 64), 1
    kernel(args, a, b, to, groups=groups, group=(128, 1, 1), threadgroup_memory={"shmem": 8192})


UNALIGNED = pytest.mark.xfail(
    HAS_SOFTMETAL,
    reason="llama.cpp writes float4 at multiples of 8 bytes where m is 70: a GPU does, what clang compiles faults",
    run=os.environ.get("SOFTMETAL_KERNEL_CHECK") == "1",  # which reports it
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (64, 32, 64),
        (72, 37, 50),
        pytest.param(70, 37, 50, marks=[UNALIGNED]),
    ],
)
@pytest.mark.parametrize(("kind", "dtype"), [("f32", "f4"), ("f16", "f2")])
def test_a_product_of_matrices(kind, dtype, m, n, k):
    """simdgroup_matrix over tiles in threadgroup memory that the launch gives."""
    a, b = random().integers(-4, 5, (m, k)).astype(dtype), random(1).integers(-4, 5, (n, k)).astype("f4")
    out, to = empty((n, m))
    run_product(kind, on_metal(a), on_metal(b), to, layout(a, "0"), layout(b, "1"), ne0=m, ne1=n)
    np.testing.assert_array_equal(np.asarray(out), b @ a.T.astype("f4"))


def run_attention(kind, q, k, v, to):
    """kernel_flash_attn_ext_vec of heads of 64 numbers, a SIMD-group for each query."""
    size, (heads, keys, _), queries = 64, k.shape, q.shape[1]
    strides = {
        f"nb{which}{axis}": x.strides[2 - axis] for which, x in (("0", q), ("1", k), ("2", v)) for axis in (1, 2)
    }
    args = struct(
        "flash_attn_ext_vec", strides, ne01=queries, ne02=heads, ne03=1, ne11=keys, ne_12_2=heads, ne_12_3=1,
        ns10=size, ns20=size, ne32=1, ne33=1, ne1=heads, ne2=queries, ne3=1, scale=size**-0.5,
    )  # fmt: skip
    names = ("mask", "sinks", "bias", "scap", "kvpad", "sparse")
    constants = {f"FC_flash_attn_ext_vec_has_{name}": False for name in names}
    constants |= {f"FC_flash_attn_ext_vec_{name}": size for name in ("ns10", "ns20")}
    constants |= {"FC_flash_attn_ext_vec_nsg": 1, "FC_flash_attn_ext_vec_nwg": 1}
    kernel = ggml(f"fa_vec_{kind}.metal", f"kernel_flash_attn_ext_vec_{kind}_dk64_dv64", **constants)
    none = md.zeros(16, dtype="int8")
    arrays = [on_metal(q), on_metal(k), on_metal(v), none, none, none, to, none]
    kernel(args, *arrays, groups=(queries, heads, 1), group=32, threadgroup_memory={"shmem_f16": 1024})


@pytest.mark.long
@kernel_sources.reported("Twice the scratch is zeroed: the second half is the result's, zeroed as well.")
@pytest.mark.parametrize(("kind", "of_cache"), [("f32", "f4"), ("f16", "f2")])
def test_attention_over_a_cache_of_keys(kind, of_cache):
    q, k, v = (random(n).standard_normal((2, rows, 64)).astype("f4") for n, rows in enumerate((3, 256, 256)))
    k, v = k.astype(of_cache), v.astype(of_cache)
    out, to = empty((3, 2, 64))
    run_attention(kind, q, k, v, to)
    scores = np.einsum("hqd,hkd->hqk", q.astype("f8"), k) / 8
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("hqk,hkd->qhd", weights / weights.sum(-1, keepdims=True), v)
    # The query is rounded to half, and so are products of it: 2^-11 of the scores, which are below 5
    np.testing.assert_allclose(np.asarray(out), wanted, atol=4e-3)


def test_a_product_with_a_quantised_matrix():
    packed, matrix = blocks("Q4_0", 64, 128)
    b = random(1).standard_normal((32, 128), dtype="float32")
    out, to = empty((32, 64))
    nb = {"nb01": packed.shape[1], "nb02": packed.nbytes, "nb03": packed.nbytes}
    run_product("q4_0", on_metal(packed), on_metal(b), to, layout(b, "1"), ne0=64, ne1=32, ne00=128, ne02=1, **nb)
    # Both sides are rounded to half before the product.
    exact = b.astype("f2").astype("f8") @ matrix.astype("f2").astype("f8").T
    np.testing.assert_allclose(np.asarray(out), exact, atol=2e-6 * (np.abs(b) @ np.abs(matrix).T).max())
