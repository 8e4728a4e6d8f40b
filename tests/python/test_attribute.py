"""An attribute is there, is missing, or raises: and then the caller gets what it raised, at every door."""

import pytest

import metal_dlpack as md
from metal_dlpack import _core


class RaisedError(Exception):
    """What no library raises."""


def raising(name, error, base=object):
    """An object whose attribute of this name raises, of a type made from `base`; if that is type, the type's does."""

    def ask(_self):
        raise error

    hostile = type("Hostile", (base,), {name: property(ask)})
    return hostile("Hostile", (), {})() if base is type else hostile()


class Table:
    """A module with from_dlpack whose Tensor raises."""

    def __init__(self, error):
        self.error = error

    def from_dlpack(self, x):
        return "taken"

    @property
    def Tensor(self):
        raise self.error


#: Door: (the call, what it raises where the attribute is missing; None where it works then).
DOORS = {
    "Buffer.from_handle": (lambda e: md.Buffer.from_handle(raising("__c_void_p__", e)), TypeError),
    "Stream.from_handle": (lambda e: md.Stream.from_handle(raising("__c_void_p__", e)), TypeError),
    "Event.from_handle": (lambda e: md.Event.from_handle(raising("__c_void_p__", e), 0), TypeError),
    "Array.to": (lambda e: md.zeros(1).to(raising("from_dlpack", e)), TypeError),
    "Array.to, Tensor": (lambda e: md.zeros(1).to(Table(e)), None),
    "from_dlpack": (lambda e: md.from_dlpack(raising("__dlpack__", e, type)), AttributeError),
    "from_dlpack, table": (lambda e: md.from_dlpack(raising("__dlpack_c_exchange_api__", e, type)), AttributeError),
    "from_dlpack, stream": (lambda e: md.from_dlpack(raising("__metal_stream__", e, type)), AttributeError),
    "Buffer.from_host": (lambda e: md.Buffer.from_host(raising("__dlpack__", e, type)), TypeError),
    "asarray": (lambda e: md.asarray(raising("__dlpack__", e, type)), TypeError),
    "asarray, buffer": (lambda e: md.asarray(raising("dtype", e, bytearray)), None),
    "asarray, interface": (lambda e: md.asarray(raising("__array_interface__", e)), TypeError),
    "asarray, array": (lambda e: md.asarray(raising("__array__", e)), TypeError),
    "shares_memory": (lambda e: md.shares_memory(md.zeros(1), raising("__array_interface__", e)), TypeError),
    "shares_memory, tensor": (lambda e: md.shares_memory(md.zeros(1), raising("__dlpack__", e, type)), TypeError),
    "Stream.wait": (lambda e: md.Stream().wait(raising("__metal_stream__", e)), TypeError),
}


#: What these ask is more than the object's protocol promises: an error of its own is passed over.
HINTS = {"asarray, buffer"}


def test_what_an_attribute_raises_comes_out(subtests):
    for door, (call, _) in DOORS.items():
        for error in (RaisedError, KeyboardInterrupt, MemoryError):
            if door in HINTS and error is RaisedError:
                call(error())
                continue
            with subtests.test(door, error=error), pytest.raises(error):
                call(error())


def test_an_attribute_error_means_that_there_is_none(subtests):
    for door, (call, refusal) in DOORS.items():
        with subtests.test(door):
            if refusal is None:
                call(AttributeError())
                continue
            with pytest.raises(refusal, match=r"^(?!not ours)"):
                call(AttributeError("not ours"))


class Tensor:
    """A producer on Metal, of a type that a hook can be registered for."""

    def __dlpack__(self, **keywords):
        return md.zeros(1).__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (8, 0)


def test_a_hook_may_answer_with_a_hostile_object():
    md.register_sync(Tensor, lambda tensor: raising("__metal_stream__", RaisedError()))
    try:
        with pytest.raises(RaisedError):
            md.from_dlpack(Tensor())
    finally:
        md.register_sync(Tensor, None)


def test_a_type_that_is_forgotten_while_it_is_asked_may_raise_when_it_is_looked_up_again():
    asked = []

    def metal_stream(_kind):
        raise RaisedError if asked else AttributeError

    def device(_self):
        asked.append("device")
        _core._forget_types()
        return (8, 0)

    kind = type("Kind", (type,), {"__metal_stream__": property(metal_stream)})
    tensor = kind("Hostile", (Tensor,), {"__dlpack_device__": device})()
    with pytest.raises(RaisedError):
        md.from_dlpack(tensor)


def without_module(name, module=None):
    """A type of code that has no __name__, as exec() may run it, and that has memory; or one whose module is no text."""
    if module is not None:
        return type(name, (), {"__module__": module})
    names = {"name": name}
    exec("kind = type(name, (bytearray,), {})", names)
    kind = names["kind"]
    with pytest.raises(AttributeError):
        _ = kind.__module__
    return kind


@pytest.mark.parametrize("module", [None, 5, b"torch"])
def test_a_type_need_not_say_where_it_is_from(module):
    kind = without_module("SharedMemory", module)
    x = kind() if module else kind(11)
    with pytest.raises(AttributeError, match="from_dlpack: SharedMemory has no __dlpack__"):
        md.from_dlpack(x)
    for refused in (
        lambda: md.dtype(kind),
        lambda: md.dtype(x),
        lambda: md.zeros(1).to(x),
        lambda: md.zeros(1).to(kind),
    ):
        with pytest.raises(TypeError, match=r"dtype|Array\.to"):
            refused()
    if module is None:
        assert md.asarray(x).tolist() == [0] * 11
        assert md.shares_memory(x, md.asarray(x))
    assert "SharedMemory" in str(md.explain(x))
