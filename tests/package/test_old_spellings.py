"""What things were called before softmetal and dlpack_conformance had names of their own: it works, and says nothing."""

import pytest
from children import output_of

SILENT = ["-W", "error"]


@pytest.mark.parametrize(
    ("old", "new"), [("metal_dlpack.softmetal", "softmetal"), ("metal_dlpack.counting", "softmetal.counting")]
)
def test_an_old_name_is_the_same_module_however_it_is_imported(old, new):
    package, _, name = old.partition(".")
    code = f"""
        import {old}
        from {package} import {name} as a
        import {old} as b
        import {new} as c
        from {old} import *
        print(a is b is c, {{*c.__all__}} <= {{*dir()}})
    """
    assert output_of(code, options=SILENT) == "True True\n"
    new_first = f"import {new} as c; from {package} import {name} as a; print(a is c)"
    assert output_of(new_first, options=SILENT) == "True\n"


def test_a_program_is_run_by_the_old_name(tmp_path):
    (tmp_path / "beside.py").write_text("print(__name__, __import__('sys').argv[1:])")
    program = [*SILENT, "-m", "metal_dlpack.softmetal", "-m", "beside", "7"]
    assert output_of(program, cwd=tmp_path) == "__main__ ['7']\n"


def test_the_command_finds_modules_in_the_working_folder_as_python_does(tmp_path):
    (tmp_path / "beside.py").write_text("print(__name__, __import__('sys').argv[1:])")
    code = "import sys; sys.argv = ['softmetal', '-m', 'beside', '7']; sys.path[0] = '/usr/bin'\n"
    code += "from softmetal.__main__ import command; sys.exit(command())"
    assert output_of(code, cwd=tmp_path) == "__main__ ['7']\n"
