"""The Mac itself, the module that was built for it, and what Apple's runtime and tools say of it."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest
from children import run_child
from proof import footprint, leaks_counted, missing_pools, stderr_lines

import metal_dlpack as md

pytestmark = pytest.mark.mac
MODES = ("shared", "managed", "private")


def output_of(*command, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.needs_metal
def test_the_machine_is_one_that_the_package_is_for():
    # A Python that an old SDK built is told 10.16, and so is what it starts.
    system = output_of("sw_vers", SYSTEM_VERSION_COMPAT="0")
    print(system, output_of("system_profiler", "SPDisplaysDataType", "-detailLevel", "mini"))
    assert int(re.search(r"ProductVersion:\s*(\d+)", system)[1]) >= 14
    assert os.sysconf("SC_PAGE_SIZE") == 16384
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    where = ctypes.byref(value), ctypes.byref(size)
    known = ctypes.CDLL(None).sysctlbyname(b"sysctl.proc_translated", *where, None, ctypes.c_size_t(0)) == 0
    assert not (known and value.value), "Rosetta translates this Python: install one for arm64"


@pytest.mark.needs_metal
def test_the_module_links_apple_s_frameworks_and_exports_one_name():
    path = md._core.__file__
    used, exported = output_of("otool", "-L", path), output_of("nm", "-gUj", path)
    print(used, exported)
    for name in ("Metal", "Foundation", "CoreGraphics", "CoreVideo", "IOSurface"):
        assert f"{name}.framework" in used
    assert exported.split() == ["_PyInit__core"]


def test_the_default_device_is_the_first():
    for device in md.devices():
        print(device.name, hex(device.registry_id), device.max_buffer_length, "software" * device.is_software)
    assert md.devices()[0] == md.default_device()


@pytest.mark.needs_metal
def test_the_doctor_finds_nothing_unexpected():
    done = run_child(["-m", "metal_dlpack"])
    print(done.stdout)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs_metal
@pytest.mark.skipif("OBJC_DEBUG_MISSING_POOLS" not in os.environ, reason="tools/on_a_mac.py sets what this needs")
def test_no_object_is_autoreleased_without_a_pool():
    def work():
        for mode in MODES:
            buffer = md.Buffer(4096, storage=mode, label="pools")
            buffer.fill(1)
            buffer.copy_from(b"x" * 4096)
            assert buffer.label == "pools"
            md.Buffer.from_handle(buffer.handle)

    with stderr_lines() as lines:
        for _ in range(50):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert missing_pools(lines) == []


BUFFERS = 3 * 5000
TRIPS = """
import metal_dlpack as md
from proof import footprint

def trips(count):
    for _ in range(count):
        for mode in ("shared", "managed", "private"):
            md.Buffer(65536, storage=mode, label="leaks").fill(1)

trips(200)
before = footprint()
trips(5000)
print("grown by", footprint() - before, "bytes")
"""


@pytest.mark.needs_metal
def test_apple_s_leaks_finds_none_for_each_buffer():
    if shutil.which("leaks") is None:
        pytest.skip("leaks is not there; it is part of Xcode's tools: xcode-select --install")
    told = output_of("leaks", "--quiet", "--atExit", "--", sys.executable, "-c", TRIPS, MallocStackLogging="1",
                     PYTHONPATH=os.pathsep.join(sys.path))  # fmt: skip
    print(*told.splitlines()[-60:], sep="\n")
    assert "grown by" in told, "the child did not come to its end"
    count = leaks_counted(told)
    if count is None:
        pytest.skip("leaks may not look into this Python, which is signed as hardened; Homebrew's and pyenv's are not")
    assert count < BUFFERS / 2, "one for each buffer"


def test_the_footprint_is_a_number_of_bytes():
    assert 2**20 < footprint() < 2**40
