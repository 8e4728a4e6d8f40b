"""ARCHITECTURE.md and the lists in headers: the files that they name exist and hold what is said."""

import importlib
import re
import tomllib

import graph
from places import KIT, PACKAGES, ROOT, SRC, TESTS

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
OURS = ("metal_dlpack", "softmetal")
NAMES = {
    path.name for folder in (SRC, PACKAGES, KIT, TESTS, ROOT / "tools", ROOT / "docs") for path in folder.rglob("*.*")
}


def test_every_folder_of_src_has_a_row():
    rows = set(re.findall(r"^\| `([\w/]+)/` \|", TEXT, re.MULTILINE))
    assert {graph.folder(graph.room(path)) for path in graph.files()} - {""} <= rows


def test_it_is_read_in_five_minutes():
    assert len(TEXT.split()) <= 1200


def test_the_files_that_it_names_exist():
    named = set(re.findall(r"\b(\w+\.(?:[chm]|pyi?|md))\b", TEXT))
    assert named - NAMES - {"README.md", "CONTRIBUTING.md", "setup.py", "Python.h", "dlpack.h", "file.h"} == set()
    for path in re.findall(r"`((?:src|python|kit|tests|docs|tools|examples)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path


def test_what_lies_beside_the_rooms_of_the_package_has_a_reason():
    package = PACKAGES / "metal_dlpack"
    pages = [
        *sorted((ROOT / "docs" / "reference").glob("*.md")),
        package / "__init__.py",
        SRC / "python" / "call_python.h",
    ]
    text = "\n".join(page.read_text() for page in pages)
    loose = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert [name for name in sorted(loose) if not re.search(rf'[."]{name}\b', text)] == []
    rooms = {path.parent.relative_to(PACKAGES) for name in OURS for path in (PACKAGES / name).glob("*/__init__.py")}
    assert [room for room in sorted(rooms) if f"`{room.name}/`" not in TEXT] == []
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {".".join(room.parts) for room in rooms} <= set(built)


def methods_of_array():
    """(the method's C name, the file that the list's comment names) of each row."""
    text = (SRC / "array" / "array_methods.h").read_text()
    for rows in re.findall(r"#define ARRAY_\w+_LIST\(X\) \\\n((?:.*\\\n)*.*\n)", text):
        file = None
        for name, comment in re.findall(r'X\((\w+), "\w+"\)(?:\s*/\* (\w+\.c) \*/)?', rows):
            file = comment or file
            yield name, file


def test_each_method_of_array_stands_in_the_file_that_its_list_names():
    found = list(methods_of_array())
    assert len(found) > 20
    for name, file in found:
        (path,) = SRC.rglob(file)
        pattern = rf"^(ARGS_METHOD\()?array_method_{name}[(,]"
        assert re.search(pattern, path.read_text(), re.MULTILINE), f"{name} is not in {file}"


CALLS = re.compile(r'X\((CALL_\w+), "([\w.]+)", "(\w+)"\)')
#: Other packages, and those that C imports by name.
FOREIGN_MODULES = {"numpy", "ml_dtypes", "builtins", "numpy._core._multiarray_umath", "numpy.core._multiarray_umath"}


def test_what_c_calls_in_python_is_there_and_drawn():
    rows = CALLS.findall((SRC / "python" / "call_python.h").read_text())
    page = (ROOT / "ARCHITECTURE.md").read_text()
    wrong = [
        f"{module}.{function}"
        for _, module, function in rows
        if not callable(getattr(importlib.import_module(module), function, None))
        or (module != "metal_dlpack._core" and f"──►  {module.removeprefix('metal_dlpack.')} " not in page)
    ]
    assert len(rows) > 10 and not wrong, f"missing, or not drawn in ARCHITECTURE.md: {wrong}"
    sources = {path: path.read_text() for path in SRC.rglob("*.c")}
    unused = [name for name, *_ in rows if not any(re.search(rf"\b{name}\b", text) for text in sources.values())]
    assert not unused
    imported = {
        f"{path.name}: {argument}"
        for path, text in sources.items()
        for argument in re.findall(r"PyImport_Import\w*\(([^)]*)\)", text)
        if path.name != "call_python.c" and argument and argument.strip('"') not in FOREIGN_MODULES
    }
    assert not imported, "C calls our Python by call_python.h only"
