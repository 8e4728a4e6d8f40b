"""Kernels that others wrote: each instantiation is translated, and clang takes it."""

import re

import kernel_sources
import pytest
import type_checks

from metal_dlpack import kernel_source
from metal_dlpack.language import signatures
from metal_dlpack.language.tokens import Tokens
from softmetal.msl import compiler
from softmetal.msl.kernels import KERNEL
from softmetal.msl.translation import Translation

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\n#include <metal_simdgroup>\nusing namespace metal;\n"
SHARE = 0.95

#: Files of llama.cpp that are no library of their own.
INCLUDED = {"fa_common.metal", "fa_vec_common.metal"}

FLOATS = ("float", "half", "bfloat16_t")
NUMBERS = (*FLOATS, "int32_t", "uint8_t", "int64_t")
UNARY = "Abs ArcCos Ceil Cos Erf Exp Floor Log Negative Round Rsqrt Sigmoid Sign Sin Sqrt Square Tan Tanh"
BINARY = "Add Divide Equal Greater LogAddExp Maximum Minimum Multiply NotEqual Power Remainder Subtract"
REDUCED = ["Sum", "Prod", "Min", "Max"]

#: What MLX makes of its headers at run time: (headers, {kernel: template arguments}).
MLX = {
    "arange": ("arange.h", {"arange": NUMBERS}),
    "unary": (
        "unary_ops.h unary.h",
        {
            kernel: [f"{kind}, {kind}, {op}" for op in UNARY.split() for kind in FLOATS]
            for kernel in ("unary_v", "unary_v2", "unary_g")
        },
    ),
    "binary": (
        "binary_ops.h binary.h",
        {
            kernel: [f"{kind}, {kind}, {op}" for op in BINARY.split() for kind in (*FLOATS, "int32_t")]
            for kernel in ("binary_ss", "binary_vv", "binary_sv", "binary_vs", "binary_g_nd1", "binary_g_nd2")
        },
    ),
    "ternary": ("ternary_ops.h ternary.h", {"ternary_v": [f"{kind}, Select, false, true" for kind in NUMBERS]}),
    "copy": (
        "copy.h",
        {kernel: [f"{a}, {b}" for a in NUMBERS for b in NUMBERS] for kernel in ("copy_s", "copy_v", "copy_g_nd1")},
    ),
    "softmax": (
        "softmax.h",
        {kernel: ["float", "half, float", "bfloat16_t, float"] for kernel in ("softmax_single_row", "softmax_looped")},
    ),
    "logsumexp": ("logsumexp.h", {"logsumexp": FLOATS, "logsumexp_looped": FLOATS}),
    "scan": (
        "scan.h",
        {
            "contiguous_scan": [
                f"{kind}, {kind}, Cum{op}<{kind}>, 4, {inclusive}, {reverse}"
                for kind in ("float", "half", "int32_t")
                for op in ("Sum", "Prod", "Max", "Min")
                for inclusive in ("true", "false")
                for reverse in ("true", "false")
            ]
        },
    ),
    "reduce": (
        "atomic.h reduction/ops.h reduce.h",
        {"all_reduce": [f"{kind}, {kind}, {op}<{kind}>" for kind in ("float", "int32_t", "half") for op in REDUCED]},
    ),
    "gather": ("indexing/gather_front.h", {"gather_front": [f"{kind}, int32_t, int, 4" for kind in NUMBERS]}),
    "sort": (
        "sort.h",
        {"block_sort": [f"{kind}, {kind}, false, 128, 4" for kind in NUMBERS]},
    ),
    "quantized": (
        "steel/gemm/gemm.h quantized_utils.h quantized.h",
        {
            "affine_dequantize": [f"{kind}, {group}, {bits}" for kind in FLOATS for group in (32, 64) for bits in (2, 4, 8)],
            "affine_qmv_fast": [f"{kind}, {group}, {bits}, false" for kind in FLOATS for group in (32, 64) for bits in (2, 4, 8)],
        },
    ),
    "gemv": ("steel/utils.h gemv.h", {"gemv": [f"{kind}, 1, 8, 1, 32, 4, 4, false, 0" for kind in FLOATS]}),
    "gemm": (
        "steel/gemm/gemm.h steel/gemm/kernels/steel_gemm_fused.h",
        {"gemm": [f"{kind}, 32, 32, 16, 2, 2, {a}, {b}, float" for kind in FLOATS for a in ("true", "false") for b in ("true", "false")]},
    ),
    "copy of views": ("copy.h", {"copy_g": ["float, half, 2, int"]}),
    "loss": ("defines.h cross_entropy.h", {"cross_entropy": ["float"]}),
    "search": ("sort.h searchsorted.h", {"searchsorted": ["int, true", "int, false"]}),
    "hadamard": ("hadamard.h", {"hadamard_n": ["float, 512, 16, 4"]}),
    "attention": ("sdpa_vector.h", {"sdpa_vector": [f"{kind}, {size}" for kind in FLOATS for size in (64, 128)]}),
}  # fmt: skip


def mlx(group):
    headers, kernels = MLX[group]
    text = HEAD + "".join(f'#include "mlx/backend/metal/kernels/{name}"\n' for name in ("utils.h", *headers.split()))
    for kernel, arguments in kernels.items():
        text += "".join(f'instantiate_kernel("{kernel}_{n}", {kernel}, {types})\n' for n, types in enumerate(arguments))
    return type_checks.translated(text, (kernel_sources.mlx(),))


def ggml(file):
    folder, *others = kernel_sources.ggml_folders()
    bfloat = "#define GGML_METAL_HAS_BF16 1\n"  # llama.cpp defines it where Metal has bfloat
    return type_checks.translated(bfloat + (folder / file).read_text(), (folder, *others))


def assert_nearly_all(translations):
    """Check all instantiations; the message lists each that clang refuses, with the first line of what it says."""
    counts, refused = {}, []
    for name, translation in translations.items():
        found = type_checks.refused(translation, list(translation.kernels))
        counts[name] = (len(translation.kernels), len(found))
        refused += [f"{name}: {kernel}: {said.splitlines()[0]}" for kernel, said in found.items()]
    all_of_them = sum(count for count, _ in counts.values())
    table = [f"{name}: {count}, refused: {bad}" for name, (count, bad) in counts.items()]
    told = "\n".join([*table, f"in all: {all_of_them}, refused: {len(refused)}", *refused])
    print(told)
    assert all_of_them - len(refused) >= SHARE * all_of_them, told
    return all_of_them


@pytest.mark.long
def test_each_instantiation_of_mlx():
    translations = {group: mlx(group) for group in MLX}
    assert {group: len(found.kernels) for group, found in translations.items()} == {
        group: sum(map(len, kernels.values())) for group, (_, kernels) in MLX.items()
    }
    assert assert_nearly_all(translations) > 600


@pytest.mark.long
def test_each_instantiation_of_llama_cpp():
    folder, *_ = kernel_sources.ggml_folders()
    files = sorted({path.name for path in folder.glob("*.metal")} - INCLUDED)
    assert assert_nearly_all({file: ggml(file) for file in files}) > 900


def test_what_is_refused_is_named():
    """Also where two instantiations share what is wrong, and clang reports it once."""
    text = HEAD + "template <class T> T g(T x) { return x.y; }\n"
    text += "template <class T> kernel void f(device T *x) { x[0] = g(x[0]); }\n"
    text += "template <class T> kernel void h(device T *x, device int *y) { y[0] = g(x[0]); }\n"
    for name, kind in {"one": "float", "two": "float2", "three": "int"}.items():
        text += f'template [[host_name("f_{name}")]] kernel void f<{kind}>(device {kind} *);\n'
        text += f'template [[host_name("h_{name}")]] kernel void h<{kind}>(device {kind} *, device int *);\n'
    translation = type_checks.translated(text)
    refused = type_checks.refused(translation, list(translation.kernels))
    assert " ".join(sorted(refused)) == "f_one f_three h_one h_three h_two"  # a float2 is made of a float, no int of it


def test_torchs_headers(tmp_path):
    """Only quoted names are looked for in folders: in a copy, torch's own includes are quoted."""
    headers = sorted((kernel_sources.torch() / "c10/metal").glob("*.h"))
    assert {"special_math.h", "reduction_utils.h", "atomic.h"} <= {path.name for path in headers}
    (tmp_path / "c10/metal").mkdir(parents=True)
    for path in headers:
        text = re.sub(r"<(c10/metal/\w+\.h)>", r'"\1"', path.read_text())
        (tmp_path / "c10/metal" / path.name).write_text(text)
    text = HEAD + "".join(f'#include "c10/metal/{path.name}"\n' for path in headers)
    text += "kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] = c10::metal::erf(x[i]); }"
    assert type_checks.refused(type_checks.translated(text, (tmp_path,)), ["f"]) == {}


#: Functors as torch's own kernels have them, and what makes kernels of them.
TORCH = """
#include <c10/metal/indexing.h>
#include <c10/metal/special_math.h>
using c10::metal::erf;
DEFINE_UNARY_FLOATING_FUNCTOR(erf);
DEFINE_BINARY_COMPARISON_FUNCTOR(lt, <);
struct mul_functor { template <class T> T operator()(T a, T b) { return c10::metal::mul(a, b); } };
struct lerp_functor { template <class T> T operator()(T a, T b, T c) { return T(a + c * (b - a)); } };
struct pow_functor { template <class T> T operator()(T a, float b) { return T(pow(float(a), b)); } };
REGISTER_UNARY_OP(erf, int, float);
"""


@pytest.mark.long
def test_what_torchs_macros_register():
    text = HEAD + TORCH
    for kind in ("float", "half", "bfloat"):
        text += f"""
        REGISTER_UNARY_OP(erf, {kind}, {kind}); REGISTER_UNARY_ALPHA_OP(pow, {kind}, float, {kind});
        REGISTER_BINARY_OP(lt, {kind}, bool); REGISTER_BINARY_CASTOUT_OP(lt, {kind}, bool);
        REGISTER_OPMATH_BINARY_OP(mul, {kind}, {kind}); REGISTER_BINARY_ALPHA_OP(lerp, {kind}, {kind}, {kind});
        REGISTER_TERNARY_OP(lerp, {kind}, {kind});
        """
    translation = type_checks.translated(text, (kernel_sources.torch(),))
    assert len(translation.kernels) > 80
    assert type_checks.refused(translation, list(translation.kernels)) == {}


@pytest.mark.long
@pytest.mark.parametrize(("name", "least"), [("DecodeAttention", 100), ("PrefillAttention", 120)])
def test_kernels_that_torch_carries(name, least):
    """The .metal files of torch include these; SortTopK.h, with 1,157 instantiations, takes a minute."""
    text = HEAD + f"#include <c10/metal/utils.h>\n#include <ATen/native/mps/kernels/{name}.h>\n"
    translation = type_checks.translated(text, (kernel_sources.torch(),))
    assert len(translation.kernels) > least
    assert type_checks.refused(translation, list(translation.kernels)) == {}


def test_every_word_keeps_its_line():
    """Each word of C++ that the user wrote stands where the user wrote it: the lines of real sources, before and after."""
    translation = ggml("mul_mv.metal")
    before, after = where(translation._source), where(Tokens.of(translation.checked_text()))
    assert len(after) > 10_000
    assert after - before == set()


def where(tokens):
    """(file, line, word) of every plain word that the translator does not write itself."""
    file, line, found = "", 0, set()
    own = re.compile(r"literal|inline|const|float|half|true|false|static|constexpr|typedef|int|bool|softmetal\w*")
    for gap, word in zip(tokens.gaps, tokens.words, strict=True):
        for text in gap.splitlines(keepends=True):
            if directive := re.match(r'#line (\d+) "(.*)"', text):
                line, file = int(directive[1]) - 1, directive[2]
            line += text.endswith("\n")
        if word.isidentifier() and not own.fullmatch(word):
            found.add((file, line, word))
    return found


# ---- in which order a call gives arguments ----


def listings(translation, kernel):
    """What Metal may list, in the order of the compiler's parameters: with and without what constants take away."""
    found = []
    for one in translation._binders(kernel.declaration):
        bound = re.search(r"softmetal::(buffer|threadgroup)<\(*\s*(\d*)", one.binder)
        if bound:
            found.append(((one.name, bound[1], int(bound[2] or len(found))), bool(one.condition)))
    yield [binding for binding, _ in found]
    yield [binding for binding, is_optional in found if not is_optional]


def ordered(text, folders):
    """How many listings come into the compiler's order by the text that nothing has preprocessed."""
    text = kernel_source.compose(text, (None, None, folders, "safe"))
    translation = Translation(compiler.find().preprocess(text))
    count = 0
    for name, kernel in translation.kernels.items():
        if kernel.stage == KERNEL and id(kernel.declaration) not in translation._lacks:
            for bindings in listings(translation, kernel):
                places = signatures.order(text, (name, bindings[::-1]))
                assert [place.name for place in places] == [binding[0] for binding in bindings], name
                count += 1
    return count


def test_the_order_of_a_call_is_the_compilers():
    """Templates, host names, constants, and what macros make keep it."""
    folders = kernel_sources.ggml_folders()
    texts = [(folders[0] / f"{name}.metal").read_text() for name in ("mul_mv", "norm", "rope")]
    assert sum(ordered(text, folders) for text in texts) > 280
    text = HEAD + "".join(f'#include "mlx/backend/metal/kernels/{name}.h"\n' for name in ("utils", "copy", "softmax"))
    text += 'instantiate_kernel("a", copy_v, float, half)\ninstantiate_kernel("b", softmax_looped, float)\n'
    assert ordered(text, (kernel_sources.mlx(),)) == 4
    text = HEAD + TORCH + "REGISTER_UNARY_OP(erf, float, float); REGISTER_BINARY_OP(lt, half, bool);"
    assert ordered(text, (kernel_sources.torch(),)) > 20
