"""Files as mappings of names to Arrays over one memory map: .npy, .npz, .safetensors and .gguf.

Importing this imports no format's library, and not NumPy: `open` imports what a file needs.
"""

from __future__ import annotations

import os
from typing import Literal, Never

from . import _core
from .files.array_file import ArrayFile
from .files.single_file import open_single
from .files.source import FileFormatError

MODES = ("r", "c", "r+")
MODEL = ".safetensors"
INDEX = ".index.json"


def open(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    mode: Literal["r", "c", "r+"] = "r",
    *,
    device: _core.Device | str | None = None,
    **unknown: Never,
) -> ArrayFile:
    """Open a file of arrays: a mapping of names to Arrays over one memory map.

    Only the header is read, so a file of any size opens in the same time.  The tensors are Metal buffers over the
    file's pages: a page comes from the disk when it is touched, and torch, MLX and NumPy share it without a copy.

    Parameters
    ----------
    path : str, bytes or path-like
        A ``.npy``, ``.npz`` (stored, not compressed), ``.safetensors`` or ``.gguf`` file.  With another suffix
        the first bytes decide.  ``model.safetensors.index.json`` means all files of a model, and a folder means
        the index or the only ``.safetensors`` file in it.
    mode : {'r', 'c', 'r+'}
        'r': read-only Arrays.  'c': writable Arrays whose writes stay in this process.  'r+': writable Arrays whose
        writes go to the file.
    device : Device or str, optional
        Default: the default device.

    Returns
    -------
    ArrayFile
        A mapping; also a context manager.  `info(name)` returns type, shape and place without touching the tensor;
        `metadata` holds what else the header says.  A ``.npy`` file has one name, ``"arr_0"``.  Tensors whose
        type has no dtype (quantised ones) come as uint8; ``info(name).type`` names the type.

    Raises
    ------
    FileFormatError
        A ValueError: the file is truncated, its header is wrong, its tensors overlap, or its format is not known; or
        it is a checkpoint of torch or a Git LFS pointer.
    OSError
        The file cannot be opened.  If a model has several files, each is opened when one of its tensors is asked for.
    ImportError
        ``.npy`` and ``.npz`` need numpy, ``.gguf`` needs gguf.

    Memory: the map lives until the file is closed and the last Array, view or export over it is gone.  Threads: any.
    If another program truncates the file while it is mapped, the next touch ends the process with SIGBUS, as with any
    memory map; see docs/files.md.
    """
    if unknown:
        raise TypeError(
            f"open() has no keyword argument {next(iter(unknown))!r}; it takes device, and mode: 'r' is read-only, 'c' "
            "writable in this process, 'r+' writable in the file."
        )
    if mode not in MODES:
        raise ValueError(f"open: mode ({mode!r}) must be 'r', 'c' or 'r+'.")
    target = _core.empty(0, device=device).device
    found = os.fsdecode(path)
    if os.path.isdir(found):
        found = find_model(found)
    if found.lower().endswith(INDEX):
        from .files.sharded_file import open_sharded

        return open_sharded(found, mode, target)
    return open_single(found, mode, target)


def find_model(folder: str) -> str:
    """The index of the model in a folder, or its only file."""
    names = sorted(name for name in os.listdir(folder) if not name.startswith("."))  # macOS has ._NAME beside NAME
    for suffix in (MODEL + INDEX, MODEL):
        found = [name for name in names if name.endswith(suffix)]
        if len(found) == 1:
            return os.path.join(folder, found[0])
        if found:
            raise FileFormatError(
                f"open: {folder}: the folder has {len(found)} files that end in {suffix}, such as {found[0]!r} and "
                f"{found[1]!r}; open one of them."
            )
    raise FileFormatError(
        f"open: {folder}: the folder has no file that ends in {MODEL} or {MODEL}{INDEX}; open a file by its own path."
    )
