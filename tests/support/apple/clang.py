"""clang for macOS, out of the ziglang package: it carries Apple's libc and libobjc headers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

from places import SRC

SOFTMETAL = SRC / "softmetal"
#: What the bridge uses of Apple's frameworks and softmetal has not: declarations alone.
INCLUDE = Path(__file__).with_name("include")

#: As setup.py has it: the oldest macOS that the package is for.
MACOS = "14.0"


def zig_lib() -> Path:
    spec = importlib.util.find_spec("ziglang")
    return Path(spec.origin).parent / "lib"


def command() -> list[str]:
    system = [zig_lib() / "include", zig_lib() / "libc" / "include" / "any-darwin-any"]
    return [
        *(sys.executable, "-m", "ziglang", "clang", "-target", f"arm64-apple-macosx{MACOS}"),
        *("-nostdinc", "-fblocks", "-fno-objc-arc", "-std=gnu11"),
        *(part for folder in system for part in ("-isystem", str(folder))),
    ]


def run(arguments: list[str]) -> str:
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, arguments[-8:]))}\n{done.stderr}"
    return done.stdout


def compile_object(source: Path, target: Path, *extra) -> None:
    run([*command(), *extra, "-c", source, "-o", target])


def syntax_tree(source: Path, *extra) -> dict:
    return json.loads(run([*command(), *extra, "-fsyntax-only", "-Xclang", "-ast-dump=json", source]))


def link_module(objects: list[Path], target: Path, *extra) -> None:
    """A dylib as setup.py links it, but what Python, Metal and Foundation define is left to the loader."""
    run(
        [
            *(sys.executable, "-m", "ziglang", "cc", "-target", f"aarch64-macos.{MACOS}"),
            *("-O2", "-fno-sanitize=all", "-shared", "-undefined", "dynamic_lookup"),
            *extra,
            *objects,
            *("-o", target),
        ]
    )
