"""Where the pointers of a function in LLVM's text come from."""

from __future__ import annotations

import re
from collections import Counter

from metal_dlpack.language.tokens import split

from .llvm_layout import Layout

NAME = r'(?:%|@)(?:[-\w.$]+|"[^"]*")'
VALUE = re.compile(r'%(?:[-\w.$]+|"[^"]*")')
LOAD = re.compile(rf"  ({NAME}) = load (?P<atomic>atomic )?(?:volatile )?(?P<rest>.*)")
_GEP = re.compile(rf"  ({NAME}) = getelementptr (?:inbounds |nuw |nusw |inrange\(\S+\) )*(?P<rest>.*)")
DBG = re.compile(r", !dbg !(\d+)")


class Values:
    """Where the pointers of a function come from."""

    def __init__(self, body: list[str], layout: Layout):
        self._allocas: set[str] = set()
        self._geps: dict[str, tuple[str, int | None]] = {}
        self._loaded_from: dict[str, str] = {}
        self._stored: dict[str, list[str]] = {}
        self._remembered: dict[str, bool] = {}
        uses: Counter[str] = Counter()
        known: Counter[str] = Counter()
        for line in body:
            uses.update(VALUE.findall(line))
            if " = alloca " in line:
                name = line.split(" = ", 1)[0].strip()
                self._allocas.add(name)
                known[name] += 1
            elif line.startswith("  store ptr "):
                value, address, *_ = split(line.removeprefix("  store "))
                self._stored.setdefault(address_of(address), []).append(value.removeprefix("ptr "))
                known[address_of(address)] += 1
            elif (found := LOAD.match(line)) is not None and found["rest"].startswith("ptr, "):
                address = address_of(split(found["rest"])[1])
                self._loaded_from[found[1]] = address
                known[address] += 1
            elif (found := _GEP.match(line)) is not None:
                kind, base, *indices = split(DBG.sub("", found["rest"]))
                self._geps[found[1]] = address_of(base), layout.offset(kind, indices)
        #: Variables that hold a pointer, and that nothing but these loads and stores reaches.
        self._plain = {name for name in self._allocas if uses[name] == known[name]}

    def is_local(self, value: str) -> bool:
        """Does the text show that it points to a variable of the thread's own?"""
        if value not in self._remembered:
            self._remembered[value] = True  # of a pointer that moves along itself
            self._remembered[value] = self._is_local(value)
        return self._remembered[value]

    def _is_local(self, value: str) -> bool:
        if value in self._allocas:
            return True
        if value in self._geps:
            return self.is_local(self._geps[value][0])
        holder = self._loaded_from.get(value)
        if holder in self._plain and holder in self._stored:
            return all(self.is_local(one) for one in self._stored[holder])
        return False

    def root(self, value: str) -> tuple[str, int]:
        """The value that it is a constant number of bytes after."""
        low = 0
        while True:
            holder = self._loaded_from.get(value, "")
            if value in self._geps and self._geps[value][1] is not None:
                value, more = self._geps[value]
                assert more is not None
                low += more
            elif holder in self._plain and len(self._stored.get(holder, ())) == 1:
                value = self._stored[holder][0]
            else:
                return value, low


def address_of(operand: str) -> str:
    """Of `ptr %9`, or of `ptr %9 seq_cst`."""
    return operand.removeprefix("ptr ").partition(" ")[0] if operand.startswith("ptr %") else operand
