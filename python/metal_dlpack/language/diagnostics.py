"""Clang's words about a translated kernel, told of the user's own source in the form of Metal's compiler.

What clang compiles is not what the user wrote: types have other names, spaces of addresses are gone, and functions of
Metal are templates of the shim.  Here each error moves to the user's line, shows that line as it was written, and names
types as Metal does.
"""

from __future__ import annotations

import difflib
import functools
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from . import OURS
from .errors import PROGRAM, SourceError
from .scalars import CLANGS
from .tokens import Tokens, numbered

#: Lines by their file and number, as the user wrote them.
Lines = Mapping[tuple[str, int], str]

#: What clang calls text that is in no file; no source may have such a name (kernel_source.py).
_NO_FILES = {"-", "<stdin>", "<built-in>", "<command line>", "<scratch space>"}

_HEADER = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?P<kind>(?:fatal )?error|warning|note): (?P<text>.*)$"
)
_STACK = re.compile(r"^(?:In file included|\s+) from (?P<file>.+?):(?P<line>\d+)(?::(?P<column>\d+))?[:,]$")
_COUNT = re.compile(r"^\d+ (?:errors?|warnings?)(?: and \d+ (?:errors?|warnings?))? generated\.$")
_TOKEN = re.compile(r"\w+|\s+|.")
#: The limit for what differs in a line: aligning takes time by the square.
_MOST_ALIGNED = 500

_SCALAR = re.compile(r"\b(unsigned long long|long long|unsigned (?:char|short|int|long)|signed char|_Float16|__bf16)\b")
_NAMESPACE = re.compile(r"\b(?:::)?(?:metal|softmetal)::(?:\w*detail::)?")
_VECTOR = re.compile(r"\b(packed_)?vec<(\w+), ([234])>")
_MATRIX = re.compile(r"\bmatrix<(\w+), ([234]), ([234])>")
#: What clang says before the sentence of a static_assert of the shim's.
_ASSERTED = re.compile(r"^static assertion failed due to requirement '.*?': ")
#: What clang notes at a line that led to the error.
_LEADS = re.compile(r"requested here|in instantiation|expanded from")
_ALSO = re.compile(r"'([^']*)' \(aka '\1'\)")


@dataclass(frozen=True)
class Place:
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Diagnostic:
    place: Place
    kind: str
    text: str
    snippet: list[str]  # the line, the caret
    included_from: tuple[Place, ...]  # innermost first


def clean(output: str, lines: Lines | None = None) -> str:
    """Return the errors of clang's output, and the notes that belong to them, in the form of Metal's compiler.

    An error that has no line of the user at all is placed in the first.
    lines: the user's lines as they were written; without them a line is shown as clang shows it.
    """
    shown = []
    for error, notes in errors_of(output):
        at_user, rest = _moved_to_user(error, notes)
        shown += [_form(diagnostic, lines or {}) for diagnostic in [at_user, *rest]]
    return "".join(dict.fromkeys(shown))


@functools.lru_cache(maxsize=16)
def lines_of_source(text: str) -> Lines:
    """Number the lines of a source as the compiler does: `#line` renames and renumbers what follows."""
    lines: dict[tuple[str, int], str] = {}
    for file, number, line, _ in sorted(numbered(text, PROGRAM), key=operator.itemgetter(3)):  # directives last
        lines.setdefault((file, number), line.removesuffix("\r"))
    return lines


def metal_names(text: str) -> str:
    """Spell types as Metal does: `_Float16` is half, `metal::vec<float, 4>` is float4."""
    if text == "unknown type name '__global__'":
        return f"{text}; Metal writes `kernel void f(device float *x, uint i [[thread_position_in_grid]])`"
    text, hint, name = text.partition("; did you mean '")
    if hint and (found := _NAMESPACE.match(name)) and found[0] == "metal::":  # the namespace is what is missing
        return f"{metal_names(text)}{hint}{name} Or begin the source with `using namespace metal;`."
    if hint:
        return metal_names(text) + hint + metal_names(name)
    text = _NAMESPACE.sub("", text)
    text = _SCALAR.sub(lambda found: CLANGS[found[0]], text)
    text = _VECTOR.sub(lambda found: f"{found[1] or ''}{found[2]}{found[3]}", text)
    text = _MATRIX.sub(r"\1\2x\3", text)
    return _ALSO.sub(r"'\1'", text)


def is_ours(file: str) -> bool:
    """True for what the user did not write: the shim, by its full path, and what the compiler added."""
    return file.startswith(OURS) or file in _NO_FILES


def _parse(output: str) -> Iterator[Diagnostic]:
    """Diagnostics whose snippets are read with the lines that follow."""
    stack: list[Place] = []
    snippet: list[str] = []  # of nothing, until there is a header
    for line in output.removesuffix("\n").split("\n"):
        header, from_where = _HEADER.match(line), _STACK.match(line)
        if not (header or from_where or _COUNT.match(line)):
            snippet.append(line)
            continue
        snippet = []
        if from_where:
            stack.append(Place(from_where["file"], int(from_where["line"]), int(from_where["column"] or 1)))
        elif header:
            place = Place(header["file"], int(header["line"]), int(header["column"]))
            yield Diagnostic(place, header["kind"], header["text"], snippet, tuple(stack))
            stack = []


def errors_of(output: str) -> list[tuple[Diagnostic, list[Diagnostic]]]:
    """Each error of clang's output with its notes; warnings and theirs are left out."""
    errors: list[tuple[Diagnostic, list[Diagnostic]]] = []
    notes: list[Diagnostic] = []
    for diagnostic in _parse(output):
        if diagnostic.kind == "note":
            notes.append(diagnostic)
            continue
        notes = []
        if diagnostic.kind.endswith("error"):
            errors.append((diagnostic, notes))
    return errors


def _moved_to_user(error: Diagnostic, notes: list[Diagnostic]) -> tuple[Diagnostic, list[Diagnostic]]:
    """An error in the shim belongs to the user's line that led there; notes about the shim help nobody."""
    notes = [note for note in notes if not is_ours(note.place.file)]
    if not is_ours(error.place.file):
        return error, notes
    error = replace(error, text=_ASSERTED.sub("", error.text))
    for place in error.included_from:
        if not is_ours(place.file):
            return replace(error, place=place, snippet=[]), notes
    if not notes:
        return replace(error, place=Place(PROGRAM, 1, 1), snippet=[]), []
    led = next((note for note in notes if _LEADS.search(note.text)), notes[0])
    return replace(error, place=led.place, snippet=led.snippet), [note for note in notes if note is not led]


def _form(diagnostic: Diagnostic, lines: Lines) -> str:
    place, column = diagnostic.place, diagnostic.place.column
    shown = diagnostic.snippet[0] if diagnostic.snippet else None
    written = lines.get((place.file, place.line))
    if written is not None:
        column = column_in(written, shown, column)
        shown = written
    kind = "error" if diagnostic.kind == "fatal error" else diagnostic.kind
    head = f"{place.file}:{place.line}:{column}: {kind}: {metal_names(diagnostic.text)}\n"
    return head if shown is None else f"{head}{shown}\n{caret_under(shown, column)}\n"


def caret_under(line: str, column: int) -> str:
    """A caret below this column; tabs stay tabs, so that it stands right at any width."""
    before = line.encode()[: column - 1].decode(errors="ignore")
    return "".join("\t" if letter == "\t" else " " for letter in before) + "^"


def column_in(written: str, translated: str | None, column: int) -> int:
    """Where the token that stands at a column of the translated line stands in the line as it was written."""
    if translated is None:
        return min(column, len(written.encode()) + 1)
    if translated == written:
        return column
    theirs, own = _tokens(translated), _tokens(written)
    at = sum(start < column for start, _ in theirs) - 1
    if at < 0 or not own:
        return len(written.encode()) - len(written.lstrip().encode()) + 1
    partner, is_same = _partner([token for _, token in theirs], [token for _, token in own], at)
    start, token = theirs[at]  # within the token, or just after it: there a semicolon is missed
    return own[partner][0] + (min(column - start, len(token.encode()) + 1) if is_same else 1)


def _partner(theirs: list[str], own: list[str], at: int) -> tuple[int, bool]:
    """The same token in the line as it was written, or the one that stands there instead, as the name of a macro."""
    begin = _alike(theirs, own)
    if at < begin:
        return at, True
    end = _alike(theirs[begin:][::-1], own[begin:][::-1])
    if at >= len(theirs) - end:
        return at - len(theirs) + len(own), True
    changed, written = theirs[begin : len(theirs) - end], own[begin : len(own) - end]
    behind = begin
    if max(len(changed), len(written)) <= _MOST_ALIGNED:
        for block in difflib.SequenceMatcher(None, changed, written, autojunk=False).get_matching_blocks():
            if block.a <= at - begin < block.a + block.size:
                return begin + block.b + at - begin - block.a, True
            if block.a <= at - begin and block.size:
                behind = begin + block.b + block.size
    return min(behind, len(own) - 1), False


def _alike(one: list[str], other: list[str]) -> int:
    """How many tokens at the beginning are the same."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _tokens(line: str) -> list[tuple[int, str]]:
    """Each token that is no space, with the byte where it begins."""
    tokens, start = [], 0
    for token in _TOKEN.findall(line):
        if not token.isspace():
            tokens.append((start, token))
        start += len(token.encode())
    return tokens


def source_error(tokens: Tokens, at: int, text: str) -> SourceError:
    """The translator's own error about the word at `at`, in the form of Metal's compiler."""
    file, line, column = tokens.place(at)
    shown = tokens.line(at)
    return SourceError(f"{file}:{line}:{column}: error: {text}\n{shown}\n{caret_under(shown, column)}\n")


def of_the_user(error: SourceError, source: str) -> SourceError:
    """The same with the line as the user wrote it, and the column there."""
    return SourceError(clean(str(error), lines_of_source(source)))
