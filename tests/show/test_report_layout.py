"""Report and summary on screens of several sizes and on paper, in light and dark, and for readers of labels."""

import itertools
import re

import pytest

from browsing import BROWSER, SIZES, ready

pytest_plugins = ("browsing",)
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")


def test_side_by_side_is_side_by_side_where_there_is_room(visit):
    for size, beside in (("desktop", True), ("phone", False)):
        page = ready(visit("solid/report.html", size=size))
        edges = page.page.locator("#compare canvas").nth(0).evaluate("c => c.width / c.height")
        page.pick("view", "pair")
        page.settled("pair")
        pair = page.page.locator("#compare canvas").nth(0).evaluate("c => c.width / c.height")
        assert (pair > 1.8 * edges) == beside
        assert page.width()[0] <= page.width()[1]
    page.page.set_viewport_size({"width": 1000, "height": 800})
    page.page.wait_for_function(
        "() => { const c = document.querySelector('#compare canvas'); return c.width > c.height; }"
    )


def test_pictures_stay_where_they_are_whatever_the_view(visit):
    page = ready(visit("solid/report.html"))
    for width in (360, 800, 1280):
        page.page.set_viewport_size({"width": width, "height": 900})
        tops, words = set(), set()
        for view in ("edges", "flicker", "checker", "swipe"):
            page.pick("view", view)
            page.settled(view)
            tops.add(page.page.evaluate(TOP_OF_PICTURES))
            words.add(page.page.locator("#compare-words").text_content())
        assert len(words) == 4, "the words are about the view"
        assert len(tops) == 1


TOP_OF_PICTURES = "document.querySelector('#compare .planes').getBoundingClientRect().top + scrollY"


def test_wide_tables_say_so_on_a_phone(visit):
    for name in ("solid/report.html", "summary.html"):
        wide = visit(name, size="phone").page.locator(".scroll.more")
        assert wide.count() >= 1
        hint = wide.first.evaluate("e => getComputedStyle(e, '::before').content")
        assert "sideways" in hint
        assert wide.first.get_attribute("tabindex") == "0"
    assert visit("solid/report.html").page.locator(".scroll.more").count() == 0


@pytest.mark.parametrize("name", ["solid/report.html", "flat/report.html", "bare/report.html", "summary.html"])
def test_it_fits_and_follows_the_scheme(visit, name):
    page = visit(name, size="phone", color_scheme="dark")
    for size, scheme in itertools.product(("phone", "desktop"), ("dark", "light")):
        width, height = SIZES[size]
        page.page.set_viewport_size({"width": width, "height": height})
        page.page.emulate_media(color_scheme=scheme)
        needed, given = page.width()
        assert needed <= given, "nothing sticks out to the right"
        colour = ground_of(page)
        bright = sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
        assert bright == (scheme == "light")
        page.page.locator("#theme").click()
        assert ground_of(page) != colour
        assert page.page.evaluate(CONTRAST) >= 4.5
        page.page.evaluate("delete document.documentElement.dataset.theme")  # it follows the scheme again


FADED = "() => Promise.all(document.getAnimations().map(a => a.finished))"


def ground_of(page):
    """The colour of the page, once colours have faded into each other."""
    page.page.evaluate(FADED)
    return page.page.evaluate("getComputedStyle(document.body).backgroundColor")


CONTRAST = """() => {
  const light = c => { const v = c.map(x => x / 255).map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  let least = 21;
  const words = "h1, h2, p, b, td, th, span, label, legend, a, small, button, summary, pre, footer";
  for (const e of document.querySelectorAll(words)) {
    if (!e.offsetParent || !e.textContent.trim() || e.querySelector("*")) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
    least = Math.min(least, (Math.max(a, b) + .05) / (Math.min(a, b) + .05));
  }
  return least;
}"""


def test_everything_has_a_name(visit):
    for name in ("solid/report.html", "flat/report.html", "summary.html"):
        page = visit(name).page
        assert page.evaluate("[...document.querySelectorAll('input')].every(e => e.labels.length || e.ariaLabel)")
        assert page.evaluate("[...document.querySelectorAll('canvas')].every(e => e.getAttribute('aria-label'))")
        assert page.evaluate("[...document.querySelectorAll('img')].every(e => e.alt)")
        assert page.evaluate("[...document.querySelectorAll('svg')].every(e => e.ariaLabel || e.ariaHidden === 'true')")
        assert page.evaluate("[...document.querySelectorAll('fieldset')].every(e => e.querySelector('legend'))")
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        assert page.evaluate("document.documentElement.lang") == "en"
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))


def test_it_prints(visit):
    page = ready(visit("solid/report.html", color_scheme="dark"))
    page.page.emulate_media(media="print")
    assert page.page.locator(".tools").first.is_hidden()
    assert page.page.locator("#compare canvas").first.is_visible()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.page.evaluate(ground) == "rgb(255, 255, 255)"
    page.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert page.page.evaluate(ground) == "rgb(255, 255, 255)"
    assert len(page.page.pdf(format="A4")) > 20_000
    assert page.page.locator("details[open]").count() == page.page.locator("details").count()
