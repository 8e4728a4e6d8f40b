"""Tensors on disk as a mapping of names to Arrays: what one file and a model of several files have in common."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from threading import RLock
from types import MappingProxyType
from typing import Any

from metal_dlpack import _core

from .contents import TensorInfo
from .source import Source, shortened

#: How many names before and behind its place in the alphabet are compared: difflib takes 50 microseconds for each.
NEIGHBOURS = 24
#: The longest name that is compared, in characters: difflib's time grows with the square.
MAX_LENGTH = 200
#: So few names are all told.
FEW = 3


class ArrayFile(Mapping[str, _core.Array]):
    """Tensors by name, in the file's order; each access makes an Array over the file's bytes.

    Made by open().  Closing it, also by ``with``, releases the map; Arrays that were handed out stay valid and keep
    what they need.
    """

    def __init__(self, path: str, kind: str, mode: str, names: Collection[str], metadata: Mapping[str, Any]):
        self._path = path
        self._kind = kind
        self._mode = mode
        self._names = names
        self._metadata = metadata
        self._is_closed = False
        self._lock = RLock()  # headers, the map and its buffers are looked up once, and not while close() is at it

    @property
    def path(self) -> str:
        """The path of the file that was opened; of a model in several files, the path of its index."""
        return self._path

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
        return MappingProxyType(self._metadata)

    @property
    def nbytes(self) -> int:
        """The length of the file in bytes; of a model in several files, of all its shards that are there."""
        raise NotImplementedError

    @property
    def is_mapped(self) -> bool:
        """True if the Arrays lie over the file's pages; False for a small file, which is read when first touched.

        A model in several files is mapped if each of them is: this opens them all, and is a ValueError once it was
        closed.
        """
        raise NotImplementedError

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._is_closed

    def info(self, name: str) -> TensorInfo:
        """Name, type, dtype, shape, offset and nbytes of a tensor, without touching it.

        Raises KeyError for a name that the file does not have.
        """
        with self._lock:
            self._check(name)
            return self._info(name)

    def close(self) -> None:
        """Release the file.  Arrays, views and exports of it stay valid.  Closing twice is allowed."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def __getitem__(self, name: str) -> _core.Array:
        """The tensor as an Array: no copy, unless its place in the file does not fit its type's alignment.

        Raises
        ------
        KeyError
            There is no such tensor; the message has the names that are closest to it.
        FileFormatError
            The member of an .npz file, or its header, is invalid; a shard lacks what the index says.
        FileNotFoundError
            The shard of the tensor is not there.
        MemoryError
            The tensor is larger than the device's max_buffer_length.
        CopyRequiredError
            mode='r+', and the tensor cannot be shared.
        """
        with self._lock:
            self._check(name)
            return self._array(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The tensor, or `default` for a name that the file does not have."""
        if name not in self:  # a miss is no error here: no names are compared
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # A Mapping's would compare the Arrays, which compare no items.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"mode={self._mode!r}"
        return f"<metal_dlpack.ArrayFile {self._path!r}, {self._kind}, {len(self)} tensors, {state}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the first tensors, and where they lie in the file; touches none of them."""
        from metal_dlpack.notebook import html_of

        return html_of(self)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"open: {self._path} was closed; open it again. Arrays that were taken from it stay good.")

    def _check(self, name: str) -> None:
        self._check_open()
        if name not in self._names:
            raise missing_name(self._path, name, self._names)

    # What the two kinds do in their own ways; the lock is held, the file is open and has the name.

    def _info(self, name: str) -> TensorInfo:
        raise NotImplementedError

    def _places(self, names: list[str]) -> Iterator[tuple[Source, list[TensorInfo]]]:
        """File by file, where it has their bytes; MemoryError if no buffer of the device holds those of one."""
        raise NotImplementedError

    def _array(self, name: str) -> _core.Array:
        raise NotImplementedError

    def _buffers(self) -> Iterator[_core.Buffer]:
        """Yield the Buffers with the file's bytes, of all its shards, without copies of single tensors."""
        raise NotImplementedError

    def _let_go(self) -> None:
        raise NotImplementedError


def missing_name(path: str, name: str, names: Collection[str]) -> KeyError:
    """The error for a name that is not among `names`."""
    near = near_names(name, names)
    if near:
        hint = f"did you mean {one_of(near)}?"
    elif 0 < len(names) <= FEW:
        hint = f"it has {one_of(names, 'and')}."
    else:
        hint = "list(file) names those that it has."
    said = shortened(name) if isinstance(name, str) else repr(name)
    return KeyError(f"{path} has no tensor {said}; {hint}")


def near_names(name: str, names: Collection[str], most: int = FEW) -> list[str]:
    """At most `most` names like `name`, the likest first.

    Only those that stand near it in the alphabet are compared, read from either end: of 100,000 names it takes a
    tenth of a second.
    """
    from difflib import get_close_matches

    if not isinstance(name, str) or len(name) > MAX_LENGTH:
        return []
    by_letters = {known.lower(): known for known in names if len(known) <= MAX_LENGTH}
    letters = name.lower()
    near = neighbours(letters, by_letters)
    near += [found[::-1] for found in neighbours(letters[::-1], (known[::-1] for known in by_letters))]
    return [by_letters[found] for found in get_close_matches(letters, dict.fromkeys(near), most)]


def neighbours(name: str, names: Iterable[str]) -> list[str]:
    """The names that stand next to `name` in the alphabet."""
    ordered = sorted(names)
    place = bisect_left(ordered, name)
    return ordered[max(place - NEIGHBOURS, 0) : place + NEIGHBOURS]


def one_of(names: Iterable[str], word: str = "or") -> str:
    *first, last = [shortened(name) for name in names]
    return f"{', '.join(first)} {word} {last}" if first else last
