"""Files of arrays read into buffers: what open() maps, whole, by several threads.

Importing this imports no format's library, and not NumPy: `load` imports what a file needs.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import _core, opening
from .files.array_file import ArrayFile, missing_name
from .files.plan import FLOATING, Run, plans_of
from .files.progress import Progress, following
from .files.reading import Reading

if TYPE_CHECKING:
    from ._core import _Device, _DType, _StorageMode


def load(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    *,
    progress: Progress | bool | None = None,
    dtype: _DType | None = None,
    only: str | Iterable[str] | None = None,
    storage: _StorageMode | None = None,
    device: _Device | None = None,
) -> dict[str, _core.Array]:
    """Read a file of arrays, or a model in several files, into buffers of its own: a dict of names and Arrays.

    Several threads read from the file straight into Metal's memory.  The file is closed on return and may change.
    `open` maps it instead: that returns at once, and is for files of which only a part is touched.

    Parameters
    ----------
    path : str, bytes or path-like
        As for `open`: a ``.npy``, ``.npz`` (stored), ``.safetensors`` or ``.gguf`` file, an index of a model in several
        files, or its folder.
    progress : bool or callable, optional
        True: a bar of tqdm where that is installed, also in notebooks, otherwise a line on stderr.  A callable is
        called as ``progress(done, total)``, in bytes of the file, in the calling thread: with 0 first, with `total`
        last, and at most 20 times a second between.  What it raises ends the loading.  Default: none.
    dtype : dtype, optional
        Convert float16, bfloat16, float32 and float64 to this floating type while reading, as `astype` does.  Other
        tensors (integers, fp8, quantised bytes) stay as they are.  Needs numpy, and ml_dtypes for bfloat16 and fp8.
        Default: as in the file.
    only : str or iterable of str, optional
        Names of the tensors to read; ``*`` stands for any characters and ``?`` for one.  For a model in several files
        only those that have one of them are opened.  Default: all.
    storage : {'shared', 'private', 'managed'}, optional
        Default: `get_storage_mode()`.
    device : Device or str, optional
        Default: the default device.

    Returns
    -------
    dict of str to Array
        In the file's order; each Array is writable and contiguous, in C order but for an ``.npy`` array in Fortran's.
        Tensors of 1 MiB and more have a buffer each, which is free when the Array and all views of it are; smaller
        ones that follow each other in the file share one.

    Raises
    ------
    FileFormatError
        As `open` raises it; or the file ends early while it is read.
    OSError
        A file cannot be opened or read; a shard is not there.
    KeyError
        No tensor has the name, or one like the pattern, in `only`; the message has the names that are closest to it.
    ValueError, TypeError
        `dtype` is not a floating type of whole bytes; `progress` is neither callable nor a bool.
    MemoryError
        The tensors do not fit into the device's memory, or one is larger than its max_buffer_length.
    ImportError
        ``.npy`` and ``.npz`` need numpy, ``.gguf`` needs gguf, a conversion what `dtype` says.

    Memory: that of the tensors.  For tensors that are converted or private each thread also has 8 MiB of the file, and
    for those that are both the same items converted.  Threads: any; at most 8 read, without the GIL, and none is left
    on return.  Ctrl-C and errors end them within 8 MiB each, and let go of all.
    """
    wanted = None if dtype is None else floating(dtype)
    _core.empty(0, device=device, storage=storage)  # a wrong one is refused before the file is opened
    made: dict[str, _core.Array] = {}
    runs: list[Run] = []
    with opening.open(path, device=device) as file:
        names = chosen(file, only)
        # Before the first byte is read: while threads read, this one would wait for a core after each file's header.
        for plan in plans_of(file, names, wanted, storage, device):
            made |= plan.arrays
            runs += plan.runs
        with Reading(runs) as reading, following(progress, file.path, reading.total) as tell:
            reading.follow(tell)
    return {name: made[name] for name in names}


def floating(dtype: _DType) -> _core.dtype:
    """The type to convert to, if NumPy can."""
    wanted = _core.dtype(dtype)
    if wanted.bits % 8 != 0 or wanted.lanes != 1 or not wanted.name.startswith(("float", "bfloat")):
        names = ", ".join(kind.name for kind in FLOATING)
        raise ValueError(
            f"load: dtype ({wanted.name}) is not a floating type of whole bytes; pass one such as {names}, or convert "
            "each Array with astype."
        )
    _ = wanted.numpy  # ImportError: before anything is read
    return wanted


def chosen(file: ArrayFile, only: str | Iterable[str] | None) -> list[str]:
    """The names of the file that `only` means, in the file's order."""
    if only is None:
        return list(file)
    patterns = [only] if isinstance(only, str) else only
    if not isinstance(patterns, Iterable):
        raise TypeError(f"load: only ({only!r}) must be a name or several, in which * and ? stand for what you like.")
    kept: set[str] = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"load: only has {pattern!r}, which is no name; a name is a str.")
        if pattern in file:
            found = [pattern]
        else:
            # translate() matches without going back; its character classes are not supported here.
            shape = re.compile(fnmatch.translate(pattern.replace("[", "[[]")))
            found = [name for name in file if shape.match(name)]
        if not found:
            raise missing_name(file.path, pattern, list(file))
        kept.update(found)
    return [name for name in file if name in kept]
