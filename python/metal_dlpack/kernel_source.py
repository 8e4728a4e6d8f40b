"""What is done to Metal source before any compiler reads it: its name, its macros, the files that it includes.

Metal compiles one text and opens no files but its own, so that `#include "file"` and `#include <file>` are expanded
here, and the same on both systems.  What no folder of include= has between angle brackets is left to the compiler.  No
`#if` is evaluated: the text of a file goes where its line was, between two `#line`, and a file that cannot be found
or read becomes an `#error`, which the compiler raises only if it comes there.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .language.no_code import COMMENT, RAW_TEXT, TEXT

DEFAULT_NAME = "program_source"
#: Clang's own, under which a source would not be known as the user's.
_TAKEN_NAMES = {"", "-", "<stdin>", "<built-in>", "<command line>", "<scratch space>"}


def compose(source: str, options: tuple[Any, Any, Any, str]) -> str:
    """The text for the compiler; `options` are name, defines and include, each None where it was not given, and math.

    Warns of what fast math may answer wrongly.
    """
    name, defines, include, math = options
    if name is not None and not isinstance(name, str):
        raise TypeError(f"Library: name must be a str, not {type(name).__name__}.")
    shown = DEFAULT_NAME if name is None else name
    if '"' in shown or "\\" in shown or not shown.isprintable():
        what = repr(shown[:80])
        raise ValueError(
            f"Library: name {what} has quotes, backslashes or control characters, which errors cannot show; "
            "give one without, such as 'sum.metal'."
        )
    if shown in _TAKEN_NAMES:
        raise ValueError(f"Library: name {shown!r} is no name that compilers show in errors; give another one.")
    if source.strip().endswith(".metal") and len(source.splitlines()) == 1:
        raise ValueError(
            f"Library: the source ({source.strip()!r}) is the path of a file, and Metal compiles text; "
            f"give pathlib.Path({source.strip()!r}).read_text()."
        )
    macros = "".join(_define(key, value) for key, value in _items(defines))
    text = Expansion(_folders(include)).expand(source, shown)
    if math == "fast":
        _warn_of_fast_math(text, shown)
    return text if not macros and shown == DEFAULT_NAME else f'{macros}#line 1 "{shown}"\n{text}'


# ---- math="fast" ----

#: What asks for NaN and infinity.
_NOT_FINITE = re.compile(
    r"""(?<![\w.])
        (?: (?P<question> isnan | isinf | isfinite | isnormal | isordered | isunordered)\s*+\(
          | (?P<value> INFINITY | NAN | HUGE_VAL[FH] | infinity | quiet_NaN | signaling_NaN)\b )""",
    re.VERBOSE,
)
#: Letters before a name in which the word before it is looked for.
_MOST_BEFORE = 200
#: Behind any other word a name with parentheses is declared, not called.
_BEFORE_A_CALL = {"", "return", "else", "do", "case", "and", "or", "not"}
_MOST_PLACES = 4


def _warn_of_fast_math(text: str, name: str) -> None:
    """RuntimeWarning of the user's line that made the library, if the source asks for NaN or infinity."""
    places = list(dict.fromkeys(_not_finite(text, name)))
    if not places:
        return
    more = len(places) - _MOST_PLACES
    shown = ", ".join(places[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")
    warnings.warn(
        f"Library: with math='fast' Metal may take NaN and infinity for impossible, and the source asks for them "
        f"({shown}): a Mac may answer otherwise than the software Metal. Give math='safe', the default, or 'relaxed'.",
        RuntimeWarning,
        stacklevel=3,
    )


def _not_finite(text: str, name: str) -> Iterator[str]:
    from .language.signatures import without_comments  # both for this warning alone
    from .language.tokens import numbered

    for file, number, line, is_directive in numbered(without_comments(text), name):
        for found in () if is_directive else _NOT_FINITE.finditer(line):
            if found["value"] or _word_before(line, found.start()) in _BEFORE_A_CALL:
                yield f"{found['question'] or found['value']} in {file}:{number}"


def _word_before(line: str, at: int) -> str:
    """The word before a name and what qualifies it; "" where something else stands there."""
    before = line[max(at - _MOST_BEFORE, 0) : at].rstrip()
    while before.endswith("::"):
        before = re.sub(r"\w*\Z", "", before[:-2].rstrip()).rstrip()
    words = re.findall(r"\w+|\W", before[-_MOST_BEFORE:])
    return words[-1] if words and words[-1].isidentifier() else ""


# ---- macros ----

_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?", re.ASCII)


def _items(defines: Any) -> Iterable[tuple[Any, Any]]:
    if defines is None:
        return ()
    if not isinstance(defines, Mapping):
        raise TypeError(f"Library: defines must be a dict of values by name, not {type(defines).__name__}.")
    return defines.items()


def _define(name: Any, value: Any) -> str:
    if not isinstance(name, str) or not _MACRO.fullmatch(name):
        raise ValueError(
            f"Library: {name!r} in defines is not the name of a macro; give letters, digits and _, such as 'BLOCK'."
        )
    return f"#define {name} {_text_of(name, value)}\n"


def _text_of(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"({value})" if value < 0 else str(value)
    if isinstance(value, float):
        text = f"{value!r}f"
        if not re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?f", text):
            raise ValueError(f"Library: {value} in defines[{name!r}] has no number in Metal; give a str.")
        return f"({text})" if value < 0 else text
    if isinstance(value, str) and "\n" not in value and "\r" not in value:
        return value
    raise TypeError(
        f"Library: defines[{name!r}] must be a str of one line, a number, True, False or None, not {value!r}."
    )


# ---- includes ----


def _folders(include: Any) -> tuple[Path, ...]:
    if include is None:
        return ()
    names = (include,) if isinstance(include, str | os.PathLike) else include
    try:
        return tuple(Path(name) for name in names)
    except TypeError:
        raise TypeError(
            f"Library: include must be a folder, a str or a path, or a sequence of folders, not {include!r}."
        ) from None


def _shown(path: Path) -> str:
    """A path in the text for the compiler, which is UTF-8: a byte of another encoding comes as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


#: Comments and texts, so that no directive is found in them; and the directives that matter.
_PIECE = re.compile(
    rf"""{COMMENT} | {RAW_TEXT} | {TEXT}
      | \\.
      | ^[ \t]*\#[ \t]*(?:
            (?:include|import)[ \t]*(?:"(?P<file>[^"\n]+)"|<(?P<angled>[^>\n]+)>)[^\n]*
          | line[ \t]+(?P<number>\d+)(?:[ \t]*"(?P<name>[^"\n]*)")?[^\n]*
          | (?P<once>pragma[ \t]+once)\b[^\n]*
          | (?P<open>if|ifdef|ifndef)\b[^\n]*
          | (?P<other>elif|elifdef|elifndef|else)\b[^\n]*
          | (?P<close>endif)\b[^\n]*
        )""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)

#: The beginning of a file that is all between `#ifndef X`, `#define X` and `#endif`.
_GUARDED = re.compile(
    rf"""\A(?: \s++ | {COMMENT} )*+
        \#[ \t]*ifndef[ \t]+(?P<macro>\w+)[^\n]*\n
        (?: \s++ | {COMMENT} )*+
        \#[ \t]*define[ \t]+(?P=macro)\b""",
    re.DOTALL | re.VERBOSE,
)


#: The limit for all included files together; a header may come in both branches of an #if, at each of its levels.
MOST_LETTERS = 1 << 24


class Expansion:
    """The includes of one source.

    A file that asks to be read once gets a guard, as `#pragma once` means little in the middle of a text: a macro that
    the compiler tests where the file comes again, under whatever `#if`.  Where it is certain that the compiler has read
    the file, its text is not given again: it stood outside of every `#if`, or in the branch that is still open.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders
        self.guards: dict[Path, str] = {}  # files that ask to be read once, and their macros
        #: ... that were read if this is: outside of any #if, and in each branch that is open.
        self.certain: list[set[Path]] = [set()]
        self.left = MOST_LETTERS

    def expand(
        self,
        text: str,
        name: str,
        path: Path | None = None,
        above: tuple[Path, ...] = (),
        is_guarded: bool = False,
    ) -> str:
        """`text` with its includes; `above` are the files around it; is_guarded: its first #if hides none of it."""
        outside = len(self.certain)
        parts: list[str] = []
        at = 0
        counted, behind = 0, 2  # the number of the line behind the one that text[counted] stands on
        shift = 0  # of the numbers of lines, by a #line of the user's
        for piece in _PIECE.finditer(text):
            if piece.lastgroup is None:  # a comment or a text
                continue
            if piece["open"]:
                self.certain.append(self.certain[-1] if is_guarded else set())
                is_guarded = False
            elif piece["other"] and len(self.certain) > outside:
                self.certain[-1] = set()
            elif piece["close"] and len(self.certain) > outside:
                self.certain.pop()
            behind += text.count("\n", counted, piece.start())
            counted = piece.start()
            replacement = None
            if piece["number"]:
                shift, name = int(piece["number"]) - behind, piece["name"] or name
            elif piece["file"] or (piece["angled"] and self._find(piece["angled"], None)):
                included = self._include(piece["file"] or piece["angled"], path, above)
                replacement = f'{included}\n#line {behind + shift} "{name}"'
            elif piece["once"]:
                replacement = ""
            if replacement is not None:
                parts += [text[at : piece.start()], replacement]
                at = piece.end()
        del self.certain[outside:]
        return "".join([*parts, text[at:]])

    def _include(self, file: str, path: Path | None, above: tuple[Path, ...]) -> str:
        found = self._find(file, path)
        if found is None:
            places = ", ".join(map(_shown, self.folders)) or "none are given by include="
            return f"#error '{file}' file not found in the include folders ({places})"
        real = found.resolve()
        if any(real in read for read in self.certain) or (real in above and real in self.guards):
            return ""
        try:
            text = found.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeError) as error:
            return f"#error '{file}' cannot be read as UTF-8: {error}"
        self.left -= len(text)
        if self.left < 0:
            raise ValueError(
                f"Library: the files of include= give more than {MOST_LETTERS} letters, because a file comes again in "
                f"each #if that includes it (the last is {_shown(found)}); include it outside of #if."
            )
        is_guarded = _GUARDED.search(text) is not None
        if real in above:
            return "" if is_guarded else f"#error '{file}' includes itself"
        asks_once = any(piece["once"] for piece in _PIECE.finditer(text))
        if asks_once:
            self.guards.setdefault(real, f"METAL_DLPACK_ONCE_{len(self.guards)}")
        if asks_once or is_guarded:
            self.certain[-1].add(real)
        name = _shown(found).replace("\\", "\\\\").replace('"', '\\"')
        inside = self.expand(text, name, found, (*above, real), is_guarded)
        inside = f'#line 1 "{name}"\n{inside}'
        if not asks_once:
            return inside
        macro = self.guards[real]
        return f"#ifndef {macro}\n#define {macro}\n{inside}\n#endif"

    def _find(self, file: str, path: Path | None) -> Path | None:
        """Beside the file that includes it, else in the folders, in order."""
        beside = () if path is None else (path.parent,)
        return next((folder / file for folder in (*beside, *self.folders) if (folder / file).is_file()), None)
