"""The package without an extension module that this Python can load: a checkout before its first build."""

import shutil
import sysconfig

from children import run_child
from places import PACKAGES

THIS = sysconfig.get_config_var("EXT_SUFFIX")
OTHER = "_core.cpython-399-mars.so"


def last_line_of_import(folder):
    done = run_child("import metal_dlpack", cwd=folder.parent)
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_what_is_not_built_built_for_another_python_or_broken_is_told_apart(tmp_path):
    folder = tmp_path / "metal_dlpack"
    folder.mkdir()
    for name in ("__init__.py", "missing_core.py"):  # only what runs before the extension module is asked for
        shutil.copy(PACKAGES / "metal_dlpack" / name, folder)
    said = last_line_of_import(folder)
    assert f"cannot be imported from {folder}: its extension module is not built" in said
    assert "pip install ." in said
    (folder / OTHER).touch()
    assert f"{OTHER} is for another Python than this one ({THIS})" in last_line_of_import(folder)
    (folder / f"_core{THIS}").write_bytes(b"not a library")
    said = last_line_of_import(folder)
    assert f"_core{THIS}" in said, "what the loader says is not hidden"
    assert "pip install" not in said
