"""Which machine code of the extension is whose, for preloaded libraries that let its calls fail (chosen_code.h)."""

import itertools
import subprocess
from pathlib import Path


def code_in(extension, *, of_softmetal=False):
    """Places of machine code in the file, [begin, end, begin, end ...]: all without the software Metal's, or only that.

    That one may stop the process where it has no memory for its own records.
    """
    listing = subprocess.run(["nm", "-nl", "--defined-only", extension], capture_output=True, text=True, check=True)
    symbols = [line.split(maxsplit=3) for line in listing.stdout.splitlines()]
    code = [(int(at, 16), "/softmetal/" in "".join(place)) for at, kind, _name, *place in symbols if kind in "tT"]
    spans = [[begin, end] for (begin, is_softs), (end, _) in itertools.pairwise(code) if is_softs == of_softmetal]
    assert 100 < len(spans) < len(code) - 100, "the extension was built without debug information"
    return list(itertools.chain.from_iterable(spans))


def loaded(extension, places):
    """The addresses of these places in this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = int(next(line for line in maps if line.endswith(extension)).split("-")[0], 16)
    return [base + place for place in places]
