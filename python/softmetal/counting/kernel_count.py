"""The value that Kernel.count returns."""

from __future__ import annotations

from dataclasses import dataclass

from .html import html_of
from .text import text_of
from .values import LaunchCount


@dataclass(frozen=True)
class KernelCount(LaunchCount):
    """What one launch of a kernel did.  It never changes; `print` and notebooks show it beside the source.

    Its numbers depend on the source, the arguments and the sizes of the launch alone.  ``count["x"]`` is the
    ArgumentCount of the argument x.
    """

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return str(html_of(self))
