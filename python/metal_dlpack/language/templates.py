"""Templates of kernels, instantiated at the end of a source that does not.

The source is read as the user wrote it, so that both systems add the same text: a template that a macro makes is not
found.

Source: Metal Shading Language Specification, host_name; an explicit instantiation is C++'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .signatures import behind, head_of, without_comments
from .tokens import split

_NOT_ONE_ARGUMENT = re.compile(r"""["'\\;{}\n]|//|/\*""")
_HEAD = re.compile(r"\btemplate\s*(?=<)")
_WORD = re.compile(r"\w+")


class _Parameter(NamedTuple):
    name: str
    default: str | None


def instantiate(text: str, asked: tuple[str, Mapping[str, object]]) -> tuple[str, str]:
    """(the kernel's name, the source with the instantiation) of a template's name and its arguments by name.

    The source comes back as it is where it has this instantiation, under a host_name.  KeyError: the source has no such
    template; TypeError: an argument is missing, unknown, or of a kind that no template takes.
    """
    name, given = asked
    if not isinstance(name, str):
        raise TypeError(f"Library.kernel: name must be a str, not {type(name).__name__}.")
    plain = without_comments(text)
    function = name.rpartition("::")[2]
    arguments = ", ".join(_arguments(name, _parameters(plain, name, function), given))
    if there := _there(plain, function, arguments):
        return there, text
    host_name = re.sub(r"\W+", "_", f"{name}_{arguments}").strip("_")
    while re.search(rf"\b{host_name}\b", plain):
        host_name += "_"
    one = f"{name}<{arguments}>"
    line = f'template [[host_name("{host_name}")]] [[kernel]] decltype({one}) {one};'
    return host_name, f'{text}\n#line 1 "{one}"\n{line}\n'


def _parameters(plain: str, name: str, function: str) -> list[_Parameter]:
    names = []
    for head in _HEAD.finditer(plain):
        end = behind(plain, head.end())
        found = head_of(plain, end)
        if found is not None and "kernel" in _WORD.findall(plain[end : found[1]]):
            names.append(found[0])
            if found[0] == function:
                return [_parameter(one) for one in split(plain[head.end() + 1 : end - 1])]
    known = ", ".join(map(repr, names)) or "none"
    raise KeyError(f"Library.kernel: {name!r} is not a template of a kernel in the source; there are {known}.")


def _parameter(text: str) -> _Parameter:
    declared, equals, default = text.partition("=")
    words = _WORD.findall(declared)
    return _Parameter(words[-1] if len(words) > 1 else "", default.strip() if equals else None)


def _arguments(name: str, parameters: list[_Parameter], given: Mapping[str, object]) -> list[str]:
    """In their order, up to the last one that is given; the rest are defaults."""
    names = [one.name for one in parameters]
    if unknown := [one for one in given if one not in names]:
        raise TypeError(f"Library.kernel: the template {name!r} has no parameter {unknown[0]!r}; it has {names}.")
    missing = [one.name for one in parameters if one.default is None and one.name not in given]
    if missing:
        raise TypeError(f"Library.kernel: the template {name!r} needs {missing[0]!r} too; it has {names}.")
    last = max(names.index(one) for one in given)
    return [
        _text(one.name, given[one.name]) if one.name in given else str(one.default) for one in parameters[: last + 1]
    ]


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value.strip() and not _NOT_ONE_ARGUMENT.search(value):
        return value.strip()
    raise TypeError(
        f"Library.kernel: {value!r} is no argument for the template's {name!r}; give a type of Metal's as a str, such "
        "as 'half', an int or a bool."
    )


def _there(plain: str, function: str, arguments: str) -> str | None:
    """The host_name under which the source itself instantiates it."""
    wanted = re.sub(r"\s+", "", arguments)
    pattern = (
        rf"""\btemplate\b(?!\s*<)[^;{{}}]*?host_name\s*\(\s*"([^"]*)"\s*\)[^;{{}}]*?\b{function}\s*<([^;{{}}()]*)>"""
    )
    for host_name, found in re.findall(pattern, plain):
        if re.sub(r"\s+", "", found) == wanted:
            return str(host_name)
    return None
