"""The package as others install it: what is in it, what its build says, what it needs."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import metal_dlpack as md

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
pytestmark = pytest.mark.needs_no_sanitizer


def checkout(folder):
    """What git would give somebody, without what was built."""
    ignore = shutil.ignore_patterns("*.so", "build", "dist", "*.egg-info", ".git", ".venv", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder / "checkout", ignore=ignore))


def setup(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = checkout(tmp_path_factory.mktemp("sdist"))
    result = setup(folder, "sdist", "--dist-dir", "out")
    assert result.returncode == 0, result.stderr
    (archive,) = (folder / "out").glob("*.tar.gz")
    shutil.unpack_archive(archive, folder / "unpacked", filter="data")
    (top,) = (folder / "unpacked").iterdir()
    return top


@pytest.fixture(scope="module")
def wheel(sdist):
    """Built from the source distribution: what is missing there is missing here."""
    result = setup(sdist, "bdist_wheel", "--dist-dir", "out", METAL_DLPACK_WERROR="1")
    assert result.returncode == 0, result.stderr
    (archive,) = (sdist / "out").glob("*.whl")
    return archive


def test_a_source_distribution_has_all_that_is_compiled(sdist):
    for pattern in (
        "src/**/*.[chm]",
        "src/*.map",
        "src/metal_dlpack/**/*.py",
        "src/metal_dlpack/*.pyi",
        "tests/*.py",
        "LICENSE",
        "README.md",
    ):
        for path in ROOT.glob(pattern):
            assert (sdist / path.relative_to(ROOT)).exists(), path
    assert not list(sdist.rglob("*.so"))


def test_a_wheel_has_the_module_its_stub_and_the_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "__init__.py",
        "_core.pyi",
        "py.typed",
        "__main__.py",
        "doctor.py",
        "softmetal.py",
        "text.py",
        "files/gguf.py",
        "include/metal_dlpack.h",
    ):
        assert f"metal_dlpack/{name}" in names
    assert any(re.fullmatch(r"metal_dlpack/_core\..*\.so", name) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.endswith((".c", ".m", ".map")) for name in names)


def test_a_wheel_works_where_it_is_unpacked(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import metal_dlpack as md; print(md.__file__, md.full(3, 2.0).tolist(), md.get_include())"
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert str(tmp_path) in child.stdout
    assert "[2.0, 2.0, 2.0]" in child.stdout
    assert (Path(child.stdout.split()[-1]) / "metal_dlpack.h").is_file()


def test_a_wheel_needs_nothing_and_says_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert f"\nVersion: {md.__version__}\n" in metadata
    assert "Requires-Dist" not in metadata


@pytest.mark.skipif(sys.platform == "darwin", reason="Apple's compiler has Objective-C")
def test_a_compiler_without_objective_c_is_one_clear_line(tmp_path):
    folder = checkout(tmp_path)
    half = tmp_path / "half-a-compiler"
    half.write_text('#!/bin/sh\ncase "$*" in *.m*) exit 1 ;; esac\nexec cc "$@"\n')
    half.chmod(0o755)
    result = setup(folder, "build_ext", CC=str(half))
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if line.startswith("metal_dlpack: ")]
    assert len(lines) == 1
    assert "gobjc" in lines[0]
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="the probe differs")
def test_no_compiler_at_all_is_one_clear_line(tmp_path):
    result = setup(checkout(tmp_path), "build_ext", CC="/nonexistent/cc")
    assert result.returncode != 0
    assert "metal_dlpack: no C compiler works." in result.stderr
    assert "Traceback" not in result.stderr


def test_a_second_build_compiles_nothing(sdist, wheel):
    objects = {path: path.stat().st_mtime_ns for path in sdist.rglob("*.o")}
    assert objects
    assert setup(sdist, "build_ext").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in sdist.rglob("*.o")} == objects


def test_the_changelog_knows_this_version():
    assert f"\n## {md.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_torch_is_one_version_on_linux():
    wanted = [line for line in PROJECT["dependency-groups"]["peers"] if line.startswith("torch") and "linux" in line]
    assert len(wanted) == 1
    assert wanted[0].startswith("torch==")


def test_the_shell_scripts_are_sound_shell():
    for name in ("tools/prepare", "tools/sanitized", ".ci/run"):
        path = ROOT / name
        assert os.access(path, os.X_OK), name
        assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0, name


def test_make_help_names_every_target_that_the_house_wants():
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "bench", "lint", "asan", "tsan", "docs"):
        assert re.search(rf"\b{target}\b", text), target
