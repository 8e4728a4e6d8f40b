"""A reader of Mach-O files: symbols, strings, and the Objective-C protocols inside.

Reads objects (.o) and linked images with plain pointers, of a fat file the part for arm64.
SPEC <mach-o/loader.h>, <mach-o/nlist.h>, <mach-o/reloc.h>, <mach-o/fat.h>; objc4 runtime, protocol_t.
"""

import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FAT_MAGIC = 0xCAFEBABE
MAGIC_64 = 0xFEEDFACF
ARM64 = 0x0100000C
LC_SEGMENT_64, LC_SYMTAB, LC_LOAD_DYLIB, LC_BUILD_VERSION = 0x19, 0x2, 0xC, 0x32
N_STAB, N_TYPE, N_EXT, N_UNDF = 0xE0, 0x0E, 0x01, 0x00
ZERO_FILL = {1, 12, 18}  # S_ZEROFILL, S_GB_ZEROFILL, S_THREAD_LOCAL_ZEROFILL


@dataclass
class Section:
    name: str
    address: int
    data: bytes
    relocations: list


@dataclass
class Symbol:
    name: str
    kind: int
    value: int

    @property
    def is_undefined(self) -> bool:
        return self.kind & N_TYPE == N_UNDF and bool(self.kind & N_EXT)

    @property
    def is_exported(self) -> bool:
        return self.kind & N_TYPE != N_UNDF and bool(self.kind & N_EXT)


@dataclass
class Protocol:
    name: str
    adopts: list[str]
    #: "-length" or "+alloc": the encoded type, as the runtime knows it
    methods: dict[str, str] = field(default_factory=dict)
    #: the same, with the classes and protocols of objects
    long_types: dict[str, str] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)
    properties: dict[str, str] = field(default_factory=dict)


def arm64_of(path: Path) -> bytes:
    data = Path(path).read_bytes()
    (magic,) = struct.unpack_from(">I", data)
    if magic != FAT_MAGIC:
        return data
    (count,) = struct.unpack_from(">I", data, 4)
    parts = (struct.unpack_from(">5I", data, 8 + 20 * i) for i in range(count))
    return next(data[offset : offset + size] for cpu, _, offset, size, _ in parts if cpu == ARM64)


class Image:
    def __init__(self, path: Path):
        self.data = arm64_of(path)
        magic, cpu, _, _, commands, _, _, _ = struct.unpack_from("<8I", self.data)
        if magic != MAGIC_64 or cpu != ARM64:
            raise ValueError(f"{path} is not a Mach-O file of arm64")
        self.sections: list[Section] = []
        self.symbols: list[Symbol] = []
        self.loaded: list[str] = []  # the paths of the libraries that it needs
        self.macos = None  # (major, minor) of the deployment target
        offset = 32
        for _ in range(commands):
            kind, size = struct.unpack_from("<2I", self.data, offset)
            if kind == LC_SEGMENT_64:
                self._read_segment(offset)
            elif kind == LC_SYMTAB:
                self._read_symbols(offset)
            elif kind == LC_LOAD_DYLIB:
                (name,) = struct.unpack_from("<I", self.data, offset + 8)
                self.loaded.append(text(self.data[offset + name : offset + size]))
            elif kind == LC_BUILD_VERSION:
                (version,) = struct.unpack_from("<I", self.data, offset + 12)
                self.macos = (version >> 16, version >> 8 & 0xFF)
            offset += size
        self.pointers = {}  # address: where the pointer there points, in an object
        for section in self.sections:
            self._relocate(section)

    def _read_segment(self, offset: int) -> None:
        (count,) = struct.unpack_from("<I", self.data, offset + 64)
        for i in range(count):
            name, _, address, size, place, _, first, relocations, flags = struct.unpack_from(
                "<16s16s2Q5I", self.data, offset + 72 + 80 * i
            )
            data = b"" if flags & 0xFF in ZERO_FILL else self.data[place : place + size]
            entries = [struct.unpack_from("<iI", self.data, first + 8 * k) for k in range(relocations)]
            self.sections.append(Section(text(name), address, data, entries))

    def _read_symbols(self, offset: int) -> None:
        table, count, strings, _ = struct.unpack_from("<4I", self.data, offset + 8)
        for i in range(count):
            name, kind, _, _, value = struct.unpack_from("<IBBHQ", self.data, table + 16 * i)
            if not kind & N_STAB:
                start = strings + name
                self.symbols.append(Symbol(self.data[start : self.data.index(0, start)].decode(), kind, value))

    def _relocate(self, section: Section) -> None:
        for place, packed in section.relocations:
            number, is_pc_relative, length = packed & 0xFFFFFF, packed >> 24 & 1, packed >> 25 & 3
            is_extern, kind = packed >> 27 & 1, packed >> 28
            if kind != 0 or length != 3 or is_pc_relative:
                continue  # only whole pointers count here
            (value,) = struct.unpack_from("<Q", section.data, place)
            if is_extern:
                value += self.symbols[number].value
            self.pointers[section.address + place] = value

    # ---- what is asked ----

    def undefined(self) -> set[str]:
        return {s.name for s in self.symbols if s.is_undefined}

    def exported(self) -> set[str]:
        return {s.name for s in self.symbols if s.is_exported}

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)

    def sent(self) -> set[str]:
        """The selectors of the messages that the code sends."""
        listed = self.section("__objc_selrefs")
        count = 0 if listed is None else len(listed.data) // 8
        return {self._string(self._pointer(listed.address + 8 * i)) for i in range(count)}

    def strings_of(self, functions: str) -> dict[str, list[str]]:
        """For each function whose name matches: the C strings whose addresses its code makes, by adrp and add."""
        texts = next(s for s in self.sections if s.name == "__cstring")
        code = self.section("__text")
        defined = sorted((s.value, s.name) for s in self.symbols if s.kind & N_TYPE == N_TYPE)
        found = {}
        for (begin, name), (end, _) in itertools.pairwise(defined):
            if re.search(functions, name) and begin in range(code.address, code.address + len(code.data)):
                words = struct.unpack_from(f"<{(end - begin) // 4}I", code.data, begin - code.address)
                places = [a - texts.address for a in made_addresses(words, begin)]
                found[name] = [text(texts.data[a : a + 300]) for a in places if 0 <= a < len(texts.data)]
        return found

    def protocols(self) -> dict[str, Protocol]:
        listed = self.section("__objc_protolist")
        found = {}
        for i in range(0 if listed is None else len(listed.data) // 8):
            protocol = self._protocol(self._pointer(listed.address + 8 * i))
            found[protocol.name] = protocol
        return found

    # ---- memory ----

    def _bytes(self, address: int, nbytes: int | None = None) -> bytes:
        for section in self.sections:
            if section.address <= address < section.address + len(section.data):
                start = address - section.address
                return section.data[start:] if nbytes is None else section.data[start : start + nbytes]
        raise ValueError(f"no section holds {address:#x}")

    def _pointer(self, address: int) -> int:
        if address in self.pointers:
            return self.pointers[address]
        (value,) = struct.unpack("<Q", self._bytes(address, 8))
        return value

    def _string(self, address: int) -> str:
        return text(self._bytes(address))

    def _list(self, address: int) -> list[tuple[int, ...]]:
        """method_list_t and property_list_t: entry size, count, entries of pointers."""
        if address == 0:
            return []
        size, count = struct.unpack("<2I", self._bytes(address, 8))
        if size & 0x80000000:  # entries of three distances: to a reference to the selector, to the types
            return [self._near_method(address + 8 + 12 * i) for i in range(count)]
        size &= 0xFFFC
        return [tuple(self._pointer(address + 8 + size * i + 8 * k) for k in range(size // 8)) for i in range(count)]

    def _near_method(self, address: int) -> tuple[int, int, int]:
        name, types, _ = struct.unpack("<3i", self._bytes(address, 12))
        return self._pointer(address + name), address + 4 + types, 0

    def _protocol(self, address: int) -> Protocol:
        _, name, adopts, *lists = (self._pointer(address + 8 * i) for i in range(8))
        protocol = Protocol(self._string(name), [])
        if adopts:
            count = self._pointer(adopts)
            for i in range(count):
                other = self._pointer(adopts + 8 + 8 * i)
                protocol.adopts.append(self._string(self._pointer(other + 8)))
        (size,) = struct.unpack("<I", self._bytes(address + 64, 4))
        long_types = self._pointer(address + 72) if size >= 80 else 0
        kinds = zip(lists[:4], ("-", "+", "-", "+"), (False, False, True, True), strict=True)
        for methods, sign, is_optional in kinds:
            for selector, types, _ in self._list(methods):
                key = sign + self._string(selector)
                protocol.methods[key] = strip_offsets(self._string(types))
                if is_optional:
                    protocol.optional.add(key)
                if long_types:
                    protocol.long_types[key] = strip_offsets(self._string(self._pointer(long_types)))
                    long_types += 8
        for prop_name, attributes in self._list(lists[4]):
            protocol.properties[self._string(prop_name)] = self._string(attributes)
        return protocol


def made_addresses(words: tuple[int, ...], address: int) -> Iterator[int]:
    """SPEC Arm ARM, C6.2: ADRP gives a page, ADD (immediate) a place in it."""
    pages = {}
    for i, word in enumerate(words):
        if word & 0x9F000000 == 0x90000000:
            distance = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
            distance -= distance >> 20 << 21  # its sign
            pages[word & 31] = (address + 4 * i & ~0xFFF) + (distance << 12)
        elif word & 0xFFC00000 == 0x91000000 and word >> 5 & 31 in pages:
            yield pages[word >> 5 & 31] + (word >> 10 & 0xFFF)


def text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode()


def strip_offsets(types: str) -> str:
    """Without the places of the arguments: "v24@0:8Q16" is "v@:Q".  Names and struct bodies stay."""
    out, quoted, depth = [], False, 0
    for c in types:
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "{<(":
            depth += 1
        elif not quoted and c in "}>)":
            depth -= 1
        if quoted or depth or not c.isdigit():
            out.append(c)
    return "".join(out)
