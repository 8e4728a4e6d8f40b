"""The C++ compiler of kernels: which clang, with which flags, and what it says.

`find` takes $SOFTMETAL_CXX (a command, with arguments if it needs any), else the newest clang++ on PATH, else the clang
in the ziglang wheel.  It asks a compiler for its version once; the cache remembers the answer, so that a kernel that
was compiled before needs no run of the compiler.

It sees Metal's own macros and empty headers when it preprocesses, and the shim as a precompiled header when
it checks and builds; no header of the machine, no variable of the environment that changes what clang does.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from metal_dlpack.language.errors import PROGRAM, CompilerError, CompilerNotFound, SourceError, Undefined

from . import cache, flags

#: How translation.py makes an image of a kernel that seems to wait.
WAITING = "SOFTMETAL_WAITING_IMAGE("

OLDEST = 17
NEWEST_LOOKED_FOR = 40

_WAY_OUT = "Install one (`apt-get install clang-19`, or `pip install 'metal_dlpack[kernels]'`), or set SOFTMETAL_CXX."

# What only a run of the compiler needs is imported there: a kernel of the cache is there in a few milliseconds.


class Compiler:
    """A clang that can compile kernels.  `identity` names it in the keys of caches."""

    def __init__(self, command: tuple[str, ...], version: int, identity: str) -> None:
        self.command, self.version, self.identity = command, version, identity

    def preprocess(self, text: str, version: int = flags.NEWEST_VERSION) -> str:
        """Return the text with its directives done, and a `#line N "file"` wherever the numbering jumps.

        Raises SourceError, for example for a file that is included but not there.
        """
        macros = [f"-D{macro}={value}" for macro, value in flags.macros_of(version).items()]
        headers = [f"-I{flags.EMPTY}", f"-ivfsoverlay{flags.HEADERS}"]
        given = [*flags.ALONE, *flags.QUIET, "-undef", "-std=c++14", *macros, *headers, "-E"]
        key = ["preprocessed", self.identity, *given, flags.shim_hash(), flags.translator_hash(), text]
        remembered = cache.read(key)
        if remembered is not None:
            return remembered.decode(errors="surrogateescape")
        said = self._said([*given, "-x", "c++", "-"], f'#line 1 "{PROGRAM}"\n{text}')
        kept = _of_the_user(self._judge(said, text))
        cache.write(key, kept.encode(errors="surrogateescape"))
        return kept

    def check(self, cpp_text: str, source: str | None = None) -> None:
        """Raise SourceError if the translated text is not right C++.

        source: the user's text, whose lines the errors show; without it they show the translated lines.
        """
        self._compile_with_shim(False, False, ["-fsyntax-only", "-x", "c++", "-"], cpp_text, source)

    @contextlib.contextmanager
    def reading(self, cpp_text: str, given: list[str], *, warns: bool = False) -> Iterator[Callable[[], str]]:
        """Let the compiler read a text beside the block, right or wrong; the block is given a call for what it said."""
        from .child import started

        arguments = ["-fsyntax-only", *given, "-x", "c++", "-"]
        precompiled = [flag for flag in self._precompiled(False) if flag != "-w" or not warns]
        with started([*self.command, *precompiled, *arguments], cpp_text) as ended:

            def said() -> str:
                code, _, errors = ended()
                if code and blames_no_source(code, errors):
                    errors = self._said([*self._with_shim(False, False), *arguments], cpp_text)[2]
                return errors

            yield said

    def build(
        self, cpp_text: str, out: Path, *, checked: bool = False, counting: bool = False, source: str | None = None
    ) -> None:
        """Write an image for softmetal to `out`, an absolute path: a plain one, a checked or a counting one.

        Raises SourceError as `check` does, and OSError where the folder takes no more.
        """
        compiled, as_text = out.with_suffix(".o"), ["-S", "-emit-llvm"]
        may_wait = WAITING in cpp_text and not checked and not counting
        kind = [*as_text, *flags.NO_VECTORS] if may_wait else as_text if checked or counting else ["-c"]
        try:
            arguments = [*kind, "-o", str(compiled), "-x", "c++", "-"]
            self._compile_with_shim(checked, counting, arguments, cpp_text, source)
            if may_wait:
                self._split(compiled)
            if checked or counting:
                self._add_calls(compiled, counting)
            self._link([compiled], out)
        finally:
            compiled.unlink(missing_ok=True)

    def key_parts(self, *, checked: bool, counting: bool = False) -> list[str]:
        """What an image depends on beside its source: compiler, flags, shim."""
        return [self.identity, *self._flags(checked, counting), *flags.LINK, str(flags.INCLUDE), flags.shim_hash()]

    def _flags(self, checked: bool, counting: bool) -> list[str]:
        kind = flags.kind_flags(self.version, checked, counting)
        return [*flags.ALONE, *flags.QUIET, *flags.LANGUAGE, *flags.machine_flags(), *kind, f"-I{flags.INCLUDE}"]

    def _with_shim(self, checked: bool, counting: bool) -> list[str]:
        """Flags with the shim included as text: slow, and of no file that the cache keeps."""
        return [*self._flags(checked, counting), "-include", str(flags.SHIM)]

    def _compile_with_shim(
        self, checked: bool, counting: bool, arguments: list[str], text: str, source: str | None
    ) -> None:
        """Compile with the precompiled shim; where clang refuses that, with the shim as text."""
        precompiled = self._precompiled(checked, counting)
        said = self._said([*precompiled, *arguments], text)
        if said[0] and blames_no_source(said[0], said[2]):
            check_room(said[0], said[2])
            cache.forget(Path(precompiled[-1]))
            said = self._said([*self._with_shim(checked, counting), *arguments], text)
        self._judge(said, source)

    def _precompiled(self, checked: bool, counting: bool = False) -> list[str]:
        """Flags with the shim included, from a precompiled header that the cache keeps."""
        given = self._flags(checked, counting)

        def precompile(path: Path) -> None:
            self._run([*given, "-x", "c++-header", str(flags.SHIM), "-o", str(path)])

        header = cache.made([*self.key_parts(checked=checked, counting=counting), "shim"], ".pch", precompile)
        return [*given, "-include-pch", str(header)]

    def _add_calls(self, compiled: Path, counting: bool) -> None:
        """Turn LLVM's text of a kernel, with calls before its accesses, into a machine's code with the answers inlined.

        Clang inlines before it adds those calls, so it takes a second run.
        """
        from . import checked_code, counted_code, waits

        calls, asked = (counted_code, flags.COUNTED) if counting else (checked_code, flags.CHECKED)
        text = waits.tell_order(compiled.read_bytes().decode("latin-1"))
        compiled.write_bytes(calls.instrument(text).encode("latin-1"))
        given = [*flags.ALONE, *flags.QUIET, *flags.machine_flags(), *flags.INLINED]

        def compile_answers(path: Path) -> None:
            language = [*flags.LANGUAGE, f"-I{flags.INCLUDE}"]
            self._run([*given, *language, "-emit-llvm", "-c", "-o", str(path), str(asked)])
            code = path.read_bytes()
            # LLVM's wrapper says where the code ends: what the cache writes behind it is not read
            path.write_bytes(b"".join(n.to_bytes(4, "little") for n in (0x0B17C0DE, 0, 20, len(code), 0)) + code)

        key = [*self.key_parts(checked=not counting, counting=counting), *given, asked.name]

        def link(answers: Path) -> None:
            self._to_machine_code(
                compiled, [*flags.INLINED, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(answers)]
            )

        answers = cache.made(key, ".bc", compile_answers)
        try:
            link(answers)
        except CompilerError:
            cache.forget(answers)
            link(cache.made(key, ".bc", compile_answers))

    def _split(self, compiled: Path) -> None:
        """Turn LLVM's text of a kernel into a machine's code, split at its waits if it can be."""
        from . import region_loops, regions, waits

        text = compiled.read_bytes().decode("latin-1")

        def compile_text(text: str, given: list[str]) -> None:
            compiled.write_bytes(text.encode("latin-1"))
            self._to_machine_code(compiled, given)

        try:
            compile_text(regions.split_at_waits(text), flags.SPLIT)
        except regions.NoWaits as none:
            compile_text(region_loops.in_rows(text, by_columns=none.by_columns), flags.ROWS)
        except (regions.CannotSplit, CompilerError, LookupError, ValueError):  # or it is of a form that no test has met
            if regions.is_free(text):
                compile_text(region_loops.in_rows(text), flags.ROWS)
            else:
                compile_text(waits.tell_order(text), flags.SPLIT)  # its threads take turns

    def _to_machine_code(self, compiled: Path, given: list[str]) -> None:
        """Put a machine's code in the place of LLVM's text."""
        out = str(compiled.with_suffix(".linked"))
        given = [*flags.ALONE, *flags.QUIET, *flags.machine_flags(), *given]
        self._run([*given, "-fPIC", "-c", "-o", out, "-x", "ir", str(compiled)])
        os.replace(out, compiled)

    def _link(self, objects: list[Path], out: Path) -> None:
        """Against the C library that this process has, by its path: clang may lack what finds it."""
        from .child import loaded_libraries

        self._run(["-shared", *flags.LINK, "-o", str(out), *map(str, objects), *loaded_libraries()], self._linker())

    def _linker(self) -> tuple[str, ...]:
        """The linker that clang would start: to start clang for that takes as long as to link."""
        if _is_zig(self.command):
            return (*self.command[:-1], "ld.lld")
        key = ["linker", self.identity]
        remembered = (cache.read(key) or b"").decode()
        if not os.access(remembered, os.X_OK):
            said = self._run(["--no-default-config", "-###", "-shared", os.devnull])  # "/usr/bin/ld" "-shared" ...
            remembered = said.rpartition("\n")[2].split()[0].strip('"')
            cache.write(key, remembered.encode())
        return (remembered,)

    def _said(self, arguments: list[str], text: str) -> tuple[int, str, str]:
        from .child import run

        return run([*self.command, *arguments], text)

    def _judge(self, said: tuple[int, str, str], source: str | None) -> str:
        """The compiler's output; raises what its exit code and its errors mean."""
        from metal_dlpack.language import diagnostics

        code, output, errors = said
        check_room(code, errors)
        if code == 1:
            lines = diagnostics.lines_of_source(source) if source is not None else None
            if words := diagnostics.clean(errors, lines):
                raise SourceError(words)
        if code:
            raise CompilerError(self._failure(code, errors))
        return output

    def _run(self, arguments: list[str], command: tuple[str, ...] | None = None) -> str:
        """Run the compiler, or a linker, on files of our own: of what goes wrong, only Undefined is the user's."""
        from .child import run

        code, _, errors = run([*(command or self.command), *arguments], "")
        check_room(code, errors)
        missing = _undefined_in(errors) if code else None
        if missing:
            raise Undefined(missing)
        if code:
            raise CompilerError(self._failure(code, errors))
        return errors.strip()

    def _failure(self, code: int, errors: str) -> str:
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"failed with exit code {code}"
        first = "; ".join(errors.strip().splitlines()[:3])
        said = f": {first}" if first else "."
        return f"The kernel compiler ({' '.join(self.command)}, clang {self.version}) {how}{said}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


#: What LLVM and GNU's linker say, in English, of a file that cannot grow; a user's line is behind a place and a colon.
_TAKES_NO_MORE = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File too large": errno.EFBIG,
}


def check_room(code: int, errors: str) -> None:
    """Raise the OSError that the compiler met at its output: the cache has another folder for that."""
    said = "|".join(_TAKES_NO_MORE)
    found = re.search(rf"^(?:(?:fatal )?error: |\S*ld\S*: )[^\n]*({said})'?$", errors, re.MULTILINE) if code else None
    if found or code == -signal.SIGXFSZ:
        number = _TAKES_NO_MORE[found[1]] if found else errno.EFBIG
        raise OSError(number, os.strerror(number))


def blames_no_source(code: int, errors: str) -> bool:
    """True if a failed compiler names no place, was killed, or speaks of a precompiled header: that may be our file."""
    said = r"^(?:fatal )?error: |\b(?:AST|PCH|module) file\b|precompiled header"
    return code != 1 or re.search(said, errors, re.MULTILINE) is not None


def _undefined_in(errors: str) -> str | None:
    """What GNU's linker or LLVM's misses."""
    found = re.search(
        r"undefined reference to [`'](.+)'|undefined (?:\w+ )?symbol: (.+)|symbol `(.+)' isn't defined", errors
    )
    return next((name for name in found.groups() if name), None) if found else None


def find() -> Compiler:
    """Return the compiler of kernels.  Raises CompilerNotFound.  Remembered for what SOFTMETAL_CXX and PATH say."""
    return _find(os.environ.get("SOFTMETAL_CXX", "").strip(), os.environ.get("PATH", os.defpath))


@functools.lru_cache(maxsize=8)
def _find(asked: str, path: str) -> Compiler:
    refused = []
    for command in [_asked_for(asked)] if asked else candidates(path):
        try:
            return known(command)
        except CompilerError as error:
            refused.append(str(error))
    needed = f"clang {OLDEST} or later"
    if asked:
        raise CompilerNotFound(f"SOFTMETAL_CXX ({asked}) cannot compile kernels: {refused[0]} It must be {needed}.")
    why = " ".join([f"Without a Mac, kernels need {needed}, and none is found.", *refused])
    raise CompilerNotFound(f"{why} {_WAY_OUT}")


def candidates(path: str) -> Iterator[tuple[str, ...]]:
    """Each clang++ of PATH, newest first by its name, then zig's; found by looking at names, not by running them."""
    for name in ["clang++", *(f"clang++-{version}" for version in range(NEWEST_LOOKED_FOR, OLDEST - 1, -1))]:
        if found := _program(name, path):
            yield (found,)
    if zig := zig_program():
        yield (zig, "clang")


def _program(name: str, path: str) -> str | None:
    """Return the file that a shell would run."""
    for folder in path.split(os.pathsep) if os.sep not in name else [""]:
        file = os.path.join(folder, name)
        if os.access(file, os.X_OK) and not os.path.isdir(file):
            return os.path.abspath(file)  # the compiler runs in another folder
    return None


def zig_program() -> str | None:
    """Return the program in the ziglang wheel, without importing the package."""
    import importlib.util

    spec = importlib.util.find_spec("ziglang")
    for folder in spec.submodule_search_locations or () if spec else ():
        program = os.path.join(folder, "zig")
        if os.access(program, os.X_OK):
            return program
    return None


def _asked_for(command: str) -> tuple[str, ...]:
    """The words of SOFTMETAL_CXX.

    `zig c++` builds libraries of its own on first use, and keeps caches; the clang in it does neither, and is meant.
    """
    import shlex

    try:
        words = shlex.split(command)
    except ValueError as error:  # a quotation mark without its partner
        raise CompilerNotFound(f"SOFTMETAL_CXX ({command}) is no command: {error}.") from None
    if words[-3:] in (["-m", "ziglang", "c++"], ["-m", "ziglang", "cc"]):
        zig = zig_program()
        return (zig, "clang") if zig else (*words[:-1], "clang")
    if words[-1] in {"c++", "cc"} and _is_zig((*words[:-1], "clang")):
        words[-1] = "clang"
    return (_program(words[0], os.environ.get("PATH", os.defpath)) or words[0], *words[1:])


def _is_zig(command: tuple[str, ...]) -> bool:
    """Zig's clang, which has its own linker beside it."""
    return len(command) > 1 and command[-1] == "clang" and os.path.basename(command[-2]).startswith("zig")


def known(command: tuple[str, ...]) -> Compiler:
    """Return the compiler that a command runs; it is asked for its version, unless the cache remembers its files.

    Raises CompilerError for what is no clang, or too old.
    """
    files = [facts for word in command if (facts := _file_facts(word))]
    key = ["compiler", *command, *files]
    remembered = cache.read(key)
    said = remembered.decode() if remembered is not None else _version_text(command)
    version = said.partition("clang version ")[2].partition(".")[0]
    if not version.isdecimal():
        raise CompilerError(f"{' '.join(command)} is not clang.")
    if int(version) < OLDEST:
        raise CompilerError(f"{' '.join(command)} is clang {version}.")
    if remembered is None:
        cache.write(key, said.encode())
    return Compiler(command, int(version), "\0".join([*command, *files, said]))


def _version_text(command: tuple[str, ...]) -> str:
    from .child import run

    # mutant survives (number #2): no test waits so long for an answer
    code, output, errors = run([*command, "--version"], "", seconds=30)
    if code:
        raise CompilerError(f"{' '.join(command)} --version fails ({(errors or output).strip()[:200]}).")
    return output


def _file_facts(word: str) -> str:
    """What changes when the compiler is replaced; empty for what is no program."""
    found = _program(word, os.environ.get("PATH", os.defpath))
    if not found:
        return ""
    facts = os.stat(found)
    return f"{os.path.realpath(found)} {facts.st_size} {facts.st_mtime_ns}"


def _of_the_user(preprocessed: str) -> str:
    """Clang's markers (`# 3 "file" 2`) become `#line 3 "file"`; what belongs to no file of the user is left out.

    What is included (1) is our header: clang sees no other file.
    """
    from metal_dlpack.language import diagnostics

    kept, is_kept = [], True
    for line in preprocessed.splitlines(keepends=True):
        marker = re.match(r'# (\d+) "((?:[^"\\]|\\.)*)"( 1\b)?', line)
        if marker is None:
            kept += [line] if is_kept else []
            continue
        is_kept = not marker[3] and not diagnostics.is_ours(marker[2])
        if is_kept:
            kept.append(f'#line {marker[1]} "{marker[2]}"\n')
    return re.sub(_CONTRACT, r"#pragma clang fp contract(\1)", "".join(kept))


#: SPEC Metal Shading Language Specification 3.2, 1.6.3: pragmas of floating-point arithmetic.  That of the math mode is
#: left: every mode contracts.  contraction.py does for vectors what clang's pragma does.
_CONTRACT = r"(?m)^#pragma METAL +fp +contract *\( *(off|on|fast) *\) *$"
