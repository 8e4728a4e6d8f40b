"""The site: it builds without a warning, holds every page and every public name, and shows docstrings as they are meant."""

import html
import inspect
import re

import pytest
import recipes
import site_docstrings
import site_links
from children import output_of
from places import DOCS, ROOT
from public_surface import functions, members

import dlpack_conformance
import metal_dlpack as md

pytestmark = pytest.mark.needs_no_sanitizer


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for needed in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("site")
    output_of(["-m", "sphinx", "-q", "-W", "--keep-going"], DOCS, folder, cwd=ROOT, timeout=300)
    return folder


def anchors(site):
    """The ids of all that the reference describes."""
    return {
        anchor
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r' id="([^"]+)"', page.read_text())
    }


def shown(site, page):
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", (site / page).read_text())).split())


def pages_of_the_site():
    return {path.relative_to(DOCS) for path in DOCS.rglob("*.md") if path not in site_links.LEFT_OUT}


@pytest.mark.long
def test_every_page_is_on_the_site(site):
    pages = {path.with_suffix(".html") for path in pages_of_the_site()}
    assert {page for page in pages if not (site / page).exists()} == set()
    assert "Folders are floors" in shown(site, "inside/architecture.html")


@pytest.mark.long
def test_every_public_name_has_an_anchor(site):
    names = {f"metal_dlpack.{name}" for name in dir(md) if not name.startswith("_")}
    names |= {name if name.startswith("softmetal.") else f"metal_dlpack.{name}" for name in functions()}
    names |= {f"metal_dlpack.{name}" for name in members() if not name.rpartition(".")[2].startswith("_")}
    names |= {f"dlpack_conformance.{name}" for name in dlpack_conformance.__all__}
    names |= {f"metal_dlpack.Array.{name}" for name in ("__dlpack__", "__dlpack_device__", "__metal_stream__")}
    found = anchors(site)
    assert len(names) > 200
    assert {name for name in names if name not in found and not name.startswith("metal_dlpack._")} == set()


@pytest.mark.long
def test_the_words_of_a_docstring_are_on_the_site(site):
    """Signature, parameters and what follows the sections, each once."""
    text = shown(site, "reference/arrays.html")
    assert "from_dlpack(x, /, *, device=None, copy=None, stream=None)" in text
    assert "Import anything that speaks DLPack, without a copy where that is possible." in text
    assert "__dlpack_device__()" in text
    assert "Write the items of src into this array." in text


#: How far a page, or a table of it, goes beyond its right edge.
BEYOND = """() => {
    const article = document.querySelector("article");
    const edges = [...article.querySelectorAll("table")].map((table) => table.getBoundingClientRect().right);
    const window = document.documentElement;
    return Math.max(window.scrollWidth - window.clientWidth, ...edges.map((x) => x - article.getBoundingClientRect().right));
}"""


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 700, 1280])
def test_no_page_and_no_table_is_wider_than_the_screen(site, browser, width):
    with browser.new_page(viewport={"width": width, "height": 900}) as page:
        wide = {}
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            wide[str(path.relative_to(site))] = page.evaluate(BEYOND)
        assert len(wide) > 50
        assert {name: beyond for name, beyond in wide.items() if beyond > 1} == {}


@pytest.mark.long
def test_the_sidebar_is_short_and_opens_around_its_page_and_code_has_a_button(site, browser):
    with browser.new_page(viewport={"width": 1280, "height": 900}) as page:
        page.goto((site / "interop.html").as_uri())
        links = page.locator(".sidebar-tree a:visible")
        start = [link.split(":")[0] for link in links.all_inner_texts()]
        assert start == ["Install", "Tutorial", "Use Arrays with other libraries"]
        assert page.locator("button.copybtn").count() == page.locator("article pre").count() > 0
        page.locator("summary", has_text="Kernels").click()
        assert "Write your own kernels" in links.all_inner_texts()
        page.goto((site / "kernels.html").as_uri())
        assert "Write your own kernels" in links.all_inner_texts()


DOCSTRING = """Write the items of `src`.

Parameters
----------
src : Array, or *what* speaks DLPack
    Of the same type; see docs/memory.md.
a : int
b : int
    Both of `a[...]
    = x`.

Raises
------
ValueError
    copy_ fails.
MemoryError

Memory: none.

    indented
"""

RST = """Write the items of ``src``.

:Parameters:

   ``src`` : Array, or \\*what\\* speaks DLPack
      Of the same type; see :doc:`/memory`.
   ``a`` : int; ``b`` : int
      Both of ``a[...]
      = x``.

:Raises:

   ``ValueError``
      copy\\_ fails.
   ``MemoryError``
      \\\x20

Memory: none.

::

    indented
"""


def test_a_docstring_becomes_restructured_text_that_looks_the_same():
    assert "\n".join(site_docstrings.converted(DOCSTRING.splitlines())) == RST


def test_the_items_of_a_section_stand_together():
    """An item behind a blank line would be shown as a paragraph with a quotation, below the section."""
    named = [getattr(dlpack_conformance, name) for name in dlpack_conformance.__all__]
    things = list({id(thing): thing for thing in [*vars(md).values(), *named]}.values())
    things += [member for thing in things if isinstance(thing, type) for member in vars(thing).values()]
    texts = [text for thing in things if callable(thing) and isinstance(text := thing.__doc__, str) and "----" in text]
    assert len(texts) > 60
    for text in texts:
        for first, *rest in site_docstrings.blocks_of(inspect.cleandoc(text).splitlines()):
            is_item = rest[:1] and rest[0].startswith(" ") and not first.startswith((" ", "- ", ">>>"))
            assert not is_item, (first, rest)


def test_links_of_a_page_are_those_of_the_site(monkeypatch):
    text = "[a](../ARCHITECTURE.md#threads) [b](memory.md#x) [c](../examples/share.py) [d](https://e.f) ![g](inside/costs.svg)"
    fence = "\n```\n[h](../README.md)\n```\n"
    source = DOCS / "files.md"

    def converted(page):
        return site_links.for_the_site(text + fence, source, page)

    monkeypatch.setattr(site_links, "REPOSITORY", "https://host/owner/name")
    there = (
        "[a](inside/architecture.md#threads) [b](memory.md#x) [c](https://host/owner/name/blob/main/examples/share.py)"
    )
    rest = " [d](https://e.f) ![g](inside/costs.svg)" + fence
    assert converted(source) == there + rest
    assert converted(DOCS / "inside" / "x.md").startswith("[a](architecture.md#threads) [b](../memory.md#x) ")
    named = "[memory.md](memory.md#x) [docs/memory.md](docs/memory.md)"
    assert site_links.for_the_site(named, ROOT / "x.md", source) == "[memory.md](memory.md#x) [](memory.md)"
    assert site_links.for_the_site("[memory.md](../memory.md#x)", DOCS / "inside" / "x.md", source) == "[](memory.md#x)"
    monkeypatch.setattr(site_links, "REPOSITORY", "")
    assert converted(source) == "[a](inside/architecture.md#threads) [b](memory.md#x) c" + rest


#: Commands of pages that name this repository: an action's, a clone's.
NAMED = re.compile(r"uses: (\S+/metal_dlpack\b)|git clone (\S+)|(https://HOST/\S+)")


def test_pages_name_the_repository_in_one_way_and_the_site_by_its_setting(monkeypatch):
    clone = f"https://HOST/{site_links.PLACEHOLDER}"
    named = {page: ["".join(groups) for groups in NAMED.findall((ROOT / page).read_text())] for page in recipes.pages()}
    assert {name for names in named.values() for name in names} == {clone, site_links.PLACEHOLDER}
    assert {"README.md", "docs/ci_without_a_mac.md", "docs/kernel_authors.md"} <= {
        page for page in named if named[page]
    }
    text = f"```\ngit clone {clone}\nuses: OWNER/metal_dlpack@main\n```\n`OWNER`"
    page = DOCS / "files.md"
    assert site_links.for_the_site(text, page, page) == text
    monkeypatch.setattr(site_links, "REPOSITORY", "https://host/some/fork")
    shown = "```\ngit clone https://host/some/fork\nuses: some/fork@main\n```\n`OWNER`"
    assert site_links.for_the_site(text, page, page) == shown
