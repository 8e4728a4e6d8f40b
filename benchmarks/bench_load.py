"""load(): a model read into buffers, beside plain reads of the same bytes, safetensors and torch.

    python benchmarks/bench_load.py [--gib N] [--rounds N] [--place N] [--folder FOLDER] [--check]

One file, and the same tensors in 64 shards; cached (in the page cache) and cold (dropped from it before each turn).
The layers have the shapes of Llama 3.2 1B.  --place: where the first tensor of each file begins, in bytes modulo 64
(default: 0); safetensors leaves it at any multiple of 8, as the names are long.
All that are compared take turns.  Printed: the median of the GB/s, and the median of theirs divided by ours, turn by
turn: above 1, ours is faster.

- into warm memory, where bytes were before: what a second model finds once the first one's buffers are in the pool.
  `pread` is the yardstick: as many threads as load() has do nothing but read 8 MiB after 8 MiB into such memory.
  `pread by tensor` reads each tensor to the beginning of a page, as load() must: where --place is not 0, the processor
  copies that slower.
- into fresh memory, which the system gives page by page while it is written.  torch.load(mmap) is followed by a clone
  of each tensor, since load() leaves the file.
- in place: a map's pages are touched, a byte of each; nothing has memory of its own.

Peak: what a process of its own has in memory at most, less what it had before, beside the length of the files.
--check fails if load() is below 0.95 of pread (where --place is not 0, of pread by tensor), or below safetensors' pread
or torch into fresh memory, or if its peak is 64 MiB above the files' length.
"""

import argparse
import ctypes
import functools
import json
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import safetensors.torch
import torch

import metal_dlpack as md
from metal_dlpack.files import reading

MIB, GIB = 1 << 20, 1 << 30
PAGE = 4096
SHARDS = 64
HIDDEN, KEYS, INNER = 2048, 512, 8192
SELF = Path(__file__).resolve()


# ---- the model ----


def layer(number: int) -> dict[str, torch.Tensor]:
    shapes = {"q": (HIDDEN, HIDDEN), "k": (KEYS, HIDDEN), "v": (KEYS, HIDDEN), "o": (HIDDEN, HIDDEN)}
    shapes |= {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER), "norm": (HIDDEN,)}
    return {f"layers.{number}.{name}.weight": torch.randn(shape).bfloat16() for name, shape in shapes.items()}


def write_model(folder: Path, nbytes: int, shards: int, place: int) -> None:
    """`nbytes` in at most as many .safetensors files, cut between tensors, and in as many .pt files beside them."""
    each = sum(tensor.nbytes for tensor in layer(0).values())
    layers, places = max(nbytes // each, 1), {}
    for shard, group in groupby(in_shards(layers, layers * each / shards), itemgetter(0)):
        state = {name: tensor for _, name, tensor in group}
        name = f"model-{shard:05}.safetensors"
        save_at(state, folder / name, place)
        torch.save(state, folder / name.replace(".safetensors", ".pt"))
        places |= dict.fromkeys(state, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def in_shards(layers: int, share: float) -> Iterator[tuple[int, str, torch.Tensor]]:
    begin = 0
    for number in range(layers):
        for name, tensor in layer(number).items():
            yield int(begin / share), name, tensor
            begin += tensor.nbytes


def save_at(state: dict[str, torch.Tensor], path: Path, place: int) -> None:
    """The first tensor begins at `place` modulo 64: metadata moves it."""
    safetensors.torch.save_file(state, path, {"moves": ""})
    _, begin = header_of(path)
    safetensors.torch.save_file(state, path, {"moves": " " * ((place - begin) % 64)})


def header_of(path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the first tensor begins."""
    with open(path, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        return json.loads(stream.read(length)), 8 + length


def files_of(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def drop(folder: Path) -> None:
    for path in files_of(folder, ".safetensors") + files_of(folder, ".pt"):
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(folder: Path, name: str) -> None:
    """The files that this one reads, again before each turn: other programs' files push them out."""
    for path in files_of(folder, ".pt" if name.startswith("torch") else ".safetensors"):
        with open(path, "rb", buffering=0) as stream:
            while stream.read(16 * MIB):
                pass


# ---- who reads ----


def ours(folder: Path) -> object:
    return md.load(folder)


def mapped(folder: Path) -> object:
    with md.open(folder) as model:
        held = dict(model)
    for array in held.values():
        np.asarray(array.view("uint8").reshape(-1))[::PAGE].max()
    return held


def by_safetensors(folder: Path, backend: str) -> dict[str, torch.Tensor]:
    held = {}
    for path in files_of(folder, ".safetensors"):
        held |= safetensors.torch.load_file(path, backend=backend)
    return held


def by_torch(folder: Path) -> dict[str, torch.Tensor]:
    held = {}
    for path in files_of(folder, ".pt"):
        held |= torch.load(path, mmap=True, weights_only=True)
    return held


def touched(held: dict[str, torch.Tensor]) -> object:
    for tensor in held.values():
        tensor.view(torch.uint8).view(-1)[::PAGE].max()
    return held


def cloned(held: dict[str, torch.Tensor]) -> object:
    return {name: tensor.clone() for name, tensor in held.items()}


Loaders = dict[str, Callable[[Path], object]]
READERS: Loaders = {
    "md.load": ours,
    "safetensors pread": lambda folder: by_safetensors(folder, "pread"),
    "torch.load, clone": lambda folder: cloned(by_torch(folder)),
}
MAPPERS: Loaders = {
    "md.open": mapped,
    "safetensors mmap": lambda folder: touched(by_safetensors(folder, "mmap")),
    "torch.load(mmap)": lambda folder: touched(by_torch(folder)),
}


def pieces_of(folder: Path, by_tensor: bool) -> Iterator[tuple[Path, int, int]]:
    """(file, first byte, end): whole files, as `dd` would read them, or tensor by tensor, as a loader must."""
    for path in files_of(folder, ".safetensors"):
        if not by_tensor:
            yield path, 0, path.stat().st_size
            continue
        header, begin = header_of(path)
        for name, facts in header.items():
            if name != "__metadata__":
                first, end = facts["data_offsets"]
                yield path, begin + first, begin + end


def plain_reads(pieces: list[tuple[Path, int, int]], memory: memoryview) -> None:
    """What `dd` would do, if it had threads.  Each piece goes to the beginning of a page."""
    files = {path: os.open(path, os.O_RDONLY) for path in dict.fromkeys(path for path, _, _ in pieces)}
    parts, place = [], 0
    for path, begin, end in pieces:
        for first in range(begin, end, 8 * MIB):
            parts.append((files[path], first, place + first - begin, min(8 * MIB, end - first)))
        place += (end - begin) // PAGE * PAGE + PAGE
    waiting = iter(parts)
    lock = threading.Lock()

    def read() -> None:
        while True:
            with lock:
                part = next(waiting, None)
            if part is None:
                return
            file, first, place, nbytes = part
            if os.preadv(file, [memory[place : place + nbytes]], first) != nbytes:
                raise OSError("a read was short")

    threads = [threading.Thread(target=read) for _ in range(reading.THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for file in files.values():
        os.close(file)


# ---- turns ----


def turns(rounds: int, before: Callable[[str], object], **calls: Callable[[], object]) -> dict[str, list[float]]:
    """The seconds of each call, turn by turn.  What a call returns is dropped after its time is taken."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        order = list(calls) if turn % 2 == 0 else list(reversed(calls))
        for name in order:
            before(name)
            start = time.perf_counter()
            held = calls[name]()
            seconds[name].append(time.perf_counter() - start)
            del held
    return seconds


def tell(label: str, nbytes: int, seconds: dict[str, list[float]]) -> dict[str, float]:
    """Print a line each; the ratios of the others to ours."""
    ratios = {}
    for name, own in seconds.items():
        ratios[name] = median(theirs / mine for theirs, mine in zip(own, seconds["md.load"], strict=True))
        speed = median(nbytes / second for second in own) / 1e9
        print(f"  {label:<32}{name:<20}{speed:8.2f} GB/s{ratios[name]:8.2f}", flush=True)
    return ratios


def compare(folder: Path, label: str, rounds: int, place: int) -> bool:
    nbytes = sum(path.stat().st_size for path in files_of(folder, ".safetensors"))
    is_good = True
    for state, before in (("cached", functools.partial(warm, folder)), ("cold", lambda name: drop(folder))):
        label_here = f"{label}, {state}"
        whole, tensors = (list(pieces_of(folder, by_tensor)) for by_tensor in (False, True))
        memory = memoryview(mmap.mmap(-1, nbytes + PAGE * len(tensors)))
        plain_reads(whole, memory)
        md.load(folder)  # leaves its buffers to the pool
        calls = {
            "md.load": functools.partial(ours, folder),
            "pread": functools.partial(plain_reads, whole, memory),
            "pread by tensor": functools.partial(plain_reads, tensors, memory),
        }
        ratios = tell(f"{label_here}, warm memory", nbytes, turns(4 * rounds + 1, before, **calls))
        is_good = is_good and ratios["pread by tensor" if place else "pread"] >= 0.95
        del memory, calls

        def fresh(name: str, before: Callable[[str], object] = before) -> None:
            md.empty_cache()
            ctypes.CDLL(None).malloc_trim(0)  # the C library keeps what torch frees
            before(name)

        calls = {name: functools.partial(reader, folder) for name, reader in READERS.items()}
        seconds = turns(rounds, fresh, **calls)
        is_good = min(tell(f"{label_here}, fresh memory", nbytes, seconds).values()) >= 1 and is_good
        calls = {name: functools.partial(mapper, folder) for name, mapper in MAPPERS.items()}
        tell(f"{label_here}, in place", nbytes, {"md.load": seconds["md.load"], **turns(rounds, fresh, **calls)})
    return is_good


# ---- memory ----


def peaks(folder: Path, label: str) -> bool:
    nbytes = sum(path.stat().st_size for path in files_of(folder, ".safetensors"))
    is_good = True
    for name in READERS:
        child = subprocess.run(
            [sys.executable, SELF, "--peak", name, folder], capture_output=True, text=True, check=True
        )
        more = int(child.stdout) - nbytes
        print(f"  {label:<32}{name:<20}{more / MIB:+8.0f} MiB beside the files' {nbytes / MIB:.0f}", flush=True)
        is_good = is_good and (name != "md.load" or more <= 64 * MIB)
    return is_good


def print_peak(name: str, folder: Path) -> None:
    loader = READERS[name]
    md.zeros(1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    held = loader(folder)
    print(resident("VmHWM") - before)
    del held


def resident(field: str) -> int:
    lines: Iterator[str] = iter(Path("/proc/self/status").read_text().splitlines())
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", type=int, default=0, choices=range(0, 64, 8))
    parser.add_argument("--folder", type=Path, help="where the files are made; default: the system's for such files")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print_peak(arguments.peak[0], Path(arguments.peak[1]))
        return 0
    good = []
    for label, shards in (("one file", 1), (f"{SHARDS} shards", SHARDS)):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            write_model(Path(name), int(arguments.gib * GIB), shards, arguments.place)
            good += [compare(Path(name), label, arguments.rounds, arguments.place), peaks(Path(name), label)]
    return 1 if arguments.check and not all(good) else 0


if __name__ == "__main__":
    sys.exit(main())
