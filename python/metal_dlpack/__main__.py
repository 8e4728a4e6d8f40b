"""python -m metal_dlpack: the doctor; with an option, where a compiler finds the headers."""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
import sysconfig
from collections.abc import Callable

from . import __version__, get_cmake_dir, get_include, get_pkgconfig_dir


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m metal_dlpack",
        description="What this machine can share: devices, frameworks, and which pairs share "
        "memory, found by sharing. Exits with 1 if a pair that should share does not.",
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    places = parser.add_argument_group("for extension modules; printed instead of the doctor's report")
    places.add_argument("--includes", action="store_true", help="print the -I flags of metal_dlpack.h and Python.h")
    places.add_argument("--cmakedir", action="store_true", help="print the folder for CMake's metal_dlpack_ROOT")
    places.add_argument("--pkgconfigdir", action="store_true", help="print the folder for PKG_CONFIG_PATH")
    options = parser.parse_args(arguments)
    asked: list[tuple[bool, Callable[[], str]]] = [
        (options.version, lambda: __version__),
        (options.includes, include_flags),
        (options.cmakedir, get_cmake_dir),
        (options.pkgconfigdir, get_pkgconfig_dir),
    ]
    lines = [find() for is_asked, find in asked if is_asked]
    if lines:
        print("\n".join(lines))
        return 0
    return show_findings(options.json)


def include_flags() -> str:
    folders = [sysconfig.get_path("include"), sysconfig.get_path("platinclude"), get_include()]
    return " ".join(shlex.quote(f"-I{folder}") for folder in dict.fromkeys(folders))


def show_findings(as_json: bool) -> int:
    from .asking.doctor import examine, report  # takes longer than all the rest

    if isinstance(sys.stdout, io.TextIOWrapper):  # a framework's error may have any character
        sys.stdout.reconfigure(errors="backslashreplace")
    if not as_json:
        return 0 if report(sys.stdout) else 1
    facts = examine()
    print(json.dumps(facts, indent=2))
    return 0 if facts["ok"] else 1


if __name__ == "__main__":
    from dlpack_conformance.command_line import run

    run(main, "python -m metal_dlpack")
