"""What Apple's compiler refuses is refused here: each construct beside a twin that Metal has, so that no more is."""

import contextlib
import re

import pytest

import metal_dlpack as md
from softmetal import msl
from softmetal.msl import compiler

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def body(text):
    return f"kernel void k(device float *x, uint i [[thread_position_in_grid]]) {{ {text} }}"


def told(parameters):
    return f"kernel void k(device float *x, {parameters}) {{ x[0] = 1; }}"


POINTERS = "kernel void k(device float *x, constant float *c, threadgroup float *t, device float4 *v) {{ {} }}".format

#: What is refused, with @ where the error is; what Metal has instead; words of the error.  The text alone shows it.
IN_THE_TEXT = {
    # 1.5.4 Restrictions
    "virtual functions": (
        "struct S { @virtual float f() { return 1; } };",
        "struct S { float f() { return 1; } };",
        "Metal has no virtual",
    ),
    "new": (body("auto p = @new float(1); x[i] = *p;"), body("float p = 1; x[i] = p;"), "has no 'new'"),
    "delete": (body("@delete x;"), "struct S { S() = delete; };", "has no 'delete'"),
    "dynamic_cast": (
        "struct S { int a; }; struct T : S {}; void f(thread T *p) { auto q = @dynamic_cast<thread S *>(p); }",
        "struct S { int a; }; struct T : S {}; void f(thread T *p) { auto q = static_cast<thread S *>(p); }",
        "has no 'dynamic_cast'",
    ),
    "goto": (body("@goto end; end: x[i] = 1;"), body("for (;;) { break; } x[i] = 1;"), "'goto' is not supported"),
    "thread_local": (body("@thread_local int n = 1; x[i] = n;"), body("thread int n = 1; x[i] = n;"), "'thread_local'"),
    "register": (body("@register int n = 1; x[i] = n;"), body("int n = 1; x[i] = n;"), "'register'"),
    "long long": (body("@long long n = 1; x[i] = n;"), body("unsigned long n = 1; x[i] = n;"), "write the word once"),
    "assembly": (body('@asm volatile("nop");'), 'float f(float) __asm("air.f");', "no inline assembly"),
    "a name of the system's": ('float f(float) @__asm("sinf");', "float f(float);", "no inline assembly"),
    "functions of C": (
        'extern "C" int @getpid(); ' + body("x[i] = getpid();"),
        'extern "C" int getpid() { return 1; } ' + body("x[i] = getpid();"),
        "'getpid' is declared and defined nowhere",
    ),
    "functions of C in a block": (
        'extern "C" { int @abs(int); int f() { return abs(1); } }',
        'extern "C" { int abs_of(int); int f() { return 1; } }',
        "'abs'",
    ),
    # 4.2 constant Address Space
    "a variable of the program": ("@float g = 1;", "constant float g = 1;", "must reside in constant address space"),
    "a constant of the program": ("@const int g = 4;", "constexpr constant int g = 4;", "write 'constant' before 'const'"),
    "a table of the program": ("@static const int g[] = {1, 2};", "constant int g[] = {1, 2};", "must reside in constant"),
    "a variable in device memory": ("@device int g = 3;", "typedef constant int one; one g = 3;", "must reside in constant"),
    "a variable of a namespace": ("namespace n { @int g{1}; }", "namespace n { constant int g{1}; }", "must reside in"),
    "static": (body("@static int n = 0; x[i] = n++;"), body("int n = 0; x[i] = n++;"), "cannot be declared static"),
    "static const": (
        body("@static const float t[2] = {1, 2}; x[i] = t[i % 2];"),
        body("static constant float t[2] = {1, 2}; x[i] = t[i % 2];"),
        "write 'constant' after it",
    ),
    "static in a function": (
        "int f() { @static int n; return ++n; }",
        "static int f() { struct S { static int g() { return 1; } }; return S::g(); }",
        "cannot be declared static",
    ),
    # 4 Address Spaces
    "a pointer to no space": ("float f(float @*p) { return *p; }", "float f(thread float *p) { return *p; }", "write 'device"),
    "a reference to no space": ("float f(const float @&p) { return p; }", "float f(const thread float &p) { return p; }", "reference"),
    "a pointer to a pointer": (
        "float f(device float *@*p) { return **p; }",
        "float f(device float *thread *p, float y) { return y * **p; }",
        "write where the pointer itself is",
    ),
    "a pointer of the user's type": (
        "struct S { int a; }; int f(S @*s) { return s->a; }",
        "struct S { int a; }; int f(S device *s) { return s->a; }",
        "must have explicit address space qualifier",
    ),
    "a cast to no space": (POINTERS("*(int @*)x = 1;"), POINTERS("*(device int *)x = 1;"), "pointer type must have"),
    # 5.2.1 Locating Buffer, Texture, and Sampler Arguments
    "an index twice": (
        "kernel void k(device float *x [[buffer(0)]], device float *y [[@buffer(0)]]) {}",
        "kernel void k(device float *x [[buffer(0)]], threadgroup float *y [[threadgroup(0)]]) {}",
        "cannot reserve 'buffer' resource location at index 0",
    ),
    "an index twice, by a name": (
        "enum { A = 1 }; constant int B = 1; kernel void k(device float *x [[buffer(1)]], device float *y [[@buffer(B)]]) {}",
        "constant bool a [[function_constant(0)]]; constant bool b [[function_constant(1)]];"
        "kernel void k(device float *x [[buffer(1), function_constant(a)]], device int *y [[buffer(1), function_constant(b)]]) {}",
        "at index 1",
    ),
    "a texture's index twice": (
        "kernel void k(texture2d<float> x [[texture(0)]], texture1d<int> y [[@texture(0)]], device float *z [[buffer(0)]]) {}",
        "kernel void k(texture2d<float> x [[texture(0)]], sampler y [[sampler(0)]], device float *z [[buffer(0)]]) {}",
        "cannot reserve 'texture' resource location at index 0",
    ),
    "an index within an array of textures": (
        "kernel void k(array<texture2d<float>, 4> x [[texture(2)]], texture1d<int> y [[@texture(5)]]) {}",
        "kernel void k(array<texture2d<float>, 4> x [[texture(2)]], texture1d<int> y [[texture(6)]]) {}",
        "at index 5",
    ),
    "a texture's index too high": (
        "kernel void k(array<texture2d<float>, 4> x [[@texture(125)]]) {}",
        "kernel void k(array<texture2d<float>, 4> x [[texture(124)]]) {}",
        "must be between 0 and 127",
    ),
    "a sampler's index too high": (
        "kernel void k(sampler s [[@sampler(16)]]) {}",
        "kernel void k(sampler s [[sampler(15)]]) {}",
        "must be between 0 and 15",
    ),
    "threadgroup memory twice": (
        "kernel void k(threadgroup float *a [[threadgroup(1)]], threadgroup float *b [[@threadgroup(1)]]) {}",
        "kernel void k(threadgroup float *a [[threadgroup(1)]], threadgroup float *b [[threadgroup(0)]]) {}",
        "cannot reserve 'threadgroup'",
    ),
    "no index": ("kernel void k(device float *x [[@buffer]]) {}", "kernel void k(device float *x) {}", "takes one argument"),
    "an index too high": (
        "kernel void k(device float *x [[@buffer(31)]]) {}",
        "kernel void k(device float *x [[buffer(30)]]) {}",
        "must be between 0 and 30",
    ),
    # 5.2.3.6 Kernel Function Input Attributes
    "a position of floats": (told("@float i [[thread_position_in_grid]]"), told("ushort i [[thread_position_in_grid]]"), "type 'float'"),
    "a signed position": (told("@int2 i [[threads_per_grid]]"), told("metal::uint2 i [[threads_per_grid]]"), "type 'int2'"),
    "a vector as index": (
        told("@uint2 i [[thread_index_in_simdgroup]]"),
        told("const uint32_t i [[thread_index_in_simdgroup]]"),
        "write uint or ushort",
    ),
    "positions of two kinds": (
        told("uint2 i [[thread_position_in_grid]], @uint t [[thread_position_in_threadgroup]]"),
        told("uint2 i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]], ushort2 n [[threads_per_grid]]"),
        "either all scalar types or all vector types",
    ),
}  # fmt: skip

#: The same, where only the compiler knows the types.
BY_THE_TYPES = {
    # 4 Address Spaces
    "device memory as thread's": (POINTERS("thread float *@p = x;"), POINTERS("device float *p = x;"), "device memory"),
    "an element as thread's": (POINTERS("thread float *@p = &x[1];"), POINTERS("device float *p = &x[1];"), "device memory"),
    "a vector's": (POINTERS("thread float4 *@p = v + 1;"), POINTERS("const device float4 *p = v + 1;"), "device memory"),
    "threadgroup memory as device's": (
        POINTERS("threadgroup float a[4]; x = @a;"),
        POINTERS("threadgroup float a[4]; t = a;"),
        "threadgroup memory, where device memory",
    ),
    "an assignment": (POINTERS("x = @t;"), POINTERS("x = nullptr;"), "threadgroup memory, where device memory"),
    "constant as device": (POINTERS("const device float *@p = c;"), POINTERS("constant float *p = c;"), "constant memory"),
    "a reference": (POINTERS("thread float &@r = x[0]; r = 1;"), POINTERS("device float &r = x[0]; r = 1;"), "thread memory"),
    "a cast of a member": (
        "struct S { device float *p; }; " + POINTERS("S s{x}; auto q = @(threadgroup int *)s.p + 1; q[0] = 1;"),
        "struct S { device float *p; }; " + POINTERS("S s{x}; auto q = (device int *)s.p + 1; q[0] = 1;"),
        "device memory, where threadgroup memory",
    ),
    "a cast to another space": (
        POINTERS("*@(device float *)c = 1;"),
        POINTERS("x[0] = *(constant float *)(c + 1);"),
        "constant memory, where device memory",
    ),
    "a cast of another type": (
        POINTERS("auto p = @(device int *)(t + 1);"),
        POINTERS("auto p = (threadgroup int *)(t + 1); auto q = (device float4 *)&x[4] + 1;"),
        "threadgroup memory, where device memory",
    ),
    "an argument": (
        "float f(thread float *p) { return *p; } " + POINTERS("x[0] = @f(x);"),
        "float f(thread float *p) { return *p; } float f(device float *p) { return *p; } " + POINTERS("float y = 1; x[0] = f(&y) + f(x);"),
        "its 1st argument leads to device memory, where thread memory",
    ),
    "a result": (
        "thread float *f(device float *p) { return @p; }",
        "device float *f(device float *p) { return p; }",
        "device memory, where thread memory",
    ),
    "through auto": (POINTERS("auto p = x + 1; thread float *@q = p;"), POINTERS("auto p = x + 1; auto q = p;"), "device memory"),
    "a member": (
        "struct S { float a[4]; }; void f(device S &s) { thread float *@p = s.a; }",
        "struct S { float a[4]; float g() const device { return a[0]; } device float *h() device { return a; } };"
        "void f(device S &s) { device float *p = s.a; const device float *q = s.h(); }",
        "device memory",
    ),
}  # fmt: skip
CASES = IN_THE_TEXT | BY_THE_TYPES

#: Looks like what is refused, and Metal has it.
LEGAL = [
    told("unsigned int i [[thread_position_in_grid]], uint n [[threads_per_grid]]"),
    # SPEC: recursive functions are refused up to Metal 2.3 alone
    "int f(int n) { return n <= 1 ? 1 : n * f(n - 1); } " + body("x[i] = f(5);"),
    "template <int n> int f() { return f<n - 1>() + 1; } template <> int f<0>() { return 0; } " + body("x[i] = f<3>();"),
    "constant char *const text = \"text\"; template <class T> constexpr constant T two = T(2); " + body("x[i] = two<float> + text[0];"),
    "template <class T> void next(const device T *&x, const device uint *&w) { x += 1; w += 1; }",
    "template <class T> T f(const device T *p) { return *p; } template <class T> T f(const threadgroup T *p) { return *p; }"
    + POINTERS("threadgroup float a[4]; x[0] = f(x) + f(a) + f(t);"),
    "template <class T> void put(T p) { *p = 1; } " + POINTERS("put(x); put(t); auto &r = x[0]; auto p = &r; put(p);"),
    "template <class T> void swap_them(thread T &a, thread T &b) { T c = a; a = b; b = c; } " + body("float a = x[i], b = 2; swap_them(a, b); x[i] = a;"),
    "struct S { device float *p; constant float4 &c; threadgroup half *t; }; " + POINTERS("S s{x, *(constant float4 *)c, (threadgroup half *)t}; *s.p = s.c.x;"),
    "struct S { float a, b; }; kernel void k(device S *s, constant S &c) { s[0] = c; S t = s[1]; s[2] = t; device S *p = s + 1; p->a = t.b; }",
    "kernel void k(device atomic_uint *n, threadgroup atomic_int *m) { atomic_fetch_add_explicit(n, 1u, memory_order_relaxed);"
    "atomic_store_explicit(m, 1, memory_order_relaxed); }",
    "kernel void k(device float4 *v, constant float4x4 &m) { v[0] = m * v[1]; v[0].xy = v[1].yx; v[2] += float4(1); packed_float3 p = packed_float3(v[0].xyz); }",
    "typedef device float *pointer; void f(pointer p) { const device void *q = p; device char *r = (device char *)q ? nullptr : (device char *)p; }",
    "struct S { S() thread : a(1) {} S(float b) threadgroup : a(b) {} float a; operator float() const device { return a; } }; void f(device S *s) { float y = *s; }",
    "\n#define SHARED threadgroup\n" + POINTERS("SHARED float a[4], *p = a; struct { float v[4]; } threadgroup s; threadgroup float *q = s.v; p = q;"),
    body("const thread float &r = x[i]; float y = r; thread float *p = &y; x[i] = *p * 2 & int(y);").replace("* 2 & int(y)", "* 2"),
    "namespace inner { constant int n = 1; } namespace other = inner; using counts = constant int; counts t[2] = {other::n, 2};",
    "void f(device float *p, metal::nullptr_t) {} void f(device float *p, device float *q) {} " + POINTERS("f(x, nullptr);"),
    "constexpr sampler smooth(filter::linear); struct Q; static int f(); using namespace metal; static_assert(true, \"\");",
    "int f(int a[4]) { return a[0]; } struct new_value { int goto_here, virtual_one; };",
]  # fmt: skip


def in_namespaces(sources):
    """One source of many: each in a namespace of its own."""
    return HEAD + "\n".join(f"namespace row_{nth} {{ {text}\n}}" for nth, text in enumerate(sources))


def refuse(what):
    refused, _, words = CASES[what]
    line = refused.replace("@", "")
    with pytest.raises(msl.SourceError) as caught:
        msl.open_library(HEAD + line)
    first, shown, *_ = str(caught.value).splitlines()
    assert re.match(r"program_source:3:(\d+): error: ", first), first
    assert words in first
    assert (shown, int(first.split(":")[2])) == (line, refused.index("@") + 1)


@pytest.mark.parametrize("what", [*BY_THE_TYPES, "goto", "static", "an index twice"])
@pytest.mark.some(6)
def test_what_metal_does_not_have_is_refused_by_its_line(what):
    refuse(what)


@pytest.mark.parametrize("what", IN_THE_TEXT)
@pytest.mark.some(10)
def test_what_the_text_shows_is_refused_by_its_line(what, monkeypatch):
    """The compiler is not asked whether it is C++: it is for all of them at once, below."""
    monkeypatch.setattr(compiler.Compiler, "check", lambda *_: None)
    monkeypatch.setattr(compiler.Compiler, "reading", lambda *_: contextlib.nullcontext(lambda: ""))
    refuse(what)


def test_it_is_right_cpp():
    """The check alone finds none of it, which without the setting runs as before."""
    msl.open_library(in_namespaces(text.replace("@", "") for text, _, _ in CASES.values()), is_strict=False)


def test_what_metal_has_is_taken():
    twins = [text for _, text, _ in CASES.values()]
    for sources in (twins, LEGAL):
        try:
            msl.open_library(in_namespaces(sources))
        except msl.SourceError as error:
            pytest.fail(str(error))


def test_the_setting_opens_it(metal_settings):
    source = HEAD + "float g = 1;\n" + body("x[i] = g;")
    with pytest.raises(md.CompileError, match="must reside in constant address space") as caught:
        md.Library(source)
    assert (caught.value.lineno, caught.value.text) == (3, "float g = 1;")
    metal_settings(legality=0)
    x = md.zeros((1,), dtype="float32")
    md.kernel(source)(x, n=1)
    assert x.tolist() == [1.0]


def test_what_is_no_cpp_is_said_by_the_compiler():
    """The first error of a source is the compiler's, whatever else Metal would refuse in it."""
    with pytest.raises(msl.SourceError, match=r"^program_source:4:\d+: error: use of undeclared identifier 'q'"):
        msl.open_library(HEAD + "float g = 1;\n" + body("x[i] = q;"))


@pytest.mark.parametrize("directive", ['#include "{}"', "#include <{}>", '#embed "{}"', '#import "{}"'])
def test_no_file_of_the_machine_is_read(directive, tmp_path):
    (tmp_path / "near.h").write_text("constant int near = 1;\n")
    with pytest.raises(msl.SourceError, match=r"^program_source:3:\d+: error: '.*near\.h' file not found"):
        msl.open_library(HEAD + directive.format(tmp_path / "near.h") + "\n")


def test_no_file_of_the_machine_is_seen(tmp_path):
    (tmp_path / "near.h").write_text("")
    asked = "".join(
        f"#if __has_include({name})\nkernel void {kernel}(device int *x) {{}}\n#endif\n"
        for kernel, name in {"near": f'"{tmp_path}/near.h"', "system": "<stdio.h>", "metals": "<metal_math>"}.items()
    )
    assert list(msl.open_library(HEAD + asked).functions) == ["metals"]
