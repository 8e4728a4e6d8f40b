"""Metal kernels without a Mac: the Metal Shading Language, translated to C++ and compiled by clang.

`open_library(source, version)` reads a source; `Library.functions` are its kernels, `Library.compile(name, constants)`
makes an image that the software Metal runs.  Imported when a kernel is made, and not before.
"""

from __future__ import annotations

from metal_dlpack.language.errors import CompilerError, CompilerNotFound, SourceError

from .library import Constant, Function, Library, open_library

__all__ = [
    "CompilerError",
    "CompilerNotFound",
    "Constant",
    "Function",
    "Library",
    "SourceError",
    "open_library",
]
