"""Launches that are counted: one of a kernel's, or the first of each kernel of a program."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from metal_dlpack import _core
from softmetal import controls

from .kernel_count import KernelCount
from .raw_counts import kernel_count

if TYPE_CHECKING:
    from types import TracebackType

#: Who asked for a count: the software Metal gives it back.
_TAGS = itertools.count(1)
#: Launches of Kernel.count take turns.
_turn = threading.Lock()
#: Kernels that count, by what they are made of: compiling is what takes long.
_twins: dict[tuple[object, ...], _core.Kernel] = {}
_MOST_TWINS = 32


def count_once(
    kernel: _core.Kernel, recipe: tuple[str, dict[Any, Any] | None, str | None], args: tuple[Any, ...], kwargs: Any
) -> KernelCount:
    """Run a kernel once, and return what it did.  `recipe`: its source, constants and language."""
    with _turn:
        tag = next(_TAGS)
        _core._softmetal_count(tag)
        try:
            _twin_of(kernel, recipe).time(*args, **kwargs)
        finally:
            _core._softmetal_count(0)
        raw = _core._softmetal_take_counts(tag)
    if raw is None:
        if not _is_empty(kwargs):
            raise MemoryError(f"{kernel.name}: there is no memory for what the launch has counted.")
        return KernelCount(kernel.name)
    return kernel_count(raw, recipe[0])


def _is_empty(kwargs: dict[str, Any]) -> bool:
    """A launch without threads, which does nothing and counts nothing."""
    given = next((kwargs[name] for name in ("n", "threads", "groups") if kwargs.get(name) is not None), 0)
    return 0 in given if isinstance(given, tuple | list) else not given


def _twin_of(kernel: _core.Kernel, recipe: tuple[str, dict[Any, Any] | None, str | None]) -> _core.Kernel:
    text, constants, language = recipe
    key = (text, kernel.name, repr(constants), language, kernel.device)
    twin = _twins.get(key)
    if twin is None:
        library = _core.Library(text, language=language, device=kernel.device)
        twin = library.kernel(kernel.name, constants)
        while len(_twins) >= _MOST_TWINS:
            del _twins[next(iter(_twins))]
        _twins[key] = twin
    return twin


class Counted:
    """The counts of a program's kernels, from `install` on; ends at the end of its `with`, or by `stop`."""

    def __init__(self) -> None:
        self._tag = next(_TAGS)
        self._counts: list[KernelCount] = []
        self._is_open = True
        _core._softmetal_count_all(self._tag)

    @property
    def counts(self) -> tuple[KernelCount, ...]:
        """A KernelCount for each kernel that was launched so far: of its first launch that has ended."""
        self._counts += map(kernel_count, self._taken())
        return tuple(self._counts)

    def _taken(self) -> Iterator[tuple[Any, ...]]:
        while (raw := _core._softmetal_take_counts(self._tag)) is not None:
            yield raw

    def stop(self) -> tuple[KernelCount, ...]:
        """Count no more kernels, wait for those that run, and return `counts`."""
        if self._is_open:
            self._is_open = False
            _core._softmetal_count_all(0)
            controls.wait_idle()
        return self.counts

    def __enter__(self) -> Counted:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def install() -> Counted:
    """Count the first launch of each kernel that is made from now on, by whatever library.

    Such a kernel is compiled twice: once as it is, once to be counted.  Its first launch takes longer, on one thread;
    the others are as before.  One `install` at a time: a later one ends what an earlier one counts.

    Returns
    -------
    Counted
        A context manager; its `counts` are KernelCounts.

    Raises
    ------
    SoftwareMetalMissing
        On a Mac.
    """
    controls.demand("counting.install")
    return Counted()
