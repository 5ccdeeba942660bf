"""The report: what its verdict says of good and of deliberately broken results, and what is on its page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from pages import FLAT, SOLID, build, folded, registered, shifted, turned, write_images
from small import QUICK_OPTIONS, write_pair
from warpfactor.cli import app as cli
from warpfactor.phantom import phantom
from warpfactor.registration.result import json_text
from warpfactor.show.report import inputs_entry

RUNNER = CliRunner()
LARGEST = 5_000_000
CASES = [(SOLID, "t1", "default"), (FLAT, "t1", "default"), ((40, 44, 40), "t2", "multimodal")]


def run(*arguments, code=0):
    result = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def levels(report):
    return {check.name: check.level for check in report.verdict.checks}


def reasons(report):
    return " ".join(check.reason for check in report.verdict.problems)


def save(found, folder, pair):
    """A result folder beside its images."""
    write_images(pair, folder)
    inputs = inputs_entry(folder / "out", fixed=folder / "fixed.nii.gz", moving=folder / "moving.nii.gz")
    return found.save(folder / "out", extra={"inputs": inputs})


@pytest.mark.parametrize(("shape", "contrast", "recipe"), CASES, ids=["3-D", "2-D", "across contrasts"])
def test_a_good_result_is_green(shape, contrast, recipe):
    report = build(registered(shape, contrast, recipe))
    assert report.verdict.level == "green", report
    unknown = {"Left and right": "grey"} if shape == FLAT else {}
    assert levels(report) == dict.fromkeys(levels(report), "green") | unknown
    assert "no voxel folds" in report.verdict.sentence
    assert len(report.html.encode()) < LARGEST


@pytest.mark.parametrize("recipe", ["affine", "rigid"])
def test_a_linear_result_is_judged_as_one(recipe):
    report = build(registered(SOLID, "t1", recipe))
    assert report.verdict.level == "green", report
    assert "Folds" not in levels(report)
    assert 'id="warp"' not in report.html


def test_the_same_image_twice_is_green():
    pair = registered()
    found = wf.register(pair.fixed, pair.fixed, recipe="fast")
    report = wf.report.build(found, fixed=pair.fixed, moving=pair.fixed)
    assert report.verdict.level == "green", report


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_a_wrong_affine_is_red(shape):
    pair = registered(shape)
    for found in (turned(pair.found), shifted(pair.found)):
        report = build(pair, found)
        assert report.verdict.level == "red"
        assert levels(report)["Affine"] == levels(report)["Likeness"] == "red"
        assert "affine looks wrong" in reasons(report)


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_a_folded_warp_is_red(shape):
    pair = registered(shape)
    report = build(pair, folded(pair.found))
    assert levels(report)["Folds"] == "red"
    assert levels(report)["Inverse"] != "green"
    assert re.search(r"The warp folds in \d+ voxels", reasons(report))
    count = int(re.search(r"folds in (\d+) voxels", reasons(report))[1])
    assert count == int((folded(pair.found).warp.jacobian().data <= 0).sum())


def test_a_single_fold_is_amber_not_red():
    pair = registered()
    field = pair.found.warp.displacement.clone()
    field[2, 16, 18, 16] += 2.5
    report = build(pair, replace(pair.found, warp=wf.Warp(field, pair.found.fixed_grid, "fixed", "fixed")))
    assert levels(report)["Folds"] == "amber"
    assert report.verdict.level == "amber"


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_swapped_sides_are_red(shape):
    report = build(registered(shape, mirrored=True))
    assert levels(report)["Left and right"] == "red"
    assert "left and right swapped" in reasons(report)


def test_fields_of_view_apart_are_red():
    pair = registered()
    report = build(pair, shifted(pair.found, 400.0))
    assert levels(report)["Overlap"] == "red"
    assert "hardly overlap: only 0%" in reasons(report)


def test_half_of_the_object_outside_is_amber():
    pair = registered()
    data = pair.moving.data[..., :17].clone()
    grid = wf.Grid((*SOLID[:2], 17), pair.moving.grid.matrix)
    report = wf.report.build(pair.found, fixed=pair.fixed, moving=wf.Image(data, grid, "half"))
    assert levels(report)["Overlap"] == "amber"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A result folder with labels and landmarks, written by the command."""
    place = tmp_path_factory.mktemp("command")
    write_pair(place)
    points = "fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z\n" + "-30,0,20,-31,1,20\n-40,-5,25,-40,-4,24\n"
    (place / "points.csv").write_text(points)
    labels = ("--moving-labels", place / "moving_labels.nii.gz", "--labels", place / "fixed_labels.nii.gz")
    options = (*labels, "--landmarks", place / "points.csv", *QUICK_OPTIONS)
    images = (place / "fixed.nii.gz", place / "moving.nii.gz")
    done = run("register", *images, "-o", place / "out", *options, "--json")
    last = json.loads(done.stdout.splitlines()[-1])
    return place / "out", last


def test_register_writes_page_and_verdict(folder):
    place, last = folder
    entries = json.loads((place / "result.json").read_text(encoding="utf-8"))
    assert entries["verdict"] == last["verdict"]
    assert entries["files"]["report"] == "report.html"
    assert entries["seconds"]["report"] > 0
    assert entries["inputs"]["fixed"] == {
        "path": str(place.parent / "fixed.nii.gz"),
        "path_from_result": "../fixed.nii.gz",
    }
    text = (place / "report.html").read_text(encoding="utf-8")
    for title in ("Before and after", "The warp", "The course of the optimisation", "Labels", "Landmarks", "Recipe"):
        assert title in text


def test_the_page_loads_nothing(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r"""(?:src|href)=["']?([^"'\s>]{0,40})""", text)
    assert sources and all(source.startswith("data:") for source in sources)
    assert "http://" not in text and "https://" not in text
    assert "default-src 'none'" in text


def test_names_are_escaped():
    pair = registered()
    evil = wf.Image(pair.fixed.data, pair.fixed.grid, "</script><b>x")
    found = wf.register(evil, pair.moving, recipe="rigid", overrides={"linear.iterations": [1, 1, 1]})
    text = wf.report.build(found, fixed=evil, moving=pair.moving).html
    assert "</script><b>x" not in text
    assert "&lt;/script&gt;&lt;b&gt;x" in text


def test_a_page_can_be_left_out(tmp_path):
    write_pair(tmp_path)
    images = (tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz")
    run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS, "--no-report")
    assert not (tmp_path / "out" / "report.html").exists()
    assert "verdict" not in json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    done = run("report", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    path, headline, *_ = done.stdout.splitlines()
    assert path == str(tmp_path / "out" / "report.html")
    assert f"<title>{headline.removesuffix('.')}: moving.nii.gz" in text


def test_a_report_that_fails_does_not_lose_the_result(tmp_path, monkeypatch):
    write_pair(tmp_path)

    def fail(*_, **__):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(wf.report, "build", fail)
    images = (tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz")
    done = run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS)
    assert "The report could not be made (ZeroDivisionError: no)" in done.stderr
    assert (tmp_path / "out" / "1Warp.nii.gz").exists()
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_rebuilt_page_speaks_of_the_files_as_they_are(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    assert wf.report.rebuild(place).verdict.level == "green"
    wf.write_transform(folded(pair.found).warp, place / "1Warp.nii.gz", force=True)
    assert levels(wf.report.rebuild(place))["Folds"] == "red"
    wf.write_transform(pair.found.warp, place / "1Warp.nii.gz", force=True)
    wf.write_transform(turned(pair.found).affine, place / "0GenericAffine.mat", force=True)
    assert levels(wf.report.rebuild(place))["Affine"] == "red"


def test_folders_can_be_moved_together_and_images_be_given(tmp_path):
    pair = registered()
    (tmp_path / "a").mkdir()
    save(pair.found, tmp_path / "a", pair)
    (tmp_path / "a").rename(tmp_path / "b")
    assert wf.report.rebuild(tmp_path / "b" / "out").verdict.level == "green"
    moved = (tmp_path / "b" / "fixed.nii.gz").rename(tmp_path / "elsewhere.nii.gz")
    lost = wf.report.rebuild(tmp_path / "b" / "out")
    assert lost.verdict.level == "amber"
    assert "The fixed image fixed.nii.gz was not found; give its place with --fixed." in reasons(lost)
    done = run("report", tmp_path / "b" / "out", "--fixed", moved, "--json")
    assert json.loads(done.stdout)["verdict"]["level"] == "green"


def test_what_a_folder_alone_allows(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    (tmp_path / "moving.nii.gz").unlink()
    report = wf.report.rebuild(place)
    assert levels(report)["Likeness"] == "green", "the warped image is still there"
    assert '"before"' not in report.html.split('id="pictures"')[1]
    (tmp_path / "fixed.nii.gz").unlink()
    report = wf.report.rebuild(place)
    assert levels(report)["Likeness"] == "grey"
    assert levels(report)["Folds"] == "green"
    (place / "warped.nii.gz").unlink()
    text = wf.report.rebuild(place).html
    assert 'id="compare"' not in text
    assert 'id="warp"' in text


def test_another_image_is_refused(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    other = tmp_path / "other.nii.gz"
    wf.write_image(wf.Image(pair.fixed.data[..., :20], wf.Grid((32, 36, 20), np.eye(4)), "other"), other)
    assert "is not the fixed image of" in run("report", place, "--fixed", other, code=2).stderr
    assert "belong to one result" in run("report", place, place, "--fixed", other, code=2).stderr
    assert "is no result folder" in run("report", tmp_path, code=2).stderr


def test_masks_channels_and_nan():
    pair = registered()
    mask = wf.Image((pair.fixed_labels.data > 0).to(torch.uint8), pair.fixed.grid, "mask")
    fixed, moving = (wf.Image(i.data.repeat(2, 1, 1, 1), i.grid, "two") for i in (pair.fixed, pair.moving))
    fixed.data[:, :3, :3, :3] = torch.nan
    report = wf.report.build(pair.found, fixed=fixed, moving=moving, fixed_mask=mask)
    assert report.verdict.level == "green", report


def test_arrays_lie_where_the_registration_had_them():
    made = phantom((24, 40, 36), seed=2, displacement_vox=2.0)
    arrays = made.fixed.numpy(), made.moving.numpy()
    found = wf.register(*arrays, fixed_spacing_mm=(3, 1, 1), moving_spacing_mm=(3, 1, 1))
    page = wf.report.build(found, fixed=arrays[0], moving=arrays[1])
    images = [wf.Image.from_array(array, (3, 1, 1)) for array in arrays]
    assert page.verdict == wf.report.build(found, fixed=images[0], moving=images[1]).verdict


def test_one_slice_of_a_volume():
    pair = registered()
    grid = wf.Grid((1, 36, 32), pair.fixed.grid.matrix)
    fixed, moving = (wf.Image(image.data[:, 16:17], grid, image.name) for image in (pair.fixed, pair.moving))
    found = wf.register(fixed, moving, recipe="fast")
    pictures = json.loads(
        wf.report.build(found, fixed=fixed, moving=moving).html.split('id="pictures">')[1].split("<")[0]
    )
    (plane,) = pictures["planes"]
    assert (plane["name"], plane["slices"], plane["letters"]) == ("Slice", 1, ["R", "L", "A", "P"])


def test_the_page_keeps_below_its_size_whatever_it_shows(rng):
    from warpfactor.show.report.sheets import ROOM, Stack, encode

    noise = [rng.integers(0, 256, (25, 180, 178), dtype=np.uint8) for _ in range(3)]
    sheets = encode([Stack(name, noise) for name in "abcdefg"])
    assert sum(len(sheet) for found in sheets.values() for sheet in found) < 4 / 3 * ROOM + 1000
    assert 4 / 3 * ROOM < LARGEST - 300_000


def test_result_json_stays_plain(folder):
    entries = json.loads((folder[0] / "result.json").read_text(encoding="utf-8"))
    assert json_text(entries)
    assert entries["verdict"]["level"] in ("green", "amber", "red")
    assert {"name", "level", "value", "reason", "advice"} == entries["verdict"]["checks"][0].keys()
