"""The C++ compiler of kernels: which clang, with which flags, and what it says.

`find` takes $SOFTMETAL_CXX (a command, with arguments if it needs any), else the newest clang++ on PATH, else the clang
in the ziglang wheel.  It asks a compiler for its version once; the cache remembers the answer, so that a kernel that
was compiled before needs no run of the compiler.

The compiler sees Metal's own macros and empty headers when it preprocesses, and the shim as a precompiled header when
it checks and builds; no header of the machine, no variable of the environment that changes what clang does.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import cache, diagnostics
from .errors import CompilerError, CompilerNotFound, SourceError

OLDEST = 17
NEWEST_LOOKED_FOR = 40
#: A template may ask for any amount of work.
SECONDS = 120
#: The file that a source is called after, as Metal calls it.
PROGRAM = "program_source"

FOLDER = Path(__file__).resolve().parent
INCLUDE = FOLDER / "include"
#: Metal's headers, empty: what they declare is in the shim, and only the user's own text is to be expanded.
EMPTY = FOLDER / "empty"
SHIM = INCLUDE / "softmetal.h"
#: Answers what a checked kernel calls; compiled apart, because it must not be checked itself.
CHECKED = INCLUDE / "softmetal_checked.cpp"

_WAY_OUT = "Install one (`apt-get install clang-19`, or `pip install 'metal_dlpack[kernels]'`), or set SOFTMETAL_CXX."

#: SPEC Metal Shading Language Specification 3.2, 1.5.5 Preprocessor compiler options: what Metal's compiler predefines.
_MACROS = {
    "__METAL__": "1",
    "__METAL_VERSION__": "320",
    "__METAL_MACOS__": "1",
    "__HAVE_BFLOAT__": "1",
    "__AIR64__": "1",
    "__APPLE__": "1",
    "__MACH__": "1",
    "__LP64__": "1",
    "__clang__": "1",
}

_QUIET = [
    "-Wno-everything",  # also of what is an error by default: narrowing where a half was widened
    "-fno-color-diagnostics",
    "-fno-diagnostics-show-line-numbers",
    "-fno-diagnostics-fixit-info",
    "-fno-diagnostics-show-option",
    "-fcaret-diagnostics-max-lines=1",
    "-fno-crash-diagnostics",
]
_ALONE = ["--no-default-config", "-nostdinc", "-nostdinc++", "-nobuiltininc"]
_LANGUAGE = [
    "-std=c++17",
    "-fdeclspec",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
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
]
#: Of what a Mac's fast and relaxed allow: a product and a sum become one operation.  NaN and infinity stay what they
#: are: a GPU gives them too, and kernels mask with -INFINITY.
_MATH = {
    "fast": ["-ffp-contract=fast-honor-pragmas"],
    "relaxed": ["-ffp-contract=fast-honor-pragmas"],
    "safe": ["-ffp-contract=off"],
}
_PLAIN = ["-O2"]
_CHECKED = [
    "-O1",
    "-gline-tables-only",
    "-gdwarf-4",  # line_table.py reads it
    "-fdebug-compilation-dir=.",
    "-fno-omit-frame-pointer",
    # Calls to functions of ours before each access; no library of clang's.  local-bounds: a trap where a pointer into
    # an array of the thread's own leaves it.
    "-fsanitize=thread,array-bounds,local-bounds,integer-divide-by-zero",
    "-fno-sanitize-recover=array-bounds,integer-divide-by-zero",
    "-mllvm",
    "-bounds-checking-unique-traps",  # each has its line
    "-mllvm",
    "-tsan-instrument-read-before-write",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-fno-vectorize",  # a vector of more than 16 bytes would be touched without a call
    "-fno-slp-vectorize",
]
_LINK = ["-Bsymbolic", "-znow", "-zdefs", "--build-id=none"]


@dataclass(frozen=True)
class Compiler:
    """A clang that can compile kernels.  `identity` names it in the keys of caches."""

    command: tuple[str, ...]
    version: int
    identity: str

    def preprocess(self, text: str, name: str = PROGRAM) -> str:
        """Return the text with its directives done, and a `#line N "file"` wherever the numbering jumps.

        Raises SourceError, for example for a file that is included but not there.
        """
        macros = [f"-D{macro}={value}" for macro, value in _MACROS.items()]
        flags = [*_ALONE, *_QUIET, "-undef", "-std=c++14", *macros, f"-I{EMPTY}", "-E"]
        output = self._compile([*flags, "-x", "c++", "-"], f'#line 1 "{_quoted(name)}"\n{text}', name, text)
        return _of_the_user(output)

    def check(self, cpp_text: str, source: str | None = None) -> None:
        """Raise SourceError if the translated text is not right C++.

        source: the user's text, whose lines the errors show; without it they show the translated lines.
        """
        self._compile([*self._precompiled("safe", False), "-fsyntax-only", "-x", "c++", "-"], cpp_text, PROGRAM, source)

    def build(
        self, cpp_text: str, out: Path, *, math: str = "fast", checked: bool = False, source: str | None = None
    ) -> None:
        """Write an image for softmetal to `out`.  Raises SourceError as `check` does."""
        compiled = out.with_suffix(".o")
        flags = self._precompiled(math, checked)
        self._compile([*flags, "-c", "-o", str(compiled), "-x", "c++", "-"], cpp_text, PROGRAM, source)
        objects = [str(compiled)]
        if checked:
            objects.append(str(self._checked_object()))
        try:
            self._link(objects, out)
        finally:
            compiled.unlink(missing_ok=True)

    def key_parts(self, *, math: str, checked: bool) -> list[str]:
        """What an image depends on beside its source: compiler, flags, shim."""
        return [self.identity, *self._flags(math, checked), *_LINK, str(INCLUDE), shim_hash()]

    def _flags(self, math: str, checked: bool) -> list[str]:
        kind = _CHECKED if checked else _PLAIN
        return [*_ALONE, *_QUIET, *_LANGUAGE, *_MATH[math], *machine_flags(), *kind, f"-I{INCLUDE}"]

    def _precompiled(self, math: str, checked: bool) -> list[str]:
        """Flags with the shim included, from a precompiled header that the cache keeps."""
        flags = self._flags(math, checked)

        def precompile(path: Path) -> None:
            self._run([*flags, "-x", "c++-header", str(SHIM), "-o", str(path)])

        header = cache.made([*self.key_parts(math=math, checked=checked), "shim"], ".pch", precompile)
        return [*flags, "-include-pch", str(header)]

    def _checked_object(self) -> Path:
        flags = [*_ALONE, *_QUIET, *_LANGUAGE, *machine_flags(), "-O2", f"-I{INCLUDE}"]

        def compile_it(path: Path) -> None:
            self._run([*flags, "-c", "-o", str(path), str(CHECKED)])

        return cache.made([*self.key_parts(math="safe", checked=True), "checked"], ".o", compile_it)

    def _link(self, objects: list[str], out: Path) -> None:
        """Against the C library that this process has, by its path: clang may lack what finds it."""
        libraries = loaded_libraries()
        if self.command[-1] == "clang":  # zig's, which has a linker of its own
            self._run(["-shared", *_LINK, "-o", str(out), *objects, *libraries], (*self.command[:-1], "ld.lld"))
            return
        flags = [f"-Wl,{flag}" for flag in _LINK]
        self._run(["--no-default-config", "-shared", "-nostdlib", *flags, "-o", str(out), *objects, *libraries])

    def _compile(self, arguments: list[str], text: str, name: str, source: str | None) -> str:
        code, output, errors = run([*self.command, *arguments], text)
        lines = diagnostics.lines_of_source(source, name) if source is not None else None
        said = diagnostics.clean(errors, lines, name) if code == 1 else ""
        if said:
            raise SourceError(said)
        if code:
            raise CompilerError(self._failure(code, errors))
        return output

    def _run(self, arguments: list[str], command: tuple[str, ...] | None = None) -> None:
        """Run the compiler, or zig's linker, on files of our own: what goes wrong is not the user's."""
        code, _, errors = run([*(command or self.command), *arguments], "")
        if code:
            raise CompilerError(self._failure(code, errors))

    def _failure(self, code: int, errors: str) -> str:
        last = "; ".join(line for line in errors.strip().splitlines()[:3])
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"failed with exit code {code}"
        said = f": {last}" if last else "."
        return f"The compiler of kernels ({shlex.join(self.command)}, clang {self.version}) {how}{said}"


def find() -> Compiler:
    """Return the compiler of kernels.  Raises CompilerNotFound.  Remembered for what SOFTMETAL_CXX and PATH say."""
    return _find(os.environ.get("SOFTMETAL_CXX", ""), os.environ.get("PATH", os.defpath))


@functools.lru_cache(maxsize=8)
def _find(asked: str, path: str) -> Compiler:
    refused = []
    for command in [_as_clang(shlex.split(asked))] if asked else candidates(path):
        try:
            return known(command)
        except CompilerError as error:
            refused.append(str(error))
    if asked:
        raise CompilerNotFound(
            f"SOFTMETAL_CXX ({asked}) cannot compile kernels: {refused[0]} clang {OLDEST} or later is needed."
        )
    looked = f" {' '.join(refused)}" if refused else ""
    raise CompilerNotFound(
        f"Without a Mac, kernels need clang {OLDEST} or later, and none is found.{looked} {_WAY_OUT}"
    )


def candidates(path: str) -> Iterator[tuple[str, ...]]:
    """Each clang++ of PATH, newest first by its name, then zig's; found by looking at names, not by running them."""
    for name in ["clang++", *(f"clang++-{version}" for version in range(NEWEST_LOOKED_FOR, OLDEST - 1, -1))]:
        found = shutil.which(name, path=path)
        if found:
            yield (found,)
    zig = zig_program()
    if zig:
        yield (zig, "clang")


def zig_program() -> str | None:
    """Return the program in the ziglang wheel, without importing the package."""
    spec = importlib.util.find_spec("ziglang")
    for folder in spec.submodule_search_locations or () if spec else ():
        program = os.path.join(folder, "zig")
        if os.access(program, os.X_OK):
            return program
    return None


def _as_clang(words: list[str]) -> tuple[str, ...]:
    """`zig c++` builds libraries of its own on first use and keeps caches; the clang in it does neither."""
    if len(words) > 1 and words[-1] in {"c++", "cc", "clang"}:
        if words[-3:-1] == ["-m", "ziglang"]:
            zig = zig_program()
            return (zig, "clang") if zig else (*words[:-1], "clang")
        if os.path.basename(words[-2]).startswith("zig"):
            return (*words[:-1], "clang")
    return tuple(words)


def known(command: tuple[str, ...]) -> Compiler:
    """Ask the compiler for its version, unless its files are those that were asked before."""
    files = [facts for word in command if (facts := _file_facts(word))]
    key = ["compiler", *command, *files]
    said = cache.read(key)
    if said is None:
        code, output, errors = run([*command, "--version"], "", seconds=30)
        if code:
            raise CompilerError(f"{shlex.join(command)} --version fails ({(errors or output).strip()[:200]}).")
        said = output.encode()
    version = re.search(rb"clang version (\d+)\.", said)
    if version is None:
        raise CompilerError(f"{shlex.join(command)} is not clang.")
    if int(version[1]) < OLDEST:
        raise CompilerError(f"{shlex.join(command)} is clang {int(version[1])}.")
    if cache.read(key) is None:
        cache.write(key, said)
    return Compiler(command, int(version[1]), "\0".join([*command, *files, said.decode(errors="replace")]))


def _file_facts(word: str) -> str:
    """What changes when the compiler is replaced; empty for what is no program."""
    found = shutil.which(word)
    if not found:
        return ""
    facts = os.stat(found)
    return f"{os.path.realpath(found)} {facts.st_size} {facts.st_mtime_ns}"


@functools.cache
def machine_flags() -> tuple[str, ...]:
    """Return the flags for this machine's instructions: few kinds, so that outcomes differ as little as can be."""
    machine = platform.machine()
    if machine == "x86_64":
        return ("--target=x86_64-linux-gnu", f"-march={_x86_level()}")
    if machine in {"aarch64", "arm64"}:
        return ("--target=aarch64-linux-gnu", "-march=armv8-a", "-mno-outline-atomics")
    raise CompilerError(f"Kernels are compiled for x86-64 and arm64; this machine is {machine or 'unknown'}.")


def _x86_level() -> str:
    """The level with F16C and FMA, if the machine has it: half and float convert, a product and a sum are one."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = re.search(r"^flags\s*:(.*)$", file.read(1 << 14), re.MULTILINE)
    except OSError:
        flags = None
    needed = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
    return "x86-64-v3" if flags and needed <= set(flags[1].split()) else "x86-64"


@functools.cache
def shim_hash() -> str:
    """Hash of all files of the shim, for keys."""
    import hashlib

    digest = hashlib.blake2b(digest_size=20)
    for path in sorted(INCLUDE.iterdir()):
        data = path.read_bytes()
        digest.update(f"{path.name} {len(data)} ".encode() + data)
    return digest.hexdigest()


def loaded_libraries() -> list[str]:
    """Return the paths of the C library, of its mathematics, and of the compiler's own, if this process has them."""
    try:
        with open("/proc/self/maps") as file:
            text = file.read()
    except OSError:
        return []
    names = r"(?:libm|libc|libgcc_s)[-.][\w.-]*|(?:ld-)?libc?-?musl[\w.-]*|ld-musl[\w.-]*"
    return list(dict.fromkeys(re.findall(rf" (/\S*/(?:{names}))$", text, re.MULTILINE)))


def run(command: list[str], text: str, *, seconds: float = SECONDS) -> tuple[int, str, str]:
    """Run a compiler on a text; return its exit code, output and errors.  Raises CompilerError if it cannot run.

    What it starts ends with it, also when it takes too long or the caller is interrupted.
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=_environment(),
            process_group=0,
        )
    except OSError as error:
        raise CompilerError(f"{shlex.join(command[:1])} does not start: {error.strerror}.") from error
    try:
        output, errors = child.communicate(text, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise CompilerError(
            f"The compiler of kernels ({shlex.join(command[:1])}) was stopped: it took longer than {seconds:g} s."
        ) from error
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    return child.returncode, output, errors


def _environment() -> dict[str, str]:
    """Nothing that changes what clang does (CPATH, LD_PRELOAD, CCC_OVERRIDE_OPTIONS); the language is English."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _of_the_user(preprocessed: str) -> str:
    """Clang's markers (`# 3 "file" 2`) become `#line 3 "file"`; what belongs to no file of the user is left out."""
    kept, is_kept = [], True
    for line in preprocessed.splitlines(keepends=True):
        marker = re.match(r'# (\d+) "((?:[^"\\]|\\.)*)"', line)
        if marker is None:
            kept += [line] if is_kept else []
            continue
        is_kept = not diagnostics.is_ours(marker[2]) and marker[2] != "<stdin>"
        if is_kept:
            kept.append(f'#line {marker[1]} "{marker[2]}"\n')
    return "".join(kept)
