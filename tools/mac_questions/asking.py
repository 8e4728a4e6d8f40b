"""What a question is, how it is asked in a process of its own, and what the end of that process means.

A question is a function.  It proves what it expects with `check`, and returns; it raises Skipped where it cannot be
asked.  Whatever it prints is in the answer.  So "as expected" means: it ran to its end, and every check held.
"""

import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parent.parent
ROOT = TOOLS.parent
SUPPORT = ROOT / "tests" / "support"
IS_MAC = sys.platform == "darwin"

#: The exit codes of a child; any other is a crash.
EXPECTED, DIFFERS, SKIPPED = 0, 1, 77
SECONDS = 300
LINES = 80


class Skipped(Exception):
    """The question cannot be asked here; the text is the reason."""


class Differs(Exception):
    """The answer is another than expected."""


@dataclass(frozen=True)
class Question:
    name: str
    expected: str
    ask: Callable[[], None]
    needs_mac: bool = False
    is_long: bool = False
    is_for_people: bool = False  # a person judges what it prints
    seconds: int = SECONDS
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    verdict: str  # "as expected", "DIFFERS", "look" (a person judges) or "skipped"
    text: str
    seconds: float = 0.0


QUESTIONS: list[Question] = []


def question(name: str, expected: str, **options):
    """Add a function to QUESTIONS, under a name that `--only` finds."""

    def add(ask: Callable[[], None]) -> Callable[[], None]:
        QUESTIONS.append(Question(name, expected, ask, **options))
        return ask

    return add


# ---- in the child ----


def check(is_good: object, what: str) -> None:
    """Like assert, and kept by `python -O`."""
    if not is_good:
        raise Differs(what)


def prove_shared(what: str, write: Callable[[float], object], read: Callable[[], float]) -> None:
    """A write on one side is seen on the other, twice: whatever was there before is told from it."""
    for value in (5, 7):
        write(value)
        seen = read()
        check(seen == value, f"{what}: {value} was written, and the other side reads {seen}: not the same memory")
    print(f"{what}: shared, a write is seen on the other side", flush=True)


def attempt(what: str, call: Callable[[], object]) -> None:
    """Print what came of it, for a person to judge.  It proves nothing."""
    try:
        print(f"{what}: {call()}", flush=True)
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", flush=True)


def need(name: str, package: str = "") -> ModuleType:
    """The module; Skipped with the reason where it is missing or broken."""
    package = package or name
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in (name, name.partition(".")[0]):
            raise Skipped(f"{package} is not installed") from None
        raise Skipped(f"{package} cannot be imported: {error}") from None
    except ImportError as error:
        raise Skipped(f"{package} cannot be imported: {error}") from None


def call(command: list[object], **environment: str) -> tuple[int, str]:
    """The exit code and the output of a command; Skipped where there is no such command."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
            env={**os.environ, **environment},
            check=False,
        )
    except FileNotFoundError:
        raise Skipped(f"{command[0]} is not installed") from None
    return done.returncode, done.stdout.strip()


@contextmanager
def stderr_lines():
    """A list that has, after the block, all that this process wrote to its stderr: the runtime's words too."""
    import tempfile

    lines: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def footprint() -> int:
    """The bytes of memory that this process has, as Activity Monitor counts them."""
    import ctypes

    if not IS_MAC:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    usage = (ctypes.c_uint64 * 64)()  # SPEC sys/resource.h rusage_info_v0: ri_phys_footprint is its tenth word
    check(ctypes.CDLL(None).proc_pid_rusage(os.getpid(), 0, usage) == 0, "proc_pid_rusage")
    return usage[9]


def run_question(name: str) -> int:
    """Ask one question in this process; the exit code that tells what came of it."""
    asked = next(item for item in QUESTIONS if item.name == name)
    from metal_dlpack import softmetal

    try:
        asked.ask()
        if softmetal.is_present():
            check(softmetal.reports() == 0, f"the software Metal's validation says: {softmetal.last_report()}")
    except Skipped as reason:
        print(reason, flush=True)
        return SKIPPED
    except Differs as found:
        print(f"DIFFERS: {found}", flush=True)
        return DIFFERS
    except BaseException:  # a SystemExit too: the question did not come to its end
        traceback.print_exc()
        return DIFFERS
    return EXPECTED


# ---- in the parent ----


def run_child(asked: Question) -> tuple[int, str]:
    """The exit code and the output of the child that asks; it and its children end with the time."""
    paths = [str(SUPPORT), str(TOOLS), *sys.path]
    command = [sys.executable, "-X", "faulthandler", "-m", "mac_questions", asked.name]
    given = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "SOFTMETAL_VALIDATION": "1", **asked.environment}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
        env={**os.environ, **given},
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=asked.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        return DIFFERS, f"{output}\nhangs: stopped after {asked.seconds} s"
    except KeyboardInterrupt:  # the child has a session of its own, and did not hear it
        os.killpg(child.pid, signal.SIGKILL)
        raise
    return child.returncode, output


def verdict_of(asked: Question, code: int) -> str:
    if code == SKIPPED:
        return "skipped"
    if code != EXPECTED:
        return "DIFFERS"
    return "look" if asked.is_for_people else "as expected"


def answer(asked: Question, *, is_quick: bool = False) -> Answer:
    """Ask in a child, so that a crash is an answer too."""
    if asked.needs_mac and not IS_MAC:
        return Answer("skipped", f"needs a Mac; this is {sys.platform}")
    if asked.is_long and is_quick:
        return Answer("skipped", "--quick")
    started = time.monotonic()
    code, output = run_child(asked)
    seconds = time.monotonic() - started
    lines = output.strip().splitlines()
    left_out = [f"({len(lines) - LINES} lines before)"] if len(lines) > LINES else []
    text = "\n".join([*left_out, *lines[-LINES:]])
    if code not in (EXPECTED, DIFFERS, SKIPPED):
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        text += f"\nthe process ended by {how}"
    return Answer(verdict_of(asked, code), text, seconds)
