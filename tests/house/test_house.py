"""The house keeps its own laws: floors, lengths, exports, words."""

import ast
import builtins
import inspect
import os
import re
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import graph
import pytest
from children import output_of
from places import PACKAGES, ROOT, SRC, TESTS, python_files

import metal_dlpack as md
from metal_dlpack import _core

SOURCES = graph.files()
CORE = [path for path in SOURCES if SRC / "softmetal" not in path.parents]
PYTHON = [
    path
    for folder in ("python", "kit", "tests", "tools", "examples", "benchmarks")
    for path in python_files(ROOT / folder)
]

#: From the bottom to the top: a file includes files of its own folder or of one below.
FOLDERS = (
    "arithmetic",
    "softmetal",
    "softmetal/checker",
    "softmetal/kernels",
    "softmetal/gpu",
    "softmetal/apple",
    "copy",
    "bridge",
    "metal",
    "python",
    "values",
    "streams",
    "array",
    "exchange",
    "kernels",
    "module",
    "without_mac",
)
#: The folders below this one are plain C, without Python.h.
FIRST_WITH_PYTHON = "python"

#: The rooms of Python, likewise: folders, and modules that lie beside them.
PYTHON_ROOMS = (
    "dlpack_conformance",
    "_dlpack_conformance_pytest",
    "metal_dlpack.conformance",
    "_metal_dlpack_imports",
    "metal_dlpack._core",
    "metal_dlpack.missing_core",
    "metal_dlpack.refusals",
    "metal_dlpack.numpy_attributes",
    "metal_dlpack.absent_names",
    "metal_dlpack.numpy_allocation",
    "metal_dlpack.awaiting",
    "metal_dlpack.pickling",
    "metal_dlpack.torch_facts",
    "metal_dlpack.sending",
    "metal_dlpack.sync",
    "metal_dlpack.capturing",
    "metal_dlpack.pages",
    "metal_dlpack.looking",
    "metal_dlpack.language",
    "metal_dlpack.kernel_source",
    "metal_dlpack.compile_errors",
    "metal_dlpack.timelines",
    "metal_dlpack.notebook",
    "metal_dlpack.sharing",
    "metal_dlpack.timing",
    "metal_dlpack.files",
    "metal_dlpack.opening",
    "metal_dlpack.residency",
    "metal_dlpack.loading",
    "metal_dlpack",
    "metal_dlpack.asking",
    "metal_dlpack.explaining",
    "softmetal.msl",
    "softmetal.report",
    "softmetal.controls",
    "softmetal.counting",
    "softmetal.mlx",
    "softmetal.torch",
    "softmetal",
    "_metal_dlpack_start",
    "softmetal.running",
    "softmetal.__main__",
    "metal_dlpack.softmetal",
    "metal_dlpack.counting",
    "metal_dlpack.__main__",
    "_metal_dlpack_dask",
    "_metal_dlpack_pytest",
)

#: What tests/ has besides the folders of src/.
BESIDE_FOLDERS = {
    "package",
    "mac",
    "msl",
    "mlx_kernels",
    "torch_mps",
    "report",
    "timelines",
    "counting",
    "hostile",
    "house",
    "support",
    "seeded",
    "c",
}

LONGEST_FILE = 500
LONGEST_FUNCTION = 60
#: How long those may be that were longer when the law came: no number grows, and a file that fits leaves.
LONGER_FILES = {
    "_metal_dlpack_pytest.py": 560,
    "libraries.m": 561,
    "fault_calls.py": 563,
    "mlx_calls.py": 1036,
    "model.py": 632,
    "toy_library.py": 526,
    "test_explain.py": 532,
    "test_files.py": 852,
    "test_kernel_arguments.py": 580,
    "test_pool.py": 543,
    "test_pytest_plugin.py": 611,
    "test_translation.py": 600,
}
LONGER_FUNCTIONS = {"events_of", "toy_type"}


# ---- floors ----


def floor(room):
    return FOLDERS.index(graph.folder(room))


def assert_floors(needs):
    climbs = [(name, other) for name, others in needs.items() for other in others if floor(other) > floor(name)]
    assert climbs == [], "a file needs another of a folder above its own"
    assert graph.circle(needs) == []


def test_every_folder_of_src_has_its_floor():
    assert {graph.folder(graph.room(path)) for path in SOURCES} == set(FOLDERS)
    assert set(SRC.rglob("*.[cm]")) <= set(SOURCES), "a source lies deeper than its folder"


def test_a_file_includes_downward_only_and_by_folder():
    for path in SOURCES:
        for name in graph.includes(path):
            assert re.fullmatch(r"(\w+/)*\w+\.h", name), f"{path.name} includes {name}"
            assert (SRC / name).exists() or (PACKAGES / name).exists(), (
                f"{path.name} includes {name}: write it as folder/file.h"
            )
    assert_floors(graph.include_graph())


@pytest.mark.skipif(not graph.can_compile(), reason="needs a C compiler with Objective-C, and nm")
def test_the_linker_joins_downward_only(tmp_path):
    assert_floors(graph.symbol_graph(tmp_path))


def python_floor(module):
    package, _, rest = module.partition(".")
    room = f"{package}.{rest.partition('.')[0]}" if package in {"metal_dlpack", "softmetal"} and rest else package
    return PYTHON_ROOMS.index(room)


def test_a_python_module_imports_downward_only():
    needs = graph.import_graph()
    climbs = [(name, to) for name, others in needs.items() for to in others if python_floor(to) > python_floor(name)]
    assert climbs == [], "a module needs another of a room above its own"
    assert graph.circle(needs) == []
    assert {python_floor(name) for name in needs} == set(range(len(PYTHON_ROOMS)))


PLAIN = [path for path in SOURCES if floor(graph.room(path)) < FOLDERS.index(FIRST_WITH_PYTHON)]


def test_the_lower_floors_know_no_python():
    assert [path.name for path in PLAIN if graph.reaches_python(path)] == []


def test_only_the_bridge_talks_to_metal():
    metal = re.compile(r"#\s*(import|include)\s+<(Metal|Foundation)/")
    assert [path.relative_to(SRC).as_posix() for path in CORE if metal.search(path.read_text())] == ["bridge/parts.h"]


# ---- files and their names ----


def test_the_tests_lie_in_the_folders_of_src():
    there = {path.name for path in TESTS.iterdir() if path.name != "__pycache__"}
    folders = {folder.partition("/")[0] for folder in FOLDERS} - {"without_mac"}  # glue: its users' tests show it
    assert there == folders | {*BESIDE_FOLDERS, "conftest.py"}


def repeated(names):
    return [name for name, count in Counter(names).items() if count > 1]


def test_a_name_is_one_file():
    """grep, gdb and nm know no folders."""
    assert repeated(Path(room).name for room in {graph.room(path) for path in SOURCES}) == []
    assert repeated(path.name for path in TESTS.rglob("test_*.py")) == []


def lengths_in_python(text):
    """Yield each function's length, without its docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            words = node.body[0] if ast.get_docstring(node) is not None else None
            yield node.name, node.end_lineno - node.lineno + 1 - (words.end_lineno - words.lineno + 1 if words else 0)


def lengths_in_c(text):
    """Yield the length of each function that begins in the first column, also in C++ and Objective-C."""
    start, name = None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if start is None and line == "{":
            start = number
        elif line == "}" and start is not None:
            yield name, number - start
            start = None
        elif start is None and re.match(r"[\w(*+-].*\(", line):
            name = line


@pytest.mark.parametrize(
    ("lengths", "text", "expected"),
    [
        (lengths_in_python, 'def f():\n    """a\n    b"""\n    return 1\n', [("f", 2)]),
        (
            lengths_in_python,
            "class A:\n    async def g(a):\n        def h():\n            pass\n",
            [("g", 3), ("h", 2)],
        ),
        (lengths_in_c, "int\nf(int a,\n  int b)\n{\n    if (a) {\n    }\n}\n", [("f(int a,", 3)]),
        (lengths_in_c, "@implementation A\n- (void)go:(id)x\n{\n    y();\n}\n@end\n", [("- (void)go:(id)x", 2)]),
    ],
)
def test_a_function_has_the_length_that_a_reader_sees(lengths, text, expected):
    assert list(lengths(text)) == expected


def test_files_and_functions_have_a_length_to_read():
    written = [path for path in tracked_files() if path.suffix in {".c", ".h", ".m", ".cpp", ".py"} and path.is_file()]
    texts = {path: path.read_text() for path in written}
    lines = {path: text.count("\n") for path, text in texts.items()}
    assert {path.name: n for path, n in lines.items() if n > LONGER_FILES.get(path.name, LONGEST_FILE)} == {}
    assert set(LONGER_FILES) == {path.name for path, n in lines.items() if n > LONGEST_FILE}, "fits now: take it out"
    long = {
        name
        for path, text in texts.items()
        for name, n in (lengths_in_python if path.suffix == ".py" else lengths_in_c)(text)
        if n > LONGEST_FUNCTION
    }
    assert long == LONGER_FUNCTIONS


def test_a_file_says_at_its_head_what_it_is():
    assert [path.name for path in SOURCES if not path.read_text().startswith(f"/* {path.name}: ")] == []


def test_there_is_no_drawer_for_odds_and_ends():
    drawer = re.compile(r"(^|_)(utils?|common|helpers?|misc)(_|$)")
    assert [path for path in [*SOURCES, *PYTHON] if drawer.search(path.stem)] == []


def test_a_python_file_has_a_docstring():
    assert [path for path in PYTHON if not re.match(r'(#!.*\n)?"""', path.read_text())] == []


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_no_file_names_a_machine():
    """Nobody's home folder, and no scratch folder, in what is shipped."""
    pattern = re.compile(rb"/(?:home|Users|root|tmp|private/var)/[A-Za-z0-9_.]+")
    for path in tracked_files():
        if path.is_file():
            found = pattern.search(path.read_bytes())
            assert found is None, f"{path.name}: {found.group()}"


def test_text_files_end_well():
    for path in tracked_files():
        if path.is_file() and path.suffix in {".py", ".pyi", ".c", ".h", ".m", ".md", ".toml", ""}:
            data = path.read_bytes()
            assert b"\r" not in data, path
            assert not data or data.endswith(b"\n"), path
            assert not re.search(rb"[ \t]+\n", data), path


def test_only_the_module_s_init_is_exported():
    options = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    result = subprocess.run(["nm", *options, _core.__file__], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip("nm is not installed")
    names = {line.split()[-1].lstrip("_") for line in result.stdout.splitlines() if line.strip()}
    assert names == {"PyInit__core"}


def test_importing_the_package_imports_little_and_no_framework():
    """What takes milliseconds waits until it is asked for; benchmarks/bench_exchange.py measures the whole."""
    code = "import sys; there = set(sys.modules); import metal_dlpack; print(*set(sys.modules) - there)"
    found = [str(Path(md.__file__).parent.parent), sysconfig.get_path("purelib")]  # what site adds imports for itself
    loaded = output_of(code, options=["-S"], PYTHONPATH=os.pathsep.join(found)).split()
    assert "metal_dlpack._core" in loaded
    slow = {"dataclasses", "inspect", "typing", "re", "html", "json"}
    slow |= {"numpy", "torch", "jax", "mlx", "tvm_ffi", "ml_dtypes"}
    assert not {name.partition(".")[0] for name in loaded} & slow


def test_what_is_imported_later_is_there():
    said = output_of("import metal_dlpack as md; print(set(md.__all__) <= set(dir(md)), md.explain, md.show)")
    assert re.match(r"True <function explain at .*> <function show at .*>", said)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = md.nothing


# ---- the surface ----


PUBLIC = [name for name in dir(md) if not name.startswith("_")]


def public_things():
    """(name, thing) of each public name, and of each member of a type that is public or DLPack's."""
    for name in PUBLIC:
        thing = getattr(md, name)
        yield name, thing
        if isinstance(thing, type):
            assert thing.__module__ == "metal_dlpack", name
            members = vars(thing).items()
            yield from ((f"{name}.{each}", value) for each, value in members if each[0] != "_" or "dlpack" in each)


def test_everything_public_has_a_docstring_and_what_is_called_a_signature():
    for name, thing in public_things():
        thing = getattr(thing, "__func__", thing)
        assert thing.__doc__, name
        assert isinstance(thing, type) or not callable(thing) or inspect.signature(thing) is not None, name


def test_import_star_binds_what_is_public_and_hides_nothing_of_pythons():
    names = {}
    exec("from metal_dlpack import *", names)
    bound = set(names) - {"__builtins__"}
    assert bound == set(md.__all__)
    assert not bound & set(vars(builtins))
    assert set(PUBLIC) - bound == {"bool", "open"}
    assert md.bool.name == "bool"
    assert callable(md.open)


FRAMEWORKS = ("torch", "jax", "mlx")


def frameworks_of(text):
    """Those that a test imports itself: `import torch`, or `importorskip` of a name that begins so."""
    return {
        name
        for name in FRAMEWORKS
        if re.search(rf"^\s+(import|from) {name}\b", text, re.MULTILINE)
        or ("importorskip" in text and re.search(rf'"{name}\b', text))
    }


def unmarked(path):
    """The tests of a file that import a framework and do not carry its marker."""
    source = path.read_text()
    if not frameworks_of(source):
        return
    lines = source.splitlines()
    whole_file = " ".join(re.findall(r"^pytestmark = .*$", source, re.MULTILINE))
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            marks = whole_file + "\n".join(lines[first - 1 : node.lineno])
            wanted = frameworks_of("\n".join(lines[node.lineno : node.end_lineno]))
            if "needs_mps" not in marks and "needs_no_sanitizer" not in marks:
                yield from (f"{path.name}: {node.name}" for name in wanted if f"needs_{name}" not in marks)


def test_who_imports_a_framework_says_so():
    """Without the marker it comes into a process with a sanitizer, which stops at the framework's own faults."""
    assert [name for path in sorted(TESTS.rglob("test_*.py")) for name in unmarked(path)] == []
