"""What to say about a name that a file does not have: which of its names are most like it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

from .source import shortened

#: How many names before and behind its place in the alphabet are compared: difflib takes 50 microseconds for each.
NEIGHBOURS = 24
#: The longest name that is compared, in characters: difflib's time grows with the square.
MAX_LENGTH = 200
#: So few names are all told.
FEW = 3


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
