"""Apple's API as two public packages describe it: fetched once, kept as data, never imported or run.

metal-cpp        Apple's own C++ headers, which the macOS wheel of mlx-metal carries
PyObjC           tables of names, types and values, and extension modules for macOS that hold the
                 protocols of Apple's headers as Apple's compiler wrote them
libobjc          Apple's objc/*.h, which ziglang carries (see clang.py)
"""

import ast
import re
from functools import cache
from pathlib import Path

import fetched_data

from apple import macho


def ready() -> None:
    """Without these packages the test skips."""
    for name in ("mlx-metal", "Metal", "Cocoa", "IOSurface", "Quartz"):
        fetched_data.folder(name if name == "mlx-metal" else f"pyobjc-framework-{name}")


# ---- PyObjC's tables, read with ast ----


class Tables:
    """One _metadata.py: names with values, functions, selectors."""

    def __init__(self, path: Path):
        self.constants: dict[str, str] = {}  # name: type, "" for an object
        self.enums: dict[str, int] = {}
        self.functions: dict[str, tuple[str, bool]] = {}  # name: (types, result is +1)
        self.expressions: dict[str, str] = {}
        self.structs: dict[str, tuple[str, list[str]]] = {}  # name: (type, fields)
        self.selectors: set[str] = set()
        self.classes: set[str] = set()  # classes with a selector here
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._read_list(node.targets[0].id, node.value)
            elif isinstance(node, ast.Call):
                self._read_call(node)

    def _read_list(self, name: str, value: ast.expr) -> None:
        if name in {"constants", "enums"} and isinstance(value, ast.Constant):
            for item in filter(None, value.value.split("$")):
                key, _, rest = item.partition("@")
                if name == "constants":
                    self.constants[key] = rest
                elif re.fullmatch(r"-?\d+", rest):
                    self.enums[key] = int(rest)
        elif name == "expressions" and isinstance(value, ast.Dict):
            self.expressions = ast.literal_eval(value)
        elif name == "functions" and isinstance(value, ast.Dict):
            for key, entry in zip(value.keys, value.values, strict=True):
                types = text_of(entry.elts[0])
                self.functions[key.value] = (types, "'already_cfretained': True" in ast.unparse(entry))

    def _read_call(self, call: ast.Call) -> None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "createStructType":
            fields = [field.value for field in call.args[2].elts] if isinstance(call.args[2], ast.List) else []
            self.structs[call.args[0].value.rpartition(".")[2]] = (text_of(call.args[1]), fields)
        elif (name == "r" and len(call.args) == 3) or name == "registerNewKeywordsFromSelector":
            self.classes.add(text_of(call.args[0]))
            self.selectors.add(text_of(call.args[1]))


def text_of(node: ast.expr) -> str:
    value = getattr(node, "value", "")
    return value.decode() if isinstance(value, bytes) else value if isinstance(value, str) else ""


@cache
def tables(framework: str) -> Tables:
    wheel, folder = {
        "Foundation": ("Cocoa", "Foundation"),
        "CoreFoundation": ("Cocoa", "CoreFoundation"),
        "CoreGraphics": ("Quartz", "Quartz/CoreGraphics"),
        "CoreVideo": ("Quartz", "Quartz/CoreVideo"),
    }.get(framework, (framework, framework))
    return Tables(fetched_data.folder(f"pyobjc-framework-{wheel}") / folder / "_metadata.py")


@cache
def compiled_protocols() -> dict[str, macho.Protocol]:
    """Protocols of Apple's headers, as Apple's compiler wrote them into PyObjC's modules."""
    ready()
    found = {}
    for path in sorted(fetched_data.kept_in().glob("pyobjc-framework-*/*/_*.so")):
        found |= macho.Image(path).protocols()
    return found


# ---- all selectors ----


@cache
def selectors() -> frozenset[str]:
    """Every selector that one of the references knows."""
    ready()
    found = tables("Metal").selectors | tables("Foundation").selectors
    for header in (fetched_data.folder("mlx-metal") / "metal_cpp").rglob("*.hpp"):
        found |= set(re.findall(r'_DEF_SEL\(\s*\w+,\s*"([^"]+)"\s*\)', header.read_text()))
    for protocol in compiled_protocols().values():
        found |= {key[1:] for key in protocol.methods}
    return frozenset(found)
