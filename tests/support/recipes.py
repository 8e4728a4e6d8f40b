"""The code of docs/, for tests that run it as it stands there."""

import re

from places import DOCS


def recipe(document: str, mark: str) -> str:
    """The first Python block of a document that comes after these words."""
    text = (DOCS / document).read_text()
    assert text.count(mark) == 1, mark
    return re.search(r"```python\n(.*?)```", text[text.index(mark) :], re.DOTALL)[1]


def all_recipes(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / document).read_text(), re.DOTALL)
