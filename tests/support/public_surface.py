"""Everything public, found by looking: functions, methods, attributes, slots and the C tables."""

import importlib
import re
from pathlib import Path

from dlpack_structs import Table

import metal_dlpack as md
import softmetal
from metal_dlpack import _core

#: Modules whose __all__ is public beside the package's own.
MODULES = ("softmetal",)
#: What a type has in its dict that is no code.
DATA = {"__doc__", "__module__", "__dlpack_c_exchange_api__"}
#: Types that show their memory: `__buffer__` is in a type's dict from Python 3.12 on.
BUFFERS = ("Array", "Buffer", "HostView")


def functions():
    names = {name: getattr(md, name) for name in dir(md) if not name.startswith("_")}
    for module in map(importlib.import_module, MODULES):
        names |= {f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name) for name in module.__all__}
    types = {
        *_core._types(),
        md.CompileError,
        md.CopyRequiredError,
        md.MetalError,
        getattr(softmetal, "SoftwareMetalMissing", None),
    }
    return {name for name, value in names.items() if callable(value) and value not in types}


def members():
    found = set()
    for kind in _core._types():
        names = set(vars(kind)) - DATA - {"__buffer__", "__release_buffer__"}
        found |= {f"{kind.__name__}.{name}" for name in names}
    return found | {f"{name}.__buffer__" for name in BUFFERS}


def api_functions():
    """The functions of metal_dlpack.h, in order."""
    header = (Path(md.get_include()) / "metal_dlpack.h").read_text()
    return re.findall(r"\(\*(\w+)\)\(", header)


def table_functions():
    return {f"exchange.{name}" for name, _ in Table._fields_[1:]} | {f"api.{name}" for name in api_functions()}


def surface():
    """The names of all that can be called, read or asked for."""
    return functions() | members() | table_functions()


def attributes():
    """The names of `surface` that are plain attributes: reading them is all there is to do."""
    kinds = {kind.__name__: kind for kind in _core._types()}
    described = ((name, *name.split(".", 1)) for name in members())
    return {
        name
        for name, kind, member in described
        if type(vars(kinds[kind]).get(member)).__name__ in ("getset_descriptor", "member_descriptor")
    }
