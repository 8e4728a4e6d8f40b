"""The kernels' text, held to the rules of Metal's language as far as a C++ compiler knows them."""

import ctypes
import re
import subprocess

import pytest
from copy_library import compile_copy, needs_compiler

pytest.importorskip("ziglang", reason="the compiler is clang, out of the ziglang package")

from conformance import clang

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


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    library = ctypes.CDLL(
        str(compile_copy(tmp_path_factory.mktemp("kernel") / "libcopy.so", "-O1", "-shared", "-fPIC"))
    )
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "copy_kernel_source"))).decode()


def compile_as_cxx(text):
    command = [*clang.command("arm64"), "-std=c++14", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    command += ["-Wno-unused-parameter", "-x", "c++", "-fsyntax-only", "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True)


def without_metal(source):
    """The lines of the preprocessor, which name Metal's own headers and attributes, are the prelude's."""
    return PRELUDE + "\n".join(line for line in source.splitlines() if not line.startswith(("#", "using")))


def test_the_text_compiles_with_address_spaces_kept_apart(source):
    done = compile_as_cxx(without_metal(source))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("copy_kernel_find(constant copy_kernel_shape", "copy_kernel_find(device copy_kernel_shape"),
        ("device uint8_t *dst", "constant uint8_t *dst"),
        ("uint32_t rest = position.z;", "uint32_t rest = position.w;"),
        ("shape->naxes; axis++", "shape.naxes; axis++"),
        ("dst[at.dst] = src[at.src];", "dst = src;"),
    ],
)
def test_one_wrong_word_is_found(source, good, bad):
    text = without_metal(source)
    assert good in text
    assert compile_as_cxx(text.replace(good, bad, 1)).returncode != 0


def test_the_text_uses_metals_attributes_and_no_line_of_the_preprocessor_in_between(source):
    head, _, body = source.partition("typedef")
    assert "#include <metal_stdlib>" in head and "using namespace metal;" in head
    assert "#define BUFFER(index) [[buffer(index)]]" in head
    assert "#define POSITION_IN_GRID [[thread_position_in_grid]]" in head
    assert "#" not in body
    assert re.findall(r"kernel void (\w+)", body) == [f"copy_units_{size}" for size in (1, 2, 4, 8, 16)]
    for name in re.findall(r"kernel void \w+\(([^)]*\)[^)]*\)[^)]*\)[^)]*)\)", body):
        assert [int(n) for n in re.findall(r"BUFFER\((\d)\)", name)] == [0, 1, 2]
