"""A source that does not compile: the error names the user's line, as a SyntaxError, on both systems."""

import copy
import linecache
import pickle
import traceback

import pytest
from children import run_child

import metal_dlpack as md
from metal_dlpack import compile_errors

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
#: What the translator, the preprocessor and the compiler find, and the line that is marked by `// <- here`.
BROKEN = {
    "an unknown name": "kernel void f(device float *x) {\n    x[0] = y;  // <- here\n}",
    "a missing semicolon": "kernel void f(device float *x) {\n    x[0] = 1  // <- here\n}",
    "an unknown type": "kernel void f(device flaot *x) {  // <- here\n    x[0] = 1;\n}",
    "a missing brace": "kernel void f(device float *x) {\n    if (x[0] > 0) {\n        x[0] = 1;\n}  // <- here",
    "a surplus brace": "kernel void f(device float *x) {\n    x[0] = 1;\n}\n}  // <- here",
    "a second definition": "float g() { return 1; }\nfloat g() { return 2; }  // <- here\nkernel void f(device float *x) { x[0] = g(); }",
    "an unfinished text": "kernel void f(device float *x) {\n    x[0] = 'a;  // <- here\n}",
    "an #error": "#error not today  // <- here\nkernel void f(device float *x) {}",
    "an #if without its end": "kernel void f(device float *x) {}\n#if 1  // <- here\n",
    "an unknown directive": "#inklude <metal_stdlib>  // <- here\nkernel void f(device float *x) {}",
}


def error_for(source, **options):
    with pytest.raises(md.CompileError) as caught:
        md.kernel(source, **options)
    return caught.value


@pytest.mark.needs_kernels
@pytest.mark.parametrize("what", BROKEN)
def test_the_line_is_the_users(what):
    source = METAL + BROKEN[what]
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "// <- here" in text)
    error = error_for(source)
    assert (error.filename, error.lineno) == ("program_source", line), error.diagnostics
    assert all(one.file == "program_source" for one in error.diagnostics)


@pytest.mark.needs_kernels
def test_the_name_of_the_source_is_the_files():
    source = METAL + BROKEN["an unknown name"]
    error = error_for(source, defines={"A": 1, "B": 2}, math="safe")
    assert (error.filename, error.lineno) == ("program_source", 4)
    with pytest.raises(md.CompileError) as caught:
        md.Library(source, name="my.metal")
    named = caught.value
    assert (named.filename, named.lineno, named.offset) == ("my.metal", 4, 12)
    assert named.text.strip().startswith("x[0] = y;")
    assert "'y'" in named.msg
    (first, *_) = named.diagnostics
    assert first == ("my.metal", 4, 12, "error", named.msg)


@pytest.mark.needs_kernels
def test_an_error_that_constants_make_comes_with_the_kernel():
    source = METAL + (
        "constant int N [[function_constant(0)]];\nkernel void f(device float *x) {\n    x[0] = y;  // <- here\n}"
    )
    with pytest.raises(md.CompileError) as caught:
        md.Library(source).kernel("f", {"N": 1})
    assert caught.value.lineno == 5


# ---- the program's own lines ----

BODY = "\n".join(["kernel void f(device float *x) {", "    x[0] = 1;", "    x[0] = unknown;", "}"])  # no literal
ESCAPED = BODY.replace("\n", "\\n")
#: How a program has the text, and how many lines below that it is wrong; None: it can be meant otherwise.
WRITTEN = {
    "a literal": (f'text = """{BODY}"""', 2),
    "a literal that begins a line later": (f'text = """\n\n{BODY}\n"""', 4),
    "a literal whose first line is continued": (f'text = """\\\n{BODY}\n"""', 3),
    "an indented argument": (f'text = str(\n    """{BODY}""")', 3),
    "without its indentation": (f'import textwrap\ntext = textwrap.dedent("""\n{BODY}\n""")', 4),
    "one line": (f'text = "{ESCAPED}"', 0),
    "a line for each": ("text = (\n" + "\n".join(f'    "{line}\\n"' for line in BODY.split("\n")) + ")", 3),
    "two lines for each": (f'text = ("{ESCAPED[:50]}"\n"{ESCAPED[50:]}")', None),
    "two literals": (f'other = """{BODY}"""\ntext = """{BODY}"""', None),
    "a text that is filled in": (f'text = """{BODY}""".replace("1", "2")', None),
    "a text of two": (f'text = "#define N 1\\n" + """{BODY}"""', None),
}


def refused_in(tmp_path, code, above=3, **options):
    """What a program says whose text stands below so many lines: is it of its file, how far below, and what is there."""
    path = tmp_path / "program.py"
    path.write_text("# above\n" * above + code + "\nerror = error_for(text, **options)\n")
    program = {"error_for": error_for, "options": options}
    exec(compile(path.read_text(), path, "exec"), program)
    error = program["error"]
    return error.filename == str(path), error.lineno - above - 1, error.text[error.offset - 1 :][:7]


@pytest.mark.needs_kernels
@pytest.mark.parametrize("how", WRITTEN)
def test_the_line_is_the_program_s_where_one_literal_is_the_text(tmp_path, how):
    code, line = WRITTEN[how]
    is_found, told, text = refused_in(tmp_path, code)
    assert (is_found, text) == (line is not None, "unknown")
    assert line is None or told == line


@pytest.mark.needs_kernels
def test_the_line_is_that_of_the_file_as_it_is_now(tmp_path):
    for above in (3, 5):
        assert refused_in(tmp_path, f'text = """{BODY}"""', above, defines={"N": 2}) == (True, 2, "unknown")


@pytest.mark.needs_kernels
def test_a_traceback_shows_the_program_s_line(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f'import metal_dlpack as md\n\nmd.kernel("""{BODY}""")\n')
    assert f'  File "{path}", line 5\n    x[0] = unknown;\n           ^' in run_child(path).stderr


WORDS = (
    "program_source:3:5: error: use of undeclared identifier 'x'\n    x = 3;\n    ^\n"
    "program_source:2:1: note: 'y' declared here\nint y;\n^\n"
    "a b/lib.h:7:9: warning: unused variable 'z'\n    int z;\n        ^\n"
    "my.metal:9:1: fatal error: too many errors\n"
)


def test_all_that_is_said_is_told():
    error = compile_errors.error_of("Compilation failed: \n\n" + WORDS)
    assert isinstance(error, SyntaxError)
    assert (error.msg, error.filename, error.lineno, error.offset, error.text) == (
        "use of undeclared identifier 'x'",
        "program_source",
        3,
        5,
        "    x = 3;",
    )
    assert [(one.file, one.line, one.column, one.severity) for one in error.diagnostics] == [
        ("program_source", 3, 5, "error"),
        ("program_source", 2, 1, "note"),
        ("a b/lib.h", 7, 9, "warning"),
        ("my.metal", 9, 1, "error"),
    ]


def test_a_traceback_shows_the_line_and_the_rest():
    error = compile_errors.error_of(WORDS)
    assert (error.end_lineno, error.end_offset) == (error.lineno, error.offset), "one mark, in each Python"
    printed = "".join(traceback.format_exception(error))
    assert '  File "program_source", line 3\n    x = 3;\n    ^\n' in printed
    assert "CompileError: use of undeclared identifier 'x'" in printed
    assert "warning: unused variable 'z'" in printed
    linecache.checkcache()


@pytest.mark.parametrize(
    ("words", "msg", "line", "text"),
    [
        ("error: no kernel\n", "no kernel", None, None),
        ("Compiler crashed", "Compiler crashed", None, None),
        ("", "Metal does not compile the source, and gives no reason", None, None),
        ("k.metal:3: error: bad\n", "bad", 3, None),
        ("k.metal:3:7: error: bad\n    3 |   int x\n      |   ^\n", "bad", 3, "  int x"),
        ("k.metal:3:7: error: one\nk.metal:4:7: error: two\n", "one", 3, None),
        ("k.metal:1:1: warning: w\nint w;\n^\nk.metal:3:7: error: e\nint e;\n^\n", "e", 3, "int e;"),
    ],
)
def test_whatever_a_compiler_says_becomes_an_error(words, msg, line, text):
    error = compile_errors.error_of(words)
    assert (error.msg, error.lineno, error.text) == (msg, line, text)
    assert str(error)


def test_it_can_be_pickled_and_copied():
    error = compile_errors.error_of(WORDS)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is md.CompileError
        assert (again.msg, again.lineno, again.diagnostics) == (error.msg, error.lineno, error.diagnostics)
