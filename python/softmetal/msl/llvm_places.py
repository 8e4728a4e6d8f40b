"""Which line of the user's source each instruction of LLVM's text is from."""

from __future__ import annotations

import re

from metal_dlpack.language.diagnostics import is_ours


def find_places(nodes: dict[str, str]) -> tuple[dict[str, tuple[str, int, int]], dict[str, tuple[str, str]]]:
    """The places of the user's; and by place in the library: the user's line that it is inlined at, and its file."""
    places: dict[str, tuple[str, int, int]] = {}
    library: dict[str, tuple[str, str]] = {}
    for number, node in nodes.items():
        if not node.startswith("!DILocation("):
            continue
        place = _place_of(node, nodes)
        if not is_ours(place[0]):
            places[number] = place
        else:
            at = _user_of(number, nodes)
            if at is not None:
                library[number] = at, place[0].rpartition("/")[2]
    return places, library


def _place_of(node: str, nodes: dict[str, str]) -> tuple[str, int, int]:
    """(file, line, column) of a place in a source; a file that is not known is nobody's."""
    scope = nodes.get(_number(node, "scope"), "")
    found = re.search(r'filename: "([^"]*)"', nodes.get(_number(scope, "file"), ""))
    escaped = found[1].encode() if found else b"<built-in>"
    name = re.sub(rb"\\([0-9A-F]{2})", lambda code: bytes([int(code[1], 16)]), escaped).decode(errors="replace")
    line, column = re.search(r"line: (\d+)", node), re.search(r"column: (\d+)", node)
    return name, int(line[1]) if line else 0, int(column[1]) if column else 0


def _user_of(number: str, nodes: dict[str, str]) -> str | None:
    """The user's line where this library call was inlined; None for run-time code."""
    while number:
        node = nodes[number]
        if not is_ours(_place_of(node, nodes)[0]):
            return number
        number = _number(node, "inlinedAt")
    return None


def _number(node: str, name: str) -> str:
    found = re.search(rf"\b{name}: !(\d+)", node)
    return found[1] if found else ""
