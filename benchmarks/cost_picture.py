"""Costs as a picture and a table.  The picture is an SVG of six cells, readable on light and on dark pages.

Text and lines have colours of middle brightness and the ground has none, so that one file serves both.
"""

from collections.abc import Iterable
from html import escape
from math import log10

__all__ = ["draw", "table"]

#: Part, call: (what grows, nanoseconds) in order.
Costs = dict[str, dict[str, list[tuple[int, float]]]]

COLUMNS, CELL_W, CELL_H = 3, 320, 270
WIDTH, HEIGHT = COLUMNS * CELL_W, 2 * CELL_H + 44
LEFT, RIGHT, TOP, BOTTOM = 52, 24, 44, 46
INK, GRID = "#7d7d7d", "#808080"
COLOURS = {
    "from_dlpack": "#d9730d",
    "__dlpack__": "#3d84e0",
    "np.asarray": "#2a9d6f",
    "view": "#a362d0",
    "copy": "#d6477b",
}
MEANING = {
    "from_dlpack": "md.from_dlpack(tensor)",
    "__dlpack__": "a.__dlpack__()",
    "np.asarray": "np.asarray(a)",
    "view": "a[...]",
    "copy": "a.copy()",
}
SHARING = ("from_dlpack", "__dlpack__", "np.asarray", "view")
NOTES = (
    "Scales are logarithmic, but for axes and",
    "threads. The least CPU time of many turns.",
    "The tensor is torch's, on mps.",
)
#: Nanoseconds and their names, from the foot of a cell to its top.
SHORT = [(20, "20 ns"), (50, "50"), (100, "100"), (200, "200"), (500, "500"), (1000, "1 µs"), (2000, "2")]
LONG = [
    (1e2, "100 ns"),
    (1e3, "1 µs"),
    (1e4, "10"),
    (1e5, "100"),
    (1e6, "1 ms"),
    (1e7, "10"),
    (1e8, "100"),
    (1e9, "1 s"),
]
#: Heading, part of the data, whether x is a logarithm, ticks of x and y with their names, the calls.
CELLS = [
    ("Axes", "axes", False, [(n, str(n)) for n in (0, 16, 32, 48, 64)], SHORT, (*SHARING, "copy")),
    (
        "Bytes, shared",
        "bytes",
        True,
        [(1, "1 B"), (1 << 10, "1 KiB"), (1 << 20, "1 MiB"), (10 << 30, "10 GiB")],
        SHORT,
        SHARING,
    ),
    (
        "Bytes, copied",
        "bytes",
        True,
        [(1, "1 B"), (1 << 10, "1 KiB"), (1 << 20, "1 MiB"), (1 << 30, "1 GiB")],
        LONG,
        ("copy",),
    ),
    (
        "Arrays that live",
        "live",
        True,
        [(1, "1"), (100, "100"), (10**4, "10,000"), (10**6, "1,000,000")],
        SHORT,
        (*SHARING, "copy"),
    ),
    ("Threads that call at once", "threads", False, [(n, str(n)) for n in (1, 2, 4, 6, 8)], SHORT, (*SHARING, "copy")),
]


def draw(costs: Costs, machine: str) -> str:
    """The whole picture as the text of an SVG file."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12" fill="{INK}">',
        "<title>What a call costs</title>",
        f"<desc>Time of one call by axes, bytes, live Arrays and threads. {escape(machine)}.</desc>",
        text(LEFT, 24, "What one call costs", size=17, weight=600),
        text(WIDTH - RIGHT, 24, machine, size=11, anchor="end"),
    ]
    for place, (heading, part, is_log, ticks, levels, names) in enumerate(CELLS):
        x, y = CELL_W * (place % COLUMNS), 40 + CELL_H * (place // COLUMNS)
        points = {name: costs[part][name] for name in names}
        parts += [f'<g transform="translate({x} {y})">', *cell(heading, is_log, ticks, levels, points), "</g>"]
    parts += [f'<g transform="translate({2 * CELL_W} {40 + CELL_H})">', *legend(costs), "</g>", "</svg>"]
    return "\n".join(parts) + "\n"


def cell(
    heading: str,
    is_log: bool,
    ticks: list[tuple[int, str]],
    levels: list[tuple[float, str]],
    points: dict[str, list[tuple[int, float]]],
) -> Iterable[str]:
    def across(value: float) -> float:
        return LEFT + share(value, ticks[0][0], ticks[-1][0], is_log) * (CELL_W - LEFT - RIGHT)

    def up(nanoseconds: float) -> float:
        return CELL_H - BOTTOM - share(nanoseconds, levels[0][0], levels[-1][0], True) * (CELL_H - TOP - BOTTOM)

    yield text(LEFT, TOP - 16, heading, size=14, weight=600)
    for level, name in levels:
        yield line(LEFT, up(level), CELL_W - RIGHT, up(level), opacity=0.55 if level == levels[0][0] else 0.22)
        yield text(LEFT - 7, up(level) + 4, name, anchor="end", size=11)
    for value, name in ticks:
        yield line(across(value), CELL_H - BOTTOM, across(value), CELL_H - BOTTOM + 4, opacity=0.6)
        yield text(across(value), CELL_H - BOTTOM + 18, name, anchor="middle", size=11)
    for name, series in points.items():
        path = " ".join(f"{across(value):.1f},{up(time):.1f}" for value, time in series)
        yield f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>'
        for value, time in series:
            yield f'<circle cx="{across(value):.1f}" cy="{up(time):.1f}" r="2.4" fill="{COLOURS[name]}"/>'


def share(value: float, low: float, high: float, is_log: bool) -> float:
    """How far `value` is on the way from `low`, 0, to `high`, 1."""
    value, low, high = (log10(number) if is_log else number for number in (value, low, high))
    return (value - low) / (high - low)


def legend(costs: Costs) -> Iterable[str]:
    """The calls, the most expensive first, with the time of an Array of 2 axes."""
    times = {name: dict(map(tuple, costs["axes"][name]))[2] for name in MEANING}
    yield text(LEFT, TOP - 16, "The calls", size=14, weight=600)
    yield text(CELL_W - RIGHT, TOP - 16, "2 axes, 256 B", size=11, anchor="end")
    for row, name in enumerate(sorted(MEANING, key=times.__getitem__, reverse=True)):
        y = TOP + 14 + 25 * row
        yield line(LEFT, y - 4, LEFT + 22, y - 4, colour=COLOURS[name], width=3)
        yield text(LEFT + 30, y, MEANING[name])
        yield text(CELL_W - RIGHT, y, f"{times[name]:.0f} ns", anchor="end", weight=600)
    for row, sentence in enumerate(NOTES):
        yield text(LEFT, TOP + 158 + 17 * row, sentence, size=11)


def line(x1: float, y1: float, x2: float, y2: float, opacity: float = 1, colour: str = GRID, width: float = 1) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"'
        f' stroke-opacity="{opacity}"/>'
    )


def text(x: float, y: float, words: str, size: int = 12, anchor: str = "start", weight: int = 400) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )


def table(costs: Costs) -> str:
    """Rows of Markdown: the least and the most of each call in each part, in nanoseconds."""
    lines = ["| ns | " + " | ".join(f"by {part}" for part in costs) + " |", "| --- |" + " --- |" * len(costs)]
    for name in MEANING:
        series = [[time for _, time in points[name]] for points in costs.values()]
        cells = [f"{min(times):,.0f} to {max(times):,.0f}" for times in series]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)
