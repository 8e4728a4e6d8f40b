"""Functions between which an address space chooses, and which do different things: each call means what it does in Metal."""

import random

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SPACES = ("device", "constant", "threadgroup", "thread")
#: How a kernel names an object, or a number of it, in each space; %: the way from the object on.
OBJECTS = {
    "device": ("d.@", "p->@", "p[0].@", "(*p).@"),
    "constant": ("c.@", "q->@", "q[1].@"),
    "threadgroup": ("t.@", "u[1].@", "(&t)->@"),
    "thread": ("l.@", "m[0].@", "(&l)->@", "S{7}.@"),
}
POINTERS = {"device": "&p[0].a", "constant": "&q[1].a", "threadgroup": "&t.a", "thread": "&l.a"}


def one_program(seed):
    """A source, and what its kernel writes."""
    draw = random.Random(seed)
    names = [f"f{nth}" for nth in range(4)]
    chosen = {name: draw.sample(SPACES, draw.randint(2, 4)) for name in names}
    # Two of a name may say the same: their texts are one
    says = {(name, space): draw.randrange(3) * 100 + nth for nth, name in enumerate(names) for space in chosen[name]}
    methods, functions = [], []
    for name in names:
        is_method = draw.random() < 0.5
        for space in chosen[name]:
            value = f"return {says[name, space]} + int"
            const = draw.choice(["const ", ""]) if space != "constant" else "const "
            if is_method:
                methods.append((name, f"    int {name}(int by) {const}{space} {{ {value}(a) * by; }}\n"))
            else:
                pointer = f"{const if space != 'constant' else ''}{space} float *x"
                functions.append((name, f"int {name}({pointer}, int by) {{ {value}(*x) * by; }}\n"))
    draw.shuffle(methods), draw.shuffle(functions)
    calls = []
    for name, _ in methods + functions:
        space = draw.choice(chosen[name])
        is_method = name in dict(methods)
        if is_method and draw.random() < 0.3:
            name, space = draw.choice(methods)[0], "thread"
            if space not in chosen[name]:
                space = draw.choice(chosen[name])
        way = draw.choice(OBJECTS[space]) if is_method else f"@{POINTERS[space]}"
        is_temporary = way.startswith("S{")
        by = draw.randint(1, 9)
        call = way.replace("@", f"{name}({by})") if is_method else f"n::{name}({way[1:]}, {by})"
        calls.append((call, says[name, space] + (7 if is_temporary else SPACES.index(space) + 2) * by))
    body = "".join(f"    o[{nth}] = {call};\n" for nth, (call, _) in enumerate(calls))
    source = (
        f"{HEAD}struct S {{\n    float a;\n{''.join(text for _, text in methods)}}};\n"
        f"namespace n {{\n{''.join(text for _, text in functions)}}}\n"
        "kernel void k(device S &d, constant S &c, device S *p, constant S *q, device int *o) {\n"
        "    threadgroup S t, u[2];\n    t.a = 4, u[1].a = 4;\n    S l = {5}, m[1] = {{5}};\n" + body + "}\n"
    )
    return source, [value for _, value in calls]


@pytest.mark.parametrize("seed", range(4))
def test_each_call_means_the_function_of_its_objects_space(seed):
    source, expected = one_program(seed)
    two, three = (md.asarray(np.full(2, value, "f4"), copy=True) for value in (2, 3))
    made = md.asarray(np.zeros(len(expected), "i4"), copy=True)
    md.kernel(source)(two, three, two, three, made, threads=1, group=1)
    assert np.asarray(made).tolist() == expected, source


DECLARED = """
float h(device float *x) { return 1; }
float h(thread float *x) { return 2; }
float f(device float *x);
float f(thread float *x);
kernel void k(device float *x) { x[0] = f(x); }
float f(device float *x) { return 1; }
float f(thread float *x) { return 2; }
"""


def test_functions_that_are_declared_before_they_are_defined_are_refused():
    with pytest.raises(md.CompileError, match=r"line 9, which does something else: .* another name") as caught:
        md.kernel(HEAD + DECLARED)
    assert caught.value.lineno == 10


STRUCT = (
    "struct S { float a;\nfloat get() const thread { return a; }\nfloat get() const constant { return a + 1; } };\n"
)
IN_A_TEMPLATE = "template <class T> float g(T &s) { return s.get(); }\n"


@pytest.mark.parametrize(
    "rest",
    [
        IN_A_TEMPLATE + "kernel void k(device float *x, constant S &s) { S t = s; x[0] = g(s) + g(t); }",
        "kernel void k(device float *x, constant S &s) { auto get = &S::get; }",
    ],
)
def test_a_call_that_does_not_show_which_it_means_is_refused(rest):
    with pytest.raises(md.CompileError, match="this call does not show which it means") as caught:
        md.kernel(HEAD + STRUCT + rest)
    assert "softmetal" not in str(caught.value)


TWO = "int n(device float *s) { return 2; } int n(thread float *s) { return 1; }\n"
KERNEL = "kernel void k(device float *x, constant S &c, device S *d) "
#: A source, and what its kernel writes to x.
PROGRAMS = {
    "inherited": (STRUCT + KERNEL.replace("S ", "D ").join(["struct D : S { float b; };", "{ D t = {}; x[0] = c.get(); x[1] = t.get(); }"]), [1, 0]),
    "template for one space": (STRUCT + IN_A_TEMPLATE + KERNEL + "{ x[0] = g(c); }", [1]),
    "template by itself": (TWO + "template <class T> T g(device T *x) { T t; return n(x) * 10 + n(&t); } kernel void k(device float *x) { x[0] = g(x) + g(x); }", [42]),
    "kernel's template": (TWO + 'template <class T> kernel void k_of(device T *x) { T t; x[0] = n(x) * 10 + n(&t); } template [[host_name("k")]] kernel decltype(k_of<float>) k_of<float>;', [21]),
    "class template": (STRUCT.replace("struct S {", "template <class T> struct V { T v;") + "typedef V<float> S;" + KERNEL + "{ S t = {0, 5}; x[0] = c.get(); x[1] = t.get(); }", [1, 5]),
    "in a lambda": (TWO + "kernel void k(device float *x) { auto f = [=](device float *y) { float t; return n(y) * 10 + n(&t); }; x[0] = f(x); }", [21]),
    "const beside": ("struct S { float a; int g() thread { return 1; } int g() const thread { return 2; } int g() device { return 3; } int g() const device { return 4; } };" + KERNEL + "{ S t; const S u = {}; device const S *e = d; x[0] = t.g(); x[1] = u.g(); x[2] = d->g(); x[3] = e->g(); }", [1, 2, 3, 4]),
    "without a name": ("struct S { float a; int g() { return 1; } int g() device { return 2; } };" + KERNEL + "{ x[0] = S().g(); x[1] = d->g(); }", [1, 2]),
    "a constant of the program": (STRUCT + "constant S s = {4}; kernel void k(device float *x) { x[0] = s.get(); x[1] = (*&s).get(); }", [5, 5]),
    "by auto and arithmetic": (TWO + "kernel void k(device float *x) { float t[2]; auto p = t; x[1] = n(p + 1); x[2] = n(true ? x : x + 1); }", [0, 1, 2]),
    "another's member": (TWO + "struct Q { float n; }; kernel void k(device float *x) { Q q = {7}; x[0] = q.n + n(x); }", [9]),
}  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_what_a_call_means(source, expected):
    made = md.asarray(np.zeros(4, "f4"), copy=True)
    given = [
        md.asarray(np.zeros(4, "f4"), copy=True)
        for _ in range(2 * ("constant S &c" in source or "constant D &c" in source))
    ]
    md.Library(HEAD + source).kernel("k")(made, *given, threads=1, group=1)
    assert np.asarray(made)[: len(expected)].tolist() == expected
