"""Do what README.md says first, from an empty environment; say how long it takes and how much it downloads.

    python tools/first_day.py

The Python that runs this, a new clone of HEAD, an empty home: of the environment only what leads pip and git to the
network is kept.  `make demo`, until one write was seen by every framework; then a model file, until its weights are on
torch's mps device and have computed.  It fails where that passes LIMITS.

Downloads are the clone, Debian's packages and what pip fetches; a wheel that pip finds in a folder counts as well.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: Seconds from the start, and megabytes.
LIMITS = {"first sharing": 180, "weights on mps": 300, "downloads": 450}

KEPT = re.compile(r"PIP_(?!CACHE_DIR|LOG).*|(?:HTTPS?|NO|ALL)_PROXY|SSL_CERT_(?:FILE|DIR)", re.IGNORECASE)
UNITS = {"k": 1e-3, "M": 1, "G": 1e3}


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    path = f"{Path(sys.base_prefix) / 'bin'}:{os.defpath}"
    return {**kept, "HOME": str(home), "PATH": path, "PIP_LOG": str(home / "pip.log"), "PYTHONUNBUFFERED": "1"}


class Clock:
    """Prints what a command prints behind the seconds since the start, and remembers when a line came."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.text = ""

    def run(self, command: list[str], cwd: Path, env: dict[str, str], awaited: str) -> float:
        """The seconds at which a line began with what is awaited."""
        came = None
        print(f"{self.now():5.0f} s  $ {' '.join(command)}", flush=True)
        with subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            for line in child.stdout:
                if came is None and line.startswith(awaited):
                    came = self.now()
                self.text += line
                print(f"{self.now():5.0f} s  {line}", end="", flush=True)
        if child.returncode or came is None:
            sys.exit(f"first_day: {' '.join(command)} ended with {child.returncode}, and printed no {awaited!r}")
        return came

    def now(self) -> float:
        return time.monotonic() - self.start


def megabytes(clone: Path, said: str, log: str) -> float:
    found = re.findall(r"installing Debian's .*, ([\d.]+) ([kM])B", said)
    found += re.findall(r" Downloading \S+ \(([\d.]+) ([kMG])B\)", log)
    fetched = sum(float(number) * UNITS[unit] for number, unit in found)
    lying = [Path(path) for path in re.findall(r" Processing (/\S+\.whl)", log)]
    packs = [path for path in (clone / ".git").rglob("*") if path.is_file()]
    return fetched + sum(path.stat().st_size for path in [*lying, *packs]) / 1e6


def newcomer() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        home, clone = Path(name), Path(name, "metal_dlpack")
        env, clock = environment(home), Clock()
        subprocess.run(["git", "clone", "-q", "--no-local", ROOT, clone], env=env, check=True)
        sharing = clock.run(["make", "demo"], clone, env, "After array[1, 2] = 42")
        again = [str(clone / ".venv/bin/python"), __file__, "--weights"]
        weights = clock.run(again, home, env, "computed on mps")
        fetched = megabytes(clone, clock.text, Path(env["PIP_LOG"]).read_text())
    return {"first sharing": sharing, "weights on mps": weights, "downloads": fetched}


def put_weights_on_mps() -> None:
    """A file of 67 MB in the format of safetensors, a model without memory, and a batch through it."""
    import torch

    import metal_dlpack as md
    import softmetal

    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048))

    path, header, at = Path("model.safetensors"), {}, 0
    trained = model()
    state = trained.state_dict()
    for name, tensor in state.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t.numpy().tobytes() for t in state.values()))

    if softmetal.is_present():
        softmetal.torch_mps()
    with torch.device("meta"):
        loaded = model()
    weights = {name: torch.from_dlpack(array) for name, array in md.open(path).items()}
    loaded.load_state_dict(weights, assign=True)
    batch = torch.randn(8, 2048)
    with torch.no_grad():
        torch.testing.assert_close(loaded(batch.to("mps")).cpu(), trained(batch))
    print(f"computed on {next(loaded.parameters()).device}, with {at / 1e6:.0f} MB of weights from {path}")


def main() -> None:
    if sys.argv[1:] == ["--weights"]:
        put_weights_on_mps()
        return
    found = newcomer()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU seconds of all that: {used.ru_utime + used.ru_stime:.0f}")
    over = [name for name, limit in LIMITS.items() if found[name] > limit]
    for name, limit in LIMITS.items():
        unit = "MB" if name == "downloads" else "s"
        print(f"{name:<16}{found[name]:6.0f} {unit:<3} (at most {limit})")
    if over:
        sys.exit(f"first_day: over the limit: {', '.join(over)}")


if __name__ == "__main__":
    main()
