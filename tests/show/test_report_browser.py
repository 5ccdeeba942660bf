"""Report and summary in a real browser: every control by mouse and keyboard, no error, nothing from the network."""

import re

import pytest

from browsing import BROWSER, ready

pytest_plugins = ("browsing",)
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")

VIEWS = ("edges", "pair", "flicker", "checker", "swipe")
MAPS = ("grid", "jacobian", "displacement", "error")


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


# How many pictures a box shows within some milliseconds; it stops at `enough`.
CHANGES = """async ([milliseconds, enough]) => {
  const canvas = document.querySelector("#compare canvas"), seen = new Set(), end = performance.now() + milliseconds;
  while (performance.now() < end && seen.size < enough) {
    seen.add(canvas.toDataURL());
    await new Promise(r => setTimeout(r, 40));
  }
  return seen.size;
}"""
SOON, ONE_CHANGE = [10_000, 2], [900, 2]  # it changes one and a half times a second


def test_flicker_plays_and_stops(visit):
    page = ready(visit("flat/report.html", reduced_motion="no-preference"))
    page.pick("view", "flicker")
    page.settled("flicker")
    assert page.page.evaluate(CHANGES, SOON) == 2
    page.page.locator("#play").click()
    assert page.page.locator("#play").text_content() == "Play"
    page.page.wait_for_timeout(150)
    assert page.page.evaluate(CHANGES, ONE_CHANGE) == 1
    page.page.locator('input[name="view"]:checked').focus()
    page.page.keyboard.press("Space")
    assert page.page.locator("#play").get_attribute("aria-pressed") == "true"
    assert page.page.evaluate(CHANGES, SOON) == 2


def test_flicker_waits_for_those_who_want_no_motion(visit):
    page = ready(visit("flat/report.html", reduced_motion="reduce"))
    page.pick("view", "flicker")
    page.settled("flicker")
    page.page.wait_for_timeout(150)
    assert page.page.evaluate(CHANGES, ONE_CHANGE) == 1
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
    none = page.page.locator("#none")
    page.page.locator("#filter").fill("nobody")
    assert names(page) == [] and none.text_content() == "No result is left by this choice."
    page.page.locator("#filter").fill("fla")
    assert names(page) == ["flat"] and none.text_content() == ""
    page.page.locator("button.open:visible").click()
    assert page.page.locator("dialog p").text_content() == "flat" and page.page.locator("dialog img").is_visible()
    page.page.locator("dialog button").click()
    assert not page.page.locator("dialog").is_visible()
    page.page.locator("a", has_text="flat").click()
    page.page.wait_for_load_state()
    assert page.page.url.endswith("flat/report.html")
    page.settled("edges after")
