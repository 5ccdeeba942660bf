"""Labels and landmarks that go along with a registration, doubts about it, and what `apply` and `evaluate` say."""

import json
import time
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from small import GRID, LINEAR, QUICK_OPTIONS, pair, write_pair
from warpfactor.cli import app as cli
from warpfactor.cli.scores import _errors
from warpfactor.geometry.itk import sitk

RUNNER = CliRunner()
LABELS = "warped_labels.nii.gz"


def run(*arguments, code=0):
    done = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def register(folder, output, *options, code=0):
    images = (folder / "fixed.nii.gz", folder / "moving.nii.gz")
    return run("register", *images, "-o", output, *QUICK_OPTIONS, *options, code=code)


def entries(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def write_landmarks(path):
    """Three points of the phantom, and where its true warp takes them."""
    truth = pair().displacement
    index = torch.tensor([[8, 9, 10], [14, 12, 11], [12, 13, 9]])
    moved = index + torch.stack([truth[:, z, y, x] for z, y, x in index.tolist()])
    sides = [GRID.index_to_world(part.numpy()) for part in (index, moved)]
    names = [f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz"]
    np.savetxt(path, np.hstack(sides), delimiter=",", header=",".join(names), comments="")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    labels = wf.read_labels(folder / "moving_labels.nii.gz")
    sitk.WriteImage(sitk.Cast(labels.to_sitk(), sitk.sitkUInt16), str(folder / "short_labels.nii.gz"))
    write_landmarks(folder / "landmarks.csv")
    return folder


@pytest.fixture(scope="module")
def scored(files, tmp_path_factory):
    """A result with labels and landmarks, and what was printed."""
    folder = tmp_path_factory.mktemp("results") / "out"
    labels = ("--moving-labels", files / "short_labels.nii.gz", "--fixed-labels", files / "fixed_labels.nii.gz")
    return folder, register(files, folder, *labels, "--landmarks", files / "landmarks.csv")


@pytest.fixture
def unused(monkeypatch):
    """A registration that must not be started."""

    def fail(*_, **__):
        raise AssertionError("the registration was started")

    monkeypatch.setattr("warpfactor.registration.run.make_scene", fail)


def test_landmark_errors_are_in_the_result_and_the_summary(scored, files):
    folder, done = scored
    found = entries(folder)["landmarks"]
    assert found["count"] == 3
    assert found["before_mm"].keys() == found["after_mm"].keys() == {"mean", "median", "max"}
    assert found["after_mm"]["mean"] < found["before_mm"]["mean"]
    assert found["after_mm"]["max"] == max(found["per_point_after_mm"])
    line = next(line for line in done.stdout.splitlines() if line.startswith("Landmarks "))
    assert f"mean {found['before_mm']['mean']:.2f} -> {found['after_mm']['mean']:.2f} mm" in line
    same = run("evaluate", "--result", folder, "--landmarks", files / "landmarks.csv", "--format", "json").stdout
    scores = json.loads(same)
    assert scores["landmark_error_after_mean_mm"] == pytest.approx(found["after_mm"]["mean"], abs=1e-3)
    assert scores["landmark_error_before_mean_mm"] == found["before_mm"]["mean"]


def test_the_time_is_that_of_everything(scored):
    folder, _ = scored
    seconds = entries(folder)["seconds"]
    parts = [value for name, value in seconds.items() if name != "total"]
    assert {"read", "labels and landmarks", "write"} <= seconds.keys()
    assert list(seconds)[-1] == "total"
    assert min(parts) > 0
    assert seconds["total"] >= 0.98 * sum(parts)


def test_the_time_of_the_summary_includes_scoring_and_writing(files, tmp_path, monkeypatch):
    monkeypatch.setattr(wf.quality, "dice_figures", _slow(wf.quality.dice_figures))
    labels = ("--moving-labels", files / "moving_labels.nii.gz", "--fixed-labels", files / "fixed_labels.nii.gz")
    done = register(files, tmp_path / "out", *labels)
    printed = float(done.stdout.split("after ")[1].split(" s")[0])
    assert printed >= 0.4
    assert entries(tmp_path / "out")["seconds"]["labels and landmarks"] >= 0.4


def _slow(function):
    def slow(*arguments):
        time.sleep(0.2)
        return function(*arguments)

    return slow


def test_carried_labels_are_listed_and_keep_their_type(scored, files, tmp_path):
    folder, _ = scored
    listed = entries(folder)["files"]
    assert listed["warped_moving_labels_on_fixed_grid"] == LABELS
    assert listed["fixed_to_moving_affine"] == "0GenericAffine.mat"
    assert sitk.ReadImage(str(folder / LABELS)).GetPixelID() == sitk.sitkUInt16
    output = tmp_path / "labels.nii.gz"
    run("apply", files / "short_labels.nii.gz", "--labels", "-o", output, "--result", folder)
    assert sitk.ReadImage(str(output)).GetPixelID() == sitk.sitkUInt16
    assert torch.equal(wf.read_labels(output).data, wf.read_labels(folder / LABELS).data)


def test_a_type_that_cannot_hold_the_labels_is_widened(files, tmp_path):
    data = torch.tensor([[[[-1, 300], [5, 0]]]], dtype=torch.int32)
    labels = wf.Image(data, wf.Grid.from_spacing((2, 2)), "labels")
    sitk.WriteImage(sitk.Image(2, 2, sitk.sitkUInt8), str(tmp_path / "bytes.nii.gz"))
    wf.io.write_labels(labels, tmp_path / "wide.nii.gz", like=tmp_path / "bytes.nii.gz")
    assert torch.equal(wf.read_labels(tmp_path / "wide.nii.gz").data, data)
    wf.io.write_labels(labels, tmp_path / "plain.nii.gz")
    assert torch.equal(wf.read_labels(tmp_path / "plain.nii.gz").data, data)


def test_no_labels_no_entry(files, tmp_path):
    register(files, tmp_path / "out", "--moving-labels", files / "moving_labels.nii.gz", "-q")
    found = entries(tmp_path / "out")
    assert "labels" not in found
    assert "landmarks" not in found
    assert found["files"]["warped_moving_labels_on_fixed_grid"] == LABELS


def test_labels_are_compared_before_and_after(scored, files):
    folder, _ = scored
    labels = ("--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", files / "moving_labels.nii.gz")
    found = json.loads(run("evaluate", "--result", folder, *labels, "--format", "json").stdout)
    saved = entries(folder)["labels"]
    assert found["dice_mean_before"] == saved["dice_mean_before"] < found["dice_mean"]
    assert found["dice_before_per_label"].keys() == saved["dice_per_label_before"].keys()
    assert "dice_before" in run("evaluate", "--result", folder, *labels).stdout
    alone = json.loads(run("evaluate", *labels, "--format", "json").stdout)
    assert "dice_mean_before" not in alone
    assert alone["dice_mean"] == pytest.approx(saved["dice_mean_before"])


def test_labels_of_another_grid_are_refused_before_the_registration(files, tmp_path, unused):
    small = wf.Image(torch.ones((1, 8, 8, 8), dtype=torch.int32), wf.Grid.from_spacing((8, 8, 8)), "small")
    wf.write_image(small, tmp_path / "small.nii.gz")
    far = wf.Image(small.data, wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel()), "far")
    wf.write_image(far, tmp_path / "far.nii.gz")
    flat = wf.Image(small.data[:, :1], wf.Grid.from_spacing((8, 8)), "flat")
    wf.write_image(flat, tmp_path / "flat.nii.gz")
    moving = files / "moving_labels.nii.gz"
    for options, sentence in (
        (("--moving-labels", moving, "--fixed-labels", tmp_path / "small.nii.gz"), "does not lie on the grid"),
        (("--moving-labels", tmp_path / "far.nii.gz"), "lies outside moving.nii.gz in space"),
        (("--moving-labels", tmp_path / "flat.nii.gz"), "is a 2-D file and moving.nii.gz a 3-D one"),
        (("--landmarks", files / "nowhere.csv"), "there is no such file"),
    ):
        assert sentence in register(files, tmp_path / "out", *options, code=2).stderr


def test_labels_may_have_a_grid_of_their_own(files, tmp_path):
    labels = wf.read_labels(files / "moving_labels.nii.gz")
    coarse = labels.grid.scaled(2)
    wf.write_image(wf.Affine().resample(labels, coarse, mode="label"), tmp_path / "coarse.nii.gz")
    register(files, tmp_path / "out", "--moving-labels", tmp_path / "coarse.nii.gz", "-q")
    assert wf.read_labels(tmp_path / "out" / LABELS).grid.same_space(GRID)


def test_apply_says_where_the_output_is_only_if_it_knows(scored, files, tmp_path):
    folder, _ = scored
    moving, fixed = files / "moving.nii.gz", files / "fixed.nii.gz"
    known = run("apply", moving, "-o", tmp_path / "a.nii.gz", "--result", folder).stdout
    assert known == f"image in fixed space written to {tmp_path / 'a.nii.gz'}\n"
    back = ("-t", f"[{folder / '0GenericAffine.mat'},1]", "-t", folder / "1InverseWarp.nii.gz", "-r", moving)
    done = run("apply", fixed, "-o", tmp_path / "b.nii.gz", *back).stdout
    assert done == f"image written to {tmp_path / 'b.nii.gz'}\n"


def test_a_slice_is_not_carried_by_a_volumes_result(scored, tmp_path):
    folder, _ = scored
    wf.write_image(wf.Image.from_array(np.ones((9, 8))), tmp_path / "slice.nii.gz")
    done = run("apply", tmp_path / "slice.nii.gz", "-o", tmp_path / "x.nii.gz", "--result", folder, code=2)
    assert "slice.nii.gz is a 2-D image and is to be carried onto a 3-D grid" in done.stderr
    assert not (tmp_path / "x.nii.gz").exists()


@pytest.fixture(scope="module")
def unlike():
    """The registration of two images that have nothing in common."""
    rng = np.random.default_rng(3)
    return wf.register(rng.random((40, 44)), rng.random((42, 40)), recipe="affine", overrides=LINEAR)


def test_images_with_nothing_in_common_are_doubted(unlike):
    assert len(unlike.warnings) == 1
    assert "little alike (LNCC cost 0." in unlike.warnings[0]
    assert "--recipe multimodal" in unlike.warnings[0]
    assert unlike.to_dict()["warnings"] == list(unlike.warnings)


def test_a_doubt_is_in_the_summary_and_for_programs(tmp_path):
    rng = np.random.default_rng(3)
    for name in ("a", "b"):
        wf.write_image(wf.Image.from_array(rng.random((40, 42))), tmp_path / f"{name}.nii.gz")
    options = ("--recipe", "affine", *QUICK_OPTIONS[:6])
    images = (tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")
    done = run("register", *images, "-o", tmp_path / "out", *options)
    assert "          - After the affine stage the images are little alike" in done.stdout
    assert done.stdout.count("After the affine stage") == 1
    assert "below" not in done.stdout
    done = run("register", *images, "-o", tmp_path / "bare", *options, "--no-report")
    assert any(line.startswith("Warning   After the affine stage") for line in done.stdout.splitlines())
    done = run("register", *images, "-o", tmp_path / "out", *options, "--json", "--force")
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["warnings"] == entries(tmp_path / "out")["warnings"]
    assert len(last["warnings"]) == 1


def test_images_that_belong_together_are_not_doubted():
    made = pair((1, 48, 44), contrast="t1")
    assert not wf.register(made.fixed[0].numpy(), made.moving[0].numpy(), recipe="affine", overrides=LINEAR).warnings


def test_the_head_pair_of_two_contrasts_is_doubted_and_multimodal_is_not(data_dir):
    images = [data_dir / "slices2d" / f"elastix_CT_2D_head_{side}.mha" for side in ("fixed", "moving")]
    (doubt,) = wf.register(*images, recipe="affine").warnings
    assert "turned them by" in doubt
    assert "--recipe multimodal" in doubt
    by_information = wf.recipe("multimodal").replace({"deformable": None})
    assert not wf.register(*images, recipe=by_information).warnings


@pytest.mark.parametrize("spacing_mm", [0.1, 1.0])
def test_landmarks_that_get_worse_are_counted_in_voxels_of_a_slice(spacing_mm):
    """A slice has a thickness of 1 mm whatever its pixels are."""
    grid = wf.Grid.from_spacing((16, 16), spacing_mm)
    place = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [5.0, 5.0, 0.0]]) * spacing_mm
    matrix = np.eye(4)
    matrix[0, 3] = 3 * spacing_mm
    found = SimpleNamespace(fixed_grid=grid, transform=wf.Affine(matrix))
    assert _errors(wf.io.Landmarks(place, place), found)["further"] == 3
    matrix = np.eye(4)
    matrix[0, 3] = 0.5 * spacing_mm
    found.transform = wf.Affine(matrix)
    assert _errors(wf.io.Landmarks(place, place), found)["further"] == 0


def test_threads_are_limited_while_a_result_is_scored_and_written(files, tmp_path, monkeypatch):
    seen = []
    tre = wf.quality.target_registration_error

    def watched(*points):
        seen.append(numba.get_num_threads())
        return tre(*points)

    monkeypatch.setattr(wf.quality, "target_registration_error", watched)
    register(files, tmp_path / "out", "--landmarks", files / "landmarks.csv", "--threads", "1")
    assert set(seen) == {1}
