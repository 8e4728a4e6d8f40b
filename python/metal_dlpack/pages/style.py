"""Colours and the style sheet: for JupyterLab and VS Code by their own variables, else light or dark as the page asks.

Text and ground are set together, so that one is always read on the other.  Lanes have one palette for both grounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from .markup import Markup, element

#: What the variables fall back to.
LIGHT = {"text": "#1f2328", "quiet": "#59636e", "ground": "#ffffff", "line": "#d1d9e0"}
DARK = {"text": "#e6edf3", "quiet": "#9aa4af", "ground": "#111418", "line": "#3d444d"}
#: JupyterLab's and VS Code's own colours for the same.
VARIABLES = {
    "text": ("--jp-content-font-color0", "--vscode-editor-foreground"),
    "quiet": ("--jp-content-font-color2", "--vscode-descriptionForeground"),
    "ground": ("--jp-layout-color0", "--vscode-editor-background"),
    "line": ("--jp-border-color1", "--vscode-panel-border"),
}
#: Lanes, in turn: each is seen on a light and on a dark ground.
ACCENTS = ("#3b82c4", "#c26a1c", "#3f9142", "#cf4f4b", "#8a6fd1", "#1f9096")


def accent(index: int) -> str:
    """The colour of a lane."""
    return ACCENTS[index % len(ACCENTS)]


def _colours(fallbacks: dict[str, str]) -> str:
    return "".join(
        f"--mdl-{name}:var({VARIABLES[name][0]},var({VARIABLES[name][1]},{colour}));"
        for name, colour in fallbacks.items()
    )


STYLE_SHEET: Markup = element(
    "style",
    Markup(
        f".mdl{{{_colours(LIGHT)}color:var(--mdl-text);background:var(--mdl-ground);padding:6px 8px;"
        "font:13px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;max-width:820px}"
        f"@media (prefers-color-scheme:dark){{.mdl{{{_colours(DARK)}}}}}"
        ".mdl-head{display:flex;gap:14px;align-items:center}"
        ".mdl>div+div{margin-top:6px}"
        ".mdl-head svg{flex:none}"
        ".mdl-quiet{color:var(--mdl-quiet)}"
        ".mdl svg{display:block;margin-top:3px;overflow:visible;max-width:100%;height:auto}"
        ".mdl svg text{font:11px ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;fill:var(--mdl-text)}"
        ".mdl svg .mdl-quiet{fill:var(--mdl-quiet)}"
        ".mdl-track{fill:none;stroke:var(--mdl-line)}"
        # twice the class: JupyterLab's own rule would break lines, and numbers, anywhere
        ".mdl.mdl pre{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace;white-space:pre;"
        "overflow:auto;max-height:24em;margin:6px 0 0;padding:0;color:inherit;background:none;border:0}"
    ),
)


def whole_page(title: str, style: str, body: Sequence[Markup | None]) -> str:
    """An HTML page that needs no other file: light or dark as the reader has it; `style` is what it has of its own."""
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in colours.items()) for colours in (LIGHT, DARK))
    common = (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
        "body{color:var(--text);background:var(--ground);font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif}"
        ".quiet{color:var(--quiet)}"
    )
    head = [
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Markup(common + style)),
    ]
    return "<!doctype html>\n" + element("html", element("head", *head), element("body", *body), lang="en") + "\n"
