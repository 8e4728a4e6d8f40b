"""The graphs of tests/support/graph.py, drawn of small trees made for the purpose: do they find what they should?"""

import graph
import pytest


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes files into a folder that stands for src/."""
    monkeypatch.setattr(graph, "SRC", tmp_path)
    monkeypatch.setattr(graph, "PACKAGES", tmp_path)
    monkeypatch.setattr(graph, "KIT", tmp_path / "kit")

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.mark.parametrize(
    "line", ['#include "high/b.h"', '  #  import "high/b.h"', '#include"high/b.h"', "#include <high/b.h>"]
)
def test_an_include_is_seen_however_it_is_written_and_wherever_it_leads(tree, tmp_path, line):
    tree({"low/a.c": f"#include <stdio.h>\n{line}\n", "high/b.h": '#include "door.h"', "door.h": '#include "low/a.h"'})
    tree({"low/a.h": "/* Python.h */", "low/c.m": '#import "low/a.h"'})
    assert graph.include_graph() == {"low/a": {"high/b"}, "high/b": {"door"}, "door": {"low/a"}, "low/c": {"low/a"}}
    assert set(graph.circle(graph.include_graph())) == {"low/a", "high/b", "door"}
    assert not graph.reaches_python(tmp_path / "low" / "a.c")
    tree({"low/a.h": "#include <Python.h>"})
    assert graph.reaches_python(tmp_path / "low" / "a.c")


@pytest.mark.skipif(not graph.can_compile(), reason="needs a C compiler with Objective-C, and nm")
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
    assert graph.circle(needs) == []


@pytest.mark.parametrize(
    "line",
    [
        "import metal_dlpack.files.one as one",
        "from metal_dlpack.files import one",
        "from metal_dlpack.files.one import thing",
        "from .files import one",
        "def later():\n    from .files.one import thing as other",
        'def later():\n    return importlib.import_module("metal_dlpack.files.one").thing',
        'one = import_module(".files.one", __package__)',
        'one = __import__("metal_dlpack.files.one")',
    ],
)
def test_an_import_is_seen_wherever_it_stands_and_counts_its_dots_from_there(tree, line):
    package = {
        "top.py": f"import os\n{line}\n",
        "__init__.py": "from . import _core\n",
        "_core.pyi": "from .low import x",
        "low.py": "",
    }
    package["typed.py"] = (
        "if TYPE_CHECKING:\n    from .low import x\nif __name__ == '__main__':\n    from . import top\n"
    )
    package |= {"files/__init__.py": "from .one import x\nfrom .. import low\n", "files/one.py": "from .. import top\n"}
    package["files/two.py"] = "from . import one\nfrom .. import _core, name\nfrom ..low import x\n"
    tree({f"metal_dlpack/{name}": text for name, text in package.items()})
    needs = graph.import_graph()
    assert needs["metal_dlpack"] == {"metal_dlpack._core"}
    assert needs["metal_dlpack._core"] == needs["metal_dlpack.typed"] == set()
    assert needs["metal_dlpack.top"] == {"metal_dlpack.files.one"}
    assert needs["metal_dlpack.files"] == {"metal_dlpack.files.one", "metal_dlpack.low"}
    others = {f"metal_dlpack.{name}" for name in ("files.one", "_core", "low")}
    assert needs["metal_dlpack.files.two"] == {"metal_dlpack", *others}, (
        "`name` is no module: the package itself has it"
    )
    assert set(graph.circle(needs)) == {"metal_dlpack.top", "metal_dlpack.files.one"}
