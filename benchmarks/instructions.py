"""Instructions of the calls that everybody makes, counted by callgrind: the same number in every run of one build.

    python benchmarks/instructions.py [--check | --write]

Needs valgrind with its headers (Debian: valgrind) and a C compiler.  Builds the extension as it is released, in a
folder of its own.  Printed for each call: the instructions of the thread that calls, without those of the loop; then
how many of them are this package's own, which no other version of Python, NumPy or torch changes.

--check compares those of our own with instructions.json beside this file and ends with 1 where a call takes 3 % more;
where it takes 3 % less, write the file again.  Counts of another compiler, machine or Python are not comparable:
--check says so and ends with 2.  --write writes the file.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CALLS = 400
MOST = 1.03
ROOT = Path(__file__).resolve().parent.parent
COMMITTED = Path(__file__).with_suffix(".json")

#: The requests of <valgrind/callgrind.h>, as functions.
REQUESTS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


def cases() -> dict:
    import numpy as np
    import torch

    import metal_dlpack as md

    a = md.zeros((4, 5))
    x = np.zeros((4, 5), "float32")
    t = torch.from_dlpack(a)
    return {
        "nothing": lambda: None,
        "a.__dlpack__()": lambda: a.__dlpack__(),
        "a.__dlpack__(max_version=(1, 3))": lambda: a.__dlpack__(max_version=(1, 3)),
        "from_dlpack(Array)": lambda: md.from_dlpack(a),
        "from_dlpack(torch.Tensor)": lambda: md.from_dlpack(t),
        "from_dlpack(numpy.ndarray)": lambda: md.from_dlpack(x),
        "asarray(numpy.ndarray)": lambda: md.asarray(x),
        "a[1:, 2]": lambda: a[1:, 2],
        "a.to(torch.Tensor)": lambda tensor_type=torch.Tensor: a.to(tensor_type),
        "empty((4, 5))": lambda: md.empty((4, 5)),
        "numpy.asarray(a)": lambda: np.asarray(a),
        "a.fill(1)": lambda: a.fill(1),
        "a.copy()": lambda: a.copy(),
        "a.reshape(20)": lambda: a.reshape(20),
        "StridedLayout[1:, 2]": lambda layout=a.layout: layout[1:, 2],
    }


def child(library: str) -> None:
    requests = ctypes.CDLL(library)
    for name, call in cases().items():
        turns = range(CALLS)
        for _ in turns:
            call()  # warm: pools, caches of types, specialised byte code
        requests.begin()
        for _ in turns:
            call()
        requests.end(name.encode())


def build(folder: Path) -> Path:
    """The extension as it is released, in a copy of the package: the folder for PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "METAL_DLPACK_LTO"}
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return next(folder.glob("lib*"))


def own_instructions(text: str) -> int:
    """Of a callgrind file: those in this package's shared object, what it calls left out."""
    names: dict[str, str] = {}
    total, is_ours, is_inclusive = 0, False, False
    for line in text.splitlines():
        if found := re.match(r"ob=\((\d+)\)(?: (.*))?$", line):
            number, name = found.groups()
            names.setdefault(number, name or "")
            is_ours = "metal_dlpack/_core" in names[number]
        elif found := re.match(r"cob=\((\d+)\)(?: (.*))?$", line):
            names.setdefault(found[1], found[2] or "")
        elif line.startswith("calls="):
            is_inclusive = True  # the next line counts what the call took
        elif found := re.match(r"[+\-*\d]\S* (\d+)$", line):
            total += int(found[1]) if is_ours and not is_inclusive else 0
            is_inclusive = False
    return total


def counts(path: Path) -> dict[str, tuple[float, float]]:
    """For each call: all its instructions, and those of our own."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "requests.so")
        source = Path(folder, "requests.c")
        source.write_text(REQUESTS)
        subprocess.run([*compiler(), "-shared", "-fPIC", source, "-o", library], check=True)
        subprocess.run(
            [
                *("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--trace-children=no"),
                *(f"--callgrind-out-file={folder}/out", sys.executable, __file__, "--child", library),
            ],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(path)},
        )
        found = {}
        for out in Path(folder).glob("out.*"):
            text = out.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if name and total:
                found[name[1]] = int(total[1]) / CALLS, own_instructions(text) / CALLS
    nothing = found.pop("nothing")
    return {name: (total - nothing[0], own) for name, (total, own) in found.items()}


def compiler() -> list[str]:
    return os.environ.get("CC", "cc").split()


def conditions() -> dict[str, str]:
    """What else the counts of our own depend on: the headers and flags of Python, the compiler, the machine."""
    version = subprocess.run([*compiler(), "-dumpfullversion"], capture_output=True, text=True, check=True)
    return {
        "compiler": version.stdout.strip(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "flags": str(sysconfig.get_config_var("CFLAGS")),
    }


def compare(now: dict[str, tuple[float, float]]) -> int:
    committed = json.loads(COMMITTED.read_text())
    other = {name: value for name, value in conditions().items() if committed["conditions"][name] != value}
    if other:
        print(f"The counts in {COMMITTED.name} are of {committed['conditions']}, and cannot be compared: here {other}.")
        return 2
    before = committed["instructions"]
    changed = sorted(set(before) ^ set(now))
    slower = [name for name in now if name in before and now[name][1] > MOST * before[name]]
    faster = [name for name in now if name in before and now[name][1] < (2 - MOST) * before[name]]
    for name in faster:
        print(f"{name}: {now[name][1]:,.0f} instead of {before[name]:,.0f}; --write keeps it")
    for name in slower:
        print(f"SLOWER {name}: {now[name][1]:,.0f} instead of {before[name]:,.0f} instructions of our own")
    for name in changed:
        print(f"NOT COMPARED {name}: only one of the file and this run has it")
    return 1 if slower or changed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="end with 1 where a call takes 3 %% more than committed")
    parser.add_argument("--write", action="store_true", help="write the file that is committed")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        now = counts(build(Path(folder)))
    print(f"{'instructions a call':36} {'all':>10} {'our own':>10}")
    for name in sorted(now):
        print(f"{name:36} {now[name][0]:10,.0f} {now[name][1]:10,.0f}")
    if options.write:
        own = {name: round(now[name][1]) for name in sorted(now)}
        COMMITTED.write_text(json.dumps({"conditions": conditions(), "instructions": own}, indent=2) + "\n")
    return compare(now) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
