"""The compilers of kernels: each test runs with the first that this machine has, and, marked long, with the other."""

import sys

import kernel_images
import pytest
from shim_images import Shim

from softmetal.msl import cache, compiler


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


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The cache's folder to be, and a module that has not been used yet."""
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / "named"))
    monkeypatch.setattr(cache, "_replaced", {})
    monkeypatch.setattr(cache, "_private", None)
    monkeypatch.setattr(cache, "SWEEP_SECONDS", 0)
    yield tmp_path / "named/metal_dlpack/kernels"
    if cache._private:
        cache._remove(*cache._private)
