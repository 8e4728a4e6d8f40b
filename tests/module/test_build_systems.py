"""Extension modules by Cython, CMake, scikit-build-core and make with pkg-config: each finds the C API, builds and works.

The examples have one function, `scaled`, written in C and in Cython: the same tests hold for every way to build it.
"""

import gc
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from children import run_child
from extensions import build, build_by_cmake, build_by_make, build_by_pip, copied, load, run, run_cmake, run_demo
from hypothesis import given
from hypothesis import strategies as st
from places import DOCS, EXAMPLES
from recipes import blocks

import metal_dlpack as md
from metal_dlpack.__main__ import main

pytestmark = [pytest.mark.needs_no_sanitizer, pytest.mark.long]

#: Way to build: (example, module, builder, what it needs).
WAYS = {
    "cython": ("cython_extension", "metal_cython", build, pytest.mark.needs_cython),
    "cmake": ("cmake_extension", "metal_scaled", build_by_cmake, pytest.mark.needs_cmake),
    "pip": ("cmake_extension", "metal_scaled", build_by_pip, pytest.mark.needs_scikit_build_core),
    "make": ("cmake_extension", "metal_scaled", build_by_make, pytest.mark.needs_pkgconf),
}


@pytest.fixture(scope="module", params=[pytest.param(way, marks=WAYS[way][3]) for way in WAYS])
def built(request, tmp_path_factory):
    """The folder of demo.py and the module; its name has a space."""
    example, module, builder, _ = WAYS[request.param]
    return builder(example, tmp_path_factory.mktemp(f"by {request.param}")), module


@pytest.fixture(scope="module")
def scaled(built):
    return load(*built).scaled


def test_the_demo_runs(built):
    assert run_demo(built[0]).splitlines() == [
        "Every other item, times ten: [10.0, 30.0]",
        "After work on the GPU: [3.5, 3.5, 3.5, 3.5]",
    ]


@given(
    key=st.builds(slice, st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([1, 2, -1, -3])),
    storage=st.sampled_from(["shared", "managed", "private"]),
    is_readonly=st.booleans(),
)
def test_it_agrees_with_numpy_on_any_vector(scaled, key, storage, is_readonly):
    mirror = np.arange(8, dtype="f4")
    array = md.asarray(mirror, copy=True, storage=storage)[key]
    result = scaled(array.as_readonly() if is_readonly else array, -2.5)
    assert result.tolist() == (mirror[key] * np.float32(-2.5)).tolist()
    assert (result.dtype, result.storage, result.readonly) == (md.float32, md.get_storage_mode(), False)


@pytest.mark.parametrize(
    "make",
    [lambda: [1.0], lambda: md.zeros(3, "float64"), lambda: md.zeros((2, 2)), lambda: md.zeros(()), lambda: None],
)
def test_it_refuses_what_is_no_float32_vector(scaled, live_buffers, make):
    with pytest.raises(TypeError, match=r"an Array is needed|a float32 Array with one axis is needed"):
        scaled(make(), 1.0)


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("storage", ["shared", "managed", "private"])
def test_it_waits_for_the_gpu_s_work_on_any_stream(scaled, settings, live_buffers, storage):
    settings(latency_us=50_000)
    array = md.zeros(1000, storage=storage)
    stream = md.Stream()
    array.fill(3.0, stream=stream)
    assert set(scaled(array, 2.0).tolist()) == {6.0}


def test_it_leaves_nothing_behind(scaled, live_buffers):
    array = md.full(16, 2.0)
    before = sys.getrefcount(array)
    for _ in range(300):
        result = scaled(array, 2.0)
        assert sys.getrefcount(result) == 2
        with pytest.raises(TypeError):
            scaled(None, 1.0)
    gc.collect()
    assert sys.getrefcount(array) == before
    del result
    assert live_buffers() == 1


@pytest.mark.needs_softmetal
def test_without_memory_it_raises_and_leaves_nothing_behind(scaled, settings, live_buffers):
    array = md.full(1 << 16, 2.0, storage="private")
    md.empty_cache()
    for failing in ("buffer@1+", "buffer@2+"):  # the result, then the stage of the private items
        settings(fail=failing)
        with pytest.raises((MemoryError, md.MetalError)):
            scaled(array, 2.0)
        settings(fail=None)
        md.empty_cache()
    gc.collect()
    assert live_buffers() == 1


# ---- where the files are ----


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def test_the_command_line_names_the_same_folders(capsys):
    folders = printed(capsys, "--cmakedir", "--pkgconfigdir")
    assert folders == [md.get_cmake_dir(), md.get_pkgconfig_dir()]
    assert (Path(folders[0]) / "metal_dlpack-config.cmake").is_file()
    assert (Path(folders[1]) / "metal_dlpack.pc").is_file()
    assert printed(capsys, "--version") == [md.__version__]


def test_the_include_flags_compile_a_module(capsys, tmp_path):
    (flags,) = printed(capsys, "--includes")
    (tmp_path / "a.c").write_text("#include <metal_dlpack.h>\nint main(void) { return metal_dlpack_import(); }\n")
    run(tmp_path, "cc", "-fsyntax-only", "-Wall", "-Werror", *shlex.split(flags), "a.c")


#: What docs/c_api.md leaves out: how any extension says which functions it has.
MODULE = """
static PyMethodDef functions[] = {{"first_item", first_item, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)exec}, {0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "mine", .m_methods = functions, .m_slots = slots};
PyMODINIT_FUNC PyInit_mine(void) { return PyModuleDef_Init(&module); }
"""


def test_the_first_example_of_the_guide_works(capsys, tmp_path):
    (text,) = [block.text for block in blocks("docs/c_api.md") if block.language == "c"]
    (tmp_path / "mine.c").write_text(text + MODULE)
    (flags,) = printed(capsys, "--includes")
    kind = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    compiler = ["cc", *kind, "-fPIC", "-Wall", "-Werror", *shlex.split(flags)]
    run(tmp_path, *compiler, "mine.c", "-o", "mine.built.so")
    first_item = load(tmp_path, "mine").first_item
    assert first_item(md.asarray([2.5, 1.0], dtype="float32", storage="private")) == 2.5
    with pytest.raises(TypeError, match="float32 is needed"):
        first_item(md.zeros(3, "int32"))
    with pytest.raises(TypeError, match="Array"):
        first_item(3)


def test_asking_for_a_folder_does_not_import_the_doctor():
    code = "import sys; from metal_dlpack.__main__ import main; main(['--cmakedir']); print(sorted(sys.modules))"
    loaded = run_child(code, check=True).stdout
    assert "metal_dlpack.__main__" in loaded
    assert "metal_dlpack.asking.doctor" not in loaded and "numpy" not in loaded


@pytest.fixture
def moved(tmp_path):
    """The installed files in another place, as an unpacked wheel has them."""
    there = tmp_path / "another place" / "metal_dlpack"
    for name in ("include", "share"):
        shutil.copytree(Path(md.get_include()).parent / name, there / name)
    return there


QUESTION = """
cmake_minimum_required(VERSION 3.26)
project(question LANGUAGES C)
set(metal_dlpack_ROOT "{root}")
find_package(metal_dlpack {asked} CONFIG {required})
find_package(metal_dlpack {asked} CONFIG {required})
if(metal_dlpack_FOUND)
  get_target_property(include metal_dlpack::headers INTERFACE_INCLUDE_DIRECTORIES)
  message(STATUS "found ${{metal_dlpack_VERSION}} in <${{include}}>")
endif()
"""


@pytest.mark.needs_cmake
def test_cmake_finds_the_headers_wherever_they_are(moved, tmp_path):
    text = QUESTION.format(root=moved / "share" / "cmake" / "metal_dlpack", asked="", required="REQUIRED")
    (tmp_path / "CMakeLists.txt").write_text(text)
    said = run_cmake(tmp_path, "-S", ".", "-B", "build", "-G", "Ninja")
    assert f"found {md.__version__} in <{moved / 'include'}>" in said


@pytest.mark.needs_cmake
@pytest.mark.parametrize(
    "asked, is_found",
    [
        ("0.1", True),
        (md.__version__, True),
        (f"{md.__version__} EXACT", True),
        ("0.0.9", True),
        ("0.0.9 EXACT", False),
        ("0.1.1", False),
        ("1", False),
        ("0.0.1...0.1.0", True),
        ("0.0.1...<0.1.0", False),
        ("0.0.1...0.0.9", False),
        ("0.1...<1", True),
        ("0.2...2", False),
    ],
)
def test_cmake_takes_the_versions_that_this_one_serves(tmp_path, asked, is_found):
    (tmp_path / "CMakeLists.txt").write_text(QUESTION.format(root=md.get_cmake_dir(), asked=asked, required=""))
    said = run_cmake(tmp_path, "-S", ".", "-B", "build", "-G", "Ninja")
    assert (f"found {md.__version__}" in said) == is_found


@pytest.mark.needs_pkgconf
def test_pkg_config_finds_the_headers_wherever_they_are(moved, tmp_path):
    tool = [sys.executable, "-m", "pkgconf"]
    where = {"PKG_CONFIG_PATH": str(moved / "share" / "pkgconfig")}
    (flag,) = shlex.split(run(tmp_path, *tool, "--cflags", "metal_dlpack", **where))
    assert Path(flag.removeprefix("-I")).resolve() == moved / "include"
    assert run(tmp_path, *tool, "--modversion", "metal_dlpack", **where).strip() == md.__version__
    assert run(tmp_path, *tool, "--libs", "metal_dlpack", **where).strip() == ""


# ---- what docs/c_api.md shows ----

GUIDE = (DOCS / "c_api.md").read_text()


def shown(language, words):
    (block,) = [block for block in re.findall(rf"```{language}\n(.*?)```", GUIDE, re.S) if words in block]
    return block


@pytest.mark.needs_cython
def test_the_guide_s_cython_module_works(tmp_path):
    there = build_text(tmp_path, "mine", shown("cython", "cimport"))
    assert load(there, "mine").count_items(md.zeros((2, 3))) == 6
    with pytest.raises(TypeError, match="an Array is needed"):
        load(there, "mine").count_items(3)


def build_text(folder, module, text):
    """The Cython example with another text."""
    there = copied("cython_extension", folder)
    (there / "metal_cython.pyx").unlink()
    (there / f"{module}.pyx").write_text("# cython: language_level=3\n" + text)
    setup = (there / "setup.py").read_text().replace("metal_cython", module)
    (there / "setup.py").write_text(setup)
    run(there, sys.executable, "setup.py", "-q", "build_ext", "--inplace")
    return there


def test_the_guide_s_cmake_is_the_example_s():
    example = (EXAMPLES / "cmake_extension" / "CMakeLists.txt").read_text().replace("metal_scaled", "mine")
    for line in shown("cmake", "metal_dlpack::headers").splitlines():
        assert line.partition("#")[0].strip() in example, line


@pytest.mark.needs_pkgconf
def test_the_guide_s_shell_lines_compile_the_example(tmp_path):
    there = copied("cmake_extension", tmp_path)
    lines = shown("sh", "PKG_CONFIG_PATH").replace("...", "metal_scaled.c -o made.so")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, command in {"python": "", "pkg-config": "-m pkgconf"}.items():
        tool = tools / name
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
        tool.chmod(0o755)
    if sys.platform == "darwin":
        lines = lines.replace("-shared", "-bundle -undefined dynamic_lookup")
    run(there, "sh", "-e", "-c", lines, PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert (there / "made.so").is_file()


@pytest.mark.needs_tvm
def test_the_guide_s_way_to_dlpack_h_leads_there(tmp_path):
    (options,) = re.findall(r"`python (-m tvm_ffi\.config .*?)`", GUIDE)
    folder = run(tmp_path, sys.executable, *options.split()).strip()
    assert "DLPackExchangeAPI" in (Path(folder) / "dlpack" / "dlpack.h").read_text()
