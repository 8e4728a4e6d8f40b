"""What this machine and this run have."""

import functools
import importlib.util
import os
import subprocess
import sys

import metal_dlpack as md
import softmetal

IS_MAC = sys.platform == "darwin"
HAS_SOFTMETAL = softmetal.is_present()
SANITIZER = os.environ.get("METAL_DLPACK_SANITIZE", "")
#: PyDict_SetDefaultRef of these returns 0 where it had no memory (python/cpython#136338), and types are made with it:
#: the type's next name ends the process.
BREAKS_TYPES = (3, 13) <= sys.version_info < (3, 13, 6)


def tries(count: int) -> int:
    """How often a test of many random cases tries: a fifth under a sanitizer, which looks at paths, and not at values."""
    return max(1, count // 5) if SANITIZER else count


def has_module(name: str) -> bool:
    """Installed, and not left out because a sanitizer cannot run it."""
    if name in sys.modules:
        return sys.modules[name] is not None
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a name with a dot, the package itself
        return False


def has_metal() -> bool:
    try:
        return not md.default_device().is_software
    except md.MetalError:
        return False


def works(code: str) -> bool:
    """In a child: what a virtual GPU cannot do may end the process, under Metal's validation above all."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def has_mps() -> bool:
    """MPS computes.  On a virtual GPU PyTorch may find it available and then get no memory of it."""
    works_on_a_mac = "import torch; assert (torch.ones(2, device='mps') + 1).sum() == 4"
    return has_module("torch") and (HAS_SOFTMETAL or (IS_MAC and works(works_on_a_mac)))


def has_mlx_metal() -> bool:
    """MLX computes on Metal."""
    code = "import mlx.core as mx; assert mx.metal.is_available() and (mx.ones(2) + 1).sum().item() == 4"
    return IS_MAC and has_module("mlx") and works(code)


@functools.cache
def has_kernels() -> bool:
    """Metal compiles kernels, or there is a compiler that stands in for it."""
    if not HAS_SOFTMETAL:
        return has_metal()
    from softmetal.msl import CompilerNotFound, compiler

    try:
        compiler.find()
    except CompilerNotFound:
        return False
    return True


@functools.cache
def can_sanitize(kinds: str) -> bool:
    """The C compiler makes programs with -fsanitize=KINDS.  That of `make arm64` does not: they would not start."""
    probe = [*os.environ.get("CC", "cc").split(), f"-fsanitize={kinds}", "-x", "c", "-", "-o", os.devnull]
    done = subprocess.run(probe, input="int main(void) { return 0; }", text=True, capture_output=True, check=False)
    return done.returncode == 0
