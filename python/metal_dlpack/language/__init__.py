"""Metal's language on every machine: a source as tokens and declarations, and where in a program it stands."""

from __future__ import annotations

import os

#: What the files of our packages begin with: they lie side by side, wherever they are installed.
OURS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), name, "")
    for name in ("metal_dlpack", "softmetal")
)
