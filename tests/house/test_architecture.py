"""ARCHITECTURE.md and the lists in headers: the files that they name exist and hold what is said."""

import re

import graph
from places import ROOT, SRC, TESTS

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
NAMES = {path.name for folder in (SRC, TESTS, ROOT / "tools", ROOT / "docs") for path in folder.rglob("*.*")}


def test_every_folder_of_src_has_a_row():
    rows = set(re.findall(r"^\| `(\w+)/` \|", TEXT, re.MULTILINE))
    assert {graph.folder(graph.room(path)) for path in graph.files()} - {""} <= rows


def test_the_files_that_it_names_exist():
    named = set(re.findall(r"\b(\w+\.(?:[chm]|pyi?|md))\b", TEXT))
    assert named - NAMES - {"README.md", "Python.h", "dlpack.h", "file.h"} == set()
    for path in re.findall(r"`((?:src|tests|docs|tools|examples)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path


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
        assert re.search(rf"^array_method_{name}\(", path.read_text(), re.MULTILINE), f"{name} is not in {file}"
