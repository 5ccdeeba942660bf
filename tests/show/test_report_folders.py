"""Reports of result folders: images far apart, folders that fail, images that are gone, results saved from Python."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from pages import FLAT, build, registered, write_images
from small import LINEAR, QUICK, QUICK_OPTIONS, write_pair
from warpfactor.checks.case import from_folder
from warpfactor.cli import app as cli
from warpfactor.show.report.summary import read_facts

RUNNER = CliRunner()


def run(*arguments, code=0):
    result = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


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
    done = run("register", *images, "-o", out, "--recipe", recipe)
    assert "could not be made" not in done.stderr
    assert entries(out)["stages"][0]["cost_before"] is None
    assert entries(out)["verdict"]["level"] == "green"
    assert "no overlap" in (out / "report.html").read_text(encoding="utf-8")
    run("report", out)
    assert "1 green" in run("summary", out, "-o", out / "summary.html").stdout


def test_the_text_inf_of_older_results_is_understood(apart):
    images = (apart / "fixed.nii.gz", apart / "moving.nii.gz")
    out = wf.register(*images, recipe="rigid", overrides={"linear.iterations": [1, 1, 1]}).save(apart / "older")
    text = (out / "result.json").read_text(encoding="utf-8")
    (out / "result.json").write_text(text.replace('"cost_before": null', '"cost_before": "inf"'), encoding="utf-8")
    assert entries(out)["stages"][0]["cost_before"] == "inf"
    assert from_folder(out).entries["stages"][0]["cost_before"] is None
    run("report", out)


@pytest.fixture
def saved(tmp_path):
    """Two results saved from Python beside the files they were made of."""
    write_pair(tmp_path)
    found = wf.register(tmp_path / "fixed.nii.gz", str(tmp_path / "moving.nii.gz"), overrides=QUICK)
    for name in ("one", "two"):
        found.save(tmp_path / "results" / name)
    return tmp_path / "results"


def test_a_folder_that_fails_does_not_stop_the_others(saved, monkeypatch):
    made = wf.report.from_folder

    def fail(folder, **options):
        if folder.name == "one":
            raise ZeroDivisionError("no")
        return made(folder, **options)

    monkeypatch.setattr(wf.report, "from_folder", fail)
    done = run("summary", saved, "-o", saved / "summary.html")
    assert "2 results, 1 red" in done.stdout
    text = (saved / "summary.html").read_text(encoding="utf-8")
    assert "The report could not be made (ZeroDivisionError: no)" in text
    assert text.index('data-value="one"') < text.index('data-value="two"')
    done = run("report", saved / "one", saved / "two", code=2)
    assert "(ZeroDivisionError: no)" in done.stderr and "1 of 2 reports could not be made" in done.stderr
    assert str(saved / "two" / "report.html") in done.stdout


def test_results_saved_from_python_know_their_files(saved):
    inputs = entries(saved / "one")["inputs"]
    assert inputs["fixed"] == {
        "path": str(saved.parent / "fixed.nii.gz"),
        "path_from_result": "../../fixed.nii.gz",
    }
    assert set(inputs) == {"fixed", "moving"}
    assert not wf.report.rebuild(saved / "one").verdict.checks[0].name.startswith("Images")
    run("summary", saved, "-o", saved / "summary.html")
    assert all(read_facts(saved / name)["figures"]["correlation"] is not None for name in ("one", "two"))
    assert "verdict" in entries(saved / "one"), "a report that is made later says so in result.json"
    assert entries(saved / "one")["files"]["report"] == "report.html"


def test_arrays_have_no_path(tmp_path):
    made = wf.phantom.phantom((1, 40, 44), displacement_vox=1.5)
    arrays = made.fixed[0].numpy(), made.moving[0].numpy()
    found = wf.register(*arrays, recipe="affine", overrides=LINEAR)
    assert "inputs" not in entries(found.save(tmp_path / "out"))


def test_a_page_is_not_replaced_by_one_that_shows_less(saved):
    place = saved / "one"
    run("report", place)
    before = (place / "report.html").read_text(encoding="utf-8"), entries(place)
    (saved.parent / "moving.nii.gz").rename(saved.parent / "gone.nii.gz")
    done = run("report", place, code=2)
    assert "The moving image moving.nii.gz was not found" in done.stderr and "--force" in done.stderr
    done = run("summary", saved, "-o", saved / "summary.html", "--rebuild")
    assert "was left as it is" in done.stderr
    assert ((place / "report.html").read_text(encoding="utf-8"), entries(place)) == before
    assert "the next moving image" in before[0]
    run("report", place, "--force")
    text = (place / "report.html").read_text(encoding="utf-8")
    assert text != before[0]
    assert "the next moving image" not in text, "there is none to choose"
    assert entries(place)["verdict"]["level"] == "amber"
    run("report", place)


def test_a_moving_mask_says_where_likeness_counts(tmp_path):
    pair = registered()
    spoilt = pair.moving.data.clone()
    generator = torch.Generator().manual_seed(1)
    spoilt[..., :16] = torch.rand(spoilt[..., :16].shape, generator=generator) * float(spoilt.max())
    mask = torch.zeros_like(spoilt, dtype=torch.uint8)
    mask[..., 17:] = 1
    moving = wf.Image(spoilt, pair.moving.grid, "moving")
    counts = wf.Image(mask, pair.moving.grid, "mask")
    likeness = {}
    for name, chosen in (("all", None), ("masked", counts)):
        report = wf.report.build(pair.found, fixed=pair.fixed, moving=moving, moving_mask=chosen)
        likeness[name] = {check.name: check for check in report.verdict.checks}
    assert likeness["masked"]["Likeness"].level == "green"
    assert likeness["masked"]["Overlap"].value == likeness["all"]["Overlap"].value, "what is masked is still there"
    after = [float(likeness[name]["Likeness"].value.split()[-2]) for name in ("all", "masked")]
    assert after[1] > after[0] + 0.1


def test_the_command_remembers_the_moving_mask(tmp_path):
    write_pair(tmp_path)
    images = (tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz", "--moving-mask", tmp_path / "mask.nii.gz")
    run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS)
    assert entries(tmp_path / "out")["inputs"]["moving_mask"]["path_from_result"] == "../mask.nii.gz"
    assert from_folder(tmp_path / "out").moving_mask is not None


def test_an_image_upside_down_gets_its_own_sentence():
    pair = registered()
    turn = np.diag([-1.0, -1.0, 1.0, 1.0])
    stages = (replace(pair.found.history[0], start="identity"), *pair.found.history[1:])
    found = replace(pair.found, affine=wf.Affine(turn @ pair.found.affine.matrix, "fixed", "moving"), history=stages)
    (check,) = [check for check in build(pair, found).verdict.checks if check.name == "Turn"]
    assert check.level == "amber" and "degrees" in check.reason
    asked = replace(found, history=(replace(stages[0], start="given"), *stages[1:]))
    assert "Turn" not in [check.name for check in build(pair, asked).verdict.checks]
