"""The library that is torch's mps device, compiled once for each torch and kept as kernels are."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from metal_dlpack.language.errors import CompilerError
from softmetal.msl import cache, child

from .native_functions import as_source, packed_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HERE = Path(__file__).parent
#: On two idle cores it takes 15; a machine may be busy.
MOST_SECONDS = 600


def library(torch: Any) -> Path:
    """Return the path of the library for this torch; raise RuntimeError where no compiler makes it."""
    sources = sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h"), HERE / "native_functions.py"])
    key = ["torch_mps", torch.__version__, str(torch.version.git_version), sys.version, sysconfig.get_platform()]
    key += [path.read_text() for path in sources]
    try:
        with contextlib.nullcontext() if cache.is_sound(cache.entry(key, ".so")) else _one_at_a_time(cache.folder()):
            return cache.made(key, ".so", lambda path: _compile(torch, path))
    except OSError as error:
        raise RuntimeError(
            f"softmetal.torch_mps: no folder takes the library that is torch's mps device: {error}. "
            "Set SOFTMETAL_CACHE to a folder of your own with 1 MB to spare."
        ) from error


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process compile when many begin together, as test workers do: it takes 1.5 GB of memory."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: each compiles its own
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def has_compiler() -> bool:
    """Whether there is one to try."""
    try:
        return shutil.which(_compiler()[0]) is not None
    except RuntimeError:
        return False


def _compile(torch: Any, path: Path) -> None:
    from softmetal.msl.compiler import check_room

    compiler = _compiler()
    names = as_source(packed_list())
    started = time.monotonic()
    sys.stderr.write(f"metal_dlpack: compiling torch's mps device for torch {torch.__version__}, once\n")
    root = Path(torch.__file__).parent
    command = [
        *compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-std=c++20",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        f"-I{root / 'include'}",
        f"-I{root / 'include/torch/csrc/api/include'}",
        f"-I{sysconfig.get_paths()['include']}",
        str(HERE / "all.cpp"),
        *("-x", "c++", "-", "-x", "none"),  # what is given as text: the list of operators
        f"-L{root / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch_python"),  # which torch has loaded, for itself alone
        "-o",
        str(path),
    ]
    try:
        status, _, errors = child.run(command, names, seconds=MOST_SECONDS)
    except CompilerError as error:
        status, errors = 1, str(error)
    check_room(status, errors)
    if status != 0:
        raise RuntimeError(
            f"softmetal.torch_mps: {compiler[0]} cannot compile torch's mps device for torch {torch.__version__}:\n"
            f"{errors[-2000:]}"
        )
    sys.stderr.write(f"metal_dlpack: done in {time.monotonic() - started:.0f} s\n")


def _compiler() -> list[str]:
    """$CXX, or the system's: the library needs the C++ library that torch itself is linked with."""
    named = os.environ.get("CXX", "").split()
    found = named or [path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))][:1]
    if not found:
        raise RuntimeError(
            "softmetal.torch_mps: torch's mps device is compiled on first use, and there is no C++ compiler. "
            "Install one (`apt-get install g++` on Debian), or set CXX."
        )
    return found
