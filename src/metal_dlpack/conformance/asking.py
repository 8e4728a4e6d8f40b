"""The answers of a child process that runs a framework: the child's stdout, for them alone."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["take_stdout"]


def take_stdout() -> TextIO:
    """In the child: a file for the answers.  From here on, what a framework prints goes to stderr.

    Processes that the framework starts do not inherit the file, so the parent sees the end when the child ends.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers
