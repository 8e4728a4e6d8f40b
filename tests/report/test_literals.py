"""Where a kernel's text stands in the program: literals of every form, written by a random program whose lines are known."""

import importlib.util
import random
import re
import sys

import pytest

from metal_dlpack.language import literals
from softmetal import report

NAMES = ["tile", "sum", "acc", "lane", "row", "x", "weights"]


def random_lines(rng):
    """A body of MSL: statements, blocks, empty lines, comments, quotation marks and backslashes."""
    lines, depth = [], 0
    for _ in range(rng.randrange(4, 14)):
        kind = rng.randrange(8)
        pad = "    " * depth
        name, number = rng.choice(NAMES), rng.randrange(1000)
        if kind == 0:
            lines.append(f"{pad}if ({name} < {number}) {{")
            depth += 1
        elif kind == 1 and depth:
            depth -= 1
            lines.append("    " * depth + "}")
        elif kind == 2:
            lines.append("")
        elif kind == 3:
            lines.append(f"{pad}// it's the {name} of {number}")
        elif kind == 4:
            lines.append(f"{pad}#define {name.upper()}_{number} (1 + \\")
        else:
            lines.append(f"{pad}{name}[{number}] = {rng.choice(NAMES)} * {number}.5f;")
    return lines + [f"    out[{rng.randrange(10**9)}] = acc;"] + ["    " * i + "}" for i in range(depth - 1, -1, -1)]


# Each gives lines of Python that make `text`, and the line among them where each line of the text stands.


def plain(lines, rng):
    code = ['text = r"""', *lines, '"""']
    return code, ["", *lines, ""], range(len(lines) + 2)


def at_once(lines, rng):
    return (
        ["text = ('''" + lines[0].replace("\\", "\\\\"), *(line.replace("\\", "\\\\") for line in lines[1:]), "''')"],
        [
            *lines,
            "",
        ],
        range(len(lines) + 1),
    )


def dedented(lines, rng):
    code = ["import textwrap", "def make():", '    return textwrap.dedent(r"""\\'[:-1]]
    code += [" " * 8 * bool(line) + line for line in lines] + ['    """)', "text = make()"]
    return code, ["", *lines, ""], range(2, len(lines) + 4)


def formatted(lines, rng):
    """An f-string: one line is filled in."""
    twice = [line.replace("{", "{{").replace("}", "}}") for line in lines]
    at = rng.randrange(len(lines))
    filled = f"    {NAMES[at % 7]}_{{n}}[{at}] += value_of_{{n}};"
    code = ["n = 5", 'text = fr"""', *twice[:at], filled, *twice[at:], '"""']
    text = ["", *lines[:at], filled.replace("{n}", "5"), *lines[at:], ""]
    return code, text, range(1, len(lines) + 4)


def filled(lines, rng):
    """Something is filled in everywhere: by str.format or by %."""
    holes, letters = rng.choice([("{}", ".format"), ("%s", " % ")])
    where = [bool(line.strip()) for line in lines]
    if holes == "{}":
        written = [line.replace("{", "{{").replace("}", "}}") for line in lines]
    else:
        written = [line.replace("%", "%%") for line in lines]
    written = [line.replace("(1 + \\", "1") + holes * is_there for line, is_there in zip(written, where, strict=True)]
    text = [
        line.replace("(1 + \\", "1") + f"_{at}" * is_there
        for at, (line, is_there) in enumerate(zip(lines, where, strict=True))
    ]
    values = "(" + "".join(f"'_{at}'," for at, is_there in enumerate(where) if is_there) + ")"
    code = ["# filled in", 'text = ("""', *written, f'"""){letters}{values}']
    return code, ["", *text, ""], range(1, len(lines) + 3)


def pieces(lines, rng):
    """A literal for each line, joined by the compiler or by +."""
    join = " +" * rng.randrange(2)
    quoted = ['    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"' + join for line in lines]
    quoted[-1] = quoted[-1].removesuffix(join)
    return ["text = (", *quoted, ")"], [*lines, ""], [*range(1, len(lines) + 1), len(lines)]


def two_literals(lines, rng):
    """What is joined stands in two places, with other code between."""
    at = rng.randrange(1, len(lines))
    between = [f"other_{i} = {i}" for i in range(rng.randrange(1, 9))]
    code = ["second = r'''", *lines[at:], "'''", *between, "first = r'''", *lines[:at], "'''", "text = first + second"]
    begin = len(lines) - at + 2 + len(between)
    numbers = [*range(begin, begin + at + 1), None, *range(1, len(lines) - at + 1), None]
    return code, ["", *lines[:at], "", *lines[at:], ""], numbers


FORMS = [plain, at_once, dedented, formatted, filled, pieces, two_literals]


def written(tmp_path, name, code, above):
    path = tmp_path / f"{name}.py"
    path.write_text("\n".join(["# above"] * above + code) + "\n")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return str(path), module.text


def numbers_said(text):
    """By `#line`: (file, line) of each line of the text that it was put into."""
    file, number, said = "", 0, []
    for line in text.split("\n"):
        if line.startswith("#line "):
            number, file = int(line.split()[1]) - 1, line.split('"')[1]
            continue
        number += 1
        said.append((file, number))
    return said


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.some(3)
def test_each_line_of_a_text_is_found_in_its_literal(tmp_path, form):
    """A line that tells nothing, as `}`, may be said beside it."""
    wrong = []
    for seed in range(10):
        rng = random.Random(f"{form.__name__} {seed}")
        name, above = f"kernels_of_{form.__name__}_{seed}", rng.randrange(5)
        code, lines, numbers = form(random_lines(rng), rng)
        path, text = written(tmp_path, name, code, above)
        assert text.split("\n") == lines or form is dedented
        said = numbers_said(report.with_lines(text))
        assert re.sub("#line .*\n", "", report.with_lines(text)) == text
        telling = [at for at, line in enumerate(lines) if len(line.strip()) > 5]
        for at in telling:
            is_repeated = sum(lines[at].strip() == line.strip() for line in lines) > 1
            if not is_repeated and said[at] != (path, above + numbers[at] + 1):
                wrong.append((seed, lines[at], said[at], above + numbers[at] + 1))
        del sys.modules[name]
    assert wrong == []


def test_the_first_of_the_same_lines_is_the_callers(tmp_path):
    text = '"""\nkernel void twice(device float *x [[buffer(0)]]) {\n    x[0] = 17.25f;\n}\n"""'
    written(tmp_path, "zz_first", [f"text = {text}", "from softmetal import report"], 0)
    second, _ = written(
        tmp_path,
        "aa_second",
        [f"text = {text}", "from softmetal import report", "where = report.source_of(text)"],
        3,
    )
    try:
        assert sys.modules["aa_second"].where == (second, 4)
    finally:
        del sys.modules["aa_second"], sys.modules["zz_first"]


#: Texts of which one is a part of the other, and texts on one line of Python.
WHOLE = '''\
first = """
    if (thread_position_in_grid.x > 2) return;
    uint i = thread_position_in_grid.x;
    y[i] = x[i + 1];
"""
second = """
    uint i = thread_position_in_grid.x;
    y[i] = x[i + 1];
"""
made("a name", source="uint i = thread_position_in_grid.x; y[i] = x[i + 1] * 3;")
third = ("uint i = thread_position_in_grid.x;\\n"
         "y[i] = x[i + 1];\\n")
'''


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "\n    if (thread_position_in_grid.x > 2) return;\n    uint i = thread_position_in_grid.x;\n    y[i] = x[i + 1];\n",
            (2, 3, 4),
        ),
        ("\n    uint i = thread_position_in_grid.x;\n    y[i] = x[i + 1];\n", (7, 8)),
        ("uint i = thread_position_in_grid.x; y[i] = x[i + 1] * 3;", (10,)),
    ],
)
def test_the_literal_that_is_the_whole_text_wins(text, lines):
    keys = [literals._key(line) for line in text.split("\n")]
    weight, numbers = literals._compare(keys, WHOLE)
    assert weight > sum(map(len, keys))
    assert tuple(number for key, number in zip(keys, numbers, strict=True) if key) == lines


@pytest.mark.parametrize("text", ["", "}\n", "uint of_nowhere_" + "1 = 4;", "\n".join(map(str, range(400)))])
def test_of_a_text_that_is_no_literal_nothing_is_said(text):
    assert report.source_of(text) is None
    assert report.with_lines(text) == text


def test_a_thousand_kernels_read_the_files_beside_them_a_few_times(tmp_path, monkeypatch):
    kernel = tmp_path / "k.metal"
    kernel.write_text("kernel void f() {}\n\n")
    listed = []
    monkeypatch.setattr(
        literals, "_metal_files", lambda: listed.append(1) or iter([str(kernel), str(tmp_path / "gone")])
    )
    literals._files_by_text.cache_clear()
    for number in range(1000):
        assert literals.metal_file(f"kernel void other{number}() {{}}") is None
    assert literals.metal_file("kernel void f() {}") == (str(kernel), (1,))
    assert len(listed) < 100  # one a second
    literals._files_by_text.cache_clear()
