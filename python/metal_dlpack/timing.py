"""timeline(): when the work was asked for, began and ended, and who waited for whom."""

from __future__ import annotations

import json
import os
import sys
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from . import _core
from .language import OURS
from .timelines.names import name_default_streams, names_in
from .timelines.records import Event, Names, Raw, Wait, Work, events_of, raw_of

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

    from .timelines.summary import Summary

#: Seconds that the first look waits for work in flight.
PATIENCE = 1.0


class Timeline:
    """What `timeline` gives: records between the begin and the end of its `with` block.

    Threads: any thread's work is recorded; look at one Timeline from one thread at a time.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._opening: CapsuleType | None = None  # who drops it ends the recording, and gives the records back
        self._names: Names | None = None
        self._events: list[Event] | None = None
        self._lost = 0
        self._began = self._ended = 0.0

    # ---- recording ----

    def __enter__(self) -> Timeline:
        if self._began:
            raise RuntimeError("timeline: it was opened already; write `with md.timeline() as t:` for another one.")
        try:
            self._opening = _core._timeline_open(self._capacity, (*OURS, *_folder_of_torch()))
        except (MemoryError, OverflowError) as error:
            raise MemoryError(
                f"timeline: there is no memory for {self._capacity} records, of at most 200 bytes each; give a smaller "
                f"capacity, or none for 65536."
            ) from error
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # _core closes it once, whichever thread is first.
        if self._opening is None or not _core._timeline_close(self._opening):
            what = "it was closed already" if self._began else "it was never opened"
            raise RuntimeError(f"timeline: {what}; write `with md.timeline() as t:`, which opens and closes it once.")
        self._ended = time.monotonic()
        self._names = names_in(_frame_of_user())

    # ---- looking ----

    @property
    def events(self) -> list[Event]:
        """`Work` and `Wait` records, by when they started.

        The first look after the block waits, at most a second, for work in flight.
        """
        if self._events is not None:
            return self._events
        opening = self._opening
        if opening is None:
            return []
        is_over = self._names is not None
        raws = self._read_settled(opening) if is_over else self._read(opening)
        names = self._names or names_in(_frame_of_user())
        if any(raw.stream and raw.stream not in names.queues for raw in raws):
            names = name_default_streams(names)
        events = events_of(raws, names, self._began)
        if is_over and not any(raw.is_open for raw in raws):
            self._events = events
            self._opening = None
        return events

    @property
    def work(self) -> list[Work]:
        """The events that are work."""
        return [event for event in self.events if isinstance(event, Work)]

    @property
    def waits(self) -> list[Wait]:
        """The events that are waits."""
        return [event for event in self.events if isinstance(event, Wait)]

    @property
    def lost(self) -> int:
        """How many records were overwritten, because there was no room for them."""
        _ = self.events
        return self._lost

    @property
    def seconds(self) -> float:
        """How long the block took; while it is open, so far."""
        return (self._ended or time.monotonic()) - self._began if self._began else 0.0

    # ---- showing ----

    def __str__(self) -> str:
        from .timelines.text import text_of

        return text_of(self.events, self.seconds, self.lost)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .notebook import html_of

        return html_of(self)

    def summary(self) -> Summary:
        """Times by kind, kernel and line; who stood still; needless copies; the longest chain; advice."""
        from .timelines.summary import summary_of

        return summary_of(self.events, self.seconds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records to a file, by its suffix.

        ``.json``: the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open.  ``.html``: a page
        with the picture, which zooms and needs no other file.

        Raises
        ------
        ValueError
            Another suffix.
        OSError
            The file cannot be written.
        """
        suffix = os.path.splitext(os.fspath(path))[1].lower()
        if suffix not in (".json", ".html"):
            raise ValueError(
                f"Timeline.save: {os.fspath(path)!r} ends in {suffix!r}; write .json for Perfetto or .html for a page."
            )
        if suffix == ".json":
            from .timelines.perfetto import trace_of

            text = json.dumps(trace_of(self.events, self.seconds, self.lost))
        else:
            from .timelines.page import page_of

            text = page_of(self.events, self.summary(), self.lost)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _read(self, opening: CapsuleType) -> list[Raw]:
        records, self._lost = _core._timeline_read(opening)
        return [raw_of(record) for record in records]

    def _read_settled(self, opening: CapsuleType) -> list[Raw]:
        deadline = time.monotonic() + PATIENCE
        raws = self._read(opening)
        while any(raw.is_open for raw in raws) and time.monotonic() < deadline:
            time.sleep(0.002)
            raws = self._read(opening)
        return raws


def timeline(capacity: int = 65536) -> Timeline:
    """Record the work of a block: ``with md.timeline() as t:``.

    Parameters
    ----------
    capacity : int
        How many records are kept, of at most 200 bytes each; then a new one takes the place of the oldest, and
        ``t.lost`` counts it.

    Returns
    -------
    Timeline
        A context manager.  ``t.events`` are the records, ``print(t)`` draws them in a terminal, and a notebook as a
        picture; ``t.summary()`` adds them up; ``t.save(path)`` writes ``.json`` for Perfetto or a page, ``.html``.

    Notes
    -----
    Recorded are copies, fills and kernels of this package, its waits on the GPU and on the CPU, of all threads; and,
    where `softmetal.torch_mps()` runs them, torch's operators.  On a Mac the work of torch and MLX is not seen, only
    what waits for it.

    Blocks may be nested, and open in several threads: each sees what all threads do.  A record costs less than a
    microsecond; while no block is open, nothing is recorded.
    """
    if not isinstance(capacity, int) or capacity < 1:
        raise ValueError(f"timeline: capacity ({capacity!r}) must be a number of records, 1 or more.")
    return Timeline(capacity)


def _folder_of_torch() -> tuple[str, ...]:
    """Where torch's own Python lies, which calls its operators; nothing, if torch is not imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (os.path.dirname(file) + os.sep,) if file else ()


def _frame_of_user() -> FrameType | None:
    """The innermost that is neither ours nor contextlib's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(OURS) or frame.f_globals.get("__name__") == "contextlib"
    ):
        frame = frame.f_back
    return frame
