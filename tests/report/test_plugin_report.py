"""pytest --softmetal-check and --softmetal-report: one report of the run, its children, and xdist's workers."""

import json

import pytest
from children import run_child
from racing_program import CLEAN, LINES, RACY

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

TESTS = """
import numpy as np
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    x = md.zeros(64)
    K(x, n=64, group=64)
    if number == 2:
        np.asarray(x)
"""
UNSEEN = TESTS.replace("number == 2", "number == 9")
FIRST, LAST = LINES


def run(tmp_path, text, *options, **environment):
    (tmp_path / "test_it.py").write_text(text)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "metal_dlpack", *options]
    settings = {"PYTEST_ADDOPTS": None, "SOFTMETAL_VALIDATION": None, "SOFTMETAL_KERNEL_CHECK": None, **environment}
    return run_child(words, cwd=tmp_path, **settings)


@pytest.mark.parametrize("workers", [[], ["-n2"]])
def test_what_was_found_is_reported_once_and_fails_the_run(tmp_path, workers):
    done = run(tmp_path, RACY + TESTS, "--softmetal-report", "r.json", "--softmetal-report", "r.sarif", *workers)
    assert done.returncode == 1
    assert "4 failed" in done.stdout, "whether they wait or not"
    report = json.loads((tmp_path / "r.json").read_text())
    (finding,) = report["findings"]
    assert finding["launches"] == report["kernels"][0]["launches"] == 4
    assert {(one["file"], one["line"]) for one in finding["accesses"]} == {
        ("test_it.py", FIRST),
        ("test_it.py", LAST),
    }
    section = done.stdout.partition(" kernels =")[2].partition("short test summary")[0]
    assert section.count(f"test_it.py:{LAST}:") == 1
    assert (tmp_path / "r.sarif").exists()


CHILD = """
import softmetal

def once():
    K(md.zeros(64), n=64, group=64)
    softmetal.wait_idle()

def test_a_child():
    subprocess.run([sys.executable, "-c", "import test_it; test_it.once()"], check=True)
"""
CRASH = "    once()\n    os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.some(1)
def test_the_child_of_a_worker_and_a_worker_that_is_killed_are_in_it(tmp_path, is_killed):
    text = RACY + CHILD + CRASH * is_killed
    if is_killed:
        done = run(tmp_path, text, "--softmetal-report", "r.json", "-n2")
    else:  # without an option of the plugin's
        (tmp_path / "test_it.py").write_text(text)
        words = ["-m", "softmetal", "--report", "r.json", "-m", "pytest", "-n2", "-p", "no:cacheprovider"]
        done = run_child(words, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    (finding,) = report["findings"]
    assert finding["launches"] == report["kernels"][0]["launches"] == 1 + is_killed
    assert [one["line"] for one in finding["accesses"]] == [LAST, FIRST]
    assert ("ended by a signal" in done.stdout + done.stderr) == is_killed


@pytest.mark.parametrize("way", ["plugin", "runner"])
@pytest.mark.some(1)
def test_a_finding_that_no_test_waits_for_fails_its_test(tmp_path, way):
    text = RACY + UNSEEN + "\ndef test_another():\n    pass\n"
    if way == "plugin":
        done = run(tmp_path, text, "--softmetal-check")
    else:
        (tmp_path / "test_it.py").write_text(text)
        words = ["-m", "softmetal", "--check", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        done = run_child(words, cwd=tmp_path, SOFTMETAL_KERNEL_CHECK=None, SOFTMETAL_VALIDATION=None)
    assert "4 failed, 1 passed" in done.stdout
    assert done.returncode == 1
    assert run(tmp_path, RACY + UNSEEN).returncode == 0, "only where it is asked for"


@pytest.mark.parametrize("option", ["--softmetal-check", "--softmetal-strict"])
@pytest.mark.some(1)
def test_a_run_without_a_kernel_says_so(tmp_path, option):
    skips = "\ndef test_skipped():\n    pytest.skip('needs MPS')\n"
    done = run(tmp_path, "import pytest\ndef test_it():\n    pass\n" + skips, option)
    assert "softmetal: no kernel was launched, so nothing was checked: 0 kernels" in done.stdout
    assert "1 of the skipped tests name mps or Metal, though both are there: test_it.py::test_skipped is" in done.stdout
    assert done.returncode == (2 if option == "--softmetal-strict" else 0)


def test_nothing_found_is_said_too(tmp_path):
    done = run(tmp_path, CLEAN + TESTS, "--softmetal-check", SOFTMETAL_KERNEL_CHECK="0")
    assert done.returncode == 0
    assert "softmetal: 1 kernel, 4 launches, 256 threads" in done.stdout
    assert "not checked" not in done.stdout


def test_the_ini_file_silences_with_a_reason(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nsoftmetal_benign =\n    turned:{LAST} it is for show\n    never:1 no\n"
    )
    done = run(tmp_path, RACY + TESTS, "--softmetal-check")
    assert done.returncode == 0
    assert "softmetal_benign:1: it is for show" in done.stdout
    assert "softmetal_benign:2: nothing was found there" in done.stdout
    assert run(tmp_path, RACY + TESTS).returncode == 0, "without a report too"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nsoftmetal_benign = turned:{LAST}\n")
    done = run(tmp_path, RACY + TESTS, "--softmetal-check")
    assert done.returncode == 4
    assert f"softmetal_benign:1: turned:{LAST} has no reason" in done.stderr


def test_a_file_that_no_report_can_be_is_refused_before_the_tests(tmp_path):
    done = run(tmp_path, CLEAN + TESTS, "--softmetal-report", "r.txt")
    assert done.returncode == 4
    assert "r.txt must end in .html, .json or .sarif" in done.stderr


MLX = '''
import mlx.core as mx

def test_it():
    assert mx.metal.is_available()
    kernel = mx.fast.metal_kernel(name="k", input_names=["x"], output_names=["y"], source="""
        uint i = thread_position_in_grid.x;
        y[i] = 2 * x[i + 1];
    """)
    (y,) = kernel(inputs=[mx.ones((8,))], grid=(7, 1, 1), threadgroup=(7, 1, 1), output_shapes=[(8,)],
                  output_dtypes=[mx.float32], init_value=0)
    assert y.tolist() == [2] * 7 + [0]
'''


@pytest.mark.needs_mlx
def test_softmetal_switches_on_mlx_s_kernels(tmp_path):
    done = run(tmp_path, MLX, "--softmetal", "--softmetal-check")
    assert done.returncode == 0, done.stdout
    assert "1 kernel, 1 launch, 7 threads" in done.stdout
    done = run(tmp_path, MLX.replace("grid=(7", "grid=(8"), "--softmetal", "--softmetal-report", "r.json")
    assert done.returncode == 1
    (finding,) = json.loads((tmp_path / "r.json").read_text())["findings"]
    assert [(one["file"], one["line"]) for one in finding["accesses"]] == [("test_it.py", 8)]
