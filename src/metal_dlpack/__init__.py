"""Metal buffers as arrays that PyTorch, MLX, TVM, NumPy and JAX share without a copy.

>>> import metal_dlpack as md
>>> a = md.zeros((2, 3))
>>> a.buffer.storage
'shared'

Importing this package imports no framework, and not NumPy either.
"""

from __future__ import annotations

from . import _core
from ._core import *  # noqa: F403
from .explain import explain
from .opening import open
from .sharing import show
from .sync import register_sync

__version__ = "0.1.0"
__all__ = [name for name in vars(_core) if not name.startswith("_")] + ["explain", "open", "register_sync", "show"]
