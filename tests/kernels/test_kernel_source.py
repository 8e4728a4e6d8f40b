"""Includes: expanded where they stand, under whatever #if, and every line keeps its number."""

import random
import re

import pytest

import metal_dlpack as md
from metal_dlpack import kernel_source
from metal_dlpack.language.tokens import TOKEN


def compose(source, include=None, name=None, defines=None):
    return kernel_source.compose(source, (name, defines, include, "safe"))


@pytest.fixture
def folder(tmp_path):
    """Writes files: folder({"a.h": text, ...}) is where they lie."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def lines_of(text):
    """What a compiler sees, without directives: (file, line, text), where each of our #ifs is true the first time."""
    file, number, seen, defined, skipped, found = "program_source", 0, [], set(), 0, []
    for line in text.splitlines():
        number += 1
        words = line.split()
        if line.startswith("#line"):
            number, file = int(words[1]) - 1, line.split('"')[1]
        elif line.startswith("#ifndef"):
            seen.append(words[1] in defined)
            skipped += seen[-1]
        elif line.startswith("#if"):
            seen.append(words[1] == "0")
            skipped += seen[-1]
        elif line.startswith("#else"):
            seen[-1] = not seen[-1]
            skipped += 1 if seen[-1] else -1
        elif line.startswith("#define") and not skipped:
            defined.add(words[1])
        elif line.startswith("#endif"):
            skipped -= seen.pop()
        elif line.strip() and not skipped:
            found.append((file.rpartition("/")[2], number, line))
    assert not seen
    return found


def test_a_plain_source_stays_as_it_is():
    source = '// #include "a.h"\n/* #include "b.h"\n*/\nconst char *s = "\\\n#include \\"c.h\\"";\n'
    assert compose(source) == source
    assert compose(source, name="k.metal") == '#line 1 "k.metal"\n' + source


def test_a_file_stands_where_its_line_was(folder):
    there = folder({"a.h": "int a;\nint b;\n"})
    text = compose('one\n#include "a.h" // why\ntwo\n  #  include "a.h"\nthree', there)
    assert lines_of(text) == [
        ("program_source", 1, "one"),
        ("a.h", 1, "int a;"),
        ("a.h", 2, "int b;"),
        ("program_source", 3, "two"),
        ("a.h", 1, "int a;"),
        ("a.h", 2, "int b;"),
        ("program_source", 5, "three"),
    ]


def test_a_file_begins_with_its_own_folder(folder):
    there = folder({"x.h": "wrong", "sub/a.h": '#include "x.h"\n', "sub/x.h": "right"})
    assert ("x.h", 1, "right") in lines_of(compose('#include "sub/a.h"', there))
    assert ("x.h", 1, "wrong") in lines_of(compose('#include "x.h"', [there, there / "sub"]))
    assert ("x.h", 1, "right") in lines_of(compose('#include "x.h"', [str(there / "sub"), there]))


def test_a_file_that_asks_to_be_read_once_is(folder):
    there = folder({"a.h": '#pragma once\n#include "b.h"\nint a;\n', "b.h": '# pragma  once\n#include "a.h"\nint b;\n'})
    assert [text for *_, text in lines_of(compose('#include "a.h"\n#include "b.h"\n#include "a.h"\nend', there))] == [
        "int b;",
        "int a;",
        "end",
    ]


@pytest.mark.parametrize(("condition", "expected"), [("0", ["int a;", "end"]), ("1", ["int a;", "end"])])
def test_once_means_once_of_those_that_the_compiler_reads(folder, condition, expected):
    """A first include that #if leaves out does not count."""
    there = folder({"a.h": "#pragma once\nint a;\n"})
    text = compose(f'#if {condition}\n#include "a.h"\n#endif\n#include "a.h"\nend', there)
    assert [line for *_, line in lines_of(text)] == expected


def test_guards_end_circles_too(folder):
    guarded = "#ifndef {0}\n#define {0}\n{1}int {2};\n#endif\n"
    there = folder({
        "a.h": "// words\n" + guarded.format("A", '#include "b.h"\n', "a"),
        "b.h": guarded.format("B", '#include "a.h"\n', "b"),
    })  # fmt: skip
    lines = [line for *_, line in lines_of(compose('#include "a.h"\n#include "b.h"\nend', there))]
    assert [line for line in lines if "//" not in line] == ["int b;", "int a;", "end"]


def test_headers_that_all_include_all_stay_small(folder):
    """Each of 30 includes all before it: without memory the text would double with each."""
    files = {f"h{i}.h": "#pragma once\n" + "".join(f'#include "h{j}.h"\n' for j in range(i)) for i in range(30)}
    text = compose('#include "h29.h"\n', folder(files))
    assert len(text) < 200_000


def read_by_hand(files, name, once):
    """The lines that a preprocessor comes to; `once` are the files that it does not read again."""
    active, found = [True], []
    for line in files[name].splitlines():
        if line.startswith("#if "):
            active.append(line == "#if 1")
        elif line == "#else":
            active[-1] = not active[-1]
        elif line == "#endif":
            active.pop()
        elif all(active):
            if line == "#pragma once":
                once.add(name)
            elif not line.startswith("#include"):
                found.append(line)
            elif (file := line.split('"')[1]) not in once:
                found += read_by_hand(files, file, once)
    return found


def test_what_is_read_is_what_a_preprocessor_reads_whatever_the_ifs(folder):
    draw = random.Random(0)
    for _ in range(60):
        files = {}
        for number in range(5):  # each may include those before it
            lines = ["#pragma once"] * draw.randint(0, 1)
            for part in range(draw.randint(1, 5)):
                some = [
                    f"f{number}.{part}",
                    *(f'#include "{name}"' for name in draw.choices(list(files), k=2 * bool(files))),
                ]
                if draw.random() < 0.6:
                    at = draw.randint(0, len(some))
                    some = [
                        f"#if {draw.randint(0, 1)}",
                        *some[:at],
                        *(["#else", *some[at:]] * draw.randint(0, 1)),
                        "#endif",
                    ]
                lines += some
            files[f"h{number}.h"] = "\n".join(lines) + "\n"
        text = compose('#include "h4.h"\n#if 1\n#include "h3.h"\n#endif\n#include "h3.h"\n', folder(files))
        once = set()
        wanted = [
            line for name in ("h4.h", "h3.h", "h3.h") if name not in once for line in read_by_hand(files, name, once)
        ]
        assert [line for *_, line in lines_of(text)] == wanted, files


def test_a_users_own_line_counts_on(folder):
    there = folder({"a.h": "int a;\n"})
    text = compose('#line 50 "mine.metal"\none\n#include "a.h"\ntwo', there)
    assert lines_of(text) == [("mine.metal", 50, "one"), ("a.h", 1, "int a;"), ("mine.metal", 52, "two")]


def test_a_missing_file_is_an_error_where_the_compiler_comes_to_it(folder):
    text = compose('#if 0\n#include "no.h"\n#endif\n', folder({"a.h": ""}))
    assert "#error 'no.h' file not found in the include folders (" in text


def test_a_long_text_is_counted_once():
    class Counted(str):
        counted = 0

        def count(self, letter, begin, end):
            Counted.counted += end - begin
            return super().count(letter, begin, end)

    source = Counted('// words\n"text"\n#line 7\n#include "no.h"\n#if 0\n#endif\n' * 100)
    assert compose(source).count('#line 8 "program_source"') == 100
    assert 0 < Counted.counted <= len(source)


@pytest.mark.parametrize(
    ("written", "told"),
    [(b"int caf\xe9;", "'a.h' cannot be read as UTF-8: .* byte 0xe9 in position 7"), (b"\xef\xbb\xbfint a;", "^#line")],
)
def test_the_bytes_of_a_file(folder, written, told):
    """What is no UTF-8 is an error where the compiler comes to it; a mark of the order of bytes is no part of a text."""
    there = folder({})
    (there / "a.h").write_bytes(written)
    text = compose('#include "a.h"\n', there)
    assert re.search(told, text)
    assert "\ufeff" not in text


#: The second is no UTF-8, as an old disk may have it; a Mac's file systems have no such names.
FOLDERS = ['a "b" c\\n', pytest.param("a \udcff", marks=pytest.mark.needs_softmetal)]


@pytest.mark.needs_kernels
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_any_name(tmp_path, name):
    there = tmp_path / name
    there.mkdir()
    (there / "a.h").write_text('#include "b.h"\nint a = y;\n')
    (there / "b.h").write_text("\n")
    with pytest.raises(md.CompileError, match="'y'") as caught:
        md.kernel('#include "a.h"\nkernel void f(device float *x) {}', include=there)
    shown = str(there / "a.h").replace("\udcff", "\\xff")
    assert (caught.value.filename, caught.value.lineno) == (shown, 2)
    assert f"folders ({there})".replace("\udcff", "\\xff") in compose('#include "no.h"', there)


@pytest.mark.needs_kernels
@pytest.mark.needs_softmetal
@pytest.mark.parametrize("name", FOLDERS)
def test_kernels_are_kept_in_a_folder_of_any_name(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / name))
    x = md.zeros(1)
    md.kernel("kernel void f(device float *x) { x[0] = 4; }")(x, n=1)
    assert x.tolist() == [4]
    assert list((tmp_path / name).rglob("*.so"))


def test_angle_brackets_look_in_the_folders_and_leave_the_rest_to_metal(folder):
    there = folder({"a/b.h": "int b;\n", "metal_math": "int mine;\n"})
    source = "#include <a/b.h>\n#include <metal_stdlib>\n#include <metal_math>\nend"
    lines = [(file, line) for file, _, line in lines_of(compose(source, there))]
    assert ("b.h", "int b;") in lines
    assert ("metal_math", "int mine;") in lines
    assert "#include <metal_stdlib>" in compose(source, there)
    assert compose(source).count("#include <") == 3


@pytest.mark.needs_kernels
def test_a_kernel_includes_by_angle_brackets(folder):
    there = folder({"a/b.h": "#include <metal_stdlib>\ninline float g() { return metal::sqrt(16.0); }\n"})
    x = md.zeros(1)
    md.kernel("#include <a/b.h>\nkernel void f(device float *x) { x[0] = g(); }", include=there)(x, n=1)
    assert x.tolist() == [4]
    with pytest.raises(md.CompileError, match=r"'a/b\.h' file not found"):
        md.kernel("#include <a/b.h>\nkernel void f(device float *x) { x[0] = g(); }")


@pytest.mark.needs_kernels
def test_a_missing_file_is_the_users_line():
    with pytest.raises(
        md.CompileError, match=r"'no\.h' file not found in the include folders \(none are given by include=\)"
    ) as caught:
        md.kernel('int a;\n#include "no.h"\nkernel void f(device float *x) {}')
    assert (caught.value.filename, caught.value.lineno) == ("program_source", 2)
    md.kernel('#if 0\n#include "no.h"\n#endif\nkernel void f(device float *x) {}')


@pytest.mark.needs_kernels
def test_a_file_that_includes_itself_is_the_files_line(folder):
    there = folder({"a.h": '\n#include "a.h"\n'})
    with pytest.raises(md.CompileError, match=r"'a\.h' includes itself") as caught:
        md.kernel('#include "a.h"\nkernel void f(device float *x) {}', include=there)
    assert (caught.value.filename, caught.value.lineno) == (str(there / "a.h"), 2)


@pytest.mark.needs_kernels
def test_errors_name_the_file_that_has_them(folder):
    there = folder({"a.h": "inline float g() {\n    return y;\n}\n", "b.h": "\n\n"})
    source = '#include <metal_stdlib>\n#include "b.h"\n#include "a.h"\nkernel void f(device float *x) { x[0] = g(); }'
    with pytest.raises(md.CompileError) as caught:
        md.kernel(source, include=there)
    assert (caught.value.filename, caught.value.lineno) == (str(there / "a.h"), 2)
    (there / "a.h").write_text("inline float g() { return 4; }\n")
    kernel = md.kernel(source, include=str(there))
    x = md.zeros(1)
    kernel(x, n=1)
    assert x.tolist() == [4]


# ---- long, hostile and decorated texts ----

HEADS = {
    "slashes": "/" * 64 + "\n",
    "comments of comments": "// a // b // c // d\n" * 40,
    "short comments": "/* a */\n" * 60,
    "a box": "/" * 70 + "\n//" + " " * 66 + "//\n" + "/" * 70 + "\n",
    "spaces": " \n\t" * 500,
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("asks", ["#pragma once\n", "#ifndef H\n#define H\n", ""], ids=["once", "guard", "neither"])
def test_a_header_may_open_with_any_banner(folder, head, asks):
    end = "#endif\n" if "ifndef" in asks else ""
    there = folder({"a.h": f"{head}{asks}int a;\n{end}"})
    text = '#include "a.h"\n' * 2
    expanded = kernel_source.compose(text, (None, None, str(there), "safe"))
    assert expanded.count("int a;") == (1 if asks else 2)


@pytest.mark.parametrize("once", ["#pragma once\n{}", "#ifndef {1}\n#define {1}\n{0}#endif\n"], ids=["pragma", "guard"])
def test_headers_that_include_each_other_under_an_if_are_given_once(folder, once):
    levels = 40
    body = ['#include "h{0}.h"\n#include "h{0}.h"\n'.format(n - 1) if n else "int a;\n" for n in range(levels)]
    there = folder({f"h{n}.h": once.format(text, f"H{n}") for n, text in enumerate(body)})
    text = f'#if 1\n#include "h{levels - 1}.h"\n#endif\n'
    assert kernel_source.compose(text, (None, None, str(there), "safe")).count("int a;") == 1


def test_a_file_of_one_branch_is_given_in_the_other_and_behind_them_too(folder):
    there = folder({"a.h": "#pragma once\nint a;\n"})
    text = '#if X\n#include "a.h"\n#else\n#include "a.h"\n#endif\n#include "a.h"\n#include "a.h"\n'
    assert kernel_source.compose(text, (None, None, str(there), "safe")).count("int a;") == 3


def test_files_that_come_in_each_branch_of_each_level_are_refused(folder, monkeypatch):
    monkeypatch.setattr(kernel_source, "MOST_LETTERS", 100_000)
    both = '#pragma once\n#if X\n#include "h{0}.h"\n#else\n#include "h{0}.h"\n#endif\n'
    there = folder({f"h{n}.h": both.format(n - 1) if n else "int a;\n" for n in range(40)})
    with pytest.raises(ValueError, match=r"more than 100000 letters.*outside of #if"):
        kernel_source.compose('#include "h39.h"\n', (None, None, str(there), "safe"))


HOSTILE = {
    "quotes that never end": '"' + '\\"' * 20_000,
    "raw strings that never end": 'R"(' * 20_000,
    "comments that never end": "/*" * 20_000,
    "spaces": " " * 60_000 + "x",
    "names in names": "a::" * 20_000 + "x",
    "one long word": "a" * 60_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_patterns_look_at_each_letter_a_few_times(text):
    """A quadratic pattern takes 10^9 steps here, and minutes; a linear one, no time that anybody sees."""
    assert kernel_source.compose(text, (None, None, None, "fast")) == text
    assert len(TOKEN.findall(text)) > 0


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("return metal::isnan(x);", True),
        ("x = precise :: isinf ( x );", True),
        ("bool isnan(float x);", False),
        ("y.isnan(x);", False),
        ("if (isnan(x)) y = 1;", True),
        ("} else isnan(x);", True),
    ],
)
def test_fast_math_warns_of_calls_not_of_declarations(line, is_told):
    assert bool(list(kernel_source._not_finite(line, "a"))) == is_told
