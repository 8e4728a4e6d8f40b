"""msl/diagnostics.py: clang's words, told of the user's lines in the form of Metal's compiler."""

import pytest

from metal_dlpack.language import diagnostics
from softmetal.msl.flags import EMPTY, INCLUDE

SHIM = f"{INCLUDE}/softmetal_vectors.h"


def test_an_error_keeps_its_line_and_caret_and_loses_the_count():
    said = "program_source:3:5: error: use of undeclared identifier 'x'\n    x = 1;\n    ^\n1 error generated.\n"
    assert diagnostics.clean(said) == (
        "program_source:3:5: error: use of undeclared identifier 'x'\n    x = 1;\n    ^\n"
    )


def test_several_errors_follow_each_other_and_warnings_are_left_out():
    said = (
        "program_source:1:1: error: one\na\n^\n"
        "program_source:2:1: warning: not this\nb\n^\n"
        "program_source:2:1: note: nor this\nb\n^\n"
        "program_source:3:1: fatal error: three\nc\n^\n"
        "1 warning and 2 errors generated.\n"
    )
    assert diagnostics.clean(said) == ("program_source:1:1: error: one\na\n^\nprogram_source:3:1: error: three\nc\n^\n")


@pytest.mark.parametrize("said", ["", "program_source:2:1: warning: only\nb\n^\n1 warning generated.\n"])
def test_without_an_error_nothing_is_said(said):
    assert diagnostics.clean(said) == ""


def test_notes_of_the_user_stay_and_notes_about_the_shim_go():
    said = (
        "program_source:9:3: error: no matching function for call to 'f'\n  f(1, 2);\n  ^\n"
        f"{SHIM}:10:1: note: candidate function not viable\n  shim\n  ^\n"
        "program_source:2:6: note: candidate function not viable: requires 1 argument\nvoid f(int);\n     ^\n"
    )
    assert diagnostics.clean(said) == (
        "program_source:9:3: error: no matching function for call to 'f'\n  f(1, 2);\n  ^\n"
        "program_source:2:6: note: candidate function not viable: requires 1 argument\nvoid f(int);\n     ^\n"
    )


def test_an_error_inside_the_shim_moves_to_the_users_line_that_led_there():
    said = (
        f"{SHIM}:40:5: error: static assertion failed: no such swizzle\n    static_assert\n    ^\n"
        f"{SHIM}:50:5: note: in instantiation of 'inner<int>' requested here\n  inner\n  ^\n"
        "mine.h:7:9: note: in instantiation of 'outer<int>' requested here\n    x = outer<int>();\n        ^\n"
        "program_source:3:1: note: in instantiation of 'f<int>' requested here\nf<int>();\n^\n"
    )
    assert diagnostics.clean(said) == (
        "mine.h:7:9: error: static assertion failed: no such swizzle\n    x = outer<int>();\n        ^\n"
        "program_source:3:1: note: in instantiation of 'f<int>' requested here\nf<int>();\n^\n"
    )


def test_an_error_inside_a_header_of_ours_moves_to_the_line_that_includes_it():
    said = (
        "In file included from program_source:5:\n"
        f"In file included from {SHIM}:2:\n"
        f"{EMPTY}/metal_raytracing:1:2: error: not here\n#error not here\n ^\n"
    )
    source = "\n\n\n\n#include <metal_raytracing>\n"
    lines = diagnostics.lines_of_source(source)
    assert diagnostics.clean(said, lines) == "program_source:5:1: error: not here\n#include <metal_raytracing>\n^\n"


def test_an_error_with_no_line_of_the_user_is_placed_at_the_beginning():
    said = f"{SHIM}:40:5: error: broken\n    static_assert\n    ^\n"
    assert diagnostics.clean(said) == "program_source:1:1: error: broken\n"


def test_an_error_of_no_file_is_not_the_users():
    assert diagnostics.clean("error: unknown argument: '-x'\nfatal error: error in backend\n") == ""


def test_the_users_own_absolute_paths_are_the_users():
    said = "/a/b/k.metal:3:1: error: here\nx\n^\n"
    assert diagnostics.clean(said) == said


@pytest.mark.parametrize(
    "clangs, metals",
    [
        ("'_Float16'", "'half'"),
        ("'metal::vec<float, 4>'", "'float4'"),
        ("'vec<unsigned int, 3>'", "'uint3'"),
        ("'const metal::vec<_Float16, 2> &'", "'const half2 &'"),
        ("'metal::packed_vec<signed char, 3>'", "'packed_char3'"),
        ("'metal::matrix<float, 4, 3>'", "'float4x3'"),
        ("'uint' (aka 'unsigned int')", "'uint'"),
        ("'float4' (aka 'metal::vec<float, 4>')", "'float4'"),
        ("'index_t' (aka 'unsigned long long')", "'index_t' (aka 'ulong')"),
        ("'my_vec<int, 4>'", "'my_vec<int, 4>'"),
        ("'unsigned_thing'", "'unsigned_thing'"),
        ("'mymetal::x'", "'mymetal::x'"),
    ],
)
def test_types_have_metals_names(clangs, metals):
    assert (
        diagnostics.clean(f"f:1:1: error: no conversion to {clangs}\n") == f"f:1:1: error: no conversion to {metals}\n"
    )


def test_the_users_line_is_shown_as_it_was_written_with_the_caret_below_the_same_word():
    source = "kernel void k(device float *x) {\n\tthreadgroup half4 shared[8]; shared[0] = shared + 1;\n}\n"
    said = (
        "program_source:2:58: error: invalid operands\n"
        "\tmetal::vec<_Float16, 4> (&shared)[8] = v(); shared[0] = shared + 1;\n                ^\n"
    )
    assert said.splitlines()[1][57:63] == "shared"
    assert diagnostics.clean(said, diagnostics.lines_of_source(source)) == (
        "program_source:2:43: error: invalid operands\n"
        "\tthreadgroup half4 shared[8]; shared[0] = shared + 1;\n"
        "\t                                         ^\n"
    )


@pytest.mark.parametrize(
    ("written", "translated", "before"),
    [
        ("float größe = größe * übel;", "metal::half größe = größe * übel;", "float größe = größe * "),
        ("float größe = größe", "metal::half größe = größe", "float größe = größe"),
        ("float größe = ü // ü", None, "float größe = ü // ü"),
    ],
)
def test_a_column_counts_bytes_and_the_caret_letters(written, translated, before):
    """The compiler's column is of the line as it was translated, and counts bytes of UTF-8."""
    column = 99 if translated is None else len(translated[: -len(written[len(before) :]) or None].encode()) + 1
    said = f"program_source:1:{column}: error: no\n" + (f"{translated}\n^\n" if translated else "")
    shown = diagnostics.clean(said, diagnostics.lines_of_source(written)).splitlines()
    assert shown == [
        f"program_source:1:{len(before.encode()) + 1}: error: no",
        written,
        " " * len(before) + "^",
    ]


def test_what_is_missed_after_a_word_is_missed_after_the_same_word():
    source = "    threadgroup float x = half(1) // here\n"
    said = "program_source:1:27: error: expected ';'\n    float &x = _Float16(1) // here\n"
    shown = diagnostics.clean(said, diagnostics.lines_of_source(source)).splitlines()
    assert shown[0] == "program_source:1:34: error: expected ';'"
    assert shown[2].index("^") == source.index(" //")


@pytest.mark.parametrize(("written", "translated", "at", "shown"), [
    ("  MACRO(1);", "  f(g(1, nothing));", "f(", "MACRO"),
    ("x[i] = LOAD(i) + 1;", "x[i] = y[i] + 1;", "y[", "LOAD"),
    ("threadgroup int s[8]; s[i] = 1; s[i] = 2;", "int (&s)[8] = made<int>(); s[i] = 1; s[i] = 2;", "= 1", "= 1"),
    ("threadgroup int s[8]; s[i] = 1; s[i] = 2;", "int (&s)[8] = made<int>(); s[i] = 1; s[i] = 2;", "= 2", "= 2"),
    ("threadgroup int s[8];", "int (&s)[8] = made<int>();", "= made", ";"),
    ("MACRO", "", "", "MACRO"),
    ("f(x);" + "x = 1; " * 2000 + "y = 1;", "g(x, 1);" + "x = 1; " * 2000 + "y = 1;", "1;", "1;"),
])  # fmt: skip
def test_a_column_is_that_of_the_same_word_or_of_what_stands_for_it(written, translated, at, shown):
    """The equal word among the same neighbours counts, wherever the translator has put such words before it."""
    column = diagnostics.column_in(written, translated, translated.rindex(at) + 1)
    assert column == written.rindex(shown) + 1


def test_lines_are_numbered_as_line_directives_say():
    source = '\n#line 40 "a\\"b.h"\nforty\n#line 7\nseven\n# 9 "c.h" 2\nnine\n'
    lines = diagnostics.lines_of_source(source)
    assert lines["program_source", 2] == '#line 40 "a\\"b.h"'
    assert lines['a"b.h', 40] == "forty"
    assert lines['a"b.h', 7] == "seven"
    assert lines["c.h", 9] == "nine"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "use of undeclared identifier 'sin'; did you mean 'metal::sin'?",
            "did you mean 'metal::sin'? Or begin the source ",
        ),
        ("no member named 'sn' in namespace 'metal'; did you mean 'sin'?", "in namespace 'metal'; did you mean 'sin'?"),
        ("unknown type name 'vec2'; did you mean 'metal::detail::vec3'?", "did you mean 'vec3'?"),
    ],
)
def test_a_hint_keeps_the_namespace_that_is_missing(said, shown):
    assert shown in diagnostics.metal_names(said)


def test_a_mark_of_cuda_is_told_metals():
    assert "Metal writes `kernel void" in diagnostics.metal_names("unknown type name '__global__'")
