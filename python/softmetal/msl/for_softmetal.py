"""What the software Metal asks of the compiler: plain values in and out, so that its C knows no class of this package.

A library is its source, its version of the language, and whether what Apple's compiler refuses is refused.  C hands
them over again for each kernel; what was translated last is remembered here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from softmetal import msl

if TYPE_CHECKING:
    from metal_dlpack.language.diagnostics import Lines

#: MTLLibraryError: what the software Metal answers with.
UNSUPPORTED, INTERNAL, COMPILE_FAILURE = 1, 2, 3
#: MTLFunctionType of what a function is marked as.
_TYPES = {"vertex": 1, "fragment": 2, "kernel": 3, "visible": 5, "intersection": 6, "mesh": 7, "object": 8}


class _Made(NamedTuple):
    """What an image was compiled from."""

    kernel: str
    library: tuple[str, int, bool]  # source, language, is_strict
    constants: dict[int, bytes]


#: By the paths of checked and counting images, for reports.
_made: dict[str, _Made] = {}
_MOST_MADE = 1024


@lru_cache(maxsize=16)
def _library(source: str, language: int, is_strict: bool) -> msl.Library:
    major, minor = divmod(language, 1 << 16)  # MTLLanguageVersion
    return msl.open_library(source, 100 * major + 10 * minor, is_strict=is_strict)


def _answer(ask: Callable[[], object]) -> tuple[int, object]:
    """(0, what was asked for), or (MTLLibraryError, why it cannot be had)."""
    try:
        return 0, ask()
    except msl.SourceError as error:
        return COMPILE_FAILURE, str(error)
    except msl.CompilerNotFound as error:
        return UNSUPPORTED, str(error)
    except msl.CompilerError as error:
        return INTERNAL, str(error)
    except OSError as error:
        return INTERNAL, (
            f"no folder takes a compiled kernel ({error}): set SOFTMETAL_CACHE, or TMPDIR, to a folder of your own "
            "with 20 MB to spare."
        )


def functions(library: tuple[str, int, bool]) -> tuple[int, object]:
    """The functions of (source, language, is_strict), in order: name, type, [(constant, type, index, is_required)]."""
    return _answer(
        lambda: [(one.name, _TYPES[one.stage], list(one.constants)) for one in _library(*library).functions.values()]
    )


def image(
    library: tuple[str, int, bool], function: tuple[str, list[tuple[int, bytes]], bool, bool]
) -> tuple[int, object]:
    """The path of the image of (name, (index, value) of each constant, is it checked, does it count), of a library."""
    name, constants, checked, counting = function
    code, path = _answer(lambda: _library(*library).compile(name, dict(constants), checked=checked, counting=counting))
    if code == 0 and (checked or counting):
        if len(_made) >= _MOST_MADE:
            _made.pop(next(iter(_made)), None)
        _made[str(path)] = _Made(name, library, dict(constants))
    return code, path


def source_of_image(path: str) -> str | None:
    """What a checked or counting image of this process was compiled from; None: too many came since."""
    return _made[path].library[0] if path in _made else None


def kernel_of_image(path: str) -> str | None:
    """The name of the kernel of such an image."""
    return _made[path].kernel if path in _made else None


def lines(image: tuple[str, int], addresses: bytes) -> bytes:
    """ "file:line:column" of the instruction at each address of 64 bits in (checked image, width): rows of that width.

    A row is "" where none is known, of a long one the end: there is the line.
    """
    path, width = image
    places = places_of(path, memoryview(addresses).cast("Q"))
    return b"".join(row(f"{file}:{line}:{column}" if line else "", width) for file, line, column in places)


def places_of(path: str, addresses: Iterable[int]) -> list[tuple[str, int, int]]:
    """What line_table.lines_of says of such an image, with columns of the lines as the user wrote them."""
    from metal_dlpack.language.diagnostics import column_in  # for reports alone

    from .line_table import lines_of

    places = []
    for file, line, column in lines_of(path, addresses):
        written, translated = (lines.get((file.removeprefix("near "), line)) for lines in _lines_of_image(path))
        if column and written is not None and translated is not None:
            column = column_in(written, translated, column)
        places.append((file, line, column))
    return places


@lru_cache(maxsize=64)
def _lines_of_image(path: str) -> tuple[Lines, Lines]:
    """The lines of an image's source as the user wrote them, and as they were compiled."""
    from metal_dlpack.language.diagnostics import lines_of_source

    if path not in _made:
        return {}, {}
    made = _made[path]
    return lines_of_source(made.library[0]), _library(*made.library).translated_lines(made.kernel, made.constants)


def row(text: str, width: int) -> bytes:
    """A text that ends within this many bytes."""
    whole = text.encode(errors="replace")
    if len(whole) >= width:
        whole = b"..." + whole[4 - width :].decode(errors="ignore").encode()  # from a whole character on
    return whole.ljust(width, b"\0")
