"""The links of the pages, for the site: docs/conf.py calls this for each page that Sphinx reads.

Pages link as a reader of the repository wants it: to files beside them, to README.md, to a source file.  On the site a
page stands for each file of `PAGES`, and what is no page is a link to the repository that METAL_DLPACK_REPOSITORY
names (https://host/owner/name); where it is not set, the words stay without a link.  Words that only name the page's
file (`memory.md`) are left out: MyST puts the title of the page or of its section there.

Commands name the repository as `PLACEHOLDER`; on the site they name METAL_DLPACK_REPOSITORY's.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REPOSITORY = os.environ.get("METAL_DLPACK_REPOSITORY", "").rstrip("/")
#: In commands, as `uses: OWNER/metal_dlpack@main` and `git clone https://HOST/OWNER/metal_dlpack`.
PLACEHOLDER = "OWNER/metal_dlpack"
#: What the site shows of the repository's root, and as which page.
PAGES = {
    ROOT / "README.md": DOCS / "index.md",
    ROOT / "ARCHITECTURE.md": DOCS / "inside" / "architecture.md",
    ROOT / "CONTRIBUTING.md": DOCS / "inside" / "contributing.md",
    ROOT / "CHANGELOG.md": DOCS / "changelog.md",
    ROOT / "python" / "metal_dlpack" / "include" / "metal_dlpack.h": DOCS / "reference" / "header.md",
}
#: Pages for those who work on the code: the site links to the repository instead.
LEFT_OUT = {DOCS / "inside" / f"{name}.md" for name in ("bridge_review", "kernels", "on_a_mac", "protocol")}
LEFT_OUT |= {*(DOCS / "upstream").glob("*.md")}
FENCE = re.compile(r"^( *(?:```+|~~~+)).*?^\1[ ]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:|#|<)([^)\s]+)\)")


def by_parts(
    pattern: re.Pattern[str], text: str, inside: Callable[[re.Match[str]], str], outside: Callable[[str], str]
) -> str:
    """The text with `inside` made of each match, and `outside` of what lies between them."""
    parts, end = [], 0
    for match in pattern.finditer(text):
        parts += [outside(text[end : match.start()]), inside(match)]
        end = match.end()
    return "".join([*parts, outside(text[end:])])


def with_its_address(text: str) -> str:
    """The text, whose commands name the repository where it is."""
    if not REPOSITORY:
        return text
    name = "/".join(REPOSITORY.split("/")[-2:])
    return text.replace(f"https://HOST/{PLACEHOLDER}", REPOSITORY).replace(PLACEHOLDER, name)


def for_the_site(text: str, source: Path, page: Path) -> str:
    """The text of `source`, with its links as `page` of the site needs them.

    A link to a file that is missing stays as it is: Sphinx then says so.
    """

    def link(match: re.Match[str]) -> str:
        words, (path, mark, anchor) = match[1], match[2].partition("#")
        target = (source.parent / path).resolve()
        if not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        shown = PAGES.get(target, target)
        if shown.is_relative_to(DOCS) and shown not in LEFT_OUT and not (anchor and path.endswith("README.md")):
            words = "" if words in (path, path.rpartition("/")[2]) else words
            return f"[{words}]({os.path.relpath(shown, page.parent)}{mark}{anchor})"
        kind = "tree" if target.is_dir() else "blob"
        return f"[{words}]({REPOSITORY}/{kind}/main/{target.relative_to(ROOT)}{mark}{anchor})" if REPOSITORY else words

    return by_parts(
        FENCE, text, lambda fence: with_its_address(fence[0]), lambda part: with_its_address(LINK.sub(link, part))
    )
