"""IOSurfaces and pixel buffers for the tests, made with ctypes; macOS only."""

import ctypes
from ctypes import byref, c_int, c_int32, c_long, c_size_t, c_uint32, c_void_p
from functools import cache

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
