"""The scripts of tools/ that nothing else runs."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import marks
import mutant_rules
import mutants
import pytest
from places import ROOT, TESTS, TOOLS


@pytest.mark.long
@pytest.mark.parametrize("part", mutants.COUNTS)
def test_mutants_are_enough_and_spread_over_folders_and_rules(part):
    everything = [mutant for made in mutant_rules.all_mutants(part).values() for mutant in made]
    names = [mutant.name for mutant in everything]
    assert len(set(names)) == len(names)
    chosen = mutant_rules.choose(mutants.COUNTS[part], part)
    assert len(chosen) >= 0.97 * mutants.COUNTS[part]
    folders = {Path(file).parent for file in mutant_rules.sources(part)}
    assert {Path(mutant.file).parent for mutant in chosen} == folders
    if part == "core":
        assert {name for name, *_ in mutant_rules.RULES} == {mutant.rule for mutant in everything}
    least = 8 if part == "core" else 4
    for folder in folders - {Path("src"), Path("python/metal_dlpack")}:  # one file each
        assert len({mutant.rule for mutant in chosen if Path(mutant.file).parent == folder}) >= least, folder


@pytest.mark.long
def test_mutants_that_were_written_down_are_found_again_and_the_others_are_named(tmp_path):
    chosen = [m for part in mutants.COUNTS for m in mutant_rules.choose(40, part) if not m.reason]
    mutants.write(chosen, tmp_path / "list")
    with (tmp_path / "list").open("a") as file:
        file.write(
            '{"name": "of a line that went", "function": "f", "text": "no such line", "nth": 1, "instead": ""}\n'
        )
    found, gone = mutant_rules.read_given(tmp_path / "list")
    assert gone == ["of a line that went"]
    for mutant, again in zip(chosen, found, strict=True):
        text = (ROOT / mutant.file).read_text()
        assert again.apply(text).split() == mutant.apply(text).split(), mutant.name


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_the_server_of_mutants_runs_the_tests_that_it_is_asked_for(tmp_path):
    output, file = tmp_path / "output", "tests/house/test_tools.py"
    test = f"{file}::test_a_mark_is_about_its_statement_the_rest_of_its_block_or_its_function"
    request = {"tests": [test], "options": [], "seconds": 120, "output": str(output)}
    done = subprocess.run(
        [sys.executable, TOOLS / "mutant_server.py"],
        input=json.dumps(request) + "\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == "0\n", output.read_text()
    assert "1 passed" in output.read_text()


MARKED = """static int
first(void)
{
    if (a) { /* unreached: the end of a line */
        b();
    }
    /* mutant survives (bound #1): why */
    if (a < b && c < d) {
        /* unreached: the rest of the block */
        b();
        return 1;
    }
    return 0;
}

/* unreached: a function */
static int
second(void)
{
    return 0;
}
"""


def test_a_mark_is_about_its_statement_the_rest_of_its_block_or_its_function():
    found = [(*places, why) for places, _, why in marks.marks_of(MARKED, "unreached")]
    wanted = ((3, 4, "the end of a line"), (9, 10, "the rest of the block"), (16, 20, "a function"))
    assert found == [(*range(first, last + 1), why) for first, last, why in wanted]
    bounds = [mutant for mutant in mutant_rules.mutants_of("a.c", MARKED) if mutant.rule == "bound"]
    assert [mutant.reason for mutant in bounds] == ["why", ""]


PYTHON = '''
class Reader:
    def read(self, text, count: int = 1):
        """Not this: 1 < 2."""
        try:
            if count < len(text) and not self.ended:
                self.at += 1
                return [item for item in text[self.at : count] if item is not None]
        except OSError:
            raise ValueError(f"{count < 2}") from None
        return min(text)
'''
#: Rule: (what stands there, what stands there instead).
MADE = [
    ("comparison", "<", "<="),
    ("comparison", "is not", "is"),
    ("comparison", "min", "max"),
    ("logic", "and", "or"),
    ("condition", "not self.ended", "self.ended"),
    ("condition", "item is not None", "(not (item is not None))"),
    ("number", "1", "2"),
    ("number", "1", "(0)"),
    ("off by one", "self.at", "(self.at) + 1"),
    ("off by one", "count", "(count) + 1"),
    ("dropped statement", "self.at += 1", "pass"),
    ("dropped handler", 'raise ValueError(f"{count < 2}") from None', "pass"),
    ("return", "return min(text)", "return None"),
]


def test_mutants_of_python_are_made_of_its_syntax():
    made = mutant_rules.mutants_of("a.py", PYTHON)
    assert {mutant.function for mutant in made} == {"Reader.read"}
    found = {(mutant.rule, PYTHON[mutant.start : mutant.end], mutant.instead) for mutant in made}
    assert set(MADE) <= found
    assert sum(mutant.rule == "comparison" for mutant in made) == 3  # not in a text
    for mutant in made:
        compile(mutant.apply(PYTHON), mutant.name, "exec")


def test_a_mark_in_python_is_about_its_line_or_the_next():
    marked = PYTHON.replace("self.at += 1", "# mutant survives (number #2): why\n                self.at += 1")
    marked = marked.replace("return min(text)", "return min(text)  # mutant survives (return): another")
    reasons = {(m.rule, m.instead): m.reason for m in mutant_rules.mutants_of("a.py", marked) if m.reason}
    assert reasons == {("number", "2"): "why", ("return", "return None"): "another"}


def test_each_mark_is_of_a_mutant_that_there_is():
    for file in mutant_rules.sources():
        text = (ROOT / file).read_text()
        if written := marks.marks_of(text, "mutant survives"):
            used = {mutant.reason for mutant in mutant_rules.mutants_of(file, text)} - {""}
            assert {why for _, _, why in written} == used, file


def test_each_test_that_arm64_leaves_out_is_there_and_has_a_reason():
    for name, why in tomllib.loads((TOOLS / "arm64_left_out.toml").read_text()).items():
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.exists(), name
        assert not test or f"def {test.partition('[')[0]}(" in path.read_text(), name
        assert len(why) > 20, name


def test_each_test_that_an_old_version_fails_is_there_and_has_a_reason():
    libraries = tomllib.loads((TOOLS / "versions_left_out.toml").read_text())
    for tests in (tests for versions in libraries.values() for tests in versions.values()):
        for name, why in tests.items():
            file, _, test = name.partition("::")
            text = (ROOT / file).read_text()
            assert not test or f"def {test.partition('[')[0]}(" in text, name
            assert len(why) > 20, name


@pytest.mark.parametrize("script", ["sanitized", "arm64"])
def test_the_parts_that_a_push_tries_are_there(script):
    named = re.findall(r"(?:tests/)?(\w+/test_\w+\.py)", (TOOLS / script).read_text())
    assert len(named) > 5
    assert [name for name in named if not (TESTS / name).exists()] == []


#: Stands for a Python whose pip is talkative, and fails if it is told to.
TALKATIVE = """#!/bin/sh
case "$*" in
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"-m pip --version"* | *"--group build" | "setup.py "*) ;;
*"config list") echo "$PIP_KNOWS" ;;
*"index versions"*) exit ${INDEX_FAILS:-0} ;;
*--group*)
    echo "index: $PIP_EXTRA_INDEX_URL" >&2
    echo "WARNING: Location 'file:///nowhere' is ignored" >&2
    echo "  Downloading https://index.example/torch-2.0-cp311.whl (190.4 MB)"
    echo "  Downloading small-1.0.whl (4 kB)"
    echo "Installing collected packages: torch, small"
    echo "$PIP_SAYS" >&2
    exit ${PIP_FAILS:-0}
    ;;
*"-m pip"*) echo "WARNING: Location 'file:///nowhere' is ignored" >&2 ;;
*) exec %s "$@" ;;
esac
"""


def prepare(folder, group="demo", **environment):
    python, clang = folder / "python", folder / "clang++-19"
    python.write_text(TALKATIVE % sys.executable)
    clang.touch()  # so that nobody installs one
    for path in (python, clang):
        path.chmod(0o755)
    return subprocess.run(
        [TOOLS / "prepare", folder / "venv", group],
        env={**os.environ, "PYTHON": str(python), "PATH": f"{folder}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("group", ["demo", "docs"])
def test_preparing_says_what_comes_and_not_what_pip_mutters(group, tmp_path):
    done = prepare(tmp_path, group, PIP_EXTRA_INDEX_URL="")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    steps = [line for line in said if line.startswith("metal_dlpack: ")]
    assert [step.split()[1] for step in steps] == ["fetching", "building"]
    assert "    torch-2.0-cp311.whl (190.4 MB)" in said
    assert "    unpacking" in said
    assert ("PyTorch" in done.stdout) == (group == "demo"), "no framework comes with docs"
    assert not re.search("WARNING|small|index.example", done.stdout + done.stderr)


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("says", ["", "WARNING: Retrying (Retry(total=0)) after connection broken"])
def test_preparing_shows_all_that_pip_said_if_it_failed_and_what_to_set_without_an_index(says, tmp_path):
    done = prepare(tmp_path, PIP_FAILS="3", PIP_SAYS=says)
    assert done.returncode == 1
    assert "WARNING: Location" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("metal_dlpack: this failed: pip install --group demo")
    assert ("PIP_INDEX_URL" in last) == ("Retrying" in says)
    assert "building" not in done.stdout


@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform == "darwin", reason="PyTorch's ordinary wheel for a Mac has no CUDA")
@pytest.mark.parametrize("knows", ["", "global.find-links='/wheels'", ":env:.extra-index-url='https://index.example'"])
def test_pytorch_comes_from_its_index_of_cpu_builds_unless_pip_knows_another_place(knows, tmp_path):
    done = prepare(tmp_path, PIP_FAILS="3", PIP_KNOWS=knows, PIP_EXTRA_INDEX_URL="")
    assert ("index: https://download.pytorch.org/whl/cpu\n" in done.stderr) == (not knows)
    done = prepare(tmp_path, INDEX_FAILS="1", PIP_KNOWS=knows, PIP_EXTRA_INDEX_URL="")
    assert done.returncode == (not knows)
    assert done.stderr.startswith("" if knows else "metal_dlpack: PyTorch's builds for the CPU cannot be fetched from ")
    assert ("unpacking" in done.stdout) == bool(knows)


@pytest.mark.needs_no_sanitizer
def test_a_pip_that_finds_no_pytorch_for_the_cpu_is_told_where_one_is(tmp_path):
    done = prepare(tmp_path, PIP_FAILS="1", PIP_SAYS="ERROR: No matching distribution found for torch==2.13.0+cpu")
    assert "PIP_EXTRA_INDEX_URL" in done.stderr.splitlines()[-1]


@pytest.mark.needs_no_sanitizer
def test_a_python_that_does_not_start_is_named_and_nothing_is_installed_for_it(tmp_path):
    done = prepare(tmp_path, PYTHON="python3.99")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("metal_dlpack: python3.99 cannot be started. ")
    assert done.stderr.count("\n") == 1


#: Root's machine, whose apt-get has a source that fails, and whose compiler has no Objective-C.
DEBIAN = {
    "id": "#!/bin/sh\necho 0\n",
    "apt-get": '#!/bin/sh\necho "E: Failed to fetch" >&2\ncase $1 in install) exit ${APT_FAILS:-0} ;; esac\nexit 100\n',
    "half-a-compiler": '#!/bin/sh\ncase "$*" in *probe.m*) exit 1 ;; esac\nexec cc "$@"\n',
    "no-compiler": "#!/bin/sh\nexit 1\n",
}


def debian(folder):
    for name, text in DEBIAN.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform == "darwin", reason="nothing is installed there")
@pytest.mark.parametrize("fails", [False, True])
def test_what_apt_mutters_is_shown_only_if_it_failed(fails, tmp_path):
    debian(tmp_path)
    done = prepare(tmp_path, CC=str(tmp_path / "half-a-compiler"), APT_FAILS=str(100 * fails))
    assert "metal_dlpack: installing Debian's gobjc\n" in done.stdout
    assert done.returncode == fails
    assert ("E: Failed to fetch" in done.stderr) == fails
    missing = "metal_dlpack: missing: an Objective-C compiler. Install it, on Debian: apt-get install gobjc\n"
    assert done.stderr.endswith(missing) == fails


@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform == "darwin", reason="nothing is installed there")
def test_all_that_is_missing_is_named_at_once(tmp_path):
    debian(tmp_path)
    done = prepare(tmp_path, CC=str(tmp_path / "no-compiler"), APT_FAILS="100")
    assert done.stderr.splitlines()[-1] == (
        "metal_dlpack: missing: a C compiler, a C++ compiler, an Objective-C compiler. "
        "Install it, on Debian: apt-get install gcc libc6-dev g++ gobjc"
    )
