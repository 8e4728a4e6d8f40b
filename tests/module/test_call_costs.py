"""What a call asks of Metal and of the allocators once everything is warm: counted, and held to the number.

A count that falls is welcome: write the smaller one here.  call_costs_child.py counts.
"""

import json
import os
import subprocess

import pytest
from children import output_of
from law_programs import build_library
from places import SUPPORT

import softmetal

pytestmark = [getattr(pytest.mark, f"needs_{what}") for what in ("softmetal", "torch", "no_sanitizer", "glibc")]

#: Call: allocations by malloc, those from Python.  None of these calls sends a message to Metal.  call_costs_child.py
#: makes what they name: a, b and private, x of NumPy, t of torch over our memory, a stream and an event.
QUIET = {
    "a.__dlpack__()": (1, 1),
    "a.__dlpack__(max_version=(1, 3))": (1, 1),
    "a.__dlpack__(dl_device=(1, 0), max_version=(1, 3))": (1, 1),
    "md.from_dlpack(a)": (0, 1),
    "md.from_dlpack(a), dropped": (0, 0),
    "md.from_dlpack(t)": (1, 1),
    "np.asarray(a)": (0, 0),
    "memoryview(a)": (0, 0),
    "a[1:, 2]": (0, 1),
    "a.reshape(20)": (0, 1),
    "a.T": (0, 1),
    "a.permute(1, 0)": (0, 1),
    "a[0, 0].item()": (0, 0),
    "a.fill(1)": (0, 0),
    "b.copy_from(a)": (0, 0),
    "a.copy(), dropped": (0, 0),
    "md.empty((4, 5)), dropped": (0, 0),
    "event.query()": (0, 0),
}

#: What each command costs: made, handed over, never waited for.
COMMAND = {
    "commandBuffer": 1,
    "endEncoding": 1,
    "encodeSignalEvent:value:": 1,
    "addCompletedHandler:": 1,
    "commit": 1,
}
BLIT = {
    **COMMAND,
    "blitCommandEncoder": 1,
    "stringWithUTF8String:": 1,
    "setLabel:": 2,
    "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:": 1,
}
KERNEL = {
    **COMMAND,
    "computeCommandEncoder": 1,
    "label": 1,
    "setLabel:": 2,
    "setComputePipelineState:": 1,
    "setBuffer:offset:atIndex:": 1,
    "setBytes:length:atIndex:": 2,
    "maxTotalThreadsPerThreadgroup": 1,
    "dispatchThreads:threadsPerThreadgroup:": 1,
}
WRAPPED = {
    "newBufferWithBytesNoCopy:length:options:deallocator:": 1,
    "maxBufferLength": 1,
    "contents": 1,
    "length": 1,
}
#: Call: the messages to Metal, allocations by malloc, those from Python.
LOUD = {
    "md.from_dlpack(x)": (WRAPPED, 2, 1),
    "b.copy_from(a, stream=stream)": (BLIT, 3, 0),
    "private.copy_from(a, stream=stream)": (BLIT, 3, 0),
    "b.fill(1, stream=stream)": (KERNEL, 2, 0),
    "stream.record()": ({name: 1 for name in COMMAND if name != "endEncoding"}, 1, 1),
}

#: Foundation's: what an object's life costs, and the pools of crossing functions.
OF_OBJECTS = {"alloc", "init", "drain", "retain", "release"}


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    assert softmetal.is_present()
    folder, compiler = tmp_path_factory.mktemp("costs"), os.environ.get("CC", "cc").split()
    # gcc knows where Objective-C's headers are when it compiles Objective-C only
    headers = subprocess.run([*compiler, "-print-file-name=include"], capture_output=True, text=True, check=True)
    messages = build_library(folder, "counted_messages", "-I", headers.stdout.strip(), "-lobjc")
    preloaded = f"{build_library(folder, 'short_malloc')}:{messages}"
    given = [SUPPORT / "call_costs_child.py", build_library(folder, "short_python"), *QUIET, *LOUD]
    return json.loads(output_of(*given, SOFTMETAL_VALIDATION="0", LD_PRELOAD=preloaded))


@pytest.mark.parametrize("call", QUIET)
def test_a_warm_call_asks_nothing_of_metal(costs, call):
    assert costs[call] == {"metal": {}, "malloc": QUIET[call][0], "python": QUIET[call][1]}


@pytest.mark.parametrize("call", LOUD)
def test_a_call_that_needs_metal_sends_each_message_once(costs, call):
    sent, malloc, python = LOUD[call]
    found = {name: count for name, count in costs[call]["metal"].items() if name not in OF_OBJECTS}
    assert (found, costs[call]["malloc"], costs[call]["python"]) == (sent, malloc, python)


def test_no_export_and_no_view_waits(costs):
    waits = {name for call in costs.values() for name in call["metal"] if "wait" in name.lower()}
    assert waits == set()
