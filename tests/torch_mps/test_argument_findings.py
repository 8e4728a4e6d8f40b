"""What a call of torch.mps.compile_shader gives against the kernel's parameters: a Mac's bytes, and what the checker says."""

import re
import struct

import pytest

import _metal_dlpack_pytest as plugin
import softmetal

pytestmark = [
    pytest.mark.needs_softmetal,
    pytest.mark.needs_torch,
    pytest.mark.needs_kernels,
    pytest.mark.needs_no_sanitizer,
]

READS = """
#include <metal_stdlib>
using namespace metal;
kernel void f(device const {kind} *x, device {kind} *y, uint i [[thread_position_in_grid]]) {{ y[i] = x[i]; }}
"""

VALUE = """
#include <metal_stdlib>
using namespace metal;
kernel void f(constant {kind} &x, device {kind} *y) {{ y[0] = x; }}
"""


@pytest.fixture
def found(request, torch, settings):
    """What the checker says of a call: "" where it says nothing."""
    settings(kernel_check=1, validation_mode="log")

    def run(call):
        before = softmetal.reports()
        call()
        try:
            torch.mps.synchronize()
        except RuntimeError as error:
            request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
            return str(error)
        assert softmetal.reports() == before
        return ""

    return run


def compiled(torch, source, **names):
    return torch.mps.compile_shader(source.format(**names) if names else source)


@pytest.mark.parametrize(("kind", "dtype", "way_out"), [
    ("int", "int64", "(.to(torch.int32)), or declare the parameter long"),
    ("uint", "int64", "(.to(torch.uint32)), or declare the parameter long"),
    ("long", "int32", "declare the parameter int"),
    ("short", "int32", "(.to(torch.int16))"),
    ("float", "int32", "(.to(torch.float32)), or declare the parameter int"),
    ("float", "int64", "(.to(torch.float32))"),
    ("int", "float32", "declare the parameter float"),
    ("float", "float16", "declare the parameter half"),
    ("float4", "float16", "declare the parameter half"),
    ("half", "float32", "(.to(torch.float16))"),
    ("half", "bfloat16", "declare the parameter bfloat"),
    ("bfloat", "float16", "(.to(torch.bfloat16))"),
    ("int", "bool", "declare the parameter bool"),
    ("float", "bool", "(.to(torch.float32))"),
    ("bool", "int64", "(.to(torch.bool))"),
    ("half2", "complex64", "(.to(torch.float16))"),
])  # fmt: skip
@pytest.mark.some(4)
def test_a_tensor_of_another_type_is_told_with_both_and_the_way_out(torch, found, kind, dtype, way_out):
    f = compiled(torch, READS, kind=kind).f
    x, y = (
        torch.zeros(64, dtype=getattr(torch, dtype), device="mps"),
        torch.zeros(1024, dtype=torch.uint8, device="mps"),
    )
    said = found(lambda: f(x, y, threads=8))
    assert f"f: a thread reads buffer 0 (x) as {kind}, and it was given a tensor of {dtype}: " in said
    assert way_out in said and re.search(r"test_argument_findings.py:\d+:\d+, thread \(0,0,0\)", said)


@pytest.mark.parametrize(("kind", "dtype"), [
    ("int", "int32"), ("uint", "int32"), ("int", "uint32"), ("ulong", "int64"), ("ushort", "int16"), ("uchar", "int8"),
    ("float2", "float32"), ("packed_float3", "float32"), ("half4", "float16"), ("uchar4", "uint8"), ("bool", "bool"),
    ("float2", "complex64"), ("float", "complex64"),
    # bytes, and the bits of numbers that this version of the language has not
    ("float", "uint8"), ("uint", "uint8"), ("uchar", "float32"), ("char", "int64"), ("bool", "uint8"), ("ushort", "bfloat16"),
])  # fmt: skip
@pytest.mark.some(4)
def test_a_type_that_may_be_meant_is_not_told(torch, found, kind, dtype):
    f = compiled(torch, READS, kind=kind).f
    x, y = (
        torch.zeros(64, dtype=getattr(torch, dtype), device="mps"),
        torch.zeros(1024, dtype=torch.uint8, device="mps"),
    )
    assert found(lambda: f(x, y, threads=4)) == ""


CASTS = """
#include <metal_stdlib>
using namespace metal;
struct Pair { float a; int b; };
kernel void structs(device const Pair *x, device float *y) { y[0] = x[0].a; }
kernel void unknown(device const void *x, device float *y) { y[0] = *(device const float *)x; }
kernel void cast(device const float *x, device float *y) { y[0] = float(*(device const half *)x); }
kernel void atomics(device atomic_uint *x, device float *y) { atomic_fetch_max_explicit(x, 1u, memory_order_relaxed); }
kernel void unused(device const int *x, device float *y) { if (y[0] > 1) y[1] = x[0]; }
kernel void meant(device const int *x, device float *y)
{
    y[0] = x[0]; // softmetal: benign the bits are what is wanted
}
"""


@pytest.mark.parametrize(("name", "dtype"), [
    ("structs", "float32"), ("structs", "int64"), ("unknown", "float32"), ("cast", "float16"), ("atomics", "float32"),
    ("atomics", "float16"), ("atomics", "int64"), ("unused", "float32"), ("meant", "float32"),
])  # fmt: skip
@pytest.mark.some(3)
def test_a_use_that_is_meant_is_not_told(torch, found, name, dtype):
    f = getattr(compiled(torch, CASTS), name)
    x, y = torch.zeros(8, dtype=getattr(torch, dtype), device="mps"), torch.zeros(8, device="mps")
    assert found(lambda: f(x, y, threads=1)) == ""


# ---- values ----


@pytest.mark.parametrize(("kind", "value", "casts", "gets", "told"), [
    ("float", 2, None, "<q", "as float, and it was given 2, which torch gives as int64: give 2.0"),
    ("float", True, None, "<q", "as float, and it was given True, which torch gives as int64: give 1.0"),
    ("float", 2, "int32", "<i", "as float, and it was given 2, which torch gives as int32: give 2.0"),
    ("half", 1.5, None, "<f", 'which torch gives as float32: give arg_casts={0: "fp16"}'),
    ("bfloat", 2, None, "<q", 'which torch gives as int64: give arg_casts={0: "bf16"}'),
    ("int", 2.0, None, "<f", "as int, and it was given 2.0, which torch gives as float32: give a whole number"),
    ("int", 1 << 40, None, "<q", "as int, and it was given 1099511627776, which torch gives as int64: give whole numbers that fit"),
    ("bool", 2, None, "<q", "as bool, and it was given 2,"),
    ("int2", [1, 2], None, "<qq", '[1, 2], which torch gives as int64: give arg_casts={0: "int32"}'),
    ("float2", [1, 2], None, "<qq", "give floats"),
    ("int", 7, None, "<q", ""), ("uint", -1, None, "<q", ""), ("int", 0xFFFFFFFF, None, "<q", ""), ("short", -3, None, "<q", ""),
    ("bool", True, None, "<q", ""), ("long", 1 << 40, None, "<q", ""), ("long2", [1, 2], None, "<qq", ""),
    ("uint2", (3 << 32) + 4, None, "<q", ""), ("half", 1.5, "fp16", "<e", ""), ("int2", [1, 2], "int32", "<ii", ""),
    ("int", float("inf"), None, "<f", "given inf, which torch gives as float32: give a whole number"),
    ("float", 1.5, None, "<f", ""), ("float2", [1.5, 2.5], None, "<ff", ""),
])  # fmt: skip
@pytest.mark.some(5)
def test_a_number_s_bytes_are_torch_s_and_another_type_is_told(torch, found, kind, value, casts, gets, told):
    f = compiled(torch, VALUE, kind=kind).f
    y = torch.zeros(32, dtype=torch.uint8, device="mps")
    said = found(lambda: f(value, y, threads=1, arg_casts=casts))
    assert told in said if told else said == ""
    if kind != "bool":  # of which 2 is neither
        numbers = value if isinstance(value, list) else [value]
        size = 2 * (kind[-1] == "2") or 1
        nbytes = {"float": 4, "half": 2, "bfloat": 2, "int": 4, "uint": 4, "short": 2, "long": 8}[
            kind.rstrip("2")
        ] * size
        assert bytes(y[:nbytes].tolist()) == struct.pack(gets, *numbers)[:nbytes]


@pytest.mark.parametrize(
    ("dtype", "told"), [("int64", "given 3, which torch gives as int64: give 3.0"), ("float64", "")]
)
def test_a_tensor_of_the_cpu_without_axes_is_a_number(torch, found, dtype, told):
    f, y = compiled(torch, VALUE, kind="float").f, torch.zeros(1, device="mps")
    said = found(lambda: f(torch.tensor(3, dtype=getattr(torch, dtype)), y, threads=1))
    assert told in said if told else said == ""


# ---- strides ----

STRIDED = """
#include <metal_stdlib>
using namespace metal;
kernel void plain(device float *y, device const float *x, constant float &s, uint i [[thread_position_in_grid]])
{
    y[i] = x[i] * s;
}
kernel void product(device float *y, device const float *x, device const float *z, constant uint &n,
                    uint2 p [[thread_position_in_grid]])
{
    float sum = 0;
    for (uint k = 0; k < n; k++)
        sum += x[p.y * n + k] * z[k * n + p.x];
    y[p.y * n + p.x] = sum;
}
kernel void knows(device float *y, device const float *x, constant long2 &steps, constant long &n,
                  uint i [[thread_position_in_grid]])
{
    y[i] = x[i / n * steps.x + i % n * steps.y];
}
kernel void reads(device float *y, device const float *x, device const long *steps, uint i [[thread_position_in_grid]])
{
    y[i] = x[i / 8 * steps[0] + i % 8 * steps[1]];
}
kernel void image(device uchar *y, device const uchar *x, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
kernel void inplace(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
"""

GAPS = "bytes 4 to 7 of buffer 1 (x) between the items of the strided tensor that was given: give it .contiguous() (shape (8, 8), strides (16, 2))"
ORDER = "buffer 1 (x) in the order of memory, which is not that of the strided tensor that was given: give it .contiguous(), or its strides too (shape (8, 8)"


@pytest.mark.parametrize(("call", "told"), [
    ("plain(y, w[:8, ::2], 2.0)", GAPS),
    ("plain(y, w[:8, :8], 2.0)", "bytes 32 to 35 of buffer 1 (x) between the items"),
    ("plain(w[:8, ::2], x, 2.0)", "writes bytes 4 to 7 of buffer 0 (y) between the items"),
    ("plain(y, x.t(), 2.0)", ORDER),
    ("product(y, x.t(), x, 8, threads=(8, 8), group_size=(8, 8))", ORDER),
    ("plain(y, x, 2.0)", ""),
    ("plain(y, w[:4], 2.0)", ""),
    ("plain(y.t(), x.t(), 2.0)", ""),  # both in one order
    ("inplace(x.t())", ""),
    ("knows(y, w[:8, ::2], (16, 2), 8)", ""),
    ("knows(y, x.t(), x.t().stride(), 8)", ""),
    ("reads(y, x.t(), torch.tensor([1, 8], device='mps'))", ""),
    ("plain(y, w.as_strided((8, 8), (4, 1)), 2.0, threads=36)", ""),  # overlapping items: whoever makes it knows
    ("plain(images, images.contiguous(memory_format=torch.channels_last), 2.0)", ""),
    ("plain(y, x[:, :1], 2.0, threads=1)", ""),
    ("image(bytes, bytes.clone()[:4, :4], threads=16)", "byte 4 of buffer 1 (x) between the items"),
    ("image(bytes, w[:4, :4], threads=64)", ""),  # memory
])  # fmt: skip
@pytest.mark.some(4)
def test_a_strided_tensor_is_told_where_the_kernel_takes_it_for_a_plain_one(torch, found, call, told):
    lib = compiled(torch, STRIDED)
    names = {name: getattr(lib, name) for name in dir(lib)} | {"torch": torch}
    names["x"], names["y"] = torch.rand(8, 8, device="mps"), torch.zeros(8, 8, device="mps")
    names["w"], names["images"] = torch.rand(16, 16, device="mps"), torch.rand(2, 3, 4, 4, device="mps")
    names["bytes"] = torch.zeros(8, 8, dtype=torch.uint8, device="mps")
    said = found(lambda: eval(call, names))
    assert told in said if told else said == ""


def test_the_kernel_gets_the_bytes_from_the_first_item_on(torch):
    x, y = torch.arange(16.0, device="mps").reshape(4, 4), torch.zeros(4, device="mps")
    compiled(torch, STRIDED).plain(y, x[1:, ::2], 1.0)
    assert y.tolist() == [4, 5, 6, 7]


def test_a_type_is_told_once_and_beside_a_race_of_the_same_line(torch, found):
    source = "kernel void f(device int *x, uint i [[thread_position_in_grid]]) {{ x[0] += 1; x[i] += {kind}(1); }}"
    before = softmetal.reports()
    found(lambda: compiled(torch, source, kind="int").f(torch.zeros(8, device="mps")))
    assert softmetal.reports() == before + 3  # the type, and the race on either side


@pytest.mark.parametrize(("argument", "words"), [
    ("torch.zeros(2)", "Passed CPU tensor"), ("torch.eye(2).to_sparse().to('mps')", "layout Sparse"),
    ("torch.empty(2, device='meta')", "is a tensor on meta"), ("None", "Unsupported argument type"),
])  # fmt: skip
def test_a_checked_kernel_refuses_what_others_refuse(torch, settings, argument, words):
    settings(kernel_check=1)
    f = compiled(torch, VALUE, kind="float").f
    with pytest.raises(RuntimeError, match=words):
        f(eval(argument), torch.zeros(1, device="mps"), threads=1)
