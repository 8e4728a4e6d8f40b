""".github: what runs on each push and for a release.  `make lint` looks at the form and the safety of these files."""

import os
import re
import shlex
import subprocess
import tomllib

import pytest
from places import ROOT

import metal_dlpack as md
from dlpack_conformance.libraries import LIBRARIES

# GNU make, which they run, reads past a string of its own; the sanitizer is loaded into it.
pytestmark = pytest.mark.needs_no_sanitizer

yaml = pytest.importorskip("yaml", reason="the workflows are YAML")

TEXTS = {path.name: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}
WORKFLOWS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
JOBS = {(name, job): steps for name, workflow in WORKFLOWS.items() for job, steps in workflow["jobs"].items()}
LINUX, MAC = JOBS["tests.yml", "linux"], JOBS["tests.yml", "mac"]
PUBLISH = JOBS["release.yml", "publish"]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def runs(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def named_in_makefile(name):
    """The words of a variable, read as a shell reads them."""
    (words,) = re.findall(rf"^{name} :?= ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    return set(shlex.split(words.replace("\\\n", " ")))


#: Compares with counts of one compiler and one Python, those of .ci/run's machine; needs Debian, and runs at night.
ONLY_OF_CI = {"instructions", "arm64"}


def test_linux_runs_what_ci_runs():
    targets = {pair.partition("=")[0] for pair in named_in_makefile("BUDGETS")}
    checks = JOBS["tests.yml", "checks"]
    assert runs(checks) == ['make "$TARGET"']
    asked = {*runs(LINUX), *(f"make {target}" for target in checks["strategy"]["matrix"]["target"])}
    assert asked == {f"make {target}" for target in targets - ONLY_OF_CI}


def test_each_target_that_a_workflow_makes_is_one():
    for text in TEXTS.values():
        for target in re.findall(r"run: make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_every_python_that_is_promised_is_tried_on_both_processors():
    matrix = LINUX["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert (matrix["runner"], matrix["python"]) == (["ubuntu-24.04", "ubuntu-24.04-arm"], promised)
    assert [row["may-fail"] for row in matrix["include"]] == [True] * len(matrix["include"])


def test_macs_run_under_metals_validation_and_keep_the_answers():
    assert "may-fail: true" not in TEXTS["tests.yml"].partition("\n  mac:")[2]
    (suite,) = [step for step in MAC["steps"] if step.get("run") == "make test"]
    assert suite["env"] == {"MTL_DEBUG_LAYER": "1", "MTL_DEBUG_LAYER_ERROR_MODE": "assert"}
    (asked,) = [step for step in MAC["steps"] if "on_a_mac.py" in step.get("run", "")]
    (kept,) = [step for step in MAC["steps"] if step.get("with", {}).get("path") == "on_a_mac.txt"]
    assert asked["if"] == kept["if"] == "${{ !cancelled() }}", "a failing test does not take the answers along"


def test_an_action_is_one_commit_and_says_which_version_it_is():
    uses = re.findall(r"uses: *([^$\s].*)", "".join(TEXTS.values()))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert len(set(uses)) == len({action.partition("@")[0] for action in uses}), "an action has two versions"


def test_a_job_ends_and_one_that_may_write_runs_nothing_of_ours():
    for (name, label), job in JOBS.items():
        if job["permissions"] != {"contents": "read"}:
            assert label == "publish" and runs(job) == [], name
        if "uses" not in job:
            assert 0 < job["timeout-minutes"] <= (350 if name == "nightly.yml" else 90), (name, label)


def test_the_nightly_parts_are_all_of_make_nightly_that_a_runner_can_do():
    parts = JOBS["nightly.yml", "nightly"]["strategy"]["matrix"]["targets"]
    left_out = {"instructions", "arm64 ARGS=tests", "action"}
    assert named_in_makefile("NIGHTLY") - left_out == set(shlex.split(" ".join(parts)))


def test_the_peers_are_judged_on_each_push():
    assert runs(JOBS["docs.yml", "conformance"]) == ["make conformance"]
    assert named_in_makefile("PEERS") == set(LIBRARIES)


def test_pytorch_is_one_version_and_its_cpu_build():
    """That for CUDA is gigabytes."""
    for name in {*WORKFLOWS} - {"release.yml"}:
        assert "'https://download.pytorch.org/whl/cpu'" in WORKFLOWS[name]["env"]["PIP_EXTRA_INDEX_URL"], name
    (torch,) = [
        line
        for line in PROJECT["dependency-groups"]["demo"]
        if isinstance(line, str) and re.match(r"torch\b.*linux", line)
    ]
    assert re.match(r"torch==[\d.]+\+cpu;", torch)


def test_a_release_is_published_from_a_tag_after_all_else_attested_and_without_a_password():
    assert PUBLISH["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert {"publish", *PUBLISH["needs"]} == set(WORKFLOWS["release.yml"]["jobs"])
    assert JOBS["release.yml", "tests"]["uses"] == "$/.github/workflows/tests.yml"
    actions = [step["uses"].partition("@")[0] for step in PUBLISH["steps"]]
    assert actions == ["actions/download-artifact", "actions/attest", "pypa/gh-action-pypi-publish"]
    assert not re.search(r"secrets\.|password:", TEXTS["release.yml"])
    passed_on = PROJECT["tool"]["cibuildwheel"]["linux"]["environment-pass"]
    assert [*WORKFLOWS["release.yml"]["env"]] == passed_on, "else the container does not see it"


def test_a_tag_must_be_the_version():
    (step,) = [step for step in JOBS["release.yml", "sdist"]["steps"] if step.get("if") == PUBLISH["if"]]

    def passes(tag):
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        return subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env=environment, check=False).returncode == 0

    assert passes(f"v{md.__version__}")
    assert not passes(f"v{md.__version__}1")
    assert not passes(md.__version__.replace(".", "x"))
