"""The child of trials.py: a consumer is given one tensor of each kind, which lies in this process's memory."""

from __future__ import annotations

import ctypes
import importlib
import os
from contextlib import suppress
from typing import Any

from metal_dlpack import _core
from metal_dlpack.conformance.asking import print_answer, take_stdout
from metal_dlpack.conformance.dlpack_structs import LEGACY_NAME, VERSIONED_NAME, Legacy, Versioned, new_capsule

from . import trials
from .explain_rules import MODULES

#: A deleter that deletes nothing: the child ends soon.
_keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _managed: None)


#: Frameworks let go of a tensor when they like, on threads of their own.
_kept: list[Example] = []


class Example:
    """A producer of one tensor, which takes every keyword."""

    def __init__(self, **fields: Any) -> None:
        self.refusal: type[Exception] | None = fields.get("refusal")
        self.asked: list[dict[str, object]] = []
        self.memory = _core.zeros(65536, "uint8")
        address = self.memory.buffer.address
        assert address is not None
        on_metal = fields.get("device", (1, 0))[0] == 8
        #: 16 KiB is the largest page there is.
        place = -address % 16384 + 64 * fields.get("is_inside", 0)
        self.offset = fields.get("byte_offset", 0) + (0 if on_metal else place)
        version = fields.get("version")
        self.managed = Legacy() if version is None else Versioned()
        if version is not None:
            self.managed.version = version
        self.managed.deleter = ctypes.cast(_keep, ctypes.c_void_p).value
        tensor = self.managed.tensor
        tensor.data = self.memory.buffer.handle if on_metal else address + place
        tensor.device = fields.get("device", (1, 0))
        tensor.code, tensor.bits, tensor.lanes = fields.get("dtype", (2, 32, 1))
        tensor.byte_offset = fields.get("byte_offset", 0)
        shape, strides = fields.get("shape", (2, 3)), fields.get("strides", (3, 1))
        tensor.ndim = len(shape)
        tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
        if strides is not None:
            tensor.strides = (ctypes.c_int64 * len(strides))(*strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.managed.tensor.device
        return kind, index

    def __dlpack__(self, **keywords: object) -> object:
        self.asked.append(keywords)
        if self.refusal is not None:
            raise self.refusal("not so")
        name = LEGACY_NAME if isinstance(self.managed, Legacy) else VERSIONED_NAME
        capsule: object = new_capsule(ctypes.addressof(self.managed), name, None)
        return capsule


def try_example(from_dlpack: Any, fields: dict[str, Any]) -> str:
    example = Example(**fields)
    _kept.append(example)
    try:
        result = from_dlpack(example.memory if fields.get("is_ours") else example)
    except Exception:  # whatever a framework raises, or an Array of ours that it asks
        return "refusal"
    first = example.memory[example.offset : example.offset + 1]
    try:
        return "zero-copy" if _core.shares_memory(first, result) else "copy"
    except Exception:  # it took what it does not give
        return "copy"


def find_calls(from_dlpack: Any) -> list[list[dict[str, object]]]:
    """For each of trials.REFUSALS, the keywords of the calls that a producer gets which raises it."""
    found = []
    for refusal in trials.REFUSALS:
        example = Example(refusal=refusal)
        _kept.append(example)
        with suppress(Exception):  # it is the calls that count
            from_dlpack(example)
        found.append(example.asked)
    return found


def main(consumer: str, *names: str) -> None:
    """In the child: answer for the calls and for each example."""
    answers = take_stdout()
    from_dlpack = importlib.import_module(MODULES[consumer][0]).from_dlpack
    examples = trials.examples_of(consumer)
    print_answer(answers, "calls", find_calls(from_dlpack))
    for name in names:
        print_answer(answers, name, try_example(from_dlpack, examples[name]))
    os._exit(0)  # what the framework has of the examples is never deleted
