"""The package without an extension module that this Python can load: a checkout before its first build."""

import shutil
import sysconfig

import pytest
from children import run_child
from places import SRC

THIS = sysconfig.get_config_var("EXT_SUFFIX")
OTHER = "_core.cpython-399-mars.so"


@pytest.fixture
def folder(tmp_path):
    """Only what runs before the extension module is asked for."""
    package = tmp_path / "metal_dlpack"
    package.mkdir()
    for name in ("__init__.py", "missing_core.py"):
        shutil.copy(SRC / "metal_dlpack" / name, package)
    return package


def last_line_of_import(folder):
    done = run_child("import metal_dlpack", cwd=folder.parent)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_a_checkout_that_is_not_built_says_how_to_build_it(folder):
    said = last_line_of_import(folder)
    assert f"cannot be imported from {folder}: its extension module is not built" in said
    assert "pip install ." in said


def test_a_module_for_another_python_is_named(folder):
    (folder / OTHER).touch()
    assert f"{OTHER} is for another Python than this one ({THIS})" in last_line_of_import(folder)


def test_what_the_loader_says_of_a_broken_module_is_not_hidden(folder):
    (folder / f"_core{THIS}").write_bytes(b"not a library")
    said = last_line_of_import(folder)
    assert f"_core{THIS}" in said
    assert "pip install" not in said
