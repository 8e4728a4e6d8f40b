"""One call after another with the n-th step of one kind failing, for each n until there are no more.

    python child.py python PART OF LIBRARY [each]  what the extension asks Python's allocators for; short_python.c
    python child.py c PART OF                      malloc as the extension calls it; short_malloc.c preloaded
    python child.py metal PART OF                  calls of Metal that give nil, command buffers that fail

Prints a line for each call that neither worked nor said that memory or Metal failed, or left something behind; else
"quiet", and how often something failed.
"""

import ctypes
import gc
import importlib.util
import itertools
import sys

import fault_calls
from extension_code import code_in, loaded
from machine import BREAKS_TYPES

import metal_dlpack as md
import softmetal
from metal_dlpack import _core

TYPES = tuple(_core._types())
#: Where each so many-th step fails, and not each, unless each is asked for.
STEPS = {"import": 53, "Array._repr_html_": 5, "Device._repr_html_": 5}
#: Calls that are left out, by what fails.  The import makes types, which Python has to survive.
LEFT_OUT = {"metal": {"softmetal.configure"}, "python": {"import"} if BREAKS_TYPES else set()}
#: A call that needs more allocations than this is not ours.
MOST = 3000
#: What Metal may refuse, how: one call, that and all later ones, and a GPU that goes away.
METAL = [
    f"{kind}@{{}}{tail}"
    for kind in ("buffer", "queue", "commandBuffer", "encoder", "event")
    for tail in ("", "+")
] + ["commit@{}", "commit@{}+=OutOfMemory", "commit@{}=DeviceRemoved"]  # fmt: skip
#: A Metal call fails in none of so many places in a row: there are no more.
ENOUGH = 2


def code_of_ours():
    return loaded(_core.__file__, code_in(_core.__file__, "ours"))


class PythonsAllocations:
    """Of Python's allocators."""

    limit = MOST

    def __init__(self, library):
        self.library = ctypes.PyDLL(library)
        self.call = self.library.short_python_call
        self.call.restype, self.call.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_long]
        self.library.short_python_install(ctypes.c_void_p(code_of_ours()[0]))

    def attempt(self, call, n):
        self.call(call, n)

    def has_failed(self):
        return bool(self.library.short_python_has_failed())


class Mallocs:
    """Fails mallocs of the C library, called by the extension's own code."""

    limit = MOST

    def __init__(self):
        code = code_of_ours()
        self.bounds = (ctypes.c_size_t * len(code))(*code)
        ctypes.pythonapi.short_malloc_choose(self.bounds, ctypes.c_size_t(len(code)))
        ctypes.pythonapi.short_malloc_left.restype = ctypes.c_long

    def attempt(self, call, n):
        md.empty_cache()  # else storage comes from there
        ctypes.pythonapi.short_malloc_arm(ctypes.c_long(n))
        try:
            call()
        finally:
            self.left = ctypes.pythonapi.short_malloc_left()
            ctypes.pythonapi.short_malloc_arm(ctypes.c_long(0))

    def has_failed(self):
        return self.left == 0


class MetalCalls:
    """Fails Metal calls of one kind; the software Metal does not say whether a rule has struck."""

    limit = 100

    def __init__(self, rule):
        self.rule = rule

    def attempt(self, call, n):
        md.empty_cache()
        softmetal.configure(fail=self.rule.format(n))
        self.has_worked = False
        try:
            call()
            self.has_worked = True
        finally:
            softmetal.configure(fail=None)

    def has_failed(self):
        return not self.has_worked


def counted():
    """Live Metal objects, references to each type (one for each instance) and to what the calls use."""
    kept = [sys.getrefcount(thing) for thing in fault_calls.KEPT]
    return [softmetal.live_objects(None), *map(sys.getrefcount, TYPES), *kept]


def held():
    """The same, without garbage and what is kept for later."""
    gc.collect()
    softmetal.wait_idle()  # finished work lets go on a Metal thread
    md.empty_cache()
    return counted()


def run(call):
    """True: it did what it does."""
    try:
        call()
    except (MemoryError, md.MetalError):
        return False
    return True


def settle():
    """An error that a stream keeps is raised by its next wait."""
    for stream in (fault_calls.stream, fault_calls.device.default_stream):
        run(stream.synchronize)


def warm_up():
    """What is made when a wait meets work in flight, and kept: the default stream, the kernel that touches a buffer."""
    settle()
    array, other = md.zeros(8), md.Stream()
    softmetal.configure(latency_us=50_000)
    array.copy_from(md.zeros(8), stream=fault_calls.stream)
    array.__dlpack__(stream=other.handle)
    softmetal.configure(latency_us=0)
    other.synchronize()
    fault_calls.stream.synchronize()


def complain(name, fault, call, n, before):
    """What was wrong when the n-th failed, or None; and whether it failed."""
    may_raise = (MemoryError, md.MetalError, fault_calls.ALSO_RAISED.get(name.partition(",")[0], MemoryError))
    try:
        fault.attempt(call, n)
    except may_raise:
        pass
    except BaseException as error:
        return f"{name}: with number {n} failing: {error!r}", True
    has_failed = fault.has_failed()
    if isinstance(fault, MetalCalls):
        settle()
        softmetal.configure(fail=None)  # a device that work has removed meanwhile is back
    if counted() == before:  # as a rule, and in no time
        return None, has_failed
    after = held()
    # Fewer objects than before are those of earlier work, which its completion has let go of by now.
    if after[0] > before[0] or after[1:] != before[1:]:
        changed = [(place, old, new) for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        return f"{name}: with number {n} failing, what is held changed: {changed}", True
    return None, has_failed


def fail_each(name, fault, call):
    """The first complaint, or None, and how often something failed."""
    for _ in range(2):
        call()  # what is cached is cached
    before = held()
    gc.freeze()  # each of the next collections looks at what a call leaves, and at nothing else
    nfailures = quiet = 0
    for n in range(1, fault.limit, STEPS.get(name, 1)):
        gc.collect()  # no free block is at hand
        complaint, has_failed = complain(name, fault, call, n, before)
        if complaint is not None:
            return complaint, nfailures
        nfailures += has_failed
        quiet = 0 if has_failed else quiet + 1
        if quiet == (1 if not isinstance(fault, MetalCalls) else ENOUGH):
            call()  # it works again
            return None, nfailures
    return f"{name}: makes {fault.limit} of them", nfailures


def import_again():
    spec = importlib.util.find_spec("metal_dlpack._core")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def chosen_calls(kind, part, parts):
    named = fault_calls.CALLS | {"import": [import_again]}
    left_out = LEFT_OUT.get(kind, ())
    return [(name, call) for name, calls in named.items() for call in calls if name not in left_out][part::parts]


def main(kind, part, parts, library=None, step=None):
    lines, total = [], 0
    if step == "each":
        STEPS.clear()
    warm_up()
    faults = {
        "python": lambda: [PythonsAllocations(library)],
        "c": lambda: [Mallocs()],
        "metal": lambda: [MetalCalls(rule) for rule in METAL],
    }[kind]()
    for fault, (name, call) in itertools.product(faults, chosen_calls(kind, part, parts)):
        what = f"{name}, {fault.rule}" if kind == "metal" else name
        complaint, nfailures = fail_each(what, fault, call)
        total += nfailures
        lines += [complaint] if complaint else []
    fault_calls.is_usable()
    print("\n".join(lines) or f"quiet, {total} failures")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
