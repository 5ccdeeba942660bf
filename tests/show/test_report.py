"""The report: what its verdict says of good and of deliberately broken results, and what is on its page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from pages import FLAT, SOLID, folded, registered, save, shifted, turned, with_images
from small import QUICK, write_pair
from warpfactor.io.jsontext import json_text
from warpfactor.phantom import phantom

LARGEST = 5_000_000
CASES = [(SOLID, "t1", "default"), (FLAT, "t1", "default"), ((40, 44, 40), "t2", "multimodal")]


def levels(report):
    return {check.code: check.level for check in report.verdict.checks}


def reasons(report):
    return " ".join(check.reason for check in report.verdict.problems)


@pytest.mark.parametrize(("shape", "contrast", "recipe"), CASES, ids=["3-D", "2-D", "across contrasts"])
def test_a_good_result_is_green(shape, contrast, recipe):
    report = registered(shape, contrast, recipe).found.report()
    assert report.verdict.level == "green", report
    unknown = {"sides": "grey"} if shape == FLAT else {}
    assert levels(report) == dict.fromkeys(levels(report), "green") | unknown
    assert "no voxel folds" in report.verdict.sentence
    assert len(report.html.encode()) < LARGEST


@pytest.mark.parametrize("recipe", ["affine", "rigid"])
def test_a_linear_result_is_judged_as_one(recipe):
    report = registered(SOLID, "t1", recipe).found.report()
    assert report.verdict.level == "green", report
    assert "folds" not in levels(report)
    assert 'id="warp"' not in report.html


def test_the_same_image_twice_is_green():
    pair = registered()
    found = wf.register(pair.fixed, pair.fixed, recipe="fast")
    report = found.report()
    assert report.verdict.level == "green", report


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_a_wrong_affine_is_red(shape):
    pair = registered(shape)
    for found in (turned(pair.found), shifted(pair.found)):
        report = found.report()
        assert report.verdict.level == "red"
        assert levels(report)["affine"] == levels(report)["similarity"] == "red"
        assert "affine looks wrong" in reasons(report)


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_a_folded_warp_is_red(shape):
    pair = registered(shape)
    report = folded(pair.found).report()
    assert levels(report)["folds"] == "red"
    assert levels(report)["inverse"] != "green"
    assert re.search(r"The warp folds in \d+ voxels", reasons(report))
    count = int(re.search(r"folds in (\d+) voxels", reasons(report))[1])
    assert count == int((folded(pair.found).warp.jacobian().data <= 0).sum())


def test_a_single_fold_is_amber_not_red():
    pair = registered()
    field = pair.found.warp.displacement.clone()
    field[2, 16, 18, 16] += 2.5
    report = replace(pair.found, warp=wf.Warp(field, pair.found.fixed_grid, "fixed", "fixed")).report()
    assert levels(report)["folds"] == "amber"
    assert report.verdict.level == "amber"


@pytest.mark.parametrize("shape", [SOLID, FLAT], ids=["3-D", "2-D"])
def test_swapped_sides_are_red(shape):
    report = registered(shape, mirrored=True).found.report()
    assert levels(report)["sides"] == "red"
    assert "left and right may be exchanged" in reasons(report)


def test_fields_of_view_apart_are_red():
    pair = registered()
    report = shifted(pair.found, 400.0).report()
    assert levels(report)["overlap"] == "red"
    assert "hardly overlap: only 0%" in reasons(report)


def test_half_of_the_object_outside_is_amber_unless_the_rest_clearly_fits():
    pair = registered()
    data = pair.moving.data[..., :17].clone()
    grid = wf.Grid((*SOLID[:2], 17), pair.moving.grid.matrix)
    noise = torch.rand(data.shape, generator=torch.Generator().manual_seed(0))
    for image, level in ((data, "green"), (noise * data.max(), "amber")):
        report = with_images(pair.found, moving=wf.Image(image, grid, "half")).report()
        assert levels(report)["overlap"] == level


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A result folder with labels and landmarks."""
    place = tmp_path_factory.mktemp("saved")
    write_pair(place)
    points = "fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z\n" + "-30,0,20,-31,1,20\n-40,-5,25,-40,-4,24\n"
    (place / "points.csv").write_text(points)
    found = wf.register(place / "fixed.nii.gz", place / "moving.nii.gz", overrides=QUICK)
    companions = wf.Companions.read(
        place / "fixed_labels.nii.gz",
        place / "moving_labels.nii.gz",
        place / "points.csv",
        fixed=found.images.fixed,
        moving=found.images.moving,
    )
    return found.save(place / "out", companions=companions, extra={"command": ["register", "fixed.nii.gz"]})


def test_saving_writes_page_and_verdict(folder):
    entries = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert entries["files"]["report"] == "report.html"
    assert entries["seconds"]["report"] > 0
    fixed = entries["inputs"]["fixed"]
    assert fixed["path"] == str(folder.parent / "fixed.nii.gz")
    assert fixed["path_from_result"] == "../fixed.nii.gz"
    text = (folder / "report.html").read_text(encoding="utf-8")
    for title in ("Before and after", "The warp", "Optimisation", "Labels", "Landmarks", "Recipe"):
        assert title in text
    assert "warpfactor register fixed.nii.gz" in text


def test_the_page_loads_nothing(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    sources = re.findall(r"""(?:src|href)=["']?([^"'\s>]{0,40})""", text)
    assert sources and all(source.startswith("data:") for source in sources)
    assert "http://" not in text and "https://" not in text
    assert "default-src 'none'" in text


def test_names_are_escaped():
    pair = registered()
    evil = wf.Image(pair.fixed.data, pair.fixed.grid, "</script><b>x")
    found = wf.register(evil, pair.moving, recipe="rigid", overrides={"linear.iterations": [1, 1, 1]})
    text = found.report().html
    assert "</script><b>x" not in text
    assert "&lt;/script&gt;&lt;b&gt;x" in text


def test_a_rebuilt_page_speaks_of_the_files_as_they_are(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    assert wf.report.rebuild(place).verdict.level == "green"
    wf.write_transform(folded(pair.found).warp, place / "1Warp.nii.gz", force=True)
    assert levels(wf.report.rebuild(place))["folds"] == "red"
    wf.write_transform(pair.found.warp, place / "1Warp.nii.gz", force=True)
    wf.write_transform(turned(pair.found).affine, place / "0GenericAffine.mat", force=True)
    assert levels(wf.report.rebuild(place))["affine"] == "red"


def test_folders_can_be_moved_together_and_images_be_given(tmp_path):
    pair = registered()
    (tmp_path / "a").mkdir()
    save(pair.found, tmp_path / "a", pair)
    (tmp_path / "a").rename(tmp_path / "b")
    assert wf.report.rebuild(tmp_path / "b" / "out").verdict.level == "green"
    moved = (tmp_path / "b" / "fixed.nii.gz").rename(tmp_path / "elsewhere.nii.gz")
    lost = wf.report.rebuild(tmp_path / "b" / "out")
    assert lost.verdict.level == "amber"
    assert "The fixed image fixed.nii.gz was not found; give its file as fixed (--fixed)." in reasons(lost)
    assert wf.report.refresh(tmp_path / "b" / "out", fixed=moved).verdict.level == "green"


def test_what_a_folder_alone_allows(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    (tmp_path / "moving.nii.gz").unlink()
    report = wf.report.rebuild(place)
    assert levels(report)["similarity"] == "green", "the warped image is still there"
    assert '"before"' not in report.html.split('id="pictures"')[1]
    (tmp_path / "fixed.nii.gz").unlink()
    report = wf.report.rebuild(place)
    assert levels(report)["similarity"] == "grey"
    assert levels(report)["folds"] == "green"
    (place / "warped.nii.gz").unlink()
    text = wf.report.rebuild(place).html
    assert 'id="compare"' not in text
    assert 'id="warp"' in text


def test_another_image_is_refused(tmp_path):
    pair = registered()
    place = save(pair.found, tmp_path, pair)
    other = tmp_path / "other.nii.gz"
    wf.write_image(wf.Image(pair.fixed.data[..., :20], wf.Grid.from_spacing((32, 36, 20), 2.0), "other"), other)
    with pytest.raises(wf.FileError, match="is not the fixed image of this result: it has "):
        wf.report.rebuild(place, fixed=other)
    with pytest.raises(wf.FileError, match="is not a result folder"):
        wf.report.rebuild(tmp_path)


def test_masks_channels_and_nan():
    pair = registered()
    mask = wf.Image((pair.fixed_labels.data > 0).to(torch.uint8), pair.fixed.grid, "mask")
    fixed, moving = (wf.Image(i.data.repeat(2, 1, 1, 1), i.grid, "two") for i in (pair.fixed, pair.moving))
    fixed.data[:, :3, :3, :3] = torch.nan
    report = with_images(pair.found, fixed=fixed, moving=moving, fixed_mask=mask).report()
    assert report.verdict.level == "green", report


def test_arrays_lie_where_the_registration_had_them():
    made = phantom((24, 40, 36), seed=2, displacement_vox=2.0)
    arrays = made.fixed.numpy(), made.moving.numpy()
    found = wf.register(*arrays, fixed_spacing_mm=(3, 1, 1), moving_spacing_mm=(3, 1, 1))
    images = [wf.Image.from_array(array, (3, 1, 1)) for array in arrays]
    other = with_images(found, fixed=images[0], moving=images[1])
    assert found.report().verdict == other.report().verdict


def test_one_slice_of_a_volume():
    pair = registered()
    grid = wf.Grid((1, 36, 32), pair.fixed.grid.matrix)
    fixed, moving = (wf.Image(image.data[:, 16:17], grid, image.name) for image in (pair.fixed, pair.moving))
    found = wf.register(fixed, moving, recipe="fast")
    pictures = json.loads(found.report().html.split('id="pictures">')[1].split("<")[0])
    (plane,) = pictures["planes"]
    assert (plane["name"], plane["slices"], plane["letters"]) == ("Slice", 1, ["R", "L", "A", "P"])


def test_the_page_keeps_below_its_size_whatever_it_shows(rng):
    from warpfactor.show.report.sheets import ROOM, Stack, encode

    noise = [rng.integers(0, 256, (25, 180, 178), dtype=np.uint8) for _ in range(3)]
    sheets = encode([Stack(name, noise) for name in "abcdefg"])
    assert sum(len(sheet) for found in sheets.values() for sheet in found) < 4 / 3 * ROOM + 1000
    assert 4 / 3 * ROOM < LARGEST - 300_000


def test_result_json_stays_plain(folder):
    entries = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert json_text(entries)
    assert entries["verdict"]["level"] in ("green", "amber", "red")
    assert {"code", "name", "level", "finding", "facts", "value", "reason", "advice"} == entries["verdict"]["checks"][
        0
    ].keys()
