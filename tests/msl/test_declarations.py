"""What the translator takes a declaration for, and where it ends: also in a source that somebody still writes."""

import pytest

from metal_dlpack.language import declarations
from metal_dlpack.language.tokens import Tokens
from softmetal.msl import kernels

#: Source: (kind, name, last word, members that are constructors) of each declaration, those within others too.
READ = {
    "int a {1};": [("other", "", ";")],
    "constant int a[] {1, 2}; int f() { return a[0]; }": [("other", "", ";"), ("function", "f", "}")],
    "struct A { int x; };": [("class", "A", ";"), ("other", "", ";")],
    "struct __attribute__((packed)) A { int x; };": [("class", "A", ";"), ("other", "", ";")],
    "enum class E { first };": [("class", "E", ";")],
    "struct : A { int x; } v;": [("class", "", ";"), ("other", "", ";")],
    "struct { int x; } v;": [("class", "", ";"), ("other", "", ";")],
    "float f(float x) { return x; }": [("function", "f", "}")],
    "float f(float x);": [("function", "f", ";")],
    "template <class T> struct A { A(T t) : x(t), y{t} {} T x, y; };": [
        ("class", "A", ";"),
        ("function", "A", "}", "constructor"),
        ("other", "", ";"),
    ],
    "template <class... T> struct A : T... { A(T... t) : T(t)... {} };": [
        ("class", "A", ";"),
        ("function", "A", "}", "constructor"),
    ],
}


@pytest.mark.parametrize("source", READ)
def test_a_declaration_is_read(source):
    tokens = Tokens.of(source)
    found = []
    for one in declarations.every(declarations.read(tokens)):
        name = one.name(tokens) if one.kind in ("class", "function") else ""
        found.append((one.kind, name, tokens.words[one.last], *["constructor"] * one.is_constructor))
    assert found == READ[source]


@pytest.mark.parametrize("source", READ)
def test_a_declaration_that_is_not_finished_is_read_to_its_end(source):
    """Wherever its author is: reading ends, and no place is past the end of the source."""
    for end in range(len(source)):
        text = source[:end]
        closing = [{"(": ")", "{": "}", "[": "]"}[mark] for mark in unclosed(text)]
        tokens = Tokens.of(text + "".join(reversed(closing)))
        for one in declarations.every(declarations.read(tokens)):
            assert 0 <= one.first <= one.last < len(tokens.words), text


def unclosed(text):
    marks = []
    for mark in text:
        if mark in "({[":
            marks.append(mark)
        elif mark in ")}]":
            marks.pop()
    return marks


@pytest.mark.parametrize(
    ("parameters", "signature"),
    [
        ("device float *x, uint i", "float *x, uint i"),
        ("uint i, device float *x", "uint i, float *x"),
        ("const device float *x", "const float *x"),
        ("", ""),
    ],
)
def test_an_instantiation_has_all_its_parameters(parameters, signature):
    template = f"template <class T> kernel void f({parameters}) {{}}"
    tokens = Tokens.of(f'{template} template [[host_name("a")]] kernel void f<float>({parameters});')
    (found,) = kernels.find(tokens, declarations.read(tokens)).values()
    assert found.signature.replace(" ", "") == signature.replace(" ", "")
