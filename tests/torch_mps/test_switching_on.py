"""Mps is switched on by a call, by `python -m softmetal`, and by the pytest plugin."""

import re

import pytest
from children import output_of, run_child

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

RUNNER = ["-m", "softmetal"]


#: On the CPU; then torch has counted its devices.
BACKWARD = "import os, torch; torch.ones(3, requires_grad=True).sum().backward()"


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import torch; assert not torch.backends.mps.is_available()",
        BACKWARD,
        f"{BACKWARD}; child = os.fork(); child and os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    ],
)
@pytest.mark.some(1)
def test_by_calls_of_many_threads_before_or_after_the_import(first):
    printed = output_of(f"""
        from concurrent.futures import ThreadPoolExecutor
        {first}
        import softmetal
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: softmetal.torch_mps(), range(8)))
        import torch
        x = torch.ones(2, device="mps", requires_grad=True)
        (x * x).sum().backward()
        print(x.grad.tolist(), torch.backends.mps.is_available())
        seeds = [one.initial_seed() for one in (torch.mps._get_default_mps_generator(), torch.Generator(device="mps"))]
        assert seeds[0] != seeds[1] == torch.Generator().initial_seed(), "as on a Mac, each process begins elsewhere"
        softmetal.torch_mps(float64=True)
        print(torch.ones(1, dtype=torch.float64, device="mps").dtype)
    """)
    assert printed == "[2.0, 2.0] True\ntorch.float64\n"


def test_children_compute_gradients_where_the_parent_did_not():
    """Torch refuses them in a child of a process that has its threads; switching mps on starts none."""
    printed = output_of("""
        import os, torch
        import softmetal
        softmetal.torch_mps()
        if child := os.fork():
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        x = torch.ones(3, requires_grad=True)
        x.sum().backward()
        print(x.grad.tolist(), flush=True)
        os._exit(0)
    """)
    assert printed == "[1.0, 1.0, 1.0]\n"


SCRIPT = """
import atexit, os, pickle, sys
class Kept: pass
def end():
    print("end", type(pickle.loads(pickle.dumps(Kept()))) is Kept)
def work():
    import torch
    print((torch.ones(2, device="mps") + 1).tolist(), torch.__spec__.loader is torch.__loader__)
    if sys.argv[1:] == ["wrong"]:
        raise ValueError("its own")
    sys.exit(7)
atexit.register(end)
if __name__ == "__main__":
    print(sys.argv[1:], "torch" in sys.modules, sys.path[0] == os.path.dirname(os.path.abspath(__file__)))
    work()
"""


@pytest.mark.parametrize("program", [["script.py"], ["--torch", "script.py"], ["-m", "script"]])
@pytest.mark.some(1)
def test_a_program_runs_as_under_python(tmp_path, program):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run_child([*RUNNER, *program, "-m", "--torch"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
    first, second, last = done.stdout.splitlines()
    assert first == "['-m', '--torch'] False True"
    assert second == "[2.0, 2.0] True"
    assert last == "end True"
    wrong = run_child([*RUNNER, *program, "wrong"], cwd=tmp_path)
    assert wrong.returncode == 1
    places = re.findall(r'^  File "(.*)", line', wrong.stderr, re.MULTILINE)
    assert {place.rpartition("/")[2] for place in places} <= {"script.py", "<frozen runpy>"}
    assert places[0].endswith("script.py") or "-m" in program
    assert wrong.stderr.endswith("ValueError: its own\n")


def test_a_program_without_torch_pays_nothing(tmp_path):
    (tmp_path / "script.py").write_text("import sys\nprint('torch' in sys.modules, 'ctypes' in sys.modules)\n")
    plain = output_of("import softmetal, sys; print('torch' in sys.modules, 'ctypes' in sys.modules)")
    assert output_of([*RUNNER, "script.py"], cwd=tmp_path).split()[0] == plain.split()[0] == "False"


@pytest.mark.parametrize(("words", "status", "said"), [
    ([], 2, "usage: softmetal"),
    (["--help"], 0, "usage: softmetal"),
    (["no_such.py"], 2, "can't open file"),
    (["-m", "no_such"], 1, "No module named no_such"),
])  # fmt: skip
def test_a_program_that_is_not_there(words, status, said):
    done = run_child([*RUNNER, *words])
    assert done.returncode == status
    assert said in done.stdout + done.stderr


TESTS = """
import pytest
torch = pytest.importorskip("torch")
HERE = torch.ones(2, device="mps")  # while tests are collected

def test_it():
    assert (HERE + 1).tolist() == [2, 2]
"""


@pytest.mark.parametrize("way", ["option", "ini", "conftest", "none"])
@pytest.mark.some(1)
def test_by_the_plugin_before_a_test_imports_torch(tmp_path, way):
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + "softmetal_torch = true\n" * (way == "ini"))
    (tmp_path / "test_it.py").write_text(TESTS)
    if way == "conftest":
        (tmp_path / "conftest.py").write_text("import torch\n")
    options = ["--softmetal-torch"] if way in ("option", "conftest") else []
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "metal_dlpack", *options]
    done = run_child(words, cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS=None)
    assert ("1 passed" in done.stdout) == (way != "none"), done.stdout + done.stderr


@pytest.mark.long
def test_under_the_plugin_a_newcomer_sees_that_the_device_is_compiled(tmp_path):
    """With a compiler that fails: the line comes before."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nsoftmetal_torch = true\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "metal_dlpack"]
    settings = {"CXX": "false", "SOFTMETAL_CACHE": str(tmp_path / "cache"), "PYTEST_ADDOPTS": None}
    done = run_child(words, cwd=tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **settings)
    assert "metal_dlpack: compiling torch's mps device for torch" in done.stderr
    assert "false cannot compile torch's mps device" in done.stdout


PROBES = """
import pytest, torch
HAS_MPS = torch.backends.mps.is_available()  # when it is imported, as libraries' own conftest.py do
@pytest.fixture
def device():
    if not HAS_MPS:
        pytest.skip("mps is not available")
    return "mps"
"""


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["-m", "pytest", "--softmetal-torch"], {}),
        (["-m", "pytest", "-o", "softmetal=true"], {}),
        (["-m", "pytest"], {"PYTEST_ADDOPTS": "--softmetal"}),
        (["-m", "pytest", "-n1"], {"SOFTMETAL_TORCH": "1"}),
        ([*RUNNER, "-m", "pytest", "-n1"], {}),
        (["-c", "import pytest, sys; sys.exit(pytest.main(['--softmetal', *sys.argv[1:]]))"], {}),
    ],
)
@pytest.mark.some(1)
def test_a_conftest_finds_the_device_when_it_is_imported(tmp_path, words, environment):
    (tmp_path / "conftest.py").write_text(PROBES)
    (tmp_path / "test_it.py").write_text("def test_it(device):\n    assert device == 'mps'\n")
    done = run_child([*words, "-q", "-p", "no:cacheprovider"], cwd=tmp_path, **{"PYTEST_ADDOPTS": None, **environment})
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "warning" not in done.stdout


ASKS = """
import platform, sys, torch
asks = "asked = [platform.processor(), platform.machine()]"
library, compiler = ({"__name__": name, "platform": platform} for name in ("library", "torch._inductor.cpu_vec_isa"))
exec(asks, library), exec(asks, compiler)
truly = platform.uname()
print(*library["asked"], compiler["asked"] == [truly.processor, truly.machine], sys.platform)
"""


@pytest.mark.parametrize("setting", ["1", "0"])
def test_a_library_that_asks_for_the_processor_of_a_mac_gets_it_where_that_is_wanted(setting):
    printed = output_of(ASKS, SOFTMETAL_TORCH="1", SOFTMETAL_LIKE_A_MAC=setting)
    assert printed.endswith(" True linux\n") and printed.startswith("arm arm64 ") == (setting == "1")


@pytest.mark.long
@pytest.mark.parametrize("way", ["variable", "runner"])
def test_the_ranks_of_torchrun_have_it(tmp_path, way):
    (tmp_path / "rank.py").write_text("import torch; print(torch.ones(2, device='mps').sum().item())")
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "rank.py"]
    words = words if way == "variable" else [*RUNNER, *words]
    done = run_child(words, cwd=tmp_path, SOFTMETAL_TORCH="1" if way == "variable" else None)
    assert (done.returncode, done.stdout.split()) == (0, ["2.0", "2.0"]), done.stderr
