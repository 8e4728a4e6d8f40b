"""The child of trials.py: a consumer is given one tensor of each kind, which lies in this process's memory."""

from __future__ import annotations

import ctypes
import importlib
import os
from contextlib import suppress
from typing import Any

from dlpack_conformance.asking import print_answer, take_stdout
from dlpack_conformance.dlpack_structs import Tensor
from dlpack_conformance.offers import Handed, Memory, Offer
from metal_dlpack import _core

from . import trials
from .explain_rules import METAL, MODULES

#: A deleter that deletes nothing, and is called on any thread: the child ends soon.
_keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _managed: None)


#: Frameworks let go of a tensor when they like, on threads of their own.
_kept: list[Example] = []


class Example(Offer):
    """An offer whose memory is our Array, too: what reads Metal gets its MTLBuffer.

    `is_inside`: there is room before item 0; `is_ours` is for try_example.
    """

    def __init__(
        self, *, is_inside: bool = False, is_ours: bool = False, version: tuple[int, int] | None = None, **fields: Any
    ) -> None:
        super().__init__(
            first=16 * is_inside,
            flavour="legacy" if version is None else "versioned",
            version=version or (1, 3),
            **fields,
        )
        self.is_ours = is_ours
        pages = (ctypes.c_uint8 * self.memory.nbytes).from_address(self.memory.address)
        self.array = _core.asarray(pages, copy=False)

    def hand(self, max_version: tuple[int, int] | None = None, *, is_copy: bool = False) -> Handed:
        handed = super().hand(max_version, is_copy=is_copy)
        handed.struct.deleter = ctypes.cast(_keep, ctypes.c_void_p).value
        return handed

    def fill(self, tensor: Tensor, memory: Memory) -> None:
        super().fill(tensor, memory)
        if self.device == METAL:
            tensor.data = self.array.buffer.handle


def try_example(from_dlpack: Any, fields: dict[str, Any]) -> str:
    example = Example(**fields)
    _kept.append(example)
    try:
        result = from_dlpack(example.array if example.is_ours else example)
    except Exception:  # whatever a framework raises, or our Array that it asks
        return "refusal"
    offset = example.byte_offset + example.first_bytes
    try:
        return "zero-copy" if _core.shares_memory(example.array[offset : offset + 1], result) else "copy"
    except Exception:  # it took what it does not give
        return "copy"


def find_calls(from_dlpack: Any) -> list[list[dict[str, object]]]:
    """For each of trials.REFUSALS, the keywords of the calls that a producer gets which raises it."""
    found = []
    for refusal in trials.REFUSALS:
        example = Example(fails=refusal("not so"))
        _kept.append(example)
        with suppress(Exception):  # it is the calls that count
            from_dlpack(example)
        found.append(example.calls)
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
