"""Objective-C messages through ctypes: what a foreign framework does to Metal, beside the bridge.

Works on Apple's runtime and on GNU's.  Every message with objects goes inside `pool()`.
"""

import contextlib
import ctypes
import sys

import metal_dlpack as md

IS_MAC = sys.platform == "darwin"
libobjc = ctypes.CDLL("/usr/lib/libobjc.dylib" if IS_MAC else "libobjc.so.4")
libobjc.sel_registerName.restype = ctypes.c_void_p
libobjc.sel_registerName.argtypes = [ctypes.c_char_p]
libobjc.objc_getClass.restype = ctypes.c_void_p
libobjc.objc_getClass.argtypes = [ctypes.c_char_p]

SHARED, MANAGED, PRIVATE = (mode << 4 for mode in range(3))  # MTLResourceOptions


class Range(ctypes.Structure):
    _fields_ = [("location", ctypes.c_ulong), ("length", ctypes.c_ulong)]


def send(receiver, selector: str, *arguments, result=ctypes.c_void_p):
    """The message's result.  An int is an object or an NSUInteger: both are 64 bits wide."""
    name = libobjc.sel_registerName(selector.encode())
    types = [ctypes.c_uint64 if isinstance(a, int) else type(a) for a in arguments]
    prototype = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_void_p, *types)
    if IS_MAC:
        method = ctypes.cast(libobjc.objc_msgSend, prototype)
    else:
        libobjc.objc_msg_lookup.restype = ctypes.c_void_p
        libobjc.objc_msg_lookup.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        method = prototype(libobjc.objc_msg_lookup(receiver, name))
    return method(receiver, name, *arguments)


@contextlib.contextmanager
def replaced_methods(name: str, selectors):
    """A dict of what setters of one number are told, by selector; GNU's runtime.  What they did is done too."""
    told = {}
    for function in (
        libobjc.class_getInstanceMethod,
        libobjc.method_getImplementation,
        libobjc.method_setImplementation,
    ):
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    libobjc.method_getImplementation.argtypes = [ctypes.c_void_p]
    kind, was = libobjc.objc_getClass(name.encode()), []

    def replace(selector):
        # A BOOL and an NSInteger come in the same register; of a BOOL only the low byte is sure.
        setter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
        method = libobjc.class_getInstanceMethod(kind, libobjc.sel_registerName(selector.encode()))
        before = libobjc.method_getImplementation(method)

        def tell(receiver, name, value):
            told[selector] = value & 0xFF if selector == "setFastMathEnabled:" else value
            setter(before)(receiver, name, value)

        instead = setter(tell)
        libobjc.method_setImplementation(method, ctypes.cast(instead, ctypes.c_void_p))
        was.append((method, before, instead))

    for selector in selectors:
        replace(selector)
    try:
        yield told
    finally:
        for method, before, _ in was:
            libobjc.method_setImplementation(method, before)


@contextlib.contextmanager
def pool():
    made = send(send(libobjc.objc_getClass(b"NSAutoreleasePool"), "alloc"), "init")
    try:
        yield
    finally:
        send(made, "drain", result=None)


@contextlib.contextmanager
def foreign_buffer(nbytes: int, options: int):
    """The handle of a buffer that the package did not make, on the default device."""
    near = md.Buffer(4)
    with pool():
        handle = send(send(near.handle, "device"), "newBufferWithLength:options:", nbytes, options)
    assert handle
    try:
        yield handle
    finally:
        send(handle, "release", result=None)


def encode_fill(commands: int, handle: int, value: int, nbytes: int) -> None:
    """Into a command buffer that the caller commits."""
    with pool():
        encoder = send(commands, "blitCommandEncoder")
        send(encoder, "fillBuffer:range:value:", handle, Range(0, nbytes), ctypes.c_uint8(value), result=None)
        send(encoder, "endEncoding", result=None)


def gpu_fill(handle: int, value: int, nbytes: int, queue: int = 0, waits: bool = True) -> None:
    """What a kernel of another framework would do: the GPU sets the first bytes of a buffer."""
    with pool():
        own = 0 if queue else send(send(handle, "device"), "newCommandQueue")
        commands = send(queue or own, "commandBuffer")
        encode_fill(commands, handle, value, nbytes)
        send(commands, "commit", result=None)
        if waits:
            send(commands, "waitUntilCompleted", result=None)
        if own:
            send(own, "release", result=None)
