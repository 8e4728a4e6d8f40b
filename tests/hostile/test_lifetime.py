"""Who keeps the bytes: no order of deletions, no thread and no end of the process leaks or frees too early."""

import functools
import gc
import weakref

import pytest
from children import output_of
from dlpack_structs import Producer, delete_on_raw_threads, open_capsule
from held_work import held
from leftovers import left_by
from machine import tries
from objc_messages import SHARED, foreign_buffer
from places import TOOLS

import metal_dlpack as md

# ---- round trips ----


def go_to_torch(torch, array):
    for source in (array[8:], array.host):
        md.from_dlpack(torch.from_dlpack(source))


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(
    ("framework", "trip"),
    [
        ("numpy", lambda numpy, array: numpy.from_dlpack(md.from_dlpack(numpy.zeros(64))[8:], device="cpu")),
        pytest.param("torch", go_to_torch, marks=pytest.mark.needs_torch),
        pytest.param("tvm_ffi", lambda tvm, array: md.from_dlpack(tvm.from_dlpack(array)), marks=pytest.mark.needs_tvm),
        pytest.param(
            "jax.numpy", lambda jnp, array: md.from_dlpack(jnp.from_dlpack(array.host)), marks=pytest.mark.needs_jax
        ),
        pytest.param("mlx.core", lambda mx, array: md.from_dlpack(mx.zeros(4)), marks=pytest.mark.needs_mlx),
    ],
)
def test_a_round_trip_leaves_nothing(framework, trip, live_buffers):
    """Our own ways are gone by test_flat.py."""
    array, module = md.zeros(1024), pytest.importorskip(framework)
    assert left_by(functools.partial(trip, module, array), [array], warm_up=500, trips=2000) is None


# ---- who may go first ----


@pytest.mark.needs_torch
@pytest.mark.needs_tvm
@pytest.mark.rule("import-keeps")
def test_a_chain_of_frameworks_lets_go_from_either_end(live_buffers):
    import torch
    import tvm_ffi

    for order in ("forwards", "backwards"):
        array = md.full(8, 7.0)
        chain = [array, torch.from_dlpack(array)]
        chain.append(md.from_dlpack(chain[-1]))
        chain.append(tvm_ffi.from_dlpack(chain[-1]))
        chain.append(md.from_dlpack(chain[-1]))
        del array
        while len(chain) > 1:
            chain.pop(0 if order == "forwards" else -1)
            assert live_buffers() == 1
            if isinstance(chain[0], md.Array):
                assert chain[0][7].item() == 7
        chain.clear()
        assert live_buffers() == 0


class Owner:
    """Owns a part of an arena."""


@functools.cache  # a compile takes its time, and the GPU is held back meanwhile
def kernel_of_two():
    source = "kernel void k(device uchar *to, device const uchar *from) { to[0] = from[0]; }"
    return md.kernel(f"#include <metal_stdlib>\nusing namespace metal;\n{source}")


def by_kernel(dst, src, stream):
    kernel_of_two()(dst, src, n=1, stream=stream)


#: What the GPU does with two Arrays of one buffer.
USES_BOTH = {
    "a blit": lambda dst, src, stream: dst.copy_from(src, stream=stream),
    "a kernel of the package": lambda dst, src, stream: dst[:15].copy_from(src[1:], stream=stream),
    "by way of other memory": lambda dst, src, stream: dst[:15].copy_from(src[:15], stream=stream),
    "a kernel of the user": pytest.param(by_kernel, marks=pytest.mark.needs_kernels),
    "a kernel of the user, the other way round": pytest.param(
        lambda dst, src, stream: by_kernel(src, dst, stream), marks=pytest.mark.needs_kernels
    ),
}


def wrapped(handle, offset):
    """A part of the buffer with an owner of its own, and what says whether that lives."""
    owner = Owner()
    return md.Buffer.from_handle(handle, 64, owner=owner).array(16, "uint8", offset), weakref.ref(owner)


def imported(handle, offset):
    """The same by DLPack, as frameworks give it that hand out parts of a large buffer."""
    producer = Producer(data=handle, device=(8, 0), shape=(16,), dtype=(1, 8, 1), byte_offset=offset)
    return md.from_dlpack(producer), lambda: None if producer.deletions else producer


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("take", [wrapped, imported])
@pytest.mark.parametrize("is_foreign", [False, True], ids=["ours", "foreign"])
@pytest.mark.parametrize("use", USES_BOTH.values(), ids=USES_BOTH)
def test_work_keeps_each_owner_of_a_buffer_that_it_uses(use, is_foreign, take, live_buffers):
    """One MTLBuffer, two owners: the order goes by the buffer, and each owner stays until the work is done."""
    stream, arena = md.Stream(), md.Buffer(64)
    with foreign_buffer(64, SHARED) as foreign:
        handle = foreign if is_foreign else arena.handle
        overlap = use is USES_BOTH["by way of other memory"]
        (src, src_owner), (dst, dst_owner) = take(handle, 0), take(handle, 8 if overlap else 32)
        with held(stream):
            use(dst, src, stream)
            del src, dst
            gc.collect()
            assert src_owner() is not None and dst_owner() is not None
        stream.synchronize()
        md.from_dlpack(md.zeros(1))  # lets go of what was let go on a Metal thread
        assert src_owner() is None and dst_owner() is None
    Producer._kept.clear()


# ---- deleters on other threads ----


@pytest.mark.parametrize("keywords", [{}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}])
@pytest.mark.rule("export-deleter")
def test_many_threads_without_python_let_go_at_once(keywords, live_buffers):
    array = md.zeros(16)
    tensors = [open_capsule(array[i % 16 :].__dlpack__(**keywords)) for i in range(64)]
    del array
    delete_on_raw_threads(tensors)
    assert live_buffers() == 0


# ---- the end of the process ----


AFTER_THE_INTERPRETER = """
    import ctypes, os, sys
    import numpy as np
    import metal_dlpack as md
    from dlpack_structs import open_capsule

    source = np.zeros(1000, np.float32)
    libc = ctypes.CDLL(None)
    for array in (md.zeros(16), md.from_dlpack(source), md.Buffer(64).array(16)):
        for keywords in ({}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}):
            opened = open_capsule(array.__dlpack__(**keywords))
            opened.take()
            deleter = ctypes.c_void_p(opened.managed.deleter)
            # exit() runs these after Python has ended
            assert libc.__cxa_atexit(deleter, ctypes.c_void_p(opened.address), None) == 0
    del array, source
    print("set up")
"""


@pytest.mark.needs_no_tsan
@pytest.mark.rule("export-deleter-late")
def test_deleters_run_after_the_interpreter_has_ended():
    assert output_of(AFTER_THE_INTERPRETER) == "set up\n"


@pytest.mark.needs_torch
@pytest.mark.rule("export-deleter-late")
def test_tensors_that_outlive_the_interpreter_do_no_harm():
    code = """
        import torch
        import metal_dlpack as md
        import builtins
        import warnings

        warnings.filterwarnings("ignore", "PyTorch has no mps here")
        array = md.zeros(16)
        builtins.kept = [torch.from_dlpack(array), torch.from_dlpack(array.host), array, md.from_dlpack(torch.zeros(9))]
        builtins.kept.append(builtins.kept)
    """
    output_of(code)


def test_arrays_in_module_globals_and_cycles_end_quietly():
    code = """
        import sys
        import numpy as np
        import metal_dlpack as md

        a = md.zeros(16)
        b = md.from_dlpack(np.zeros(16))
        cycle = [a, b, memoryview(a), a.__dlpack__(), np.asarray(b)]
        cycle.append(cycle)
        sys.kept = cycle
    """
    output_of(code)


@pytest.mark.rule("export-deleter-late")
def test_a_thread_that_lets_go_while_python_ends_does_no_harm():
    code = """
        import threading
        import metal_dlpack as md
        import numpy as np

        def work():
            while True:
                md.from_dlpack(np.zeros(64)).__dlpack__()

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
    """
    for _ in range(tries(5)):
        output_of(code)


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
@pytest.mark.rule("soak")
def test_the_soak_leaves_nothing():
    """The short form of `make soak`, which goes each way a million times."""
    assert output_of(TOOLS / "soak.py", 5000).endswith("0 routes that grew\n")
