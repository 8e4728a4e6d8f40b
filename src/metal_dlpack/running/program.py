"""python -m metal_dlpack.softmetal: a script or a module, run as Python runs it."""

from __future__ import annotations

import os
import runpy
import sys
import types

from . import check_kernels, switch_on_when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType

USAGE = "usage: python -m metal_dlpack.softmetal [--torch] [--check] (SCRIPT | -m MODULE) [ARGUMENT ...]"
#: Before the program's name; all behind it is the program's.
FLAGS = {"--torch", "--check"}


def main(arguments: list[str]) -> int | None:
    """Run a script or a module as Python does; None: it has run."""
    flags = set()
    while arguments[:1] and arguments[0] in FLAGS:
        flags.add(arguments[0])  # --torch is what there always is
        arguments = arguments[1:]
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0].startswith("-"):
        print(USAGE, file=sys.stdout if "--help" in program[:1] else sys.stderr)
        return 0 if "--help" in program[:1] else 2
    if not is_module and not os.path.exists(program[0]):
        print(f"{sys.executable}: can't open file {os.path.abspath(program[0])!r}: no such file", file=sys.stderr)
        return 2
    if "--check" in flags:
        check_kernels()
    switch_on_when_imported()
    sys.argv[:] = program
    module = sys.modules["__main__"] = types.ModuleType("__main__")  # until the process ends, as exit handlers expect
    try:
        if is_module:
            # What Python itself calls; run_module puts __main__ back.
            runpy._run_module_as_main(program[0])  # type: ignore[attr-defined]
        else:
            _run_script(program[0], module)
    except BaseException as error:
        _show_without_us(error)
        raise
    return None


def _run_script(path: str, module: ModuleType) -> None:
    if os.path.isdir(path) or path.endswith(".pyz"):
        runpy.run_path(path, run_name="__main__")
        return
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    module.__dict__.update(__file__=path, __builtins__=__builtins__)
    exec(code, module.__dict__)


def _show_without_us(error: BaseException) -> None:
    """What Python writes of an error begins with the program's own lines."""
    begin = place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code.co_filename == __file__:
            begin = place.tb_next
        place = place.tb_next
    show = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if value is error:
            traceback, value.__traceback__ = begin, begin
        show(kind, value, traceback)

    sys.excepthook = hook
