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

    For the whole process, every thread and task: ``md.numpy_memory.enable()`` and ``md.numpy_memory.disable()``.

    Raises
    ------
    ImportError
        On entry: NumPy is missing or older than 1.22.

    Source: NEP 49, PyDataMem_SetHandler.
    """

    @staticmethod
    def enable() -> None:
        """From now on NumPy allocates large arrays in Metal buffers wherever no other memory handler is set.

        In all threads and contexts, those that run already and those to come.  Calling it twice is allowed.

        Raises
        ------
        ImportError
            NumPy is missing, older than 1.22, or has a default handler of another version.

        Source: NEP 49, PyDataMem_DefaultHandler, whose functions are exchanged: NumPy has no call for it.
        """
        _core._numpy_use_everywhere(True)

    @staticmethod
    def disable() -> None:
        """NumPy's large arrays come from its own allocator again; those that were made keep their memory.

        Contexts that were entered are not touched.  Without enable() before, nothing happens.
        """
        _core._numpy_use_everywhere(False)

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
