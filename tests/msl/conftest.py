"""The compilers of kernels: each test runs with the first that this machine has, and, marked long, with the other."""

import sys

import kernel_images
import pytest
from shim_images import Shim

from softmetal.msl import compiler


@pytest.fixture(scope="module", params=kernel_images.EACH_COMPILER)
def clang(request):
    if sys.platform == "darwin":
        pytest.skip("Metal compiles kernels on a Mac")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTMETAL_CXX", kernel_images.command_of(request.param))
        yield compiler.find()


@pytest.fixture(scope="module")
def shim(clang):
    return Shim(clang)
