"""The pictures of README.md, written to docs/static: what programs of this package show, as they show it.

    python tools/pictures.py [FOLDER]

A report is text; a timeline and an Array are drawn as in a notebook, in the reader's light or dark colours.  Times
differ from run to run, and all else is the same: tests/house/test_readme.py draws them again.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from html import escape
from pathlib import Path

import metal_dlpack as md
import softmetal

ROOT = Path(__file__).resolve().parent.parent
STATIC = ROOT / "docs/static"
STYLE = """<style>:root{--ink:#1f2328;--quiet:#59636e;--bad:#c0392b}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9aa4af;--bad:#ff8a80}}
text{font:13px ui-monospace,Menlo,'DejaVu Sans Mono',monospace;fill:var(--ink);white-space:pre}
.quiet{fill:var(--quiet)}.bad{fill:var(--bad);font-weight:bold}</style>"""
#: Microseconds that a command buffer takes at least: so work is seen in one order, on a busy machine too.
LATENCY_US = 50_000


def svg(width: int, height: int, inside: str) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{inside}</svg>\n'


def of_text(lines: list[str]) -> str:
    shown = []
    for number, line in enumerate(lines):
        kind = "bad" if re.match(r"\d+\. ", line) else "quiet" if re.match(r"  +(in|arguments:|also:) ", line) else ""
        shown.append(f'<text x="8" y="{22 + 19 * number}" class="{kind}">{escape(line)}</text>')
    return svg(16 + 8 * max(map(len, lines)), 14 + 19 * len(lines), STYLE + "\n".join(shown))


def of_notebook(html: str, width: int, height: int) -> str:
    html = re.sub(r"<title>.*?</title>", "", html, flags=re.DOTALL)  # places in files, where the pointer rests
    there = f'<div xmlns="http://www.w3.org/1999/xhtml">{html}</div>'
    return svg(width, height, f'<foreignObject width="{width}" height="{height}">{there}</foreignObject>')


def draw_report() -> str:
    """The kernel of docs/kernel_authors.md, once it stays inside of its memory."""
    program = re.search(r"```python\n(# blur\.py\n.*?)```", (ROOT / "docs/kernel_authors.md").read_text(), re.DOTALL)
    assert program is not None
    text = program[1].replace("x[i - 1]", "x[max(i - 1, 0)]").replace("x[i + 1]", "x[min(i + 1, 255)]")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "blur.py").write_text(text)
        command = [sys.executable, "-m", "softmetal", "--check", "blur.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    _, begin, rest = (done.stdout + done.stderr).partition("\n1. ")
    assert begin, done.stderr
    return of_text(["$ softmetal --check blur.py", *(begin + rest).rstrip().splitlines()[1:]])


def draw_timeline() -> str:
    """Two streams, one buffer: one waits for the other on the GPU, and the CPU for both."""
    load, compute = md.Stream(label="load"), md.Stream(label="compute")
    a, b, c = (md.zeros((500, 500)) for _ in range(3))
    with md.timeline():  # what only the first does is left out
        b.copy_from(a, stream=load)
    softmetal.configure(latency_us=LATENCY_US)
    try:
        with md.timeline() as seen:
            b.copy_from(a, stream=load)
            c.copy_from(b, stream=compute)
            memoryview(c)
    finally:
        softmetal.configure(latency_us=None)
    return of_notebook(seen._repr_html_(), 620, 150)


def draw_array() -> str:
    """Each second column of an Array, over the memory of all."""
    a = md.asarray([[row * 6 + column for column in range(6)] for row in range(4)], dtype="float32")
    return of_notebook(a[:, ::2]._repr_html_(), 560, 215)


PICTURES: dict[str, Callable[[], str]] = {"report": draw_report, "timeline": draw_timeline, "array": draw_array}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else STATIC
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
