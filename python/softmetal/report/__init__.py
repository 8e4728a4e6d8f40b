"""What ran on the software Metal and what was found in it: each kernel, each finding once, at the user's own line.

    literals.py    where in the program's source is this text?
    places.py      of a line that the compiler names, the user's own
    silences.py    what the user means so
    recording.py   what C tells, added up
    building.py    a report as plain values: schema.json
    processes.py   the reports of the processes that this one starts
      ▼
    text.py, page.py, sarif.py, files.py

What is kept costs nothing until `start`.
"""

from __future__ import annotations

from metal_dlpack.language.literals import source_of, with_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .building import Report

__all__ = ["end", "ended", "source_of", "start", "stop", "with_lines"]


def start() -> None:
    """Record each launch and finding of this process from now on."""
    from . import recording

    recording.start()


def stop() -> None:
    """Record nothing more."""
    from . import recording

    recording.stop()


def end() -> Report:
    """Record nothing more, and return what was recorded, as schema.json has it.  Wait for work in flight before."""
    from . import building, recording

    recording.stop()
    return building.build(recording.read())


def ended(report: Report, paths: list[str]) -> tuple[str, bool]:
    """Write a report to these files: what to print, and whether something was found or a file cannot be written."""
    from . import files, text

    words = text.text_of(report)
    is_bad = bool(text.found_and_silenced(report)[0])
    for path in paths:
        try:
            files.write(report, path)
        except OSError as error:
            words += f"softmetal: the report cannot be written to {path}: {error.strerror}.\n"
            is_bad = True
    return words, is_bad
