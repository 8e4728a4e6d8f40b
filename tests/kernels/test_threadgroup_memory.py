"""Threadgroup memory in each spelling: one memory for the threads of a threadgroup, or an error that names the line."""

import itertools
import re

import numpy as np
import pytest

import metal_dlpack as md
from metal_dlpack.language.errors import SourceError
from softmetal.msl.translation import Translation

HEAD = """#include <metal_stdlib>
using namespace metal;
struct S { float v[16]; };
typedef float row[16];
typedef threadgroup float shared_float;
using shared_row = threadgroup float[16];
typedef threadgroup float *shared_pointer;
template <class T> using shared = threadgroup T;
template <class T> struct view { T *p; };
struct has_row { typedef threadgroup float cells[16]; };
"""
#: What may stand beside `threadgroup` and the type, in any order.
BESIDE = ["", "volatile", "static", "alignas(16)", "_Alignas(16)", "__attribute__((aligned(16)))", "[[maybe_unused]]"]
DECLARATORS = [
    "b[16]",
    "(b)[16]",
    "a, b[16]",
    "b[sizeof(float4)], *p = nullptr",
    "*p = nullptr, &r = *p, b[(1 << 4)]",
    "b[16] __attribute__((aligned(64))), a[2]",
    "b [[maybe_unused]] [16]",
]
#: Statements after which b is what can be indexed.
OTHERS = [
    "threadgroup row b;",
    "shared_float b[16];",
    "shared_row b;",
    "alignas(32) shared_row a, b;",
    "threadgroup float a[16]; shared_pointer b = a;",
    "shared<float> b[16];",
    "has_row::cells b;",
    "threadgroup float a[16]; view<threadgroup float> v{a}; threadgroup float *b = v.p;",
    "threadgroup S s; threadgroup float *b = s.v;",
    "threadgroup struct { float v[16]; } s; threadgroup float *b = s.v;",
    "struct { float v[16]; } threadgroup s; threadgroup float *b = s.v;",
    "threadgroup struct Q { float v[16]; } __attribute__((packed)) s; threadgroup float *b = s.v;",
    "threadgroup union { float v[16]; uint w[16]; } s; threadgroup float *b = s.v;",
    "threadgroup array<float, 16> b;",
    "threadgroup float b[16] = {0};",
    "threadgroup float b[16] = {0, .0f, 0.0h};",
    "threadgroup float b[16] = {}, *p = b;",
    "threadgroup float b[16]{};",
    "threadgroup metal::vec<float, 2> w[8]; threadgroup float *b = (threadgroup float *)w;",
    "threadgroup decltype(1.0f) b[16];",
    "threadgroup __typeof__(1.0f) b[16];",
    "unsigned threadgroup long w[8]; auto b = reinterpret_cast<threadgroup float *>(w);",
    "threadgroup __attribute__((ext_vector_type(4))) float q[4]; threadgroup float *b = (threadgroup float *)q;",
    "threadgroup float a[16], *b = a;",
    "threadgroup float a[16], (*q)[16] = &a; threadgroup float *b = *q;",
    "threadgroup float a[16], *b; b = a; float (*f)(threadgroup float *) = nullptr; if (f) b[i] = f(b);",
    "threadgroup float a[16]; threadgroup float *threadgroup p; p = a; threadgroup float *b = p;",
    "threadgroup float a[16]; threadgroup auto &b = a;",
    "threadgroup float a[16]; threadgroup float (&b)[16] = a; const threadgroup float &r = a[0]; if (r > 1e9f) return;",
    "threadgroup float a[16]; auto f = [&]() -> threadgroup float * { return a; }; threadgroup float *b = f();",
    "threadgroup float *b; { threadgroup float c[16]; b = c; }",
    "threadgroup\n float\n b[\n16\n];",
    "switch (i) { case 99: threadgroup float c; } place: threadgroup float b[16];",
    "struct L { float v; int g() const threadgroup { return 1; } threadgroup float *h() threadgroup { return &v; } };"
    " threadgroup L b0; threadgroup float b[16]; if (b0.g() != 1 || b0.h() != &b0.v) return;",
    "constexpr int n = 4; enum { N = 4 }; threadgroup float q[n][N > 2 ? 4 : 1], z; threadgroup float *b = &q[0][0];",
]
SPELLINGS = [
    f"{' '.join(words)} {declarator};"
    for beside in BESIDE
    for words in dict.fromkeys(itertools.permutations([word for word in ("threadgroup", "float", beside) if word]))
    for declarator in DECLARATORS
] + OTHERS


AT_ONCE = 75  # of one kernel: a threadgroup has 32 KiB


@pytest.mark.needs_kernels
@pytest.mark.parametrize("first", range(0, len(SPELLINGS), AT_ONCE))
@pytest.mark.some(2)
def test_each_spelling_is_one_memory_of_the_threadgroup(first):
    """Each thread writes its place, and reads that of another."""
    spellings = SPELLINGS[first : first + AT_ONCE]
    blocks = "\n".join(
        f"{{ {one} b[i] = float(i + {n}); threadgroup_barrier(mem_flags::mem_threadgroup); x[{n} * 16 + i] = b[15 - i]; }}"
        for n, one in enumerate(spellings)
    )
    kernel = md.kernel(
        f"{HEAD}kernel void f(device float *x, uint i [[thread_position_in_threadgroup]]) {{ {blocks} }}"
    )
    x = md.zeros((len(spellings), 16), dtype="float32")
    kernel(x, n=16, group=16)
    wrong = np.flatnonzero((np.asarray(x) != np.arange(15, -1, -1) + np.arange(len(spellings))[:, None]).any(axis=1))
    assert [spellings[n] for n in wrong] == []


@pytest.mark.needs_kernels
@pytest.mark.parametrize(
    "spelling",
    [
        "alignas(128) threadgroup float a, b[3];",
        "threadgroup float alignas(float4) alignas(128) b[3];",
        "threadgroup float b[3] __attribute__((aligned(128)));",
        "threadgroup struct alignas(128) { float v; } b[1];",
        "alignas(8192) threadgroup float b[3];",
    ],
)
@pytest.mark.some(2)
def test_a_variable_lies_as_its_declaration_asks(spelling):
    unit = 8192 if "8192" in spelling else 128
    source = (
        f"{HEAD}kernel void f(device uint *x) {{ threadgroup char c; c = 0; {spelling} x[0] = ulong(&b) % {unit}; }}"
    )
    x = md.ones((1,), dtype="uint32")
    md.kernel(source)(x, n=1)
    assert x.tolist() == [0]


def in_kernel(statement):
    return f"{HEAD}kernel void f(device float *x) {{\n  {statement}\n}}"


REFUSED = {
    "if (true) threadgroup float b;": "not understood",
    "else threadgroup float b;": "not understood",
    "for (threadgroup float b; ; ) {}": "not understood",
    "float b threadgroup[16];": "not understood",
    "float b[16] threadgroup;": "not understood",
    "threadgroup float b(int);": "not understood",
    "threadgroup float b(1);": "not understood",
    "threadgroup float;": "not understood",
    "threadgroup b;": "not understood",
    "threadgroup struct { float v; } s, *p = &s;": "not understood",
    "conditional_t<true, threadgroup float, threadgroup int> b[16];": "not understood",
    "typename metal::type_identity<threadgroup const float>::type b;": "not understood",
    "threadgroup float b<:16:>;": "not understood",
    "threadgroup float b[4] = {0, 1};": "cannot be given a value",
    "threadgroup float b = 0.5f;": "cannot be given a value",
    "threadgroup auto b = 0;": "cannot be given a value",
    "threadgroup float a[4], b{1};": "cannot be given a value",
    "threadgroup auto b = 1.0f;": "cannot be given a value",
    "shared_float b = 1.0f;": "cannot be given a value",
    "struct L { threadgroup float v[4]; } s;": "a field cannot be",
    "struct L { int f() { return 1; } shared_row v; } s;": "a field cannot be",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_is_not_understood_is_refused_with_its_line(statement):
    with pytest.raises(SourceError, match=rf"^program_source:12:\d+: error: .*{REFUSED[statement]}"):
        Translation(in_kernel(statement)).checked_text()


@pytest.mark.parametrize(
    "declaration", ["threadgroup float b[4];", "shared_row b;", "namespace n { static threadgroup S b; }"]
)
def test_what_is_outside_of_functions_is_refused(declaration):
    with pytest.raises(
        SourceError, match=r"^program_source:11:\d+: error: a variable outside of a function cannot be in"
    ):
        Translation(HEAD + declaration)
    with pytest.raises(SourceError, match=r"^program_source:11:\d+: error: a field cannot be in the threadgroup"):
        Translation(f"{HEAD}struct T {{ {declaration.removeprefix('namespace n { static ').removesuffix(' }')} }};")


@pytest.mark.parametrize(
    "words", list(itertools.permutations(["threadgroup", "const", "float", "b", "[16]"])), ids=" ".join
)
def test_no_order_of_words_leaves_private_memory(words):
    """What is no declaration at all is the compiler's to refuse: here it is a variable by another name."""
    try:
        text = Translation(in_kernel(" ".join(words) + ";")).checked_text()
    except SourceError:
        return
    assert re.search(r"softmetal::threadgroup_variable<0, ", text)
