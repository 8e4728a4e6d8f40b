"""Run in a child: kDLMetal tensors whose data is anything but an id<MTLBuffer>.  `python -m hostile.handles`."""

import ctypes
import os
import random

from objc_messages import libobjc, pool, send

import metal_dlpack as md
from hostile import tensors
from hostile.tensors import FAULTING, Tensor, libc

HAS_ASAN = "address" in os.environ.get("METAL_DLPACK_SANITIZE", "")


def freed_object():
    """The address of an MTLBuffer that is no more."""
    near = md.Buffer(4)
    with pool():
        handle = send(send(near.handle, "device"), "newBufferWithLength:options:", 64, 0)
    send(handle, "release", result=None)
    return handle


def addresses():
    yield from (
        1,
        2,
        8,
        15,
        16,
        17,
        4095,
        4096,
        2**31,
        2**32,
        2**46,
        2**47 - 16,
        2**47,
        2**48,
        2**63,
        2**64 - 16,
        2**64 - 1,
    )
    page = tensors.map_pages(2)
    libc.mprotect(page + tensors.PAGE, tensors.PAGE, tensors.PROT_NONE)
    yield from (FAULTING, FAULTING + 8, page, page + 16, page + 1, page + tensors.PAGE - 8, page + tensors.PAGE - 16)
    block = ctypes.create_string_buffer(256)
    yield from range(ctypes.addressof(block), ctypes.addressof(block) + 32, 4)
    for pointed in (FAULTING, page, 1, 2**63, ctypes.addressof(block), id(md)):  # a wild isa
        ctypes.c_uint64.from_address(page + 256).value = pointed
        yield page + 256
    yield from (id(md), id(Tensor), ctypes.cast(libc.malloc, ctypes.c_void_p).value)
    yield md.default_device().handle
    yield md.default_device().default_stream.handle
    yield from (libobjc.objc_getClass(name) for name in (b"NSObject", b"NSString", b"NSAutoreleasePool"))
    buffer = md.Buffer(4096)  # lives while its neighbourhood is tried
    yield from (buffer.address, buffer.handle + 8, buffer.handle + 16)
    if not HAS_ASAN:  # which sees that freed memory is looked at, as it must be here
        yield freed_object()
    chooser = random.Random(5)
    yield from (chooser.getrandbits(47) for _ in range(100))
    yield from (FAULTING + 16 * chooser.getrandbits(12) for _ in range(100))


def is_shadow(address):
    """AddressSanitizer's own notes on memory: readable, but not by code that it instruments."""
    return HAS_ASAN and 0x7FFF8000 <= address < 0x10007FFF8000


def run():
    count = 0
    for data in addresses():
        if is_shadow(data):
            continue
        for versioned in (False, True):
            print(hex(data), flush=True)
            tensor = Tensor(versioned=versioned, data=data, device=(8, 0))
            capsule = tensor.capsule()
            try:
                md.from_dlpack(capsule)
            except BufferError as error:
                assert "is not an id<MTLBuffer>; a host pointer belongs in a kDLCPU tensor" in str(error), error
            else:
                raise AssertionError(hex(data))
            assert tensor.deletions == 0
            tensor.free()
            count += 1
    print(f"DONE {count} 0", flush=True)


if __name__ == "__main__":
    run()
