"""How many bytes LLVM's types take, and where their members lie."""

from __future__ import annotations

import re

from metal_dlpack.language.errors import CompilerError
from metal_dlpack.language.tokens import split

from .checked_code import BITS

_SIZES = {name: bits // 8 for name, bits in BITS.items()}


class Layout:
    """`named` are the types that the text declares."""

    def __init__(self, named: dict[str, str]):
        self._named = named

    def size(self, kind: str) -> int:
        return self._layout(kind)[0]

    def stride(self, kind: str) -> int:
        """How far apart two of an array lie."""
        nbytes, alignment = self._layout(kind)
        return -(-nbytes // alignment) * alignment

    def _layout(self, kind: str) -> tuple[int, int]:
        """Bytes, and the alignment."""
        if kind in _SIZES:
            return _SIZES[kind], _SIZES[kind]
        if kind in self._named:
            return self._layout(self._named[kind])
        if (found := re.fullmatch(r"i(\d+)", kind)) is not None:
            nbytes = 1 << max(0, (int(found[1]) + 7) // 8 - 1).bit_length()
            return nbytes, nbytes
        if (found := re.fullmatch(r"<(\d+) x (.*)>", kind)) is not None:
            nbytes = int(found[1]) * self.size(found[2])
            return nbytes, 1 << (nbytes - 1).bit_length()
        if (found := re.fullmatch(r"\[(\d+) x (.*)\]", kind)) is not None:
            nbytes, alignment = self._layout(found[2])
            return int(found[1]) * nbytes, alignment
        members = self._members(kind)
        if members is None:
            raise CompilerError(f"LLVM writes a type that is not known: {kind}")
        *_, (end, alignment) = self._offsets(kind, members)
        return end, alignment

    def _members(self, kind: str) -> list[str] | None:
        kind = self._named.get(kind, kind)
        if kind[:1] == "{" or kind[:2] == "<{":
            return split(kind.strip("<>")[1:-1])
        return None

    def _offsets(self, kind: str, members: list[str]) -> list[tuple[int, int]]:
        """(offset, alignment) of each member, and (bytes, alignment) of the whole."""
        is_packed = self._named.get(kind, kind).startswith("<{")
        at, most, found = 0, 1, []
        for member in members:
            nbytes, alignment = self._layout(member)
            alignment = 1 if is_packed else alignment
            at = -(-at // alignment) * alignment
            found.append((at, alignment))
            at, most = at + nbytes, max(most, alignment)
        return [*found, (-(-at // most) * most, most)]

    def offset(self, kind: str, indices: list[str]) -> int | None:
        """Bytes that constant indices of a getelementptr lead away; None: they are not constant."""
        numbers = [index.split()[-1] for index in indices]
        if not all(re.fullmatch(r"-?\d+", number) for number in numbers):
            return None
        total = int(numbers[0]) * self.size(kind)
        for number in map(int, numbers[1:]):
            members = self._members(kind)
            if members is not None:
                total += self._offsets(kind, members)[number][0]
                kind = members[number]
            else:
                inner = re.fullmatch(r"[<\[]\d+ x (.*)[>\]]", self._named.get(kind, kind))
                if inner is None:
                    return None
                kind = inner[1]
                total += number * self.size(kind)
        return total
