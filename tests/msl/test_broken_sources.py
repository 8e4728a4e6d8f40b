"""Sources that do not compile: each error names the line and the column of the user's text, whatever was rewritten there."""

import re

import kernel_images
import pytest

from softmetal import msl

pytestmark = pytest.mark.needs_kernels

#: What is wrong, at the word after the mark @.
BROKEN = {
    "after words that go": "kernel void f(const device float *x, device float *y) { threadgroup float *p = nullptr; y[0] = @q; }",
    "after a number that grows": "kernel void f(device float *x) { x[0] = 1.0 + 2.5h + @q; }",
    "after threadgroup memory": "kernel void f(device float *x) { threadgroup float a[4], b; b = @q; }",
    "in the extent of threadgroup memory": "kernel void f(device float *x) { threadgroup float a[@q]; }",
    "in the type of threadgroup memory": "kernel void f(device float *x) { threadgroup @q a[4]; }",
    "after threadgroup memory on two lines": "kernel void f(device float *x) { threadgroup float a[4],\n b[2];\n x[0] = @q; }",
    "after a function constant": "constant bool c [[function_constant(0)]]; constant int d = @q;",
    "in a type of a function constant": "constant @q c [[function_constant(0)]];",
    "after an attribute": "kernel void f(device float *x [[buffer(0)]], @q y [[buffer(1)]]) {}",
    "after a macro": "#define TWICE(a) ((a) + (a))\nkernel void f(device float *x) { x[0] = TWICE(1); x[1] = @q; }",
    "within a macro's argument": "#define TWICE(a) ((a) * 2)\nkernel void f(device float *x) { x[0] = TWICE(@q); }",
    "after a comment": "/* two\n lines */ kernel void f(device float *x) { /* one */ x[0] = @q; }",
    "after an instantiation": 'template <typename T> kernel void g(device T *x) {}\ntemplate [[host_name("a")]]\n kernel void g<int>(\n device int *);\nconstant int c = @q;',
    "after a declaration that is dropped": "int g(device int *x) { return 1; }\nint g(thread int *x) {\n return 1; } constant int c = @q;",
    "in a member's body": "struct S { int g() const device { return @q; } };",
    "after #pragma": "#pragma METAL internals : enable\nkernel void f(device float *x) { x[0] = @q; }",
    "in a namespace": "namespace n { namespace m {\nkernel void f(device float *x) { x[0] = @q; } } }",
    "a parameter without a place": "kernel void f(device float *x,\n @uint n) {}",
    "a name that is taken": "kernel void f(device float *x) {}\nkernel void @f(device int *x) {}",
    "an instantiation of nothing": 'template [[host_name("a")]] kernel void @g<int>(device int *);',
    "a constant without an index": "constant int c [[@function_constant(q)]];",
}

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def place(text: str) -> tuple[str, str]:
    """The text without its mark, and where that stood."""
    before = text[: text.index("@")]
    line = before.count("\n") + 1
    return text.replace("@", ""), f"{line}:{len(before) - before.rfind(chr(10))}"


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.some(6)
def test_the_place_is_the_users(what):
    source, where = place(HEAD + BROKEN[what])
    with pytest.raises(msl.SourceError) as caught:
        msl.open_library(source)
    first, shown, caret, *_ = str(caught.value).splitlines()
    assert first.startswith(f"program_source:{where}: error: "), caught.value
    line, column = map(int, where.split(":"))
    assert shown == source.split("\n")[line - 1]
    assert caret == " " * (column - 1) + "^"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("".join(f"struct s{nth} {{" for nth in range(400)) + "};" * 400, "bracket nesting level exceeded"),
        ("kernel void f(device int *x) <% x<:0:> = 1; %>", "expected"),
        ("constant int x", "const type"),
        ("constant int x [[function_constant(0)]]", "const type"),
        ("kernel void f(device float *x) { x[0] = \\\n 1 + q; }", "'q'"),
    ],
    ids=["classes within classes", "digraphs", "no end", "no end of a function constant", "joined lines are the first"],
)
def test_what_the_translator_cannot_read_is_the_compilers_error(clang, text, told):
    with pytest.raises(msl.SourceError, match=rf"^program_source:3:\d+: error: .*{told}"):
        msl.open_library(HEAD + text)


def test_a_function_constant_of_a_users_type_shows_its_line():
    line = "constant number n [[function_constant(0)]];"
    with pytest.raises(msl.SourceError, match=r"^program_source:4:1: error: the type 'number' .*\n" + re.escape(line)):
        msl.open_library(f"{HEAD}typedef uint number;\n{line}\nkernel void f(device uint *x) {{ x[0] = n; }}")


def test_a_function_constant_of_a_users_type_may_share_its_index_with_what_a_kernel_reads():
    line = "constant number n [[function_constant(0)]]; constant uint m [[function_constant(0)]];"
    library = msl.open_library(f"{HEAD}typedef uint number;\n{line}\nkernel void f(device uint *x) {{ x[0] = m; }}")
    assert library.compile("f", {0: b"\1\0\0\0"}).endswith(".so")


def test_a_template_is_checked_when_its_kernel_is_asked_for():
    source, where = place(HEAD + "template <typename T>\nkernel void g(device T *x) { x[0] = @q(x[0]); }\n")
    library = msl.open_library(source + 'template [[host_name("a")]] kernel void g<float>(device float *);')
    with pytest.raises(msl.SourceError, match=f"^program_source:{where}: error: "):
        library.compile("a", {})


@pytest.mark.parametrize(
    ("wrong", "word"), [("x[0] = q; }", "q"), ("} kernel void g(device int *x, uint n) {}", "uint")]
)
def test_letters_of_two_bytes_move_no_caret(wrong, word):
    """The compiler's errors and the translator's: a column counts bytes, and a caret stands below its word."""
    line = f"kernel void f(device float *x) {{ int ä = 1; {wrong}"
    with pytest.raises(msl.SourceError) as caught:
        msl.open_library(HEAD + line)
    first, shown, caret, *_ = str(caught.value).splitlines()
    at = line.index(f" {word}") + 1
    assert first.startswith(f"program_source:3:{len(line[:at].encode()) + 1}: error: ")
    assert (shown, caret) == (line, " " * at + "^")


def test_line_directives_name_files():
    source = f'{HEAD}#line 40 "in/mine.h"\nkernel void f(device float *x) {{ x[0] = q; }}'
    with pytest.raises(msl.SourceError, match=r"^in/mine\.h:40:41: error: "):
        msl.open_library(source)


def test_a_library_that_includes_what_is_not_supported_opens():
    source = (
        "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n#include <metal_raytracing>\n"
        "using namespace mpp;\nusing namespace metal::raytracing;\n"
        "kernel void f(device float *x) {}\nkernel void g(device float *x) {\n  tensor_ops::matmul2d_descriptor d(1, 2, 3);\n}"
    )
    library = msl.open_library(HEAD + source)
    assert list(library.functions) == ["f", "g"]
    assert library.compile("f", {}).endswith(".so")
    with pytest.raises(msl.SourceError, match=r"^program_source:9:3: error: .*'g' needs MetalPerformancePrimitives"):
        library.compile("g", {})


#: Declared, used and never defined: at the mark @.
UNDEFINED = {
    "a function": "@float g(float x);\nkernel void f(device float *x) { x[0] = g(1); }",
    "a function of a namespace": "namespace n { @float g(float x); }\nkernel void f(device float *x) { x[0] = n::g(1); }",
    "a static function": "@static float g(float x);\nkernel void f(device float *x) { x[0] = g(1); }",
    "a template": "@template <class T> T g(T x, metal::vec<T, 2> y);\nkernel void f(device float *x) { x[0] = g(1.0f, float2(1)); }",
    "a member": "struct S {\n@float g(); };\nkernel void f(device float *x) { S s; x[0] = s.g(); }",
    "a variable": "@extern constant float g[4];\nkernel void f(device float *x, constant int &n) { x[0] = g[n]; }",
    "a variable of a class": "struct S {\n@static constant int g; };\nkernel void f(device float *x) { x[0] = S::g; }",
    "what has no name": "struct S { S operator+(S); };\nkernel void @f(device float *x) { S s; s + s; }",
}


@pytest.mark.parametrize("command", kernel_images.EACH_COMPILER)
@pytest.mark.parametrize("what", UNDEFINED)
@pytest.mark.some(2)
def test_what_is_not_defined_shows_its_line(what, command, monkeypatch):
    monkeypatch.setenv("SOFTMETAL_CXX", kernel_images.command_of(command))
    source, where = place(HEAD + UNDEFINED[what])
    library = msl.open_library(source)
    with pytest.raises(msl.SourceError) as caught:
        library.compile("f", {})
    first, shown, *_ = str(caught.value).splitlines()
    assert re.match(
        rf"program_source:{where}: error: the kernel 'f' uses '.*', which is declared and not defined$", first
    )
    assert shown == source.split("\n")[int(where.partition(":")[0]) - 1]


def test_a_library_that_names_what_is_newest_opens():
    source = "template <int bits> struct F;\ntemplate <> struct F<4> { using T = metal::int4b_format; };\n"
    library = msl.open_library(f"{HEAD}{source}kernel void f(device float *x) {{ x[0] = 1; }}")
    assert library.compile("f", {}).endswith(".so")


CONSTANTS = """constant int n [[function_constant(0)]];
constant bool is_there [[function_constant(7)]];
constant int doubled = n * 2;
template <class T> kernel void g(device T *x) { if (is_function_constant_defined(is_there) && is_there) x[0] = doubled; }
template [[host_name("g")]] kernel void g<float>(device float *);
template <class T> kernel void h(device T *x, device T *y [[function_constant(is_there)]]) { x[0] = 1; }
template [[host_name("h")]] kernel void h<float>(device float *, device float *);
"""


@pytest.mark.parametrize("command", kernel_images.EACH_COMPILER)
@pytest.mark.parametrize("checked", kernel_images.quickly(True, of=[False, True]))
def test_an_instantiation_is_refused_that_reads_a_constant_without_a_value(command, checked, monkeypatch):
    monkeypatch.setenv("SOFTMETAL_CXX", kernel_images.command_of(command))
    library = msl.open_library(HEAD + CONSTANTS)
    assert library.compile("g", {}, checked=checked).endswith(".so")  # not read: what reads it is not reached
    with pytest.raises(
        msl.SourceError, match=r"^program_source:3:\d+: error: .*'g'.*'n' \(index 0\).* no value\nconstant int n"
    ):
        library.compile("g", {7: b"\1"}, checked=checked)
    assert library.compile("g", {0: b"\1\0\0\0", 7: b"\1"}, checked=checked).endswith(".so")
    with pytest.raises(msl.SourceError, match=r"^program_source:4:\d+: error: .*'h'.*'is_there' \(index 7\)"):
        library.compile("h", {}, checked=checked)
