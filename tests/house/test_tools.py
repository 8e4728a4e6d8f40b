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
    least = 6 if part == "core" else 4
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


def test_each_test_that_is_left_out_on_arm64_or_with_an_old_version_is_there_and_has_a_reason():
    libraries = tomllib.loads((TOOLS / "versions_left_out.toml").read_text()).values()
    tables = [tomllib.loads((TOOLS / "arm64_left_out.toml").read_text())]
    for name, why in (
        item for table in [*tables, *(t for one in libraries for t in one.values())] for item in table.items()
    ):
        file, _, test = name.partition("::")
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(), name
        assert (ROOT / file).exists() and len(why) > 20, name


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


#: Root's machine, whose apt-get has a source that fails, and whose compilers have no Objective-C, or are none.
DEBIAN = {
    "id": "#!/bin/sh\necho 0\n",
    "apt-get": '#!/bin/sh\necho "E: Failed to fetch" >&2\ncase $1 in install) exit ${APT_FAILS:-0} ;; esac\nexit 100\n',
    "half-a-compiler": '#!/bin/sh\ncase "$*" in *probe.m*) exit 1 ;; esac\nexec cc "$@"\n',
    "no-compiler": "#!/bin/sh\nexit 1\n",
}
ON_LINUX = pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has PyTorch's wheel without CUDA, and no apt-get")
INDEX = "index: https://download.pytorch.org/whl/cpu\n"
KNOWN_PLACES = "global.find-links='/wheels'", ":env:.extra-index-url='https://index.example'"
RETRIES = "WARNING: Retrying (Retry(total=0)) after connection broken"
NO_TORCH = "ERROR: No matching distribution found for torch==2.13.0+cpu"
MUTTERS = ("WARNING", "small", "index.example", "E: Failed")
COMES = ("metal_dlpack: fetching", "    torch-2.0-cp311.whl (190.4 MB)\n", "    unpacking\n", "metal_dlpack: building")
FAILED = "metal_dlpack: this failed: pip install --group demo"
MISSING = "metal_dlpack: missing: {}. Install it, on Debian: apt-get install {}\n"
#: What happens, how it ends, what is said in this order, and what is not said.
PREPARED = [
    ({}, 0, ("fetching", "PyTorch", *COMES[1:]), MUTTERS),
    ({"group": "docs"}, 0, COMES, ("PyTorch", *MUTTERS)),
    ({"PIP_FAILS": "3"}, 1, ("WARNING: Location", FAILED), ("PIP_INDEX_URL", "building")),
    ({"PIP_FAILS": "3", "PIP_SAYS": RETRIES}, 1, ("WARNING: Location", FAILED, "PIP_INDEX_URL"), ("building",)),
    ({"PIP_FAILS": "1", "PIP_SAYS": NO_TORCH}, 1, ("PIP_EXTRA_INDEX_URL",), ("building",)),
    ({"PYTHON": "python3.99"}, 1, ("metal_dlpack: python3.99 cannot be started. ",), ("fetching", "WARNING")),
    *(
        pytest.param(*row, marks=ON_LINUX)
        for row in [
            ({"PIP_FAILS": "3"}, 1, (INDEX,), ()),
            *(({"PIP_FAILS": "3", "PIP_KNOWS": place}, 1, (FAILED,), (INDEX,)) for place in KNOWN_PLACES),
            ({"INDEX_FAILS": "1"}, 1, ("PyTorch's builds for the CPU cannot be fetched from ",), ("unpacking",)),
            *(({"INDEX_FAILS": "1", "PIP_KNOWS": place}, 0, ("unpacking",), MUTTERS) for place in KNOWN_PLACES),
            ({"CC": "half-a-compiler"}, 0, ("metal_dlpack: installing Debian's gobjc\n",), MUTTERS),
            (
                {"CC": "half-a-compiler", "APT_FAILS": "100"},
                1,
                ("E: Failed to fetch", MISSING.format("an Objective-C compiler", "gobjc")),
                (),
            ),
            (
                {"CC": "no-compiler", "APT_FAILS": "100"},
                1,
                (MISSING.format("a C compiler, a C++ compiler, an Objective-C compiler", "gcc libc6-dev g++ gobjc"),),
                (),
            ),
        ]
    ),
]


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(("given", "code", "said", "not_said"), PREPARED)
def test_preparing_says_what_comes_what_is_missing_and_what_failed(tmp_path, given, code, said, not_said):
    """All that pip or apt-get said only where it failed; the last line then says what to do."""
    fakes = {"python": TALKATIVE % sys.executable, "clang++-19": ""}  # with that nobody installs one
    for name, text in (fakes | DEBIAN if "CC" in given else fakes).items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PYTHON": str(tmp_path / "python"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [TOOLS / "prepare", tmp_path / "venv", given.get("group", "demo")],
        env=os.environ | environment | {"PIP_EXTRA_INDEX_URL": ""} | given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    whole = done.stdout + done.stderr
    assert done.returncode == code, whole
    assert re.search(".*".join(map(re.escape, said)), whole, re.DOTALL), whole
    assert [words for words in not_said if words in whole] == []
    assert code == 0 or done.stderr.splitlines()[-1].startswith("metal_dlpack: ")
