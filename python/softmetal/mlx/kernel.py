"""A custom MLX kernel: what mx.fast.metal_kernel returns, and what a call of it does.

MLX's own kernel object, which cannot run here, checks the arguments of each call, so that errors are MLX's own.
"""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

from metal_dlpack import _core
from metal_dlpack.compile_errors import CompileError
from metal_dlpack.language.scalars import SCALARS
from metal_dlpack.language.tokens import Tokens, Unbalanced

from .answers import is_cpu
from .generated import FEWEST_IN_DEVICE, Input, generated, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .generated import Generated, Written

#: What MLX puts in front of every kernel, from the headers in its wheel.
_MLX_HEADERS = '#include <metal_stdlib>\n#include "mlx/backend/metal/kernels/utils.h"\n'
#: The CPU's allocations of MLX lie at multiples of 8, Metal's at multiples of a page; vectors want more than 8.
VECTOR_NBYTES = 16
VECTORS = re.compile(rf"\b(?:{'|'.join(SCALARS)})[234](?:x[234])?\b|\bvec\b|\balignas\b")
#: What a kernel asks that counts on the size of its threadgroups, which it does not ask.
THREADGROUPS = re.compile(r"\b(?:thread\w*_in_threadgroup|threadgroup_position_in_grid)\b")
#: What MLX says of an array that stands for values to come.
_NO_VALUES = "[eval] Attempting to eval an array during function transformations"
#: What MLX says of right arguments where there is no Metal.
_NO_METAL = "[metal_kernel] No Metal back-end."


class BuildError(CompileError, RuntimeError):
    """A kernel does not compile: a RuntimeError, as MLX raises, with the places of a CompileError."""


def entry_point(mx: Any, is_checked: Callable[[], bool]) -> Callable[..., Kernel]:
    """The function that stands for mx.fast.metal_kernel; `is_checked` says whether a kernel that is made now is."""
    usual = mx.fast.metal_kernel

    def metal_kernel(
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        compile_options: dict[str, str] | None = None,
    ) -> Kernel:
        own = usual(
            name, input_names, output_names, source, header, ensure_row_contiguous, atomic_outputs, compile_options
        )
        parts = written(name, input_names, output_names, source, header, atomic_outputs)
        kernel = Kernel(mx, own, parts, is_checked)
        kernel.is_made_contiguous = ensure_row_contiguous
        kernel.math = (compile_options or {}).get("math_mode", "safe")
        return kernel

    metal_kernel.__doc__ = usual.__doc__
    return metal_kernel


class Kernel:
    """A kernel of mx.fast.metal_kernel's; call it with keywords as MLX's.  Any thread may."""

    is_made_contiguous = True  # each input whose items do not follow one another
    math = "safe"

    def __init__(self, mx: Any, own: Any, parts: Written, is_checked: Callable[[], bool]) -> None:
        self._mx = mx
        self._own = own  # MLX's kernel object
        self._written = parts
        self._is_checked = is_checked  # a setting, which can change between two calls
        self._has_threadgroups = THREADGROUPS.search(parts.header + parts.source) is not None
        self._has_vectors = VECTORS.search(parts.header + parts.source) is not None
        self._compiled: dict[Any, Any] = {}  # _core.Kernel, by what the source depends on and by whether it is checked

    def __repr__(self) -> str:
        return f"<mx.fast.metal_kernel {self._written.name!r} on the software Metal>"

    def __call__(
        self,
        *,
        inputs: Sequence[Any],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, Any]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: Any = None,
    ) -> list[Any]:
        """Run the kernel, wait for it, and return its outputs as a list of mx.array.

        Parameters, errors and the generated source are those of MLX's kernel.  Unlike there, the inputs are evaluated
        at the call.  They are shared, unless the source has vectors, which want an alignment that MLX's memory on the
        CPU has not: then they are copied.  Each output is copied once, into MLX's memory.  An output without init_value
        begins as NaN, or as the type's largest integer, where on a Mac it holds old bytes.

        Raises MLX's own ValueError and TypeError of wrong arguments, BuildError (a RuntimeError and a CompileError) for
        a source that does not compile, and MetalError if the kernel failed or was found wrong by the checker.
        """
        mx = self._mx
        arguments = {
            "inputs": inputs,
            "output_shapes": output_shapes,
            "output_dtypes": output_dtypes,
            "grid": grid,
            "threadgroup": threadgroup,
            "template": template,
            "init_value": init_value,
            "verbose": verbose,
            "stream": None if isinstance(stream, _kinds_of_stream(mx)) else stream,
        }
        try:
            return list(self._own(**arguments))  # while a function is exported, MLX takes the kernel into the graph
        except RuntimeError as error:
            if str(error) != _NO_METAL:
                raise
        if is_cpu(mx, stream):
            raise ValueError("[metal_kernel] Only supports the GPU.")
        arrays = [x if isinstance(x, mx.array) else mx.array(x) for x in inputs]
        variant = (
            tuple(Input(x.dtype, x.ndim == 0, x.size < FEWEST_IN_DEVICE) for x in arrays),
            tuple(output_dtypes),
            tuple((name, value, type(value)) for name, value in template or ()),
            self._is_checked(),
        )
        if verbose:
            text = self._generated(variant).text
            print(f"Generated source code for `{self._written.name}`:\n```\n{text}\n```")
        _evaluate(mx, arrays)
        outputs = self._run(variant, arrays, output_shapes, init_value, (grid, threadgroup))
        return _tied(mx, outputs, arrays)

    def _run(
        self,
        variant: tuple[Any, ...],
        arrays: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        init_value: float | None,
        grid: tuple[Sequence[int], Sequence[int]],
    ) -> list[Any]:
        kernel = self._compiled.get(variant)
        if kernel is None:
            kernel = self._compiled[variant] = self._compile(variant)
        values = []
        for x, facts in zip(arrays, self._written.facts, strict=True):
            values += self._values(x, facts)
        outputs = [
            _core.full(tuple(shape), _first_value(self._mx, dtype, init_value), dtype=_dtype_name(dtype))
            for shape, dtype in zip(shapes, variant[1], strict=True)
        ]
        if init_value is None:  # what begins each is none of the caller's values
            for one in outputs:
                _core._softmetal_unwritten(one)
        if self._has_threadgroups:
            _advise_on_cut(kernel, *grid)
        _launch(kernel, (*values, *outputs), *grid)
        return [self._mx.from_dlpack(_OnCpu(one)) for one in outputs]

    def _values(self, x: Any, facts: Sequence[str]) -> list[Any]:
        """What is bound for an input: its items, and what the source asks about them."""
        items = _core.from_dlpack(x)
        if self.is_made_contiguous and not _is_row_contiguous(items):
            items = _core.from_dlpack(self._mx.contiguous(x))
        is_misplaced = items.size < FEWEST_IN_DEVICE and items.byte_offset % 4  # for constant memory; MLX does not ask
        if is_misplaced or (self._has_vectors and items.byte_offset % VECTOR_NBYTES and _is_row_contiguous(items)):
            items = items.copy()
        if items.ndim == 0:
            return [items]
        asked = {"shape": (items.shape, "int32"), "strides": (items.strides, "int64")}
        return [items, *(items.ndim if what == "ndim" else _numbers(*asked[what]) for what in facts)]

    # ---- the source ----

    def _generated(self, variant: tuple[Any, ...]) -> Generated:
        inputs, output_dtypes, template, _ = variant
        return generated(self._written, inputs, output_dtypes, [(name, value) for name, value, _ in template])

    def _compile(self, variant: tuple[Any, ...]) -> Any:
        parts = self._generated(variant)
        include = Path(self._mx.__file__).parent / "include"
        text = _with_places(self._written.name, parts)
        # Without a Mac the modes of arithmetic are one, but a source can ask which it is.
        defines = {"__FAST_MATH__": 1} if self.math == "fast" else None
        try:
            library = _core.Library(text, include=include, defines=defines)
            return library[parts.function]
        except CompileError as error:
            raise _as_mlx_raises(_said_of_the_user(error, self._written.name, parts, include)) from None


def _with_places(name: str, parts: Generated) -> str:
    """The text for the compiler, whose messages name the lines of the user's own files where they are known."""
    from softmetal.report import with_lines

    header, source = (with_lines(text) for text in (parts.header, parts.source))
    return "".join(
        (
            _MLX_HEADERS,
            f'#line 1 "kernel {name} (header)"\n',
            header,
            parts.opening,
            f'#line 1 "kernel {name} (generated)"\n',
            parts.parameters,
            f'#line 1 "kernel {name}"\n',
            source,
            f'\n#line 1 "kernel {name} (generated)"',
            parts.closing,
        )
    )


def _said_of_the_user(error: CompileError, name: str, parts: Generated, include: Path) -> CompileError:
    """The error, unless it is about MLX's headers: a bracket that is missing behind them confuses the compiler."""
    if not (error.filename or "").startswith(str(include)):
        return error
    if parts.parameters.count(") {\n") > 1:
        words = (
            "MLX ends the signature before its last output if the source names _shape, _strides or _ndim and no "
            "attribute, on a Mac too; name one, as in `(void)thread_position_in_grid;`"
        )
        return CompileError(words, (f"kernel {name} (generated)", 1, None, None))
    for place, text in (("", parts.source), (" (header)", parts.header)):
        try:
            Tokens.of(text)
        except Unbalanced:
            return CompileError("a bracket has no partner", (f"kernel {name}{place}", 1, None, None))
    return error


def _as_mlx_raises(error: CompileError) -> BuildError:
    raised = BuildError(*error.args)
    raised.__dict__.update(error.__dict__)  # its diagnostics and notes
    return raised


# ---- a call's values ----


def _kinds_of_stream(mx: Any) -> tuple[type, ...]:
    return (mx.Device, mx.DeviceType, mx.Stream, *((mx.ThreadLocalStream,) if hasattr(mx, "ThreadLocalStream") else ()))


_numbers_made: dict[tuple[Any, ...], Any] = {}


def _numbers(numbers: tuple[int, ...], dtype: str) -> Any:
    """An Array of a shape or of strides; kernels read it alone, so that it is made once."""
    made = _numbers_made.get((numbers, dtype))
    if made is None:
        if len(_numbers_made) > 1000:
            _numbers_made.clear()
        made = _numbers_made[numbers, dtype] = _core.asarray(list(numbers), dtype=dtype)
    return made


def _is_row_contiguous(items: Any) -> bool:
    expected = 1
    for extent, stride in zip(reversed(items.shape), reversed(items.strides), strict=True):
        if extent != 1 and stride != expected:
            return bool(items.size == 0)
        expected *= extent
    return True


def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2].rstrip("_")


def _first_value(mx: Any, dtype: Any, init_value: float | None) -> Any:
    """What an output holds before the kernel runs: init_value as MLX converts it, or what no kernel would write."""
    if init_value is not None:
        return mx.array(init_value, dtype).item()
    if mx.issubdtype(dtype, mx.inexact):
        return float("nan")
    return True if dtype == mx.bool_ else mx.iinfo(dtype).max


def _evaluate(mx: Any, arrays: list[Any]) -> None:
    try:
        mx.eval(arrays)
    except ValueError as error:
        if not str(error).startswith(_NO_VALUES):
            raise
        raise ValueError(
            "[Primitive::vmap] Not implemented for CustomKernel. Its inputs have no values while mx.vmap, or an "
            "mx.compile from before softmetal.mlx_kernels(), traces a function."
        ) from None


def _tied(mx: Any, outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """The outputs as a function of the inputs, which MLX's transformations refuse as they refuse its own kernels.

    Without that the gradient of a kernel would be 0.
    """
    if not inputs:
        return outputs

    def refuses(transformation: str) -> Callable[..., Any]:
        def refuse(*_: Any) -> Any:
            raise ValueError(
                f"[Primitive::{transformation}] Not implemented for CustomKernel. "
                "Call the kernel in a function of mx.custom_function that has its own vjp or jvp."
            )

        return refuse

    run = mx.custom_function(lambda *_: outputs)
    for transformation in ("vjp", "jvp", "vmap"):
        getattr(run, transformation)(refuses(transformation))
    return list(run(*inputs))


def _advise_on_cut(kernel: Any, grid: Sequence[int], threadgroup: Sequence[int]) -> None:
    """SOURCE https://github.com/ml-explore/mlx/issues/4534"""
    recording = sys.modules.get("softmetal.report.recording")
    if recording is not None and any(0 < extent < wanted for wanted, extent in zip(threadgroup, grid, strict=True)):
        asked, cut = (str(tuple(one)).replace(" ", "") for one in (threadgroup, map(min, threadgroup, grid)))
        words = (
            f"MLX cuts the threadgroup {asked} to {cut}, for its grid counts threads: the kernel has no more of them"
        )
        recording.advise(kernel.name, "clipped-threadgroup", words)


_threads = threading.local()


def _launch(kernel: Any, values: Sequence[Any], grid: Sequence[int], threadgroup: Sequence[int]) -> None:
    """Run the kernel by MLX's rules: a threadgroup larger than the grid is clipped, after its size was checked."""
    size = threadgroup[0] * threadgroup[1] * threadgroup[2]
    if size > kernel.max_total_threads:
        raise ValueError(
            f"Thread group size ({size}) is greater than  the maximum allowed threads per threadgroup "
            f"({kernel.max_total_threads})."
        )
    stream = getattr(_threads, "stream", None)  # one for each thread, so that errors are raised where they belong
    if stream is None:
        stream = _threads.stream = _core.Stream()
    group = tuple(min(wanted, extent or 1) for wanted, extent in zip(threadgroup, grid, strict=True))
    kernel(*values, threads=tuple(grid), group=group, strides="ignore", stream=stream)
    stream.synchronize()


class _OnCpu:
    """An Array as the CPU's memory: what MLX imports where it has no Metal."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **asked: Any) -> Any:
        return self._array.__dlpack__(**{**asked, "dl_device": (1, 0)})
