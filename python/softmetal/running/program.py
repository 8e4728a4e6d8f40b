"""python -m softmetal: a script or a module, run as Python runs it."""

from __future__ import annotations

import os
import runpy
import sys
import types

import _metal_dlpack_start

from . import check_kernels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType, TracebackType

    from .reporting import Reporting

USAGE = """\
usage: softmetal [OPTION ...] (SCRIPT | -m MODULE) [ARGUMENT ...]

  --torch          torch's mps device computes; it does so without this too
  --check          look at each access of each kernel; at the end say what was found, and exit with 1
  --report FILE    --check, and write what ran and what was found: FILE.html, FILE.json or FILE.sarif
  --strict         --check, and exit with 2 if no kernel was launched
  --benign FILE    findings that are meant so: a line for each, KERNEL:LINE REASON
  --count          at the end, what the first launch of each kernel did to memory; not with those above"""
#: Before the program's name; all behind it is the program's.
FLAGS = {"--torch", "--check", "--strict", "--count"}
WITH_VALUE = {"--report", "--benign"}


class _Options:
    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.values: dict[str, list[str]] = {name: [] for name in WITH_VALUE}

    def take_from(self, arguments: list[str]) -> list[str] | None:
        """What is left: the program's; None: an option lacks its value."""
        rest = list(arguments)
        while rest:
            name, equals, value = rest[0].partition("=")
            if rest[0] in FLAGS:
                self.flags.add(rest.pop(0))
            elif name in WITH_VALUE and equals:
                self.values[name].append(value)
                rest.pop(0)
            elif name in WITH_VALUE:
                if len(rest) < 2:
                    return None
                self.values[name].append(rest[1])
                del rest[:2]
            else:
                break
        return rest

    @property
    def checks(self) -> bool:
        return bool(self.flags & {"--check", "--strict"}) or any(self.values.values())


def main(arguments: list[str]) -> int | None:
    """Run a script or a module as Python does; None: it has run."""
    options = _Options()
    rest = options.take_from(arguments)
    is_module = rest is not None and rest[:1] == ["-m"]
    program = rest[1:] if rest and is_module else rest
    if not program or program[0].startswith("-"):
        print(USAGE, file=sys.stdout if program and "--help" in program[:1] else sys.stderr)
        return 0 if program and "--help" in program[:1] else 2
    if not is_module and not os.path.exists(program[0]):
        print(f"{sys.executable}: can't open file {os.path.abspath(program[0])!r}: no such file", file=sys.stderr)
        return 2
    reporting = None
    if options.checks and (reporting := _begun(options)) is None:
        return 2
    if "--count" in options.flags and not _begins_to_count(options):
        return 2
    if sys.platform != "darwin":
        os.environ.update(_metal_dlpack_start.variables_of(_metal_dlpack_start.SWITCHES))
        _metal_dlpack_start.start()
    sys.argv[:] = program
    module = sys.modules["__main__"] = types.ModuleType("__main__")  # until the process ends, as exit handlers expect
    try:
        if is_module:
            # What Python itself calls; run_module puts __main__ back.
            runpy._run_module_as_main(program[0])  # type: ignore[attr-defined]
        else:
            _run_script(program[0], module)
    except BaseException as error:
        if reporting is not None:
            reporting.status = _status_of(error)
        _show_without_us(error)
        raise
    return None


def _begun(options: _Options) -> Reporting | None:
    """None: it cannot be done, and stderr says why."""
    if sys.platform == "darwin":
        print(
            "--check, --strict, --report and --benign need the software Metal; on a Mac kernels run on its GPU.",
            file=sys.stderr,
        )
        return None
    from . import reporting

    paths = options.values["--report"]
    if (why := reporting.refusal(paths, options.values["--benign"])) is not None:
        print(why, file=sys.stderr)
        return None
    check_kernels()
    begun = reporting.Reporting(paths, is_strict="--strict" in options.flags)
    begun.begin()
    return begun


def _begins_to_count(options: _Options) -> bool:
    """False: it cannot be done, and stderr says why."""
    if sys.platform == "darwin" or options.checks:
        why = "needs the software Metal" if sys.platform == "darwin" else "and --check are two runs"
        print(f"--count {why}: a launch is counted, or checked.", file=sys.stderr)
        return False
    import atexit

    from softmetal import counting

    counted = counting.install()
    atexit.register(lambda: print(*counted.stop(), sep="\n\n", file=sys.stderr))
    return True


def _status_of(error: BaseException) -> int:
    """As Python exits for it; whatever is not 0 is the program's own."""
    if not isinstance(error, SystemExit):
        return 1
    return 0 if error.code is None or error.code == 0 else 1


def _run_script(path: str, module: ModuleType) -> None:
    if os.path.isdir(path) or path.endswith(".pyz"):
        runpy.run_path(path, run_name="__main__")
        return
    path = os.path.abspath(path)  # as Python's __file__
    sys.path[0] = os.path.dirname(path)
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
