""".github: what runs on each push and for a release.  `make lint` looks at the form and the safety of these files."""

import itertools
import os
import re
import shlex
import subprocess
import tomllib

import machine
import pytest
from places import ROOT

import metal_dlpack as md
from metal_dlpack.conformance.libraries import LIBRARIES

# GNU make, which they run, reads past a string of its own; the sanitizer is loaded into it.
pytestmark = pytest.mark.needs_no_sanitizer

yaml = pytest.importorskip("yaml", reason="the workflows are YAML")

FOLDER = ROOT / ".github" / "workflows"
TEXTS = {path.name: path.read_text() for path in FOLDER.glob("*.yml")}
WORKFLOWS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
WORKFLOW = WORKFLOWS["tests.yml"]
JOBS = WORKFLOW["jobs"]
RELEASE = WORKFLOWS["release.yml"]
PUBLISH = RELEASE["jobs"]["publish"]
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


def test_a_step_on_linux_asks_for_what_everybody_builds():
    """Run as GitHub runs it, but that make only says what it would do: the whole is `.ci/run`."""
    for job, text, environment in LINUX_STEPS:
        done = subprocess.run(
            ["bash", "-e", "-c", text],
            cwd=ROOT,
            env={**os.environ, **dict(environment), "MAKEFLAGS": "n"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{job}: {done.stderr}"
        assert re.search(r"setup\.py|-m pytest|ruff|sanitized", done.stdout), f"{job}: {done.stdout}"


#: Compares with counts of one compiler and one Python, those of .ci/run's machine; needs Debian, and runs at night.
ONLY_OF_CI = {"instructions", "arm64"}


def test_linux_runs_what_ci_runs():
    budgets = subprocess.run(["make", "-s", "budgets"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {pair.partition("=")[0] for pair in budgets.split()}
    asked = {re.sub(r"\$TARGET", dict(env).get("TARGET", ""), text.replace('"', "")) for _, text, env in LINUX_STEPS}
    assert asked == {f"make {target}" for target in targets - ONLY_OF_CI}


def test_every_python_and_both_processors_are_tried_on_linux():
    rows = combinations(JOBS["linux"])
    solid = {(row["runner"], row["python"]) for row in rows if not row["may-fail"]}
    pythons = ["3.11", "3.12", "3.13", "3.14"]
    assert solid == set(itertools.product(["ubuntu-24.04", "ubuntu-24.04-arm"], pythons))
    assert [row["python"] for row in rows if row["may-fail"]] == ["3.14t", "3.15"]


def test_macs_run_under_metals_validation_and_keep_the_answers():
    job = JOBS["mac"]
    may_fail = {row["runner"]: row["may-fail"] for row in combinations(job)}
    assert may_fail == {"macos-15": False, "macos-26": False}
    (suite,) = [step for step in job["steps"] if step.get("run") == "make test-all"]
    assert suite["env"] == {"MTL_DEBUG_LAYER": "1", "MTL_DEBUG_LAYER_ERROR_MODE": "assert"}
    (asked,) = [step for step in job["steps"] if "on_a_mac.py" in step.get("run", "")]
    (kept,) = [step for step in job["steps"] if step.get("with", {}).get("path") == "on_a_mac.txt"]
    assert asked["if"] == kept["if"] == "${{ !cancelled() }}", "a failing test does not take the answers along"


def test_an_action_is_one_commit_and_says_which_version_it_is():
    uses = re.findall(r"uses: *([^$\s].*)", "".join(TEXTS.values()))
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert len(set(uses)) == len({action.partition("@")[0] for action in uses}), "an action has two versions"


def test_a_job_may_only_read_and_ends():
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {}, name
        for job_name, job in workflow["jobs"].items():
            if job_name != "publish":  # what each of these may, is below
                assert job["permissions"] == {"contents": "read"}, (name, job_name)
            if "uses" not in job:
                assert 0 < job["timeout-minutes"] <= (350 if name == "nightly.yml" else 90), (name, job_name)
                assert job_name == "publish" or job["steps"][0]["with"] == {"persist-credentials": False}


def test_nothing_runs_twice_for_one_commit():
    """A pull request's commits are pushed to a branch too."""
    for name in ("tests.yml", "docs.yml"):
        assert WORKFLOWS[name][True]["push"] == {"branches": ["main"]}  # YAML reads `on` as true
        assert "pull_request" in WORKFLOWS[name][True]


def test_pytorch_comes_from_an_index_of_cpu_builds_and_packages_from_a_cache():
    """Each job but those of a release fetches it; that for CUDA is gigabytes."""
    index = "${{ vars.PIP_EXTRA_INDEX_URL || 'https://download.pytorch.org/whl/cpu' }}"
    for name in set(WORKFLOWS) - {"release.yml"}:
        assert WORKFLOWS[name]["env"]["PIP_EXTRA_INDEX_URL"] == index, name
        steps = [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]
        pythons = [step["with"] for step in steps if "setup-python" in step.get("uses", "")]
        assert pythons, name
        assert all((with_["cache"], with_["cache-dependency-path"]) == ("pip", "pyproject.toml") for with_ in pythons)


def test_the_nightly_parts_are_all_of_make_nightly_that_a_runner_can_do():
    text = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^NIGHTLY = ((?:.*\\\n)*.*)$", text, re.MULTILINE)
    parts = WORKFLOWS["nightly.yml"]["jobs"]["nightly"]["strategy"]["matrix"]["targets"]
    left_out = {"instructions", "arm64 ARGS=tests"}
    assert set(shlex.split(targets.replace("\\\n", " "))) - left_out == set(shlex.split(" ".join(parts)))


def test_a_release_is_published_from_a_tag_after_its_tests_without_a_password():
    assert RELEASE["jobs"]["tests"]["uses"] == "$/.github/workflows/tests.yml"
    assert "workflow_call" in WORKFLOW[True]
    assert RELEASE[True]["push"] == {"tags": ["v*"]}  # YAML reads `on` as true
    assert PUBLISH["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert set(PUBLISH["needs"]) == set(RELEASE["jobs"]) - {"publish"}
    assert PUBLISH["environment"]["name"] == "pypi"
    assert PUBLISH["permissions"] == {"id-token": "write", "attestations": "write"}
    assert not re.search(r"secrets\.|password:", TEXTS["release.yml"])


def test_a_release_is_attested_before_it_is_published():
    actions = [step["uses"].partition("@")[0] for step in PUBLISH["steps"]]
    assert actions == ["actions/download-artifact", "actions/attest", "pypa/gh-action-pypi-publish"]
    assert PUBLISH["steps"][-1]["with"]["attestations"] is True
    kept = [
        step["with"]["name"]
        for job in RELEASE["jobs"].values()
        for step in job.get("steps", ())
        if "upload-artifact" in step.get("uses", "")
    ]
    assert all(name.startswith("dist-") for name in kept)
    assert PUBLISH["steps"][0]["with"]["pattern"] == "dist-*"


def test_a_tag_must_be_the_version():
    (step,) = [step for step in RELEASE["jobs"]["sdist"]["steps"] if step.get("if") == PUBLISH["if"]]

    def passes(tag):
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        return subprocess.run(["bash", "-e", "-c", step["run"]], cwd=ROOT, env=environment, check=False).returncode == 0

    assert passes(f"v{md.__version__}")
    assert not passes(f"v{md.__version__}1")
    assert not passes(md.__version__.replace(".", "x"))


def test_wheels_are_built_on_each_system_that_they_are_for():
    assert RELEASE["jobs"]["wheels"]["strategy"]["matrix"] == {
        "runner": ["macos-15", "ubuntu-24.04", "ubuntu-24.04-arm"]
    }
    address = RELEASE["env"]["METAL_DLPACK_REPOSITORY"]
    assert address == "${{ github.server_url }}/${{ github.repository }}"
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert configured["linux"]["environment-pass"] == ["METAL_DLPACK_REPOSITORY"], "else the container does not see it"


def test_every_pinned_thing_is_moved_on_and_not_on_its_first_day():
    updates = yaml.safe_load((FOLDER.parent / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
    assert all(update["cooldown"]["default-days"] >= 7 for update in updates)


def test_issue_forms_ask_for_what_the_doctor_says():
    forms = [yaml.safe_load(path.read_text()) for path in (FOLDER.parent / "ISSUE_TEMPLATE").glob("[!c]*.yml")]
    asked = {form["name"]: [field["attributes"].get("label", "") for field in form["body"]] for form in forms}
    assert len(asked) == 3
    assert sum(any("python -m metal_dlpack" in label for label in labels) for labels in asked.values()) == 2


def test_the_site_is_built_on_each_push_and_published_of_main_alone():
    """Only the job that publishes may write, and it runs nothing but that."""
    workflow = WORKFLOWS["docs.yml"]
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert workflow["permissions"] == {}
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert [step["run"] for step in build["steps"] if "run" in step] == ["make docs"]
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == ["actions/deploy-pages"]
    (uploaded,) = [step for step in build["steps"] if "upload" in step.get("uses", "")]
    assert uploaded["if"] == publish["if"] == "github.ref == 'refs/heads/main' && github.event.repository.has_pages"
    assert f" {uploaded['with']['path']}\n" in (ROOT / "Makefile").read_text()


def test_the_notebooks_run_on_each_push_and_their_pictures_are_kept():
    steps = WORKFLOWS["docs.yml"]["jobs"]["notebooks"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make notebooks"]
    assert steps[-1]["with"]["path"] == "build/notebooks"
    assert steps[-1]["if"] == "${{ !cancelled() }}"


def test_the_peers_are_judged_on_each_push():
    steps = WORKFLOWS["docs.yml"]["jobs"]["conformance"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make conformance"]
    (peers,) = re.findall(r"^PEERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(peers.split()) == set(LIBRARIES)


def test_a_device_that_ends_the_process_cannot_do_it():
    assert machine.works("pass")
    assert not machine.works("raise MemoryError")
    assert not machine.works("import os; os.abort()")
