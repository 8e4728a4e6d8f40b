"""What a rule is: the standard's word in short, where it stands, and the case that tries it.

A case is a function of a Library.  It returns what happened if the rule is kept, raises Broken with what happened if
not, and Absent where the library does not offer what the rule is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["producer", "consumer"]
Level = Literal["must", "should"]
#: "must" counts in the score; "should" is the text's should, may or recommended: advice.
MUST: Level = "must"
SHOULD: Level = "should"


class Broken(Exception):
    """The rule is broken; the text says what happened."""


class Absent(Exception):
    """The library does not offer what the rule is about; the text says what."""


@dataclass(frozen=True)
class Source:
    """A text of the standard."""

    title: str
    url: str

    def __call__(self, place: str) -> Source:
        """A place in the text."""
        return Source(f"{self.title}, {place}", self.url)


_ARRAY_API = "https://data-apis.org/array-api/2025.12/"
HEADER = Source("dlpack.h 1.3", "https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h")
PYTHON = Source("DLPack, Python specification", "https://dmlc.github.io/dlpack/latest/python_spec.html")
DLPACK = Source(
    "array API 2025.12, __dlpack__",
    f"{_ARRAY_API}API_specification/generated/array_api.array.__dlpack__.html",
)
DEVICE = Source(
    "array API 2025.12, __dlpack_device__",
    f"{_ARRAY_API}API_specification/generated/array_api.array.__dlpack_device__.html",
)
FROM_DLPACK = Source(
    "array API 2025.12, from_dlpack",
    f"{_ARRAY_API}API_specification/generated/array_api.from_dlpack.html",
)
INTERCHANGE = Source("array API 2025.12, data interchange", f"{_ARRAY_API}design_topics/data_interchange.html")

Case = Callable[[Any], str]


@dataclass(frozen=True)
class Rule:
    """One rule of the standard and the case that tries it."""

    name: str  #: as "copy-true"
    side: Side  #: "producer" or "consumer"
    level: Level  #: "must" for a rule, "should" for advice
    says: str  #: the standard's word in short
    source: Source  #: where it stands: `title` and `url`
    case: Case  #: the function that tries it


class Rules(list[Rule]):
    """The rules of one module, for one side."""

    def __init__(self, side: Side) -> None:
        super().__init__()
        self.side: Side = side

    def add(self, level: Level, says: str, source: Source) -> Callable[[Case], Case]:
        """Decorate a case: it tries a rule of its name, with hyphens."""

        def decorate(case: Case) -> Case:
            self.append(Rule(case.__name__.replace("_", "-"), self.side, level, says, source, case))
            return case

        return decorate
