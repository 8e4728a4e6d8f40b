"""Things that meet, in groups: the doctor's probes of one framework, lanes over one memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Thing = TypeVar("Thing")


def joined_groups(things: Iterable[Thing], meet: Callable[[Thing, Thing], bool]) -> list[list[Thing]]:
    """Whatever meets is in one group, directly or through others; groups and members in the order given."""
    groups: list[list[tuple[int, Thing]]] = []
    for place, thing in enumerate(things):
        met = [group for group in groups if any(meet(thing, other) for _, other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(member for group in met for member in group), (place, thing)])
    ordered = sorted(sorted(group, key=lambda member: member[0]) for group in groups)
    return [[thing for _, thing in group] for group in ordered]
