"""NumPy's large arrays in Metal buffers: see :class:`numpy_memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["numpy_memory"]


class numpy_memory:  # noqa: N801 - it is called like a function
    """A context in which NumPy allocates arrays from 64 KiB up in shared Metal buffers.

    >>> with md.numpy_memory():
    ...     x = np.ones((1024, 1024))
    >>> a = md.from_dlpack(x)  # the very MTLBuffer: nothing is wrapped, nothing copied

    Arrays made inside keep their memory as long as they live, also after the context.  Smaller arrays get NumPy's
    own memory, and so do larger ones where Metal has none.  The memory comes from the pool (memory_stats());
    np.zeros writes its zeros at once.

    Applies to the current context (contextvars): the thread or asyncio task that entered it.  Other threads enter
    their own.  May be nested and entered again.

    Raises
    ------
    ImportError
        On entry: NumPy is missing or older than 1.22.

    Source: NEP 49, PyDataMem_SetHandler.
    """

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> numpy_memory:
        self._before.append(_core._numpy_set_handler(None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _core._numpy_set_handler(self._before.pop())


numpy_memory.__module__ = "metal_dlpack"  # where its users find it
