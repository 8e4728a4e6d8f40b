"""The compilers of kernels, for the tests of the shim: each test runs with the clang of PATH and with ziglang's."""

import sys

import kernel_images
import pytest
from shim_images import Shim

from metal_dlpack.msl import compiler


@pytest.fixture(scope="session")
def shim_cache(tmp_path_factory):
    """One cache for the session: a precompiled header takes seconds."""
    return tmp_path_factory.mktemp("shim") / "kernels"


@pytest.fixture(scope="module", params=["clang", "ziglang"])
def shim(request, shim_cache, tmp_path_factory):
    if sys.platform == "darwin":
        pytest.skip("Metal compiles kernels on a Mac")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTMETAL_CACHE", str(shim_cache))
        patch.setenv("SOFTMETAL_CXX", kernel_images.command_of(request.param))
        yield Shim(compiler.find(), tmp_path_factory.mktemp("images"))
