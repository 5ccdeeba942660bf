"""The summary: many results on one page, the worst first, figures that stand out marked, links to the reports."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import warpfactor as wf
from pages import registered, shifted, write_images
from warpfactor.show.report.summary import SummaryRow as Row
from warpfactor.show.report.summary import outliers, read_facts, render_summary


def levels(*arguments, **options):
    """The levels of a summary, by name of the result."""
    return {row.folder.name: row.level for row in wf.report.summarise(*arguments, **options)}


def facts(level="green", **figures):
    verdict = {"level": level, "headline": level.title(), "reasons": [] if level == "green" else ["Something is off."]}
    return {"fixed": "f", "moving": "m", "verdict": verdict, "figures": figures, "thumbnail": ""}


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """A folder with a good result that has a report, a bad one that has none, and one that cannot be read."""
    place = tmp_path_factory.mktemp("cohort results")
    pair = registered()
    write_images(pair, place)
    for name, found in (("good", pair.found), ("bad", shifted(pair.found))):
        sources = {"fixed": place / "fixed.nii.gz", "moving": place / "moving.nii.gz"}
        replace(found, run=replace(found.run, sources=sources)).save(place / name, report=name == "good")
    (place / "damaged").mkdir()
    (place / "damaged" / "result.json").write_text("{")
    return place


def test_one_page_over_many_results_worst_first(cohort, tmp_path):
    page = tmp_path / "deep" / "summary.html"
    told = []
    assert levels([cohort], page, tell=told.append) == {"good": "green", "bad": "red", "damaged": "red"}
    assert told == [f"making the report of {cohort / 'bad'}"], "the other one is there already"
    text = page.read_text(encoding="utf-8")
    names = re.findall(r'class="name" data-value="(\w+)"', text)
    assert names[-1] == "good" and set(names) == {"good", "bad", "damaged"}
    links = dict(re.findall(r'<a href="([^"]+)">(\w+)</a>', text))
    assert set(links.values()) == {"good", "bad"}
    for link, name in links.items():
        target = (page.parent / link.replace("%20", " ")).resolve()
        assert target == (cohort / name / "report.html").resolve()
        assert target.is_file()
    assert text.count("data:image/jpeg") == 2
    assert "The affine looks wrong" in text or "hardly more similar" in text
    assert "is damaged" in text
    assert "https://" not in text and "http://" not in text


def test_a_damaged_result_is_not_green_because_its_report_was(cohort, tmp_path):
    folder = tmp_path / "results" / "sub"
    shutil.copytree(cohort / "good", folder)
    (folder / "result.json").write_text("{")
    assert levels([folder], tmp_path / "s.html") == {"sub": "red"}
    assert "result.json: is damaged" in (tmp_path / "s.html").read_text(encoding="utf-8")


def test_it_is_not_overwritten_and_needs_results(cohort, tmp_path):
    (tmp_path / "summary.html").write_text("mine")
    with pytest.raises(wf.FileError, match="exists already"):
        wf.report.summarise([cohort], tmp_path / "summary.html")
    assert (tmp_path / "summary.html").read_text(encoding="utf-8") == "mine"
    with pytest.raises(wf.FileError, match="contains no result"):
        wf.report.summarise([tmp_path], tmp_path / "other.html")


def test_rebuild_makes_reports_again(cohort, tmp_path):
    report = cohort / "good" / "report.html"
    stamp = report.stat().st_mtime_ns
    assert levels([cohort / "good"], tmp_path / "a.html") == {"good": "green"}
    assert report.stat().st_mtime_ns == stamp, "nothing has changed"
    assert levels([cohort / "good"], tmp_path / "b.html", rebuild=True) == {"good": "green"}
    assert report.stat().st_mtime_ns > stamp


def test_a_verdict_is_made_again_if_it_is_not_about_the_files_that_are_there(cohort, tmp_path):
    """A page that says what it likes, and another warp in the place of the one that was judged."""
    shutil.copytree(cohort, tmp_path / "c")
    folder, told = tmp_path / "c" / "good", []
    wf.report.summarise([folder], tmp_path / "copied.html", tell=told.append)
    assert told == [], "a copy is the same"
    page = (folder / "report.html").read_text(encoding="utf-8")
    (folder / "report.html").write_text(page.replace('"level":"green"', '"level":"amber"'), encoding="utf-8")
    assert levels([folder], tmp_path / "edited.html", tell=told.append) == {"good": "green"}
    assert told == [f"making the report of {folder}"]
    warp = wf.read_transform(folder / "1Warp.nii.gz")
    wf.write_transform(replace(warp, displacement=0 * warp.displacement), folder / "1Warp.nii.gz", force=True)
    assert levels([folder], tmp_path / "warp.html") == {"good": "amber"}


@pytest.mark.parametrize("edit", ["level", "stages"])
def test_a_verdict_is_made_again_if_result_json_was_edited(cohort, tmp_path, edit):
    """By hand, without the digest of what was judged."""
    shutil.copytree(cohort, tmp_path / "c")
    folder, told = tmp_path / "c" / "good", []
    entries = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if edit == "level":
        entries["verdict"]["level"] = "red"
    else:
        entries["interrupted"] = True
    (folder / "result.json").write_text(json.dumps(entries), encoding="utf-8")
    found = wf.report.summarise([folder], tmp_path / "page.html", tell=told.append)
    assert told == [f"making the report of {folder}"]
    assert [row.facts["verdict"]["level"] for row in found] == [{"level": "green", "stages": "red"}[edit]]


def test_a_verdict_that_cannot_be_made_again_is_marked_as_claimed(cohort, tmp_path):
    shutil.copytree(cohort, tmp_path / "c")
    folder, page = tmp_path / "c" / "good", tmp_path / "page.html"
    wf.write_transform(wf.Affine(), folder / "0GenericAffine.mat", force=True)
    for path in (tmp_path / "c" / "fixed.nii.gz", tmp_path / "c" / "moving.nii.gz"):
        path.unlink()
    entries = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    (folder / "result.json").write_text(json.dumps({**entries, "inputs": {}}), encoding="utf-8")
    assert levels([folder], page) == {"good": "amber"}
    assert "claimed: looks good" in page.read_text(encoding="utf-8")


def test_facts_are_read_from_the_page(cohort):
    found = read_facts(cohort / "good")
    assert found["verdict"]["level"] == "green"
    assert found["figures"]["sd_log"] > 0
    assert found["thumbnail"].startswith("data:image/jpeg")
    assert json.dumps(found)
    assert read_facts(cohort) is None


def test_figures_that_stand_out_are_found_on_their_bad_side():
    rows = [Row(Path(f"r{i}"), facts(sd_log=0.4 + 0.01 * i, dice=0.8, seconds=10.0)) for i in range(7)]
    rows += [Row(Path("rough"), facts(sd_log=2.0, dice=0.8, seconds=900.0))]
    rows += [Row(Path("smooth"), facts(sd_log=0.01, dice=0.3, seconds=10.0))]
    found = outliers(rows)
    assert [set(f) for f in found] == [set()] * 7 + [{"sd_log"}, {"dice"}]
    assert outliers(rows[5:]) == [{}] * 4, "among so few nothing stands out"
    text = render_summary(rows, "summary.html")
    assert re.findall(r'class="name" data-value="(\w+)"', text)[:2] == ["rough", "smooth"]
    assert text.count('class="number outlier"') == 2


def test_a_tight_group_has_no_outliers_and_doubtful_checks_are_marked():
    rows = [Row(Path(f"r{i}"), facts(inverse_vox=v)) for i, v in enumerate((0.11, 0.12, 0.12, 0.13, 0.14, 0.17))]
    assert outliers(rows) == [{}] * 6
    bad = facts("red", correlation=0.3, sd_log=0.5)
    bad["verdict"]["checks"] = [{"code": "similarity", "level": "red"}, {"code": "regularity", "level": "green"}]
    text = render_summary([*rows, Row(Path("bad"), bad)], "summary.html")
    assert re.findall(r'title="its check is not green">([\d.]+)<', text) == ["0.30"]
    assert text.count('class="number outlier"') == 1
    assert "<b>1</b> not to be used as it is" in text and "<b>6</b> look good" in text


def test_verdicts_come_before_outliers():
    rows = [Row(Path(n), facts(level, sd_log=0.5)) for n, level in (("a", "green"), ("b", "red"), ("c", "amber"))]
    text = render_summary(rows, "summary.html")
    assert re.findall(r'class="name" data-value="(\w+)"', text) == ["b", "c", "a"]
    assert "Dice" not in text, "columns without any value are left out"
