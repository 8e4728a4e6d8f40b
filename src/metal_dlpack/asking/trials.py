"""What a consumer does with tensors of all kinds, found by giving it one of each.

A consumer is run in a child process, once in the life of this one: it is not imported here, and a tensor that ends
the child costs that one answer.  The tensors lie in the child's memory.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from metal_dlpack import _core
from metal_dlpack.conformance.asking import take_stdout
from metal_dlpack.conformance.dlpack_structs import LEGACY_NAME, VERSIONED_NAME, Legacy, Versioned, new_capsule
from metal_dlpack.explain_rules import CALLS, MODULES, RULES

__all__ = ["Trial", "trial_of"]

#: A child may import a framework for the first time, on a slow disk.
CHILD_TIMEOUT_S = 240
#: What producers say to a consumer that asks in a way they do not know.
REFUSALS = (TypeError, BufferError)
#: The element type that stands for vectors.
VECTOR = "float32x4"
Calls = list[tuple[dict[str, object] | str, tuple[type[Exception], ...]]]


@dataclass(frozen=True)
class Trial:
    """What a consumer did; nothing where it could not be tried."""

    outcomes: dict[str, str] = field(default_factory=dict)  #: by the name of the example
    calls: Calls = field(default_factory=list)  #: as explain_rules.CALLS


def examples_of(consumer: str) -> dict[str, dict[str, Any]]:
    """Fields of a tensor for each rule, and for each element type."""
    examples = {
        rule.condition: rule.example for rule in RULES if rule.consumer == consumer and rule.example is not None
    }
    types = [kind for kind in vars(_core).values() if isinstance(kind, _core.dtype)]
    types += [_core.dtype("float4_e2m1fnx2"), _core.dtype(VECTOR)]
    return examples | {f"type {kind.name}": {"dtype": (kind.code, kind.bits, kind.lanes)} for kind in types}


# ---- the child ----


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
    """For each of REFUSALS, the keywords of the calls that a producer gets which raises it."""
    found = []
    for refusal in REFUSALS:
        example = Example(refusal=refusal)
        _kept.append(example)
        with suppress(Exception):  # it is the calls that count
            from_dlpack(example)
        found.append(example.asked)
    return found


def run_child(consumer: str, *names: str) -> None:
    """In the child: print a line of JSON for the import, for the calls and for each example."""
    output = take_stdout()
    from_dlpack = importlib.import_module(MODULES[consumer][0]).from_dlpack
    examples = examples_of(consumer)
    print(json.dumps(["calls", find_calls(from_dlpack)]), file=output, flush=True)
    for name in names:
        print(json.dumps([name, try_example(from_dlpack, examples[name])]), file=output, flush=True)
    os._exit(0)  # what the framework has of the examples is never deleted


# ---- the parent ----


def ask_child(consumer: str, names: list[str]) -> dict[str, Any]:
    """The answers that one child gave before it ended."""
    import subprocess  # slow to import

    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    given = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(paths)}
    code = "import sys; from metal_dlpack.asking.trials import run_child; run_child(*sys.argv[1:])"
    try:
        child = subprocess.run(
            [sys.executable, "-c", code, consumer, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **given},
            timeout=CHILD_TIMEOUT_S,
            check=False,
        )
        output = child.stdout
    except subprocess.TimeoutExpired as late:
        output = late.stdout or b""
    except OSError:  # no process can be started here
        return {}
    answers = {}
    for line in output.splitlines():
        try:
            name, answer = json.loads(line)
            answers[name] = answer
        except (ValueError, TypeError):
            continue  # printed while Python started
    return answers


def read_calls(consumer: str, asked: list[list[dict[str, Any]]]) -> Calls:
    """The calls in order, each with the refusals after which the next one comes."""
    calls: Calls = [call for call in CALLS[consumer] if call[0] == "exchange"]
    longest = max(asked, key=len)
    for place, keywords in enumerate(longest):
        follows = [len(calls_of_one) > place + 1 for calls_of_one in asked]
        retried = tuple(refusal for refusal, is_retried in zip(REFUSALS, follows, strict=True) if is_retried)
        known = {name: tuple(value) if isinstance(value, list) else value for name, value in keywords.items()}
        if calls and calls[-1][0] == known:
            calls[-1] = (known, retried)
        else:
            calls.append((known, retried))
    return calls


@cache
def trial_of(consumer: str) -> Trial:
    """What this consumer does; an empty Trial if it cannot be run."""
    names = list(examples_of(consumer))
    outcomes: dict[str, str] = {}
    calls: Calls = []
    while names:
        answers = ask_child(consumer, names)
        if "calls" not in answers:
            return Trial()  # it cannot even be imported
        calls = read_calls(consumer, answers.pop("calls"))
        outcomes |= answers
        names = [name for name in names if name not in outcomes]
        if names:
            outcomes[names.pop(0)] = "crash"
    return Trial(outcomes, calls)
