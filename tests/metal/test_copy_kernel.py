"""The kernels' text, held to the rules of Metal's language as far as a C++ compiler knows them."""

import ctypes
import math
import random
import re
import subprocess

import pytest
from copy_library import compile_copy, needs_compiler

pytest.importorskip("ziglang", reason="the compiler is clang, out of the ziglang package")

from apple import clang

import metal_dlpack as md

pytestmark = needs_compiler

#: What Metal's headers give, with address spaces that do not mix, as Metal's do not.
PRELUDE = """
#include <stdint.h>
#define kernel
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define BUFFER(index)
#define POSITION_IN_GRID
struct uint3 { uint32_t x, y, z; };
typedef uint32_t uint4 __attribute__((ext_vector_type(4)));
"""


class DeviceKernel(ctypes.Structure):
    """device_kernel, of copy_kernels."""

    _fields_ = [
        ("source", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("run", ctypes.CFUNCTYPE(None, ctypes.c_void_p * 3, ctypes.c_size_t * 3)),
        ("made", ctypes.c_void_p * 16),
    ]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Compile the kernels for units of 1, 2, 4, 8 and 16 bytes."""
    path = compile_copy(tmp_path_factory.mktemp("kernel") / "libcopy.so", "-O1", "-shared", "-fPIC")
    return (DeviceKernel * 5).in_dll(ctypes.CDLL(str(path)), "copy_kernels")


@pytest.fixture(scope="module")
def source(kernels):
    return kernels[0].source.decode()


def compile_as_cxx(text):
    command = [*clang.command(), "-std=c++14", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command += ["-Wno-unused-parameter", "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True)


def without_metal(source):
    """The lines of the preprocessor, which name Metal's own headers and attributes, are the prelude's."""
    return PRELUDE + "\n".join(line for line in source.splitlines() if not line.startswith(("#", "using")))


def test_the_text_compiles_with_address_spaces_kept_apart(source):
    done = compile_as_cxx(without_metal(source))
    assert done.returncode == 0, done.stderr


def test_the_text_uses_metals_attributes_and_no_line_of_the_preprocessor_in_between(source):
    head, _, body = source.partition("typedef")
    assert "#include <metal_stdlib>" in head and "using namespace metal;" in head
    assert "#define BUFFER(index) [[buffer(index)]]" in head
    assert "#define POSITION_IN_GRID [[thread_position_in_grid]]" in head
    assert "#" not in body
    assert re.findall(r"kernel void (\w+)", body) == [f"metal_dlpack_copy_{size}" for size in (1, 2, 4, 8, 16)]
    for name in re.findall(r"kernel void \w+\(([^)]*\)[^)]*\)[^)]*\)[^)]*)\)", body):
        assert [int(n) for n in re.findall(r"BUFFER\((\d)\)", name)] == [0, 1, 2]


# ---- what the compiler of kernels makes of the text, against what a C compiler makes of it ----


class Shape(ctypes.Structure):
    """copy_kernel_shape."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("dst_first", "src_first")),
        *((name, ctypes.c_int64 * 66) for name in ("dst_steps", "src_steps")),
        ("extents", ctypes.c_uint32 * 66),
        ("naxes", ctypes.c_uint32),
    ]


def random_job(chance, unit):
    """A shape that stays within 4096 units, of which none is written twice, the calls along x, y and z, and both memories."""
    extents = [chance.randint(1, 5) for _ in range(chance.randint(2, 5))]
    shape, step = Shape(chance.randint(0, 40), chance.randint(900, 1100), naxes=len(extents)), 1
    for axis in chance.sample(range(len(extents)), len(extents)):
        shape.extents[axis] = extents[axis]
        shape.dst_steps[axis] = step
        shape.src_steps[axis] = chance.randint(-40, 150)
        step *= extents[axis]
    calls = [extents[0], extents[1], math.prod(extents[2:])]
    return shape, calls, bytearray(chance.randbytes(4096 * unit)), chance.randbytes(4096 * unit)


@pytest.mark.needs_kernels
@pytest.mark.needs_softmetal
@pytest.mark.parametrize("log", range(5))
@pytest.mark.some(2)
def test_the_compiled_kernel_does_what_its_text_does_as_c(kernels, log):
    kernel, chance = kernels[log], random.Random(log)
    # By its own name the software Metal answers with the C, where a copy has run before.
    source, name = (text.decode().replace("metal_dlpack_copy_", "compiled_") for text in (kernel.source, kernel.name))
    compiled = md.kernel(source, name)
    for _ in range(60):
        shape, calls, dst, src = random_job(chance, 1 << log)
        buffers = [md.Buffer(len(dst)), md.Buffer(len(src))]
        for buffer, memory in zip(buffers, (dst, src), strict=True):
            buffer.copy_from(memory)
        compiled(*buffers, bytes(shape), threads=calls)
        to, of = (ctypes.create_string_buffer(bytes(memory), len(memory)) for memory in (dst, src))
        kernel.run((ctypes.c_void_p * 3)(*map(ctypes.addressof, (to, of, shape))), (ctypes.c_size_t * 3)(*calls))
        assert bytes(memoryview(buffers[0])) == to.raw != bytes(dst)
