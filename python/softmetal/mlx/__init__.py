"""mx.fast.metal_kernel without a Mac: MLX's custom kernels run on the software Metal.

`generated.py` writes the source that MLX would write, `kernel.py` calls it on MLX's arrays, and `answers.py` has what
MLX says of its GPU.  Here is what switches all that on, and off again.
"""

from __future__ import annotations

import functools
import threading
import warnings

TYPE_CHECKING = False  # typing costs as much to import as the rest of the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

_lock = threading.Lock()
_users = 0  # of the patches: calls of switch_on whose `with` has not ended
_undo: list[Callable[[], object]] = []  # what takes the patches back, last one first


class Switched:
    """What softmetal.mlx_kernels() returns: at the end of its `with` MLX is as it was before."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on

    def __enter__(self) -> Switched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_on:
            self._is_on = False
            _give_back()


def switch_on(is_checked: Callable[[], bool]) -> Switched:
    """See softmetal.mlx_kernels; `is_checked`: are kernels that are made now for the checker?"""
    global _users
    import mlx.core as mx

    with _lock:
        if _users == 0:
            if mx.metal.is_available():
                warnings.warn(
                    "softmetal.mlx_kernels() does nothing on a Mac: MLX's kernels run on Metal.",
                    RuntimeWarning,
                    stacklevel=3,
                )
                return Switched(False)
            _patch(mx, is_checked)
        _users += 1
    return Switched(True)


def _give_back() -> None:
    global _users
    with _lock:
        _users -= 1
        while _users == 0 and _undo:
            _undo.pop()()


def _patch(mx: Any, is_checked: Callable[[], bool]) -> None:
    from .answers import answers
    from .kernel import entry_point

    for owner, name, value in (*answers(mx), (mx.fast, "metal_kernel", entry_point(mx, is_checked))):
        usual = getattr(owner, name)
        _undo.append(functools.partial(setattr, owner, name, usual))
        setattr(owner, name, value)
    _run_compiled_functions_as_they_are(mx)


def _run_compiled_functions_as_they_are(mx: Any) -> None:
    """mx.compile traces a function with arrays that have no values, and a kernel needs values at its call."""
    is_wanted = _compiles(mx)
    disable, enable = mx.disable_compile, mx.enable_compile

    def want(wish: bool) -> None:
        nonlocal is_wanted
        is_wanted = wish

    def undo() -> None:
        mx.disable_compile, mx.enable_compile = disable, enable
        if is_wanted:
            enable()

    disable()
    mx.disable_compile, mx.enable_compile = (lambda: want(False)), (lambda: want(True))
    _undo.append(undo)


def _compiles(mx: Any) -> bool:
    """Is mx.compile on?  MLX does not say, but a compiled function runs once for two calls."""
    runs = []

    def count(x: Any) -> Any:
        runs.append(x.shape)
        return x

    compiled, x = mx.compile(count), mx.array(0)
    compiled(x), compiled(x)
    return len(runs) == 1
