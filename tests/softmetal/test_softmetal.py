"""The software Metal: every case of tests/softmetal/*.m, each in a child of runner.c.

All cases are compiled once per session and build, into one library; they are found by reading their sources, so a new
case needs no edit here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from machine import can_sanitize, has_module
from places import DOCS, INSIDE, PACKAGES, SRC

SOURCES = SRC / "softmetal"
CASES = Path(__file__).resolve().parent
IMAGES = sorted(CASES.glob("images/*.c"))  # kernels that cases load: files beside the runner
GUIDE = DOCS / "softmetal.md"
TABLE = INSIDE / "softmetal.md"

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
INCLUDED = [f"-I{SRC}", f"-I{PACKAGES}"]
COMMON = ["-std=gnu11", "-g", "-O1", "-fvisibility=hidden", "-pthread", *WARNINGS, *INCLUDED, f"-I{SOURCES}"]
KINDS = {"asan": "address,undefined", "tsan": "thread"}
BUILDS = {
    "plain": ["-O0", "-g0"],  # soonest compiled
    "asan": [f"-fsanitize={KINDS['asan']}", "-fno-sanitize-recover=all"],
    "tsan": [f"-fsanitize={KINDS['tsan']}"],
}
THREADED = [
    "events",
    "kernel_runs",
    "order",
    "queues",
    "races",
    "textures_bound",
    "threads",
]  # what the thread sanitizer looks at


def has_objective_c() -> bool:
    if sys.platform != "linux" or shutil.which("gcc") is None:
        return False
    probe = ["gcc", "-x", "objective-c", "-fsyntax-only", "-"]
    source = "#import <objc/objc.h>\n"
    return subprocess.run(probe, input=source, text=True, capture_output=True).returncode == 0


# It builds with sanitizers of its own, which another one's runtime would disturb.
pytestmark = pytest.mark.needs_no_sanitizer


@dataclass(frozen=True)
class Case:
    program: str
    name: str
    kind: str | None  # of the report it must cause


@cache
def read_cases() -> list[Case]:
    pattern = re.compile(r'^(LEAKY_|FIRST_)?(CASE|REPORTS|REPORTS_BY|RACES)\((?:"([a-z-]+)", )?(\w+)[,)]', re.MULTILINE)
    return [
        Case(path.stem, match.group(4), "race" if match.group(2) == "RACES" else match.group(3))
        for path in sorted(CASES.glob("*.m"))
        for match in pattern.finditer(path.read_text())
    ]


def words(pattern: str, name: str) -> list[str]:
    return re.findall(pattern, (SOURCES / name).read_text())


REPORT_KINDS = words(r'X\(SOFT_REPORT_\w+, "([a-z-]+)"\)', "validation.h")
SETTINGS = words(r'"(SOFTMETAL_\w+)"', "settings.h")
FAILURES = words(r'X\(SOFT_FAIL_\w+, "(\w+)"\)', "failure.h")


@dataclass(frozen=True)
class Result:
    status: int  # of exit; negative: the signal
    said: str


def compile_file(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", result.stderr


class Builder:
    """Compiles the sources and the cases once per build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019  # one object, of the session
    def archive(self, build: str) -> Path:
        """The software Metal as one object: no class is left out of what links it."""
        folder = self.folder / build
        folder.mkdir()
        objects = self.compile(sorted(SOURCES.rglob("*.[cm]")), build)
        compile_file(["gcc", "-r", "-nostdlib", *objects, "-o", str(folder / "softmetal.o")])
        return folder / "softmetal.o"

    def compile(self, sources: list[Path], build: str) -> list[str]:
        def compile_one(source: Path) -> str:
            made = str(self.folder / build / f"{source.name}.o")
            compile_file(["gcc", *COMMON, *BUILDS[build], "-fPIC", f"-I{CASES}", "-c", str(source), "-o", made])
            return made

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(compile_one, sources))

    @cache  # noqa: B019
    def runner(self, build: str) -> list[str]:
        """The command that runs the cases whose names follow."""
        if build in KINDS and not can_sanitize(KINDS[build]):
            pytest.skip(f"the compiler has no -fsanitize={KINDS[build]}")
        archive = self.archive(build)
        program, library = archive.with_name("runner"), archive.with_name("cases.so")
        for source in IMAGES:
            image = archive.with_name(f"{source.stem}.so")
            options = ["-O2", *WARNINGS, *INCLUDED, "-shared", "-fPIC"]
            compile_file(["gcc", *options, str(source), "-o", str(image)])
        beside = [*sorted(CASES.glob("*.m")), SRC / "arithmetic" / "pixel_format.c"]
        objects = [*self.compile(beside, build), str(archive)]
        compile_file(["gcc", *COMMON, *BUILDS[build], "-shared", *objects, "-lobjc", "-lm", "-o", str(library)])
        compile_file(["gcc", *COMMON, *BUILDS[build], str(CASES / "runner.c"), "-ldl", "-o", str(program)])
        return [str(program), str(library)]

    def run(self, names: list[str], build: str = "plain", **settings: str) -> dict[str, Result]:
        environment = {key: value for key, value in os.environ.items() if key not in SETTINGS}
        # libobjc itself leaks a few list cells when it loads classes; nothing else is excused.
        environment["LSAN_OPTIONS"] = f"suppressions={CASES / 'libobjc.supp'}:print_suppressions=0"
        environment["ASAN_OPTIONS"] = "detect_leaks=1:abort_on_error=0:handle_abort=0"
        environment["TSAN_OPTIONS"] = "halt_on_error=1"
        done = subprocess.run(
            [*self.runner(build), *names],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, env=environment | settings,
        )  # fmt: skip
        parts = re.split(r"== (\w+) (-?\d+)\n", done.stdout)
        assert parts[1::3] == names
        return {
            name: Result(int(status), said)
            for said, name, status in zip(parts[:-1:3], parts[1::3], parts[2::3], strict=True)
        }

    def said(self, name: str, **settings: str) -> str:
        """What a case says that ends well, or as the mode `abort` ends it."""
        result = self.run([name], **settings)[name]
        assert result.status in {0, -6}, result
        return result.said


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    if not has_objective_c():
        pytest.skip("needs gcc with Objective-C, on Linux")
    return Builder(tmp_path_factory.mktemp("softmetal"))


def names_of(build: str = "plain", *, reports: bool = False, but: str = "") -> list[str]:
    """The cases of a build.  The thread sanitizer looks at those with threads; races it would report itself."""
    cases = [case for case in read_cases() if case.name != but and (case.kind is not None or not reports)]
    if build == "tsan":
        cases = [case for case in cases if case.program in THREADED and (case.program, case.kind) != ("races", "race")]
    return [case.name for case in cases]


KIND_OF = {case.name: case.kind for case in read_cases()}
#: The same cases under the sanitizers.
EACH_BUILD = pytest.mark.parametrize(
    "build", ["plain", *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS)]
)


def test_no_two_cases_have_one_name() -> None:
    assert len(KIND_OF) == len(read_cases()) > 180


@EACH_BUILD
@pytest.mark.long
def test_without_validation_wrong_use_passes_in_silence(builder: Builder, build: str) -> None:
    results = builder.run(names_of(build), build)
    assert {name: result for name, result in results.items() if result.status != 0} == {}


#: Counts a wrong use without a report of its own; another case is the same with one.
COUNTED_ONLY = "an_object_autoreleased_with_no_pool_leaks_and_is_counted"


@EACH_BUILD
def test_validation_reports_wrong_use_once_and_right_use_never(builder: Builder, build: str) -> None:
    names = names_of(build, but=COUNTED_ONLY)
    results = builder.run(names, build, SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log")
    assert {name: result for name, result in results.items() if result.status != 0} == {}
    assert {name: result for name, result in results.items() if not is_reported(name, result)} == {}


def is_reported(name: str, result: Result) -> bool:
    return KIND_OF[name] is None or f"softmetal: {KIND_OF[name]}: " in result.said


@EACH_BUILD
def test_the_mode_abort_ends_the_process_with_the_message(builder: Builder, build: str) -> None:
    results = builder.run(names_of(build, reports=True), build, SOFTMETAL_VALIDATION="1")
    wrong = {name: one for name, one in results.items() if one.status != -6 or not is_reported(name, one)}
    assert wrong == {}


def test_every_class_of_report_has_a_case_that_fires_it() -> None:
    # in a child of the case on forks; by kernels of Metal's language, tests/kernels/test_kernel_check.py
    fired = {*KIND_OF.values(), "fork", "kernel"}
    assert fired - {None} == set(REPORT_KINDS)


def test_each_queue_repeats_its_order_in_another_process(builder: Builder) -> None:
    case = "the_same_seed_gives_the_same_order"
    first, second = builder.said(case), builder.said(case)
    assert first == second
    assert set(first.strip()) >= {"1", "2"}


def test_settings_come_from_the_environment(builder: Builder) -> None:
    names = ["a_forked_child_can_make_nothing_and_waits_for_nothing", "a_removed_device_makes_nothing_more"]
    for result in builder.run(names, SOFTMETAL_FAIL="device@1+").values():
        assert result.status == 1 and "device != nil" in result.said
    builder.said("the_rules_of_the_environment_count_the_very_first_call", SOFTMETAL_FAIL="device@1")


def test_a_setting_that_is_not_understood_is_reported_and_ignored(builder: Builder) -> None:
    said = builder.said("a_new_buffer_holds_zeros", SOFTMETAL_POISON="often")
    assert 'softmetal: SOFTMETAL_POISON ("often") is not understood; it stays "0".' in said


@pytest.mark.parametrize("seed", ["1", "2", "3", "last"])
@pytest.mark.some(2)
def test_right_use_survives_every_order(builder: Builder, seed: str) -> None:
    names = [c.name for c in read_cases() if c.program in {"events", "queues", "buffers"} and c.kind is None]
    results = builder.run(names, SOFTMETAL_SEED=seed, SOFTMETAL_VALIDATION="1")
    assert {name: result for name, result in results.items() if result.status != 0} == {}


def test_a_dead_object_is_reported_with_the_places_of_its_birth_and_death(builder: Builder) -> None:
    said = builder.said("a_message_to_an_object_that_is_gone", SOFTMETAL_VALIDATION="1")
    assert "-[NSObject release] is sent to an object that is gone" in said
    assert re.search(r"made at \S*.*cases\.so\+0x.* and freed at \S*.*cases\.so\+0x", said)
    said = builder.said("a_pool_that_is_drained_twice", SOFTMETAL_VALIDATION="1")
    assert re.search(
        r"-\[NSAutoreleasePool drain\] is sent to an object that is gone; it was made at \S*.*cases\.so", said
    )


#: Reports on lifetimes, and what stands before the place that made the object.
LIFETIMES = {
    "a_buffer_destroyed_while_its_command_buffer_runs": r"\(8 bytes, made at ",
    "a_commit_that_names_a_buffer_that_is_gone": r"\(8 bytes, made at ",
    "an_encoder_released_without_end_encoding": r"endEncoding; it was made at ",
    "another_thread_has_no_pool": r"with no pool in place and leaks, at .*; it was made at ",
}


def test_a_mistake_with_a_lifetime_is_reported_with_the_place_that_made_the_object(builder: Builder) -> None:
    results = builder.run(list(LIFETIMES), SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log")
    for case, words in LIFETIMES.items():
        assert re.search(rf"{words}\S*.*cases\.so\+0x[0-9a-f]+", results[case].said), results[case]


@pytest.mark.parametrize("seed", ["0", "1", "last"])
@pytest.mark.parametrize("latency", ["0", "2000"])
def test_a_race_is_found_whatever_the_time(builder: Builder, seed: str, latency: str) -> None:
    """It is a matter of what comes before what, not of who is faster."""
    names = [case.name for case in read_cases() if (case.program, case.kind) == ("races", "race")]
    results = builder.run(names, SOFTMETAL_VALIDATION="1", SOFTMETAL_SEED=seed, SOFTMETAL_LATENCY_US=latency)
    wrong = {name: one for name, one in results.items() if one.status != -6 or "softmetal: race: " not in one.said}
    assert wrong == {}


def test_a_race_is_reported_with_both_places(builder: Builder) -> None:
    case = "the_cpu_reads_what_the_gpu_writes"
    said = builder.said(case, SOFTMETAL_VALIDATION="1", SOFTMETAL_VALIDATION_MODE="log")
    place = r"\S*cases\.so\+0x[0-9a-f]+\)?( < \S+( \S+\))?)*"
    gpu = rf"a write of bytes 0 to 64 by queue 1, encoded at {place}"
    cpu = rf"a read of bytes 0 to 64 by the CPU at {place}"
    assert re.search(rf'the buffer "" \(64 bytes\): ({gpu}; and {cpu}|{cpu}; and {gpu})\.', said), said


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
    "failures: where_no_object_can_be_made_its_place_and_its_memory_are_free_again",
    "failures: the_rules_of_the_environment_count_the_very_first_call",
    "libraries: a_compiler_that_is_interrupted_gives_no_library_and_no_error",
    "libraries: a_library_keeps_the_compiler_that_opened_it",
    "libraries: a_kernel_for_which_the_table_has_no_room_is_refused_and_not_found",
    "libraries: a_text_that_names_a_registered_kernel_is_not_compiled",
    "failures: validation_reports_metal_in_a_child",
}


def test_what_apple_is_said_to_say_it_of_is_apples() -> None:
    """A page is named by the selector, function or constant that it describes."""
    from apple import reference

    tables = [reference.tables(name) for name in ("Metal", "Foundation")]
    known = set(reference.selectors()).union(*(t.functions for t in tables), *(t.constants for t in tables))
    known = known.union(*(t.enums for t in tables))
    named = {word for row in modelled() for word in re.findall(r"`([^`]+)`", row[1])}
    assert len(named) > 40
    assert named - known == set()


def test_no_symbol_of_the_library_can_meet_anothers(builder: Builder) -> None:
    listing = subprocess.run(
        ["nm", "--defined-only", "-g", str(builder.archive("plain"))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [line.split()[-1] for line in listing.stdout.splitlines()]
    allowed = re.compile(r"soft_|softmetal_|MTL|_NSConcrete|__objc_class_(name|ref)_|_OBJC_")
    assert [name for name in names if not allowed.match(name)] == []


@pytest.mark.skipif(not has_module("ziglang"), reason="the compiler for macOS is the ziglang package")
def test_clang_for_macos_accepts_the_headers(tmp_path: Path) -> None:
    source = tmp_path / "headers.m"
    source.write_text("#import <Metal/Metal.h>\nNSUInteger f(id<MTLBuffer> b) { return b.length; }\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos", *WARNINGS, f"-I{SOURCES}"]
    for blocks in ("-fblocks", "-fno-blocks"):
        compile_file([*command, blocks, "-c", str(source), "-o", str(tmp_path / "headers.o")])
