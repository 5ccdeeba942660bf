"""`evaluate` scores labels, landmarks and folds, and refuses or warns of files of the wrong space."""

import csv
import json

import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import entries, run

LPS_NAMES = [f"{side}_{axis}_lps" for side in ("fix", "mov") for axis in "xyz"]


@pytest.fixture
def labels(files):
    return "--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz"


def evaluate(*arguments):
    return json.loads(run("evaluate", *arguments, "--format", "json").stdout)


def test_evaluate_scores_labels_landmarks_and_folds(result, files, labels, tmp_path):
    arguments = ("--result", result, *labels, "--landmarks", files / "landmarks.csv")
    table = run("evaluate", *arguments).stdout
    assert "hausdorff95_mm" in table and "dice_before" in table
    found, saved = evaluate(*arguments), entries(result)
    assert found["dice_mean"] == pytest.approx(saved["labels"]["dice_mean_after"], abs=1e-3)
    assert found["dice_mean_before"] == saved["labels"]["dice_mean_before"] < found["dice_mean"]
    assert found["dice_before_per_label"].keys() == saved["labels"]["dice_per_label_before"].keys()
    assert found["folded_voxels"] == 0
    assert "3" in found["dice_per_label"]
    assert found["landmark_error_after_mean_mm"] < found["landmark_error_before_mean_mm"]
    run("evaluate", *arguments, "--format", "table", "-o", tmp_path / "t.txt")
    assert (tmp_path / "t.txt").read_text(encoding="utf-8") == table
    run("evaluate", *arguments, "-o", tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text(encoding="utf-8")) == found
    run("evaluate", *arguments, "-o", tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["figure"] for row in rows} >= {"dice", "dice_mean", "jacobian_minimum"}
    done = run("evaluate", "--result", result, "-o", tmp_path / "folds.json")
    assert done.stdout == f"4 scores written to {tmp_path / 'folds.json'}.\n"


def test_evaluate_compares_two_maps_without_a_transform(files):
    same = files / "fixed_labels.nii.gz"
    found = evaluate("--fixed-labels", same, "--moving-labels", same)
    assert found["dice_mean"] == 1
    assert found["hausdorff95_mean_mm"] == 0
    assert "dice_mean_before" not in found


def test_evaluate_says_what_is_missing(files, result):
    assert "nothing to evaluate" in run("evaluate", code=2).stderr
    assert "give both" in run("evaluate", "--fixed-labels", files / "fixed_labels.nii.gz", code=2).stderr
    assert "table, json, csv" in run("evaluate", "--result", result, "--format", "xml", code=2).stderr


def test_label_maps_of_another_space_are_refused(files, result, tmp_path):
    small = wf.Image(torch.ones((1, 8, 8, 8), dtype=torch.int32), wf.Grid.from_spacing((8, 8, 8)), "small")
    wf.write_image(small, tmp_path / "small.nii.gz")
    far = wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel())
    wf.write_image(wf.Image(small.data, far, "far"), tmp_path / "far.nii.gz")
    fixed, moving = (files / f"{side}_labels.nii.gz" for side in ("fixed", "moving"))
    for first, second, sentence in (
        (moving, fixed, "moving_labels.nii.gz was given as --fixed-labels but lies on the grid of the moving image"),
        (tmp_path / "small.nii.gz", moving, "does not lie on the grid of its image"),
        (fixed, tmp_path / "far.nii.gz", "outside the moving image"),
    ):
        done = run("evaluate", "--result", result, "--fixed-labels", first, "--moving-labels", second, code=2)
        assert sentence in done.stderr


def test_ras_landmarks_are_read_as_such(files, result):
    lps, ras = (
        evaluate("--result", result, "--landmarks", *options)
        for options in ((files / "landmarks.csv",), (files / "ras.csv", "--ras"))
    )
    assert lps == pytest.approx(ras)


def test_columns_that_are_named_lps_are_not_ras(points, result, tmp_path):
    path = tmp_path / "lps.csv"
    np.savetxt(path, np.hstack(points), delimiter=",", header=",".join(LPS_NAMES), comments="")
    run("evaluate", "--result", result, "--landmarks", path)
    done = run("evaluate", "--result", result, "--landmarks", path, "--ras", code=2)
    assert "LPS; leave out" in done.stderr


def test_landmarks_outside_their_images_are_warned_of(files, result):
    done = run("evaluate", "--result", result, "--landmarks", files / "ras.csv")
    lines = done.stderr.splitlines()
    assert [line.split("ras.csv: ")[1].split(";")[0] for line in lines] == [
        f"4 of 4 points lie outside the {side} image" for side in ("fixed", "moving")
    ]
    assert "RAS" in lines[0]
    done = run("evaluate", "--result", result, "--landmarks", files / "landmarks.csv", "--ras")
    assert "LPS" in done.stderr


def test_swapped_landmarks_are_noticed(points, tmp_path):
    matrix = np.eye(4)
    matrix[:3] = [[0.9, 0.1, 0.3, 6], [0.2, 1.1, 0.1, 5], [0.1, 0.3, 0.95, 4]]
    transform, path = wf.Affine(matrix), tmp_path / "landmarks.csv"
    wf.write_transform(transform, tmp_path / "a.mat")
    names = ",".join(f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz")
    sides = [transform.map_points(points[0]), points[0]]
    for swapped in (True, False):
        np.savetxt(path, np.hstack(sides if swapped else sides[::-1]), delimiter=",", header=names, comments="")
        done = run("evaluate", "-t", tmp_path / "a.mat", "--landmarks", path)
        assert ("swapped" in done.stderr) == swapped
