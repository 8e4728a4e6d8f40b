"""The file metal_dlpack.pth: what a program switches on is there in the Pythons that it starts, and costs the others nothing."""

import re
import site
from pathlib import Path

import pytest
from children import output_of, run_child
from places import PACKAGES

import _metal_dlpack_start

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]

RUNNER = ["-m", "softmetal"]
#: Neither by the environment of this run.
PLAIN = {variable: None for variable, _ in _metal_dlpack_start.SWITCHES.values()} | {"PYTEST_ADDOPTS": None}


@pytest.fixture(autouse=True)
def _is_installed():
    assert any(Path(folder, "metal_dlpack.pth").exists() for folder in site.getsitepackages()), (
        "metal_dlpack.pth is not where Python reads it: run pip install --no-build-isolation -e . once more"
    )


# ---- children ----

PROGRAM = """
import concurrent.futures, multiprocessing, os, subprocess, sys

def ask(_=None):
    import mlx.core as mx
    return mx.metal.is_available()

SPAWN = multiprocessing.get_context("spawn")
ASK = "import mlx.core as mx; print(mx.metal.is_available())"
if __name__ == "__main__":
    {start}
"""
#: Each prints what its child was told.
STARTS = {
    "a subprocess": "subprocess.run([sys.executable, '-c', ASK], check=True)",
    "an isolated one": "subprocess.run([sys.executable, '-I', '-c', ASK], check=True)",
    "a shell": "os.system(f'{sys.executable} -c {ASK!r}')",
    "another program in its place": "os.execv(sys.executable, [sys.executable, '-c', ASK])",
    "a pool that spawns": "with SPAWN.Pool(1) as pool: print(pool.apply(ask))",
    "a pool of a fork server": "with multiprocessing.get_context('forkserver').Pool(1) as pool: print(pool.apply(ask))",
    "futures": "with concurrent.futures.ProcessPoolExecutor(1, mp_context=SPAWN) as pool: print(pool.submit(ask).result())",
    "joblib": "import joblib; print(all(joblib.Parallel(n_jobs=2)(joblib.delayed(ask)() for _ in range(2))))",
}  # fmt: skip


@pytest.mark.needs_mlx
@pytest.mark.parametrize("start", STARTS)
def test_however_a_program_starts_a_python_it_has_what_the_program_has(tmp_path, start):
    (tmp_path / "program.py").write_text(PROGRAM.format(start=STARTS[start]))
    assert output_of([*RUNNER, "program.py"], cwd=tmp_path, **PLAIN) == "True\n"


TESTS = """
import multiprocessing, subprocess, sys

CODE = "import torch; print((torch.ones(2, device='mps') + 1).tolist())"

def child(queue):
    import torch
    queue.put(torch.backends.mps.is_available())

def test_spawned():
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=200)
    process.join()

def test_subprocess():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "[2.0, 2.0]\\n"

if __name__ == "__main__":
    test_spawned()
    test_subprocess()
    print("2 passed")
"""


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("words", "environment"),
    [
        ([*RUNNER, "test_it.py"], {}),
        (["test_it.py"], {"SOFTMETAL_TORCH": "1"}),
        (["-m", "pytest", "--softmetal-torch"], {}),
        pytest.param([*RUNNER, "-m", "pytest", "-n2"], {}, marks=pytest.mark.long),
    ],
)
@pytest.mark.some(1)
def test_torch_has_mps_in_children(tmp_path, words, environment):
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_child(words, cwd=tmp_path, **PLAIN | environment)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "warning" not in done.stdout + done.stderr


# ---- what it costs, and what goes wrong ----


def test_the_file_asks_for_the_variables_that_there_are_and_is_one_line():
    (line,) = (PACKAGES / "metal_dlpack.pth").read_text().splitlines()
    assert set(re.findall(r"SOFTMETAL_\w+", line)) == {name for name, _ in _metal_dlpack_start.SWITCHES.values()}


@pytest.mark.parametrize(
    ("environment", "options", "what"),
    [
        ({}, [], "[] []"),
        ({"SOFTMETAL_TORCH": ""}, [], "[] []"),
        ({"SOFTMETAL_TORCH": "0"}, [], "['_metal_dlpack_imports', '_metal_dlpack_start'] []"),
        ({"SOFTMETAL_TORCH": "1"}, ["-S"], "[] []"),
        ({"SOFTMETAL_TORCH": "1"}, [], "['_metal_dlpack_imports', '_metal_dlpack_start'] ['torch']"),
        (
            {"SOFTMETAL_TORCH": "1", "SOFTMETAL_MLX": "yes"},
            ["-I"],
            "['_metal_dlpack_imports', '_metal_dlpack_start'] ['mlx.core', 'torch']",
        ),
    ],
)
def test_nothing_is_imported_before_it_is_wanted(environment, options, what):
    code = """
        import sys
        print([m for m in sys.modules if "metal" in m or m in ("torch", "ctypes")], [f.name for f in sys.meta_path if hasattr(f, "name")])
    """
    assert output_of(code, options=options, **PLAIN | environment) == f"{what}\n"


@pytest.mark.parametrize(
    ("torch", "package", "end"),
    [
        (None, None, "ModuleNotFoundError: No module named 'torch'\n"),
        ("raise ImportError('its own')", None, "ImportError: its own\n"),
        ("x = 1", None, "RuntimeWarning: SOFTMETAL_TORCH is set, and nothing is switched on: metal_dlpack is not on the path of this Python any more.\n  import torch\n1\n"),
        ("x = 1", "raise ImportError('it is broken')", "RuntimeError: SOFTMETAL_TORCH is set, and metal_dlpack cannot be imported. Unset the variable, or mend this: it is broken\n"),
    ],
)  # fmt: skip
def test_without_torch_or_the_package_python_goes_on_or_says_why(tmp_path, torch, package, end):
    """As in a pip build, which takes site-packages off the path of a Python that has started."""
    (tmp_path / "program.py").write_text("import torch\nimport sys\nprint(torch.x, file=sys.stderr)")
    for name, text in {"torch": torch, "softmetal": package}.items():
        if text is not None:
            (tmp_path / f"{name}.py").write_text(text)
    code = "import runpy, sys; sys.path[:] = [p for p in sys.path if 'lib' in p and 'site-packages' not in p]; runpy.run_path(sys.argv[1])"
    (tmp_path / "starts.py").write_text(code.replace("= [p", "= [sys.path[0]] + [p"))
    done = run_child(["starts.py", "program.py"], cwd=tmp_path, **PLAIN | {"SOFTMETAL_TORCH": "1", "PYTHONPATH": None})
    assert done.stderr.endswith(end)
