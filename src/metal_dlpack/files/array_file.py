"""An open file as a mapping of names to Arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from threading import RLock
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

from metal_dlpack import _core

from .contents import Contents, TensorInfo
from .memory import Memory
from .source import Source, shortened

__all__ = ["ArrayFile", "open_file"]

#: Suffix of a file, and the module here that reads its header.
FORMATS = {".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".gguf": "gguf"}
#: The first bytes of files with another suffix, or none; safetensors has no mark of its own.
MARKS = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"GGUF": "gguf"}
MODES = ("r", "c", "r+")


class ArrayFile(Mapping[str, _core.Array]):
    """The tensors of one file by name, in the file's order; each access makes an Array over the file's bytes.

    Made by open().  Closing it, also by ``with``, lets go of the map; Arrays that were handed out stay good and keep
    what they need.
    """

    def __init__(self, source: Source, kind: str, mode: str, contents: Contents, memory: Memory):
        self._source = source
        self._kind = kind
        self._mode = mode
        self._contents = contents
        self._memory = memory
        self._copies: WeakValueDictionary[str, _core.Array] = WeakValueDictionary()
        self._is_closed = False
        self._lock = RLock()  # headers, the map and its buffers are looked up once, and not while close() is at it

    @property
    def path(self) -> str:
        """The path that was opened."""
        return self._source.path

    @property
    def format(self) -> str:
        """'npy', 'npz', 'safetensors' or 'gguf'."""
        return self._kind

    @property
    def mode(self) -> str:
        """'r', 'c' or 'r+'."""
        return self._mode

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the header says beside the tensors; a read-only mapping, empty for .npy and .npz."""
        return MappingProxyType(self._contents.metadata)

    @property
    def nbytes(self) -> int:
        """The length of the file."""
        return self._source.size

    @property
    def is_mapped(self) -> bool:
        """True if the Arrays lie over the file's pages; False for a small file, which is read when first touched."""
        return self._memory.is_mapped

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._is_closed

    def info(self, name: str) -> TensorInfo:
        """Name, type, dtype, shape, offset and nbytes of a tensor, without touching it.

        Raises KeyError for a name that the file does not have.
        """
        with self._lock:
            self._check_open()
            try:
                return self._contents.info(name)
            except KeyError:
                raise KeyError(f"{self.path} has no tensor {name!r}; list(file) names those that it has.") from None

    def close(self) -> None:
        """Let go of the file.  Arrays, views and exports of it stay good.  Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            self._memory.close()
            self._source.close()

    def __getitem__(self, name: str) -> _core.Array:
        """The tensor as an Array: no copy, unless its place in the file does not fit its type's alignment.

        Raises
        ------
        KeyError
            There is no such tensor.
        FileFormatError
            The member of an .npz file, or its header, is not sound.
        MemoryError
            The tensor is larger than the device's max_buffer_length.
        CopyRequiredError
            mode='r+', and the tensor cannot be shared.
        """
        with self._lock:
            info = self.info(name)
            array = self._copies.get(name)
            return self._array(info) if array is None else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.names)

    def __len__(self) -> int:
        return len(self._contents.names)

    def __contains__(self, name: object) -> bool:
        return name in self._contents.names

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"mode={self._mode!r}"
        return f"<metal_dlpack.ArrayFile {self.path!r}, {self._kind}, {len(self)} tensors, {state}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the first tensors, and where they lie in the file; touches none of them."""
        from metal_dlpack.notebook import html_of

        return html_of(self)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"open: {self.path} was closed.")

    def _array(self, info: TensorInfo) -> _core.Array:
        if info.nbytes == 0:
            array = _core.empty(info.shape, info.dtype, device=self._memory.device)
            return array.as_readonly() if self._mode == "r" else array
        where = self._memory.locate(info.offset, info.offset + info.nbytes)
        if where is not None and where[1] % info.dtype.alignment == 0:
            return self._over(*where, info)
        array = self._over(self._copied(info), 0, info)
        self._copies[info.name] = array
        return array

    def _over(self, buffer: _core.Buffer, offset: int, info: TensorInfo) -> _core.Array:
        layout = _core.StridedLayout.dense(info.shape, info.dtype.itemsize, info.order)
        array = buffer.array(layout, info.dtype, offset)
        return array.as_readonly() if self._mode == "r" else array

    def _copied(self, info: TensorInfo) -> _core.Buffer:
        most = self._memory.device.max_buffer_length
        if info.nbytes > most:
            raise MemoryError(
                f"open: {self.path}: tensor {shortened(info.name)} has {info.nbytes} bytes, and the device's "
                f"max_buffer_length is {most}: no Metal buffer holds it."
            )
        if self._mode == "r+":
            raise _core.CopyRequiredError(
                f"open: {self.path}: tensor {shortened(info.name)} begins at byte {info.offset}, and {info.dtype.name} "
                f"wants a multiple of {info.dtype.alignment}: it must be copied, and writes to a copy do not reach "
                f"the file; open it with mode='r' or 'c'."
            )
        return self._memory.copy(info.offset, info.offset + info.nbytes)


def looks_like_safetensors(head: bytes, size: int) -> bool:
    length = int.from_bytes(head[:8], "little")
    return len(head) >= 9 and head[8:9] == b"{" and length <= size - 8


def format_of(source: Source) -> str:
    kind = FORMATS.get(os.path.splitext(source.path)[1].lower())
    if kind is not None:
        return kind
    head = source.read_up_to(0, 16)
    for mark, kind in MARKS.items():
        if head.startswith(mark):
            return kind
    if looks_like_safetensors(head, source.size):
        return "safetensors"
    return source.refuse(f"it is none of {', '.join(FORMATS)}: it begins with {head[:8]!r}.")


def open_file(path: Any, mode: str, device: _core.Device | str | None) -> ArrayFile:
    """See open()."""
    if mode not in MODES:
        raise ValueError(f"open: mode ({mode!r}) must be 'r', 'c' or 'r+'.")
    target = _core.empty(0, device=device).device
    source = Source(path, is_writable=mode == "r+")
    try:
        kind = format_of(source)
        contents: Contents = import_module(f".{kind}", __package__).read_contents(source)
    except BaseException:
        source.close()
        raise
    return ArrayFile(source, kind, mode, contents, Memory(source, mode, target, contents.extents))
