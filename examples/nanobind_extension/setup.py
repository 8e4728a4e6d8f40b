"""Builds metal_nanobind with the nanobind that is installed, without CMake."""

import os
import sys

import nanobind
from setuptools import Extension, setup

import metal_dlpack

NANOBIND = os.path.dirname(nanobind.include_dir())
IS_MAC = sys.platform == "darwin"

setup(
    name="metal_nanobind",
    version="1",
    py_modules=[],
    ext_modules=[
        Extension(
            "metal_nanobind",
            sources=["metal_nanobind.cpp", os.path.join(NANOBIND, "src", "nb_combined.cpp")],
            include_dirs=[
                metal_dlpack.get_include(),
                nanobind.include_dir(),
                os.path.join(NANOBIND, "ext", "robin_map", "include"),
            ],
            # nanobind's own flags: the head of nb_combined.cpp
            define_macros=[("NB_COMPACT_ASSERTIONS", None)],
            extra_compile_args=["-std=c++17", "-fvisibility=hidden", "-fno-strict-aliasing", "-Os", "-g0"],
            extra_link_args=["-Wl,-undefined,dynamic_lookup"] if IS_MAC else [],
            language="c++",
        )
    ],
)
