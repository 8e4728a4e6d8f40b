"""Tensors and Arrays for explain(), and a child process that gives them to consumers.

As a program: `explain_cases.py CONSUMERS` imports these, then forks for what could crash and prints what happened as
lines of JSON: [consumer, case, outcome, text].
"""

import importlib
import json
import mmap
import os
import re
import sys
import tempfile
import warnings

import numpy as np
from dlpack_structs import IS_COPIED, READ_ONLY, Producer, open_capsule
from machine import has_module

import metal_dlpack as md
from metal_dlpack.asking.explain_rules import MODULES

MEMORY = md.zeros(1 << 15, "uint8")
PLACE = (MEMORY.buffer.address + 16383) // 16384 * 16384
HANDLE = MEMORY.buffer.handle
with tempfile.TemporaryFile() as file:
    file.truncate(1 << 16)
    PRIVATE_MAP = np.frombuffer(mmap.mmap(file.fileno(), 1 << 16, access=mmap.ACCESS_COPY), "float32")


class Modern(Producer):
    """Takes the standard's keywords, whatever it then gives."""

    def __dlpack__(self, *, max_version=None, stream=None, dl_device=None, copy=None):
        return self.capsule()


TENSORS = {
    "plain": {},
    "negative": {"shape": (3,), "strides": (-1,), "data": PLACE + 16},
    "negative, one item": {"shape": (1, 3), "strides": (-1, 1)},
    "negative, empty": {"shape": (0, 3), "strides": (-3, 1)},
    "repeated": {"shape": (3, 2), "strides": (0, 1)},
    "gaps": {"shape": (3, 2), "strides": (4, 2)},
    "transposed": {"shape": (2, 3), "strides": (1, 2)},
    "columns": {"shape": (2, 3), "strides": (6, 1)},
    "no strides": {"strides": None},
    "no strides, offset": {"strides": None, "byte_offset": 64},
    "0-d, no strides, offset": {"shape": (), "strides": None, "byte_offset": 64},
    "0-d, offset": {"shape": (), "strides": (), "byte_offset": 64},
    "offset 64": {"byte_offset": 64},
    "offset 4": {"byte_offset": 4},
    "offset 2": {"byte_offset": 2},
    "address + 4": {"data": PLACE + 4},
    "address + 2": {"data": PLACE + 2},
    "address + 1024": {"data": PLACE + 1024},
    "private map": {"data": PRIVATE_MAP.ctypes.data},
    "read-only": {"flags": READ_ONLY},
    "copied": {"flags": IS_COPIED},
    "minor 9": {"version": (1, 9)},
    "major 2": {"version": (2, 0)},
    "empty": {"shape": (0, 3), "data": None},
    "64 axes": {"shape": (1,) * 64},
    "CPU 1": {"device": (1, 1)},
    "Metal": {"device": (8, 0), "data": HANDLE},
    "Metal, offset": {"device": (8, 0), "data": HANDLE, "byte_offset": 64},
    "Metal, offset 4": {"device": (8, 0), "data": HANDLE, "byte_offset": 4},
    "Metal, offset 2": {"device": (8, 0), "data": HANDLE, "byte_offset": 2},
    "Metal, negative": {"device": (8, 0), "data": HANDLE, "byte_offset": 64, "shape": (3,), "strides": (-1,)},
    "Metal 1": {"device": (8, 1), "data": HANDLE},
    "no handle": {"device": (8, 0), "data": PLACE},
    "past the end": {"device": (8, 0), "data": HANDLE, "shape": (10**6,)},
    "CUDA": {"device": (2, 0)},
    "fp4 by two": {"dtype": (17, 4, 2)},
    "float32 by four": {"dtype": (2, 32, 4)},
}
for _name in dir(md):
    if isinstance(getattr(md, _name), md.dtype):
        TENSORS[f"type {_name}"] = {"dtype": (getattr(md, _name).code, getattr(md, _name).bits, 1)}

ARRAYS = {
    "Array": lambda: md.zeros((4, 6)),
    "Array, negative": lambda: md.zeros((4, 6))[::-1],
    "Array, negative, one item": lambda: md.zeros((4, 6))[:1, ::1][::-1],
    "Array, columns": lambda: md.zeros((4, 6))[:, 1:3],
    "Array, transposed": lambda: md.zeros((4, 6)).T,
    "Array, repeated": lambda: md.zeros(6).broadcast_to((4, 6)),
    "Array, private map": lambda: md.asarray(PRIVATE_MAP[:24], copy=False).reshape(4, 6),
    "Array, read-only": lambda: md.zeros((4, 6)).as_readonly(),
    "Array, private": lambda: md.zeros((4, 6), storage="private"),
    "Array, odd offset": lambda: md.Buffer(64).array(2, "complex64", 4),
    "Array, empty": lambda: md.zeros((4, 6))[2:2],
    "Array, bfloat16": lambda: md.zeros(4, "bfloat16"),
    "Array, int4": lambda: md.zeros(4, "int4"),
    "Array, int4 apart": lambda: md.zeros((4, 4), "int4")[:, :2],
    "Array, int4 padded": lambda: md.zeros((4, 4), "int4").copy(padded=True),
    "Array, float64": lambda: md.zeros(4, "float64"),
}
for _name in list(ARRAYS):
    if "private" not in _name:
        ARRAYS[_name + ", host"] = lambda make=ARRAYS[_name]: make().host


def aligned(np):
    """A (4, 6) array on a multiple of 64 bytes: NumPy's own lie on 16."""
    memory = np.zeros(4 * 6 * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + 96].view(np.float32).reshape(4, 6)


def readonly(array):
    array.flags.writeable = False
    return array


def quantized(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def deleted(jnp):
    array = jnp.ones(3)
    array.delete()
    return array


#: What other frameworks and Python make: "framework, what it is of".
FRAMEWORKS = {name: module for name, (module, _) in MODULES.items()} | {"python": "builtins"}
THINGS = {
    "numpy": aligned,
    "numpy, negative": lambda np: np.zeros((4, 6), "f4")[::-1],
    "numpy, gaps": lambda np: np.zeros((4, 6), "f4")[:, 1:3],
    "numpy, read-only": lambda np: readonly(aligned(np)),
    "numpy, float64": lambda np: aligned(np).view("f8"),
    "numpy, swapped": lambda np: np.zeros(4, ">f4"),
    "numpy, dates": lambda np: np.zeros(4, "M8[s]"),
    "numpy, long double": lambda np: np.ones(3, "g"),
    "numpy, texts": lambda np: np.ones(3, "S2"),
    "numpy, bfloat16": lambda np: aligned(np).view(md.bfloat16),
    "numpy, a field": lambda np: np.ones(3, [("a", "f4"), ("b", "i1")])["a"],
    "torch, on the CPU": lambda torch: torch.zeros(4, 6),
    "torch, on Metal": lambda torch: torch.from_dlpack(md.ones(3)),
    "torch, gaps": lambda torch: torch.zeros(4, 6)[:, 1:3],
    "torch, gaps on Metal": lambda torch: torch.from_dlpack(md.zeros((4, 6))[:, 1:3]),
    "torch, bfloat16": lambda torch: torch.zeros(4, dtype=torch.bfloat16),
    "torch, grad": lambda torch: torch.zeros(4, requires_grad=True),
    "torch, conj": lambda torch: torch.ones(3, dtype=torch.complex64).conj(),
    "torch, negated": lambda torch: torch.ones(3, dtype=torch.complex64).conj().imag,
    "torch, sparse": lambda torch: torch.ones(3).to_sparse(),
    "torch, quantized": quantized,
    "torch, meta": lambda torch: torch.ones(3, device="meta"),
    "mlx": lambda mx: mx.zeros((4, 6)),
    "mlx, negative": lambda mx: mx.zeros((4, 6))[::-1],
    "mlx, bfloat16": lambda mx: mx.zeros(4, mx.bfloat16),
    "tvm": lambda tvm: tvm.from_dlpack(md.zeros((4, 6)).host),
    "tvm, on Metal": lambda tvm: tvm.from_dlpack(md.zeros((4, 6))),
    "jax": lambda jax: jax.zeros((4, 6)),
    "jax, deleted": deleted,
    "python, bytes": lambda _: b"abcd",
    "python, a list": lambda _: [1.0],
}
THINGS = {
    name: make for name, make in THINGS.items() if has_module(FRAMEWORKS[name.partition(",")[0]].partition(".")[0])
}
#: Not what a fork cannot use: Metal, and frameworks with threads; nor what shares_memory refuses, and MLX's own words.
ASIDE = re.compile("Metal|jax|tvm|torch, negated|python, bytes")
FOREIGN = [name for name in THINGS if not ASIDE.search(name)]

CASES = [f"{name}{flavour}" for name in TENSORS for flavour in ("", ", legacy")] + FOREIGN + list(ARRAYS)


def make_case(case):
    if case in ARRAYS:
        return ARRAYS[case]()
    if case in THINGS:
        return THINGS[case](importlib.import_module(FRAMEWORKS[case.partition(",")[0]]))
    name = case.removesuffix(", legacy")
    return Modern(versioned=name == case, **{"data": PLACE, **TENSORS[name]})


def address_of_case(thing):
    """Where a consumer that shares has element 0, or None where there is none; handles count as addresses."""
    if isinstance(thing, Producer):
        tensor = thing.struct.tensor
        is_metal = tensor.device[0] == 8
        address = (tensor.data or 0) + (0 if is_metal else tensor.byte_offset)
        return None if 0 in tensor.shape[: tensor.ndim] else address
    array = thing.array if isinstance(thing, md.HostView) else thing
    if 0 in array.shape:
        return None
    return array.buffer.handle if array is thing else array.buffer.address + array.byte_offset


def consume(consumer, thing):
    """Whether the consumer shares; its own exceptions."""
    if consumer == "numpy":
        import numpy as np

        result = np.from_dlpack(thing)
        address = result.__array_interface__["data"][0] if result.size else 0
    elif consumer == "torch":
        import torch

        result = torch.from_dlpack(thing)
        address = result.untyped_storage().data_ptr() if result.device.type == "mps" else result.data_ptr()
        address = address if result.numel() else 0
    elif consumer == "jax":
        import jax

        with jax.enable_x64(True):
            result = jax.numpy.from_dlpack(thing)
        address = result.unsafe_buffer_pointer() if result.size else 0
    else:
        result = importlib.import_module(MODULES[consumer][0]).from_dlpack(thing)
        opened = open_capsule(result.__dlpack__())
        address = (opened.tensor.data or 0) + (opened.tensor.byte_offset if opened.tensor.device[0] == 1 else 0)
    if not isinstance(thing, (Producer, md.Array, md.HostView)):
        return md.shares_memory(thing, result)
    return address_of_case(thing) in (None, address)


def outcome_of(consumer, thing):
    """What the consumer does with it, and what it says."""
    try:
        return "zero-copy" if consume(consumer, thing) else "copy", ""
    except BaseException as error:
        return "refusal", f"{type(error).__name__}: {error}"


def run_in_fork(consumer, cases):
    """Results as far as the child lives: a death is the outcome of the case after the last."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for case in cases:
            line = json.dumps([case, *outcome_of(consumer, make_case(case))]) + "\n"
            os.write(writer, line.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        results = [json.loads(line) for line in pipe]
    status = os.waitpid(child, 0)[1]
    if len(results) < len(cases):
        results.append([cases[len(results)], "crash", str(status)])
    return results


def results_of(consumer):
    # Metal cannot be used in a forked child, so what makes Arrays runs here.
    results = [[case, *outcome_of(consumer, make_case(case))] for case in ARRAYS]
    cases = [case for case in CASES if case not in ARRAYS]
    while cases:
        done = run_in_fork(consumer, cases)
        results += done
        cases = cases[len(done) :]
    return results


if __name__ == "__main__":
    for consumer in sys.argv[1:]:
        importlib.import_module(MODULES[consumer][0])
    for consumer in sys.argv[1:]:
        for result in results_of(consumer):
            print(json.dumps([consumer, *result]))
