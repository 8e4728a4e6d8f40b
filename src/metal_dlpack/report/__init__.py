"""What ran on the software Metal and what was found in it: each kernel, each finding once, at the user's own line.

    literals.py    where in the program's source is this text?
    places.py      of a line that the compiler names, the user's own
    silences.py    what the user means so
    recording.py   what C tells, added up
    building.py    a report as plain values: schema.json
      ▼
    text.py, page.py, sarif.py, files.py

What is kept costs nothing until `start`.  A report is one process's; `merged` puts several together.
"""

from __future__ import annotations

from .literals import source_of, with_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .building import Report

__all__ = ["end", "is_found", "merged", "source_of", "start", "with_lines"]


def start() -> None:
    """Record each launch and finding of this process from now on."""
    from . import recording

    recording.start()


def end() -> Report:
    """Record nothing more, and return what was recorded, as schema.json has it.  Wait for work in flight before."""
    from . import building, recording

    recording.stop()
    return building.build(recording.read())


def is_found(report: Report) -> bool:
    """Was anything found that is not silenced?"""
    return any(one["silenced"] is None for one in report["findings"])


def merged(reports: list[Report]) -> Report:
    """One report of several processes; there must be one."""
    from . import building

    return building.merged(reports)
