"""A Registration in use: points of any dimension, notices, saving and reading, companions, folders of version 0.1."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import warpfactor as wf
from small import QUICK, image, pair, write_pair
from warpfactor import kernels
from warpfactor.registration import folder as folders
from warpfactor.show.wording import sentence


@pytest.fixture(scope="module")
def images():
    made = pair()
    return image(made.fixed, name="fixed"), image(made.moving, name="moving")


@pytest.fixture(scope="module")
def flat():
    made = pair((1, 32, 36))
    return wf.register(made.fixed[0].numpy(), made.moving[0].numpy(), overrides=QUICK)


def test_points_of_slices_have_two_columns_or_three(flat):
    points = np.array([[10.0, 12.0], [20.5, 14.0]])
    there = flat.apply_points(points, to="moving")
    assert there.shape == (2, 2)
    deep = flat.apply_points(np.c_[points, np.zeros(2)], to="moving")
    assert deep.shape == (2, 3)
    assert np.array_equal(deep[:, :2], there)
    assert np.abs(flat.apply_points(there) - points).max() < 0.1
    assert flat.apply_points([10.0, 12.0], to="moving").shape == (1, 2)


def test_points_of_volumes_have_three_columns(images):
    found = wf.register(*images, recipe="rigid", overrides={k: v for k, v in QUICK.items() if k.startswith("linear")})
    with pytest.raises(wf.InputError, match="rows of 3 numbers"):
        found.apply_points([[1.0, 2.0]])


def test_costs_are_told_without_a_negative_zero(flat):
    stage = replace(flat.history[0], cost_before=float("inf"), cost_after=-1e-9)
    assert stage.change(2) == "no overlap -> 0.00"
    assert "-0.0" not in repr(replace(flat, history=(stage,)))


def test_time_of_another_part_is_added_to_the_total(flat):
    more = flat.run.with_seconds("write", 2.0).with_seconds("write", 1.0)
    assert more.seconds["write"] == 3.0
    assert more.seconds["total"] == pytest.approx(flat.run.seconds["total"] + 3.0)
    assert list(more.seconds)[-1] == "total"
    assert "write" not in flat.run.seconds


def test_entries_of_a_part_are_added_to_it(flat, tmp_path):
    flat.save(tmp_path / "out", report=False, extra={"files": {"more": "x.txt"}, "note": {"a": 1}})
    entries = wf.read_result(tmp_path / "out").entries
    assert entries["files"]["more"] == "x.txt"
    assert entries["files"]["warped_moving_on_fixed_grid"] == "warped.nii.gz"
    assert entries["note"] == {"a": 1}
    assert entries["seconds"]["write"] > 0


@pytest.fixture(scope="module")
def solid(images):
    return wf.register(*images, overrides=QUICK)


def test_the_images_are_kept_as_they_were_read(images, solid):
    assert solid.images.fixed.data.data_ptr() == images[0].data.data_ptr(), "no copy"
    assert solid.images.moving is images[1]
    assert solid.images.fixed_mask is None
    assert solid.moving_grid == images[1].grid


def test_one_call_writes_everything(solid, tmp_path):
    folder = solid.save(tmp_path / "out")
    others = {"warped_labels.nii.gz", "velocity.nii.gz", "warped.ome.zarr"}  # of label maps, velocities, OME-Zarr
    assert {path.name for path in folder.iterdir()} == set(folders.OWN) - others
    entries = wf.read_result(folder).entries
    assert set(entries["verdict"].pop("judged")) == {"entries", "files", "limits"}  # what it was made of
    assert entries["verdict"] == solid.report().verdict.to_dict()
    assert (folder / "report.html").read_text(encoding="utf-8") == solid.report().html
    assert solid.report() is solid.report(), "it is made once"
    assert entries["files"]["report"] == "report.html"
    assert list(entries["seconds"])[-3:] == ["report", "write", "total"]
    assert entries["ending"] == solid.ending.value and entries["status"] == solid.status


def test_a_report_can_be_left_out(solid, tmp_path):
    folder = solid.save(tmp_path / "out", report=False)
    assert not (folder / "report.html").exists()
    assert "verdict" not in wf.read_result(folder).entries


def test_companions_are_carried_along_and_scored(images, solid, tmp_path):
    write_pair(tmp_path)
    (tmp_path / "points.csv").write_text(
        "fixed_x,fixed_y,fixed_z,moving_x,moving_y,moving_z\n-30,0,20,-31,1,20\n-40,-5,25,-40,-4,24\n"
    )
    names = (tmp_path / "fixed_labels.nii.gz", tmp_path / "moving_labels.nii.gz", tmp_path / "points.csv")
    companions = wf.Companions.read(*names, ras=False, fixed=images[0], moving=images[1])
    folder = solid.save(tmp_path / "out", companions=companions)
    entries = wf.read_result(folder).entries
    carried = wf.read_labels(folder / "warped_labels.nii.gz")
    assert torch.equal(carried.data, companions.carry(solid).data)
    assert entries["labels"]["dice_mean_after"] > entries["labels"]["dice_mean_before"]
    assert entries["landmarks"]["count"] == 2
    assert entries["files"]["warped_moving_labels_on_fixed_grid"] == "warped_labels.nii.gz"
    assert {"labels", "landmarks"} <= {check["code"] for check in entries["verdict"]["checks"]}
    assert ">Labels<" in (folder / "report.html").read_text(encoding="utf-8")
    with pytest.raises(wf.InputError, match="give moving labels"):
        wf.Companions.read(names[0], None, None, fixed=images[0], moving=images[1])


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("name", ["write_image", "write_transform", "json_text"])
def test_nothing_half_written_is_left_behind(solid, tmp_path, monkeypatch, name, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(folders, name, fail)
    with pytest.raises((wf.FileError, KeyboardInterrupt)):
        solid.save(tmp_path / "deep" / "out", report=False)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_result_survives_a_failed_one(solid, tmp_path, monkeypatch):
    solid.save(tmp_path / "out", report=False)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    monkeypatch.setattr(folders, "write_transform", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solid.save(tmp_path / "out", report=False, force=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_report_that_fails_does_not_lose_the_result(solid, tmp_path, monkeypatch):
    monkeypatch.setattr(wf.report, "make_report", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match=r"The report could not be made \(ZeroDivisionError"):
        folder = replace(solid).save(tmp_path / "out")
    assert (folder / "1Warp.nii.gz").exists()
    assert not (folder / "report.html").exists()


def test_notices_are_codes_and_facts_and_warnings_their_sentences(solid):
    stage = replace(solid.history[0], cost_after=0.9)
    odd = replace(solid, history=(stage, *solid.history[1:]), run=replace(solid.run, missing=(0.0, 0.25)))
    poor, missing = odd.notices
    assert (poor.code, poor.facts["stage"], poor.facts["cost"]) == ("poor_alignment", "affine", 0.9)
    assert (missing.code, missing.facts) == ("missing_part", {"side": "moving", "share": 0.25})
    assert odd.warnings == (sentence(poor), sentence(missing))
    assert "not very similar" in odd.warnings[0] and "25%" in odd.warnings[1]
    entries = odd.to_dict()
    assert entries["notices"] == [notice.to_dict() for notice in odd.notices]
    assert json.loads(json.dumps(entries["notices"])) == entries["notices"]
    assert solid.notices == ()


def test_the_backend_of_the_run_applies_and_reports(solid):
    assert solid.ops is kernels.select("cpu", "numba")
    other = replace(solid, run=replace(solid.run, backend="reference"))
    assert other.ops is kernels.select("cpu", "reference")
    assert replace(solid, run=replace(solid.run, backend="cuda only")).ops is kernels.select("cpu")


def test_folders_of_version_0_1_are_read(solid, images, tmp_path):
    """Format 1 had sentences where there are codes now, and the freedom of a linear step as "dof"."""
    folder = solid.save(tmp_path / "out", report=False)
    path = folder / "result.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    linear, deformable = entries["stages"]
    for stage in entries["stages"]:
        del stage["ending"]
    linear["status"], deformable["status"] = (
        "Converged: no step promises to lower the cost.",
        "Finished: every level ran to its iteration limit, or to where no step lowered the cost.",
    )
    linear["cost_before"], linear["cost_after"] = "inf", 0.8
    linear["history"]["dof"] = linear["history"].pop("stage")
    del deformable["history"]["stage"]
    deformable["levels"] = [[2.0, "cost flattened"], [1.0, "iteration limit"]]
    del entries["ending"], entries["notices"]
    entries |= {"format": 1, "status": deformable["status"], "warnings": ["After the affine stage ..."]}
    path.write_text(json.dumps(entries))
    saved = wf.read_result(folder)
    assert saved.entries["ending"] == "limit"
    assert [notice["code"] for notice in saved.entries["notices"]] == ["poor_alignment"]
    assert saved.entries["stages"][1]["levels"] == [[2.0, "converged"], [1.0, "limit"]]
    assert torch.allclose(saved.apply(images[1]).data, solid.warped.data, atol=1e-3)
    report = wf.report.refresh(folder)
    assert {check.code for check in report.verdict.problems} >= {"linear_stage", "images"}
    (row,) = wf.report.summarise([tmp_path], tmp_path / "summary.html")
    assert row.level == report.verdict.level
