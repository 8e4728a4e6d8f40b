"""What the software Metal asks of the compiler: plain values in and out, so that its C knows no class of this package.

A library is its source and its mode of arithmetic.  C keeps those two and hands them over again for each kernel; what
was translated last is remembered here.
"""

from collections.abc import Callable
from functools import lru_cache

from metal_dlpack import msl

#: MTLLibraryError: what the software Metal answers with.
UNSUPPORTED, INTERNAL, COMPILE_FAILURE = 1, 2, 3


@lru_cache(maxsize=16)
def _library(source: str, math: str) -> msl.Library:
    return msl.open_library(source, math)


def _answer(ask: Callable[[], object]) -> tuple[int, object]:
    """(0, what was asked for), or (MTLLibraryError, why it cannot be had)."""
    try:
        return 0, ask()
    except msl.SourceError as error:
        return COMPILE_FAILURE, str(error)
    except msl.CompilerNotFound as error:
        return UNSUPPORTED, str(error)
    except (msl.CompilerError, OSError) as error:
        return INTERNAL, str(error)


def functions(library: tuple[str, str]) -> tuple[int, object]:
    """The kernels of (source, math), in its order: (name, ((constant, type, index, is_required), ...)) each."""
    return _answer(lambda: [(one.name, list(one.constants)) for one in _library(*library).functions.values()])


def image(library: tuple[str, str], function: tuple[str, dict[int, bytes], bool]) -> tuple[int, object]:
    """The path of the image of (name, {index: value}, is it checked), of (source, math)."""
    name, constants, checked = function
    return _answer(lambda: _library(*library).compile(name, constants, checked=checked))


def lines(image_path: str, addresses: list[int]) -> list[str]:
    """ "file:line:column" of the instruction at each address in a checked image; "" where none is known."""
    from .line_table import lines_of  # for reports alone

    places = lines_of(image_path, addresses)
    return [f"{file}:{line}:{column}" if line else "" for file, line, column in places]
