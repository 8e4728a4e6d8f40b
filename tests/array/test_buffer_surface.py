"""Buffer.from_iosurface: on a Mac the surface's own memory, elsewhere one clear sentence."""

import ctypes

import pytest
import surfaces

import metal_dlpack as md


@pytest.mark.needs_softmetal
def test_without_macos_it_says_so():
    with pytest.raises(NotImplementedError, match=r"^Buffer.from_iosurface: IOSurface is part of macOS"):
        md.Buffer.from_iosurface(0x1000)


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("handle", [0, 1, 8, 2**64 - 8])
def test_an_address_is_not_followed_where_there_are_no_surfaces(handle):
    with pytest.raises(NotImplementedError):
        md.Buffer.from_iosurface(handle, device="metal:0")


def test_arguments_are_checked_first():
    with pytest.raises(TypeError, match=r"must be an int .the address of an IOSurfaceRef., not str"):
        md.Buffer.from_iosurface("surface")
    with pytest.raises(OverflowError):
        md.Buffer.from_iosurface(2**64)
    with pytest.raises(TypeError):
        md.Buffer.from_iosurface()
    with pytest.raises((ValueError, TypeError), match="device"):
        md.Buffer.from_iosurface(8, device="metal:99")


@pytest.mark.needs_metal
def test_a_surface_is_shared_and_kept_in_use():
    surface = surfaces.make_surface(256, 128)
    io, core = surfaces.load("IOSurface"), surfaces.load("CoreFoundation")
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
    pixels = surfaces.make_pixel_buffer(64, 64, in_surface=True)
    surface = surfaces.load("CoreVideo").CVPixelBufferGetIOSurface(pixels)
    buffer = md.Buffer.from_iosurface(pixels)
    surfaces.load("CoreFoundation").CFRelease(pixels)
    assert surfaces.load("IOSurface").IOSurfaceGetUseCount(surface) >= 1  # ours: no pool may take it back
    buffer.fill(7)
    assert set(bytes(memoryview(buffer))) == {7}


@pytest.mark.needs_metal
def test_what_is_no_surface_is_refused():
    plain = surfaces.make_pixel_buffer(64, 64, in_surface=False)
    word = ctypes.c_uint64(12345)
    for handle in (0, 8, 3, plain, ctypes.addressof(word), md.default_device().handle, 2**64 - 8):
        with pytest.raises(ValueError, match="neither an IOSurface nor a CVPixelBuffer"):
            md.Buffer.from_iosurface(handle)
