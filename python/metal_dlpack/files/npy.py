"""The header of a .npy file, which NumPy reads; alone, or as a member of an .npz file.

Source: numpy.lib.format.
"""

from __future__ import annotations

import io
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from metal_dlpack import _core

from .contents import Contents, TensorInfo, make_info
from .source import Source

if TYPE_CHECKING:
    import numpy as np

#: The name that numpy.savez gives to an array that has none.
ONLY_NAME = "arr_0"
#: Magic string, version, length; then the longest header that NumPy reads, in bytes.
HEADER_ROOM = 12 + 10_000


def read_contents(source: Source) -> Contents:
    """The one array of the file; bytes behind it are left alone, as NumPy does."""
    return Contents([read_info(source, ONLY_NAME, 0)], {})


def read_info(source: Source, name: str, offset: int) -> TensorInfo:
    """The array whose header begins at `offset`."""
    stream = io.BytesIO(source.read_up_to(offset, HEADER_ROOM))
    try:
        shape, is_fortran, numpy_dtype = read_numpy_header(stream)
    except ImportError:
        raise ImportError("open: .npy and .npz files are read with NumPy; install numpy.") from None
    except Exception as error:  # NumPy evaluates the header as Python: whatever that raises
        source.refuse(f"NumPy cannot read its header: {str(error)[:300]}", name, error)
    if any(type(extent) is not int or extent < 0 for extent in shape):
        source.refuse(f"its shape {shape} is not made of whole numbers.", name)
    if numpy_dtype.hasobject:
        source.refuse("its items are pickled Python objects, which are not read from a file; save numbers.", name)
    if not numpy_dtype.isnative and numpy_dtype.names is None:
        source.refuse(
            f"its items ({numpy_dtype.str}) are not in this machine's byte order; load it with NumPy, and save "
            f"array.astype(array.dtype.newbyteorder('=')).",
            name,
        )
    return describe(source, name, offset + stream.tell(), shape, is_fortran, numpy_dtype)


def read_numpy_header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    if version in ((2, 0), (3, 0)):  # 3 differs in the letters of field names alone
        return npy.read_array_header_2_0(stream)
    raise ValueError(f"version {version} is not known.")


def describe(
    source: Source, name: str, start: int, shape: tuple[int, ...], is_fortran: bool, numpy_dtype: np.dtype[Any]
) -> TensorInfo:
    order: Literal["C", "F"] = "F" if is_fortran and len(shape) > 1 else "C"
    try:
        if numpy_dtype.kind not in "biufc":
            raise TypeError
        return make_info(source, name, numpy_dtype.str, _core.dtype(numpy_dtype), shape, start, order)
    except TypeError:
        # Text, times, structures, and the types of ml_dtypes, which NumPy writes as nameless bytes.
        return describe_bytes(source, name, start, shape, order, numpy_dtype)


def describe_bytes(
    source: Source,
    name: str,
    start: int,
    shape: tuple[int, ...],
    order: Literal["C", "F"],
    numpy_dtype: np.dtype[Any],
) -> TensorInfo:
    """The bytes of each item as a last axis."""
    if order == "F" and prod(shape) > 0:
        source.refuse(
            f"its items ({numpy_dtype.str}) are in Fortran order and no dtype stands for them; save it in C order.",
            name,
        )
    kind = str(numpy_dtype.descr) if numpy_dtype.names else numpy_dtype.str
    return make_info(source, name, kind, _core.uint8, (*shape, numpy_dtype.itemsize), start)
