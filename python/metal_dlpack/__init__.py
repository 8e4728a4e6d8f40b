"""Metal buffers as arrays that PyTorch, MLX, TVM, NumPy and JAX share without a copy.

>>> import metal_dlpack as md
>>> a = md.zeros((2, 3))
>>> a.buffer.storage
'shared'

Importing this package imports no framework, and not NumPy either.

PYTEST_DONT_REWRITE: pytest would warn where it is imported first.
"""

from __future__ import annotations

import builtins
import os.path
import sys

try:
    from . import _core
except ImportError as error:
    if error.name != __name__:  # it is there, and cannot be loaded: the loader has said why
        raise
    from .missing_core import advice

    raise ImportError(advice(__path__[0]), name="metal_dlpack._core") from None
from ._core import *  # noqa: F403
from .sync import register_sync as register_sync

TYPE_CHECKING = False  # typing's own costs more to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any

    from .capturing import capture as capture
    from .compile_errors import CompileError as CompileError
    from .explaining import explain as explain
    from .loading import load as load
    from .numpy_allocation import numpy_memory as numpy_memory
    from .opening import open as open
    from .residency import keep_resident as keep_resident
    from .sending import share_mps_tensors as share_mps_tensors
    from .sharing import show as show
    from .timing import timeline as timeline

__version__ = "0.1.0"
_HERE = os.path.dirname(os.path.abspath(__file__))
#: Without `bool` and `open`: `from metal_dlpack import *` hides no Python name.
__all__ = [name for name in vars(_core) if not name.startswith("_") and not hasattr(builtins, name)] + [
    "CompileError",
    "capture",
    "explain",
    "get_cmake_dir",
    "get_include",
    "get_pkgconfig_dir",
    "keep_resident",
    "load",
    "numpy_memory",
    "register_sync",
    "share_mps_tensors",
    "show",
    "timeline",
]

#: Public functions whose modules are imported when they are first asked for: they take longer than all the rest.
_LATER = {
    "CompileError": "compile_errors",
    "capture": "capturing",
    "explain": "explaining",
    "keep_resident": "residency",
    "load": "loading",
    "numpy_memory": "numpy_allocation",
    "open": "opening",
    "share_mps_tensors": "sending",
    "show": "sharing",
    "timeline": "timing",
}

#: What other libraries call it, and what to write here.
_INSTEAD = {
    "Tensor": "metal_dlpack.asarray(x)",
    "arange": "metal_dlpack.asarray(range(n))",
    "asnumpy": "np.asarray(a), which shares the memory",
    "array": "metal_dlpack.asarray(x), or asarray(x, copy=True)",
    "as_tensor": "metal_dlpack.asarray(x)",
    "concatenate": "metal_dlpack.asarray(np.concatenate(arrays)), as NumPy's functions take Arrays",
    "device": "metal_dlpack.devices()[0], or device='metal:0' in a call",
    "from_numpy": "metal_dlpack.asarray(x)",
    "from_torch": "metal_dlpack.asarray(x), which shares the tensor's memory",
    "is_available": "metal_dlpack.default_device().is_software, which is False on a Mac",
    "save": "np.save(file, a) or safetensors.numpy.save_file({name: a}, file), which take Arrays",
    "save_file": "safetensors.numpy.save_file({name: a}, file), which takes Arrays",
    "stack": "metal_dlpack.asarray(np.stack(arrays)), as NumPy's functions take Arrays",
    "stream": "`with metal_dlpack.Stream():`",
    "synchronize": "metal_dlpack.default_device().synchronize()",
    "tensor": "metal_dlpack.asarray(x, copy=True)",
}


#: Started by a program that is checked: softmetal/report/processes.py.
if "METAL_DLPACK_REPORTS" in os.environ and hasattr(_core, "_stand_in"):
    from importlib import import_module as _import_module

    _import_module(_core._stand_in).begin_as_child()


def _instead(name: str) -> str:
    """The way out, of what NumPy and torch have too: if they are imported, they know."""
    if name in _INSTEAD:
        return f"; write {_INSTEAD[name]}"
    if name.startswith("_"):
        return ""
    if hasattr(sys.modules.get("numpy"), name):
        return f"; write np.{name}, as NumPy's functions take Arrays, and metal_dlpack.asarray(x) for what it gives"
    if hasattr(sys.modules.get("torch"), name):
        return f"; write torch.{name} with a.to(torch.Tensor), and metal_dlpack.asarray(x) for what it gives"
    return ""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
    from importlib import import_module

    function = getattr(import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return [*__all__, "bool", "open", "__all__", "__doc__", "__version__"]


def get_include() -> str:
    """The folder of metal_dlpack.h, for the include path of an extension module.

    The header gives extensions in C, C++ and Cython a table of functions that make and read Arrays without calling
    Python; nothing is linked.  Its comments are the reference, docs/c_api.md the introduction.

    Returns
    -------
    str
        An absolute path.
    """
    return os.path.join(_HERE, "include")


def get_cmake_dir() -> str:
    """The folder of metal_dlpack-config.cmake, for CMake's ``metal_dlpack_ROOT``.

    ``find_package(metal_dlpack CONFIG)`` then has the target ``metal_dlpack::headers``.  On a command line the same is
    ``python -m metal_dlpack --cmakedir``.

    Returns
    -------
    str
        An absolute path.
    """
    return os.path.join(_HERE, "share", "cmake", "metal_dlpack")


def get_pkgconfig_dir() -> str:
    """The folder of metal_dlpack.pc, for ``PKG_CONFIG_PATH``.

    ``pkg-config --cflags metal_dlpack`` then has the include path.  On a command line the same is
    ``python -m metal_dlpack --pkgconfigdir``.

    Returns
    -------
    str
        An absolute path.
    """
    return os.path.join(_HERE, "share", "pkgconfig")
