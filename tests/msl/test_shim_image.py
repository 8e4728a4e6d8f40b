"""SOFTMETAL_IMAGE: binders, reflection, what an image says of itself; and the code that clang makes of a row."""

import ctypes
import re
import subprocess

import numpy as np
import pytest
from kernel_images import quickly

import metal_dlpack as md
from softmetal.msl import flags

BUFFER, THREADGROUP = 0, 1


class Image(ctypes.Structure):
    """The beginning of softmetal_kernel.h's soft_image."""

    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
        ("arguments", ctypes.c_void_p),
        ("threadgroup_nbytes", ctypes.c_uint64),
        ("has_syncs", ctypes.c_uint8),
        ("is_checked", ctypes.c_uint8),
    ]


class Facts(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_uint8),
        ("is_written", ctypes.c_uint8),
        ("index", ctypes.c_uint16),
        ("data_type", ctypes.c_uint32),
        ("nbytes", ctypes.c_uint32),
        ("alignment", ctypes.c_uint32),
        ("texture_type", ctypes.c_uint8),
        ("is_depth", ctypes.c_uint8),
        ("is_read", ctypes.c_uint8),
        ("count", ctypes.c_uint32),
    ]


def image_text(parameters, body="", before=""):
    """parameters: (C++ declaration, name, binder)."""
    names = ", ".join(f'"{name}"' for _, name, _ in parameters)
    binders = "".join(f", softmetal::{binder}" for _, _, binder in parameters)
    declared = ", ".join(declaration for declaration, _, _ in parameters)
    return f"""using namespace metal;
    {before}
    static void kernel_under_test({declared}) {{ {body} }}
    static const char *const softmetal_argument_names[] = {{{names}}};
    SOFTMETAL_IMAGE(kernel_under_test{binders})
    """


def load(shim, text, **options):
    library = ctypes.CDLL(str(shim.image(text, **options)))
    image = Image.in_dll(library, "softmetal_image")
    image.library = library
    return image


def facts(image):
    rows = ctypes.cast(image.arguments, ctypes.POINTER(Facts))
    return [rows[k] for k in range(image.argument_count)]


#: SPEC MTLDataType of Metal's headers.
DATA_TYPES = {
    "float": 3,
    "float2": 4,
    "float4": 6,
    "packed_float3": 5,
    "float2x2": 7,
    "float2x3": 8,
    "float3x2": 10,
    "float4x4": 15,
    "half": 16,
    "half3": 18,
    "half2x2": 20,
    "half4x4": 28,
    "int": 29,
    "uint": 33,
    "uint4": 36,
    "short": 37,
    "ushort": 41,
    "char": 45,
    "uchar": 49,
    "bool": 53,
    "long": 81,
    "ulong2": 86,
    "bfloat": 121,
    "bfloat4": 124,
    "atomic_uint": 33,
    "atomic_float": 3,
    "pair": 1,
    "void": 0,
}


def test_reflection_tells_of_each_type(shim):
    names = list(DATA_TYPES)
    before = "struct pair { float a; char b; };"
    for start in range(0, len(names), 28):
        part = names[start : start + 28]
        parameters = [(f"const {name} *p{k}", f"p{k}", f"buffer<{k}>") for k, name in enumerate(part)]
        rows = facts(load(shim, image_text(parameters, before=before)))
        for k, name in enumerate(part):
            assert rows[k].data_type == DATA_TYPES[name], name
            assert (rows[k].name, rows[k].kind, rows[k].index, rows[k].is_written) == (f"p{k}".encode(), BUFFER, k, 0)
        by_name = dict(zip(part, rows, strict=True))
        for name, size, alignment in (("float4", 16, 16), ("packed_float3", 12, 4), ("pair", 8, 4), ("void", 0, 1)):
            if name in by_name:
                assert (by_name[name].nbytes, by_name[name].alignment) == (size, alignment), name


def test_reflection_tells_of_each_kind_of_parameter(shim):
    parameters = [
        ("const float *x", "x", "buffer<3>"),
        ("int *y", "y", "buffer<0>"),
        ("const uint &n", "n", "buffer<7>"),
        ("half &h", "h", "buffer<30>"),
        ("const int (&shape)[4]", "shape", "buffer<8>"),
        ("uint3 at", "at", "builtin<softmetal::thread_position_in_grid>"),
        ("float *memory", "memory", "threadgroup<2>"),
        ("const float *gone", "gone", "absent"),
    ]
    image = load(shim, image_text(parameters))
    rows = [(f.name.decode(), f.kind, f.index, f.is_written, f.data_type, f.nbytes, f.alignment) for f in facts(image)]
    assert rows == [
        ("x", BUFFER, 3, 0, 3, 4, 4),
        ("y", BUFFER, 0, 1, 29, 4, 4),
        ("n", BUFFER, 7, 0, 33, 4, 4),
        ("h", BUFFER, 30, 1, 16, 2, 2),
        ("shape", BUFFER, 8, 0, 2, 16, 4),
        ("memory", THREADGROUP, 2, 1, 3, 4, 4),
    ]
    assert (image.abi, image.has_syncs, image.is_checked, image.threadgroup_nbytes) == (5, 0, 0, 0)


OUT = ("uint *out", "out", "buffer<0>")


@pytest.mark.parametrize(
    ("body", "has_syncs"),
    [
        ("", 0),
        ("threadgroup_barrier(mem_flags::mem_none);", 1),
        ("simdgroup_barrier(mem_flags::mem_none);", 1),
        ("out[0] = simd_sum(out[0]);", 1),
        ("if (is_off) threadgroup_barrier(mem_flags::mem_none);", 0),
        ("atomic_fetch_add_explicit((atomic_uint *)out, 1, memory_order_relaxed);", 0),
    ],
)
def test_an_image_knows_whether_its_threads_wait(shim, body, has_syncs):
    before = "static constexpr bool is_off = false; static void unused() { threadgroup_barrier(mem_flags::mem_none); }"
    assert load(shim, image_text([OUT], body, before)).has_syncs == has_syncs


def test_an_image_knows_its_threadgroup_memory(shim):
    body = """
    float (&a)[10] = softmetal::threadgroup_variable<0, float[10]>();
    float4 &b = softmetal::threadgroup_variable<1, float4>();
    for (int k = 0; k < 3; k++) a[out[k]] = b.x;
    """
    assert load(shim, image_text([OUT], body)).threadgroup_nbytes == 48 + 16


#: What each attribute is for the thread at (71, 3, 2).
BUILTINS = {
    "thread_position_in_grid": (71, 3, 2),
    "thread_position_in_threadgroup": (7, 1, 2),
    "threadgroup_position_in_grid": (4, 1, 0),
    "threads_per_threadgroup": (10, 2, 3),
    "threads_per_grid": (74, 4, 3),
    "threadgroups_per_grid": (5, 2, 1),
    "dispatch_threads_per_threadgroup": (16, 2, 4),
    "thread_index_in_threadgroup": 57,
    "thread_index_in_simdgroup": 25,
    "thread_index_in_quadgroup": 1,
    "simdgroup_index_in_threadgroup": 1,
    "quadgroup_index_in_threadgroup": 14,
    "simdgroups_per_threadgroup": 2,
    "quadgroups_per_threadgroup": 15,
    "dispatch_simdgroups_per_threadgroup": 4,
    "dispatch_quadgroups_per_threadgroup": 32,
    "threads_per_simdgroup": 32,
    "thread_execution_width": 32,
    "grid_origin": (0, 0, 0),
    "grid_size": (74, 4, 3),
}


@pytest.mark.parametrize("kind", quickly("uint", "ushort3", of=["uint", "ushort", "uint2", "ushort3", "uint3"]))
def test_a_thread_gets_what_its_attributes_ask_for(clang, kind):
    count = int(kind[-1]) if kind[-1].isdigit() else 1
    asked = {name: value for name, value in BUILTINS.items() if count == 1 or isinstance(value, tuple)}
    parameters = "".join(f", {kind} {name} [[{name}]]" for name in asked)
    is_there = "thread_position_in_grid == 71 && thread_index_in_threadgroup == 57"
    if count > 1:
        is_there = f"all(thread_position_in_grid == {kind}{(71, 3, 2)[:count]})"
    parts = [""] if count == 1 else [f"[{c}]" for c in range(count)]
    body = "".join(f"out[{3 * k + c}] = {name}{part};" for k, name in enumerate(asked) for c, part in enumerate(parts))
    out = md.zeros((len(asked), 3), "uint32")
    kernel = md.kernel(f"kernel void f(device uint *out{parameters}) {{ if ({is_there}) {{ {body} }} }}")
    kernel(out, threads=(74, 4, 3), group=(16, 2, 4))
    for row, (name, value) in zip(out.tolist(), asked.items(), strict=True):
        assert tuple(row[:count]) == (value[:count] if isinstance(value, tuple) else (value,)), name


ROWS = {
    "add": ("const float *x, const float *y, float *z, uint i", "z[i] = x[i] + y[i];"),
    "axpy": ("const float *x, const float &a, float *z, uint i", "z[i] = a * x[i] + z[i];"),
    "half": ("const half *x, const half *y, half *z, uint i", "z[i] = x[i] * y[i];"),
    "bfloat": ("const bfloat *x, const bfloat *y, bfloat *z, uint i", "z[i] = x[i] * y[i];"),
    "packed": ("const packed_float3 *x, const uint &n, packed_float3 *z, uint i", "if (i < n) z[i] = x[i] * 2;"),
    "rows": ("const float *x, const float *y, float *z, uint2 i", "z[i.y * 1000 + i.x] = x[i.y * 1000 + i.x];"),
    "sqrt": ("const float *x, const float *y, float *z, uint i", "z[i] = sqrt(max(x[i], 0.0f)) + floor(y[i]);"),
}


def of_row(shim, parameters, body, *options):
    """What the compiler says of a row of threads: its remarks and its code."""
    binders = ["buffer<0>", "buffer<1>", "buffer<2>", "builtin<softmetal::thread_position_in_grid>"]
    rows = [(declaration, "p", binder) for declaration, binder in zip(parameters.split(", "), binders, strict=True)]
    command = shim.command("-Rpass=loop-vectorize", "-S", "-o", "-", *options)
    return subprocess.run(command, input=image_text(rows, body), capture_output=True, text=True, check=True)


FOR_ARM64 = ["--target=aarch64-linux-gnu", "-march=armv8-a"]


@pytest.mark.parametrize("options", [[], FOR_ARM64], ids=["here", "on arm64"])
@pytest.mark.parametrize("name", quickly("packed", of=ROWS))
def test_a_row_becomes_a_loop_of_vectors(shim, name, options):
    said = of_row(shim, *ROWS[name], *options).stderr
    assert "vectorized loop" in said, said


def test_products_of_three_join_their_sums_on_arm64_too(shim):
    parameters = "const packed_float3 *x, const packed_float3 &a, packed_float3 *z, uint i"
    code = of_row(shim, parameters, "z[i] = a * x[i] + z[i];", *FOR_ARM64).stdout
    assert re.search(r"\bfm(add|la)\b", code)
    assert not re.search(r"\bf(mul|add)\b", code)


def test_local_arrays_of_the_threads_of_a_row_are_apart(shim):
    """A loop of vectors must not take the array of one thread for that of another."""
    x = np.arange(1000, dtype=np.float32)
    before = """
    static float picked(device const float *x, uint i) {
        float kept[8];
        for (int k = 0; k < 8; k++) kept[(k + i) % 8] = x[i] + k;
        return kept[(i * 5) % 8] + kept[(i >> 3) % 8];
    }
    """
    got = shim.evaluate({"picked": "picked(all_x, i)"}, "float", np.float32, before=before, x=("float", x))["picked"]
    i = np.arange(1000)
    np.testing.assert_array_equal(got, 2 * x + (i * 5 - i) % 8 + ((i >> 3) - i) % 8)


def test_a_kernel_is_compiled_once(shim, tmp_path):
    """Rows and single threads share its code."""
    text = image_text([OUT], 'out[0] = 1; __asm__ volatile("# the_kernel_is_here");')
    command = shim.command("-fno-unroll-loops", "-S", "-o", "-")
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    assert said.count("the_kernel_is_here") == 1


@pytest.mark.long
def test_headers_have_no_warnings(shim):
    for header in sorted(flags.INCLUDE.glob("softmetal_*.h")):
        text = f'#include "{header.name}"\n'
        command = shim.command("-Wall", "-Wextra", "-fsyntax-only")
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
