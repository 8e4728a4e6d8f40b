"""HTML for notebooks: what `_repr_html_` of each type gives.

Each output is one <div> of well-formed XML without scripts and ids, bounded in length whatever it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metal_dlpack.pages.markup import Markup

from . import cards

CARDS: dict[str, Callable[[Any], Markup]] = {
    "Array": cards.array_card,
    "Buffer": cards.buffer_card,
    "Device": cards.device_card,
    "Kernel": cards.kernel_card,
    "Library": cards.library_card,
    "Picture": cards.picture_card,
    "ShardedFile": cards.sharded_file_card,
    "SingleFile": cards.file_card,
    "Stream": cards.stream_card,
    "StridedLayout": cards.layout_card,
    "Timeline": cards.timeline_card,
}


def html_of(x: Any) -> str:
    """The HTML of an object of one of these types."""
    return str(CARDS[type(x).__name__](x))
