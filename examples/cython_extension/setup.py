"""Builds metal_cython.  Cython finds metal_dlpack's .pxd file in the installed package."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import metal_dlpack

setup(
    name="metal_cython",
    version="1",
    py_modules=[],
    ext_modules=cythonize([Extension("metal_cython", ["metal_cython.pyx"], include_dirs=[metal_dlpack.get_include()])]),
)
