"""Compile the compute kernels of public repositories: corpora.py [NAME...] [--page] [--jobs N].

    corpora.py naga tnn     two of tests/support/metal_corpora.py; without a name, all of them
    corpora.py --page       writes the table to docs/inside/kernels.md too

Each corpus is fetched once, at the commit in the table; with CORPORA=folder from a clone in folder/NAME.
"""

import argparse
import multiprocessing
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/support")]

from metal_corpora import CORPORA, Corpus, Program, fetch, programs  # noqa: E402
from suites_rows import placed, shown  # noqa: E402

PAGE = ROOT / "docs/inside/kernels.md"


@dataclass
class Outcome:
    """What became of the kernels of one program: their number, and what is said of each that is refused."""

    file: str
    kernels: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def compiled(program: Program) -> Outcome:
    from softmetal import msl

    outcome = Outcome(program.file)
    try:
        library = msl.open_library(program.text)
    except (msl.SourceError, msl.CompilerError) as error:
        return Outcome(program.file, 1, {"(all)": said_by(error)})
    for name, function in library.functions.items():
        if function.stage == "kernel":
            outcome.kernels += 1
            values = {one.index: bytes(16) for one in function.constants if one.is_required}
            try:
                library.compile(name, values)
            except (msl.SourceError, msl.CompilerError) as error:
                outcome.refused[name] = said_by(error)
    return outcome


def said_by(error: Exception) -> str:
    first = next((line for line in str(error).splitlines() if "error:" in line), str(error).partition("\n")[0])
    return first.partition("error: ")[2] or first


def reason(said: str) -> str:
    """What a refusal counts as: what needs a Mac, else the compiler's words without names."""
    needs = re.search(r"needs (.+), which need a Mac", said)
    return needs[1] if needs else re.sub(r"'[^']*'", "'…'", said)


def row_of(corpus: Corpus, outcomes: list[Outcome]) -> tuple[str, float]:
    """The row of the table, and the percentage of the kernels that compile."""
    kernels = sum(one.kernels for one in outcomes)
    taken = kernels - sum(len(one.refused) for one in outcomes)
    share = 100 * taken / max(kernels, 1)
    reasons = Counter(reason(said) for one in outcomes for said in one.refused.values())
    why = "; ".join(f"{number} {shown(said)}" for said, number in reasons.most_common(4))
    cells = [f"{corpus.name} {corpus.commit[:12]}", corpus.date, len(outcomes), kernels, taken, f"{share:.1f} %", why]
    return f"| {' | '.join(map(str, cells))} |", share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if unknown := set(options.names) - set(CORPORA):
        parser.error(f"there is no {', '.join(unknown)} in tests/support/metal_corpora.py")
    status = 0
    for corpus in [CORPORA[name] for name in options.names or CORPORA]:
        try:
            fetch(corpus)
        except OSError as error:
            print(f"== {corpus.name}: left out: {error}", flush=True)
            status = 1  # its kernels' tests would skip, and nobody would see
            continue
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            outcomes = pool.map(compiled, programs(corpus), chunksize=1)
        row, share = row_of(corpus, outcomes)
        status |= share < corpus.least
        print(row, flush=True)
        for one in outcomes:
            for kernel, said in one.refused.items():
                print(f"   {one.file}: {kernel}: {said}", flush=True)
        if options.page:
            PAGE.write_text(placed(PAGE.read_text(), corpus.name, {"corpora": [row]}))
    return status


if __name__ == "__main__":
    sys.exit(main())
