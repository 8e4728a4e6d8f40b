"""What a path stands for: one file, the index of several, or the folder of a model."""

from __future__ import annotations

import os
from typing import Any

from metal_dlpack import _core
from metal_dlpack.file_errors import FileFormatError

from .array_file import ArrayFile
from .single_file import open_single

__all__ = ["open_file"]

MODES = ("r", "c", "r+")
MODEL = ".safetensors"
INDEX = ".index.json"


def open_file(path: Any, mode: str, device: _core.Device | str | None) -> ArrayFile:
    """See open()."""
    if mode not in MODES:
        raise ValueError(f"open: mode ({mode!r}) must be 'r', 'c' or 'r+'.")
    target = _core.empty(0, device=device).device
    found = os.fsdecode(path)
    if os.path.isdir(found):
        found = find_model(found)
    if found.lower().endswith(INDEX):
        from .sharded_file import open_sharded

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
