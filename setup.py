"""Build metal_dlpack._core: every C file of src/, the bridge, and a Metal to stand on."""

import sys
from glob import glob

from setuptools import Extension, setup


def dlpack_include() -> str:
    from tvm_ffi.libinfo import find_dlpack_include_path

    return find_dlpack_include_path()


def core_extension() -> Extension:
    sources = sorted(glob("src/*.c")) + sorted(glob("src/*.m"))
    include_dirs = ["src", dlpack_include()]
    compile_args = ["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"]
    if sys.platform == "darwin":
        link_args = ["-framework", "Metal", "-framework", "Foundation"]
    else:
        sources += sorted(glob("src/softmetal/*.c")) + sorted(glob("src/softmetal/*.m"))
        include_dirs.append("src/softmetal")
        link_args = ["-lobjc", "-pthread"]
    return Extension(
        "metal_dlpack._core",
        sources=sources,
        include_dirs=include_dirs,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        depends=sorted(glob("src/**/*.h", recursive=True)),
    )


setup(ext_modules=[core_extension()])
