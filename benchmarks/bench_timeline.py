"""What a timeline costs: the same fills on a stream with one open and without, in turn; and its memory.

    python benchmarks/bench_timeline.py

A fill is the shortest piece of work, so the ratio is the worst.  Each figure is the least of all rounds: what else the
machine does only adds.
"""

import time

import metal_dlpack as md

ROUNDS, CALLS = 200, 50


def fills(array: md.Array, stream: md.Stream) -> float:
    """Microseconds of a call."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        array.fill(1, stream=stream)
    seconds = time.perf_counter() - begin
    stream.synchronize()
    return seconds / CALLS * 1e6


def main() -> None:
    array, stream = md.zeros(64), md.Stream()
    without, recorded = [], []
    for _ in range(ROUNDS):
        without.append(fills(array, stream))
        with md.timeline():
            recorded.append(fills(array, stream))
    print(f"a fill on a stream: {min(without):.2f} µs; with a timeline open {min(recorded):.2f} µs")
    print(f"a record: {min(recorded) - min(without):.2f} µs of the caller's time")


if __name__ == "__main__":
    main()
