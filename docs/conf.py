"""The site: `make docs` builds it from docs/, the docstrings and the repository's own pages."""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent / folder) for folder in ("tools", "python", "kit", "benchmarks")]

import cost_picture  # noqa: E402
import site_docstrings  # noqa: E402
import site_links  # noqa: E402
import site_timelines  # noqa: E402

import metal_dlpack  # noqa: E402

project = "metal_dlpack"
author = "the authors of metal_dlpack"
release = metal_dlpack.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]

myst_heading_anchors = 4
exclude_patterns = [str(page.relative_to(DOCS)) for page in site_links.LEFT_OUT]  # they stay in the repository

highlight_language = "text"  # of blocks that name none: output

smartquotes = False
add_module_names = False
autodoc_member_order = "groupwise"
autodoc_typehints = "none"

copybutton_prompt_text = r">>> |\.\.\. |\$ "  # of a session the code alone is copied
copybutton_prompt_is_regexp = True

html_theme = "furo"
pygments_dark_style = "github-dark"  # furo's own underlines the names of modules
html_title = f"metal_dlpack {release}"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]


#: What docs/reference/types.md describes by this name.
ELEMENT_TYPES = [name for name, value in vars(metal_dlpack).items() if isinstance(value, metal_dlpack.dtype)]


def draw_costs(_app):
    measured = json.loads((DOCS / "inside" / "costs.json").read_text())
    (DOCS / "inside" / "costs.svg").write_text(cost_picture.draw(measured["costs"], measured["machine"]))


def page_was_read(app, docname, content):
    page = Path(app.env.doc2path(docname))
    text = content[0].replace("ELEMENT_TYPES", "\n             ".join(ELEMENT_TYPES))
    content[0] = site_timelines.with_pictures(site_links.for_the_site(text, page, page))


def include_was_read(app, path, _parent, content):
    """`_parent` is a page's name without its folder; the page that is read is the environment's."""
    page = Path(app.env.doc2path(app.env.docname))
    content[0] = site_links.for_the_site(content[0], (DOCS / path).resolve(), page)


def fold_the_sidebar(_app, _page, _template, context, _doctree):
    """What is under the first caption stands open; of the others a click opens one, and that of the page is open."""
    before, start, *others = context["furo_navigation_tree"].split('<p class="caption"')
    folded = [
        f'<details{" open" * ("current-page" in part)}><summary class="caption"'
        + part.replace("</p>", "</summary>", 1)
        + "</details>"
        for part in others
    ]
    context["furo_navigation_tree"] = before + '<p class="caption"' + start + "".join(folded)


def setup(app):
    app.connect("builder-inited", draw_costs)
    app.connect("source-read", page_was_read)
    app.connect("include-read", include_was_read)
    app.connect("autodoc-process-docstring", site_docstrings.process)
    app.connect("html-page-context", fold_the_sidebar, priority=900)  # after furo's
