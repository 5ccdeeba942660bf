"""A real browser for the tests of report and summary, cut off from every network, and the pages it visits.

PYTEST_DONT_REWRITE: tests import from here before pytest takes this for a plugin.
"""

import shutil
from dataclasses import dataclass

import pytest

import warpfactor as wf
from pages import FLAT, folded, registered, write_images
from warpfactor.registration.report import report_of
from warpfactor.show.report.summary import SummaryRow, read_facts, render_summary

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"desktop": (1280, 900), "phone": (360, 740)}


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def report_pages(tmp_path_factory):
    """Reports of a volume with labels, landmarks and folds, of a slice, of a volume without images; a summary."""
    place = tmp_path_factory.mktemp("pages")
    solid, flat = registered(), registered(FLAT)
    dice = {str(n): 0.5 + n / 300 for n in range(1, 41)}
    labels = {
        "dice_mean_before": 0.4,
        "dice_mean_after": 0.6,
        "dice_per_label_before": dice,
        "dice_per_label_after": dice,
    }
    errors = {"mean": 2.0, "median": 1.5, "max": 4.0}
    landmarks = {"count": 3, "before_mm": errors, "after_mm": errors, "per_point_after_mm": [1.0, 2.0, 3.0]}
    extra = {"command": ["register", "a b", "c"], "labels": labels, "landmarks": landmarks}
    for name, found in (("solid", folded(solid.found)), ("flat", flat.found)):
        (place / name).mkdir()
        options = extra if name == "solid" else {}
        page = report_of(found, extra=options)
        page.save(place / name / "report.html")
    (place / "images").mkdir()
    write_images(solid, place / "images")
    solid.found.save(place / "bare", report=False)
    wf.report.rebuild(place / "bare").save(place / "bare" / "report.html")
    (place / "bare" / "warped.nii.gz").unlink()
    wf.report.rebuild(place / "bare").save(place / "bare" / "alone.html")
    rows = [SummaryRow(place / name, read_facts(place / name)) for name in ("flat", "solid", "bare")]
    (place / "summary.html").write_text(render_summary(rows, place / "summary.html"), encoding="utf-8")
    return place


@dataclass
class Visit:
    """A page that is open, what it asked for and what it complained about."""

    page: object
    requests: list
    complaints: list

    def drawn(self, where="compare", number=0):
        """What is drawn in a box, and its pixels."""
        canvas = self.page.locator(f"#{where} canvas").nth(number)
        return canvas.get_attribute("data-drawn"), canvas.evaluate("c => c.toDataURL()")

    def settled(self, words, where="compare", number=0):
        """Wait until a box shows what it should."""
        self.page.wait_for_function(
            "([where, number, words]) => (document.querySelectorAll(`#${where} canvas`)[number].dataset.drawn || '')"
            ".includes(words)",
            arg=[where, number, words],
        )

    def changed(self, before):
        """Wait until the first box of the comparison has other pixels."""
        script = "before => document.querySelector('#compare canvas').toDataURL() !== before"
        self.page.wait_for_function(script, arg=before)

    def pick(self, name, value):
        """Click a choice with the mouse."""
        self.page.locator(f'input[name="{name}"][value="{value}"]').click()

    def width(self):
        return self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")


@pytest.fixture
def visit(browser, report_pages):
    """Open a page from disk, cut off from every network; at the end nothing may have gone wrong."""
    contexts = []

    def open_page(name, *, size="desktop", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **options)
        context.set_default_timeout(10_000)
        page = context.new_page()
        found = Visit(page, [], [])
        page.on("request", lambda request: found.requests.append(request.url))
        page.on("console", lambda message: found.complaints.append(message.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        contexts.append((context, found))
        page.goto((report_pages / name).as_uri())
        page.wait_for_load_state()
        return found

    yield open_page
    for context, found in contexts:
        context.close()
        assert found.complaints == []
        assert [url[:60] for url in found.requests if not url.startswith(("file:", "data:"))] == []


def ready(page):
    for number in range(page.page.locator("#compare canvas").count()):
        page.settled("edges after", number=number)
    return page
