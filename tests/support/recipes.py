"""The pages of the repository and their code, for tests that run it as it stands there.

A comment on the line before a block says what is special about it; readers do not see it:

    <!-- not run: why -->             of Python; of another language also `run by: tests/...`, the file that does
    <!-- run by: tests/... -->
    <!-- needs: mlx_metal -->         the markers of tests/conftest.py without `needs_`
    <!-- timeline -->                 its Timeline, `seen`, is drawn behind it on the site: tools/site_timelines.py
    <!-- printed -->                  the block is what the code so far, from the last such block on, has printed
"""

import dataclasses
import re

from places import DOCS, ROOT

FENCE = re.compile(r"(?:^ *<!-- ([^\n]*) -->\n)?^( *)```([^\n`]*)\n(.*?)^\2```$", re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its first line in the page
    mark: str  # `not run`, `run by`, `needs`, `printed`, `timeline` or ""
    words: str  # behind the mark

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"needs_{name}" for name in self.words.split()) if self.mark == "needs" else frozenset()

    @property
    def is_run(self) -> bool:
        return self.language == "python" and self.mark not in ("not run", "run by")


def pages() -> list[str]:
    """Every page, as a path from the root: of the root itself and of docs/."""
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, but for Sphinx's directives."""
    text = (ROOT / page).read_text()
    found = []
    for fence in FENCE.finditer(text):
        mark, _, words = (fence[1] or "").partition(":")
        line = text.count("\n", 0, fence.start(4)) + 1
        if not fence[3].startswith("{"):
            code = re.sub(f"^{fence[2]}", "", fence[4], flags=re.MULTILINE)
            found.append(Block(fence[3], code, line, mark, words.strip()))
    return found


def without_blocks(page: str) -> str:
    """The words of a page."""
    return FENCE.sub("", (ROOT / page).read_text())


def recipe(document: str, mark: str) -> str:
    """The first Python block of a document of docs/ that comes after these words."""
    text = (DOCS / document).read_text()
    assert text.count(mark) == 1, mark
    line = text[: text.index(mark)].count("\n") + 1
    return next(block.text for block in blocks(f"docs/{document}") if block.language == "python" and block.line > line)


def all_recipes(document: str) -> list[str]:
    return [block.text for block in blocks(f"docs/{document}") if block.language == "python"]
