"""open(): files of any size, mapped or read, beside the formats' own loaders, in one process.

    python benchmarks/bench_files.py [--rounds N] [--check]

Printed: the least time of many turns, taken one after the other by all that are compared.  Files are in the page cache.
"every tensor" is open, each tensor of the file by name, one item of each page read, and all of it let go.  --check
fails if a 10 GiB file does not open within twice the time of a small one, or takes memory, if a file on either side
of READ_BELOW is better off on the other by more than a fifth, or if a model's tensors reach torch later than by
safetensors.torch.load_file.
"""

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import metal_dlpack as md
from metal_dlpack.files import memory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
import file_cases as cases

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE_ITEMS = 4096 // 4


def turns(rounds: int, before=None, **calls) -> dict[str, float]:
    """The least time of each call, in microseconds; they take turns.  `before` runs ahead of each, not timed."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            if before is not None:
                before()
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: seconds * 1e6 for name, seconds in best.items()}


def touch(array: np.ndarray) -> None:
    array.reshape(-1)[::PAGE_ITEMS].max()


# ---- constant time ----


def open_sizes(folder: Path, rounds: int) -> bool:
    print("\nopen and take each of 16 tensors, by the size of the file (microseconds; MiB of memory more)")
    times = {}
    for label, each in (("1 MiB", MIB // 16), ("1 GiB", GIB // 16), ("10 GiB", 10 * GIB // 16)):
        path = cases.write_sparse_safetensors(folder / "sparse.safetensors", 16, each)
        held = []

        def take(path=path, held=held):
            with md.open(path) as file:
                held[:] = list(file.values())

        take()
        before = cases.resident_nbytes()
        times[label] = turns(rounds, ours=take)["ours"]
        grown = (cases.resident_nbytes() - before) / MIB
        print(f"  {label:<8}{times[label]:10.1f}{grown:10.2f}")
        if grown > 1:
            return False
    return times["10 GiB"] <= 2 * times["1 MiB"]


# ---- mapped or read ----


def every_tensor(path: Path) -> None:
    with md.open(path) as file:
        for array in file.values():
            touch(np.asarray(array))


def forced(path: Path, read_below: int) -> None:
    """every_tensor with the threshold elsewhere."""
    kept = memory.Memory.__init__.__defaults__
    memory.Memory.__init__.__defaults__ = (read_below,)
    try:
        every_tensor(path)
    finally:
        memory.Memory.__init__.__defaults__ = kept


def mapped_or_read(folder: Path, rounds: int) -> bool:
    print(f"\nevery tensor, mapped or read (microseconds); files from {memory.READ_BELOW // KIB} KiB up are mapped")
    print(
        "(read: into memory that the pool has not; warm: into memory that it has, as a second file of that size finds)"
    )
    print(f"  {'size':<10}{'mapped':>10}{'read':>10}{'warm':>10}{'mapped/read':>13}")
    is_good = True
    for kib in (4, 8, 16, 32, 64, 256, 1024, 16 * 1024):
        path = write_eight(folder / "eight.safetensors", kib * KIB)
        count = rounds if kib <= 1024 else max(rounds // 10, 3)
        reads = functools.partial(forced, path, 1 << 40)
        found = turns(count, md.empty_cache, mapped=functools.partial(forced, path, 0), read=reads)
        warm = turns(count, warm=reads)["warm"]
        ratio = found["mapped"] / found["read"]
        print(f"  {kib:>6} KiB{found['mapped']:10.1f}{found['read']:10.1f}{warm:10.1f}{ratio:13.2f}")
        is_mapped = path.stat().st_size >= memory.READ_BELOW
        is_good = is_good and (ratio < 1.2 if is_mapped else ratio > 1 / 1.2)
    return is_good


def write_eight(path: Path, nbytes: int) -> Path:
    from safetensors.numpy import save_file

    save_file({f"t{i}": np.ones(nbytes // 32, "f4") for i in range(8)}, path)
    return path


# ---- beside the loaders ----


def loaders(folder: Path, rounds: int) -> None:
    print("\nevery tensor of a 64 MiB file, and open alone, beside the format's own loader (microseconds)")
    path = write_eight(folder / "a.safetensors", 64 * MIB)
    compare("safetensors", path, rounds, functools.partial(by_safetensors, path))
    np.save(folder / "a.npy", np.ones(16 * MIB, "f4"))
    compare("npy", folder / "a.npy", rounds, lambda: touch(np.load(folder / "a.npy", mmap_mode="r")))
    path = cases.write_gguf(folder / "a.gguf", scale=5000)
    compare("gguf", path, rounds, functools.partial(by_gguf, path))
    path = write_vocabulary(folder / "words.gguf")
    compare("gguf, vocabulary of 128,000", path, 3, functools.partial(by_gguf, path))


def models(folder: Path, rounds: int) -> bool:
    import torch
    from safetensors.torch import load_file, save_file

    print("\na model as tensors of torch on the CPU, beside safetensors.torch.load_file (microseconds)")
    is_good = True
    for tensors, mib in ((290, 300), (290, 30), (1000, 1000)):
        path = folder / "model.safetensors"
        each = torch.ones(mib * MIB // tensors // 4)
        save_file({f"model.layers.{i}.mlp.weight": each.clone() for i in range(tensors)}, path)

        def ours(path=path):
            with md.open(path) as model:
                return {name: torch.from_dlpack(array.host) for name, array in model.items()}

        found = turns(rounds, ours=ours, loader=functools.partial(load_file, path))
        is_good = is_good and found["ours"] <= found["loader"]
        label = f"{tensors} tensors, {mib} MiB"
        print(f"  {label:<30}{found['ours']:12.1f}{found['loader']:14.1f}   open {open_alone(path, rounds):10.1f}")
        path.unlink()
    return is_good


def by_safetensors(path: Path) -> None:
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        for name in file.keys():  # noqa: SIM118
            touch(file.get_tensor(name))


def by_gguf(path: Path) -> None:
    from gguf import GGUFReader

    for tensor in GGUFReader(path).tensors:
        touch(tensor.data)


def write_vocabulary(path: Path) -> Path:
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token{i}" for i in range(128_000)])
    writer.add_token_types([1] * 128_000)
    writer.add_tensor("a", np.ones((64, 64), "f4"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def compare(label: str, path: Path, rounds: int, loader) -> None:
    found = turns(max(rounds // 10, 3), ours=lambda: every_tensor(path), loader=loader)
    ratio = found["ours"] / found["loader"]
    print(
        f"  {label:<30}{found['ours']:12.1f}{found['loader']:14.1f}{ratio:8.3f}   open {open_alone(path, rounds):10.1f}"
    )


def open_alone(path: Path, rounds: int) -> float:
    return turns(rounds, ours=lambda: md.open(path).close())["ours"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = [open_sizes(folder, arguments.rounds), mapped_or_read(folder, arguments.rounds)]
        good.append(models(folder, arguments.rounds))
        loaders(folder, arguments.rounds)
    return 1 if arguments.check and not all(good) else 0


if __name__ == "__main__":
    sys.exit(main())
