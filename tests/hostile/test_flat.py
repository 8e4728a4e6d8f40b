"""Every public call and every refusal, some hundred times: what is held before is held after.

Run as a program, it prints a line for each call that leaves something each time; else "flat", and how many there are.
"""

import contextlib
import gc
from pathlib import Path

import pytest
from children import output_of
from leftovers import left_by

import metal_dlpack as md
import softmetal

pytest.importorskip("_testbuffer", reason="needs CPython's _testbuffer")

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_no_sanitizer]


#: So many calls are counted at once: counting takes longer than most calls.
GROUP = 25


def refusals():
    import test_refusals

    for name, (call, kind, _words) in test_refusals.REFUSED.items():

        def refuse(call=call, kind=kind):
            with contextlib.suppress(kind):
                call()

        yield f"refused: {name}", refuse


def refuse_source():
    softmetal.configure(fail="library@1+")
    with contextlib.suppress(md.CompileError):
        md.Library("kernel", defines={"N": 1})  # the text that is compiled is a new one
    softmetal.configure(fail=None)


def complaints(group, kept):
    """What some of the calls left: they go one by one only where all together leave something."""
    if left_by(lambda: [call() for _, call in group], kept) is None:
        return []
    return [f"{name}: {left}" for name, call in group if (left := left_by(call, kept))]


def main():
    import fault_calls

    gc.collect()
    gc.freeze()
    calls = [(name, call) for name, calls in fault_calls.CALLS.items() for call in calls]
    calls += [*refusals(), ("softmetal.configure: no library", refuse_source)]
    if not softmetal.is_present():
        calls = [(name, call) for name, call in calls if not name.startswith("softmetal.")]
    groups = [calls[at : at + GROUP] for at in range(0, len(calls), GROUP)]
    lines = [line for group in groups for line in complaints(group, fault_calls.KEPT)]
    print("\n".join(lines) or f"flat, {len(calls)} calls")


def test_no_public_call_leaves_anything():
    said = output_of(Path(__file__), timeout=600, SOFTMETAL_VALIDATION="0")
    assert said.startswith("flat, "), said
    assert int(said.split()[1]) > 360


if __name__ == "__main__":
    main()
