"""Builds metal_example: two C files against metal_dlpack's header and DLPack's.  Nothing is linked."""

from setuptools import Extension, setup
from tvm_ffi.libinfo import find_dlpack_include_path  # the apache-tvm-ffi package carries dlpack.h

import metal_dlpack

setup(
    name="metal_example",
    version="1",
    py_modules=[],
    ext_modules=[
        Extension(
            "metal_example",
            sources=["metal_example.c", "exchange.c"],
            depends=["exchange.h"],
            include_dirs=[metal_dlpack.get_include(), find_dlpack_include_path()],
            extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-Werror"],
        )
    ],
)
