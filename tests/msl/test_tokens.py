"""Words and gaps: nothing of a source is lost between them, and every word keeps its line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metal_dlpack.language.tokens import Tokens, Unbalanced
from softmetal.msl import literals

PIECES = ["x", "float4", "1.0", "1e-5h", "0x1F", ".5", "<", ">", "->", "::", "'\\''", '"a // b"', "\n", "\t ", ";", ","]


def texts():
    piece = st.sampled_from([*PIECES, "\n#pragma unroll\n", '\n#line 7 "b.metal"\n', "é"]) | st.text(
        st.characters(exclude_characters="()[]{}"), max_size=4
    )
    nested = st.recursive(
        piece,
        lambda inner: (
            st.lists(inner)
            .map("".join)
            .flatmap(lambda text: st.sampled_from([f"({text})", f"[{text}]", f"{{{text}}}"]))
        ),
    )
    return st.lists(nested, max_size=12).map("".join)


@settings(max_examples=25)
@given(texts())
def test_gaps_and_words_are_the_text_again_and_brackets_lead_to_each_other(text):
    try:
        tokens = Tokens.of(text)
    except Unbalanced:  # a quote may hide a bracket
        return
    assert tokens.text() == text
    for one, other in tokens.partner.items():
        assert tokens.partner[other] == one
        assert tokens.words[min(one, other)] + tokens.words[max(one, other)] in {"()", "[]", "{}"}


@pytest.mark.parametrize("text", ["(", ")", "[)", "f(a]", "{ ( }", "}{"])
def test_a_bracket_without_its_partner_is_told(text):
    with pytest.raises(Unbalanced):
        Tokens.of(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a<b<c>>(d)", ["a", "<", "b", "<", "c", ">", ">", "(", "d", ")"]),
        ("x->y<<=1", ["x", "->", "y", "<<", "=", "1"]),
        ("1.e-5f+.5h-0x1p-3", ["1.e-5f", "+", ".5h", "-", "0x1p-3"]),
        ("1'000'000u", ["1'000'000u"]),
        ("größe+über.λ", ["größe", "+", "über", ".", "λ"]),
        ("metal::max(a,b)", ["metal", "::", "max", "(", "a", ",", "b", ")"]),
        (r'"a\"b" c', [r'"a\"b"', "c"]),
        ('R"x(" ) {\n )" )x" u8R"(")" Rx', ['R"x(" ) {\n )" )x"', 'u8R"(")"', "Rx"]),
    ],
)
def test_words(text, words):
    assert [word for word in Tokens.of(text).words if word] == words


def test_what_is_dropped_leaves_its_lines():
    tokens = Tokens.of('a\n#pragma unroll\nb\n#line 9 "x.h"\nc\nd')
    tokens.drop(0, 2)
    assert tokens.text() == '\n\n\n#line 9 "x.h"\n\nd'


def test_places_follow_line_directives():
    tokens = Tokens.of('#line 1 "program_source"\n  a\n#line 40 "in/b.h"\nb\n   c d')
    assert [tokens.place(at) for at in range(4)] == [
        ("program_source", 1, 3),
        ("in/b.h", 40, 1),
        ("in/b.h", 41, 4),
        ("in/b.h", 41, 6),
    ]
    assert tokens.line(3) == "   c d"


@pytest.mark.parametrize(
    ("written", "cpp"),
    {
        "1.0": "1.0f",
        "1.": "1.f",
        ".5": ".5f",
        "1e5": "1e5f",
        "1.5e-3": "1.5e-3f",
        "2.0f": "2.0f",
        "2.0F": "2.0F",
        "0x1.8p1": "0x1.8p1f",
        "1.0h": "half(1.0f)",
        "1.0H": "half(1.0f)",
        "0h": "half(0.f)",
        "1.5bf": "bfloat(1.5f)",
        "1": "1",
        "0x1F": "0x1F",
        "0xBF": "0xBF",
        "7u": "7u",
        "7ul": "7ul",
        "0b101": "0b101",
    }.items(),
)
def test_numbers_have_metals_types(written, cpp):
    assert literals.in_cpp(written) == cpp
