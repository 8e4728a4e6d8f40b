"""One open file as a mapping of names to Arrays."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from weakref import WeakValueDictionary

from metal_dlpack import _core

from .array_file import ArrayFile
from .contents import Contents, TensorInfo
from .lookalikes import refuse_lookalike
from .memory import Memory
from .source import Source, shortened

#: Suffix of a file, and the module here that reads its header.
FORMATS = {".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".gguf": "gguf"}
#: The first bytes of files with another suffix, or none; safetensors has no mark of its own.
MARKS = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"GGUF": "gguf"}


class SingleFile(ArrayFile):
    """The tensors of one file, whose header was read."""

    def __init__(self, source: Source, kind: str, mode: str, contents: Contents, memory: Memory):
        super().__init__(source.path, kind, mode, contents.names, contents.metadata)
        self._source = source
        self._contents = contents
        self._memory = memory
        self._copies: WeakValueDictionary[str, _core.Array] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        return self._source.size

    @property
    def is_mapped(self) -> bool:
        return self._memory.is_mapped

    def _info(self, name: str) -> TensorInfo:
        return self._contents.info(name)

    def _places(self, names: list[str]) -> Iterator[tuple[Source, list[TensorInfo]]]:
        infos = [self._contents.info(name) for name in names]
        if infos:
            self._check_length(max(infos, key=lambda info: info.nbytes))
        yield self._source, infos

    def _buffers(self) -> Iterator[_core.Buffer]:
        return self._memory.buffers()

    def _let_go(self) -> None:
        self._memory.close()
        self._source.close()

    def _array(self, name: str) -> _core.Array:
        info = self._contents.info(name)
        if info.nbytes == 0:
            array = _core.empty(info.shape, info.dtype, device=self._memory.device)
            return array.as_readonly() if self._mode == "r" else array
        copied = self._copies.get(name)
        if copied is not None:
            return copied
        where = self._memory.locate(info.offset, info.offset + info.nbytes)
        if where is not None and where[1] % info.dtype.alignment == 0:
            return self._over(*where, info)
        array = self._copies[name] = self._over(self._copied(info), 0, info)
        return array

    def _over(self, buffer: _core.Buffer, offset: int, info: TensorInfo) -> _core.Array:
        array = array_over(buffer, offset, info)
        return array.as_readonly() if self._mode == "r" else array

    def _check_length(self, info: TensorInfo) -> None:
        most = self._memory.device.max_buffer_length
        if info.nbytes > most:
            raise MemoryError(
                f"open: {self.path}: tensor {shortened(info.name)} has {info.nbytes} bytes, and the device's "
                f"max_buffer_length is {most}: no Metal buffer holds it."
            )

    def _copied(self, info: TensorInfo) -> _core.Buffer:
        self._check_length(info)
        if self._mode == "r+":
            raise _core.CopyRequiredError(
                f"open: {self.path}: tensor {shortened(info.name)} begins at byte {info.offset}, and {info.dtype.name} "
                f"requires a multiple of {info.dtype.alignment}: it must be copied, and writes to a copy do not reach "
                f"the file; open it with mode='r' or 'c'."
            )
        return self._memory.copy(info.offset, info.offset + info.nbytes)


def array_over(buffer: _core.Buffer, offset: int, info: TensorInfo) -> _core.Array:
    """The tensor whose bytes begin at `offset` of the buffer."""
    if info.order == "C":
        return buffer.array(info.shape, info.dtype, offset)
    return buffer.array(_core.StridedLayout.dense(info.shape, info.dtype.itemsize, "F"), info.dtype, offset)


def open_single(path: str, mode: str, device: _core.Device) -> SingleFile:
    """One file of any format; reads its header."""
    source = Source(path, is_writable=mode == "r+")
    try:
        kind = format_of(source)
        contents: Contents = import_module(f".{kind}", __package__).read_contents(source)
    except BaseException:
        source.close()
        raise
    return SingleFile(source, kind, mode, contents, Memory(source, mode, device, contents.extents))


def format_of(source: Source) -> str:
    head = source.read_up_to(0, 64)
    refuse_lookalike(source, head)
    lowered = source.path.lower()
    for suffix, kind in FORMATS.items():
        if lowered.endswith(suffix):
            return kind
    for mark, kind in MARKS.items():
        if head.startswith(mark):
            return kind
    if looks_like_safetensors(head, source.size):
        return "safetensors"
    return source.refuse(f"it is none of {', '.join(FORMATS)}: it begins with {head[:8]!r}.")


def looks_like_safetensors(head: bytes, size: int) -> bool:
    length = int.from_bytes(head[:8], "little")
    return len(head) >= 9 and head[8:9] == b"{" and length <= size - 8
