"""building.py: torch's mps device is compiled once for each torch, by one process."""

import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from children import run_child

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch]

PROGRAM = """
import torch
import softmetal
softmetal.torch_mps()
assert (torch.ones(3, device="mps") + 1).tolist() == [2] * 3
"""


ONLY_BUILD = "import torch; from softmetal.torch import building; print(building.library(torch))"


def quick_compiler(tmp_path, first):
    """One that makes an empty library, after this code, which knows `output`: how and where are asked, not what."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys, time\n"
        "output = sys.argv[sys.argv.index('-o') + 1]\n"
        f"{first}\n"
        "sys.exit(subprocess.run(['cc', '-shared', '-x', 'c', '/dev/null', '-o', output]).returncode)\n"
    )
    compiler.chmod(0o700)
    return str(compiler)


@pytest.mark.long
def test_of_processes_that_begin_together_one_compiles_and_the_file_is_the_users_own(tmp_path):
    counts = f"os.write(os.open({str(tmp_path / 'calls')!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'x')"
    compiler = quick_compiler(tmp_path, f"{counts}; time.sleep(1)")
    settings = {"CXX": compiler, "SOFTMETAL_CACHE": str(tmp_path / "cache")}
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run_child(ONLY_BUILD, **settings), range(3)))
    assert [one.returncode for one in done] == [0] * 3, done[0].stderr
    (path,) = {one.stdout.strip() for one in done}
    assert (tmp_path / "calls").read_text() == "x"
    assert sum("compiling torch's mps device" in one.stderr for one in done) == 1
    facts = os.stat(path)
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid) == (0o700, os.geteuid())


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path):
    done = run_child(PROGRAM, PATH=str(tmp_path), CXX=None, SOFTMETAL_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: softmetal.torch_mps: ") and "apt-get install g++" in last


@pytest.mark.parametrize("name", ["false", "/no/such/compiler"])
@pytest.mark.some(1)
def test_a_compiler_that_fails_is_named(tmp_path, name):
    done = run_child(PROGRAM, CXX=name, SOFTMETAL_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert f"RuntimeError: softmetal.torch_mps: {name} cannot compile torch's mps device for torch" in done.stderr


@pytest.mark.parametrize("where", ["a file in its place", "a full disk", "no room anywhere"])
@pytest.mark.some(1)
def test_where_the_cache_takes_nothing_a_temporary_folder_serves_or_one_sentence_says_why(tmp_path, where):
    """The linker is the first to meet a full disk."""
    cache = tmp_path / "cache"
    if where == "a file in its place":
        cache.write_text("")
    full = {"a full disk": cache, "no room anywhere": tmp_path}.get(where, "nowhere")
    says = "'/usr/bin/ld: final link failed: No space left on device'"
    compiler = quick_compiler(tmp_path, f"output.startswith({str(full)!r}) and sys.exit({says})")
    (tmp_path / "temporary").mkdir()
    done = run_child(ONLY_BUILD, CXX=compiler, SOFTMETAL_CACHE=str(cache), TMPDIR=str(tmp_path / "temporary"))
    assert (
        f"RuntimeWarning: The folder of compiled kernels ({cache}/metal_dlpack/kernels) cannot be used" in done.stderr
    )
    if where == "no room anywhere":
        last = done.stderr.splitlines()[-1]
        assert last.startswith("RuntimeError: softmetal.torch_mps: no folder takes the library"), done.stderr
        assert "No space left on device" in last
    else:
        assert (done.returncode, done.stdout.startswith(str(tmp_path / "temporary"))) == (0, True), done.stderr
    assert not list((tmp_path / "temporary").iterdir())
