"""NumPy's large arrays in Metal buffers: see :class:`numpy_memory`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from types import TracebackType

#: What is entered in the current context, the last one at the end, each with the memory handler that it replaced.
_entered: ContextVar[tuple[tuple[numpy_memory, Any], ...]] = ContextVar("metal_dlpack.numpy_memory", default=())


class numpy_memory:  # noqa: N801 - it is called like a function
    """A context in which NumPy allocates arrays from 64 KiB up in shared Metal buffers.

    >>> with md.numpy_memory():
    ...     x = np.ones((1024, 1024))
    >>> a = md.from_dlpack(x)  # the very MTLBuffer: nothing is wrapped, nothing copied

    Arrays made inside keep their memory as long as they live, even after the context.  Smaller arrays get NumPy's
    own memory, and so do larger ones if Metal has none left.  The memory comes from the pool (memory_stats());
    np.zeros writes its zeros at once.

    Applies to the current context (contextvars): the thread or asyncio task that entered it.  Other threads enter
    their own.  A context that is copied inside, such as that of a task made there, begins with Metal's memory and
    keeps it.  May be nested, entered again, and left in any order: NumPy's own allocator is back when the last one
    of the context is left.

    Raises
    ------
    ImportError
        On entry: NumPy is missing or older than 1.22.
    RuntimeError
        On exit: the current context has not entered it; another thread or task has, or none.  Nothing changes
        then.

    Source: NEP 49, PyDataMem_SetHandler.
    """

    def __enter__(self) -> numpy_memory:
        before = _core._numpy_set_handler(None)
        _entered.set((*_entered.get(), (self, before)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _entered.get()
        places = [place for place, (context, _) in enumerate(entered) if context is self]
        if not places:
            raise RuntimeError(
                "numpy_memory: it is not entered in this context; leave it in the thread or task that entered it."
            )
        place = places[-1]
        before, later = entered[place][1], entered[place + 1 :]
        if later:  # left out of order: the next one gives back what this one replaced
            later = ((later[0][0], before), *later[1:])
        else:
            _core._numpy_set_handler(before)
        _entered.set((*entered[:place], *later))


numpy_memory.__module__ = "metal_dlpack"  # where its users find it
