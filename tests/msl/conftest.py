"""The compilers of kernels: each test runs with the first that this machine has, and, marked long, with the other."""

import sys

import kernel_images
import pytest
from shim_images import Shim

from metal_dlpack.msl import compiler


@pytest.fixture(scope="session")
def shim_cache(tmp_path_factory):
    """One cache for the session: a precompiled header takes seconds."""
    return tmp_path_factory.mktemp("shim") / "kernels"


@pytest.fixture(scope="module", params=kernel_images.EACH_COMPILER)
def clang(request, shim_cache):
    if sys.platform == "darwin":
        pytest.skip("Metal compiles kernels on a Mac")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTMETAL_CACHE", str(shim_cache))
        patch.setenv("SOFTMETAL_CXX", kernel_images.command_of(request.param))
        yield compiler.find()


@pytest.fixture(scope="module")
def shim(clang, tmp_path_factory):
    return Shim(clang, tmp_path_factory.mktemp("images"))
