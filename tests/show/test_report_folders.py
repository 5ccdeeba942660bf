"""Reports of result folders: images far apart, folders that fail, images that are gone, results saved from Python."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from pages import FLAT, registered, with_images, write_images
from small import LINEAR, QUICK, write_pair
from warpfactor.registration.case import case_of_folder
from warpfactor.show.report.summary import read_facts


def entries(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Two files whose fields of view do not meet, two metres from each other."""
    place = tmp_path_factory.mktemp("apart")
    pair = registered(FLAT)
    write_images(pair, place)
    matrix = pair.moving.grid.matrix.copy()
    matrix[0, 3] += 2000.0
    far = wf.Image(pair.moving.data, wf.Grid(pair.moving.grid.shape, matrix, 2), "moving")
    wf.write_image(far, place / "moving.nii.gz", force=True)
    return place


@pytest.mark.parametrize("recipe", ["default", "affine"])
def test_images_that_do_not_overlap_at_first_have_a_report(apart, recipe):
    out = apart / recipe
    images = (apart / "fixed.nii.gz", apart / "moving.nii.gz")
    wf.register(*images, recipe=recipe).save(out)
    assert entries(out)["stages"][0]["cost_before"] is None
    assert entries(out)["verdict"]["level"] == "green"
    assert "no overlap" in (out / "report.html").read_text(encoding="utf-8")
    assert wf.report.refresh(out).verdict.level == "green"
    assert [row.level for row in wf.report.summarise([out], out / "summary.html")] == ["green"]


@pytest.fixture
def saved(tmp_path):
    """Two results saved from Python beside the files they were made of."""
    write_pair(tmp_path)
    found = wf.register(tmp_path / "fixed.nii.gz", str(tmp_path / "moving.nii.gz"), overrides=QUICK)
    for name in ("one", "two"):
        found.save(tmp_path / "results" / name, report=False)
    return tmp_path / "results"


def test_a_folder_that_fails_does_not_stop_the_others(saved, monkeypatch):
    made = wf.report.case_of_folder

    def fail(folder, **options):
        if folder.name == "one":
            raise ZeroDivisionError("no")
        return made(folder, **options)

    monkeypatch.setattr(wf.report, "case_of_folder", fail)
    rows = wf.report.summarise([saved], saved / "summary.html")
    assert [row.level for row in rows] == ["red", "green"]
    text = (saved / "summary.html").read_text(encoding="utf-8")
    assert "The report could not be made (ZeroDivisionError: no)" in text
    assert text.index('data-value="one"') < text.index('data-value="two"')


def test_results_saved_from_python_know_their_files(saved):
    inputs = entries(saved / "one")["inputs"]
    places = {key: inputs["fixed"][key] for key in ("path", "path_from_result")}
    assert places == {
        "path": str(saved.parent / "fixed.nii.gz"),
        "path_from_result": "../../fixed.nii.gz",
    }
    assert set(inputs) == {"fixed", "moving"}
    assert "images" not in [check.code for check in wf.report.rebuild(saved / "one").verdict.checks]
    wf.report.summarise([saved], saved / "summary.html")
    assert all(read_facts(saved / name)["figures"]["correlation"] is not None for name in ("one", "two"))
    assert "verdict" in entries(saved / "one"), "a report that is made later says so in result.json"
    assert entries(saved / "one")["files"]["report"] == "report.html"


def test_arrays_have_no_path(tmp_path):
    made = wf.phantom.phantom((1, 40, 44), displacement_vox=1.5)
    arrays = made.fixed[0].numpy(), made.moving[0].numpy()
    found = wf.register(*arrays, recipe="affine", overrides=LINEAR)
    assert "inputs" not in entries(found.save(tmp_path / "out", report=False))


def test_a_page_is_not_replaced_by_one_that_shows_less(saved):
    place = saved / "one"
    wf.report.refresh(place)
    before = (place / "report.html").read_text(encoding="utf-8"), entries(place)
    (saved.parent / "moving.nii.gz").rename(saved.parent / "gone.nii.gz")
    with pytest.raises(wf.report.ImageNotFoundError, match=r"The moving image moving.nii.gz was not found.*--force"):
        wf.report.refresh(place)
    told = []
    wf.report.summarise([saved], saved / "summary.html", rebuild=True, tell=told.append)
    assert any("was not changed" in text for text in told)
    assert ((place / "report.html").read_text(encoding="utf-8"), entries(place)) == before
    assert "the next moving image" in before[0]
    wf.report.refresh(place, force=True)
    text = (place / "report.html").read_text(encoding="utf-8")
    assert text != before[0]
    assert "the next moving image" not in text, "there is none to choose"
    assert entries(place)["verdict"]["level"] == "amber"
    wf.report.refresh(place)


def test_a_moving_mask_limits_where_similarity_is_measured(tmp_path):
    pair = registered()
    spoilt = pair.moving.data.clone()
    generator = torch.Generator().manual_seed(1)
    spoilt[..., :16] = torch.rand(spoilt[..., :16].shape, generator=generator) * float(spoilt.max())
    mask = torch.zeros_like(spoilt, dtype=torch.uint8)
    mask[..., 17:] = 1
    moving = wf.Image(spoilt, pair.moving.grid, "moving")
    counts = wf.Image(mask, pair.moving.grid, "mask")
    found = {}
    for name, chosen in (("all", None), ("masked", counts)):
        report = with_images(pair.found, moving=moving, moving_mask=chosen).report()
        found[name] = {check.code: check for check in report.verdict.checks}
    assert found["masked"]["similarity"].level == "green"
    assert found["masked"]["overlap"].value == found["all"]["overlap"].value, "what is masked is still there"
    after = [found[name]["similarity"].facts["correlation_after"] for name in ("all", "masked")]
    assert after[1] > after[0] + 0.1


def test_a_result_remembers_the_moving_mask(tmp_path):
    write_pair(tmp_path)
    images = (tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz")
    found = wf.register(*images, moving_mask=tmp_path / "mask.nii.gz", overrides=QUICK)
    found.save(tmp_path / "out", report=False)
    assert entries(tmp_path / "out")["inputs"]["moving_mask"]["path_from_result"] == "../mask.nii.gz"
    assert case_of_folder(tmp_path / "out").moving_mask is not None


def test_an_image_upside_down_gets_its_own_sentence():
    pair = registered()
    turn = np.diag([-1.0, -1.0, 1.0, 1.0])
    stages = (replace(pair.found.history[0], start="identity"), *pair.found.history[1:])
    found = replace(pair.found, affine=wf.Affine(turn @ pair.found.affine.matrix, "fixed", "moving"), history=stages)
    (check,) = [check for check in found.report().verdict.checks if check.code == "rotation"]
    assert check.level == "amber" and "degrees" in check.reason
    asked = replace(found, history=(replace(stages[0], start="given"), *stages[1:]))
    assert "rotation" not in [check.code for check in asked.report().verdict.checks]
