"""A judge of DLPack: the rules of the standard, tried against any library's own arrays.

    python -m dlpack_conformance --producer numpy --consumer torch

>>> import dlpack_conformance
>>> report = dlpack_conformance.judge("producer", "numpy", ["items", "capsule-name"])
>>> report.passes
True

docs/conformance.md shows how to judge a library of your own, also under pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .judging import RULES, Missing, Report, Result, judge
    from .libraries import LIBRARIES, Library
    from .rules import Absent, Rule

__version__ = "0.1.0"
__all__ = ["LIBRARIES", "RULES", "Absent", "Library", "Missing", "Report", "Result", "Rule", "judge"]

#: Where each name is.  A program that needs one module, such as tied_process, waits for none of the rules.
_PLACES = {
    **dict.fromkeys(["RULES", "Missing", "Report", "Result", "judge"], "judging"),
    **dict.fromkeys(["LIBRARIES", "Library"], "libraries"),
    **dict.fromkeys(["Absent", "Rule"], "rules"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
