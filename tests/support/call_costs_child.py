"""What public calls ask for, as JSON: {call: {"metal": {selector: count}, "malloc": count, "python": count}}.

    LD_PRELOAD=short_malloc.so:counted_messages.so python call_costs_child.py short_python.so CALL ...

Each call is made a few times first, and what it gave is kept, so that no memory of a dead object is at hand, but for
those that end with ", dropped".  "malloc" and "python" are the allocations of the extension's own code, "metal" the messages
that it sends; the software Metal's are left out.
"""

import ctypes
import json
import sys
import warnings
from collections import deque

import no_memory_child
import numpy as np
import torch

import metal_dlpack as md
import softmetal

MANY = 1_000_000


def names():
    """What the calls are made of."""
    a, b = md.zeros((4, 5)), md.zeros((4, 5))
    warnings.filterwarnings("ignore", "PyTorch has no mps here")
    x, t = np.zeros((4, 5), "float32"), torch.from_dlpack(md.zeros((4, 5)))
    private, stream = md.empty((4, 5), storage="private"), md.Stream()
    event = stream.record()
    return {**locals(), "md": md, "np": np}


class Counters:
    def __init__(self, library):
        self.python = no_memory_child.PythonsAllocations(library)
        self.spans = no_memory_child.Mallocs().bounds
        self.preloaded = ctypes.CDLL(None)
        self.preloaded.counted_messages_choose(self.spans, ctypes.c_size_t(len(self.spans)))
        self.text = ctypes.create_string_buffer(8192)

    def costs(self, call, kept):
        """Count what one call costs, each kind in a call of its own, as the counters ask for memory themselves."""

        def make():
            kept.append(call())

        for _ in range(8):
            make()
        softmetal.wait_idle()
        kept.append(self.python.call(call, MANY))
        python = MANY - self.python.library.short_python_left()
        softmetal.wait_idle()
        self.preloaded.short_malloc_arm(ctypes.c_long(MANY))
        make()
        malloc = MANY - self.preloaded.short_malloc_left()
        self.preloaded.short_malloc_arm(ctypes.c_long(0))
        softmetal.wait_idle()
        self.preloaded.counted_messages_begin()
        make()
        self.preloaded.counted_messages_end(self.text, ctypes.c_size_t(len(self.text)))
        softmetal.wait_idle()
        lines = self.text.value.decode().splitlines()
        return {
            "metal": {name: int(count) for name, count in map(str.split, lines)},
            "malloc": malloc,
            "python": python,
        }


def main():
    counters, given, costs = Counters(sys.argv[1]), names(), {}
    for name in sys.argv[2:]:
        call = name.removesuffix(", dropped")
        costs[name] = counters.costs(eval(f"lambda: {call}", given), deque(maxlen=None if call == name else 0))
    print(json.dumps(costs, indent=1))


if __name__ == "__main__":
    main()
