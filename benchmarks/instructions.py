"""Instructions of the calls that everybody makes, counted by callgrind: the same number in every run of one build.

    python benchmarks/instructions.py [--json FILE] [--against FILE]

Needs valgrind with its headers (Debian: valgrind) and a C compiler.  Build without METAL_DLPACK_LTO=0 first: what is
released is what counts.  Printed: instructions per call, in the thread that calls, without those of the loop round it.
--against compares with an earlier --json FILE and fails where a call takes more than 2 % more.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = 400
MOST = 1.02

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


def counts() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "requests.so")
        source = Path(folder, "requests.c")
        source.write_text(REQUESTS)
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", source, "-o", library], check=True)
        subprocess.run(
            [
                *("valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", "--trace-children=no"),
                *(f"--callgrind-out-file={folder}/out", sys.executable, __file__, "--child", library),
            ],
            check=True,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        found = {}
        for path in Path(folder).glob("out.*"):
            text = path.read_text()
            name = re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if name and total:
                found[name[1]] = int(total[1]) / CALLS
    return {name: found[name] - found["nothing"] for name in found if name != "nothing"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    parser.add_argument("--against", type=Path, help="a file of --json to compare with")
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    now = counts()
    before = json.loads(options.against.read_text()) if options.against else {}
    if options.json:
        options.json.write_text(json.dumps(now, indent=2, sort_keys=True) + "\n")
    slower = 0
    for name in sorted(now):
        ratio = now[name] / before[name] if name in before else None
        slower += ratio is not None and ratio > MOST
        print(f"{name:36} {now[name]:10,.0f}" + (f"  {ratio:6.3f} of before" if ratio else ""))
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
