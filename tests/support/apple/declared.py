"""What the headers of src/softmetal/ declare, read from clang's syntax tree and from what it compiled."""

import re
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from apple import clang, macho

HEADERS = ("Foundation/Foundation.h", "Metal/Metal.h")


@dataclass
class Method:
    result: str
    arguments: list[str]


@dataclass
class Kind:
    """A class or a protocol."""

    name: str
    is_protocol: bool
    parents: list[str]  # what a class inherits from and adopts, what a protocol adopts
    methods: dict[str, Method] = field(default_factory=dict)  # "-length", "+alloc"
    properties: dict[str, tuple[str, set[str]]] = field(default_factory=dict)  # name: (type, words)
    getters: set[str] = field(default_factory=set)  # what reads the properties


@dataclass
class Function:
    result: str
    arguments: list[str]
    result_is_owned: bool


@dataclass
class Declared:
    kinds: dict[str, Kind] = field(default_factory=dict)
    enums: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)  # name: (type, values)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # fields with types
    typedefs: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    macros: dict[str, int] = field(default_factory=dict)
    protocols: dict[str, macho.Protocol] = field(default_factory=dict)  # compiled


def read(headers: Path) -> Declared:
    """All of it.  `-U__APPLE__`: our own NSObject too, which a Mac does not see."""
    flags = ["-U__APPLE__", "-I", headers]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "all.m")
        source.write_text("".join(f"#import <{name}>\n" for name in HEADERS) + macro_text(headers))
        found = from_tree(clang.syntax_tree(source, *flags), headers)
        names = [kind.name for kind in found.kinds.values() if kind.is_protocol]
        probe = Path(folder, "protocols.m")
        probe.write_text(probe_text(names))
        made = Path(folder, "protocols.o")
        clang.compile_object(probe, made, *flags)
        found.protocols = macho.Image(made).protocols()
    return found


@cache
def read_libobjc() -> Declared:
    """Apple's own objc/NSObject.h and objc/NSObjCRuntime.h."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "apple.m")
        names = ("NSIntegerMax", "NSIntegerMin", "NSUIntegerMax")
        source.write_text("#import <objc/NSObject.h>\n#include <limits.h>\n" + enumeration(names))
        return from_tree(clang.syntax_tree(source), clang.zig_lib())


def probe_text(names: list[str]) -> str:
    """A use of each protocol, so that the compiler writes it down."""
    imports = "".join(f"#import <{name}>\n" for name in HEADERS)
    uses = ", ".join(f"(id)@protocol({name})" for name in names)
    return f"{imports}id take(int i) {{ id all[] = {{{uses}}}; return all[i]; }}\n"


def macro_text(headers: Path) -> str:
    """The macros of the headers that are numbers, as the values of an enumeration."""
    names = []
    for header in HEADERS:
        names += re.findall(r"^#define ((?:MTL|NS)\w+) [(0-9LU]", (headers / header).read_text(), re.MULTILINE)
    return enumeration(names)


def enumeration(names) -> str:
    lines = "".join(f"    macro_{name} = (long)({name}),\n" for name in names)
    return f"enum macros {{\n{lines}}};\n"


# ---- the syntax tree ----


def from_tree(tree: dict, headers: Path) -> Declared:
    found = Declared()
    place = Place()
    for node in tree["inner"]:
        file = place.of(node)
        kind = node["kind"]
        if kind == "EnumDecl" and node.get("name") == "macros":
            values = enum_values(node)
            found.macros = {name.removeprefix("macro_"): value for name, value in values.items()}
        elif file is None or not Path(file).resolve().is_relative_to(Path(headers).resolve()):
            continue
        elif kind in {"ObjCInterfaceDecl", "ObjCProtocolDecl"}:
            read_kind(node, found)
        elif kind == "EnumDecl" and node.get("inner"):
            found.enums[node.get("name", "")] = (
                node.get("fixedUnderlyingType", {}).get("qualType", "int"),
                enum_values(node),
            )
        elif kind == "RecordDecl" and node.get("completeDefinition"):
            fields = [n for n in node.get("inner", []) if n["kind"] == "FieldDecl"]
            found.structs[node.get("name", "")] = [(n["name"], n["type"]["qualType"]) for n in fields]
        elif kind == "TypedefDecl" and "" in found.structs:  # of a struct that has no other name
            found.structs[node["name"]] = found.structs.pop("")
        elif kind == "TypedefDecl":
            found.typedefs[node["name"]] = node["type"]["qualType"]
        elif kind == "FunctionDecl":
            parts = node.get("inner", [])
            found.functions[node["name"]] = Function(
                node["type"]["qualType"].partition("(")[0].strip(),
                [n["type"]["qualType"] for n in parts if n["kind"] == "ParmVarDecl"],
                any(n["kind"] == "NSReturnsRetainedAttr" for n in parts),
            )
        elif kind == "VarDecl":
            found.variables[node["name"]] = node["type"]["qualType"]
    return found


class Place:
    """In which file a node stands: clang names a file only where it changes."""

    def __init__(self):
        self.file = None

    def of(self, node: dict) -> str | None:
        self._follow(node["loc"].get("spellingLoc"))
        self._follow(node["loc"].get("expansionLoc") or node["loc"])
        here = self.file
        self._walk({key: value for key, value in node.items() if key != "loc"})
        return here if node["loc"] else None

    def _follow(self, location) -> None:
        if location and "file" in location:
            self.file = location["file"]

    def _walk(self, node) -> None:
        if isinstance(node, dict):
            if "offset" in node and "tokLen" in node:
                self._follow(node)
                return
            for value in node.values():
                self._walk(value)
        elif isinstance(node, list):
            for value in node:
                self._walk(value)


def enum_values(node: dict) -> dict[str, int]:
    values, following = {}, 0
    for constant in node.get("inner", []):
        if constant["kind"] == "EnumConstantDecl":
            written = evaluated(constant)
            following = following if written is None else written
            values[constant["name"]] = following
            following += 1
    return values


def evaluated(node: dict) -> int | None:
    for part in node.get("inner", []):
        value = int(part["value"]) if part["kind"] == "ConstantExpr" else evaluated(part)
        if value is not None:
            return value
    return None


def read_kind(node: dict, found: Declared) -> None:
    is_protocol = node["kind"] == "ObjCProtocolDecl"
    if not is_protocol and not node.get("inner"):
        return  # @class
    if is_protocol and "previousDecl" not in node and not node.get("inner") and node["name"] in found.kinds:
        return
    parents = [entry["name"] for entry in node.get("protocols", [])]
    if node.get("super", {}).get("name"):
        parents.insert(0, node["super"]["name"])
    key = node["name"] if is_protocol else f"class {node['name']}"
    kind = found.kinds.setdefault(key, Kind(node["name"], is_protocol, parents))
    for part in node.get("inner", []):
        if part["kind"] == "ObjCMethodDecl":
            arguments = [n["type"]["qualType"] for n in part.get("inner", []) if n["kind"] == "ParmVarDecl"]
            sign = "-" if part["instance"] else "+"
            kind.methods[sign + part["name"]] = Method(part["returnType"]["qualType"], arguments)
        elif part["kind"] == "ObjCPropertyDecl":
            words = {w for w in ("readonly", "readwrite", "copy", "retain", "assign") if part.get(w)}
            kind.properties[part["name"]] = (part["type"]["qualType"], words)
            kind.getters.add(part.get("getter", part)["name"])
