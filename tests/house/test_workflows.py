""".github/workflows: what runs on each push.  `make lint` looks at the form and the safety of these files."""

import itertools
import os
import re
import subprocess

import machine
import pytest
from places import ROOT

# GNU make, which they run, reads past a string of its own; the sanitizer is loaded into it.
pytestmark = pytest.mark.needs_no_sanitizer

yaml = pytest.importorskip("yaml", reason="the workflows are YAML")

FOLDER = ROOT / ".github" / "workflows"
TEXT = (FOLDER / "tests.yml").read_text()
WORKFLOW = yaml.safe_load(TEXT)
JOBS = WORKFLOW["jobs"]
MATRIX = re.compile(r"\$\{\{ matrix\.(\w+) \}\}")


def combinations(job):
    """Each row of the job's matrix, as GitHub makes them: an `include` that changes no row is one more."""
    matrix = dict(job["strategy"]["matrix"])
    more = matrix.pop("include", [])
    rows = [dict(zip(matrix, values, strict=True)) for values in itertools.product(*matrix.values())]
    return rows + more


def linux_steps():
    """(name of the job, text of the step, its environment), once for each row of the matrix."""
    for name, job in JOBS.items():
        for row in combinations(job):
            if not MATRIX.sub(lambda match, row=row: row[match[1]], job["runs-on"]).startswith("ubuntu"):
                continue
            for step in job["steps"]:
                if "run" in step:
                    given = {**WORKFLOW["env"], **step.get("env", {})}
                    filled = {
                        key: MATRIX.sub(lambda match, row=row: row[match[1]], text) for key, text in given.items()
                    }
                    yield name, step["run"], tuple(filled.items())


LINUX_STEPS = sorted(set(linux_steps()))


@pytest.mark.parametrize(("job", "text", "environment"), LINUX_STEPS)
def test_a_step_on_linux_asks_for_what_everybody_builds(job, text, environment):
    """Run as GitHub runs it, but that make only says what it would do: the whole is `.ci/run`."""
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=ROOT,
        env={**os.environ, **dict(environment), "MAKEFLAGS": "n"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"setup\.py|-m pytest|ruff|sanitized", done.stdout), done.stdout


#: Compares with counts of one compiler and one Python, which are those of .ci/run's machine.
ONLY_OF_CI = {"instructions"}


def test_linux_runs_what_ci_runs():
    (targets,) = re.findall(r"^for target in (.*); do$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    asked = {re.sub(r"\$TARGET", dict(env).get("TARGET", ""), text.replace('"', "")) for _, text, env in LINUX_STEPS}
    assert asked == {"make build", *(f"make {target}" for target in targets.split() if target not in ONLY_OF_CI)}


def test_every_python_and_both_processors_are_tried_on_linux():
    rows = combinations(JOBS["linux"])
    solid = {(row["runner"], row["python"]) for row in rows if not row["may-fail"]}
    pythons = ["3.11", "3.12", "3.13", "3.14"]
    assert solid == set(itertools.product(["ubuntu-24.04", "ubuntu-24.04-arm"], pythons))
    assert [row["python"] for row in rows if row["may-fail"]] == ["3.14t"]


def test_macs_run_under_metals_validation_and_keep_the_answers():
    job = JOBS["mac"]
    may_fail = {row["runner"]: row["may-fail"] for row in combinations(job)}
    assert may_fail == {"macos-15": False, "macos-26": False, "macos-14": True}
    (suite,) = [step for step in job["steps"] if step.get("run") == "make test-all"]
    assert suite["env"] == {"MTL_DEBUG_LAYER": "1", "MTL_DEBUG_LAYER_ERROR_MODE": "assert"}
    (asked,) = [step for step in job["steps"] if "on_a_mac.py" in step.get("run", "")]
    (kept,) = [step for step in job["steps"] if step.get("with", {}).get("path") == "on_a_mac.txt"]
    assert asked["if"] == kept["if"] == "${{ !cancelled() }}", "a failing test does not take the answers along"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_an_action_is_one_commit_and_says_which_version_it_is(path):
    uses = re.findall(r"uses: *(.*)", path.read_text())
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_a_job_may_only_read_and_ends():
    assert WORKFLOW["permissions"] == {}
    for name, job in JOBS.items():
        assert job["permissions"] == {"contents": "read"}, name
        assert 0 < job["timeout-minutes"] <= 90, name
        assert job["steps"][0]["with"] == {"persist-credentials": False}, name


def test_the_site_is_built_on_each_push_and_published_of_main_alone():
    """Only the job that publishes may write, and it runs nothing but that."""
    workflow = yaml.safe_load((FOLDER / "docs.yml").read_text())
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert workflow["permissions"] == {}
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert [step["run"] for step in build["steps"] if "run" in step] == ["make docs"]
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == ["actions/deploy-pages"]
    (uploaded,) = [step for step in build["steps"] if "upload" in step.get("uses", "")]
    assert uploaded["if"] == publish["if"] == "github.ref == 'refs/heads/main' && github.event.repository.has_pages"
    assert f" {uploaded['with']['path']}\n" in (ROOT / "Makefile").read_text()


def test_a_device_that_ends_the_process_cannot_do_it():
    assert machine.works("pass")
    assert not machine.works("raise MemoryError")
    assert not machine.works("import os; os.abort()")
