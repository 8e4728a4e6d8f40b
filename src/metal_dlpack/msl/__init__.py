"""Metal kernels without a Mac: the Metal Shading Language, translated to C++ and compiled by clang.

`open_library(source, math)` reads a source; `Library.functions` are its kernels, `Library.compile(name, constants)`
makes an image that the software Metal runs.  `lines_of(image, addresses)` leads from machine code back to the source.
Imported when a kernel is made, and not before.
"""

from .errors import CompilerError, CompilerNotFound, SourceError
from .library import Constant, Function, Library, open_library
from .line_table import lines_of

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
