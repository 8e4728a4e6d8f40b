"""StridedLayout beside cuda.core's, one operation a line, in one process.

    taskset -c 1 python benchmarks/bench_layout.py [--rounds N] [--word WORD] [--check]

The two take turns; each turn repeats the operation for about a millisecond.  Printed: both
times of one operation, the loop's and the call's cost included, and the median over the turns
of ours divided by the peer's (below 1: ours is faster).  Keys and shapes are made outside.

`operations` make a layout or work something out.  Of the attributes, `made and asked` makes a
layout and asks it once; `asked again` reads what both have kept: there the interpreter's
look-up of the attribute, about 14 ns, is all that either spends, and no ratio much below 1 can
be had.  --check fails if an operation's ratio is above 0.7, or one of the last group above 1.15.
"""

import argparse
import statistics
import sys
import time
import timeit

from cuda.core._layout import _StridedLayout as Peer

import metal_dlpack as md

MOST = 0.7
MOST_AGAIN = 1.15
CLOCK = time.thread_time  # time that other processes take does not count

#: Statement by name; `L` is the class, a and b layouts, the rest is made in `namespace`.
OPERATIONS = {
    "make": "L((2, 3, 4), (12, 4, 1), 4)",
    "make, strides None": "L((2, 3, 4), None, 4)",
    "make, 8 dimensions": "L(shape8, strides8, 4)",
    "make, strides in bytes": "L((2, 3, 4), (48, 16, 4), 4, True)",
    "dense": "L.dense((2, 3, 4), 4)",
    "dense 'F'": "L.dense((2, 3, 4), 4, 'F')",
    "dense in an order": "L.dense((2, 3, 4), 4, (2, 0, 1))",
    "dense_like": "L.dense_like(b)",
    "to_dense, is dense": "a.to_dense()",
    "to_dense, is not": "b.to_dense()",
    "[1]": "a[1]",
    "[1, 2, 3]": "a[1, 2, 3]",
    "[1:]": "a[part]",
    "[1:, :, 0]": "a[parts]",
    "[::-1, ::2]": "a[stepped]",
    "sliced": "a.sliced(parts)",
    "reshaped": "a.reshaped((6, 4))",
    "reshaped, -1": "a.reshaped((-1, 4))",
    "reshaped, strided": "b.reshaped((2, 3, 2, 2))",
    "permuted": "a.permuted((2, 0, 1))",
    "squeezed": "a.squeezed()",
    "unsqueezed": "a.unsqueezed(1)",
    "unsqueezed, two": "a.unsqueezed((0, 4))",
    "broadcast_to": "a.broadcast_to((5, 2, 3, 4))",
    "flattened": "a.flattened()",
    "flattened, a span": "a.flattened(1, 2)",
    "repacked": "a.repacked(8)",
    "repacked, smaller": "a.repacked(2)",
    "max_compatible_itemsize": "a.max_compatible_itemsize()",
    "repr": "repr(a)",
}
FACTS = [
    *["shape", "strides", "strides_in_bytes", "stride_order", "volume", "offset_bounds", "min_offset", "max_offset"],
    *["is_contiguous_c", "is_contiguous_f", "is_contiguous_any", "is_dense", "is_unique", "slice_offset_in_bytes"],
    *["ndim", "itemsize", "slice_offset"],
]
ASKED = ["required_size_in_bytes()", "flattened_axis_mask()"]
FIRST = {f"make, then {name}": f"a[part].{name}" for name in FACTS + ASKED}
AGAIN = {name: f"a.{name}" for name in FACTS + ASKED} | {"==": "a == c"}


def namespace(layout_type):
    a = layout_type((2, 3, 4), (12, 4, 1), 4)
    return {
        "L": layout_type,
        "a": a,
        "b": layout_type((2, 3, 4), (1, 2, 12), 4),
        "c": layout_type((2, 3, 4), (12, 4, 1), 4),
        "part": slice(1, None),
        "parts": (slice(1, None), slice(None), 0),
        "stepped": (slice(None, None, -1), slice(None, None, 2)),
        "shape8": (2,) * 8,
        "strides8": (128, 64, 32, 16, 8, 4, 2, 1),
    }


def timers(statement):
    made = [timeit.Timer(statement, timer=CLOCK, globals=namespace(kind)) for kind in (md.StridedLayout, Peer)]
    count = max(int(1e-3 / max(made[1].timeit(1000) / 1000, 1e-9)), 100)
    return count, *made


def compare(statement, rounds):
    """Our time and the peer's, in ns, and the median of the ratios."""
    count, ours, theirs = timers(statement)
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            mine = ours.timeit(count)
            pairs.append((mine, theirs.timeit(count)))
        else:
            peer = theirs.timeit(count)
            pairs.append((ours.timeit(count), peer))
    times = [statistics.median(column) / count * 1e9 for column in zip(*pairs, strict=True)]
    return times[0], times[1], statistics.median(mine / peer for mine, peer in pairs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--word", default="", help="only operations whose name has it")
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    options = parser.parse_args()
    failures = []
    groups = {"operations": (OPERATIONS, MOST), "made and asked": (FIRST, MOST), "asked again": (AGAIN, MOST_AGAIN)}
    for title, (statements, most) in groups.items():
        print(f"{title:36}    ours    peer  ratio")
        for name, statement in statements.items():
            if options.word in name:
                ours, theirs, ratio = compare(statement, options.rounds)
                print(f"  {name:34} {ours:5.0f} ns {theirs:4.0f} ns  {ratio:.2f}")
                failures += [f"{name}: {ratio:.2f} is above {most}"] if ratio > most else []
    if options.check and failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
