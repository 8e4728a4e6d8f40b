"""Run the notebooks of examples/ in JupyterLab, in Chromium, in its light and its dark theme.

    python tools/notebooks.py [NOTEBOOK...]

Each is opened from a copy and run by "Run All Cells".  It fails where a cell shows an error, where the browser's
console has one, where a cell that calls `md.show` shows no picture, and where a picture has no size or no ink.
Screenshots of the cells go to build/notebooks/.

The browser is the one that CHROMIUM names, or Debian's `chromium`, or Google's.
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Error, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "build" / "notebooks"
THEMES = ("JupyterLab Light", "JupyterLab Dark")

STARTS_MS = 120_000  # JupyterLab, on a busy machine
RUNS_MS = 240_000

#: The prompt of a cell that has run, and how errors are shown.
NUMBERED = re.compile(r"^\[\d+\]:$")
ERRORS = ("application/vnd.jupyter.stderr", "application/vnd.jupyter.error")

#: Pixels of the window: the longest cell is wholly in view, else JupyterLab's own bars are in its screenshot.
WIDTH, HEIGHT = 1100, 1600

#: Ratio of luminances from which a line is seen, and the part of a picture's pixels that must have it.
SEEN_RATIO, SEEN_PART = 1.5, 0.005


class Failed(Exception):
    """What is wrong with a notebook, in a sentence."""


def chromium() -> str | None:
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


# ---- JupyterLab ----


def write_settings(folder: Path, theme: str) -> None:
    """All cells are in the page, nothing is fetched from elsewhere, and the theme is chosen."""
    settings = {
        "apputils-extension/themes": {"theme": theme},
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }
    for name, values in settings.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


def address_of(log: Path, server: subprocess.Popen[bytes]) -> str:
    """The server chooses the port, and says which; it is given once the server answers there."""
    deadline = time.monotonic() + STARTS_MS / 1000
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{found[0]}/api", timeout=5).close()
                return found[0]
        time.sleep(0.2)
    raise Failed(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@contextlib.contextmanager
def jupyterlab(theme: str, notebooks: list[Path]) -> Iterator[str]:
    """A server over copies of the notebooks, with settings of its own; gives its address."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        for notebook in notebooks:
            shutil.copy(notebook, folder / "work")
        write_settings(folder / "settings", theme)
        places = {f"JUPYTER_{part}_DIR": str(folder / part) for part in ("CONFIG", "DATA", "RUNTIME")}
        environment = {
            **os.environ,
            **places,
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": str(ROOT / "python"),
        }
        # An empty token: the server listens on this machine alone, and ends with this program.
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
        command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder / 'work'}"]
        log = folder / "log"
        with log.open("wb") as output:
            server = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        try:
            yield address_of(log, server)
        finally:
            server.terminate()
            server.wait(30)


# ---- one notebook ----


def run_all(page: Page) -> None:
    """Every code cell has its number: none is waiting, and none was left out by an error before it."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    expect(prompts.first).to_be_attached()
    expected = [NUMBERED] * prompts.count()
    errors = page.locator(", ".join(f'.jp-OutputArea-output[data-mime-type="{mime}"]' for mime in ERRORS))
    try:
        # after an error, the cells below it are never run
        expect(prompts.last.filter(has_text=NUMBERED).or_(errors).first).to_be_attached(timeout=RUNS_MS)
        if not errors.count():
            expect(prompts).to_have_text(expected)
    except AssertionError:
        page.screenshot(path=PICTURES / "unfinished.png")
        raise Failed(f"a cell did not finish: {prompts.all_inner_texts()}") from None
    if errors.count():
        raise Failed(f"cells show errors: {errors.all_inner_texts()}")


def luminance(colour: tuple[int, int, int]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def part_seen(png: bytes) -> float:
    """The part of the pixels that stand out from the commonest one."""
    colours = Image.open(io.BytesIO(png)).convert("RGB").getcolors(1 << 24) or []
    ground = luminance(max(colours)[1])
    seen = 0
    for count, colour in colours:
        light, dark = sorted((luminance(colour), ground), reverse=True)
        seen += count * ((light + 0.05) / (dark + 0.05) >= SEEN_RATIO)
    return seen / sum(count for count, _ in colours)


def check_picture(picture: Locator) -> None:
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    name = picture.evaluate("element => element.outerHTML.slice(0, 120)")
    if box is None or box["width"] < 8 or box["height"] < 4:
        raise Failed(f"a picture has no size ({box}): {name}")
    part = part_seen(picture.screenshot())
    if part < SEEN_PART:
        raise Failed(f"a picture has no ink: {part:.2%} of its pixels stand out: {name}")


def check_pictures(page: Page) -> int:
    drawn = page.locator(".jp-OutputArea-output svg")
    for cell in page.locator(".jp-Notebook .jp-CodeCell").filter(has_text="md.show(").all():
        if not cell.locator(drawn).count():
            raise Failed(f"a cell shows no picture: {cell.inner_text()}")
    pictures = drawn.all()
    for picture in pictures:
        check_picture(picture)
    if not pictures:
        raise Failed("no cell shows a picture")
    return len(pictures)


def take_screenshots(page: Page, stem: str) -> None:
    for i, cell in enumerate(page.locator(".jp-Notebook .jp-Cell").all()):
        if cell.locator(".jp-OutputArea-output").count():
            cell.screenshot(path=PICTURES / f"{stem}_{i:02}.png")


def check_notebook(browser: Browser, address: str, name: str, theme: str) -> int:
    """Runs it, and gives the number of its pictures."""
    with browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}) as page:
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"{address}/lab/tree/{name}.ipynb?reset", timeout=STARTS_MS)
        expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=STARTS_MS)
        # The kernel, as the status bar has it; before that, running asks for a kernel.
        expect(page.get_by_text(re.compile(r"\| Idle$"))).to_be_visible(timeout=STARTS_MS)
        run_all(page)
        take_screenshots(page, f"{name}_{theme.split()[-1].lower()}")
        count = check_pictures(page)
        if said:
            raise Failed(f"the browser's console has errors: {said}")
        return count


def main(arguments: list[str]) -> int:
    notebooks = [Path(argument) for argument in arguments] or sorted((ROOT / "examples").glob("*.ipynb"))
    if chromium() is None:
        print("Chromium is missing. Install it (Debian: apt-get install chromium), or name it in CHROMIUM.")
        return 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in [picture for notebook in notebooks for picture in PICTURES.glob(f"{notebook.stem}_*.png")]:
        picture.unlink()  # of an earlier run, whose cells were others
    failures = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for theme in THEMES:
            with jupyterlab(theme, notebooks) as address:
                for notebook in notebooks:
                    try:
                        count = check_notebook(browser, address, notebook.stem, theme)
                        print(f"{notebook.stem}: {theme}: {count} pictures", flush=True)
                    except (Failed, Error, AssertionError) as error:
                        failures += 1
                        print(f"{notebook.stem}: {theme}: FAILED: {error}", flush=True)
        browser.close()
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
