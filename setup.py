"""Build metal_dlpack._core: every C file of src/, the bridge, and a Metal to stand on.

Environment:
  METAL_DLPACK_WERROR=1     warnings are errors
  METAL_DLPACK_LTO=0        no link-time optimisation: an edit is linked in a second, a call takes a tenth longer
  METAL_DLPACK_SANITIZE=X   build with -fsanitize=X ("address,undefined" or "thread"); build it into a folder of
                            its own, as `make asan` does
  METAL_DLPACK_REPOSITORY=U where the repository is published: the links of the metadata lead there, and there are
                            none where it is not set
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.install_lib import install_lib

IS_MAC = sys.platform == "darwin"
MACOS_TARGET = "14.0"
EXPORTS = "src/module/exports.map"
START = "python/metal_dlpack.pth"
SOFTMETAL = "src/softmetal"
WITHOUT_MAC = "src/without_mac"
#: Where the headers lie that go into the wheel.
HEADERS = "python"

#: Packages and modules for the software Metal alone: of softmetal a Mac has what says so, and runs programs.
NOT_ON_A_MAC = (
    "metal_dlpack.counting",
    "softmetal.counting",
    "softmetal.mlx",
    "softmetal.msl",
    "softmetal.report",
    "softmetal.running.reporting",
    "softmetal.running.standing_in",
    "softmetal.shim",
    "softmetal.torch",
)

OUR_LICENCE = "Apache-2.0"
#: Of a wheel that carries GCC's libobjc: tools/libobjc_licence has put that library's licence beside ours.
LICENCE_WITH_LIBOBJC = f"{OUR_LICENCE} AND GPL-3.0-or-later WITH GCC-exception-3.1"

REPOSITORY = os.environ.get("METAL_DLPACK_REPOSITORY", "").rstrip("/")
PLACEHOLDER = "https://HOST/OWNER/metal_dlpack"  # as README.md has it
#: A link or an image of Markdown that names a file or a heading of the repository.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)\s]+)\)")

#: What gcc gets.  A function begins a line of the cache: else a call takes up to a twentieth longer, by what stands
#: before it.
GCC_FLAGS = ["-flto=auto", "-fno-fat-lto-objects", "-fno-plt", "-falign-functions=64"]

#: What a machine may lack: a probe file, its text, what is missing, and Debian's package.
PROBES = [
    ("probe.c", "int probe(void) { return 1; }\n", "a C compiler", "gcc"),
    ("probe.m", "#import <objc/runtime.h>\n@interface Probe\n@end\n", "an Objective-C compiler", "gobjc"),
]


def dlpack_include() -> str:
    """The apache-tvm-ffi package carries dlpack.h; to import it would import torch, where that is installed."""
    package = find_spec("tvm_ffi")
    if package is None:
        sys.exit("metal_dlpack: dlpack.h is missing. Install the apache-tvm-ffi package.")
    return str(Path(package.origin).parent / "include")


def sanitizer_args() -> list[str]:
    kinds = os.environ.get("METAL_DLPACK_SANITIZE", "")
    if not kinds:
        return []
    return [f"-fsanitize={kinds}", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def compile_args() -> list[str]:
    args = ["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]
    if os.environ.get("METAL_DLPACK_WERROR") == "1":
        args.append("-Werror")
    if sanitizer_args():
        args += [*sanitizer_args(), "-O1", "-g", "-U_FORTIFY_SOURCE"]
    return args


def link_args() -> list[str]:
    if IS_MAC:
        # CoreGraphics is for the default device: see core_graphics_stays in bridge/gpus.m.
        named = ("Metal", "Foundation", "CoreGraphics", "CoreFoundation", "CoreVideo", "IOSurface")
        frameworks = [part for name in named for part in ("-framework", name)]
        return [*sanitizer_args(), *frameworks, "-lobjc", "-Wl,-exported_symbol,_PyInit__core"]
    return [*sanitizer_args(), "-lobjc", "-pthread", "-ldl", "-lrt", f"-Wl,--version-script={EXPORTS}"]


def core_extension() -> Extension:
    """Every file of src/; on a Mac without what stands in for Metal, and without its glue."""
    sources = sorted(glob("src/**/*.[cm]", recursive=True))
    include_dirs = ["src", HEADERS, dlpack_include()]
    if IS_MAC:
        sources = [name for name in sources if not name.startswith((SOFTMETAL, WITHOUT_MAC))]
    else:
        include_dirs.append(SOFTMETAL)  # <Metal/Metal.h>, <Foundation/Foundation.h>
    return Extension(
        "metal_dlpack._core",
        sources=sources,
        include_dirs=include_dirs,
        extra_compile_args=compile_args(),
        extra_link_args=link_args(),
        depends=[
            *sorted(glob("src/**/*.h", recursive=True)),
            *glob(f"{HEADERS}/**/*.h", recursive=True),
            EXPORTS,
            "setup.py",
        ],
        language="c",
    )


class BuildCore(build_ext):
    """build_ext that looks for the compiler first, and compiles on all cores what is out of date."""

    def finalize_options(self) -> None:
        """An editable install finds what `build_ext --inplace` has built, and builds nothing else for it."""
        if self.editable_mode:
            build = self.distribution.get_command_class("build")(self.distribution)
            build.ensure_finalized()
            self.build_lib, self.build_temp = build.build_lib, build.build_temp
        super().finalize_options()

    def build_extensions(self) -> None:
        # ours alone: setuptools calls the compiler's methods through the object
        self.compiler.compile = self.compile_files
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        path = self.get_ext_fullpath(ext.name)
        if self.force or is_older(path, [*ext.sources, *ext.depends]):
            self.check_machine()
            self.optimise_at_link(ext)
        super().build_extension(ext)

    def optimise_at_link(self, ext: Extension) -> None:
        """The files are small and call each other all the time: gcc turns them into one program.

        Measured with gcc alone, benchmarks/bench_exchange.py; other compilers are left as they are.
        """
        if IS_MAC or sanitizer_args() or os.environ.get("METAL_DLPACK_LTO") == "0":
            return
        if self.links_with(GCC_FLAGS):
            ext.extra_compile_args = [*ext.extra_compile_args, *GCC_FLAGS]
            ext.extra_link_args = [*ext.extra_link_args, *GCC_FLAGS]

    def links_with(self, flags: list[str]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("#ifdef __clang__\n#error\n#endif\nint probe(void) { return 1; }\n")
            return runs([*self.compiler.linker_so, *flags, "-fPIC", str(source), "-o", str(source) + ".so"])

    def check_machine(self) -> None:
        """All that is missing is named at once."""
        command = [*self.compiler.compiler_so, *(f"-I{d}" for d in self.compiler.include_dirs)]
        missing = []
        with tempfile.TemporaryDirectory() as folder:
            for name, text, what, package in PROBES:
                source = Path(folder, name)
                source.write_text(text)
                if not runs([*command, "-c", str(source), "-o", str(source) + ".o"]):
                    missing.append((what, package))
        if not any(Path(d, "Python.h").is_file() for d in self.compiler.include_dirs):
            missing.append(("Python.h", "python3-dev"))
        if missing:
            whats, packages = zip(*missing, strict=True)
            way_out = "a Mac: xcode-select --install" if IS_MAC else f"Debian: apt-get install {' '.join(packages)}"
            sys.exit(f"metal_dlpack: missing: {', '.join(whats)} (tried: {command[0]}). Install it, on {way_out}")

    def compile_files(
        self,
        sources,
        output_dir=None,
        macros=None,
        include_dirs=None,
        debug=0,
        extra_preargs=None,
        extra_postargs=None,
        depends=None,
    ):
        compiler = self.compiler
        macros, objects, postargs, pp_opts, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        cc_args = compiler._get_cc_args(pp_opts, debug, extra_preargs)

        def compile_one(item):
            target, (source, extension) = item
            if not self.force and not is_older(target, [source, *depends]):
                return
            extra = ["-fno-objc-arc"] if IS_MAC and extension == ".m" else []
            compiler._compile(target, source, extension, cc_args, [*postargs, *extra], pp_opts)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, build.items()))
        return objects


class BuildPackage(build_py):
    """build_py that leaves out what a Mac cannot run, and forgets what the packages no longer have.

    Else a build of yesterday in build/ goes into the wheel.  Beside the packages goes what Python reads when it
    starts; on a Mac there is nothing to switch on.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if IS_MAC:
            self.packages = [name for name in self.packages if not name.startswith(NOT_ON_A_MAC)]

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [one for one in found if not (IS_MAC and f"{one[0]}.{one[1]}".startswith(NOT_ON_A_MAC))]

    def run(self) -> None:
        super().run()
        if not IS_MAC:
            command = self.get_finalized_command("install") if self.editable_mode else self
            folder = command.install_lib if self.editable_mode else command.build_lib
            self.mkpath(folder)
            self.copy_file(START, str(Path(folder, Path(START).name)))
        if self.editable_mode:
            return
        wanted = {Path(name) for name in self.get_outputs(include_bytecode=False)}
        for package in ("metal_dlpack", "softmetal"):
            for path in Path(self.build_lib, package).rglob("*"):
                if path.is_file() and path.suffix != ".so" and path not in wanted:
                    path.unlink()


class StripModule(install_lib):
    """install_lib that takes the debug information off what goes into a wheel, two thirds of it, and the names of data.

    The names of functions stay, so that a backtrace can be read.  What was built stays as it is, for the debugger.  On
    a Mac the linker has left the debug information with the object files.
    """

    def install(self) -> list[str]:
        installed = super().install()
        for path in installed:
            if path.endswith(".so") and not IS_MAC and not runs(["strip", "--strip-debug", *names_of_data(path), path]):
                self.warn(f"strip does not work: {path} keeps its debug information")
        return installed


def names_of_data(path: str) -> list[str]:
    """What strip takes off: each name that is no function's, of which Objective-C has two thousand, or a part's."""
    try:
        listed = subprocess.run(["nm", "--format=sysv", path], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    rows = [line.split("|") for line in listed.splitlines() if line.count("|") == 6]
    names = (row[0].strip() for row in rows if "FUNC" not in row[3] or ".cold" in row[0])
    return [word for name in names for word in ("-N", name)]


def is_older(path: str, others: list[str]) -> bool:
    if not os.path.exists(path):
        return True
    made = os.path.getmtime(path)
    return any(os.path.getmtime(other) > made for other in others)


def runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def oldest_macos() -> str:
    """What the builder asks for, but never less than the bridge needs: an older macOS would not have its methods."""
    asked = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or MACOS_TARGET
    return max(asked, MACOS_TARGET, key=lambda version: [int(part) for part in version.split(".")])


def links_from_elsewhere(text: str, revision: str) -> str:
    """README.md as the package index shows it: a link into the repository is absolute.

    Where nobody has said where the repository is, its text remains.  In code blocks only its address changes.
    """

    def absolute(match: re.Match) -> str:
        image, words, target = match.groups()
        if not REPOSITORY:
            return words
        page = f"README.md{target}" if target.startswith("#") else target
        return f"{image}[{words}]({REPOSITORY}/{'raw' if image else 'blob'}/{revision}/{page})"

    parts = text.split("```")
    parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
    return "```".join(parts).replace(PLACEHOLDER, REPOSITORY or PLACEHOLDER)


def kit(version: str) -> str:
    """The requirement of the judge, of this version; in a checkout from kit/, since no index may have it yet."""
    is_checkout = not REPOSITORY and not Path("PKG-INFO").exists()
    return f"dlpack-conformance @ {Path('kit').resolve().as_uri()}" if is_checkout else f"dlpack-conformance=={version}"


def facts_of_the_release() -> dict:
    """The part of the metadata that depends on where the repository is published, and on what the wheel will carry."""
    source = Path("python/metal_dlpack/__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)[1]
    revision = f"v{version}"
    pages = {
        "Source": "",
        "Documentation": f"/tree/{revision}/docs",
        "Changelog": f"/blob/{revision}/CHANGELOG.md",
        "Issues": "/issues",
    }
    return {
        "install_requires": [kit(version)],
        "long_description": links_from_elsewhere(Path("README.md").read_text(encoding="utf-8"), revision),
        "long_description_content_type": "text/markdown",
        "license_expression": LICENCE_WITH_LIBOBJC if Path("LICENSE.libobjc").exists() else OUR_LICENCE,
        "project_urls": {name: REPOSITORY + page for name, page in pages.items() if REPOSITORY},
    }


if IS_MAC:
    os.environ["MACOSX_DEPLOYMENT_TARGET"] = oldest_macos()
os.chdir(Path(__file__).resolve().parent)
setup(
    ext_modules=[core_extension()],
    cmdclass={"build_py": BuildPackage, "build_ext": BuildCore, "install_lib": StripModule},
    **facts_of_the_release(),
)
