"""Files that are not those that were registered, warps that do nothing and single bad landmarks are not green."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

import warpfactor as wf
from commands import entries, run
from pages import registered, save
from small import LINEAR, write_pair


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A result of files."""
    folder = write_pair(tmp_path_factory.mktemp("files"))
    found = wf.register(folder / "fixed.nii.gz", folder / "moving.nii.gz", recipe="rigid", overrides=LINEAR)
    found.save(folder / "out")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "files")


def replace_fixed(folder):
    """Another image on the same grid, in the place of the fixed one."""
    image = wf.read_image(folder / "fixed.nii.gz")
    wf.write_image(wf.Image(image.data.flip(1), image.grid, image.name), folder / "fixed.nii.gz", force=True)


def findings(report):
    return [check.finding for check in report.verdict.checks]


def test_the_hashes_of_the_inputs_are_kept(folder):
    for name in ("fixed", "moving"):
        entry = entries(folder / "out")["inputs"][name]
        assert len(entry["sha256"]) == 64
        assert entry["size_bytes"] == (folder / f"{name}.nii.gz").stat().st_size


def test_a_report_with_another_image_is_not_green(folder):
    assert "image_changed" not in findings(wf.report.rebuild(folder / "out"))
    replace_fixed(folder)
    report = wf.report.rebuild(folder / "out")
    assert "image_changed" in findings(report)
    assert report.verdict.level != "green"
    assert any(
        "is not the file that was registered as fixed" in reason for reason in report.verdict.to_dict()["reasons"]
    )
    assert "image_changed" in findings(wf.report.rebuild(folder / "out", fixed=folder / "fixed.nii.gz"))


def test_summary_and_apply_tell_of_another_image(folder):
    replace_fixed(folder)
    told = []
    wf.report.summarise([folder / "out"], folder / "page.html", tell=told.append)
    assert any("is not the file that was registered as fixed" in text for text in told)
    done = run(
        "apply", folder / "fixed.nii.gz", "-o", folder / "x.nii.gz", "--result", folder / "out", "--to", "moving"
    )
    assert "is not the file that was registered as fixed" in done.stderr


def test_apply_tells_of_another_transform(folder):
    def said():
        return run(
            "apply", folder / "moving.nii.gz", "-o", folder / "x.nii.gz", "--result", folder / "out", "--force"
        ).stderr

    assert "is not the file" not in said()
    wf.write_transform(wf.Affine(), folder / "out" / "0GenericAffine.mat", force=True)
    assert "0GenericAffine.mat: is not the file that the registration wrote" in said()


def test_a_file_that_was_only_touched_is_the_same(folder):
    (folder / "fixed.nii.gz").touch()
    assert "image_changed" not in findings(wf.report.rebuild(folder / "out"))


def test_a_warp_multiplied_by_zero_is_not_green(tmp_path):
    pair = registered()
    assert pair.found.report().verdict.level == "green"
    nothing = wf.Warp(torch.zeros_like(pair.found.warp.displacement), pair.found.fixed_grid, "fixed", "fixed")
    verdict = replace(pair.found, warp=nothing, inverse_warp=nothing).report().verdict
    (check,) = [check for check in verdict.checks if check.code == "similarity"]
    assert verdict.level != "green"
    assert "warp" in check.facts["problems"]
    assert check.facts["warp_gain"] == pytest.approx(0.0)


def test_one_landmark_far_off_beside_a_good_mean_is_not_green(tmp_path):
    pair = registered()

    def landmarks(worst_mm):
        after = {"mean": 1.2, "median": 1.0, "max": worst_mm}
        scores = {"count": 40, "before_mm": {"mean": 4.0, "median": 4.0, "max": 9.0}, "after_mm": after, "further": 0}
        place = tmp_path / f"{worst_mm:g}"
        place.mkdir()
        saved = save(pair.found, place, pair, extra={"landmarks": scores})
        checks = entries(saved)["verdict"]["checks"]
        return next(check for check in checks if check["code"] == "landmarks")

    assert landmarks(3.0)["level"] == "green"
    bad = landmarks(14.0)
    assert bad["level"] == "amber"
    assert "14.0 mm" in bad["reason"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"stages": 5},
        {"stages": [1]},
        {"figures": "x"},
        {"inputs": {"fixed": 7}},
        {"notices": [3]},
        {"fixed": []},
        {"files": None},
    ],
)
def test_entries_of_a_wrong_kind_are_a_sentence_or_left_out(folder, wrong):
    path = folder / "out" / "result.json"
    path.write_text(json.dumps({**entries(folder / "out"), **wrong}))
    try:
        wf.report.rebuild(folder / "out")
    except wf.FileError as error:
        assert "result.json" in str(error)


def test_a_pipe_in_result_json_does_not_hang_the_report(folder):
    os.mkfifo(folder / "pipe.mha")
    found = entries(folder / "out")
    found["inputs"]["fixed"] = {"path": str(folder / "pipe.mha"), "path_from_result": None, "sha256": "0" * 64}
    (folder / "out" / "result.json").write_text(json.dumps(found))
    assert "image_unreadable" in findings(wf.report.rebuild(folder / "out"))
