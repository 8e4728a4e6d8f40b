"""torch.mps.compile_shader on the software Metal: kernels of md.Library, called by torch's rules; shaders.cpp binds.

Torch compares nothing with the kernel's types: an argument's place is its index, a tensor is bound from its first item
on as it lies, an int has 8 bytes and a float 4.  What Metal would then leave undefined (an argument that is missing, a
value shorter than the type, an offset that the type does not allow) is refused.

Source: torch/csrc/mps/Module.cpp, aten/src/ATen/native/mps/OperationUtils.mm and torch/mps/__init__.py of 2.9 to 2.15.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from _metal_dlpack_imports import when_imported
from metal_dlpack import _core
from metal_dlpack.compile_errors import CompileError
from softmetal import controls
from softmetal.report import places, recording, with_lines

from .given import Parameters, no_cast

# ---- torch's functions ----


def install() -> None:
    """Once a process: torch.mps.compile_shader, and what else of torch it is about."""
    torch._C._mps_compileShader = compile_shader
    torch._C._mps_loadMetalllib = torch._C._mps_loadMetallibFromPath = _refuse_metallib
    torch._C._mps_ShaderLibrary, torch._C._mps_MetalKernel = ShaderLibrary, MetalKernel
    # Torch's own writes c10/metal/*.h into the text, so that the lines in errors would not be the user's.
    torch.mps.compile_shader = functools.wraps(torch.mps.compile_shader)(compile_shader)
    when_imported("torch.utils.cpp_extension", _watch_extensions)


def compile_shader(source: str) -> ShaderLibrary:
    """torch.mps.compile_shader: SyntaxError, with what the compiler said, where the source is at fault."""
    is_fast = os.environ.get("PYTORCH_MPS_FAST_MATH", "0") != "0"
    include = Path(torch.__file__).parent / "include"
    try:
        return ShaderLibrary(_core.Library(with_lines(source), include=include, math="fast" if is_fast else "safe"))
    except CompileError as error:
        error.msg = _words_of(error)  # torch's users find them in the text
        raise


def _words_of(error: CompileError) -> str:
    """All of them: the text is the note that the error has where it is longer than a sentence."""
    if notes := error.__dict__.pop("__notes__", []):
        return str(notes[0])
    return f"{error.filename}:{error.lineno}:{error.offset}: error: {error.msg}" if error.filename else str(error.msg)


def _refuse_metallib(_source: object) -> None:
    raise RuntimeError(
        "Failed to load metallib: it holds code for Apple's GPUs, which the software Metal does not run; "
        "give the source to torch.mps.compile_shader."
    )


# ---- torch.utils.cpp_extension ----

_OBJECTIVE_C = re.compile(r"Metal/Metal\.h|^[ \t]*#[ \t]*import\b", re.MULTILINE)


def _watch_extensions() -> None:
    """Refuse extensions in Objective-C++, which would fail in the C++ compiler with other words."""
    from torch.utils import cpp_extension

    def refuse(what: str) -> None:
        raise RuntimeError(
            f"torch.utils.cpp_extension: {what} is Objective-C++, which calls a Mac's Metal.framework; without a Mac "
            "its kernels run from Python: give their source to torch.mps.compile_shader or md.Library."
        )

    load, load_inline = cpp_extension.load, cpp_extension.load_inline

    @functools.wraps(load)
    def watched_load(name: str, sources: Any, *args: Any, **keywords: Any) -> Any:
        for source in [sources] if isinstance(sources, str) else sources:
            if str(source).endswith((".mm", ".m")):
                refuse(str(source))
        return load(name, sources, *args, **keywords)

    @functools.wraps(load_inline)
    def watched_load_inline(name: str, cpp_sources: Any, *args: Any, **keywords: Any) -> Any:
        for source in [cpp_sources] if isinstance(cpp_sources, str) else cpp_sources:
            if _OBJECTIVE_C.search(source):
                refuse(f"the source of {name!r}")
        return load_inline(name, cpp_sources, *args, **keywords)

    cpp_extension.load, cpp_extension.load_inline = watched_load, watched_load_inline


# ---- a library ----


class ShaderLibrary:
    """What torch.mps.compile_shader returns: its attributes are its kernels."""

    __slots__ = ("_library", "_made")

    def __init__(self, library: _core.Library) -> None:
        self._library = library
        self._made: dict[str, MetalKernel] = {}

    def __getattr__(self, name: str) -> MetalKernel:
        found = self._made.get(name)
        return self._made.setdefault(name, self._make(name)) if found is None else found

    def _make(self, name: str) -> MetalKernel:
        """Torch raises no AttributeError: hasattr() raises as well."""
        if name not in self._library.kernels:
            raise RuntimeError(
                f"Failed to create function state object for: {name}; the kernels are "
                f"{', '.join(self._library.kernels) or 'none'}."
            )
        try:
            return MetalKernel(self._library[name])
        except TypeError as error:  # function constants, textures
            raise RuntimeError(f"Failed to create function state object for: {name}. {error}") from None

    def __dir__(self) -> list[str]:
        return list(self._library.kernels)


# ---- a call ----

_INT64 = range(-(2**63), 2**63)
_INT32 = range(-(2**31), 2**31)


class MetalKernel:
    """A kernel of torch.mps.compile_shader."""

    __slots__ = ("_kernel", "_known", "_needed")

    def __init__(self, kernel: _core.Kernel) -> None:
        self._kernel = kernel
        # Nobody asks about a kernel that is not checked.
        is_checked = controls.checks_kernels()
        self._known = Parameters(kernel) if is_checked else None
        self._needed = {one.index: one for one in kernel.arguments if one.kind == "buffer"}
        if len(self._needed) < len(kernel.arguments):
            raise TypeError(
                "It has parameters in threadgroup memory, to which torch gives no room; declare "
                "`threadgroup float x[n];` in the kernel."
            )

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._kernel.max_total_threads

    @property
    def thread_execution_width(self) -> int:
        return self._kernel.thread_execution_width

    @property
    def static_thread_group_memory_length(self) -> int:
        return self._kernel.threadgroup_memory

    def __call__(
        self, *args: Any, threads: Any = None, group_size: Any = None, arg_casts: Any = None, error_buf_idx: Any = None
    ) -> None:
        extents, group = _extents("threads", threads), _extents("group_size", group_size)
        cast_of = _casts(arg_casts)
        values: list[torch.Tensor | tuple[torch.Tensor, ...] | bytes] = []
        for place, value in enumerate(args):
            if isinstance(value, torch.Tensor):
                if extents is None:
                    extents = (value.numel(),)
                values.append(value)
            elif isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
                values.append(tuple(value))  # their addresses
            else:
                values.append(_bytes_of(value, cast_of(place)))
        if extents is None:
            raise RuntimeError(
                "Number of threads is undefined or has wrong dimension: no argument is a tensor; give threads=."
            )
        error_index = -1 if error_buf_idx is None else _index("error_buf_idx", error_buf_idx)
        self._check_all_given(len(args), error_index)
        if places.is_reporting:
            recording.call(self._kernel.name, dict(enumerate(args)))
        torch._C._mps_launch_kernel(
            self._kernel,
            self._kernel.name,
            tuple(values),
            (*extents, 1, 1)[:3],
            (*self._group(extents, group), 1, 1)[:3],
            error_index,
            None if self._known is None else self._known.notes(args, cast_of),
        )

    def _check_all_given(self, count: int, error_index: int) -> None:
        """On a Mac the kernel would find what was bound last, or nothing."""
        for index, argument in self._needed.items():
            if index >= count and index != error_index:
                raise RuntimeError(
                    f"{self._kernel.name}: nothing is given for {argument.name!r}, the buffer {index}; {count} "
                    "arguments are given, whose places are the indices."
                )

    def _group(self, extents: tuple[int, ...], group: tuple[int, ...] | None) -> tuple[int, ...]:
        most = self._kernel.max_total_threads
        if group is None:  # torch's: of a line as many as there are, else a whole row
            return (max(1, min(extents[0], most)),) if len(extents) == 1 else (most,)
        if len(group) != len(extents):
            raise RuntimeError(f"threads={extents} and group_size={group} must have as many dimensions.")
        if not 1 <= math.prod(group) <= most:
            raise ValueError(f"Threadgroup size exceeds {most} limit, or is 0: {group}.")
        return group


def _index(what: str, value: Any) -> int:
    """As pybind11 takes an unsigned number: no float, nothing negative."""
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        number = -1
    if not 0 <= number < 2**32:
        raise RuntimeError(f"{what}: {value!r} is not a number from 0 to 2**32 - 1.")
    return number


def _extents(what: str, value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, int):
        return (_index(what, value),)
    if isinstance(value, str | bytes) or not hasattr(value, "__getitem__"):
        raise RuntimeError(f"{what}: {value!r} is neither an int nor a list of one to three.")
    extents = tuple(_index(what, one) for one in value)
    if not 1 <= len(extents) <= 3:
        raise RuntimeError(f"{what}: {value!r} does not have one to three numbers.")
    return extents


# ---- values ----

_NUMBERS: Mapping[str, Any] = {
    "int32": ctypes.c_int32,
    "int16": ctypes.c_int16,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
}
_FLOATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def _casts(given: Any) -> Callable[[int], str]:
    """The cast of each place: of arg_casts=, one for all, or a dict by place; "": none."""
    if given is None:
        return no_cast
    if isinstance(given, str):
        return lambda place: given
    if not isinstance(given, dict):
        raise RuntimeError(
            f"Unexpected caster arg type {type(given).__name__}; give a str, or a dict of them by place."
        )
    for place, cast in given.items():
        if not isinstance(cast, str):
            raise RuntimeError(f"arg_casts: {cast!r} of argument {_index('arg_casts', place)} is no str.")
    return lambda place: given.get(place, "")


def _bytes_of(value: Any, cast: str) -> bytes:
    """A number, or several one after the other: what setBytes gets."""
    if isinstance(value, list | tuple):
        return _several(value, cast)
    if isinstance(value, float):
        return _pack((value,), True, cast)
    if isinstance(value, int):
        return _pack((value,), False, cast)
    raise RuntimeError(
        f"Unsupported argument type {type(value).__name__}; a kernel of torch.mps.compile_shader takes tensors, ints, "
        "floats, and lists of ints or of floats."
    )


def _several(values: Any, cast: str) -> bytes:
    """The first says of which kind all are."""
    if not values:
        raise RuntimeError("Empty list/tuple can not be an argument to metal kernel")
    first = values[0]
    if isinstance(first, torch.Tensor):
        raise RuntimeError("A list of tensors has tensors alone.")
    if not isinstance(first, int | float):
        raise RuntimeError(f"Unexpected argument types: a list of {type(first).__name__}.")
    return _pack(values, isinstance(first, float), cast)


def _pack(values: Any, are_floats: bool, cast: str) -> bytes:
    for value in values:
        if not isinstance(value, int) and not (are_floats and isinstance(value, float)):
            raise RuntimeError(f"Unable to cast {value!r} among {'floats' if are_floats else 'ints'}.")
        if not are_floats and value not in _INT64:
            raise RuntimeError(f"Unable to cast {value!r} to 64 bits.")
    if cast in _FLOATS:
        # Through float32, as c10::Half is made; a list of numbers is the CPU's, whatever the default device.
        rounded = torch.tensor(values, dtype=torch.float32, device="cpu").to(_FLOATS[cast])
        return bytes(rounded.view(torch.uint8).tolist())
    if cast:
        if cast not in _NUMBERS:
            known = ", ".join([*_FLOATS, *_NUMBERS])
            raise RuntimeError(f"Unsupported cast instruction {cast}; there are {known}.")
        return bytes((_NUMBERS[cast] * len(values))(*map(_whole, values)))
    return bytes(((ctypes.c_float if are_floats else ctypes.c_int64) * len(values))(*values))


def _whole(value: float) -> int:
    """Towards zero, as C++ casts; what it leaves undefined is refused."""
    if isinstance(value, float) and not (math.isfinite(value) and int(value) in _INT32):
        raise RuntimeError(f"arg_casts: {value} has no whole number of 32 bits.")
    return int(value)  # ctypes keeps the lowest bits, as C++ does


#: As type(lib.name).__name__ says on a Mac.
for _kind, _name in ((ShaderLibrary, "_mps_ShaderLibrary"), (MetalKernel, "_mps_MetalKernel")):
    _kind.__module__, _kind.__name__, _kind.__qualname__ = "torch._C", _name, _name
