"""The flags of clang for kernels, and the folders it reads: what an image depends on beside its source.

Nothing of the machine reaches a kernel but its instructions: no header, no configuration, no run time library.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from metal_dlpack import language
from metal_dlpack.language.errors import CompilerError

FOLDER = Path(__file__).resolve().parent
#: The rest of the translator.
BELOW = Path(language.__file__).resolve().parent
INCLUDE = FOLDER.parent / "shim"
#: Metal's headers, empty: what they declare is in the shim, and only the user's own text is to be expanded.
#: One of them is a file; HEADERS tells clang the names of the others, which are the same file.
EMPTY = FOLDER / "empty-headers"
HEADERS = FOLDER / "headers.json"
SHIM = INCLUDE / "softmetal.h"
#: Answers what a checked kernel calls; compiled apart, because it must not be checked itself, and then inlined.
CHECKED = INCLUDE / "softmetal_checked.cpp"
#: The same for a counting kernel.
COUNTED = INCLUDE / "softmetal_counted.cpp"

#: The language that the shim was written for, as __METAL_VERSION__ says it.
NEWEST_VERSION = 320
_WITH_BFLOAT = 310

#: SPEC Metal Shading Language Specification 3.2, 1.5.5 Preprocessor compiler options: what Metal's compiler predefines.
_MACROS = {
    "__METAL__": "1",
    "__METAL_MACOS__": "1",
    "__AIR64__": "1",
    "__APPLE__": "1",
    "__MACH__": "1",
    "__LP64__": "1",
    "__clang__": "1",
}


def macros_of(version: int) -> dict[str, str]:
    bfloat = {"__HAVE_BFLOAT__": "1"} if version >= _WITH_BFLOAT else {}
    return {**_MACROS, "__METAL_VERSION__": str(version), **bfloat}


QUIET = [
    "-w",  # what is an error by default stays one, but:
    "-Wno-register",  # Metal is C++14, where the word says nothing
    "-Wno-invalid-constexpr",  # a function of the shim may not be constexpr
    "-fno-color-diagnostics",
    "-fno-diagnostics-show-line-numbers",
    "-fno-diagnostics-fixit-info",
    "-fno-diagnostics-show-option",
    "-fcaret-diagnostics-max-lines=1",
    "-fno-crash-diagnostics",
]
ALONE = ["--no-default-config", "-nostdinc", "-nostdinc++", "-nobuiltininc"]
LANGUAGE = [
    "-std=c++17",
    "-fno-digraphs",  # the translator does not read `<:` as `[`: refused, rather than opened without its kernels
    "-fbracket-depth=256",  # of every clang, though from 22 on its own is 2048: the translator takes some 350
    "-fdeclspec",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
    "-fstack-clash-protection",  # a large array begins no further than the guard below the stack, and stops there
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fsigned-char",  # as Metal; arm64's own is unsigned
    "-fwrapv",  # SPEC Metal Shading Language Specification: signed overflow wraps
    "-fno-strict-aliasing",  # kernels read floats as integers all the time, and Metal lets them
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-Xclang",
    "-ffloat16-excess-precision=none",  # a half is rounded after every operation, as on a GPU
    "-Xclang",
    "-fno-pch-timestamp",
    "-fpch-instantiate-templates",  # the shim's own, once: else each run of the compiler begins with them
    "-Xclang",
    "-fconvergent-functions",  # a user's function may wait: two calls in two branches are not one
    # On a Mac a product and a sum become one operation in every mode of mathematics, safe too, unless the source's
    # pragma forbids it.  What fast allows besides is not taken: NaN and infinity stay what they are.
    "-Xclang",
    "-ffp-contract=fast-honor-pragmas",
]
_PLAIN = ["-O2"]
#: For the first run of a plain image of a kernel that waits: regions.py reads single threads.
NO_VECTORS = [
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-mllvm",
    "-unroll-runtime=false",  # of a loop that may yet become vectors
    "-mllvm",
    "-unroll-allow-partial=false",
]
#: For its second run, where it does not wait.
ROWS = ["-O2", "-fno-math-errno", "-fno-trapping-math"]
#: And where it does.  The first one has optimised what a thread does.
SPLIT = [
    "-O1",
    "-fvectorize",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-mllvm",
    "-use-noalias-intrinsic-during-inlining=false",  # a loop with such calls is not taken for parallel
    "-mllvm",
    "-enable-nontrivial-unswitch",  # a question that all threads answer alike is asked once, before the loop over them
    "-mllvm",
    "-enable-interleaved-mem-accesses=false",  # of a parallel loop it would take a thread's load before its own store
]
#: Two branches that do alike would be merged by the compiler: with no line, or the wrong one.
_APART = [
    flag
    for name in (
        "simplifycfg-hoist-common",
        "simplifycfg-sink-common",
        "simplifycfg-merge-cond-stores",
        "enable-tail-merge",
    )
    for flag in ("-mllvm", f"-{name}=false")
]
_CHECKED = [
    *_APART,
    "-O1",
    "-gline-tables-only",
    "-gdwarf-4",  # line_table.py reads it
    "-fdebug-compilation-dir=.",
    "-fno-omit-frame-pointer",
    # Calls to our functions before each access; no clang library.  local-bounds: a trap where a pointer into
    # an array of the thread's own leaves it.
    "-fsanitize=thread,array-bounds,local-bounds,integer-divide-by-zero,shift-exponent",
    "-fno-sanitize-recover=array-bounds,integer-divide-by-zero,shift-exponent",
    "-mllvm",
    "-tsan-instrument-read-before-write",
    "-mllvm",
    "-tsan-instrument-memintrinsics=false",  # checked_code.py does
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-fno-delete-null-pointer-checks",  # else a branch that ends in a null pointer is taken for impossible
    "-fno-vectorize",  # a vector of more than 16 bytes would be touched without a call
    "-fno-slp-vectorize",
]
#: For the first run of a counting image, which leaves each access as the source has it; see counted_code.py.
_COUNTING = [
    "-DSOFTMETAL_COUNTS",
    "-O0",
    "-Xclang",
    "-disable-O0-optnone",  # the second run optimises
    "-gline-tables-only",
    "-gdwarf-4",
    "-fdebug-compilation-dir=.",
    "-fno-omit-frame-pointer",
]
#: For the second run, which inlines the answers.
INLINED = [*_APART, "-O1", "-fno-vectorize", "-fno-slp-vectorize", "-mllvm", "-force-remove-attribute=sanitize_thread"]
#: Each trap has its line: (the first and the last clang that knows the flags, the flags).
_UNIQUE_TRAPS = [
    (18, 19, ["-mllvm", "-bounds-checking-unique-traps"]),
    (20, 99, ["-fno-sanitize-merge=local-bounds"]),
]
LINK = ["-Bsymbolic", "-znow", "-zdefs", "--build-id=none"]


def kind_flags(version: int, checked: bool, counting: bool = False) -> list[str]:
    """Return the flags of a plain image, a checked or a counting one, for this version of clang."""
    if counting:
        return _COUNTING
    if not checked:
        return _PLAIN
    return [*_CHECKED, *(flag for first, last, flags in _UNIQUE_TRAPS if first <= version <= last for flag in flags)]


def machine() -> str:
    return os.uname().machine


@functools.cache
def machine_flags() -> tuple[str, ...]:
    """Return the flags for this machine's instructions: few kinds, so that outcomes differ as little as can be."""
    name = machine()
    if name == "x86_64":
        return ("--target=x86_64-linux-gnu", f"-march={_x86_level()}")
    if name in {"aarch64", "arm64"}:
        return ("--target=aarch64-linux-gnu", "-march=armv8-a", "-mno-outline-atomics")
    raise CompilerError(f"Kernels are compiled for x86-64 and arm64; this machine is {name or 'unknown'}.")


def _x86_level() -> str:
    """The level with F16C and FMA, if the machine has it: half and float convert, a product and a sum are one."""
    try:
        with open("/proc/cpuinfo") as file:
            # mutant survives (number #2): of the first processor or of more, they are alike
            words = set(file.read(1 << 14).split())
    except OSError:
        words = set()
    return "x86-64-v3" if words >= {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"} else "x86-64"


@functools.cache
def shim_hash() -> str:
    """Hash of all our files that clang reads, for keys."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(INCLUDE) for name in names]
    return _hash_of([str(HEADERS), *files])


@functools.cache
def translator_hash() -> str:
    """Hash of our modules, for keys of what they make of a source."""
    files = [entry.path for folder in (FOLDER, BELOW) for entry in os.scandir(folder)]
    return _hash_of([path for path in files if path.endswith(".py")])


def _hash_of(paths: list[str]) -> str:
    digest = hashlib.blake2b(digest_size=20)
    for path in sorted(paths):
        with open(path, "rb") as file:
            data = file.read()
        digest.update(f"{os.path.basename(path)} {len(data)} ".encode() + data)
    return digest.hexdigest()
