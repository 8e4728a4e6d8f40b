"""Buffer.from_iosurface: on a Mac the surface's own memory, elsewhere one clear sentence."""

import ctypes
from ctypes import byref, c_int, c_int32, c_long, c_size_t, c_uint32, c_void_p
from functools import cache

import pytest

import metal_dlpack as md

# ---- IOSurfaces and pixel buffers ----

FRAMEWORKS = "/System/Library/Frameworks"
NUMBER_INT = 9  # SPEC CFNumber.h kCFNumberIntType
BGRA = int.from_bytes(b"BGRA", "big")


@cache
def load(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(f"{FRAMEWORKS}/{name}.framework/{name}")
    for function, result, arguments in DECLARED[name]:
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library


DECLARED = {
    "CoreFoundation": [
        ("CFDictionaryCreateMutable", c_void_p, [c_void_p, c_long, c_void_p, c_void_p]),
        ("CFDictionarySetValue", None, [c_void_p, c_void_p, c_void_p]),
        ("CFNumberCreate", c_void_p, [c_void_p, c_long, c_void_p]),
        ("CFRelease", None, [c_void_p]),
        ("CFGetRetainCount", c_long, [c_void_p]),
    ],
    "IOSurface": [
        ("IOSurfaceCreate", c_void_p, [c_void_p]),
        ("IOSurfaceGetBaseAddress", c_void_p, [c_void_p]),
        ("IOSurfaceGetAllocSize", c_size_t, [c_void_p]),
        ("IOSurfaceGetUseCount", c_int32, [c_void_p]),
        ("IOSurfaceLock", c_int, [c_void_p, c_uint32, c_void_p]),
        ("IOSurfaceUnlock", c_int, [c_void_p, c_uint32, c_void_p]),
    ],
    "CoreVideo": [
        ("CVPixelBufferCreate", c_int, [c_void_p, c_size_t, c_size_t, c_uint32, c_void_p, c_void_p]),
        ("CVPixelBufferGetIOSurface", c_void_p, [c_void_p]),
    ],
}


def dictionary(pairs: dict[int, int]) -> int:
    """A CFDictionary of objects, +1."""
    core = load("CoreFoundation")
    keys = ctypes.addressof(ctypes.c_char.in_dll(core, "kCFTypeDictionaryKeyCallBacks"))
    values = ctypes.addressof(ctypes.c_char.in_dll(core, "kCFTypeDictionaryValueCallBacks"))
    made = core.CFDictionaryCreateMutable(None, 0, keys, values)
    for key, value in pairs.items():
        core.CFDictionarySetValue(made, key, value)
    return made


def constant(framework: str, name: str) -> int:
    return c_void_p.in_dll(load(framework), name).value


def make_surface(width: int, height: int, element: int = 4) -> int:
    """An IOSurfaceRef, +1."""
    core = load("CoreFoundation")
    facts = {"kIOSurfaceWidth": width, "kIOSurfaceHeight": height, "kIOSurfaceBytesPerElement": element}
    numbers = {
        constant("IOSurface", name): core.CFNumberCreate(None, NUMBER_INT, byref(c_int(value)))
        for name, value in facts.items()
    }
    return load("IOSurface").IOSurfaceCreate(dictionary(numbers))


def make_pixel_buffer(width: int, height: int, *, in_surface: bool) -> int:
    """A CVPixelBufferRef, +1."""
    wanted = {constant("CoreVideo", "kCVPixelBufferIOSurfacePropertiesKey"): dictionary({})} if in_surface else {}
    made = c_void_p()
    code = load("CoreVideo").CVPixelBufferCreate(None, width, height, BGRA, dictionary(wanted), byref(made))
    assert code == 0, code
    return made.value


# ---- the tests ----


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("handle", [0, 1, 8, 0x1000, 2**64 - 8])
def test_without_macos_it_says_so_and_follows_no_address(handle):
    with pytest.raises(NotImplementedError, match=r"^Buffer.from_iosurface: IOSurface is part of macOS"):
        md.Buffer.from_iosurface(handle, device="metal:0")


class PixelBuffer:
    """An object of PyObjC says its address so."""

    def __init__(self, address):
        self.address = address

    def __c_void_p__(self):
        return c_void_p(self.address)


@pytest.mark.needs_softmetal
def test_an_object_of_pyobjc_is_asked_for_its_address():
    with pytest.raises(NotImplementedError, match=r"^Buffer.from_iosurface: IOSurface is part of macOS"):
        md.Buffer.from_iosurface(PixelBuffer(4096))


@pytest.mark.needs_metal
def test_a_surface_is_shared_and_kept_in_use():
    surface = make_surface(256, 128)
    io, core = load("IOSurface"), load("CoreFoundation")
    counts = core.CFGetRetainCount(surface), io.IOSurfaceGetUseCount(surface)
    buffer = md.Buffer.from_iosurface(surface)
    assert buffer.size == io.IOSurfaceGetAllocSize(surface)
    assert buffer.storage == "shared"
    assert io.IOSurfaceGetUseCount(surface) == counts[1] + 1
    array = buffer.array((128, 256, 4), "uint8")
    assert io.IOSurfaceLock(surface, 0, None) == 0
    array[3, 5, 1] = 77
    address = io.IOSurfaceGetBaseAddress(surface)
    assert address == buffer.address
    assert ctypes.string_at(address + (3 * 256 + 5) * 4 + 1, 1) == b"\x4d"
    assert io.IOSurfaceUnlock(surface, 0, None) == 0
    del array, buffer
    assert (core.CFGetRetainCount(surface), io.IOSurfaceGetUseCount(surface)) == counts
    core.CFRelease(surface)


@pytest.mark.needs_metal
def test_a_pixel_buffer_stands_for_its_surface():
    pixels = make_pixel_buffer(64, 64, in_surface=True)
    surface = load("CoreVideo").CVPixelBufferGetIOSurface(pixels)
    buffer = md.Buffer.from_iosurface(PixelBuffer(pixels))
    load("CoreFoundation").CFRelease(pixels)
    assert load("IOSurface").IOSurfaceGetUseCount(surface) >= 1  # ours: no pool may take it back
    buffer.fill(7)
    assert set(bytes(memoryview(buffer))) == {7}


@pytest.mark.needs_metal
def test_what_is_no_surface_is_refused():
    plain = make_pixel_buffer(64, 64, in_surface=False)
    word = ctypes.c_uint64(12345)
    for handle in (0, 8, 3, plain, ctypes.addressof(word), md.default_device().handle, 2**64 - 8):
        with pytest.raises(ValueError, match="neither an IOSurface nor a CVPixelBuffer"):
            md.Buffer.from_iosurface(handle)
