"""The header of a .gguf file: keys with values, then one record a tensor.

The names and sizes of the types are those of the `gguf` package.  Its reader is not used: it makes several NumPy
arrays for each entry of a vocabulary, which takes seconds, and it believes the counts that a header gives.

Source: docs/gguf.md of the ggml project; gguf.constants.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from metal_dlpack import _core

from .contents import Contents, TensorInfo, check_extents, make_info
from .source import Source, shortened

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4  # SPEC ggml.h GGML_MAX_DIMS
STRING, ARRAY = 8, 9
#: SPEC gguf.md gguf_metadata_value_type: what stands for a value of fixed size.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
#: Tensor types that a dtype stands for; all others come as bytes.
DTYPES = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BF16": "bfloat16",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
}
#: SPEC gguf.md: the longest key in bytes.  Names of tensors are far shorter.
MAX_NAME = 65535
#: SPEC ggml's gguf.cpp GGUF_MAX_ARRAY_ELEMENTS, GGUF_MAX_STRING_LENGTH: a sparse file can have any number of zeros.
MAX_COUNT = 1 << 30
LEAST_TENSOR = 8 + 4 + 4 + 8  # bytes of a record: name, count of dimensions, type, offset
LEAST_PAIR = 8 + 4 + 1


def read_contents(source: Source) -> Contents:
    """The tensors in the header's order, and the keys with their values, read when asked for."""
    types = ggml_types(source)
    walk = Walk(source)
    check_start(source, walk.take(8))
    tensor_count, pair_count = walk.numbers("QQ")
    walk.check_room(tensor_count, LEAST_TENSOR, "tensors")
    walk.check_room(pair_count, LEAST_PAIR, "keys")
    metadata = read_pairs(walk, pair_count)
    records = list(read_records(walk, tensor_count))
    align = alignment_of(source, metadata)
    data_start = (walk.position + align - 1) // align * align
    infos = [describe(source, record, data_start, align, types) for record in records]
    check_extents(source, [(info.offset, info.offset + info.nbytes, info.name) for info in infos if info.nbytes > 0])
    return Contents(infos, metadata)


def ggml_types(source: Source) -> Any:
    try:
        from gguf import constants
    except ImportError:
        raise ImportError(
            f"open: {source.path}: the types of .gguf files are named by the gguf package; install gguf."
        ) from None
    return constants


def check_start(source: Source, start: bytes) -> None:
    (version,) = struct.unpack_from("<I", start, 4)
    if start[:4] != MAGIC:
        source.refuse(f"a .gguf file begins with {MAGIC!r}, but this one begins with {start[:4]!r}.")
    if version not in VERSIONS:
        swapped = version & 0xFFFF == 0 and version != 0
        what = "it is written in big-endian byte order" if swapped else f"its version is {version}"
        source.refuse(f"{what}; versions {' and '.join(map(str, VERSIONS))} in little-endian order are read.")


class Walk:
    """A place in the header that moves on as things are read.  Reads the file a megabyte at a time."""

    CHUNK = 1 << 20

    def __init__(self, source: Source, position: int = 0):
        self.source = source
        self.position = position
        self._chunk = b""
        self._chunk_start = position

    def take(self, nbytes: int) -> bytes:
        first = self.position - self._chunk_start
        if first + nbytes > len(self._chunk):
            if self.position + nbytes > self.source.size:
                self.source.refuse(
                    f"its header needs {nbytes} bytes from byte {self.position} on, and the file ends at "
                    f"{self.source.size}."
                )
            self._chunk = self.source.read_up_to(self.position, max(nbytes, self.CHUNK))
            self._chunk_start, first = self.position, 0
            if len(self._chunk) < nbytes:
                self.source.check_size()
                self.source.refuse(f"byte {self.position} cannot be read.")
        self.position += nbytes
        return self._chunk[first : first + nbytes]

    def numbers(self, letters: str) -> tuple[Any, ...]:
        layout = "<" + letters
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self, what: str = "a text", most: int = MAX_COUNT) -> str:
        start = self.position
        (length,) = self.numbers("Q")
        self.check_count(length, f"bytes in {what}", most)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            self.source.refuse(f"the text at byte {start} is not UTF-8.", cause=error)

    def skip(self, nbytes: int, what: str) -> None:
        if self.position + nbytes > self.source.size:
            self.source.refuse(
                f"{what} at byte {self.position} has {nbytes} bytes, and the file ends at {self.source.size}."
            )
        self.position += nbytes
        if self.position - self._chunk_start > len(self._chunk):
            self._chunk, self._chunk_start = b"", self.position

    def skip_texts(self, count: int, what: str) -> None:
        """Past `count` texts.  A vocabulary has hundreds of thousands: those within a chunk are read in a row."""
        read = struct.Struct("<Q").unpack_from
        while count > 0:
            (length,) = self.numbers("Q")
            self.skip(length, what)
            count -= 1
            chunk, place = self._chunk, self.position - self._chunk_start
            while count > 0 and place + 8 <= len(chunk):
                after = place + 8 + read(chunk, place)[0]
                if after > len(chunk):
                    break
                place = after
                count -= 1
            self.position = self._chunk_start + place

    def check_count(self, count: int, what: str, most: int = MAX_COUNT) -> None:
        if count > most:
            self.source.refuse(f"it has {count} {what} before byte {self.position}, more than {most}.")

    def check_room(self, count: int, least: int, what: str) -> None:
        if count * least > self.source.size - self.position:
            self.source.refuse(
                f"it names {count} {what} at byte {self.position}, more than {self.source.size} bytes can hold."
            )


# ---- keys and values ----


class Values(Mapping[str, Any]):
    """The keys of a header; a value is decoded each time that it is asked for: a vocabulary is long."""

    def __init__(self, source: Source, places: dict[str, int]):
        self._source = source
        self._places = places

    def __getitem__(self, key: str) -> Any:
        place = self._places[key]
        if self._source.is_closed:
            raise ValueError(f"open: {self._source.path} was closed; read its metadata before.")
        walk = Walk(self._source, place)
        return read_value(walk, walk.numbers("I")[0])

    def number(self, key: str, default: int) -> Any:
        """The value of a key that should be a number; an array, which may be long, is not read."""
        if key not in self._places:
            return default
        (kind,) = Walk(self._source, self._places[key]).numbers("I")
        return "an array" if kind == ARRAY else self[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def read_pairs(walk: Walk, count: int) -> Values:
    places: dict[str, int] = {}
    for _ in range(count):
        key = walk.text("a key", MAX_NAME)
        if key in places:
            walk.source.refuse(f"the key {shortened(key)} occurs twice.")
        places[key] = walk.position
        skip_value(walk, walk.numbers("I")[0], key)
    return Values(walk.source, places)


def skip_value(walk: Walk, kind: int, key: str) -> None:
    if kind == STRING:
        (length,) = walk.numbers("Q")
        walk.skip(length, f"the text of key {shortened(key)}")
        walk.check_count(length, f"bytes in key {shortened(key)}")
    elif kind == ARRAY:
        skip_array(walk, key)
    else:
        walk.skip(scalar_size(walk, kind, key), f"the value of key {shortened(key)}")


def skip_array(walk: Walk, key: str) -> None:
    kind, count = walk.numbers("IQ")
    if kind == STRING:
        walk.check_room(count, 8, f"texts in key {shortened(key)}")
        walk.check_count(count, f"texts in key {shortened(key)}")
        walk.skip_texts(count, f"a text of key {shortened(key)}")
    elif kind == ARRAY:
        walk.source.refuse(f"the key {shortened(key)} holds an array of arrays, which is not supported.")
    else:
        walk.skip(count * scalar_size(walk, kind, key), f"the array of key {shortened(key)}")
        walk.check_count(count, f"items in key {shortened(key)}")


def scalar_size(walk: Walk, kind: int, key: str) -> int:
    if kind not in SCALARS:
        walk.source.refuse(f"the key {shortened(key)} has values of type {kind}, which is not known.")
    return struct.calcsize(SCALARS[kind])


def read_value(walk: Walk, kind: int) -> Any:
    """A value that skip_value found sound."""
    if kind == STRING:
        return walk.text()
    if kind != ARRAY:
        return walk.numbers(SCALARS[kind])[0]
    kind, count = walk.numbers("IQ")
    if kind == STRING:
        return [walk.text() for _ in range(count)]
    return list(walk.numbers(f"{count}{SCALARS[kind]}"))


def alignment_of(source: Source, metadata: Values) -> int:
    align = metadata.number("general.alignment", 32)
    if type(align) is not int or align <= 0 or align & (align - 1) != 0:
        source.refuse(f"its general.alignment ({str(align)[:80]}) is not a power of two.")
    return align


# ---- tensors ----


def read_records(walk: Walk, count: int) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
    """Each tensor's name, shape as NumPy has it, type and offset; a name that stands twice ends it, as in a hole."""
    names: set[str] = set()
    for _ in range(count):
        record = read_record(walk)
        if record[0] in names:
            walk.source.refuse("it occurs twice in the header.", record[0])
        names.add(record[0])
        yield record


def read_record(walk: Walk) -> tuple[str, tuple[int, ...], int, int]:
    name = walk.text("the name of a tensor", MAX_NAME)
    (ndim,) = walk.numbers("I")
    if ndim > MAX_DIMS:
        walk.source.refuse(f"it has {ndim} dimensions, and the format knows at most {MAX_DIMS}.", name)
    extents = walk.numbers(f"{ndim}Q")
    kind, offset = walk.numbers("IQ")
    return name, extents[::-1], kind, offset


def describe(
    source: Source, record: tuple[str, tuple[int, ...], int, int], data_start: int, align: int, types: Any
) -> TensorInfo:
    name, shape, number, offset = record
    try:
        kind = types.GGMLQuantizationType(number)
    except ValueError:
        source.refuse(f"its type ({number}) is not known to the installed gguf package.", name)
    if offset % align != 0:
        source.refuse(f"its offset ({offset}) is not a multiple of the alignment ({align}).", name)
    if kind.name in DTYPES:
        return make_info(source, name, kind.name, _core.dtype(DTYPES[kind.name]), shape, data_start + offset)
    items, nbytes = types.GGML_QUANT_SIZES[kind]
    last = shape[-1] if shape else 1
    if last % items != 0:
        source.refuse(f"its rows have {last} items, and {kind.name} stores blocks of {items}.", name)
    packed = (*shape[:-1], last // items * nbytes)
    return make_info(source, name, kind.name, _core.uint8, packed, data_start + offset)
