"""softmetal SCRIPT, or python -m softmetal SCRIPT: a program for a Mac, run without one."""

from __future__ import annotations

import os
import sys

from .running.program import main


def command() -> int | None:
    """What `softmetal` runs: like `python -m` it finds modules in the working folder."""
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
