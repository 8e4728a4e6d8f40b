"""Right kernels of tests/seeded, and the defects to put into them: what the checker must say of each, and where.

    // given: {"threads": 128, "group": 64}, ("float32", 128), ("float32", (8, 16), 1), ("the first from", 64), 32

stands before a kernel and says how to launch it, before the first how all are that have none of their own: its arrays
hold 0, 1, 2, ..., or a number, or lie on the first one's memory from an item on; a number is given as it is.

    LINE // instead: NEW LINE // expect: KIND -1 0: WORDS

is a line and its defect.  The lines that the finding names are counted from it; the words are a regular expression.
A defect with `// always expect:` is tried in each run, the others in the tests marked long.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from places import TESTS

import metal_dlpack as md

KERNEL = re.compile(r"(?:kernel void |KERNEL\()(\w+)[(,](?!\s*\.\.\.)")
DEFECT = re.compile(r"// instead: (.*) // (always )?expect: (\S+)((?: -?\d+)+)(?:: (.*))?$")


@dataclass(frozen=True)
class Defect:
    number: int  # of its line, from 1
    line: str
    is_quick: bool  # for each run of the tests
    kind: str
    lines: tuple[int, ...]
    words: str


@dataclass(frozen=True)
class Seeded:
    """A kernel, how it is launched, and what can be wrong in it."""

    path: Path
    name: str
    text: str  # of its file; of the other kernels only their lines' number
    launch: dict
    arguments: tuple
    defects: tuple[Defect, ...]

    def kernel(self, defect=None):
        lines = self.text.split("\n")
        if defect is not None:
            lines[defect.number - 1] = defect.line
        return library_of("\n".join(lines), self.path).kernel(self.name)

    def arrays(self):
        given = []
        for one in self.arguments:
            if isinstance(one, int):
                given.append(one)
            elif one[0] == "the first from":
                given.append(given[0][one[1] :])
            else:
                dtype, shape, *value = one
                items = np.full(shape, *value) if value else np.arange(np.prod(shape)).reshape(shape)
                given.append(md.asarray(items.astype(dtype)))
        return given

    def run(self, defect=None, times=1):
        """Launch it; what the checker said last if it ended a launch."""
        kernel = self.kernel(defect)
        said = None
        for _ in range(times):
            given = self.arrays()
            try:
                kernel(*given, **self.launch)
                given[0].device.synchronize()
            except md.MetalError as error:
                assert "thread" in str(error)
                said = str(error)
        return said


def library_of(source, path):
    return md.Library(source, name=str(path), include=path.parent)


def _read(path):
    text = path.read_text()
    lines = text.rstrip("\n").split("\n")
    begins = [number for number, line in enumerate(lines) if KERNEL.match(line)]
    ends = [lines.index("}", begin) + 1 for begin in begins]
    assert text.count("instead:") == sum(bool(DEFECT.search(line)) for line in lines), path
    usual = next(line for line in lines if line.startswith("// given: "))
    for begin, end in zip(begins, ends, strict=True):
        given = lines[begin - 1] if lines[begin - 1].startswith("// given: ") else usual
        launch, *arguments = ast.literal_eval(given.removeprefix("// given: "))
        own = lines[:end]
        for other, last in zip(begins, ends, strict=True):
            if other < begin:
                own[other:last] = [""] * (last - other)
        found = [(n, DEFECT.search(line)) for n, line in enumerate(lines[:end], 1) if n > begin]
        defects = [
            Defect(n, one[1], bool(one[2]), one[3], tuple(n + int(other) for other in one[4].split()), one[5] or "")
            for n, one in found
            if one
        ]
        name = KERNEL.match(lines[begin])[1]
        yield Seeded(path, name, "\n".join(own), launch, tuple(arguments), tuple(defects))


SEEDED = {one.name: one for path in sorted((TESTS / "seeded").glob("*.metal")) for one in _read(path)}
