"""As much of PyObjC's Metal as the questions use, by messages to the software Metal."""

import ctypes

import objc
import stand_in
from objc_messages import Range, pool, send

import metal_dlpack as md


def kept(receiver, selector):
    """The object that a message gives; it is never released."""
    with pool():
        return ctypes.c_void_p(send(send(receiver, selector), "retain"))


class Encoder(objc.objc_object):
    def fillBuffer_range_value_(self, buffer, bounds, value):
        if stand_in.WAY != "copies":
            send(
                self.handle,
                "fillBuffer:range:value:",
                buffer.handle,
                Range(*bounds),
                ctypes.c_uint8(value),
                result=None,
            )

    def endEncoding(self):
        with pool():
            send(self.handle, "endEncoding", result=None)


class Commands(objc.objc_object):
    def blitCommandEncoder(self):
        return Encoder(kept(self.handle, "blitCommandEncoder"))

    def commit(self):
        with pool():
            send(self.handle, "commit", result=None)


class Queue(objc.objc_object):
    def commandBuffer(self):
        return Commands(kept(self.handle, "commandBuffer"))


class Device(objc.objc_object):
    def newCommandQueue(self):
        return Queue(kept(self.handle, "newCommandQueue"))


def MTLCreateSystemDefaultDevice():
    if stand_in.WAY == "refuses":
        raise ValueError("no device")
    return Device(ctypes.c_void_p(md.default_device().handle))
