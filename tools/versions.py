"""What uses a library, with other versions of it than that of this environment: versions.py [REQUIREMENT...].

    versions.py numpy==2.0.2 torch==2.9.1 jax       these; a name alone is the newest that pip finds
    versions.py                                     all of ALWAYS, and the group `frameworks` of pyproject.toml

Each requirement gets an environment of its own in build/, behind which stands all of the one that runs this.  What
uses a framework of the group are its rows of docs/interop.md.  Where pip finds no torch for the CPU alone, it is one
for CUDA, to which only the libraries are added that importing it needs: 3 GB to download, 5 GB on the disk.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The oldest that share, and the newest.
ALWAYS = ("torch==2.9.1", "torch", "numpy==2.0.2", "numpy", "mlx", "jax", "apache-tvm-ffi")
#: Which tests use a library.  The workflows and the pages are no matter of a version.
SHARING = ("tests/exchange", "tests/array", "tests/package", "tests/values", "tests/module")
USES = {
    "torch": ("-m", "needs_torch and not long", "--ignore=tests/house", "--ignore=tests/mac", "tests"),
    "numpy": ("-m", "not long", *SHARING),
    "mlx": ("-m", "needs_mlx and not long", *SHARING),
    "jax": ("-m", "needs_jax and not long", *SHARING),
    "apache-tvm-ffi": ("-m", "needs_tvm and not long", *SHARING),
}
ROWS = ("tests/exchange/test_interop.py", "-k", "an_array or wrong")
#: Released together with another.
TOGETHER = {"jax": ("jaxlib",), "mlx": ("mlx-cpu",)}


def frameworks() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["frameworks"]


def name_of(requirement: str) -> str:
    return re.match(r"[\w.-]*\w", requirement)[0]


def environment(requirement: str) -> Path:
    """The Python of an environment with this version."""
    name = name_of(requirement)
    folder = ROOT / "build" / re.sub(r"[<>=~!]+", "-", requirement if requirement != name else f"{name}-newest")
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, symlinks=True)
    packages = Path(said_by(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    behind = packages / "metal_dlpack_versions.pth"
    behind.unlink(missing_ok=True)  # pip sees this environment alone
    install(python, requirement, *TOGETHER.get(name, ()), deps=name not in USES)
    text = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    behind.write_text(text)
    if name == "torch" and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        asked = said_by(python, "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))")
        behind.unlink()
        install(python, *re.findall(r"^(?:nvidia|cuda-toolkit)[^;\n]*", asked, re.MULTILINE), deps=True)
        behind.write_text(text)
    return python


def said_by(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def install(python: Path, *packages: str, deps: bool) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input"]
    # What a peer needs stands behind this environment, where pip does not look.  A framework brings all of its own.
    command += ["install", "-q", "--no-cache-dir", "--upgrade", "--no-warn-conflicts", *packages]
    subprocess.run([*command, *([] if deps else ["--no-deps"])], check=True)


def left_out(name: str, version: str) -> list[str]:
    """List the tests to leave out; tools/versions_left_out.toml has them by the version up to which they are."""
    tables = tomllib.loads((ROOT / "tools/versions_left_out.toml").read_text()).get(name, {})
    number = tuple(map(int, version.split("+")[0].split(".")[:2]))
    return [test for last, tests in tables.items() if number <= tuple(map(int, last.split("."))) for test in tests]


def run(requirement: str) -> int:
    name, python = name_of(requirement), environment(requirement)
    found = said_by(python, f"import importlib.metadata as m; print(m.version({name!r}))")
    if name in USES and found == importlib.metadata.version(name):
        print(f"== {name} {found}: the version of this environment, so `make test` has run it", flush=True)
        return 0
    print(f"== {name} {found}", flush=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-n", "2", *USES[name]] if name in USES else ROWS
    command += [f"--deselect={test}" for test in left_out(name, found)]
    changed = {"SOFTMETAL_VALIDATION": "1", **({} if name in USES else {"METAL_DLPACK_LIBRARY": name})}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **changed}).returncode


if __name__ == "__main__":
    asked = sys.argv[1:] or (*ALWAYS, *frameworks())
    results = {requirement: run(requirement) for requirement in asked}
    failed = [requirement for requirement, code in results.items() if code != 0]
    sys.exit(f"failed with: {', '.join(failed)}" if failed else 0)
