"""Programs with torch's mps switched on: python -m metal_dlpack.softmetal, and the pytest plugin's --softmetal-torch.

Mps is switched on when torch is imported: a program without torch pays nothing.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType, TracebackType
    from typing import Any

USAGE = "usage: python -m metal_dlpack.softmetal [--torch] (SCRIPT | -m MODULE) [ARGUMENT ...]"


# ---- when torch is imported ----


class _Loader(importlib.abc.Loader):
    """Torch's own, and what comes after it."""

    def __init__(self, own: Any, then: Callable[[], object]) -> None:
        self.own, self.then = own, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.then()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, then: Callable[[], object]) -> None:
        self.then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self.then)
                return spec
        return None


def when_torch_is_imported(then: Callable[[], object]) -> Callable[[], None]:
    """Call `then` once torch is imported, at once if it is; the function that is returned takes that back."""
    if "torch" in sys.modules:
        then()
        return lambda: None
    finder = _Finder(then)
    sys.meta_path.insert(0, finder)

    def forget() -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)

    return forget


# ---- a program ----


def main(arguments: list[str]) -> int | None:
    """Run a script or a module as Python does; None: it has run."""
    arguments = arguments[1:] if arguments[:1] == ["--torch"] else arguments  # what there is to switch on
    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0].startswith("-"):
        print(USAGE, file=sys.stdout if "--help" in program[:1] else sys.stderr)
        return 0 if "--help" in program[:1] else 2
    if not is_module and not os.path.exists(program[0]):
        print(f"{sys.executable}: can't open file {os.path.abspath(program[0])!r}: no such file", file=sys.stderr)
        return 2
    if sys.platform != "darwin":  # torch has its own there
        when_torch_is_imported(_switch_on)
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


def _switch_on() -> None:
    from . import switch_on

    switch_on()


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
