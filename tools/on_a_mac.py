"""What only a Mac can show, asked in one go: writes every answer into one file, which is all there is to send.

    python3 tools/on_a_mac.py                         about ten minutes; writes on_a_mac.txt
    python3 tools/on_a_mac.py --quick                 without the test suite under Metal's validation
    python3 tools/on_a_mac.py tests/mac/test_pages_given.py  the questions of a file

The questions are the tests of tests/mac.  Each runs in a process of its own, so that a crash is an answer too; so does
each folder of the suite, several at a time.  What they say is in the file as soon as they say it.  In a fresh
checkout the script first builds the package and the frameworks into .venv.  docs/inside/on_a_mac.md says more.
"""

from __future__ import annotations  # macOS has a Python 3.9, which is told below what is missing

import argparse
import concurrent.futures
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
IS_SET_UP = "ON_A_MAC_IS_SET_UP"
NEWEST, OLDEST = 20, 11
#: Metal's validation, and the runtime's words for what no pool holds.
WATCHED = {"MTL_DEBUG_LAYER": "1", "MTL_DEBUG_LAYER_ERROR_MODE": "assert", "MTL_DEBUG_LAYER_WARNING_MODE": "nslog"}
POOLS = {"OBJC_DEBUG_MISSING_POOLS": "YES"}
SUITE_SECONDS = 1800  # for each folder
PACKAGES = ("numpy", "torch", "mlx", "apache-tvm-ffi", "jax", "ml_dtypes", "pyobjc-framework-Metal", "pytest")


# ---- setting up ----


def has_package() -> bool:
    """Whether this Python can import the package, with its C module built."""
    found = importlib.util.find_spec("metal_dlpack")
    folders = found.submodule_search_locations if found is not None else None
    return sys.version_info >= (3, OLDEST) and any(any(Path(folder).glob("_core*.so")) for folder in folders or ())


def find_python() -> str:
    """A Python that the package can be built for."""
    if sys.version_info >= (3, OLDEST):
        return sys.executable
    names = [f"python3.{minor}" for minor in range(NEWEST, OLDEST - 1, -1)]
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        version = platform.python_version()
        sys.exit(f"Python 3.{OLDEST} or later is needed, and this is {version}: install one from python.org.")
    return found


def set_up() -> None:
    """Build into .venv and begin again with its Python, unless this one has the package."""
    if has_package():
        return
    if IS_SET_UP in os.environ:
        sys.exit("metal_dlpack was built, and cannot be found.")
    print(
        "building the package and installing the frameworks into .venv: some minutes, most of them downloads",
        flush=True,
    )
    made = subprocess.run(["make", "build", f"PYTHON={find_python()}", f"VENV={VENV.name}"], cwd=ROOT, check=False)
    if made.returncode != 0:
        sys.exit("The build failed; what it says above is worth sending as well.")
    python = str(VENV / "bin" / "python")
    os.execve(python, [python, *sys.argv], {**os.environ, IS_SET_UP: "1"})


# ---- the file ----


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def output_of(*command: str, **environment: str) -> str:
    environment = {**os.environ, **environment}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def macos_version() -> str:
    """As the system has it, "" on another one.  platform.mac_ver() is told 10.16 by a Python that an old SDK built, and
    so is sw_vers, unless it is asked like this."""
    return output_of("sw_vers", "-productVersion", SYSTEM_VERSION_COMPAT="0") if platform.mac_ver()[0] else ""


def facts() -> dict[str, str]:
    """Which machine, which versions."""
    macos, page = macos_version(), os.sysconf("SC_PAGE_SIZE")
    memory = os.sysconf("SC_PHYS_PAGES") * page / 2**30
    chip = output_of("sysctl", "-n", "machdep.cpu.brand_string") if macos else platform.processor() or "unknown"
    commit = output_of("git", "describe", "--always", "--dirty")
    return {
        "package": f"metal_dlpack {version_of('metal_dlpack')}, commit {commit}",
        "system": f"macOS {macos}" if macos else platform.platform(),
        "machine": f"{platform.machine()}, {chip}, {memory:.0f} GiB, pages of {page} bytes",
        "python": platform.python_version(),
        **{package: version_of(package) for package in PACKAGES},
    }


def without_home(text: str) -> str:
    """The file is sent to others: no folder of the user's is named in it."""
    return text.replace(str(ROOT), "<checkout>").replace(str(Path.home()), "~")


# ---- asking ----

PYTEST = (sys.executable, "-X", "faulthandler", "-m", "pytest", "--rootdir", str(ROOT), "--color=no")


def questions(paths: list[str]) -> list[str]:
    """The names of the tests, as pytest has them."""
    done = subprocess.run(
        [*PYTEST, "-q", "--collect-only", *paths], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return [line for line in done.stdout.splitlines() if "::" in line]


def folders() -> list[str]:
    """The suite, folder by folder, without the questions."""
    found = sorted({path.parent for path in (ROOT / "tests").glob("*/test_*.py")})
    return [str(path.relative_to(ROOT)) for path in found if path.name != "mac"]


class Report:
    """The file, to which several answers are written at a time, line by line."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.lock = threading.Lock()

    def write(self, text: str) -> None:
        with self.lock:
            print(without_home(text), file=self.file, flush=True)


#: The processes that run now, which end with this script.
running: set[subprocess.Popen[str]] = set()


def end(child: subprocess.Popen[str]) -> None:
    """With all that it started.  A child that has ended is still there until it is waited for."""
    if child in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def listen(child: subprocess.Popen[str], seconds: float, report: Report, head: str) -> tuple[bool, str]:
    """Write each line behind `head` as it comes.  Whether the child came to its end in time, and its last line."""
    late, last = threading.Event(), ""

    def stop() -> None:
        late.set()
        end(child)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    for line in child.stdout or ():
        last = line.rstrip() or last
        report.write(f"{head}{line.rstrip()}")
    child.wait()
    timer.cancel()
    return not late.is_set(), last


def ask(name: str, seconds: float, report: Report, *, is_suite: bool = False) -> str:
    """How a test ended: passed, skipped, FAILED, hangs or a signal's name."""
    command = [*PYTEST, "-m", "not long", "-q", name] if is_suite else [*PYTEST, "-q", "-rs", "-s", name]
    environment = {**os.environ, **(WATCHED if is_suite else POOLS), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as child:
        running.add(child)
        try:
            is_in_time, last = listen(child, seconds, report, f"    {name} | " if is_suite else "    ")
        except KeyboardInterrupt:
            end(child)
            raise
        finally:
            running.discard(child)
    if not is_in_time:
        return "hangs"
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name
    return "FAILED" if child.returncode else "skipped" if "skipped" in last and "passed" not in last else "passed"


def answer(name: str, seconds: float, report: Report, *, is_suite: bool = False) -> bool:
    """Ask, and write what came of it.  Whether it is as it should be."""
    started = time.monotonic()
    came = ask(name, seconds, report, is_suite=is_suite)
    head = f"== {name}: {came}, {time.monotonic() - started:.0f} s"
    print(head, flush=True)
    report.write(f"{head}\n")
    return came in ("passed", "skipped")


def answer_suite(names: list[str], report: Report) -> list[bool]:
    """Half as many folders at a time as there are cores: the tests start processes of their own."""
    workers = max(2, (os.cpu_count() or 2) // 2)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        asked = [pool.submit(answer, name, SUITE_SECONDS, report, is_suite=True) for name in names]
        try:
            return [one.result() for one in asked]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in list(running):
                end(child)
            raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["tests/mac"], metavar="PATH", help="default: tests/mac")
    parser.add_argument("--quick", action="store_true", help="without the test suite")
    parser.add_argument("--output", default="on_a_mac.txt", metavar="FILE", help="default: on_a_mac.txt")
    parser.add_argument("--seconds", type=float, default=300, help="for each question; default: 300")
    arguments = parser.parse_args()
    set_up()
    asked = questions(arguments.paths)
    lines = [f"{name:24}{value}" for name, value in facts().items()]
    lines += [f"{'time':24}{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}", ""]
    with open(arguments.output, "w", encoding="utf-8") as file:
        report = Report(file)
        report.write("\n".join(lines))
        good = [answer(name, arguments.seconds, report) for name in asked]  # one by one: some measure
        good += [] if arguments.quick else answer_suite(folders(), report)
    wrong = good.count(False)
    print(f"{len(good)} answers; {wrong} are not as they should be. Send this file: {arguments.output}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
