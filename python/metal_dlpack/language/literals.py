"""Where in a program's Python source a kernel's text stands as a literal.

A kernel's text is compared line by line with the lines that string literals cover, without indentation, quotation
marks and escapes.  So it is found behind textwrap.dedent, in the fixed parts of an f-string, and in pieces that are
joined; ast says which lines are of literals, and values are never computed.  A line with a
filled-in value gets its number from its neighbours.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import glob
import itertools
import linecache
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from . import OURS

#: The file, and a line for each line of the text; 0: not known.
Lines = tuple[str, tuple[int, ...]]

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
#: Less than that says nothing: `}`, `else {`.
_SHORTEST = 5
#: The least share of a text's letters that must be found: with less it is another text with some lines alike.
_LEAST_SHARE = 0.5

_OPENING = re.compile(r"""^(?:\(\s*)*[A-Za-z]{0,2}(?:\"{3}|'{3}|"|')""")
_CLOSING = re.compile(r"""(?:\\n)?(?:\"{3}|'{3}|"|')[\s),+%]*(?:\.\w+\(.*)?(?:#.*)?$""")


def source_of(text: str) -> tuple[str, int] | None:
    """(file, line) of the literal that a kernel's text comes from: the place of the text's first line.

    The modules whose functions are being called are read first, then those of the same packages, then all others, what
    is installed last; Python's own library is not.  None: no literal has these lines, as of a text that is generated or
    read from a file, or there is no source, as of a .pyc alone.  Read once for the same text; any thread.
    """
    found = lines_of(text)
    return None if found is None else (found[0], found[1][0])


def with_lines(text: str) -> str:
    """The text with `#line` in front and wherever the numbering jumps, so that a compiler says the user's own lines.

    Unchanged if no literal is found, and of a cell of a notebook: its file has another name in each process, which a
    cache of compiled texts would take for another text.  The text must begin at the beginning of a line.
    """
    found = lines_of(text)
    if found is None or found[0] in cells_of_a_notebook():
        return text
    file, numbers = found
    shown = file.replace("\\", "\\\\").replace('"', '\\"')
    pieces, expected, is_continued = [], 0, False
    for line, number in zip(text.split("\n"), numbers, strict=True):
        if number != expected and not is_continued:
            pieces.append(f'#line {number} "{shown}"\n')
            expected = number
        is_continued = line.endswith("\\")
        pieces.append(line + "\n")
        expected += 1
    return "".join(pieces)[:-1]


def lines_of(text: str) -> Lines | None:
    """The file and the line there of each line of the text."""
    return _search(text, next(iter(cells_of_a_notebook().values()), ""))  # a later cell may have it too


def surely_lines_of(text: str) -> Lines | None:
    """As lines_of(), where nothing else can be meant: one literal is all of the text, line by line as it is written.

    Only the files whose functions are being called are read, as they are now.
    """
    keys = [_key(line) for line in text.split("\n")]
    found = []
    for name, globals_of in next(_candidates()):
        linecache.checkcache(name)
        found += [(name, lines) for lines in _as_written(keys, _source(name, globals_of, _wanted(keys)))]
    return found[0] if len(found) == 1 else None


def _wanted(keys: list[str]) -> set[str]:
    """A file that has the text has one of these as it is, unless escapes or fillings hide all."""
    telling = [key for key in keys if len(key) >= _SHORTEST]
    wanted = {max(telling, key=len, default=""), *telling[:3], *telling[-3:]} - {""}
    # What a program fills in is mostly at one end of a line.
    for key in sorted(telling, key=len)[-3:]:
        wanted |= {half for half in (key[: len(key) // 2], key[len(key) // 2 :]) if len(half) >= 2 * _SHORTEST}
    return wanted


@functools.lru_cache(maxsize=1024)
def _search(text: str, _last_cell: str) -> Lines | None:
    keys = [_key(line) for line in text.split("\n")]
    wanted = _wanted(keys)
    if not wanted:
        return None
    least = _LEAST_SHARE * sum(len(key) for key in keys if len(key) >= _SHORTEST)
    best: tuple[int, str, tuple[int, ...]] = (0, "", ())
    for files in _candidates():
        for name, globals_of in files:
            weight, numbers = _compare(keys, _source(name, globals_of, wanted))
            if weight > best[0]:
                best = (weight, name, numbers)
        if best[0] >= least:
            return best[1], best[2]
    return None


# ---- files of Metal ----


def metal_file(text: str) -> Lines | None:
    """The .metal file that has this text, beside the program's modules or in the working folder, and its lines."""
    file = _files_by_text(int(time.monotonic())).get(hash(text.rstrip("\n")))
    return None if file is None else (file, tuple(range(1, text.count("\n") + 2)))


_MOST_FILES = 4096
_MOST_LETTERS = 4 << 20  # of one


def _metal_files() -> Iterator[str]:
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    beside = [os.path.dirname(file) for file in modules if isinstance(file, str) and not _is_pythons(file)]
    patterns = ("*.metal", os.path.join("*", "*.metal"), "*.h", os.path.join("*", "*.h"))
    found = (
        file
        for folder in dict.fromkeys([began_in(), *beside])
        for pattern in patterns
        for file in glob.iglob(os.path.join(glob.escape(folder), pattern))
    )
    return itertools.islice(found, _MOST_FILES)


@functools.lru_cache(maxsize=1)
def _files_by_text(_second: int) -> dict[int, str]:
    """The first file of each text, by its hash: a report of a thousand kernels does not read each file so often."""
    found: dict[int, str] = {}
    for file in _metal_files():
        with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace", newline=None) as opened:
            found.setdefault(hash(opened.read(_MOST_LETTERS).rstrip("\n")), file)
    return found


# ---- which files ----

_began_in = ""
_script: str | None = None


def begin() -> None:
    """Remember the working folder, which a program can leave, and its script, which Python forgets at its end."""
    global _began_in, _script
    _began_in = os.getcwd()
    _script = getattr(sys.modules.get("__main__"), "__file__", None)


def began_in() -> str:
    """The working folder when the program began, where that is known."""
    return _began_in or os.getcwd()


def cells_of_a_notebook() -> dict[str, str]:
    """What IPython calls its cells, "In [3]", by the file that each is compiled as; the last one first."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})  # its tracebacks say "Cell In[3]" by this
    last_first = sorted(numbers.items(), key=lambda one: -one[1])
    return {file: f"In [{number}]" for file, number in last_first}


def _candidates() -> Iterator[list[tuple[str, dict[str, Any] | None]]]:
    """Groups of files, the likeliest first, each file once."""
    seen: set[str] = set()

    def fresh(files: Iterable[tuple[str, dict[str, Any] | None]]) -> list[tuple[str, dict[str, Any] | None]]:
        kept = []
        for given, globals_of in files:
            name = given if given.startswith("<") else os.path.join(_began_in, given)
            if name not in seen and not _is_ours(name):
                seen.add(name)
                kept.append((name, globals_of))
        return kept

    frames = list(_frames())
    yield fresh((frame.f_code.co_filename, frame.f_globals) for frame in frames)
    yield fresh((file, None) for file in cells_of_a_notebook())
    packages = {str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in frames}
    modules = [(name, module.__dict__) for name, module in list(sys.modules.items()) if hasattr(module, "__dict__")]
    near = (values for name, values in modules if name.partition(".")[0] in packages)
    yield fresh((file, values) for values in near if isinstance(file := values.get("__file__"), str))
    files = [(file, values) for _, values in modules if isinstance(file := values.get("__file__"), str)]
    script = [(_script, None)] if _script else []
    others = [(file, values) for file, values in [*script, *files] if not _is_pythons(file)]
    for is_installed in (False, True):  # thousands, of which none is read if the program's own have the text
        yield fresh(one for one in others if ("site-packages" in one[0]) == is_installed)


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if not _is_pythons(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def _is_ours(file: str) -> bool:
    return file.startswith(OURS) or (not file.endswith((".py", ">")) and not os.path.exists(file))


def _is_pythons(file: str) -> bool:
    return file.startswith("<frozen") or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)


def _source(name: str, globals_of: dict[str, Any] | None, wanted: set[str]) -> str:
    """What linecache has, if one of the wanted texts stands there as it is; else "".  Escapes can hide it.

    Files that are only looked at are not kept: a program has thousands.
    """
    if name not in linecache.cache and os.path.isfile(name):
        try:
            with open(name, "rb") as file:
                content = file.read()
        except OSError:
            return ""
        if not any(text.encode(errors="replace") in content for text in wanted):
            return ""
    source = "".join(linecache.getlines(name, globals_of))
    return source if any(text in source for text in wanted) else ""


# ---- one file ----


def _compare(keys: list[str], source: str) -> tuple[int, tuple[int, ...]]:
    """How much of a text stands in the literals of a file, in letters, and the line of each of the text's lines.

    A literal that is the whole text is worth more than any in which its lines stand among others.
    """
    filled = [at for at, key in enumerate(keys) if key]
    whole = next(iter(_values(source).get("\n".join(keys).strip(), ())), None) if filled else None
    if whole is not None and len(whole) in {1, filled[-1] - filled[0] + 1}:
        numbers = [whole[0] + (at - filled[0]) * (len(whole) > 1) for at in range(len(keys))]
        return 1 + sum(map(len, keys)), tuple(max(number, 1) for number in numbers)
    places = _places({key for key in keys if len(key) >= _SHORTEST}, source, whole)
    distances: Counter[int] = Counter()
    for at, key in enumerate(keys):
        for number, letters in places.get(key, {}).items():
            distances[number - at] += letters
    if not distances:
        return 0, ()
    ranked = [distance for distance, _ in distances.most_common(64)]
    numbers = []
    found = 0
    current = ranked[0]
    for at, key in enumerate(keys):
        there = places.get(key, {})
        if there and at + current not in there:
            # Where the text goes on elsewhere: at the literal that most of it comes from, or at the next best.
            current = next((one for one in ranked if at + one in there), current)
        found += there.get(at + current, 0)
        numbers.append(max(at + current, 1))
    return found + (whole is not None), _without_strays(keys, numbers, places)


def _as_written(keys: list[str], source: str) -> Iterator[tuple[int, ...]]:
    """For each literal of a file that is the whole text, and each way to lay its lines there, the lines."""
    filled = [at for at, key in enumerate(keys) if key]
    there = frozenset(_literal_lines(source))
    for whole in _values(source).get("\n".join(keys).strip(), ()):
        for first in whole if filled else ():
            step = int(len(whole) > 1)
            numbers = tuple(max(first + (at - filled[0]) * step, 1) for at in range(len(keys)))
            if all((keys[at], numbers[at]) in there for at in filled):
                yield numbers


def _places(keys: set[str], source: str, within: range | None) -> dict[str, dict[int, int]]:
    """For each key, at which lines of a file a literal has it, and how many of its letters stand there."""
    places: dict[str, dict[int, int]] = defaultdict(dict)
    with_holes = []
    for key, number in _literal_lines(source):
        if within is not None and number not in within:
            continue
        if key in keys:
            places[key][number] = len(key)
        elif (found := _with_holes(key)) is not None:
            with_holes.append((*found, number))
    for key in keys:
        for pattern, letters, number in with_holes:
            if number not in places[key] and pattern.fullmatch(key):
                places[key][number] = letters
    return places


#: What a program fills in: of an f-string and str.format, of %, of string.Template.
_HOLE = re.compile(r"\{[^{}]*\}|%\(\w+\)[sdrf]|%[sdrf]|\$\{?\w+\}?")


def _with_holes(key: str) -> tuple[re.Pattern[str], int] | None:
    """What a line of a literal can become, and how many letters of it stand; None: it has no holes, or little else."""
    parts = [part.strip() for part in _HOLE.split(key)]
    letters = len("".join(parts))
    if len(parts) == 1 or letters < _SHORTEST:
        return None
    return re.compile(r"\s*.*?\s*".join(map(re.escape, parts))), letters


def _without_strays(keys: list[str], numbers: list[int], places: dict[str, dict[int, int]]) -> tuple[int, ...]:
    """Lines before the first that is known lie before it: a text often begins with an empty line."""
    first = next(at for at, key in enumerate(keys) if numbers[at] in places.get(key, {}))
    for at in range(first):
        numbers[at] = max(numbers[first] - (first - at), 1)
    return tuple(numbers)


@functools.lru_cache(maxsize=64)
def _literals(source: str) -> tuple[ast.Constant | ast.JoinedStr, ...]:
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        node
        for node in nodes
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    )


def _lines_of_literal(node: ast.Constant | ast.JoinedStr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


@functools.lru_cache(maxsize=64)
def _values(source: str) -> dict[str, list[range]]:
    """The lines of the literals with each value, without indentation and the empty lines around it."""
    values: dict[str, list[range]] = defaultdict(list)
    for node in _literals(source):
        if isinstance(node, ast.Constant):
            keys = [_key(line) for line in str(node.value).split("\n")]
            filled = [at for at, key in enumerate(keys) if key]
            lines = _lines_of_literal(node)
            is_as_written = filled and len(lines) == len(keys)
            kept = lines[filled[0] : filled[-1] + 1] if is_as_written else lines
            values["\n".join(keys).strip()].append(kept)
    return values


@functools.lru_cache(maxsize=64)
def _literal_lines(source: str) -> tuple[tuple[str, int], ...]:
    """(what it holds, its number) of each line that a string literal covers; of one with `\\n` inside, each piece."""
    lines = source.split("\n")
    numbers = {number for node in _literals(source) for number in _lines_of_literal(node)}
    return tuple(
        (_key(piece), number)
        for number in sorted(numbers)
        if number <= len(lines)
        for piece in _pieces(lines[number - 1])
    )


def _pieces(line: str) -> list[str]:
    """What a line of Python may hold of a text: all of it, or what stands in quotation marks, line by line."""
    whole = line = line.strip()
    opened = re.search(r"""(?:^|[=(,+\s])[A-Za-z]{0,2}(\"{3}|'{3}|"|')""", line)
    if opened and opened.end() < len(line):
        line = line[opened.start() :].lstrip("=(,+ \t")
    line = _OPENING.sub("", line, count=1)
    line = _CLOSING.sub("", line, count=1)
    return list(dict.fromkeys([whole, *line.split("\\n")]))


def _key(line: str) -> str:
    """What is the same in a text and in the literal it comes from."""
    return re.sub(r"\\(.)", r"\1", line.strip()).replace("{{", "{").replace("}}", "}").strip().rstrip("\\").rstrip()
