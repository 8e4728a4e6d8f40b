"""The scripts of tools/ that nothing else runs."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT, TOOLS


def load(name):
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def everything():
    return [mutant for mutants in load("mutant_rules").all_mutants().values() for mutant in mutants]


def test_mutants_are_enough_and_spread_over_folders_and_rules(everything):
    rules = load("mutant_rules")
    names = [mutant.name for mutant in everything]
    assert len(set(names)) == len(names)
    chosen = rules.choose(load("mutants").COUNT)
    assert len(chosen) >= 390
    assert {Path(mutant.file).parent.name for mutant in chosen} == {*rules.FOLDERS, "src"}
    assert {name for name, *_ in rules.RULES} == {mutant.rule for mutant in everything}
    for folder in rules.FOLDERS:
        assert len({m.rule for m in chosen if Path(m.file).parent.name == folder}) >= 8, folder
    texts = {mutant.file: (ROOT / mutant.file).read_text() for mutant in everything}
    assert [mutant.name for mutant in everything if mutant.apply(texts[mutant.file]) == texts[mutant.file]] == []


def test_a_mutant_keeps_its_name_when_lines_move():
    rules = load("mutant_rules")
    text = (ROOT / "src" / "metal" / "pool.c").read_text()
    moved = text.replace("#include", "/* one line more */\n\n#include", 1)
    before, after = (rules.spread(rules.mutants_of("src/metal/pool.c", version), 50) for version in (text, moved))
    assert [mutant.name for mutant in before] == [mutant.name for mutant in after]


@pytest.mark.long
def test_mutants_that_were_written_down_are_found_again_and_the_others_are_named(tmp_path):
    mutants, rules = load("mutants"), load("mutant_rules")
    chosen = [mutant for mutant in rules.choose(40) if not mutant.reason]
    mutants.write(chosen, tmp_path / "list")
    with (tmp_path / "list").open("a") as file:
        file.write(
            '{"name": "of a line that went", "function": "f", "text": "no such line", "nth": 1, "instead": ""}\n'
        )
    found, gone = rules.read_given(tmp_path / "list")
    assert gone == ["of a line that went"]
    for mutant, again in zip(chosen, found, strict=True):
        text = (ROOT / mutant.file).read_text()
        assert again.apply(text).split() == mutant.apply(text).split(), mutant.name


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_the_server_of_mutants_runs_the_tests_that_it_is_asked_for(tmp_path):
    output, file = tmp_path / "output", "tests/house/test_tools.py"
    test = f"{file}::test_a_mark_is_about_its_statement_the_rest_of_its_block_or_its_function"
    request = {"tests": [test], "options": [], "environment": {}, "seconds": 120, "output": str(output)}
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
    found = [(*places, why) for places, _, why in load("marks").marks_of(MARKED, "unreached")]
    wanted = ((3, 4, "the end of a line"), (9, 10, "the rest of the block"), (16, 20, "a function"))
    assert found == [(*range(first, last + 1), why) for first, last, why in wanted]
    bounds = [mutant for mutant in load("mutant_rules").mutants_of("a.c", MARKED) if mutant.rule == "bound"]
    assert [mutant.reason for mutant in bounds] == ["why", ""]


def test_each_mark_is_of_a_mutant_that_there_is(everything):
    marks = load("marks")
    for file in load("mutant_rules").sources():
        written = marks.marks_of((ROOT / file).read_text(), "mutant survives")
        used = {mutant.reason for mutant in everything if mutant.file == file} - {""}
        assert {why for _, _, why in written} == used, file


def test_each_test_that_arm64_leaves_out_is_there_and_has_a_reason():
    for name, why in tomllib.loads((TOOLS / "arm64_left_out.toml").read_text()).items():
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.exists(), name
        assert not test or f"def {test.partition('[')[0]}(" in path.read_text(), name
        assert len(why) > 20, name


def test_arm64_has_a_part_of_files_that_there_are():
    (part,) = re.findall(r'^PART="(.*?)"$', (TOOLS / "arm64").read_text(), re.DOTALL | re.MULTILINE)
    assert len(part.split()) >= 10
    assert [name for name in part.split() if not (ROOT / name).is_file()] == []


#: Stands for a Python whose pip is talkative, and fails if it is told to.
TALKATIVE = """#!/bin/sh
case "$*" in
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"-m pip --version"*) ;;
*--group*)
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
def test_preparing_says_what_comes_and_not_what_pip_mutters(tmp_path):
    done = prepare(tmp_path, PIP_EXTRA_INDEX_URL="")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    steps = [line for line in said if line.startswith("metal_dlpack: ")]
    assert [step.split()[1] for step in steps] == ["fetching", "building"]
    assert "    torch-2.0-cp311.whl (190.4 MB)" in said
    assert "    unpacking" in said
    assert "gigabyte" in done.stdout
    assert not re.search("WARNING|small|index.example", done.stdout + done.stderr)


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("group", ["docs", "dist"])
def test_gigabytes_are_not_announced_where_no_framework_comes(group, tmp_path):
    done = prepare(tmp_path, group, PIP_EXTRA_INDEX_URL="")
    assert done.returncode == 0, done.stderr
    assert f"fetching the packages of '{group}'" in done.stdout
    assert "PyTorch" not in done.stdout


@pytest.mark.needs_no_sanitizer
def test_preparing_shows_all_that_pip_said_if_it_failed(tmp_path):
    done = prepare(tmp_path, PIP_FAILS="3")
    assert done.returncode == 1
    assert "WARNING: Location" in done.stderr
    assert done.stderr.endswith("metal_dlpack: this failed: pip install --group demo\n")
    assert "building" not in done.stdout


@pytest.mark.needs_no_sanitizer
def test_without_a_way_to_the_index_it_says_what_to_set(tmp_path):
    done = prepare(tmp_path, PIP_FAILS="1", PIP_SAYS="WARNING: Retrying (Retry(total=0)) after connection broken")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("metal_dlpack: this failed: pip install --group demo. pip cannot reach the package index")
    assert "PIP_INDEX_URL" in last


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("there", [False, True])
def test_a_python_that_does_not_start_is_named_and_nothing_is_installed_for_it(there, tmp_path):
    if there:  # as pyenv has it
        (tmp_path / "python3.99").write_text("#!/bin/sh\necho 'not this version' >&2\nexit 127\n")
        (tmp_path / "python3.99").chmod(0o755)
    done = prepare(tmp_path, PYTHON="python3.99")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("metal_dlpack: python3.99 cannot be started. ")
    assert done.stderr.count("\n") == 1


#: Root's machine, whose apt-get has a source that fails, and whose compiler has no Objective-C.
DEBIAN = {
    "id": "#!/bin/sh\necho 0\n",
    "apt-get": '#!/bin/sh\necho "E: Failed to fetch" >&2\ncase $1 in install) exit ${APT_FAILS:-0} ;; esac\nexit 100\n',
    "half-a-compiler": '#!/bin/sh\ncase "$*" in *.m*) exit 1 ;; esac\nexec cc "$@"\n',
}


@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform == "darwin", reason="nothing is installed there")
@pytest.mark.parametrize("fails", [False, True])
def test_what_apt_mutters_is_shown_only_if_it_failed(fails, tmp_path):
    for name, text in DEBIAN.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = prepare(tmp_path, CC=str(tmp_path / "half-a-compiler"), APT_FAILS=str(100 * fails))
    assert "metal_dlpack: installing Debian's gobjc\n" in done.stdout
    assert done.returncode == fails
    assert ("E: Failed to fetch" in done.stderr) == fails
    missing = "metal_dlpack: the Objective-C compiler is missing. Install it, on Debian: apt-get install gobjc\n"
    assert done.stderr.endswith(missing) == fails
