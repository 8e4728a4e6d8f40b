"""Pictures of timelines in the site's pages: docs/conf.py calls this for each page that Sphinx reads.

A block of Python behind `<!-- timeline -->` leaves a Timeline in `seen`; its picture comes behind the block.  The
blocks of the page's section that holds them are run in order.
"""

import re
from typing import Any

MARK = "<!-- timeline -->\n"
SECTION = re.compile(r"^## .*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^(<!-- timeline -->\n)?```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
#: Microseconds that a command buffer takes at least: so the pictures have the same order each time.
LATENCY_US = 300


def with_pictures(text: str) -> str:
    """The page's text, with a picture behind each block that has one."""
    return SECTION.sub(lambda section: _drawn(section[0]) if MARK in section[0] else section[0], text)


def _drawn(section: str) -> str:
    import metal_dlpack
    import softmetal

    names: dict[str, Any] = {"md": metal_dlpack}

    def run(block: re.Match[str]) -> str:
        exec(block[2], names)
        if not block[1]:
            return block[0]
        return f"{block[0]}\n```{{raw}} html\n{names['seen']._repr_html_()}\n```\n"

    softmetal.configure(latency_us=LATENCY_US)
    try:
        return BLOCK.sub(run, section)
    finally:
        softmetal.configure(latency_us=None)
