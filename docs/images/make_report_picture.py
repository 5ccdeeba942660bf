"""Makes report.png, a picture of the report of `warpfactor demo`: python docs/images/make_report_picture.py.

It needs chromium and playwright, as the tests of the report do.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from warpfactor.cli.app import app

PICTURE = Path(__file__).with_name("report.png")
WIDTH, HEIGHT = 1120, 1300  # pixels of the page
COLOURS = 128


def main(path: Path = PICTURE) -> None:
    """Register the phantom and photograph the top of its report."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        app(["demo", "--quiet", "--output", str(place)], standalone_mode=False)
        picture = photograph(place / "result" / "report.html")
    picture.quantize(COLOURS).save(path, optimize=True)


def photograph(page: Path) -> Image.Image:
    """The upper part of a page as a browser shows it."""
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_timeout(1000)  # pictures are drawn by a script
        png = tab.screenshot()
        browser.close()
    return Image.open(io.BytesIO(png)).convert("RGB")


if __name__ == "__main__":
    main()
