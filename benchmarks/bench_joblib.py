"""joblib: how long a large Array takes to two workers, beside a NumPy array.

    python benchmarks/bench_joblib.py [--mib N] [--rounds N]

Printed: the least time of the rounds.  The workers run already, and have imported what they need.  "by value" is
max_nbytes=None: through a pipe, once for each task.
"""

import argparse
import time

import joblib
import numpy as np

import metal_dlpack as md


def last_item(array) -> float:
    return float(np.asarray(array)[-1])


def seconds_for_two_tasks(array, rounds: int, **options) -> float:
    best = float("inf")
    for _ in range(rounds + 1):  # the first starts the workers and imports
        start = time.perf_counter()
        joblib.Parallel(n_jobs=2, **options)(joblib.delayed(last_item)(array) for _ in range(2))
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    numpy = np.ones(options.mib * (1 << 18), "float32")
    array = md.asarray(numpy)
    for name, what, extra in (
        ("NumPy array", numpy, {}),
        ("Array", array, {}),
        ("NumPy array by value", numpy, {"max_nbytes": None}),
        ("Array by value", array, {"max_nbytes": None}),
    ):
        print(f"{name:24}{seconds_for_two_tasks(what, options.rounds, **extra):8.2f} s")


if __name__ == "__main__":
    main()
