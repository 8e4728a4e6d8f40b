"""The software Metal: every case of tests/softmetal/*.m, one process each.

A program is compiled once per session and build; its cases are found by reading its source, so a
new case needs no edit here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from machine import can_sanitize, has_module
from places import DOCS, INSIDE, SRC

SOURCES = SRC / "softmetal"
PROGRAMS = Path(__file__).resolve().parent
IMAGES = sorted(PROGRAMS.glob("images/*.c"))  # kernels that programs load: files beside them
GUIDE = DOCS / "softmetal.md"
TABLE = INSIDE / "softmetal.md"

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
COMMON = ["-std=gnu11", "-g", "-O1", "-fvisibility=hidden", "-pthread", *WARNINGS, f"-I{SRC}", f"-I{SOURCES}"]
KINDS = {"asan": "address,undefined", "tsan": "thread"}
BUILDS = {
    "plain": [],
    "asan": [f"-fsanitize={KINDS['asan']}", "-fno-sanitize-recover=all"],
    "tsan": [f"-fsanitize={KINDS['tsan']}"],
}
THREADED = ["events", "kernel_runs", "order", "queues", "races", "threads"]  # what the thread sanitizer looks at


def has_objective_c() -> bool:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        return False
    probe = ["gcc", "-x", "objective-c", "-fsyntax-only", "-"]
    source = "#import <objc/objc.h>\n"
    return subprocess.run(probe, input=source, text=True, capture_output=True).returncode == 0


# Its programs have sanitizers of their own, which another one's runtime would disturb.
pytestmark = [
    pytest.mark.skipif(not has_objective_c(), reason="needs gcc with Objective-C, on Linux"),
    pytest.mark.needs_no_sanitizer,
]


@dataclass(frozen=True)
class Case:
    program: str
    name: str
    kind: str | None  # of the report it must cause


@cache
def read_cases() -> list[Case]:
    pattern = re.compile(r'^(LEAKY_)?(CASE|REPORTS|RACES)\((?:"([a-z-]+)", )?(\w+)\)', re.MULTILINE)
    return [
        Case(path.stem, match.group(4), "race" if match.group(2) == "RACES" else match.group(3))
        for path in sorted(PROGRAMS.glob("*.m"))
        for match in pattern.finditer(path.read_text())
    ]


def words(pattern: str, name: str) -> list[str]:
    return re.findall(pattern, (SOURCES / name).read_text())


REPORT_KINDS = words(r'X\(SOFT_REPORT_\w+, "([a-z-]+)"\)', "validation.h")
SETTINGS = words(r'"(SOFTMETAL_\w+)"', "settings.h")
FAILURES = words(r'X\(SOFT_FAIL_\w+, "(\w+)"\)', "failure.h")


def compile_file(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", result.stderr


class Builder:
    """Compiles the sources once per build, and each program once per build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives: dict[str, Path] = {}
        self.programs: dict[tuple[str, str], Path] = {}

    def archive(self, build: str) -> Path:
        if build not in self.archives:
            folder = self.folder / build
            folder.mkdir()
            objects = []
            for source in sorted(SOURCES.rglob("*.[cm]")):
                objects.append(str(folder / f"{source.name}.o"))
                flags = [*COMMON, *BUILDS[build], "-fPIC"]
                compile_file(["gcc", *flags, "-c", str(source), "-o", objects[-1]])
            linked = folder / "softmetal.o"  # one object: no class is left out of a program
            compile_file(["gcc", "-r", "-nostdlib", *objects, "-o", str(linked)])
            for source in IMAGES:
                image = folder / f"{source.stem}.so"
                compile_file(["gcc", "-O2", *WARNINGS, f"-I{SRC}", "-shared", "-fPIC", str(source), "-o", str(image)])
            self.archives[build] = linked
        return self.archives[build]

    def program(self, name: str, build: str) -> Path:
        if build in KINDS and not can_sanitize(KINDS[build]):
            pytest.skip(f"the compiler has no -fsanitize={KINDS[build]}")
        if (name, build) not in self.programs:
            linked = self.archive(build)
            path = self.folder / build / name
            source = str(PROGRAMS / f"{name}.m")
            flags = [*COMMON, *BUILDS[build], "-rdynamic", f"-I{PROGRAMS}"]
            compile_file(["gcc", *flags, source, str(linked), "-lobjc", "-o", str(path)])
            self.programs[name, build] = path
        return self.programs[name, build]


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("softmetal"))


def run(program: Path, case: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
    # libobjc itself leaks a few list cells when it loads classes; nothing else is excused.
    environment["LSAN_OPTIONS"] = f"suppressions={PROGRAMS / 'libobjc.supp'}:print_suppressions=0"
    environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0:handle_abort=0"
    environment["TSAN_OPTIONS"] = "halt_on_error=1"
    command = [str(program), case]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment | settings)


def builds_of(case: Case) -> list[str]:
    is_seen_twice = (case.program, case.kind) == ("races", "race")  # by the thread sanitizer as well
    is_threaded = case.program in THREADED and not is_seen_twice
    return ["plain", "asan", "tsan"] if is_threaded else ["plain", "asan"]


def name_of(value: object) -> str:
    return f"{value.program}-{value.name}" if isinstance(value, Case) else str(value)


EVERY_CASE = [(case, build) for case in read_cases() for build in builds_of(case)]
EVERY_REPORT = [(case, build) for case, build in EVERY_CASE if case.kind is not None]


def each(cases: list[tuple[Case, str]]) -> pytest.MarkDecorator:
    """The builds with sanitizers are long, but for one program, in which all parts meet."""
    long = [(case, build) for case, build in cases if build != "plain" and case.program != "threads"]
    rows = [pytest.param(*row, marks=pytest.mark.long) if row in long else row for row in cases]
    return pytest.mark.parametrize("case, build", rows, ids=name_of)


@each(EVERY_CASE)
def test_without_validation_wrong_use_passes_in_silence(builder: Builder, case: Case, build: str) -> None:
    result = run(builder.program(case.program, build), case.name)
    assert result.returncode == 0, result.stderr


#: Counts a wrong use without a report of its own; another case is the same with one.
COUNTED_ONLY = "an_object_autoreleased_with_no_pool_leaks_and_is_counted"
REPORTED_CASES = [(case, build) for case, build in EVERY_CASE if case.name != COUNTED_ONLY]


@each(REPORTED_CASES)
def test_validation_reports_wrong_use_once_and_right_use_never(builder: Builder, case: Case, build: str) -> None:
    result = run(
        builder.program(case.program, build), case.name, SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log"
    )
    assert result.returncode == 0, result.stderr
    if case.kind is not None:
        assert f"softmetal: {case.kind}: " in result.stderr


@each(EVERY_REPORT)
def test_the_mode_abort_ends_the_process_with_the_message(builder: Builder, case: Case, build: str) -> None:
    result = run(builder.program(case.program, build), case.name, SOFTMETAL_VALIDATION="1")
    assert result.returncode == -6, result.stderr
    assert f"softmetal: {case.kind}: " in result.stderr


def test_every_class_of_report_has_a_case_that_fires_it() -> None:
    # in a child of the case on forks; by kernels of Metal's language, tests/kernels/test_kernel_check.py
    fired = {case.kind for case in read_cases()} | {"fork", "kernel"}
    assert fired - {None} == set(REPORT_KINDS)


def test_each_queue_repeats_its_order_in_another_process(builder: Builder) -> None:
    program = builder.program("order", "plain")
    case = "the_same_seed_gives_the_same_order"
    first, second = run(program, case), run(program, case)
    assert first.stdout == second.stdout
    assert set(first.stdout.strip()) >= {"1", "2"}


@pytest.mark.parametrize(
    "case",
    ["a_forked_child_can_make_nothing_and_waits_for_nothing", "a_removed_device_makes_nothing_more"],
)
def test_settings_come_from_the_environment(builder: Builder, case: str) -> None:
    program = builder.program("failures", "plain")
    result = run(program, case, SOFTMETAL_FAIL="device@1+")
    assert result.returncode == 1 and "device != nil" in result.stderr


def test_the_rules_of_the_environment_count_the_very_first_call(builder: Builder) -> None:
    program = builder.program("first_call", "plain")
    assert run(program, "").stdout == "1\n"
    assert run(program, "", SOFTMETAL_FAIL="device@1").stdout == "0\n"


def test_a_setting_that_is_not_understood_is_reported_and_ignored(builder: Builder) -> None:
    program = builder.program("buffers", "plain")
    result = run(program, "a_new_buffer_holds_zeros", SOFTMETAL_POISON="often")
    assert result.returncode == 0
    assert 'softmetal: SOFTMETAL_POISON ("often") is not understood; it stays "0".' in result.stderr


@pytest.mark.parametrize("seed", ["1", "2", "3", "last"])
@pytest.mark.parametrize("program", ["events", "queues", "buffers"])
def test_right_use_survives_every_order(builder: Builder, program: str, seed: str) -> None:
    path = builder.program(program, "plain")
    for case in read_cases():
        if case.program == program and case.kind is None:
            result = run(path, case.name, SOFTMETAL_SEED=seed, SOFTMETAL_VALIDATION="1")
            assert result.returncode == 0, f"{case.name}: {result.stderr}"


def test_a_dead_object_is_reported_with_the_places_of_its_birth_and_death(builder: Builder) -> None:
    program = builder.program("foundation", "plain")
    case = "a_message_to_an_object_that_is_gone"
    result = run(program, case, SOFTMETAL_VALIDATION="1")
    assert "-[NSObject release] is sent to an object that is gone" in result.stderr
    assert re.search(r"made at \S*.*foundation\+0x.* and freed at \S*.*foundation\+0x", result.stderr)


#: Reports on lifetimes, and what stands before the place that made the object.
LIFETIMES = [
    ("queues", "a_buffer_destroyed_while_its_command_buffer_runs", r"\(8 bytes, made at "),
    ("queues", "a_commit_that_names_a_buffer_that_is_gone", r"\(8 bytes, made at "),
    ("queues", "an_encoder_released_without_end_encoding", r"endEncoding; it was made at "),
    ("foundation", "another_thread_has_no_pool", r"with no pool in place and leaks, at .*; it was made at "),
]


@pytest.mark.parametrize("program, case, words", LIFETIMES)
def test_a_mistake_with_a_lifetime_is_reported_with_the_place_that_made_the_object(
    builder: Builder, program: str, case: str, words: str
) -> None:
    path = builder.program(program, "plain")
    result = run(path, case, SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log")
    assert re.search(rf"{words}\S*.*{program}\+0x[0-9a-f]+", result.stderr), result.stderr


@pytest.mark.parametrize("seed", ["0", "1", "last"])
@pytest.mark.parametrize("latency", ["0", "2000"])
def test_a_race_is_found_whatever_the_time(builder: Builder, seed: str, latency: str) -> None:
    """It is a matter of what comes before what, not of who is faster."""
    program = builder.program("races", "plain")
    for case in read_cases():
        if (case.program, case.kind) == ("races", "race"):
            result = run(
                program, case.name, SOFTMETAL_VALIDATION="1", SOFTMETAL_SEED=seed, SOFTMETAL_LATENCY_US=latency
            )
            assert result.returncode == -6, f"{case.name}: {result.stderr}"
            assert "softmetal: race: " in result.stderr


def test_a_race_is_reported_with_both_places(builder: Builder) -> None:
    program = builder.program("races", "plain")
    result = run(
        program, "the_cpu_reads_what_the_gpu_writes", SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log"
    )
    place = r"\S*races\+0x[0-9a-f]+\)?( < \S+( \S+\))?)*"
    gpu, cpu = (
        rf"a write of bytes 0 to 64 by queue 1, encoded at {place}",
        rf"a read of bytes 0 to 64 by the CPU at {place}",
    )
    assert re.search(rf'the buffer "" \(64 bytes\): ({gpu}; and {cpu}|{cpu}; and {gpu})\.', result.stderr), (
        result.stderr
    )


def test_the_document_names_every_setting_report_and_failure() -> None:
    text = GUIDE.read_text()
    for word in [*SETTINGS, *REPORT_KINDS, *FAILURES]:
        assert f"`{word}`" in text, word


def modelled() -> list[list[str]]:
    """The rows of the table of what is modelled: behaviour, Apple's statement, cases."""
    text = TABLE.read_text()
    part = text[text.index("## What is modelled") : text.index("## What is not modelled")]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == 3][2:]  # without its head


def test_each_behaviour_has_a_source_and_cases_that_exist() -> None:
    known = {f"{case.program}: {case.name}" for case in read_cases()}
    rows = modelled()
    assert len(rows) > 50
    for behaviour, source, cases in rows:
        assert re.match(
            r"pages? [`\"]|page|header \w+\.h|Guide, |layer|Technical Note|the same page|the pages of|none|clang, |\"",
            source,
        ), behaviour
        named = re.findall(r"`([^`]+)`", cases)
        assert named and set(named) <= known, behaviour


def test_each_case_that_shows_right_use_stands_in_the_table_or_is_of_a_tool() -> None:
    """What wrong use causes stands in the table of reports."""
    # strings, the run time of kernels, the finer points of races, all of it at once
    tools = {"foundation", "kernel_runs", "races", "threads"}
    named = {name for row in modelled() for name in re.findall(r"`([^`]+)`", row[2])}
    shown = {f"{case.program}: {case.name}" for case in read_cases() if case.kind is None and case.program not in tools}
    assert shown - named == OF_TOOLS


#: Cases about the software Metal itself, which Metal has not.
OF_TOOLS = {
    "buffers: a_huge_buffer_costs_nothing_until_it_is_touched",
    "failures: a_failed_command_buffer_may_signal_if_the_setting_says_so",
    "failures: a_rule_that_is_not_understood_changes_nothing",
    "libraries: a_compiler_that_is_interrupted_gives_no_library_and_no_error",
    "libraries: a_library_keeps_the_compiler_that_opened_it",
    "libraries: a_text_that_names_a_registered_kernel_is_not_compiled",
    "failures: validation_reports_metal_in_a_child",
}


#: What the software Metal promises, whatever else it does; a word each that must stand in the first column.
PROMISED = [
    "private memory", "managed memory", "commit returns at once", "order of enqueue", "queues are independent", "one seed is one order",
    "handlers run once, on a foreign thread", "tracked buffers", "untracked work is reordered", "references are held", "unretained references",
    "shared events order queues", "pools belong to threads", "no pool", "purgeable state", "forked child", "64 command buffers",
    "nil where a buffer cannot be made", "every error code", "deallocator",
]  # fmt: skip


def test_what_apple_is_said_to_say_it_of_is_apples() -> None:
    """A page is named by the selector, function or constant that it describes."""
    from conformance import reference

    tables = [reference.tables(name) for name in ("Metal", "Foundation")]
    known = set(reference.selectors()).union(*(t.functions for t in tables), *(t.constants for t in tables))
    known = known.union(*(t.enums for t in tables))
    named = {word for row in modelled() for word in re.findall(r"`([^`]+)`", row[1])}
    assert len(named) > 40
    assert named - known == set()


@pytest.mark.parametrize("words", PROMISED)
def test_what_is_promised_stands_in_the_table(words: str) -> None:
    assert any(words in row[0] for row in modelled())


def test_no_symbol_of_the_library_can_meet_anothers(builder: Builder) -> None:
    listing = subprocess.run(
        ["nm", "--defined-only", "-g", str(builder.archive("plain"))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    allowed = re.compile(r"soft_|softmetal_|MTL|_NSConcrete|__objc_class_(name|ref)_|_OBJC_")
    assert [name for name in names if not allowed.match(name)] == []


@pytest.mark.skipif(not has_module("ziglang"), reason="the compiler for macOS is the ziglang package")
@pytest.mark.parametrize("blocks", ["-fblocks", "-fno-blocks"])
def test_clang_for_macos_accepts_the_headers(tmp_path: Path, blocks: str) -> None:
    source = tmp_path / "headers.m"
    source.write_text("#import <Metal/Metal.h>\nNSUInteger f(id<MTLBuffer> b) { return b.length; }\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos", *WARNINGS, blocks]
    compile_file([*command, f"-I{SOURCES}", "-c", str(source), "-o", str(tmp_path / "headers.o")])
