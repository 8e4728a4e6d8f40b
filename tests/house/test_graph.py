"""The graphs of tests/support/graph.py, drawn of small trees made for the purpose: do they find what they should?"""

import graph
import pytest

needs_compiler = pytest.mark.skipif(not graph.can_compile(), reason="needs a C compiler with Objective-C, and nm")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files into a folder that stands for src/."""
    monkeypatch.setattr(graph, "SRC", tmp_path)

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


# ---- by #include ----


def test_a_file_and_its_header_are_one_room(tree):
    tree({"low/one.c": '#include "low/one.h"\n', "low/one.h": "", "low/two.h": '#import "low/one.h"\n', "door.m": ""})
    assert graph.include_graph() == {"low/one": set(), "low/two": {"low/one"}, "door": set()}
    assert [graph.folder(name) for name in ("low/one", "door")] == ["low", ""]


@pytest.mark.parametrize(
    "line", ['#include "high/b.h"', '  #  import "high/b.h"', '#include"high/b.h"', "#include <high/b.h>"]
)
def test_an_include_is_seen_however_it_is_written(tree, line):
    tree({"low/a.c": f"#include <stdio.h>\n{line}\n", "high/b.h": ""})
    assert graph.include_graph()["low/a"] == {"high/b"}


def test_a_circle_of_includes_over_three_files_is_found(tree):
    tree(
        {
            "low/a.h": '#include "low/b.h"',
            "low/b.h": '#include "high/c.h"',
            "high/c.h": '#include "low/a.h"',
            "low/d.h": '#include "low/a.h"',
        }
    )
    assert graph.circles(graph.include_graph()) == [["high/c", "low/a", "low/b"]]


def test_python_h_is_found_behind_headers_that_include_each_other(tree, tmp_path):
    tree(
        {
            "low/a.c": '#include "low/a.h"',
            "low/a.h": '#include "low/b.h"',
            "low/b.h": '#include "low/a.h"\n#include "low/c.h"',
        }
    )
    tree({"low/c.h": "/* Python.h */", "low/d.c": '#include "low/e.h"', "low/e.h": "#include <Python.h>"})
    assert not graph.reaches_python(tmp_path / "low" / "a.c")
    assert graph.reaches_python(tmp_path / "low" / "d.c")
    tree({"low/c.h": "#include <Python.h>"})
    assert graph.reaches_python(tmp_path / "low" / "a.c")


# ---- by symbols ----


@needs_compiler
def test_functions_variables_and_classes_join_files_that_include_nothing(tree, tmp_path):
    tree(
        {
            "low/caller.c": "int high(void); int caller(void) { return high(); }",
            "low/reader.c": "extern int level; int reader(void) { return level; }",
            "low/weak.c": "__attribute__((weak)) int high(void); int weak(void) { return high ? high() : 0; }",
            "low/alone.c": "static int high(void) { return 1; } int alone(void) { return high(); }",
            "low/user.m": "@interface Thing\n+ (void)go;\n@end\nvoid user(void) { [Thing go]; }",
            "high/give.c": "int level; int high(void) { return 1; }",
            "high/thing.m": "@interface Thing\n@end\n@implementation Thing\n+ (void)go\n{\n}\n@end",
        }
    )
    needs = graph.symbol_graph(tmp_path)
    assert {name for name, others in needs.items() if "high/give" in others} == {"low/caller", "low/reader", "low/weak"}
    assert needs["low/user"] == {"high/thing"}
    assert needs["low/alone"] == needs["high/give"] == set()
    assert not any(graph.include_graph().values())


@needs_compiler
def test_a_circle_by_symbols_alone_is_found(tree, tmp_path):
    tree({"low/a.c": "int b(void); int a(void) { return b(); }", "low/b.c": "int a(void); int b(void) { return a(); }"})
    assert graph.circles(graph.include_graph()) == []
    assert graph.circles(graph.symbol_graph(tmp_path)) == [["low/a", "low/b"]]


# ---- by import ----


@pytest.fixture
def package(tree):
    """Modules of a package in the place of metal_dlpack; `tree` writes more."""
    tree({"metal_dlpack/_core.pyi": "", "metal_dlpack/__init__.py": "from . import _core\nfrom .low import name\n"})
    tree({"metal_dlpack/low.py": "", "metal_dlpack/files/__init__.py": "", "metal_dlpack/files/one.py": ""})
    return tree


@pytest.mark.parametrize(
    "line",
    [
        "import metal_dlpack.files.one",
        "import metal_dlpack.files.one as one",
        "from metal_dlpack.files import one",
        "from metal_dlpack.files.one import thing",
        "from .files import one",
        "from .files.one import thing as other",
        "def later():\n    from .files import one",
        "if False:\n    from .files import one",
    ],
)
def test_an_import_is_seen_wherever_it_stands(package, line):
    package({"metal_dlpack/top.py": f"import os\n{line}\n"})
    assert graph.import_graph()["metal_dlpack.top"] == {"metal_dlpack.files.one"}


def test_imports_count_their_dots_from_where_they_are(package):
    package({"metal_dlpack/files/two.py": "from . import one\nfrom .. import _core, name\nfrom ..low import x\n"})
    package({"metal_dlpack/files/__init__.py": "from .one import x\nfrom .. import low\n"})
    needs = graph.import_graph()
    assert needs["metal_dlpack.files.two"] == {
        "metal_dlpack",  # `name` is no module: the package itself has it
        "metal_dlpack.files.one",
        "metal_dlpack._core",
        "metal_dlpack.low",
    }
    assert needs["metal_dlpack.files"] == {"metal_dlpack.files.one", "metal_dlpack.low"}
    assert needs["metal_dlpack"] == {"metal_dlpack._core", "metal_dlpack.low"}


def test_a_circle_of_imports_is_found_through_a_function(package):
    package(
        {"metal_dlpack/low.py": "def f():\n    from .high import g\n", "metal_dlpack/high.py": "from . import low\n"}
    )
    assert graph.circles(graph.import_graph()) == [["metal_dlpack.high", "metal_dlpack.low"]]


# ---- circles ----


@pytest.mark.parametrize(
    ("needs", "circles"),
    [
        ({}, []),
        ({"a": {"b"}, "b": {"c"}}, []),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
        ({"a": {"b"}, "b": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [["a", "b", "c"]]),
        ({"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}}, [["c", "d"], ["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"a"}}, [["a", "b", "c", "d"]]),
        ({"a": {"b", "x"}, "b": {"a", "x"}, "x": set()}, [["a", "b"]]),
    ],
)
def test_circles_are_found_and_nothing_else(needs, circles):
    assert graph.circles(needs) == circles
