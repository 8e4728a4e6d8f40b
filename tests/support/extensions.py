"""Builds the extension modules of examples/ as their READMEs say, and imports them."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import EXAMPLES


def copied(name, folder):
    """A copy of examples/NAME in `folder`, without what was built there."""
    ignore = shutil.ignore_patterns("build", "*.so", "__pycache__")
    return Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=ignore))


def run(folder, *command, **environment):
    """What the command prints; it must succeed."""
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def build(name, folder):
    """By setup.py: the folder with demo.py and the module."""
    there = copied(name, folder)
    (folder / "torch.py").write_text("raise ImportError")  # tvm_ffi, which has dlpack.h, would import torch for seconds
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    run(there, sys.executable, "setup.py", "-q", "build_ext", "--inplace", PYTHONPATH=path)
    return there


def build_by_cmake(name, folder):
    there = copied(name, folder)
    run_cmake(there, "-S", ".", "-B", "build", "-G", "Ninja")
    run_cmake(there, "--build", "build")
    shutil.copy(there / "demo.py", there / "build")
    return there / "build"


def run_cmake(folder, *arguments):
    """CMake and ninja as PyPI has them."""
    import cmake
    import ninja

    for_configuring = [
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-DCMAKE_MAKE_PROGRAM={Path(ninja.BIN_DIR, 'ninja')}",
        "-Wno-dev",
    ]
    more = [] if "--build" in arguments else for_configuring
    return run(folder, Path(cmake.CMAKE_BIN_DIR, "cmake"), *more, *arguments)


def build_by_pip(name, folder):
    """By the build system that pyproject.toml names, which is installed here."""
    there = copied(name, folder)
    installing = ["-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--disable-pip-version-check"]
    run(there, sys.executable, *installing, "--target", "site", ".")
    shutil.copy(there / "demo.py", there / "site")
    return there / "site"


def build_by_make(name, folder):
    there = copied(name, folder)
    run(there, "make", f"PYTHON={sys.executable}", f"PKG_CONFIG={sys.executable} -m pkgconf", "CFLAGS=-Werror")
    return there


def load(folder, module):
    (path,) = folder.glob(f"{module}.*.so")
    spec = importlib.util.spec_from_file_location(module, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def run_demo(folder):
    """What demo.py prints, run in the folder of the built extension."""
    return run(folder, sys.executable, "demo.py")
