"""Toy libraries by name, for the kit: "toy_faults:producer_copy_flag" breaks that rule.  Run, it tries many faults."""

import ctypes
import gc
import json
import os
import sys
import time
from contextlib import suppress

from toy_library import Array, Toy, exported, managed_of

from dlpack_conformance import Absent, Library, exchange_table
from dlpack_conformance.items import KINDS
from dlpack_conformance.offers import compact
from dlpack_conformance.taken import shape_of, strides_of


class Hanging(Toy):
    """It never comes back from a tensor with lanes."""

    def check(self, managed, is_versioned):
        while managed.tensor.lanes > 1:
            time.sleep(1)
        super().check(managed, is_versioned)


class Forking(Toy):
    """A process of its own stays behind each import, and has all that the child has open."""

    def from_dlpack(self, producer, **keywords):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        return super().from_dlpack(producer, **keywords)


class Deaf(Hanging):
    """Before that it closes what the child answers by."""

    def check(self, managed, is_versioned):
        if managed.tensor.lanes > 1:
            os.closerange(3, 256)
        super().check(managed, is_versioned)


class Waiting(Toy):
    """It writes its process id into the file TOY_PID, and never comes back."""

    def from_dlpack(self, producer, **keywords):
        with open(os.environ["TOY_PID"], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)


class Empty(Library):
    """It forgot to say how its arrays are made and taken."""


class Unmakeable(Toy):
    def __init__(self):
        raise ZeroDivisionError("by zero")


class Wild(Toy):
    """What its tensors say would lead anywhere; TOY_FIELD is the field and its value."""

    class Array(Array):
        def tensor(self, out=None):
            out = super().tensor(out)
            name, value = json.loads(os.environ["TOY_FIELD"])
            value = tuple(value) if isinstance(value, list) else value
            setattr(out, name, (ctypes.c_int64 * 2)(*value) if name == "shape" and value else value)
            return out


# ---- libraries that do what the standard leaves to them ----


class VersionedOnly(Toy):
    """From March 2025 on a producer may refuse to make unversioned tensors."""

    version_of_tensors = (1, 1)
    has_table = False

    class Array(Array):
        def __dlpack__(self, *, max_version=None, **keywords):
            if max_version is None or max_version[0] < 1:
                raise BufferError("versioned tensors only")
            return super().__dlpack__(max_version=max_version, **keywords)


class Plain(Toy):
    """A producer of 2021: unversioned tensors, no keyword but stream."""

    has_table = False

    class Array(Array):
        def __dlpack__(self, *, stream=None):
            return super().__dlpack__(stream=stream)


class Elsewhere(Toy):
    """Its memory is a device's, and nobody can read it there; the CPU gets copies."""

    has_table = False
    knows_devices = True

    class Array(Array):
        def __dlpack_device__(self):
            return (12, 0)

        def __dlpack__(self, **keywords):
            if "dl_device" in keywords and not self.toy.knows_devices:
                raise TypeError("dl_device")
            if keywords.get("dl_device") == (1, 0):
                if keywords.get("copy") is False:
                    raise BufferError("not without a copy")
                return super().__dlpack__(**keywords | {"copy": True})
            capsule = super().__dlpack__(**keywords)
            tensor = managed_of(capsule).tensor
            tensor.device = (12, 0)
            tensor.data = (tensor.data or 0) | 1 << 63
            return capsule


class Unreadable(Elsewhere):
    """As Elsewhere, older than dl_device."""

    knows_devices = False


class Generous(Toy):
    """Its allocator makes a tensor of any element type."""

    kind_for_others = KINDS["float32"]


class Choosy(Toy):
    """A consumer that refuses a producer whose table has another major version."""

    def table_of(self, producer):
        with suppress(Absent):
            if exchange_table.header_of(type(producer)).version[0] != 1:
                raise BufferError("a later table")
        return super().table_of(producer)


class Later(Toy):
    """Its type offers a table of major version 2 first."""

    has_later_table = True


class Circular(Later):
    """Its chain of tables never ends."""

    def __init__(self):
        super().__init__("producer", "table-chain")


class Bare(Toy):
    """It offers as little as it may, and makes unversioned tensors only."""

    lends = has_read_only = False
    views, read_only, refused, swapped = Library.views, Library.read_only, Library.refused, Library.swapped

    class Array(Array):
        def __dlpack__(self, *, max_version=None, **keywords):
            return super().__dlpack__(**keywords)


class Copying(Toy):
    """A consumer that copies all, and a producer that is asked for no copies."""

    refusal = BufferError

    class Array(Array):
        def __dlpack__(self, *, copy=None, **keywords):
            if copy is not None or self.is_read_only:
                raise self.toy.refusal("not so")
            return super().__dlpack__(**keywords)

    def from_dlpack(self, producer, *, copy=None, **keywords):
        if copy is False:
            raise self.refusal("not so")
        return super().from_dlpack(producer, copy=True, **keywords)


class Rude(Copying):
    """It does not say BufferError, and asks with a list."""

    refusal = RuntimeError
    asked_version = [1, 3]


class Picky(Toy):
    """A consumer of rows of 32-bit items, and of nothing else."""

    def check(self, managed, is_versioned):
        super().check(managed, is_versioned)
        tensor = managed.tensor
        if tensor.bits * tensor.lanes != 32 or strides_of(tensor) != [*compact(shape_of(tensor))]:
            raise BufferError("too odd")


class Leaky(Toy):
    """A consumer that deletes nothing."""

    def take(self, *arguments):
        taken = super().take(*arguments)
        taken.deletes = 0
        return taken


class Greedy(Choosy):
    """A consumer that takes whatever it is given, and a producer that gives it."""

    class Array(Array):
        def __dlpack__(self, **keywords):
            return super().__dlpack__()

    def refused(self):
        return {"text": self.make([0.0], "float32")}

    def from_dlpack(self, producer, **keywords):
        try:
            return super().from_dlpack(producer, **keywords)
        except Exception:
            return self.make([0.0], "float32")


class Wordy(Toy):
    """It has its own word for a type that it has not."""

    def make(self, values, kind):
        if "float8" in kind or kind in ("int8", "complex64"):
            raise TypeError(f"data type {kind!r} not understood")
        return super().make(values, kind)


# ---- libraries that spoil the process ----


class Spoiling(Toy):
    """Its second call ends the process."""

    def from_dlpack(self, producer, **keywords):
        if self.calls == 1:
            ctypes.string_at(0)
        return super().from_dlpack(producer, **keywords)


def __getattr__(name):
    """toy_faults:producer_copy_flag is a Toy that breaks this rule."""
    side, _, rule = name.partition("_")
    if side in ("producer", "consumer"):
        return Toy(side, rule.replace("_", "-"))
    raise AttributeError(name)


def judge_all(side, names):
    """For each of these faults and libraries what the kit says of all rules, in this process.

    Yields the name, {rule: (outcome, what happened)} of the rules that are not kept, how often tensors were asked for,
    and how many of them were never deleted.
    """
    from dlpack_conformance import RULES, lifetime_cases
    from dlpack_conformance.child import try_rule

    lifetime_cases.PATIENCE_S = 0.05  # nothing here deletes on another thread
    for name in names:
        gc.freeze()  # what earlier faults keep is looked at no more
        exported.clear()
        toy = globals()[name]() if name in globals() else Toy(side, name)
        outcomes = {rule.name: try_rule(rule, toy) for rule in RULES if rule.side == side}
        lost = {rule: outcome for rule, outcome in outcomes.items() if outcome[0] != "kept"}
        yield name, lost, getattr(toy, "calls", 0), len(exported)


if __name__ == "__main__":
    for report in judge_all(sys.argv[1], sys.argv[2:]):
        print(json.dumps(report), flush=True)
