"""The package as others install it: what is in it, what its build says, what it needs."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import dist
import pytest
from checkouts import checkout, setup
from children import output_of, run_child
from places import PACKAGES, ROOT, sources_of_a_mac

import dlpack_conformance
import metal_dlpack as md

pytestmark = pytest.mark.needs_no_sanitizer

#: What the compiler makes of the files is not asked here.
QUICK_BUILD = {"METAL_DLPACK_WERROR": "1", "METAL_DLPACK_LTO": "0", "CFLAGS": "-O1 -g"}
#: What tools leave in a checkout that somebody works in.
LEFT_BY_TOOLS = (
    "python/metal_dlpack/__pycache__/doctor.cpython-311.pyc",
    "python/metal_dlpack/_core.abi3.so",
    "src/array/array.o",
    "examples/c_extension/build/temp/shared.o.d",
    "docs/.DS_Store",
    "docs/inside/protocol.md",
    "docs/inside/costs.svg",
    "build/reference.md",
    "dist/metal_dlpack-0.0.1.tar.gz",
    ".venv/pyvenv.cfg",
    ".hypothesis/examples",
    "on_a_mac.txt",
)


#: What lies beside the package; on a Mac Python has nothing to read when it starts.
BESIDE_IT = {path.name for path in PACKAGES.glob("*.py" if sys.platform == "darwin" else "*.p[ty]*")}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = checkout(tmp_path_factory.mktemp("sdist"))
    for name in LEFT_BY_TOOLS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    result = setup(folder, "sdist", "--dist-dir", "out")
    assert result.returncode == 0, result.stderr
    (archive,) = (folder / "out").glob("*.tar.gz")
    (folder / "unpacked").mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", folder / "unpacked"], check=True)
    (top,) = (folder / "unpacked").iterdir()
    return top


@pytest.fixture(scope="module")
def wheel(sdist):
    """Built from the source distribution: what is missing there is missing here."""
    result = setup(sdist, "bdist_wheel", "--dist-dir", "out", **QUICK_BUILD)
    assert result.returncode == 0, result.stderr
    (archive,) = (sdist / "out").glob("*.whl")
    return archive


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only a clone knows which files are its own")
@pytest.mark.long
def test_a_source_distribution_has_what_git_has_and_nothing_else(sdist):
    (archive,) = (sdist.parents[1] / "out").glob("*.tar.gz")
    dist.check_sdist(archive)


@pytest.mark.long
def test_a_wheel_has_the_package_its_plugins_and_the_licence(sdist, wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    installed = {name for name in names if ".dist-info/" not in name}
    ours = [path for name in ("metal_dlpack", "softmetal") for path in (sdist / "python" / name).rglob("*.*")]
    package = {str(path.relative_to(sdist / "python")) for path in ours}
    package.add("softmetal/msl/empty-headers/metal_stdlib")
    package = {name for name in package if (PACKAGES / name).is_file() and "/." not in name}
    assert {
        "metal_dlpack/_core.pyi",
        "metal_dlpack/py.typed",
        "metal_dlpack/__init__.pxd",
        "metal_dlpack/include/metal_dlpack.h",
        "softmetal/msl/headers.json",
        "metal_dlpack/share/cmake/metal_dlpack/metal_dlpack-config.cmake",
        "metal_dlpack/share/pkgconfig/metal_dlpack.pc",
    } <= package
    (module,) = installed - package - BESIDE_IT
    assert re.fullmatch(r"metal_dlpack/_core\..*\.so", module)
    assert package - installed == set()
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has its own mps")
@pytest.mark.long
def test_of_an_editable_install_python_reads_the_same_when_it_starts(sdist, wheel, tmp_path):
    folder = shutil.copytree(sdist, tmp_path / "checkout")  # with what the wheel's build has compiled
    result = setup(folder, "editable_wheel", "--dist-dir", "out", **QUICK_BUILD)
    assert result.returncode == 0, result.stderr
    (editable,) = (folder / "out").glob("*.editable-*.whl")
    texts = [zipfile.ZipFile(archive).read("metal_dlpack.pth") for archive in (wheel, editable)]
    assert texts == [(PACKAGES / "metal_dlpack.pth").read_bytes()] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="on a Mac the object files keep the debug information")
@pytest.mark.long
def test_a_wheel_is_stripped_and_keeps_the_names_of_functions(sdist, wheel, tmp_path):
    elffile = pytest.importorskip("elftools.elf.elffile", reason="pyelftools reads the module")
    dist.check_stripped(wheel)
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (shipped,) = (tmp_path / "metal_dlpack").glob("_core*.so")
    (built,) = (sdist / "build").glob("lib*/metal_dlpack/_core*.so")
    with shipped.open("rb") as stripped:
        assert elffile.ELFFile(stripped).get_section_by_name(".symtab").get_symbol_by_name("storage_new")
    assert ".debug_info" in dist.left_for_a_debugger(built.read_bytes()), "a debugger wants that of a build in place"
    subprocess.run(["strip", "--strip-debug", built, "-o", tmp_path / "half.so"], check=True)
    with zipfile.ZipFile(tmp_path / "half.whl", "w") as half:
        half.write(tmp_path / "half.so", "half.so")
    with pytest.raises(SystemExit, match=r"half\.so of half\.whl was not stripped: .* such as [A-Za-z_]"):
        dist.check_stripped(tmp_path / "half.whl")
    assert wheel.stat().st_size < 1_000_000


#: The test of a user who has unpacked the wheel: pytest finds its plugin there.
UNPACKED = """
from pathlib import Path
import dlpack_conformance
import metal_dlpack as md

def test_it(metal, tmp_path):
    assert md.__file__.startswith({site!r})
    assert md.full(3, 2.0).tolist() == [2.0] * 3
    assert (Path(md.get_include()) / "metal_dlpack.h").is_file()
"""


@pytest.mark.long
def test_a_wheel_works_where_it_is_unpacked(wheel, tmp_path):
    site = str(tmp_path / "site")
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "test_it.py").write_text(UNPACKED.format(site=site))
    first = "import metal_dlpack, pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    said = output_of(first, "-q", "-p", "no:cacheprovider", "test_it.py", cwd=tmp_path, PYTHONPATH=site)
    assert "1 passed" in said
    assert "warning" not in said


@pytest.mark.skipif(sys.platform == "darwin", reason="the probe differs")
@pytest.mark.long
@pytest.mark.parametrize(("compiles", "packages"), [(True, "gobjc"), (False, "gcc gobjc")])
def test_a_compiler_that_is_missing_is_one_clear_line(compiles, packages, tmp_path):
    half = tmp_path / "half-a-compiler"
    half.write_text(f'#!/bin/sh\ncase "$*" in *.m*) exit 1 ;; esac\n{"exec cc" if compiles else "false"} "$@"\n')
    half.chmod(0o755)
    result = setup(checkout(tmp_path), "build_ext", CC=str(half))
    assert result.returncode != 0
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("metal_dlpack: ")]
    assert line.endswith(f" apt-get install {packages}")
    assert "Traceback" not in result.stderr


@pytest.mark.long
def test_a_second_build_compiles_nothing(sdist, wheel):
    objects = {path: path.stat().st_mtime_ns for path in sdist.rglob("*.o")}
    assert objects
    assert setup(sdist, "build_ext", **QUICK_BUILD).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in sdist.rglob("*.o")} == objects


@pytest.mark.long
def test_a_module_that_is_gone_is_not_in_the_next_wheel(sdist, wheel):
    """`pip install .` after an update builds in the folder that the last one has left."""
    (built,) = (sdist / "build").glob("lib*/metal_dlpack")
    for name in ("gone.py", "files/gone.py", "include/gone.h"):
        (built / name).touch()
    assert setup(sdist, "bdist_wheel", "--dist-dir", "again", **QUICK_BUILD).returncode == 0
    (archive,) = (sdist / "again").glob("*.whl")
    assert set(zipfile.ZipFile(archive).namelist()) == set(zipfile.ZipFile(wheel).namelist())


#: Stands for Apple's clang: writes down how it is called.
RECORDER = """#!/bin/sh
printf '%s\\n' "$MACOSX_DEPLOYMENT_TARGET" "$@" > {log}/call.$$
while [ $# -gt 1 ]; do
    [ "$1" = -o ] && : > "$2"
    shift
done
"""

ON_A_MAC = """
import runpy, sys
import setuptools.command.build_ext  # as this machine has it
sys.platform = "darwin"
sys.argv = ["setup.py", "-q", "build_ext", "--build-lib", "lib", "--build-temp", "temp"]
runpy.run_path("setup.py", run_name="__main__")
"""


def calls_on_a_mac(folder, **environment):
    """How setup.py calls the compiler and the linker where the platform is a Mac's: (deployment target, arguments)."""
    log, compiler = folder / "calls", folder / "cc"
    log.mkdir()
    compiler.write_text(RECORDER.format(log=log))
    compiler.chmod(0o755)
    given = {"CC": str(compiler), "LDSHARED": f"{compiler} -bundle", "CFLAGS": "", **environment}
    run_child(ON_A_MAC, cwd=checkout(folder), check=True, **given)
    calls = [path.read_text().splitlines() for path in log.iterdir()]
    return [(target, arguments) for target, *arguments in calls]


@pytest.mark.long
def test_on_a_mac_every_file_is_compiled_for_metal_and_linked_with_it(tmp_path):
    calls = calls_on_a_mac(tmp_path)
    compiled = {call[call.index("-c") + 1]: call for _, call in calls if "-c" in call}
    for question in [source for source in compiled if not source.startswith("src/")]:
        del compiled[question]  # setup.py's own
    assert set(compiled) == {str(path.relative_to(ROOT)) for path in sources_of_a_mac()}
    for source, call in compiled.items():
        assert ("-fno-objc-arc" in call) == source.endswith(".m"), source
        assert "-Isrc/softmetal" not in call, source
        assert {"-std=gnu11", "-fvisibility=hidden"} <= set(call)
    (linked,) = [call for _, call in calls if "-bundle" in call]
    frameworks = {name for flag, name in itertools.pairwise(linked) if flag == "-framework"}
    assert {"Metal", "Foundation", "CoreGraphics"} <= frameworks
    assert {"-lobjc", "-Wl,-exported_symbol,_PyInit__core"} <= set(linked)
    assert not any("version-script" in argument or argument in {"-ldl", "-flto=auto"} for argument in linked)
    assert {target for target, _ in calls} == {"14.0"}


#: What a Mac has of softmetal: its face, and what runs a program.
SOFTMETAL_ON_A_MAC = {
    "__init__.py",
    "__main__.py",
    "controls.py",
    "py.typed",
    "running/__init__.py",
    "running/program.py",
}

IMPORT_ALL = """
import metal_dlpack, pathlib, pytest, sys
import asyncio, concurrent.futures.thread, ctypes, importlib, multiprocessing, subprocess, urllib.request  # as on Linux
sys.platform = "darwin"
del metal_dlpack._core._stand_in
names = [str(path.relative_to(sys.argv[1]).with_suffix("")).replace("/", ".") for path in pathlib.Path(sys.argv[1]).rglob("*.py")]
for name in names:
    if not name.endswith(("_dask", "__main__")):
        importlib.import_module(name.removesuffix(".__init__"))
print(len(names), metal_dlpack.__file__.startswith(sys.argv[1]))
"""


def test_on_a_mac_the_wheel_has_no_file_that_cannot_run_there(tmp_path):
    folder, lib = checkout(tmp_path), tmp_path / "lib"
    run_child(
        ON_A_MAC.replace('"build_ext"', '"build_py"').replace('"--build-temp", "temp"', ""), cwd=folder, check=True
    )
    shutil.move(folder / "lib", lib)
    files = {path.relative_to(lib).as_posix(): path.stat().st_size for path in lib.rglob("*") if path.is_file()}
    assert {name.removeprefix("softmetal/") for name in files if name.startswith("softmetal/")} == SOFTMETAL_ON_A_MAC
    assert not any(name.endswith((".cpp", ".pth")) for name in files)
    assert sum(files.values()) <= 560_000, "bytes of package files in a Mac's wheel"
    shutil.copy(md._core.__file__, lib / "metal_dlpack")
    said = output_of(IMPORT_ALL, lib, PYTHONPATH=str(lib))
    assert said == f"{sum(name.endswith('.py') for name in files)} True\n"


@pytest.mark.long
@pytest.mark.parametrize("asked, got", [("9", "14.0"), ("15.2", "15.2"), ("", "14.0")])
def test_on_a_mac_nothing_is_built_for_a_macos_that_is_too_old(tmp_path, asked, got):
    """SPEC waitUntilSignaledValue:timeoutMS: is of macOS 12; a wheel must not say that it runs on less."""
    calls = calls_on_a_mac(tmp_path, MACOSX_DEPLOYMENT_TARGET=asked)
    assert {target for target, _ in calls} == {got}


def test_every_file_has_this_version():
    assert f"\n## {md.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {md.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert dlpack_conformance.__version__ == md.__version__
    version = (Path(md.get_cmake_dir()) / "metal_dlpack-config-version.cmake").read_text()
    assert f'set(PACKAGE_VERSION "{md.__version__}")' in version
    assert f"\nVersion: {md.__version__}\n" in (Path(md.get_pkgconfig_dir()) / "metal_dlpack.pc").read_text()


def test_the_shell_scripts_are_sound_shell():
    for name in ("tools/prepare", "tools/sanitized", "tools/arm64", "tools/action", "tools/libobjc_licence", ".ci/run"):
        path = ROOT / name
        assert os.access(path, os.X_OK), name
        shell = "bash" if path.read_text().startswith("#!/usr/bin/env bash") else "sh"
        assert subprocess.run([shell, "-n", str(path)], check=False).returncode == 0, name
