"""A child of fork(): every public call ends well there, and those that need Metal raise MetalError."""

import json
import os

import pytest
from children import run_child

import metal_dlpack as md

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")

#: Calls of the module's functions and classes that need arguments; `x` is a NumPy array, `path` a .npy file.
WITH_ARGUMENTS = {
    "Buffer": "md.Buffer(3)",
    "Library": "md.Library('kernel void f(device int *x) {}')",
    "StridedLayout": "md.StridedLayout.dense((2, 3), 4)",
    "asarray": "md.asarray(x)",
    "dtype": "md.dtype('int8')",
    "empty": "md.empty(3)",
    "empty_like": "md.empty_like(array)",
    "capture": "md.capture('t.gputrace')",
    "keep_resident": "md.keep_resident([])",
    "explain": "md.explain(x)",
    "from_dlpack": "md.from_dlpack(x)",
    "full": "md.full(3, 1.0)",
    "full_like": "md.full_like(x, 1)",
    "kernel": "md.kernel('kernel void f(device int *x) {}')",
    "numpy_memory": "np.zeros(1 << 20) if md.numpy_memory().__enter__() is None else 0",
    "ones": "md.ones(3)",
    "ones_like": "md.ones_like(x)",
    "load": "md.load(path)",
    "open": "md.open(path)['arr_0']",
    "register_sync": "md.register_sync(int, lambda x: None)",
    "set_memory_limit": "md.set_memory_limit(None)",
    "set_num_threads": "md.set_num_threads(None)",
    "shares_memory": "md.shares_memory(x, x)",
    "texture": "md.texture(array)",
    "zeros": "md.zeros(3)",
    "zeros_like": "md.zeros_like(x)",
}
NAMES = {name for name in dir(md) if callable(getattr(md, name)) and not name.endswith("Error")}
NAMES -= {"Argument", "Array", "Device", "HostView", "Kernel", "Sampler", "Texture"}  # which only others make
CALLS = {name: f"md.{name}()" for name in NAMES} | WITH_ARGUMENTS
#: More doors to the same functions.
DOORS = {
    "asarray list": "md.asarray([1, 2])",
    "asarray copy": "md.asarray(x, copy=True)",
    "asarray memoryview": "md.asarray(memoryview(b'1234'))",
    "asarray nothing": "md.asarray(np.zeros(0))",
    "asarray copy=False": "md.asarray(x, copy=False)",
    "from_dlpack copy=False": "md.from_dlpack(x, copy=False)",
    "default_device by name": "md.zeros(3, device='metal:0')",
    "from_dlpack capsule": "md.from_dlpack(capsule)",
    "from_host": "md.Buffer.from_host(x)",
    "from_handle": "md.Buffer.from_handle(4096)",
    "Stream.from_handle": "md.Stream.from_handle(4096)",
    "private": "md.zeros(3, storage='private')",
    "pickle.loads": "pickle.loads(pickled)",
}
#: What asks Metal for nothing that a child can miss.
NO_METAL = {
    *("Event", "StridedLayout", "dtype", "empty_cache", "explain", "last_refusal", "numpy_memory", "register_sync"),
    *("get_cmake_dir", "get_include", "get_num_threads", "get_pkgconfig_dir", "get_storage_mode"),
    *("set_num_threads", "share_mps_tensors", "shares_memory", "show", "timeline"),
}
#: What the parent has found out already, if it has used Metal.
KNOWN = {"asarray nothing", "capture", "default_device", "devices", "memory_stats", "set_memory_limit"}
#: Members that need Metal, of the objects that MEMBERS makes.
REFUSED = {
    "managed": "astype copy copy_from __copy__ __deepcopy__",
    "private": "fill item tolist copy_to __setitem__ __array__",
    "shared": "astype copy copy_from __copy__ __deepcopy__",
    "buffer": "from_handle from_host from_iosurface",
    "private_buffer": "copy_from copy_to fill",
    "sampler": "gpu_resource_id",
    "texture": "array arrays gpu_resource_id",
    "stream": "__metal_stream__ from_handle record synchronize",
    "device": "current_allocated_size synchronize",
}

START = """
import json, os, pickle, signal, sys, tempfile, warnings
import numpy as np
import metal_dlpack as md
from forking import fork
warnings.simplefilter("ignore")
x = np.arange(8, dtype="float32")
capsule = x.__dlpack__()
folder = tempfile.TemporaryDirectory()
path = folder.name + "/x.npy"
np.save(path, x)


def outcome(call):
    try:
        call()
    except md.MetalError as error:
        return "refused" if "cannot be used in a forked child; start it with 'spawn'" in str(error) else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


def in_a_child(run):
    read, write = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(60)
        try:
            os.write(write, json.dumps(run()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as pipe:
        print(pipe.read())
    status = os.waitpid(child, 0)[1]
    sys.exit(os.waitstatus_to_exitcode(status))
"""
FUNCTIONS = """
array = md.zeros(3) if used else None  # without Metal there is none
pickled = pickle.dumps(array)
in_a_child(lambda: {name: outcome(lambda: eval(text)) for name, text in calls.items()})
"""
#: Every member of every public object, with arguments that may fit.
MEMBERS = """
stream = md.Stream()
shared, managed, private = (md.full(8, 3.0, storage=mode) for mode in ("shared", "managed", "private"))
things = {"shared": shared, "managed": managed, "private": private, "host_memory": md.asarray(x), "host": shared.host}
things |= {"buffer": md.Buffer(8), "private_buffer": private.buffer, "stream": stream, "event": stream.record()}
things |= {"texture": md.texture(shared, kind="1d", copy=True), "sampler": md.sampler()}
things |= {"device": md.default_device(), "dtype": md.int8, "layout": shared.layout}
md.default_device().synchronize()
attempts = [(), (0,), (1,), (shared,), (x,), (stream,), ("int8",), ((2, 4),), (0, 1), (None, None, None)]


def look_at(thing, name):
    if not callable(getattr(type(thing), name, None)):
        return outcome(lambda: getattr(thing, name))
    said = set()
    for arguments in attempts:
        print(type(thing), name, arguments, file=sys.stderr, flush=True)  # the last one, should the child end here
        said.add(outcome(lambda: getattr(thing, name)(*arguments)))
    return "refused" if "refused" in said else "fine" if "fine" in said else min(said)


def look_at_all():
    result = {}
    for label, thing in things.items():
        names = sorted(set(dir(type(thing))) - set(dir(object)) - {"close", "__module__"} | {"__repr__", "__reduce_ex__"})
        result[label] = {name: look_at(thing, name) for name in names}
    return result


in_a_child(look_at_all)
"""


def run(code, validation, **names):
    start = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    done = run_child(START + start + code, SOFTMETAL_VALIDATION=validation)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("used", "validation"), [(False, "0"), (True, "1")], ids=["unused, without validation", "used, with validation"]
)
def test_a_call_that_needs_metal_says_that_this_is_a_forked_child(used, validation):
    outcomes = run(FUNCTIONS, validation, used=used, calls=CALLS | DOORS)
    fine = NO_METAL | KNOWN if used else NO_METAL
    expected = {name: "fine" if name in fine else "refused" for name in CALLS | DOORS}
    if not used:
        del expected["empty_like"], expected["pickle.loads"]
    assert {name: outcomes[name] for name, said in expected.items() if outcomes[name] != said} == {}


@pytest.mark.parametrize("validation", ["1", pytest.param("0", marks=pytest.mark.long)])
def test_every_member_of_what_the_parent_made_ends_well(validation):
    outcomes = run(MEMBERS, validation)
    for label, names in REFUSED.items():
        assert {name: outcomes[label][name] for name in names.split()} == dict.fromkeys(names.split(), "refused"), label
    assert {outcomes[label]["__repr__"] for label in outcomes} == {"fine"}
    assert outcomes["shared"]["__reduce_ex__"] == "fine"
    assert not [said for members in outcomes.values() for said in members.values() if "No Metal device" in said]
