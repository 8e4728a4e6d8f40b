"""The scripts of tools/ that nothing else runs."""

import importlib
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
def by_hand():
    return load("mutant_table").MUTANTS


@pytest.fixture(scope="module")
def by_rule():
    return [mutant for mutants in load("mutant_rules").all_mutants().values() for mutant in mutants]


def test_there_are_enough_mutants(by_hand, by_rule):
    names = [mutant.name for mutant in [*by_hand, *by_rule]]
    assert len(set(names)) == len(names)
    mutants = load("mutants")
    assert len(load("mutant_rules").choose(mutants.COUNT)) >= 300


def test_each_mutant_by_hand_changes_one_place_of_a_source(by_hand):
    for mutant in by_hand:
        assert (ROOT / mutant.file).read_text().count(mutant.text) == 1, mutant.name
        assert mutant.instead != mutant.text, mutant.name


def test_mutants_by_rule_are_spread_over_folders_and_rules(by_rule):
    rules = load("mutant_rules")
    chosen = rules.choose(load("mutants").COUNT)
    assert {Path(mutant.file).parent.name for mutant in chosen} == {*rules.FOLDERS, "src"}
    assert {name for name, *_ in rules.RULES} == {mutant.rule for mutant in by_rule}
    for folder in rules.FOLDERS:
        assert len({m.rule for m in chosen if Path(m.file).parent.name == folder}) >= 8, folder
    for mutant in by_rule:
        text = (ROOT / mutant.file).read_text()
        assert mutant.apply(text) != text, mutant.name


def test_a_mutant_keeps_its_name_when_lines_move():
    rules = load("mutant_rules")
    text = (ROOT / "src" / "metal" / "pool.c").read_text()
    moved = text.replace("#include", "/* one line more */\n\n#include", 1)
    before, after = (rules.spread(rules.mutants_of("src/metal/pool.c", version)) for version in (text, moved))
    assert [mutant.name for mutant in before] == [mutant.name for mutant in after]


def test_each_reason_is_of_a_mutant_that_there_is(by_hand, by_rule):
    names = {mutant.name for mutant in [*by_hand, *by_rule]}
    reasons = load("mutants").reasons()
    assert set(reasons) <= names, set(reasons) - names
    assert all(len(why) > 20 for why in reasons.values())


def test_each_reason_for_what_is_not_reached_is_of_a_file_that_there_is():
    """The lines themselves `make coverage` looks at: which are reached is known only there."""
    for name, why in load("coverage_report").reasons().items():
        assert (ROOT / name.partition(" ")[0]).is_file(), name
        assert len(why) > 20, name


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
