"""The docstrings, for the site: docs/conf.py hands each one to `process` before Sphinx reads it.

Docstrings are plain text for `help()`: paragraphs, code between backticks, and NumPy's sections (a title over a line of
hyphens, items without blank lines between them).  Here they become reStructuredText that looks the same.
"""

import itertools
import re
import textwrap

from site_links import by_parts

LITERAL = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
PAGE = re.compile(r"\bdocs/([\w/]+)\.md\b")
SPECIAL = re.compile(r"[\\*|]|_\b|`")


def plain(text: str) -> str:
    """Words that reStructuredText leaves as they are, and links to pages that are named."""
    return by_parts(PAGE, text, lambda page: f":doc:`/{page[1]}`", lambda words: SPECIAL.sub(r"\\\g<0>", words))


def marked(text: str) -> str:
    """Words with code between backticks."""
    return by_parts(LITERAL, text, lambda literal: f"``{literal[0].strip('`')}``", plain)


def items(block: list[str]) -> list[str]:
    """The items of a section as a definition list: `name : type` over an indented text.

    Items without a text of their own share that of the next one.
    """
    made: list[str] = []
    terms: list[str] = []
    for is_text, lines in itertools.groupby(block, lambda line: line.startswith(" ")):
        if not is_text:
            pairs = [line.partition(" : ") for line in lines]
            terms = [f"``{name}``{colon}{marked(kind)}" for name, colon, kind in pairs]
            made += ["   " + "; ".join(terms), "      \\ "]
        else:
            made[-1:] = ["      " + line for line in marked(textwrap.dedent("\n".join(lines))).splitlines()]
    return made


def blocks_of(lines: list[str]) -> list[list[str]]:
    """Runs of lines between blank ones."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def converted(lines: list[str]) -> list[str]:
    made = []
    for block in blocks_of(lines):
        if len(block) > 1 and re.fullmatch("-{3,}", block[1]):
            made += [f":{block[0]}:", "", *items(block[2:]), ""]
        elif block[0].startswith(">>>"):
            made += [*block, ""]
        elif all(line.startswith("    ") for line in block):
            made += ["::", "", *block, ""]
        else:
            made += [*marked("\n".join(block)).splitlines(), ""]
    return made


def process(_app, _what, _name, _thing, _options, lines):
    lines[:] = converted(lines)
