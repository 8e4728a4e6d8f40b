"""Run in a child: every case of a device, by one route or more.  `python -m hostile.routes DEVICE [full]`.

Each case is announced before it is tried, so that whoever reads the output knows the one that killed the process.
Prints a line `FAIL name: what` for each that went wrong, and at the end `DONE count`.
"""

import contextlib
import ctypes
import gc
import itertools
import sys
from collections import Counter

from dlpack_structs import IS_COPIED, READ_ONLY, Handing, capsule_name, kind_with_table, table_with
from objc_messages import foreign_buffer

import metal_dlpack as md
import softmetal
from dlpack_conformance import exchange_table
from hostile import tensors
from hostile.cases import CPU, DELETED, METAL, REFUSED, TAKEN, cases
from hostile.faults import PATTERN, ROOM, bytes_of
from hostile.tensors import FAULTING, Tensor

COPIES = (None, True, False)


class Memory:
    """ROOM bytes of the pattern, where a kind of tensor finds them."""

    def __init__(self, device):
        self.stack = contextlib.ExitStack()
        self.dies = None
        if device == CPU:
            self.data = tensors.map_pages(ROOM // tensors.PAGE or 1)
            ctypes.memmove(self.data, PATTERN, ROOM)
            self.dies = (self.data, max(ROOM, tensors.PAGE))
        else:
            self.data = self.stack.enter_context(foreign_buffer(ROOM, 0))
            md.Buffer.from_handle(self.data).copy_from(PATTERN)

    def close(self):
        self.stack.close()
        if self.dies:
            tensors.libc.munmap(*self.dies)


def items_of(array):
    """Its bytes in C order."""
    copied = array.copy(padded=False)
    return bytes(copied.buffer)[copied.byte_offset : copied.byte_offset + copied.nbytes]


class Checked:
    """One tensor on its way through a route."""

    def __init__(self, fields, memory):
        values = {"data": FAULTING, **fields}
        self.has_memory = memory is not None
        if memory is not None:
            values |= {"data": memory.data, "dies": memory.dies}
        self.fields = fields
        self.has_deleter = not {"deleter", "context"} & set(fields)
        self.tensor = Tensor(**values)

    def capsule(self):
        return self.tensor.capsule(tensors.address_of("end_capsule") if self.has_deleter else None)

    def deletions(self):
        return self.tensor.deletions if self.has_deleter else None

    def must(self, condition, *seen):
        if not condition:
            raise AssertionError(seen)

    def must_be_deleted(self, times):
        self.must(self.deletions() in (None, times), "deletions", self.deletions(), "not", times)

    def check_refusal(self, error):
        self.must(isinstance(error, BufferError), "raised", error)
        self.must(str(error).startswith("from_dlpack: "), "text", error)
        # The handle is the last thing to be looked at.
        self.must(self.has_memory or "id<MTLBuffer>" not in str(error), "looked at data first", error)

    def is_shared(self, copy):
        is_metal = self.fields["device"][0] == METAL[0]
        return copy is not True or (is_metal and bool(self.fields.get("flags", 0) & IS_COPIED))

    def check_array(self, array, copy):
        shape = tuple(self.fields.get("shape", (2, 3)) or ())
        self.must(array.shape == shape, "shape", array.shape)
        dtype = self.fields.get("dtype", (2, 32, 1))
        self.must((array.dtype.code, array.dtype.bits, array.dtype.lanes) == dtype, "dtype", array.dtype)
        if not array.size:
            self.must_be_deleted(1)
            return
        expected, nbits = bytes_of(self.fields, PATTERN)
        mask = (1 << nbits) - 1  # the last byte of packed items may have bits of nobody
        found = int.from_bytes(items_of(array), "little") & mask
        self.must(found == expected, "items", hex(found), hex(expected))
        is_shared, flags = self.is_shared(copy), self.fields.get("flags", 0)
        self.must(array.readonly == (is_shared and bool(flags & READ_ONLY)), "readonly", array.readonly)
        self.must_be_deleted(0 if is_shared else 1)


def drain():
    md.from_dlpack(EMPTY)


EMPTY = md.zeros(0)


def check_outcome(checked, fate, outcome, copy):
    """What every route must give: an Array with the right items, or a refusal."""
    is_taken = not isinstance(outcome, Exception)
    checked.must(is_taken == (fate == TAKEN), "taken" if is_taken else "refused", outcome)
    if is_taken:
        checked.check_array(outcome, copy)
    else:
        checked.check_refusal(outcome)


def attempt(call, *arguments, **keywords):
    try:
        return call(*arguments, **keywords)
    except Exception as error:
        return error.with_traceback(None)


def by_capsule(checked, fate, copy):
    capsule = checked.capsule()
    outcome = attempt(md.from_dlpack, capsule, copy=copy)
    check_outcome(checked, fate, outcome, copy)
    is_fresh = capsule_name(capsule) == checked.tensor.name
    checked.must(is_fresh == (fate == REFUSED), "capsule", capsule_name(capsule))
    checked.must_be_deleted(1 if fate == DELETED else checked.deletions() if fate == TAKEN else 0)
    again = attempt(md.from_dlpack, capsule, copy=copy)
    checked.must(isinstance(again, BufferError), "taken twice", again)
    del again, outcome, capsule
    drain()
    checked.must_be_deleted(1)


def by_object(checked, fate, copy):
    capsule = checked.capsule()
    device = checked.fields["device"]
    producer = Handing(capsule, device)
    del capsule
    outcome = attempt(md.from_dlpack, producer, copy=copy)
    if device[0] not in (1, 8):  # by its own word, so that the capsule is not even asked for
        checked.must(isinstance(outcome, BufferError), "raised", outcome)
    else:
        check_outcome(checked, fate, outcome, copy)
    del producer, outcome
    drain()
    checked.must_be_deleted(1)


def check_stolen(checked, fate, copy, call):
    """What a table gives or takes is the taker's, whether it can use it or not."""
    outcome = attempt(call)
    check_outcome(checked, fate, outcome, copy)
    checked.must_be_deleted(checked.deletions() if fate == TAKEN else 1)
    del outcome
    drain()
    checked.must_be_deleted(1)


OUR_TABLE = exchange_table.table_of(md.Array)


def by_our_table(checked, fate, copy):
    check_stolen(checked, fate, copy, lambda: exchange_table.object_from(OUR_TABLE, checked.tensor.struct))


NEXT = []


def hand_out(_object, out):
    out[0] = NEXT.pop()
    return 0


#: A type with an exchange table of its own, as torch.Tensor is one.
Foreign = kind_with_table(table_with(from_object=hand_out), has_method=False)


def by_foreign_table(checked, fate, copy):
    NEXT.append(checked.tensor.base)
    check_stolen(checked, fate, copy, lambda: md.from_dlpack(Foreign(), copy=copy))
    checked.must(not NEXT, "the table was not asked")


def by_looking(checked, look):
    """What only looks at a capsule leaves it alone, whatever is in it."""
    capsule = checked.capsule()
    outcome = attempt(look, capsule)
    checked.must(not isinstance(outcome, (SystemError, KeyError)), "raised", outcome)
    checked.must(capsule_name(capsule) == checked.tensor.name, "capsule", capsule_name(capsule))
    checked.must_be_deleted(0)
    del capsule
    checked.must_be_deleted(1)
    return outcome


def by_explain(checked, fate, _copy):
    outcome = by_looking(checked, md.explain)
    checked.must(not isinstance(outcome, Exception), "raised", outcome)
    checked.must((outcome.outcome == "refusal") == (fate != TAKEN), "explained", outcome)


def by_shares_memory(checked, fate, _copy):
    outcome = by_looking(checked, lambda capsule: md.shares_memory(capsule, EMPTY))
    # Where mask is to be compared (no items, a copy) the answer can come before the fault.
    is_refused = fate != TAKEN and isinstance(outcome, BufferError)
    checked.must(outcome is False or is_refused, "answered", outcome)


ROUTES = {
    "capsule": by_capsule,
    "object": by_object,
    "our table": by_our_table,
    "foreign table": by_foreign_table,
    "explain": by_explain,
    "shares_memory": by_shares_memory,
}
VERSIONED_ROUTES = ("our table", "foreign table")


def copies_of(route, fate):
    if route in ("our table", "explain", "shares_memory") or fate != TAKEN:
        return (None,)
    return COPIES


def routes_of(name, fields, turns, in_full):
    """Every route for a row alone; for a pair of rows one of them in turn, unless all are asked for."""
    if in_full or " + " not in name:
        return [route for route in ROUTES if fields["versioned"] or route not in VERSIONED_ROUTES]
    return [next(turns[fields["versioned"]])]


def try_case(device, route, name, fields, place, fate, copy):
    """What went wrong, in words: nothing as a rule."""
    print(f"{route}: {name} (copy={copy})", flush=True)
    memory = Memory(device) if place == "memory" else None
    checked = Checked({"device": device, **fields}, memory)
    try:
        ROUTES[route](checked, fate, copy)
    except AssertionError as error:
        return f"FAIL {route}: {name} (copy={copy}, {fate}): {error}"
    finally:
        checked.tensor.free()
        if memory is not None:
            memory.close()
    return None


def live_buffers():
    return softmetal.live_objects("MTLBuffer") if softmetal.is_present() else 0


def check_the_end(before):
    gc.collect()
    md.empty_cache()
    assert live_buffers() == before, "buffers outlive their tensors"
    if softmetal.is_present():
        assert softmetal.reports() == 0, softmetal.last_report()


def run(device, in_full):
    buffers = live_buffers()
    legacy = [route for route in ROUTES if route not in VERSIONED_ROUTES]
    turns = {True: itertools.cycle(ROUTES), False: itertools.cycle(legacy)}
    counts, fates, failures = Counter(), Counter(), []
    for name, fields, place, fate in cases(device):
        fates[fate] += 1
        for route in routes_of(name, fields, turns, in_full):
            for copy in copies_of(route, fate):
                failures += filter(None, [try_case(device, route, name, fields, place, fate, copy)])
                counts[route] += 1
    assert min(counts.values()) > 400, counts
    assert fates[REFUSED] > 4000 and fates[TAKEN] > 400 and fates[DELETED] > 100, fates
    check_the_end(buffers)
    print(*failures, f"DONE {counts.total()} {len(failures)}", sep="\n", flush=True)


if __name__ == "__main__":
    run({"cpu": CPU, "metal": METAL}[sys.argv[1]], in_full="full" in sys.argv)
