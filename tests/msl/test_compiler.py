"""msl/compiler.py: which clang compiles kernels, what it sees, what it makes, and what is said when it cannot."""

import json
import os
import re
import shlex
import sys
import textwrap
import time
from pathlib import Path

import pytest
from children import is_running, run_child
from eventually import PATIENCE, until
from kernel_images import translated

from metal_dlpack.language.errors import CompilerError, CompilerNotFound, SourceError
from softmetal import msl
from softmetal.msl import cache, child, compiler, flags

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="Metal compiles kernels there")


def program(folder, name, text):
    """A stand-in for a compiler."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(text))
    path.chmod(0o755)
    return path


# ---- which compiler ----


def says(folder, name, version):
    return program(folder, name, f"print('clang version {version}')")


@pytest.fixture
def nothing_installed(tmp_path, monkeypatch):
    """An empty PATH, no zig, a cache of its own."""
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SOFTMETAL_CXX", raising=False)
    monkeypatch.setattr(compiler, "zig_program", lambda: None)
    compiler._find.cache_clear()
    yield tmp_path
    compiler._find.cache_clear()


def test_without_a_compiler_the_error_says_how_to_get_one(nothing_installed):
    with pytest.raises(CompilerNotFound) as raised:
        compiler.find()
    for words in ("clang 17 or later", "apt-get install clang", "metal_dlpack[kernels]", "SOFTMETAL_CXX"):
        assert words in str(raised.value)


def test_the_newest_clang_of_the_path_is_taken_and_plain_clang_before_it(nothing_installed):
    says(nothing_installed, "clang++-18", "18.1.3")
    says(nothing_installed, "clang++-21", "21.1.0")
    assert compiler.find().version == 21
    says(nothing_installed, "clang++", "20.1.0 (https://example.org)")
    compiler._find.cache_clear()
    assert compiler.find().version == 20


def test_a_clang_that_is_too_old_is_passed_over_and_named_when_there_is_no_other(nothing_installed):
    old = says(nothing_installed, "clang++", "14.0.6")
    with pytest.raises(CompilerNotFound, match=f"{re.escape(str(old))} is clang 14"):
        compiler.find()
    says(nothing_installed, "clang++-17", "17.0.6")
    compiler._find.cache_clear()
    assert compiler.find().version == 17


def test_what_softmetal_cxx_names_is_taken_alone_with_its_arguments(nothing_installed, monkeypatch):
    says(nothing_installed, "clang++", "19.1.0")
    text = "import sys; print('clang version 18.0.0' if sys.argv[1] == '--x' else '')"
    wrapper = program(nothing_installed, "wrapper", text)
    monkeypatch.setenv("SOFTMETAL_CXX", "wrapper --x")
    assert compiler.find().command == (str(wrapper), "--x")
    assert compiler.find().version == 18
    monkeypatch.chdir(nothing_installed)
    monkeypatch.setenv("SOFTMETAL_CXX", "./wrapper --x")
    assert compiler.find().command == (str(wrapper), "--x")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("gcc", "SOFTMETAL_CXX .*is not clang"),
        ("fails", "SOFTMETAL_CXX .*--version fails"),
        ("/nonexistent/clang++ -x", r"/nonexistent/clang\+\+ does not start: No such file"),
        ("clang++ '", r"SOFTMETAL_CXX \(clang\+\+ '\) is no command: No closing quotation\."),
    ],
)
def test_what_softmetal_cxx_names_and_is_no_clang_is_refused(nothing_installed, monkeypatch, asked, why):
    """A clang on PATH does not stand in for what was asked for."""
    says(nothing_installed, "clang++", "19.1.0")
    program(nothing_installed, "gcc", "print('gcc 14')")
    program(nothing_installed, "fails", "raise SystemExit('no')")
    monkeypatch.setenv("SOFTMETAL_CXX", asked)
    with pytest.raises(CompilerNotFound, match=why):
        compiler.find()


def test_a_blank_softmetal_cxx_is_none(nothing_installed, monkeypatch):
    says(nothing_installed, "clang++", "19.1.0")
    monkeypatch.setenv("SOFTMETAL_CXX", " ")
    assert compiler.find().version == 19


def test_a_compiler_is_asked_for_its_version_once_until_it_is_replaced(nothing_installed):
    log = nothing_installed / "log"
    text = f"open({str(log)!r}, 'a').write('asked\\n'); print('clang version {{}}.0.0')"
    program(nothing_installed, "clang++", text.format(19))
    for _ in range(3):
        compiler._find.cache_clear()  # as in another process
        assert compiler.find().version == 19
    assert log.read_text() == "asked\n"
    first = compiler.find().identity
    program(nothing_installed, "clang++", text.format(22) + "  # longer")
    compiler._find.cache_clear()
    assert compiler.find().version == 22
    assert compiler.find().identity != first


def test_zig_is_used_as_the_clang_in_it(monkeypatch):
    """`zig c++` builds libraries on its first use, for a minute, and keeps caches."""
    zig = compiler.zig_program()
    if zig is None:
        pytest.skip("ziglang is not installed")
    for asked in (f"{zig} c++", f"{shlex.quote(sys.executable)} -m ziglang c++"):
        monkeypatch.setenv("SOFTMETAL_CXX", asked)
        assert compiler.find().command == (zig, "clang")


def test_a_c_driver_called_clang_is_no_zig(nothing_installed, monkeypatch):
    says(nothing_installed, "clang", "19.1.0")
    program(nothing_installed, "ccache", "print('clang version 19.1.0')")
    for asked in ("clang", "ccache clang"):
        monkeypatch.setenv("SOFTMETAL_CXX", asked)
        assert not compiler._is_zig(compiler.find().command)


# ---- what it sees ----


def test_only_the_users_own_text_is_expanded_and_lines_keep_their_numbers(clang):
    source = "#include <metal_stdlib>\n#include <simd/simd.h>\nusing namespace metal;\n#define TWICE(x) (2 * x)\n"
    source += '#line 40 "mine.h"\nint f(int x) { return TWICE(x); }\n'
    lines = clang.preprocess(source).splitlines()
    at = lines.index("int f(int x) { return (2 * x); }")
    assert [line for line in lines[:at] if line.startswith("#line")][-1] == '#line 40 "mine.h"'
    assert "using namespace metal;" in lines
    assert all(line.startswith("#line ") or line.strip() in {"", "using namespace metal;", lines[at]} for line in lines)


def test_metals_macros_are_defined_and_the_machines_are_not(clang):
    kept = clang.preprocess(
        "#if defined(__METAL__) && __METAL_VERSION__ >= 310 && __HAVE_BFLOAT__ && __APPLE__\nmetal\n#endif\n"
        "#if defined(__linux__) || defined(__x86_64__) || defined(__aarch64__) || defined(__GNUC__)\nmachine\n#endif\n"
    )
    assert "metal" in kept
    assert "machine" not in kept


def test_every_header_of_metals_library_is_there(clang):
    listed = json.loads(flags.HEADERS.read_text())["roots"]
    names = {"metal_stdlib", *(row["name"].removeprefix("empty-headers/") for row in listed)}
    some = "array atomic common compute geometric integer limits math matrix pack relational simdgroup simdgroup_matrix"
    assert {f"metal_{name}" for name in f"{some} stdlib texture type_traits types".split()} < names
    clang.preprocess("".join(f"#include <{name}>\n" for name in names))


@pytest.mark.parametrize(
    "text",
    [
        "float g() { return; }",
        "void g() { return 1; }",
        "int g() { int x{1.5f}; return x; }",
        "int g() { uchar x[1] = {300}; return x[0]; }",
    ],
)
def test_what_clang_makes_an_error_is_one(clang, text):
    with pytest.raises(SourceError):
        clang.check(text)


@pytest.mark.parametrize(
    "text", ["int g() { register int x = 1; return x; }", "float g(float x) { if (x > 0) return 1; }"]
)
def test_what_metal_warns_of_is_taken(clang, text):
    clang.check(text)


def test_headers_of_the_machine_are_not_found(clang):
    with pytest.raises(SourceError, match=r"^program_source:1:10: error: 'stdio\.h' file not found\n"):
        clang.preprocess("#include <stdio.h>\n")


@pytest.mark.parametrize(
    "metals, clangs",
    [
        ("METAL fp contract(off)", "clang fp contract(off)"),
        ("METAL fp contract ( fast )", "clang fp contract(fast)"),
        ("METAL fp math_mode(safe)", "METAL fp math_mode(safe)"),
        ("METAL internals : enable", "METAL internals : enable"),
        ("unroll", "unroll"),
    ],
)
def test_pragmas_of_arithmetic_are_clangs(clang, metals, clangs):
    lines = clang.preprocess(f"int before;\n#pragma {metals}\nint after;\n").splitlines()
    assert lines[lines.index("int before;") :][1:] == [f"#pragma {clangs}", "int after;"]


def test_files_of_the_working_directory_are_not_found(clang, monkeypatch, tmp_path):
    """SPEC newLibraryWithSource:options:error: a source has no folder."""
    (tmp_path / "near.h").write_text("int near;\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"'near\.h' file not found"):
        clang.preprocess('#include "near.h"\n')


def test_files_that_are_there_are_not_found_by_their_full_path(clang, tmp_path):
    (tmp_path / "far.h").write_text("int far;\n")
    line = f'  #include "{tmp_path}/far.h"'
    with pytest.raises(SourceError) as raised:
        clang.preprocess(f"\n{line}\n")
    where = " " * 11 + "^"
    assert str(raised.value) == f"program_source:2:12: error: '{tmp_path}/far.h' file not found\n{line}\n{where}\n"


def test_what_was_preprocessed_once_is_remembered(clang, monkeypatch, tmp_path):
    text = f"#define A {tmp_path.name}\nint A;\n"
    first = clang.preprocess(text)
    monkeypatch.setattr(compiler.Compiler, "_said", None)
    assert clang.preprocess(text) == first
    with pytest.raises(TypeError):
        clang.preprocess(text + "float x;")
    monkeypatch.setattr(flags, "translator_hash", lambda: "another version")
    with pytest.raises(TypeError):
        clang.preprocess(text)


def test_the_environment_does_not_reach_the_compiler(clang, monkeypatch, tmp_path):
    (tmp_path / "trap.h").write_text("int trapped;\n")
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-DTRAP=1")
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent/trap.so")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert "TRAP" in clang.preprocess("TRAP\n")
    with pytest.raises(SourceError, match=r"'trap\.h' file not found"):
        clang.preprocess("#include <trap.h>\n")


def test_a_source_may_hold_any_character(clang):
    assert "// grün" not in clang.preprocess("// grün \N{SNOWMAN}\nint x;\n")
    with pytest.raises(SourceError, match="\N{SNOWMAN}"):
        clang.preprocess('#error "\N{SNOWMAN}"\n')


# ---- what it makes ----


@pytest.mark.parametrize(
    ("version", "flag"),
    [(18, "unique-traps"), (19, "unique-traps"), (20, "sanitize-merge"), (22, "sanitize-merge")],
)
def test_each_clang_is_told_in_its_own_words_to_keep_traps_apart(version, flag):
    assert sum(flag in word for word in flags.kind_flags(version, True)) == 1


def test_an_image_is_one_file_exports_one_name_and_needs_the_c_library_alone(clang, tmp_path):
    from elftools.elf.elffile import ELFFile

    out, text = tmp_path / "image.so", translated("y[i] = __builtin_sinf(x[i]) + __builtin_powf(x[i], y[i]);")
    for checked in (True, False):
        clang.build(text, out, checked=checked)
        assert os.listdir(tmp_path) == ["image.so"]
    with out.open("rb") as file:
        elf = ELFFile(file)
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        exported = [symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name]
        has_lines = elf.get_section_by_name(".debug_line") is not None
        needed = [tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")]
    assert exported == ["softmetal_image"]
    assert not has_lines, "a plain image needs none"
    assert {name.split(".")[0] for name in needed} <= {"libm", "libc", "libgcc_s", "ld-musl-x86_64", "ld-musl-aarch64"}


def test_a_name_that_no_library_has_is_told_when_the_image_is_made(clang, tmp_path):
    declared = 'extern "C" float no_such_function(float);\n' + translated("y[i] = no_such_function(x[i]);")
    with pytest.raises(CompilerError, match="no_such_function"):
        clang.build(declared, tmp_path / "image.so")


@pytest.mark.long
def test_an_image_for_arm64_is_made_anywhere(clang, tmp_path, monkeypatch):
    """Up to the linker, which would need that machine's C library."""
    monkeypatch.setattr(flags, "machine", lambda: "aarch64")
    monkeypatch.setattr(flags, "machine_flags", flags.machine_flags.__wrapped__)
    linked = []
    monkeypatch.setattr(
        compiler.Compiler, "_link", lambda _, objects, out: linked.append(Path(objects[0]).read_bytes())
    )
    clang.build(translated(), tmp_path / "image.so", checked=True)
    (made,) = linked
    assert made[:4] == b"\x7fELF"
    assert int.from_bytes(made[18:20], "little") == 183  # EM_AARCH64


# ---- what goes wrong ----


def test_a_wrong_source_is_the_users_error_in_the_users_words(clang, tmp_path):
    wrong = translated("y[i] = half4(y);")
    source = "\n\nkernel void f(device const float *x)\n    y[i] = half4(y);\n"
    for act in (lambda: clang.check(wrong, source), lambda: clang.build(wrong, tmp_path / "x.so", source=source)):
        with pytest.raises(SourceError) as raised:
            act()
        first, line, caret = str(raised.value).splitlines()[:3]
        assert first.startswith("program_source:4:12: error: ")
        assert "vec<" not in first and "_Float16" not in first
        assert line == "    y[i] = half4(y);"
        assert caret == " " * 11 + "^"
    assert not list(tmp_path.iterdir())


def fails(folder, text):
    """A clang that answers --version and then does this."""
    version = "import os, sys, time\nif '--version' in sys.argv:\n    print('clang version 19.0.0'); sys.exit()\n"
    return compiler.known((str(program(folder, "clang++", version + text)),))


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os.kill(os.getpid(), 9)", r"clang\+\+, clang 19\) was killed by SIGKILL\.$"),
        (
            "sys.stderr.write('fatal error: error in backend: no\\n'); sys.exit(70)",
            "failed with exit code 70: fatal error: error in backend: no$",
        ),
        (
            "sys.stderr.write('program_source:1:1: error: no\\n'); sys.exit(70)",
            "failed with exit code 70: program_source:1:1: error: no$",
        ),
    ],
)
def test_a_compiler_that_ends_badly_is_a_sentence_with_its_own_words(nothing_installed, end, told):
    with pytest.raises(CompilerError, match=told):
        fails(nothing_installed, end).preprocess("int x;")


@pytest.mark.parametrize(
    "said",
    [
        "fatal error: error in backend: IO failure on output stream: No space left on device",
        "error: unable to open output file '/a/b.o': 'No space left on device'",
        "ld.lld: error: failed to write output 'b.so': Disk quota exceeded",
        "/usr/bin/ld: final link failed: File too large",
        "",
    ],
)
def test_a_compiler_whose_disk_is_full_is_an_error_of_the_system(nothing_installed, said):
    """So that the cache has the kernel made elsewhere."""
    signalled = "import signal as s; s.signal(s.SIGXFSZ, s.SIG_DFL); os.kill(os.getpid(), s.SIGXFSZ)"
    full = fails(nothing_installed, f"print({said!r}, file=sys.stderr); {'sys.exit(1)' if said else signalled}")
    for write in (lambda: full.preprocess("int x;"), lambda: full._link([], nothing_installed / "out.so")):
        with pytest.raises(OSError, match=r"No space left|quota exceeded|File too large"):
            write()


def test_the_linker_is_the_one_that_clang_names_and_asked_for_again_when_it_is_gone(nothing_installed):
    told = nothing_installed / "told"
    clang = fails(nothing_installed, f"print(open({str(told)!r}).read(), file=sys.stderr)")
    for name in ("first", "second"):
        linker = program(nothing_installed, name, "")
        for said in (f'clang version 19.0.0\n "{linker}" "-m" "elf_x86_64" "-shared"', "it is remembered"):
            told.write_text(said)
            assert clang._linker() == (str(linker),)
        linker.unlink()


def test_a_source_that_speaks_of_a_full_disk_is_the_users_error(clang):
    with pytest.raises(SourceError, match="No space left on device"):
        clang.preprocess("#error No space left on device\n")


def test_a_compiler_that_takes_too_long_is_stopped_with_all_that_it_started(nothing_installed, monkeypatch):
    started = nothing_installed / "started"
    broken = fails(
        nothing_installed,
        f"if os.fork() == 0:\n    open({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n",
    )
    for seconds in (1.5, 15.0):  # on a busy machine a child may not even begin in the first
        monkeypatch.setattr(child.run, "__kwdefaults__", {"seconds": seconds})
        start = time.monotonic()
        with pytest.raises(CompilerError, match=rf"was stopped: it took longer than {seconds:g} s\."):
            broken.preprocess("int x;")
        assert time.monotonic() - start < PATIENCE, "it waited for what the compiler had started"
        if started.exists() and started.read_text():
            break
    until(lambda: not is_running(int(started.read_text())))


def test_a_machine_that_is_neither_x86_64_nor_arm64_is_a_sentence(monkeypatch):
    monkeypatch.setattr(flags, "machine", lambda: "riscv64")
    with pytest.raises(CompilerError, match="this machine is riscv64"):
        flags.machine_flags.__wrapped__()


def test_the_package_does_not_import_the_compiler():
    code = "import sys, metal_dlpack; sys.exit(any(name.startswith('softmetal.msl') for name in sys.modules))"
    assert run_child(code).returncode == 0


# ---- what the cache keeps for the compiler ----


@pytest.mark.parametrize("suffix", [".pch", ".bc"])
@pytest.mark.some(1)
def test_a_file_of_the_cache_that_clang_refuses_is_the_caches_fault(tmp_path, monkeypatch, suffix):
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path))
    text = "kernel void f(device float *x) { x[0] = "
    msl.open_library(text + "1; }").compile("f", {}, checked=True)
    broken = list(tmp_path.rglob("*" + suffix))
    for path in broken:
        data = path.read_bytes()[: path.stat().st_size // 2]
        if suffix == ".pch":
            path.with_name(path.name + "_seal").write_bytes(cache._seal(path, data))
            path.write_bytes(data)
        else:
            path.write_bytes(data + cache._seal(path, data))
        assert cache.is_sound(path)
    assert broken
    assert msl.open_library(text + "2; }").compile("f", {}, checked=True)
    with pytest.raises(SourceError, match="undeclared identifier 'y'") as raised:
        msl.open_library(text + "y; }")
    assert "file" not in str(raised.value).replace("program_source", "")
