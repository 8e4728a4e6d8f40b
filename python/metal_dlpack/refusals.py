"""The sentences of refusals that need a look at what was given: what was meant, and what to write instead."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from . import _core

#: What `Array.to` is given by mistake, as the name of a device or a package begins, and what to write.
_TARGETS = {
    "cpu": "np.asarray(a) or a.host, the same memory on the CPU",
    "mps": "a.to(torch); the Array lies on Metal already",
    "gpu": "a.to(mlx.core); the Array lies on Metal already",
    "cuda": "a.to(torch); an Array lies on Metal",
    "torch": "a.to(torch), the module",
    "numpy": "a.to(numpy), the module, or np.asarray(a)",
    "jax": "a.to(jax.numpy)",
    "jaxlib": "a.to(jax.numpy)",
    "mlx": "a.to(mlx.core)",
}
_ANY_TARGET = "a.to(torch), a.to(torch.Tensor), a.to(numpy) or the like"


def of_target(target: object) -> str:
    """Why `Array.to` does not take it: it may name a device, a package, an element type."""
    try:
        return (
            f"Array.to: {target!r} is an element type, not a framework; "
            f"write a.astype('{_core.dtype(target).name}')."  # type: ignore[arg-type]
        )
    except Exception:  # of all that Python code can raise, none is the reason here
        pass
    instead = _TARGETS.get(re.split("[:.]", _name_of(target))[0], _ANY_TARGET)
    if isinstance(target, type):
        return f"Array.to: the type {target.__name__} has no __dlpack_c_exchange_api__; write {instead}."
    return (
        f"Array.to: {target!r} is neither a type with __dlpack_c_exchange_api__ nor a module with from_dlpack; "
        f"write {instead}."
    )


def _name_of(target: object) -> str:
    """A str itself, a module's name, that of a type's module; of all else, what it prints."""
    try:
        if isinstance(target, type):
            return str(target.__module__)
        return target.__name__ if isinstance(target, ModuleType) else str(target)
    except Exception:  # as above
        return ""


def of_numpy(array: Any, function: str) -> str | None:
    """What is better than NumPy's "DLPack only supports ..."; None: NumPy's own words will do."""
    try:
        _core.dtype(array.dtype)
    except ValueError as error:  # another byte order
        return str(error).replace("dtype:", f"{function}:", 1)
    except TypeError:
        return (
            f"{function}: DLPack has no element type for {array.dtype!r}; if its bytes are numbers, share them as "
            "numbers: x.view('int64'), x.view('uint8')."
        )
    if array.dtype.isbuiltin != 1:
        return f"{function}: NumPy cannot export {array.dtype!r}, a type of ml_dtypes; call asarray(x)."
    if not array.flags.writeable:  # NumPy before 2.1 has no word for it in DLPack
        return f"{function}: this NumPy cannot export a read-only array; call asarray(x), or install NumPy 2.1."
    return None  # NumPy exports all other types: the dtype is not the reason
