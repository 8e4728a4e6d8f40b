"""The machine, and the module that was built for it."""

import ctypes
import os
import platform

from objc_messages import pool, send

import metal_dlpack as md

from .asking import IS_MAC, call, check, question


def system_number(name: str) -> int | None:
    """A number of sysctl's, for this very process; None if the system does not know it."""
    value, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    where = ctypes.byref(value), ctypes.byref(size)
    done = ctypes.CDLL(None).sysctlbyname(name.encode(), *where, None, ctypes.c_size_t(0))
    return value.value if done == 0 else None


@question("machine", "macOS 14 or later; the page size is 16384 on Apple silicon, 4096 on Intel", needs_mac=True)
def the_machine():
    for command in (["sw_vers"], ["sysctl", "-n", "machdep.cpu.brand_string", "hw.memsize"]):
        print(call(command)[1])
    print(call(["system_profiler", "SPDisplaysDataType", "-detailLevel", "mini"])[1])
    page = os.sysconf("SC_PAGE_SIZE")
    print("page size", page)
    check(int(platform.mac_ver()[0].partition(".")[0]) >= 14, "macOS is older than 14")
    check(page == (16384 if platform.machine() == "arm64" else 4096), "another page size")


@question("Rosetta", "sysctl.proc_translated is 0, or unknown on Intel: this Python is native code", needs_mac=True)
def rosetta():
    translated = system_number("sysctl.proc_translated")
    print("sysctl.proc_translated:", "unknown" if translated is None else translated, platform.machine())
    check(translated in (None, 0), "Rosetta translates this Python: install one for arm64")


@question(
    "module", "links Metal, Foundation, CoreGraphics, CoreVideo and IOSurface; exports _PyInit__core", needs_mac=True
)
def the_module():
    path = md._core.__file__
    used, exported = call(["otool", "-L", path])[1], call(["nm", "-gUj", path])[1]
    print(used, exported, sep="\n")
    for name in ("Metal", "Foundation", "CoreGraphics", "CoreVideo", "IOSurface"):
        check(f"{name}.framework" in used, f"{name} is not linked")
    check(exported.split() == ["_PyInit__core"], "something else is exported")


@question("devices", "the default device is first, and is Apple's")
def devices():
    for device in md.devices():
        memory, maker = ("unified", "discrete"), ("Apple's", "software")
        print(device.name, hex(device.registry_id), memory[not device.has_unified_memory], device.max_buffer_length)
        print(maker[device.is_software])
    check(md.devices()[0] == md.default_device(), "the default device is not the first")
    check(md.default_device().is_software == (not IS_MAC), "the wrong Metal")
    near = md.Buffer(64)
    with pool():
        is_listed = send(near.handle, "device") == md.default_device().handle
    print("a buffer's device is the object of the list:", is_listed)
