"""Report and summary in a real browser: every control by mouse and keyboard, no error, nothing from the network."""

import re
import shutil
from dataclasses import dataclass

import pytest

import warpfactor as wf
from pages import FLAT, folded, registered, write_images
from warpfactor.report.summary import Row, read_facts, render_summary

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")

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
VIEWS = ("edges", "pair", "flicker", "checker", "swipe")
MAPS = ("grid", "jacobian", "displacement", "error")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
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
    for name, pair, found in (("solid", solid, folded(solid.found)), ("flat", flat, flat.found)):
        (place / name).mkdir()
        options = extra if name == "solid" else {}
        page = wf.report.build(found, fixed=pair.fixed, moving=pair.moving, extra=options)
        page.save(place / name / "report.html")
    (place / "images").mkdir()
    write_images(solid, place / "images")
    solid.found.save(place / "bare")
    wf.report.rebuild(place / "bare").save(place / "bare" / "report.html")
    (place / "bare" / "warped.nii.gz").unlink()
    wf.report.rebuild(place / "bare").save(place / "bare" / "alone.html")
    rows = [Row(place / name, read_facts(place / name)) for name in ("flat", "solid", "bare")]
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
def visit(browser, files):
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
        page.goto((files / name).as_uri())
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


@pytest.mark.parametrize("name", ["solid/report.html", "flat/report.html"])
def test_every_view_by_mouse(visit, name):
    page = ready(visit(name))
    pictures = {}
    for view in VIEWS:
        page.pick("view", view)
        page.settled(view)
        pictures[view] = page.drawn()[1]
        tools = page.page.locator("[data-for]:visible")
        assert {tools.nth(k).get_attribute("data-for") for k in range(tools.count())} <= {view}
    assert len(set(pictures.values())) == len(VIEWS)
    page.pick("view", "edges")
    for moving in ("before", "affine"):
        page.pick("moving", moving)
        page.settled(f"edges {moving}")
        assert page.drawn()[1] != pictures["edges"]
    page.pick("moving", "after")
    page.settled("edges after")
    assert page.drawn()[1] == pictures["edges"]


def test_every_view_by_keyboard(visit):
    page = ready(visit("solid/report.html"))
    keyboard = page.page.keyboard
    for number, view in enumerate(VIEWS, 1):
        keyboard.press(str(number))
        page.settled(view)
        assert page.page.evaluate("document.activeElement.value") == view
    page.page.locator('input[name="view"][value="edges"]').focus()
    keyboard.press("1")
    for view in (*VIEWS[1:], VIEWS[0]):
        keyboard.press("ArrowRight")
        page.settled(view)
    keyboard.press("b")
    page.settled("edges before")
    keyboard.press("b")
    page.settled("edges affine")
    page.page.locator('input[name="map"]:checked').focus()
    for name in (*MAPS[1:], MAPS[0]):
        keyboard.press("ArrowRight")
        page.settled(f" {name} ", "warp")


def test_the_tab_key_reaches_every_control(visit):
    page = ready(visit("solid/report.html"))
    wanted = page.page.evaluate(
        "[...document.querySelectorAll('button, input[type=range], summary')]"
        ".filter(e => e.checkVisibility({ checkVisibilityCSS: true })).map(e => e.id || e.textContent)"
    )
    wanted += ["moving", "view", "map"]
    reached = set()
    for _ in range(3 * len(wanted)):
        page.page.keyboard.press("Tab")
        name = "e => e.type === 'radio' ? e.name : e.id || e.textContent"
        reached.add(page.page.evaluate(f"({name})(document.activeElement)"))
        assert page.page.evaluate("!document.activeElement.closest('[hidden]')")
    assert set(wanted) <= reached


def test_slices_move_together(visit):
    page = ready(visit("solid/report.html"))
    sliders = page.page.locator("#compare figure input[type=range]")
    assert sliders.count() == 3
    for number in range(3):
        slider, before = sliders.nth(number), page.drawn("compare", number)
        value = int(slider.input_value())
        slider.focus()
        page.page.keyboard.press("ArrowRight")
        page.settled(f"after grid {value + 1}", "compare", number)
        page.settled(f"{value + 1}", "warp", number)
        after = page.drawn("compare", number)
        assert after[1] != before[1]
        assert page.page.locator("#warp figure input[type=range]").nth(number).input_value() == str(value + 1)
        outputs = page.page.locator("figure output")
        assert outputs.nth(number).text_content() == outputs.nth(number + 3).text_content()
    page.page.locator("#warp figure input[type=range]").nth(0).click(position={"x": 4, "y": 15})
    page.settled(" 0", "compare", 0)
    label = page.page.locator("#compare canvas").nth(0).get_attribute("aria-label")
    assert re.fullmatch(r"Axial, slice 1 of \d+: edges of the fixed image on the moving image, After", label)


def test_swipe_follows_pointer_and_slider(visit):
    page = ready(visit("solid/report.html"))
    page.pick("view", "swipe")
    page.settled("swipe")
    middle = page.drawn()[1]
    frame = page.page.locator("#compare canvas").nth(0).bounding_box()
    page.page.mouse.move(frame["x"] + 0.5 * frame["width"], frame["y"] + 40)
    page.page.mouse.down()
    page.page.mouse.move(frame["x"] + 0.2 * frame["width"], frame["y"] + 60, steps=4)
    page.page.mouse.up()
    place = page.page.locator("#place")
    assert float(place.input_value()) == pytest.approx(20, abs=1)
    page.page.wait_for_function(
        "before => document.querySelector('#compare canvas').toDataURL() !== before", arg=middle
    )
    place.focus()
    page.page.keyboard.press("Home")
    page.page.wait_for_timeout(200)
    left = page.drawn()[1]
    page.page.keyboard.press("End")
    page.changed(left)


@pytest.mark.parametrize(("view", "slider"), [("checker", "tiles"), ("edges", "share")])
def test_sliders_of_views(visit, view, slider):
    page = ready(visit("flat/report.html"))
    page.pick("view", view)
    page.settled(view)
    before = page.drawn()[1]
    page.page.locator(f"#{slider}").focus()
    page.page.keyboard.press("End")
    page.page.wait_for_function(
        "before => document.querySelector('#compare canvas').toDataURL() !== before", arg=before
    )


CHANGES = """async milliseconds => {
  const canvas = document.querySelector("#compare canvas"), seen = new Set(), end = performance.now() + milliseconds;
  while (performance.now() < end) { seen.add(canvas.toDataURL()); await new Promise(r => setTimeout(r, 40)); }
  return seen.size;
}"""


def test_flicker_plays_and_stops(visit):
    page = ready(visit("flat/report.html", reduced_motion="no-preference"))
    page.pick("view", "flicker")
    page.settled("flicker")
    assert page.page.evaluate(CHANGES, 1800) == 2
    page.page.locator("#play").click()
    assert page.page.locator("#play").text_content() == "Play"
    page.page.wait_for_timeout(150)
    assert page.page.evaluate(CHANGES, 1500) == 1
    page.page.locator('input[name="view"]:checked').focus()
    page.page.keyboard.press("Space")
    assert page.page.locator("#play").get_attribute("aria-pressed") == "true"
    assert page.page.evaluate(CHANGES, 1800) == 2


def test_flicker_waits_for_those_who_want_no_motion(visit):
    page = ready(visit("flat/report.html", reduced_motion="reduce"))
    page.pick("view", "flicker")
    page.settled("flicker")
    page.page.wait_for_timeout(150)
    assert page.page.evaluate(CHANGES, 1500) == 1
    assert float(page.page.locator("#speed").get_attribute("max")) <= 3, "never more than three flashes a second"


def test_maps_by_mouse(visit):
    page = ready(visit("solid/report.html"))
    pictures = set()
    for name in MAPS:
        page.pick("map", name)
        page.settled(f" {name} ", "warp")
        pictures.add(page.drawn("warp")[1])
        assert page.page.locator("#key p").text_content()
        assert page.page.locator("#key .scale").is_visible() == (name != "grid")
    assert len(pictures) == len(MAPS)
    page.pick("map", "jacobian")
    page.settled(" jacobian ", "warp")
    magenta = (
        page.page.locator("#warp canvas")
        .nth(0)
        .evaluate(
            "c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
            "for (let i = 0; i < d.length; i += 4) n += d[i] === 230 && d[i + 1] === 0 && d[i + 2] === 150; return n; }"
        )
    )
    assert magenta > 0, "folds are marked"


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
        "(() => { const c = document.querySelector('#compare canvas'); return c.width > c.height; })()"
    )


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_pictures_stay_where_they_are_whatever_the_view(visit, width):
    page = ready(visit("solid/report.html"))
    page.page.set_viewport_size({"width": width, "height": 900})
    tops, words = set(), set()
    for view in ("edges", "flicker", "checker", "swipe"):
        page.pick("view", view)
        page.settled(view)
        tops.add(page.page.evaluate("document.querySelector('#compare .planes').getBoundingClientRect().top + scrollY"))
        words.add(page.page.locator("#compare-words").text_content())
    assert len(words) == 4, "the words are about the view"
    assert len(tops) == 1


def test_wide_tables_say_so_on_a_phone(visit):
    for name in ("solid/report.html", "summary.html"):
        wide = visit(name, size="phone").page.locator(".scroll.more")
        assert wide.count() >= 1
        hint = wide.first.evaluate("e => getComputedStyle(e, '::before').content")
        assert "sideways" in hint
        assert wide.first.get_attribute("tabindex") == "0"
    assert visit("solid/report.html").page.locator(".scroll.more").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["solid/report.html", "flat/report.html", "bare/report.html", "summary.html"])
def test_it_fits_and_follows_the_scheme(visit, name, size, scheme):
    page = visit(name, size=size, color_scheme=scheme)
    needed, given = page.width()
    assert needed <= given, "nothing sticks out to the right"
    colour = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
    assert bright == (scheme == "light")
    page.page.locator("#theme").click()
    other = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert other != colour
    assert contrast_of(page) >= 4.5


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


def contrast_of(page):
    page.page.wait_for_timeout(200)  # colours fade
    return page.page.evaluate(CONTRAST)


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


def test_a_result_without_its_images(visit):
    page = visit("bare/report.html")
    page.settled("edges after")
    assert page.page.locator('input[name="view"]').count() == 0, "there is nothing to compare with"
    page.pick("map", "error")
    page.settled(" error ", "warp")
    alone = visit("bare/alone.html")
    assert alone.page.locator("#compare").count() == 0
    alone.settled(" grid ", "warp")


def test_the_page_says_so_without_scripts(visit):
    page = visit("solid/report.html", java_script_enabled=False)
    assert page.page.locator("noscript").count() == 1
    assert page.page.locator(".verdict h2").text_content() == "Do not use this as it is"


def names(page):
    return page.page.locator("tbody tr:visible .name a").all_text_contents()


def test_the_summary_sorts_filters_and_leads_to_the_reports(visit):
    page = visit("summary.html")
    assert names(page)[0] == "solid"
    head = page.page.locator('th[data-key="name"]')
    head.locator("button").click()
    assert names(page) == ["bare", "flat", "solid"]
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").focus()
    page.page.keyboard.press("Enter")
    assert names(page) == ["solid", "flat", "bare"]
    folds = page.page.locator('th[data-key="folded"] button')
    folds.click()
    folds.click()
    assert names(page)[0] == "solid"
    page.page.locator('th[data-key="correlation"] button').click()
    values = page.page.locator("tbody tr").evaluate_all("rows => rows.map(r => r.cells[3].dataset.value)")
    known = [float(value) for value in values if value]
    assert known == sorted(known) and values[-1] == "", "what has no value comes last"
    page.pick("level", "doubtful")
    assert "flat" not in names(page)
    page.pick("level", "all")
    page.page.locator("a", has_text="flat").click()
    page.page.wait_for_load_state()
    assert page.page.url.endswith("flat/report.html")
    page.settled("edges after")
