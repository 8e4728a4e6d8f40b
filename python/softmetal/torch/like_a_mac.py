"""What libraries ask before they believe in mps, answered as a Mac would: SOFTMETAL_LIKE_A_MAC=1."""

from __future__ import annotations

import os
import platform
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Who needs the true answer: they compile, load or tag by it.
NEED_THE_TRUTH = {"metal_dlpack", "numpy", "packaging", "pip", "setuptools", "softmetal", "torch", "wheel", "ziglang"}
ANSWERS = {"processor": "arm", "machine": "arm64"}


def answer_if_asked() -> None:
    """Once a process, for callers other than Python's own modules and those above."""
    if os.environ.get("SOFTMETAL_LIKE_A_MAC", "0") in ("", "0"):
        return
    for name, answer in ANSWERS.items():
        setattr(platform, name, _answering(getattr(platform, name), answer))


def _answering(truly: Callable[[], str], answer: str) -> Callable[[], str]:
    def ask() -> str:
        caller = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]
        needs_it = caller in NEED_THE_TRUTH or caller in sys.stdlib_module_names
        return truly() if needs_it else answer

    ask.__name__, ask.__doc__ = truly.__name__, truly.__doc__
    return ask
