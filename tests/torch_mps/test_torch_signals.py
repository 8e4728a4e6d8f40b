"""Waits for torch's queue hear signals: Ctrl-C ends them, though the kernel never ends."""

import signal

import pytest
from children import output_of, run_child

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

#: `open_gate[0] = 1` ends the kernel; `soon` sends a signal while the main thread waits.
ENDLESS = """
import os, signal, sys, threading
import numpy as np
import torch
import metal_dlpack as md
import softmetal
softmetal.torch_mps()
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
KERNEL = torch.mps.compile_shader('''#include <metal_stdlib>
using namespace metal;
kernel void f(device atomic_uint *x) { while (atomic_load_explicit(x, memory_order_relaxed) == 0) ; }''')
gate = md.zeros(4, "int32")
open_gate = np.from_dlpack(gate.host)
t, u = gate.to(torch), torch.ones(4, device="mps")
torch.mps.synchronize()
before, event = torch.mps.event.Event(enable_timing=True), torch.mps.event.Event(enable_timing=True)
before.record()
KERNEL.f(t)
event.record()
def soon(number):
    os.system(f"(sleep 0.3; kill -{int(number)} {os.getpid()}) &")  # some waits keep the GIL
"""

WAITS = """
waits = {
    "synchronize": torch.mps.synchronize,
    "of any device": torch.accelerator.synchronize,
    "a stream": lambda: torch._C._mps_synchronizeStream(0),  # of 2.15's torch.mps.Stream
    "an event": event.synchronize,
    "a time": lambda: before.elapsed_time(event),
    "cpu": u.cpu,
    "item": u[0].item,
    "tolist": u.tolist,
    "text": lambda: str(u),
    "an operator": lambda: u + 1,
    "an operator by its name": lambda: torch.ops.aten.add.Tensor(u, u),
    "a copy from the CPU": lambda: u.copy_(torch.ones(4)),
    "a place": lambda: u.__setitem__(0, 2),
}
for name, wait in waits.items():
    try:
        soon(signal.SIGINT)
        wait()
        print(name, "has not waited")
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("latency_us", [None, "1000"])
@pytest.mark.some(1)
def test_ctrl_c_ends_each_wait_for_torch_and_the_program_goes_on(latency_us):
    goes_on = "open_gate[0] = 1\nprint((u + 1).tolist(), t.tolist())"
    says = "[2.0, 2.0, 2.0, 2.0] [1, 0, 0, 0]\n"
    assert output_of(ENDLESS + WAITS + goes_on, SOFTMETAL_LATENCY_US=latency_us) == says


def test_a_program_ends_by_ctrl_c_though_its_kernel_does_not():
    done = run_child(ENDLESS + "soon(signal.SIGINT)\ntorch.mps.synchronize()")
    assert done.returncode == -signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")


@pytest.mark.long
def test_a_handler_that_returns_leaves_the_wait_to_its_end():
    handler = "signal.signal(signal.SIGTERM, lambda *_: open_gate.__setitem__(0, 1))\nsoon(signal.SIGTERM)\n"
    assert output_of(ENDLESS + handler + "torch.mps.synchronize()\nprint(event.query())") == "True\n"


def test_sigterm_ends_a_checked_program_whose_kernel_does_not_end(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(ENDLESS + "soon(signal.SIGTERM)\nu.tolist()")
    done = run_child(["-m", "softmetal", "--check", str(path)])
    assert done.returncode == -signal.SIGTERM
    assert "kernels still ran at the end" in done.stderr


@pytest.mark.long
def test_a_wait_behind_the_lock_of_torchs_queue_leaves_signals_to_python():
    """A library that calls torch inside of dispatch_sync may not be sent into Python, which may want the lock."""
    held = """
import ctypes
from softmetal.torch import building
heard = []
signal.signal(signal.SIGUSR1, lambda *_: heard.append(int(open_gate[0])))
def work(_):
    soon(signal.SIGUSR1)
    threading.Timer(1, lambda: open_gate.__setitem__(0, 1)).start()
    torch._C._mps_deviceSynchronize()
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ctypes.CDLL(str(building.library(torch))).dispatch_sync_f(None, None, CALLBACK(work))
print(heard)
"""
    assert output_of(ENDLESS + held) == "[1]\n"
