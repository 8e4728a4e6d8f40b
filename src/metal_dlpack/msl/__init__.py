"""Metal kernels without a Mac: the Metal Shading Language, translated to C++ and compiled by clang.

`open_library(source, math)` reads a source; `Library.functions` are its kernels, `Library.compile(name, constants)`
makes an image that the software Metal runs.  `lines_of(image, addresses)` leads from machine code back to the source.
Imported when a kernel is made, and not before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .errors import CompilerError, CompilerNotFound, SourceError
from .library import Constant, Function, Library, open_library

if TYPE_CHECKING:
    from .line_table import Place

__all__ = [
    "CompilerError",
    "CompilerNotFound",
    "Constant",
    "Function",
    "Library",
    "SourceError",
    "lines_of",
    "open_library",
]


def lines_of(image_path: str | os.PathLike[str], addresses: Iterable[int]) -> list[Place]:
    """Return (file, line, column) for each address: an offset in the image, within an instruction."""
    from .line_table import lines_of  # for reports alone

    return lines_of(image_path, addresses)
