"""What only a Mac can show, asked in one go: writes every answer into one file, which is all there is to send.

    python3 tools/on_a_mac.py                 about ten minutes; writes on_a_mac.txt
    python3 tools/on_a_mac.py --quick         without the test suite
    python3 tools/on_a_mac.py --only handles  the questions whose name holds the word

In a fresh checkout it first builds the package and the frameworks into .venv.  Each question runs in a process of its
own, so that a crash is an answer too.  Elsewhere than on a Mac the script runs as well, and says what it leaves out and
why.  docs/inside/on_a_mac.md says what each answer should be.
"""

from __future__ import annotations  # macOS has a Python 3.9, which is told below what is missing

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = ROOT / "tests" / "support"
VENV = ROOT / ".venv"
IS_SET_UP = "ON_A_MAC_IS_SET_UP"
NEWEST, OLDEST = 20, 11
VERDICTS = ("as expected", "DIFFERS", "look", "skipped")
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


def line_of(asked, got) -> str:
    """One line for a question; what was skipped says why."""
    reason = f": {got.text.splitlines()[-1]}" if got.verdict == "skipped" else ""
    return f"{got.verdict:12} {got.seconds:6.1f} s  {asked.name}{reason}"


def report_of(known: dict[str, str], answers: list, seconds: float, left: int) -> str:
    """The text of the file: facts, then a line for each question, then the answers."""
    counts = {verdict: sum(got.verdict == verdict for _, got in answers) for verdict in VERDICTS}
    lines = ["What a Mac shows of metal_dlpack", ""]
    lines += [f"{name:24}{value}" for name, value in known.items()]
    lines += [f"{'time':24}{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {seconds:.0f} s", ""]
    lines += [", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
    lines += [f"STOPPED EARLY: {left} questions were not asked"] if left else []
    lines += ["", *(line_of(asked, got) for asked, got in answers)]
    for asked, got in answers:
        lines += ["", f"== {asked.name}: {got.verdict}", f"    expected: {asked.expected}"]
        lines += [textwrap.indent(got.text.strip(), "    ")]
    return without_home("\n".join(lines)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the test suite")
    parser.add_argument("--only", default="", metavar="WORD", help="questions whose name holds this word")
    parser.add_argument("--output", default="on_a_mac.txt", metavar="FILE", help="default: on_a_mac.txt")
    parser.add_argument("--large", metavar="BYTES", help="the large copy; default: 4 GiB + 4, where memory allows")
    arguments = parser.parse_args()
    set_up()
    sys.path.append(str(SUPPORT))
    import mac_questions

    if arguments.large:
        os.environ["ON_A_MAC_LARGE"] = arguments.large
    chosen = [item for item in mac_questions.QUESTIONS if arguments.only in item.name]
    if not chosen:
        parser.error(
            f"no question's name holds {arguments.only!r}: " + ", ".join(q.name for q in mac_questions.QUESTIONS)
        )
    known, answers, started = facts(), [], time.monotonic()
    output = Path(arguments.output)
    for asked in chosen:
        try:
            got = mac_questions.answer(asked, is_quick=arguments.quick)
        except KeyboardInterrupt:
            break
        answers.append((asked, got))
        print(line_of(asked, got), flush=True)
        seconds = time.monotonic() - started
        output.write_text(report_of(known, answers, seconds, len(chosen) - len(answers)))
    differs = sum(got.verdict == "DIFFERS" for _, got in answers)
    print(f"{len(answers)} answers; {differs} differ. Send this file: {output}")
    return 1 if differs or len(answers) < len(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
