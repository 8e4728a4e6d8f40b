"""Metal buffers as arrays that PyTorch, MLX, TVM, NumPy and JAX share without a copy.

>>> import metal_dlpack as md
>>> a = md.zeros((2, 3))
>>> a.buffer.storage
'shared'

Importing this package imports no framework, and not NumPy either.
"""

from __future__ import annotations

import os.path

from . import _core
from ._core import *  # noqa: F403
from .explain import explain
from .opening import open
from .sharing import show
from .sync import register_sync

__version__ = "0.1.0"
__all__ = [name for name in vars(_core) if not name.startswith("_")] + [
    "explain",
    "get_include",
    "open",
    "register_sync",
    "show",
]


def get_include() -> str:
    """The folder of metal_dlpack.h, for the include path of an extension module.

    The header gives extensions in C, C++ and Cython a table of functions that make and read Arrays without calling
    Python; nothing is linked.  Its comments are the reference, docs/c_api.md the introduction.

    Returns
    -------
    str
        An absolute path.
    """
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")
