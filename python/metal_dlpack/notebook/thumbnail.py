"""The shape of an array as a small drawing.

The last axes are a line, a rectangle or a box, longer for more items.  Its grain runs as the memory does: along the
axis with the smallest stride.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metal_dlpack.pages.markup import Markup, drawing, element
from metal_dlpack.pages.style import ACCENTS

#: Pixels of the longest side, and of the shortest.
LONGEST, SHORTEST = 76.0, 12.0
#: Pixels of the third side, to the right and up.
DEPTH = (18.0, 12.0)
#: Pixels of a character of a label, and of a line of them.
CHARACTER, LINE = 6.7, 14.0
#: Between the lines of the grain, in pixels.
GRAIN = 6.0
#: Leading axes that are written out.
MAX_WRITTEN = 3
TIMES = " \N{MULTIPLICATION SIGN} "
COLOUR = ACCENTS[0]


def thumbnail(shape: Sequence[int], strides: Sequence[int] | None = None) -> Markup | None:
    """An <svg> of the shape; None where there is nothing to draw.  No strides: C order."""
    if not shape or 0 in shape:
        return None
    height, width = _sides(shape)
    right, up = DEPTH if len(shape) > 2 else (0.0, 0.0)
    labels, label_right = _labels(shape, width, height)
    title = f"{len(shape)} axes: {TIMES.join(map(str, shape))}"
    lines = 2 if len(shape) > 3 else 1
    return drawing(
        title,
        max(label_right, width + right + 2),
        up + height + LINE * lines + 3,
        element("title", title),
        *_faces(width, height, right, up),
        *_grain(shape, strides, width, height, up),
        *labels,
    )


def _sides(shape: Sequence[int]) -> tuple[float, float]:
    """Height and width: the larger extent is LONGEST, the other shorter as the root of their ratio."""
    rows, columns = shape[-2] if len(shape) > 1 else 0, shape[-1]
    longest = max(rows, columns)
    height, width = (max(LONGEST * math.sqrt(extent / longest), SHORTEST) for extent in (rows, columns))
    return height, width


def _faces(width: float, height: float, right: float, up: float) -> list[Markup]:
    front = f"M1 {up + 1}h{width}v{height}h{-width}z"
    top = f"M1 {up + 1}l{right} {-up}h{width}l{-right} {up}z"
    side = f"M{width + 1} {up + 1}l{right} {-up}v{height}l{-right} {up}z"
    faces = [(front, 0.14), (top, 0.26), (side, 0.38)] if right else [(front, 0.14)]
    return [element("path", d=d, fill=COLOUR, fill_opacity=shade, stroke=COLOUR) for d, shade in faces]


def _grain(shape: Sequence[int], strides: Sequence[int] | None, width: float, height: float, up: float) -> list[Markup]:
    """Lines on the front along the drawn axis on which memory runs; none, if that is not drawn."""
    if strides is None:
        axis = len(shape) - 1
    else:
        steps = [(abs(stride), -axis) for axis, stride in enumerate(strides) if shape[axis] > 1]
        axis = -min(steps)[1] if steps else len(shape) - 1
    if axis == len(shape) - 1:
        lines = [f"M4 {y}h{width - 6}" for y in _steps(up + 1, height, shape[-2] if len(shape) > 1 else 1)]
    elif axis == len(shape) - 2:
        lines = [f"M{x} {up + 4}v{height - 6}" for x in _steps(1, width, shape[-1])]
    else:
        return []
    return [element("path", d="".join(lines), fill="none", stroke=COLOUR, stroke_opacity=0.4)]


def _steps(begin: float, length: float, extent: int) -> list[str]:
    """Between `extent` rows or columns, or between fewer if these were narrower than GRAIN."""
    count = min(extent, round(length / GRAIN)) - 1
    return [f"{begin + length * (i + 1) / (count + 1):.1f}" for i in range(count)]


def _labels(shape: Sequence[int], width: float, height: float) -> tuple[list[Markup], float]:
    """The extents beside their sides, the leading ones below; and where the rightmost ends."""
    up = DEPTH[1] if len(shape) > 2 else 0.0
    right = DEPTH[0] if len(shape) > 2 else 0.0
    columns = f"{shape[-1]:,}"
    below = max(1 + width / 2 - CHARACTER * len(columns) / 2, 0.0)
    placed = [(below, up + height + LINE, columns)]
    if len(shape) > 1:
        placed.append((width + right + 7, up + height / 2 + 5 - right / 4, f"{shape[-2]:,}"))
    if len(shape) > 2:
        placed.append((width + right + 7, 9.0, f"{shape[-3]:,}"))
    if len(shape) > 3:
        placed.append((0.0, up + height + 2 * LINE, _leading(shape[:-3])))
    labels = [element("text", text, x=x, y=y, fill="currentColor") for x, y, text in placed]
    return labels, max(x + CHARACTER * len(text) + 2 for x, _, text in placed)


def _leading(extents: Sequence[int]) -> str:
    """The axes that are not drawn, each with a TIMES behind."""
    shown = [f"{extent:,}" for extent in extents[-MAX_WRITTEN:]]
    return TIMES.join([*(["…"] if len(extents) > MAX_WRITTEN else []), *shown, ""])
