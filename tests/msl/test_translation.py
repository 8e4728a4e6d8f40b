"""What the translator finds in a source, and the C++ that it makes of it.  No compiler is needed here."""

import re

import pytest

from metal_dlpack.language.errors import SourceError
from metal_dlpack.language.tokens import Tokens, Unbalanced
from softmetal.msl.translation import Translation

IN_GRID = "softmetal::builtin<softmetal::thread_position_in_grid>"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def cpp(source: str) -> str:
    return squeezed(Translation(source).checked_text())


def image(source: str, name: str) -> str:
    return squeezed(Translation(source).image_text(name))


def binders(source: str, name: str = "f") -> list[str]:
    return re.findall(r"typedef (.*?) softmetal_binder_\d+;", image(source, name))


def names(source: str, name: str = "f") -> list[str]:
    return re.findall(r'"([^"]*)"', image(source, name).partition("softmetal_argument_names")[2])


# ---- kernels ----


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("kernel void f() {}", ["f"]),
        ("[[kernel]] void f() {}", ["f"]),
        ("static [[kernel]] void f() {}", ["f"]),
        ('[[host_name("g")]] kernel void f() {}', ["g"]),
        ('[[kernel, host_name("a" "b")]] void f() {}', ["ab"]),
        ("namespace n { namespace m { kernel void f() {} } }", ["n::m::f"]),
        ("namespace n::m { kernel void f() {} }", ["n::m::f"]),
        ('extern "C" { kernel void f() {} }', ["f"]),
        ("kernel void f(); kernel void f() {}", ["f"]),
        ("template <typename T> kernel void f() {}", []),
        ('template <typename T> kernel void f() {} template [[host_name("g")]] kernel void f<int>();', ["g"]),
        ('template <typename T> kernel void f() {} template [[host_name("g")]] kernel void ::f<int>();', ["g"]),
        (
            "template <int n> void f(); template <int n> void f() {} "
            'template [[host_name("g")]] [[kernel]] decltype(f<(3 > 2)>) f<(3 > 2)>;',
            ["g"],
        ),
        ("template <typename T> [[kernel]] void f() {} template <> [[kernel]] void f<int>() {}", ["f"]),
        ("float g(float x) { return x; } kernel void f() {} kernel void h() {}", ["f", "h"]),
        ("struct S { float kernel_size; }; kernel void f() {}", ["f"]),
    ],
)
def test_kernels_by_name(source, found):
    assert list(Translation(source).kernels) == found


#: One of each thing that the translator reads.
WHOLE = [
    "namespace n::m { template <class T, int k> kernel void f(device T *x [[buffer(0)]]) { threadgroup T a[k], *p = a; } }"
    'template [[host_name("g")]] [[kernel]] decltype(::n::m::f<int, 3>) ::n::m::f<int, 3>;',
    "struct S : B<int> { S() : a{1}, b(2) {} float get() const device { return a < b && b > a; } enum class E : int { x = 1 } e; };",
    "constant bool c [[function_constant(0)]]; constant int d = is_function_constant_defined(c) ? c : 1 + 2;",
    'extern "C" int f(int); extern "C" { int g() { static constant int n = f(1); static int m; return n; } }',
    "kernel void f(coherent(device) float *x, uint2 i [[thread_position_in_grid]]) { x[0] = (device float *)x ? 1.5h : 0; }",
    "typedef threadgroup float shared; using p = device float *; kernel void f() { shared a; alignas(16) threadgroup struct { int b; } s; }",
    'template <class T> void f(T v) { v.xy += -v.zw; bfloat b = v ? 1 : 0; long long n; float **q; asm(R"(a)"); }',
]


@pytest.mark.parametrize("source", WHOLE)
def test_a_source_that_ends_anywhere_is_read_to_its_end(source):
    """What is missing is for the compiler to say: the translator refuses it, or leaves it as it is."""
    tokens = Tokens.of(source)
    for at in range(len(tokens.words)):
        before = "".join(gap + word for gap, word in zip(tokens.gaps[:at], tokens.words[:at], strict=True))
        opened = [tokens.words[one] for one in tokens.partner if one < at <= tokens.partner[one]]
        closed = before + " " + "".join({"(": ")", "[": "]", "{": "}"}[word] for word in reversed(opened))
        without = tokens.copy()
        without.drop(at, at)
        for text in (before, closed, without.text()):
            try:
                read = Translation(text)
                read.checked_text()
                read.text_with_spaces()
                read.refuse_what_metal_has_not()
                for kernel in read.kernels.values():
                    read.constants_of(kernel)
            except (SourceError, Unbalanced):
                pass


@pytest.mark.parametrize("terms", ["{0} + 1", " + ".join(["{0}"] * 30)])
def test_an_index_may_be_made_of_constants_that_are_made_of_others(terms):
    """However long the chain is: each constant is worked out once."""
    chain = "".join(f"constant int c{nth + 1} = {terms.format(f'c{nth}')};" for nth in range(12))
    source = f"constant int c0 = 0; {chain} constant bool b [[function_constant(c12)]]; kernel void f() {{}}"
    index = 12 if terms.endswith("1") else 0
    assert [one.index for one in Translation(source).constants] == [index]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("kernel float f(device float *x) {}", "1:14: error: the kernel 'f' must return void"),
        ("void g() {\n double x; }", "2:2: error: 'double' is not supported"),
    ],
)
def test_what_metal_refuses_and_cpp_does_not(source, told):
    with pytest.raises(SourceError, match=f"^program_source:{told}"):
        Translation(source)


def test_an_instantiation_may_be_named_from_the_outermost_namespace():
    source = "namespace n::m { template <class T> kernel void f(T x [[thread_position_in_grid]]) {} }"
    kernel = Translation(source + 'template [[host_name("g")]] kernel void ::n::m::f<uint>(uint x);').kernels["g"]
    assert kernel.expression == "n :: m :: f < uint >"


def test_an_instantiation_stands_in_its_namespace():
    source = 'namespace n { template <typename T, int N> kernel void f(device T *x [[buffer(0)]]) {}\n template [[host_name("g")]] kernel void f<float, 2>(device float *x [[buffer(0)]]); }'
    text = image(source, "g")
    assert text.startswith('#line 2 "program_source" namespace n {')
    assert "void (*softmetal_kernel)(float * x) = &f < float , 2 >;" in text
    assert text.endswith("SOFTMETAL_IMAGE(n::softmetal_kernel, n::softmetal_binder_0)")


def test_only_the_kernel_that_is_asked_for_has_a_body():
    source = "kernel void f(device int *x) { x[0] = 1; }\nkernel void g(device int *x) { x[0] = 2; }"
    text = Translation(source).kernel_text("g", {})
    assert "= 2;" in text and "= 1;" not in text
    assert "= 2;" in cpp(source) and "= 1;" in cpp(source)


def test_what_a_kernel_calls_has_its_body():
    """Functions that another stage's word marks are called as others are."""
    source = "[[visible]] float g(float x) { return x + 3; } kernel void h(device float *x) { x[0] = 7; }"
    source += "kernel void f(device float *x) { x[0] = g(1); } kernel void k(device float *x) { h(x); }"
    f, k = (Translation(source).kernel_text(name, {}) for name in "fk")
    assert "+ 3;" in f and "= 7;" not in f
    assert "+ 3;" not in k and "= 7;" in k


@pytest.mark.parametrize(
    "text", ["__attribute__((noinline))", "__attribute__((unused, __noinline__))", "[[gnu::noinline]]"]
)
def test_a_function_that_is_not_to_be_inlined_is(text):
    assert "noinline" not in cpp(f"{text} static int f(int x) {{ return x; }}")


@pytest.mark.parametrize(
    "text", ["int noinline; int g(int x) { return f(noinline); }", "int noinline; int x __attribute__;"]
)
def test_nothing_else_is_changed_for_its_name(text):
    assert cpp(text).count("noinline") == text.count("noinline")


# ---- parameters ----


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ("device float *x [[buffer(3)]]", ["softmetal::buffer<3>"]),
        ("device float *x, constant int &n", ["softmetal::buffer<0>", "softmetal::buffer<1>"]),
        ("device int *x, device int *y [[buffer(0)]]", ["softmetal::buffer<1>", "softmetal::buffer<0>"]),
        ("threadgroup float *x, device int *y", ["softmetal::threadgroup<0>", "softmetal::buffer<0>"]),
        ("threadgroup float *x [[threadgroup(1)]]", ["softmetal::threadgroup<1>"]),
        ("device float *x [[buffer(N + 1)]]", ["softmetal::buffer<5>"]),
        ("device float *x [[buffer(THIRD)]]", ["softmetal::buffer<2>"]),
        ("device float *x [[buffer(LAST)]]", ["softmetal::buffer<30>"]),
        ("device float *x [[buffer(sizeof(int))]]", ["softmetal::buffer<(sizeof ( int ))>"]),
        ("device float *x [[buffer(010)]]", ["softmetal::buffer<8>"]),
        (
            "const device metal::array<float, 2> &x, uint i [[thread_position_in_grid]]",
            ["softmetal::buffer<0>", IN_GRID],
        ),
        ("uint3 i [[ thread_position_in_grid ]]", [IN_GRID]),
        (
            "uint3 j [[thread_position_in_grid]], uint3 i [[threads_per_grid]]",
            ["softmetal::absent", IN_GRID.replace("thread_position_in", "threads_per")],
        ),
        ("uint3 [[thread_position_in_grid]]", ["softmetal::absent"]),
        (
            "device int *x [[buffer(1), function_constant(flag)]]",
            ["metal::conditional_t<bool(flag), softmetal::buffer<1>, softmetal::absent>"],
        ),
        ("P x, Q y, Q z [[buffer(0)]]", ["softmetal::threadgroup<0>", "softmetal::buffer<1>", "softmetal::buffer<0>"]),
        ("void", []),
        ("", []),
    ],
)
def test_what_binds_a_parameter(parameters, expected):
    """The kernel uses its `i`, and nothing else that tells of a thread."""
    many = ", ".join(f"E{i}" for i in range(9))
    enums = f"enum {{ FIRST, SECOND, THIRD }}; enum {{ TEN = 4 | 16, {many}, LAST }};"
    types = "typedef threadgroup float *P; using Q = const device float *;"
    source = f"constant constexpr int N = 4; {enums} {types} kernel void f({parameters}) {{ i; }}"
    assert binders(source) == expected


@pytest.mark.parametrize(
    ("parameter", "name"),
    [
        ("device float *x", "x"),
        ("constant float (&x)[3] [[buffer(0)]]", "x"),
        ("constant float x[3]", "x"),
        ("constant float (&x [[buffer(0)]])[3]", "x"),
        ("device S<float, 2> &x", "x"),
        ("uint2 [[thread_position_in_grid]]", ""),
        ("device float *", ""),
        ("device float *über\U00010330", "über\U00010330"),
        ("coherent(device) device float *x", "x"),
        ("device coherent(system) float *x", "x"),
        ("coherent device float *x", "x"),
        ("volatile device coherent float *x", "x"),
        ("device float *coherent", "coherent"),
        ("constant uint &coherent [[buffer(0)]]", "coherent"),
        ("device float (*x)[4]", "x"),
        ("device float *x __attribute__((unused))", "x"),
    ],
)
def test_the_name_of_a_parameter(parameter, name):
    assert names(f"kernel void f({parameter}) {{}}") == [name]


@pytest.mark.parametrize(
    ("parameter", "told"),
    [("uint n", "neither in an address space nor has an attribute"), ("float4 p [[stage_in]]", "stage_in")],
)
def test_a_parameter_that_nothing_can_be_bound_to(parameter, told):
    with pytest.raises(SourceError, match=rf"^program_source:2:5: error: .*{told}"):
        Translation(f"kernel void f(device float *x,\n    {parameter}) {{}}").checked_text()


# ---- address spaces ----


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("const device float *g(thread int &x);", "inline const float *g( int &x);"),
        ("constant float t[2] = {1, 2};", "const float t[2] = {1, 2};"),
        ("float g(device float *x) { return *(const device float *)x; }", "inline float g( float *x) { return *(const float *)x; }"),
        ("struct S { float get() const device { return 1; } };", "struct S { float get() const { return 1; } };"),
        ("struct S { S() constant {} S() thread {} };", "struct S { S() {} };"),
        ("struct S { float g() thread; float g() device; float g() constant; };", "struct S { float g() ; float g() const; };"),
        ("typedef device float *P; using Q = threadgroup float *;", "typedef float *P; using Q = float *;"),
        ("template <typename T> T g(device T *x) { return *x; } template <typename T> T g(threadgroup T *y) { return *y; }", "template <typename T> T g( T *x) { return *x; }"),
        ("int g(const device int *x); int g(constant int *y);", "inline int g(const int *x);"),
        ("template <typename T> struct P {}; template <typename T> struct P<device T *> {}; template <typename T> struct P<thread T *> {};", "template <typename T> struct P {}; template <typename T> struct P< T *> {};"),
        ("int g(device int *x); int g(device float *x);", "inline int g( int *x); inline int g( float *x);"),
        ("void g(volatile coherent(system) device uint *x);", "inline void g(volatile uint *x);"),
    ],
)  # fmt: skip
def test_address_spaces_go(source, expected):
    assert cpp(source) == expected


def test_a_function_that_is_defined_twice_stays_so():
    assert cpp("int g(device int *x) { return 1; } int g(device int *x) { return 2; }").count("return") == 2


def test_overloads_by_address_space_that_do_different_things_are_refused():
    source = "int g(device int *x) { return 1; }\nint g(threadgroup int *x) { return 2; }"
    with pytest.raises(SourceError, match=r"^program_source:2:1: error: an address space chooses .* in line 1, which"):
        Translation(source).checked_text()


TILE = "template <class T> struct Tile { static constexpr constant int n = 1; };"
FLAG = "template <class T> constant constexpr bool flag = false;"


def tile(argument, n=4):
    return f"template <class T> struct Tile<{argument}> {{ static constexpr constant int n = {n}; }};"


#: What an address space decides, so that C++ would choose something else.
DECIDED = [
    f"{TILE}\n{tile('device T *')}",
    f"{TILE}\n{tile('constant T *')}",
    f"{tile('T *', 1)}{TILE}\n{tile('thread T &')}".replace("T *", "T &"),
    f"{TILE}\ntypedef device float *P; template <> struct Tile<P> {{}};".replace("\ntypedef", "typedef").replace(
        "template <> ", "\ntemplate <> "
    ),
    f"{TILE}\n{tile('device T *')} {tile('threadgroup T *')}",
    f"{FLAG}\ntemplate <class T> constant constexpr bool flag<device T *> = true;",
    "template <class T> struct is_device : false_type {};\ntemplate <class T> struct is_device<device T *> : true_type {};",
    "template <class T> int f(T x) { return 1; }\ntemplate <class T> int f(device T *x) { return 4; }",
    "template <class T> int f(device T *x) { return 1; }\nint f(threadgroup float *x) { return 4; }",
    "template <class T> int f(thread T &x) { return 1; }\nint f(device float &x) { return 4; }",
    "int f(device float *x) { return 1; }\nint f(const thread float *x) { return 4; }",
    "int f(int n, const thread float *x) { return 1; }\nint f(int m, device float *x) { return 4; }",
    "template <class T> int f(device T *x) { return 1; }\ntemplate <class T> int f(constant T *x) { return 4; }",
    "int operator+(S a, const thread S &b) { return 1; }\nint operator+(S a, device S &b) { return 4; }",
    "struct S { int f() const thread { return 1; }\nint f() device { return 4; } };",
    "template <class T> int f(T x) {\n return is_same_v<T, device float *>; }",
    "template <class T> int f(T x) {\n return metal::is_same<T, constant float *>::value; }",
    "typedef threadgroup int *P; template <class T> int f(T x) {\n return __is_same(P, T); }",
    "template <class T> bool f() {\n return is_same<T, device int *>::value || is_same<T, thread int *>::value; }",
    "template <class T> bool f() {\n return is_same_v<T, device int *> || is_same_v<T, thread int *> || is_same_v<T, threadgroup float *>; }",
    "template <class T> bool f() {\n return is_same_v<T, const device int *> || is_same_v<T, const thread int *> || is_same_v<T, const threadgroup int *>; }",
]
#: What it decides without a difference, or where C++ chooses the same.
NOT_DECIDED = [
    f"template <class T> struct Tile; {tile('device T *')}",
    f"template <class T> struct Tile {{}}; {tile('device T *')}",
    f"{TILE} {tile('device T *', 1)}",
    f"{TILE} {tile('device T *')} {tile('threadgroup T *')} {tile('thread T *')}",
    f"{TILE} {tile('T *')}",
    "int f(device float *x) { return 1; } int f(constant float *x) { return 4; }",
    "int f(device float *x) { return 1; } int f(threadgroup int *x) { return 4; }",
    "int f(device float *x) { return 1; } int f(threadgroup float *x, int n) { return 4; }",
    "int f(device float *x) { return *x; } int f(const thread float *y) { return *y; }",
    "int f(device float *x); int f(const thread float *y); int f(device float *x) { return 1; } int f(const thread float *y) { return 1; }",
    "template <class T> int f(thread T &x) { return 1; } int f(S x) { return 4; }",
    "template <class T> int f(T n, device T *x) { return 1; } template <class T> int f(int3 n, thread T *x) { return 4; }",
    "struct S { int f() const constant { return 1; } int f() device { return 4; } };",
    "int f(device float *x) { return is_same_v<device float *, device int *>; }",
    "template <class T> bool f() { return is_same<T, device int *>::value || metal::is_same<T, thread int *>::value || is_same<T, threadgroup int *>::value; }",
    "struct A { template <class T> int f(T &x); }; template <> int A::f(device int &x) { return 1; } template <> int B::f(const thread int &x) { return 2; }",
]  # fmt: skip


@pytest.mark.parametrize("source", DECIDED)
def test_what_an_address_space_decides_is_refused_with_its_line(source):
    with pytest.raises(SourceError, match=r"^program_source:2:\d+: error: .*address space"):
        Translation(source).checked_text()


@pytest.mark.parametrize("source", NOT_DECIDED)
def test_what_an_address_space_does_not_decide_is_translated(source):
    assert not re.search(r"\b(device|threadgroup|thread)\b", cpp(source))


# ---- threadgroup memory: each spelling, tests/kernels/test_threadgroup_memory.py ----


@pytest.mark.parametrize("function", ["kernel void g()", "[[kernel]] void g()", "template <class T> kernel void g()"])
def test_threadgroup_memory_of_a_kernel(function):
    assert "softmetal::threadgroup_variable<0, " in cpp(f"namespace n {{ {function} {{ threadgroup int x; }} }}")


@pytest.mark.parametrize(
    "before",
    ["void f() {", "template <class T> static T f() {", "struct S { int f() { if (true) {", "namespace n { int f() {"],
)
def test_threadgroup_memory_of_another_function_is_refused(before):
    """As by Apple's compiler: all instantiations and all calls would share it."""
    source = f"kernel void g() {{ threadgroup int x; }}\n{before}\n  threadgroup int x[4]; {'}' * before.count('{')};"
    with pytest.raises(SourceError, match=r"^program_source:3:3: error: variables in the threadgroup address space"):
        Translation(source)
    Translation(source.replace("x[4]", "*x = nullptr"))


# ---- swizzles ----


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("b = a.xy * b.gr;", "b = a.get_xy() * b.get_yx();"),
        ("p->zw += -a.xy;", "p->template part<2, 3>() += -a.get_xy();"),
        ("a.xy = b.x; a.zw++;", "a.xy = b.x; a.zw++;"),
        ("a.xy(); int rg; rg = s.rg;", "a.xy(); int rg; rg = s.rg;"),
    ],
)
def test_swizzles_in_templates_are_calls(statement, expected):
    assert cpp(f"template <class T> void f() {{ {statement} }}") == f"template <class T> void f() {{ {expected} }}"
    assert cpp(f"void f() {{ {statement} }}") == f"inline void f() {{ {statement} }}"


def test_a_member_of_the_users_struct_is_no_swizzle():
    source = "struct S { float2 xy; }; template <class T> void f() { T s; s.xy * s.xy + s.zw; }"
    assert cpp(source).endswith("s.xy * s.xy + s.get_zw(); }")


# ---- conditionals ----


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("b = c ? x[1] : 0;", "b = c ? x[1] : softmetal::literal<0>();"),
        ("b = c ? 0 : x;", "b = c ? softmetal::literal<0>() : x;"),
        ("f(c ? x : 2, a ? g(p ? y : 3) : 4);", "f(c ? x : {2}, a ? g(p ? y : {3}) : {4});"),
        ("b = c ? x : d ? y : 0;", "b = c ? x : d ? y : {0};"),
        ("b = c ? d ? x : 1 : 0;", "b = c ? d ? x : 1 : {0};"),
        ("b = c ? 1 : 0;", "b = c ? 1 : 0;"),
        ("b = c ? x : 0 + y;", "b = c ? x : 0 + y;"),
        ("switch (b) { case 1: 0; default: 0; }", "switch (b) { case 1: 0; default: 0; }"),
        ("struct { int a : 4; } s; x[c ? y : 0];", "struct { int a : 4; } s; x[c ? y : {0}];"),
    ],
)
def test_an_integer_beside_a_bfloat_in_a_conditional(statement, expected):
    expected = re.sub(r"\{(\d)\}", r"softmetal::literal<\1>()", expected)
    assert cpp(f"void f(bfloat x) {{ {statement} }}") == f"inline void f(bfloat x) {{ {expected} }}"
    assert cpp(f"void f(half x) {{ {statement} }}") == f"inline void f(half x) {{ {statement} }}"


def test_an_integer_beside_a_bfloat_that_only_an_instantiation_names():
    source = "template <class T> kernel void f(device T *x) { x[0] = x[0] < 0 ? 0 : x[0]; }"
    instance = 'template [[host_name("g")]] kernel void f<{}>(device {} *);'
    assert "softmetal::literal<0>()" in cpp(source + instance.replace("{}", "bfloat"))
    assert "softmetal::literal" not in cpp(source + instance.replace("{}", "half"))


# ---- function constants ----

CONSTANTS = """constant bool flag [[function_constant(0)]];
constant uint32_t n [[function_constant(FIRST + 1)]];
constant int m = is_function_constant_defined(n) ? int(n) : 3;
constant half h [[function_constant(4)]];
enum { FIRST = 1 };
float g() { return m; }
kernel void f(device float *x) { x[0] = g(); }
kernel void k(device float *x) { if (flag) x[0] = h; }
"""


def test_function_constants_are_found_with_what_reaches_them():
    translation = Translation(CONSTANTS)
    facts = [(one.name, one.type, one.index, one.is_required) for one in translation.constants]
    assert facts == [("flag", "bool", 0, True), ("n", "uint", 2, False), ("h", "half", 4, True)]
    reached = {
        name: [one.name for one in translation.constants_of(kernel)] for name, kernel in translation.kernels.items()
    }
    assert reached == {"f": ["n"], "k": ["flag", "h"]}


def test_a_constant_is_not_reached_by_a_name_that_is_anothers():
    """A parameter and a member may be called as a constant is."""
    source = "constant int n [[function_constant(0)]]; struct S { int n; int f() { return m; } }; constant int m = n;\n"
    source += (
        "kernel void f(device int *x, constant int &n) { x[0] = n; } kernel void g(device T *x) { x->n = x[0].n; }\n"
    )
    source += "kernel void h(device S *x) { x->n = x->f(); } kernel void k(device int *x) { x[n] = 1; }"
    source += "constant S s = {n}; kernel void p(device int *x) { x[0] = s.n; }"
    translation = Translation(source)
    found = [[one.name for one in translation.constants_of(kernel)] for kernel in translation.kernels.values()]
    assert found == [[], [], ["n"], ["n"], ["n"]]


def test_what_asks_for_a_constant_that_the_kernel_does_not_need_is_left_out():
    """The result of a call is made whoever uses it."""
    source = "constant int n [[function_constant(0)]]; int twice(int x) { return 2 * x; } struct S { int v; };\n"
    source += "constant int a = 1, b = twice(n); constant int c = twice(b); constant S s{twice(n)}; constant int d = twice(4);\n"
    source += "kernel void f(device int *x) { x[0] = d; } kernel void g(device int *x) { x[0] = c; }"
    translation = Translation(source)
    assert [[one.name for one in translation.constants_of(kernel)] for kernel in translation.kernels.values()] == [
        [],
        ["n"],
    ]
    f, g = (squeezed(translation.kernel_text(name, {})) for name in "fg")
    assert not re.search(r"\b(a|b|c) = |\bs\{", f) and "d = twice(4);" in f
    assert "a = 1, b = twice(n);" in g and "c = twice(b);" in g


def test_function_constants_get_their_values():
    text = squeezed(Translation(CONSTANTS).kernel_text("k", {0: b"\1", 2: b"\xff\0\0\0", 4: b"\0\x3c"}))
    assert "static constexpr bool flag = true;" in text
    assert "static constexpr uint n = uint(255ull);" in text
    assert "const int m = true ? int(n) : 3;" in text
    assert "static constexpr half h = __builtin_bit_cast(half, ushort(15360u));" in text


def test_a_constant_without_a_value_is_not_defined():
    assert "const int m = false ? int(n) : 3;" in cpp(CONSTANTS)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int", b"\xff\xff\xff\xff", "int(-0ll - 1)"),
        ("int", b"\0\0\0\x80", "int(-2147483647ll - 1)"),
        ("long", b"\0" * 7 + b"\x80", "long(-9223372036854775807ll - 1)"),
        ("ulong", b"\xff" * 8, "ulong(18446744073709551615ull)"),
        ("char", b"\x80", "char(-127ll - 1)"),
        ("ushort2", b"\1\0\2\0", "ushort2(ushort(1ull), ushort(2ull))"),
        ("float", b"\0\0\x80\x3f", "__builtin_bit_cast(float, uint(1065353216u))"),
    ],
)
def test_values_of_each_type(kind, value, text):
    source = f"constant {kind} c [[function_constant(0)]]; kernel void f() {{}}"
    assert f"static constexpr {kind} c = {text};" in squeezed(Translation(source).kernel_text("f", {0: value}))


@pytest.mark.parametrize("kind", ["S", "vec<uint, 2>", "float3x3"])
def test_a_constant_of_a_type_that_no_value_can_be_given_to(kind):
    source = f"\n  constant {kind} c [[function_constant(0)]]; kernel void f(device int *x) {{ x[0] = c; }} kernel void g() {{}}"
    translation = Translation(source)
    with pytest.raises(SourceError, match=rf"^program_source:2:3: error: the type '{kind[:3]}.*'c' needs a Mac"):
        translation.constants_of(translation.kernels["f"])
    assert translation.constants_of(translation.kernels["g"]) == []


@pytest.mark.parametrize(
    ("nonsense", "left"),
    [("(int x) {}", "(int x) {}"), ("[[function_constant(0)]];", ";"), ("constant int x", "const int x")],
)
def test_what_declares_nothing_is_left_to_the_compiler(nonsense, left):
    assert Translation(nonsense).checked_text() == left


# ---- what is not supported ----

UNSUPPORTED = {
    "ray tracing": "kernel void f(device int *x) { raytracing::intersector<> i; }",
    "MetalPerformancePrimitives": "int g() { return mpp::tensor_ops::x; }\nkernel void f(device int *x) { x[0] = g(); }",
    "indirect command buffers": "kernel void f(device command_buffer *x) {}",
    "function tables": "kernel void f(visible_function_table<int()> t [[buffer(0)]]) {}",
    "vertex functions": "vertex float4 f() { return 0; }",
    "fragment functions": "[[fragment]] float4 f() { return 0; }",
    "tensors of numbers smaller than a byte": "kernel void f(device int *x) { using T = metal::uint4b_format; }",
}


@pytest.mark.parametrize("feature", UNSUPPORTED)
def test_what_is_not_supported_is_told_by_the_kernel_that_needs_it(feature):
    translation = Translation(f"{UNSUPPORTED[feature]}\nkernel void other(device int *x) {{ x[0] = 5; }}")
    assert list(translation.kernels) == ["f", "other"]
    assert "= 5;" in translation.checked_text()
    assert "= 5;" in translation.kernel_text("other", {})
    last = UNSUPPORTED[feature].count("\n") + 1
    with pytest.raises(SourceError, match=rf"^program_source:{last}:\d+: error: .*'f'.*{feature}.* Mac"):
        translation.kernel_text("f", {})


# ---- directives ----


@pytest.mark.parametrize(
    ("pragma", "kept"),
    [
        ("#pragma unroll", "#pragma unroll"),
        ("#pragma unroll(4)", "#pragma unroll(4)"),
        ("#pragma unroll(COUNT)", ""),
        ("#pragma METAL internals : enable", ""),
        ("#pragma clang loop unroll(full)", "#pragma clang loop unroll(full)"),
    ],
)
def test_pragmas(pragma, kept):
    text = Translation(f"void g() {{\n{pragma}\nfor (;;) {{}}\n}}").checked_text()
    assert text.splitlines()[1].strip() == kept


def test_attributes_of_metal_go_and_those_of_cpp_stay():
    assert (
        cpp("struct S { float4 p [[position]]; }; [[nodiscard]] int g();")
        == "struct S { float4 p ; }; inline [[nodiscard]] int g();"
    )
