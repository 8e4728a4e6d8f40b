"""Which machine code of the extension is whose, for preloaded libraries that let its calls fail (chosen_code.h)."""

import itertools
import json
import os
import subprocess
from pathlib import Path


def spans_in(extension):
    """Places of machine code in the file, [begin, end, begin, end ...]: {"ours": ..., "softmetal": the software Metal's}.

    That one may stop the process where it has no memory for its own records.
    """
    listing = subprocess.run(["nm", "-nl", "--defined-only", extension], capture_output=True, text=True, check=True)
    symbols = [line.split(maxsplit=3) for line in listing.stdout.splitlines()]
    code = [(int(at, 16), "/softmetal/" in "".join(place)) for at, kind, _name, *place in symbols if kind in "tT"]
    pairs = list(itertools.pairwise(code))
    ours, softs = (
        [place for (begin, is_softs), (end, _) in pairs if is_softs == wanted for place in (begin, end)]
        for wanted in (False, True)
    )
    assert min(len(ours), len(softs)) > 200, "the extension was built without debug information"
    return {"ours": ours, "softmetal": softs}


def code_in(extension, whose):
    """As above, from the file that EXTENSION_CODE names: `nm` takes a second to look up the lines."""
    if known := os.environ.get("EXTENSION_CODE"):
        return json.loads(Path(known).read_text())[whose]
    return spans_in(extension)[whose]


def loaded(extension, places):
    """The addresses of these places in this process."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = int(next(line for line in maps if line.endswith(extension)).split("-")[0], 16)
    return [base + place for place in places]
