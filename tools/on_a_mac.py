"""What only a Mac can show, asked in one go: writes every answer into one file, which is all there is to send.

    python3 tools/on_a_mac.py                         about ten minutes; writes on_a_mac.txt
    python3 tools/on_a_mac.py --quick                 without the test suite under Metal's validation
    python3 tools/on_a_mac.py tests/mac/test_pages_given.py  the questions of a file

The questions are the tests of tests/mac.  Each runs in a process of its own, so that a crash is an answer too.  In a
fresh checkout the script first builds the package and the frameworks into .venv.  docs/inside/on_a_mac.md says more.
"""

from __future__ import annotations  # macOS has a Python 3.9, which is told below what is missing

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
IS_SET_UP = "ON_A_MAC_IS_SET_UP"
NEWEST, OLDEST = 20, 11
#: Metal's validation, and the runtime's words for what no pool holds.
WATCHED = {"MTL_DEBUG_LAYER": "1", "MTL_DEBUG_LAYER_ERROR_MODE": "assert", "MTL_DEBUG_LAYER_WARNING_MODE": "nslog"}
POOLS = {"OBJC_DEBUG_MISSING_POOLS": "YES"}
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
    made = subprocess.run(["make", "build", f"PYTHON={find_python()}", f"VENV={VENV}"], cwd=ROOT, check=False)
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


def output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def facts() -> dict[str, str]:
    """Which machine, which versions."""
    macos, page = platform.mac_ver()[0], os.sysconf("SC_PAGE_SIZE")
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


def ask(name: str, seconds: float, *, is_suite: bool = False) -> tuple[str, str]:
    """How a test ended: passed, skipped, FAILED, hangs or a signal's name; and all that it said."""
    command = [*PYTEST, "-m", "not long", "-q", name] if is_suite else [*PYTEST, "-q", "-rs", "-s", name]
    environment = {**os.environ, **(WATCHED if is_suite else POOLS)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # it ends with all that it started
    ) as child:
        try:
            said, _ = child.communicate(timeout=seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
            os.killpg(child.pid, signal.SIGKILL)
            if isinstance(why, KeyboardInterrupt):
                raise
            return "hangs", child.communicate()[0]
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name, said
    last = said.rstrip().rpartition("\n")[2]
    return "FAILED" if child.returncode else "skipped" if "skipped" in last and "passed" not in last else "passed", said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["tests/mac"], metavar="PATH", help="default: tests/mac")
    parser.add_argument("--quick", action="store_true", help="without the test suite")
    parser.add_argument("--output", default="on_a_mac.txt", metavar="FILE", help="default: on_a_mac.txt")
    parser.add_argument("--seconds", type=float, default=300, help="for each question; default: 300")
    arguments = parser.parse_args()
    set_up()
    asked = [(name, arguments.seconds, False) for name in questions(arguments.paths)]
    asked += [] if arguments.quick else [("tests", 3600, True)]
    lines = [f"{name:24}{value}" for name, value in facts().items()]
    lines += [f"{'time':24}{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}", ""]
    wrong = 0
    with open(arguments.output, "w", encoding="utf-8") as file:
        print(without_home("\n".join(lines)), file=file, flush=True)
        for name, seconds, is_suite in asked:
            started = time.monotonic()
            end, said = ask(name, seconds, is_suite=is_suite)
            wrong += end not in ("passed", "skipped")
            head = f"== {name}: {end}, {time.monotonic() - started:.0f} s"
            print(head, flush=True)
            text = "\n".join(said.strip().splitlines()[-100:])
            print(without_home(f"{head}\n{textwrap.indent(text, '    ')}\n"), file=file, flush=True)
    print(f"{len(asked)} answers; {wrong} are not as they should be. Send this file: {arguments.output}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
