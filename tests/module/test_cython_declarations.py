"""__init__.pxd declares what metal_dlpack.h declares: every constant, struct, member and function, in the same order."""

import re
from pathlib import Path

import metal_dlpack as md

HEADER = re.sub(r"/\*.*?\*/", "", (Path(md.get_include()) / "metal_dlpack.h").read_text(), flags=re.S)
PXD = re.sub(r"#.*", "", Path(md.get_include()).with_name("__init__.pxd").read_text())


def plain(text):
    """A C type or declaration in one spelling."""
    text = re.sub(r"\bstruct ", "", " ".join(text.split()))
    return re.sub(r"\s*\*\s*", " *", re.sub(r"\bobject\b", "PyObject *", text)).strip()


def member(text):
    """(name, its type), or (name, what it returns, the types of its parameters)."""
    text = plain(text)
    function = re.fullmatch(r"(.*?) ?\( \*(\w+)\)\((.*)\)", text)
    if function is None:
        return re.fullmatch(r"(.*?)(\w+)", text).groups()[::-1]
    result, name, parameters = function.groups()
    return name, result, [re.sub(r"(\W)\w+$", r"\1", part.strip()).strip() for part in parameters.split(",")]


def header_structs():
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", HEADER, re.S):
        lines = [line for line in body.split(";") if line.strip() and "reserved" not in line]
        lines = [part for line in lines for part in one_by_one(line)]
        found[name] = [member(line) for line in lines]
    return found


def one_by_one(line):
    """`uint32_t major, minor` as two lines."""
    together = re.fullmatch(r"\s*(\w+) (\w+), (\w+)\s*", line)
    return [f"{together[1]} {name}" for name in together.groups()[1:]] if together else [line]


def pxd_structs():
    found = {}
    for name, body in re.findall(r"ctypedef struct (\w+):\n((?:        .*\n|\n)+)", PXD):
        joined = re.sub(r",\s*\n\s*", ", ", body)
        lines = [re.sub(r"\bexcept.*", "", line) for line in joined.splitlines() if line.strip()]
        found[name] = [member(line) for line in lines]
    return found


def test_a_declaration_is_taken_apart_well():
    assert member("PyObject *(*f)(int n, const struct X *x)") == ("f", "PyObject *", ["int", "const X *"])
    assert member("object (*f)(int n, const X *x)") == ("f", "PyObject *", ["int", "const X *"])
    assert member("const int64_t *shape") == ("shape", "const int64_t *")


def test_every_struct_and_function_is_declared_alike():
    ours, theirs = header_structs(), pxd_structs()
    assert list(theirs) == list(ours)
    for name, members in ours.items():
        assert theirs[name] == members, name
    assert len(ours["metal_dlpack_api"]) > 10


def test_every_constant_is_declared():
    constants = re.findall(r"#define (METAL_DLPACK_\w+) \d", HEADER)
    assert re.findall(r"const int (METAL_DLPACK_\w+)", PXD) == constants
    assert len(constants) >= 6


def test_every_function_that_can_fail_raises_in_cython():
    """A result of its own says so; an object that is NULL says so by itself."""
    lines = re.sub(r",\s*\n\s*", ", ", PXD).splitlines()
    for line in lines:
        if "(*" in line and "object (*" not in line and "array_check" not in line:
            assert re.search(r"\) except (-1|NULL)$", line), line
