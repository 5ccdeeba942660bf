"""`register` writes a whole result, with labels and landmarks, refuses bad input early, and warns of doubtful input."""

import gzip
import json
import sys
import time
from collections import Counter
from contextlib import contextmanager

import numba
import numpy as np
import pytest
import torch

import warpfactor as wf
from commands import entries, run
from small import GRID, QUICK, QUICK_OPTIONS
from warpfactor.cli.options import BACKENDS
from warpfactor.geometry.itk import sitk

LABELS = "warped_labels.nii.gz"


@pytest.fixture
def register(images, tmp_path):
    """Registers quickly into a new folder; returns the folder and what was printed."""

    def registered(*options, code=0, fixed=images[0], moving=images[1]):
        folder = tmp_path / "deep" / "out"
        return folder, run("register", fixed, moving, "-o", folder, *QUICK_OPTIONS, *options, code=code)

    return registered


_watchers = []
sys.addaudithook(lambda event, details: [watch(details[0]) for watch in _watchers] if event == "open" else None)


@pytest.fixture
def opened():
    """Counts how often files are opened in a block."""

    @contextmanager
    def counted(*paths):
        counts = Counter()
        known = {str(path) for path in paths}

        def watch(path):
            if str(path) in known:
                counts[str(path)] += 1

        _watchers.append(watch)
        yield counts
        _watchers.remove(watch)

    return counted


@pytest.fixture
def unused(monkeypatch):
    """A registration that must not be started."""

    def fail(*_, **__):
        raise AssertionError("the registration was started")

    monkeypatch.setattr("warpfactor.registration.run.make_scene", fail)


def test_register_leaves_a_whole_result(registered):
    folder = registered.folder
    assert {path.name for path in folder.iterdir()} == {
        "warped.nii.gz",
        LABELS,
        "0GenericAffine.mat",
        "1Warp.nii.gz",
        "1InverseWarp.nii.gz",
        "report.html",
        "result.json",
    }
    saved = entries(folder)
    lines = dict(line.split(maxsplit=1) for line in registered.stdout.splitlines() if not line.startswith(" "))
    assert tuple(lines) == ("Affine", "Cost", "Warp", "Labels", "Landmarks", "Output", "Status", "Verdict")
    assert lines["Cost"].startswith("affine LNCC 0.")
    assert "no folds" in lines["Warp"]
    assert lines["Labels"].startswith("mean Dice ")
    assert lines["Output"].startswith(f"{folder} after ")
    assert lines["Status"] == saved["status"]
    assert "deformable" in registered.stderr
    assert saved["labels"]["dice_mean_after"] > saved["labels"]["dice_mean_before"]
    assert saved["figures"]["inverse_consistency_fixed_to_moving_to_fixed_vox"]["mean"] < 0.1
    assert saved["fixed"]["name"] == "fixed.nii.gz"
    assert {"torch", "numba", "warpfactor"} <= saved["versions"].keys()
    assert saved["peak_memory_mb"] > 10


def test_the_command_reads_its_inputs_as_often_as_python_does(images, files, register, opened):
    masks = {"fixed_mask": files / "mask.nii.gz", "moving_mask": files / "moving_mask.nii.gz"}
    with opened(*images, *masks.values()) as by_python:
        wf.register(*images, **masks, overrides=QUICK)
    options = [part for name, path in masks.items() for part in (f"--{name.replace('_', '-')}", path)]
    with opened(*images, *masks.values()) as by_command:
        register(*options, "-q")
    assert by_command == by_python


def test_the_backend_option_lists_all_backends(images, tmp_path):
    assert set(BACKENDS) == {"auto", *wf.kernels.BACKENDS}
    short = [part for value in ("levels=4", "iterations=1") for part in ("--set", f"deformable.{value}")]
    options = ("--set", "linear=none", *short, "--backend", "reference", "-q", "--no-report")
    run("register", *images, "-o", tmp_path / "out", *options)
    assert entries(tmp_path / "out")["backend"] == "reference"
    assert not (tmp_path / "out" / "report.html").exists()


def test_the_same_recipe_gives_the_same_files(result, images, tmp_path):
    run("register", *images, "-o", tmp_path / "out", "--recipe", result / "result.json", "-q", "--no-report")
    for name in ("1Warp.nii.gz", "1InverseWarp.nii.gz", "warped.nii.gz"):
        first, second = (sitk.ReadImage(str(place / name)) for place in (result, tmp_path / "out"))
        assert np.array_equal(*(sitk.GetArrayFromImage(part) for part in (first, second)))


def test_register_takes_masks_channels_initial_and_settings(register, result, files):
    folder, done = register(
        *("--fixed-mask", files / "mask.nii.gz", "--moving-mask", files / "moving_mask.nii.gz"),
        *("--fixed-channel", files / "fixed_labels.nii.gz", "--moving-channel", files / "moving_labels.nii.gz"),
        *("--channel-weights", "1,0.2", "--initial", result / "0GenericAffine.mat", "--threads", "1", "--seed", "5"),
        *("--set", "deformable.metric=mse", "--set", "deformable.sigma_grad=1.25", "--outside", "-1"),
        "--quiet",
    )
    assert done.output == ""
    saved = entries(folder)
    assert saved["recipe"]["deformable"]["metric"]["name"] == "mse"
    assert saved["recipe"]["deformable"]["sigma_grad"] == 1.25
    assert saved["recipe"]["deformable"]["channel_weights"] == [1.0, 0.2]
    assert saved["stages"][0]["start"] == "given"
    assert (saved["threads"], saved["seed"]) == (1, 5)
    assert set(saved["inputs"]) == {"fixed", "moving", "fixed_mask", "moving_mask"}


def test_force_replaces_an_earlier_result(register, images):
    folder, _ = register("-q", "--no-report")
    assert "not empty" in register("-q", code=2)[1].stderr
    rigid = ("--recipe", "rigid", *QUICK_OPTIONS[:6], "-q", "--no-report")
    run("register", *images, "-o", folder, *rigid, "--force")
    assert not (folder / "1Warp.nii.gz").exists()


def test_landmark_errors_are_in_the_result_and_the_summary(registered, files):
    found = entries(registered.folder)["landmarks"]
    assert found["count"] == 4
    assert found["before_mm"].keys() == found["after_mm"].keys() == {"mean", "median", "max"}
    assert found["after_mm"]["mean"] < found["before_mm"]["mean"]
    assert found["after_mm"]["max"] == max(found["per_point_after_mm"])
    line = next(line for line in registered.stdout.splitlines() if line.startswith("Landmarks "))
    assert f"mean {found['before_mm']['mean']:.2f} -> {found['after_mm']['mean']:.2f} mm" in line
    same = run("evaluate", "--result", registered.folder, "--landmarks", files / "landmarks.csv", "--format", "json")
    scores = json.loads(same.stdout)
    assert scores["landmark_error_after_mean_mm"] == pytest.approx(found["after_mm"]["mean"], abs=1e-3)
    assert scores["landmark_error_before_mean_mm"] == found["before_mm"]["mean"]


def test_the_times_of_all_parts_are_stored(result):
    seconds = entries(result)["seconds"]
    parts = [value for name, value in seconds.items() if name != "total"]
    assert {"read", "labels and landmarks", "write"} <= seconds.keys()
    assert list(seconds)[-1] == "total"
    assert min(parts) >= 0
    assert seconds["total"] >= 0.98 * sum(parts)


def test_the_time_of_the_summary_includes_scoring_and_writing(register, files, monkeypatch):
    scored = wf.Companions.scores

    def slow(*arguments):
        time.sleep(0.4)
        return scored(*arguments)

    monkeypatch.setattr(wf.Companions, "scores", slow)
    folder, done = register("--landmarks", files / "landmarks.csv", "--no-report")
    assert float(done.stdout.split("after ")[1].split(" s")[0]) >= 0.4
    assert entries(folder)["seconds"]["labels and landmarks"] >= 0.4


def test_warped_labels_are_listed_and_keep_their_type(result):
    listed = entries(result)["files"]
    assert listed["warped_moving_labels_on_fixed_grid"] == LABELS
    assert listed["fixed_to_moving_affine"] == "0GenericAffine.mat"
    assert sitk.ReadImage(str(result / LABELS)).GetPixelID() == sitk.sitkUInt16


def test_labels_without_a_reference_are_warped_and_not_scored(register, files, tmp_path):
    """And they may have a grid of their own."""
    labels = wf.read_labels(files / "moving_labels.nii.gz")
    wf.write_image(wf.Affine().resample(labels, labels.grid.scaled(2), mode="label"), tmp_path / "coarse.nii.gz")
    folder, _ = register("--moving-labels", tmp_path / "coarse.nii.gz", "-q", "--no-report")
    found = entries(folder)
    assert not {"labels", "landmarks"} & found.keys()
    assert found["files"]["warped_moving_labels_on_fixed_grid"] == LABELS
    assert wf.read_labels(folder / LABELS).grid.same_space(GRID)


def test_companions_that_do_not_fit_are_refused_before_the_registration(register, files, tmp_path, unused):
    small = wf.Image(torch.ones((1, 8, 8, 8), dtype=torch.int32), wf.Grid.from_spacing((8, 8, 8)), "small")
    wf.write_image(small, tmp_path / "small.nii.gz")
    far = wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel())
    wf.write_image(wf.Image(small.data, far, "far"), tmp_path / "far.nii.gz")
    wf.write_image(wf.Image(small.data[:, :1], wf.Grid.from_spacing((8, 8)), "flat"), tmp_path / "flat.nii.gz")
    wf.write_image(wf.Image(0 * small.data, small.grid, "empty"), tmp_path / "empty.nii.gz")
    moving, fixed = files / "moving_labels.nii.gz", files / "fixed_labels.nii.gz"
    for options, sentence in (
        (("--moving-labels", moving, "--fixed-labels", tmp_path / "small.nii.gz"), "does not lie on the grid"),
        (("--moving-labels", tmp_path / "far.nii.gz"), "outside moving.nii.gz"),
        (("--moving-labels", tmp_path / "flat.nii.gz"), "2-D"),
        (("--moving-labels", tmp_path / "empty.nii.gz"), "empty"),
        (("--fixed-labels", fixed), "moving"),
        (("--landmarks", files / "nowhere.csv"), "there is no such file"),
    ):
        folder, done = register(*options, code=2)
        assert sentence in done.stderr
        assert not folder.exists()


def test_channel_weights_are_counted_before_anything_runs(register, unused):
    assert "number of channels is 1" in register("--channel-weights", "1,0.5", code=2)[1].stderr
    assert "The channel weights 0 must not be negative" in register("--channel-weights", "0", code=2)[1].stderr


def test_a_smoothness_of_zero_is_refused_by_its_option(register, unused):
    assert "--smoothness 0 must be a number above 0" in register("--smoothness", "0", code=2)[1].stderr


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sigma_grad=2", "here deformable.sigma_grad"),
        ("levels=2", "here linear.levels or deformable.levels."),
        ("deformable.iterations=100x50x20", "separate numbers by commas, --set deformable.iterations=100,50,20."),
        ("deformable", "write NAME=VALUE"),
    ],
)
def test_settings_are_corrected(setting, sentence, register):
    assert sentence in register("--set", setting, code=2)[1].stderr


def test_json_lines_are_for_programs(register):
    folder, done = register("--json")
    *steps, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["event"] for line in steps} == {"iteration"}
    assert {"stage", "level", "iteration", "limit", "cost", "damping", "accepted", "done", "seconds"} <= steps[0].keys()
    assert {line["step_vox"] is None for line in steps if line["stage"] == "affine"} == {True}
    assert (last["event"], last["output"], last["warnings"]) == ("result", str(folder), [])
    assert last["seconds"] == entries(folder)["seconds"]
    assert last["verdict"] == entries(folder)["verdict"]
    assert done.stderr == ""


def test_nan_in_a_file_is_counted(register, images, tmp_path):
    data = wf.read_image(images[0]).data.clone()
    data[0, 3, 4, 5:9] = torch.nan
    wf.write_image(wf.Image(data, GRID), tmp_path / "holes.nii.gz")
    folder, done = register(fixed=tmp_path / "holes.nii.gz")
    assert "Ignored   4 voxels" in done.stdout
    assert entries(folder)["fixed"]["nonfinite_voxels"] == 4


def test_a_warning_is_one_line(register, images, tmp_path):
    raw = bytearray(gzip.decompress(images[1].read_bytes()))
    raw[280:284] = np.float32(1.9).tobytes()  # sform and qform differ
    (tmp_path / "two_forms.nii").write_bytes(raw)
    _, done = register("-q", "--no-report", moving=tmp_path / "two_forms.nii")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("warpfactor: warning: ")


def test_an_image_as_mask_is_warned_of_once(register, tmp_path, generator):
    wf.write_image(wf.Image(torch.rand((1, *GRID.shape), generator=generator), GRID), tmp_path / "noise.nii.gz")
    _, done = register("--fixed-mask", tmp_path / "noise.nii.gz", "-q", "--no-report")
    assert done.stderr.count("noise.nii.gz looks like an image, not like a mask") == 1


def test_a_label_map_as_image_is_warned_of_once(register, files):
    _, done = register("-q", "--no-report", moving=files / "moving_labels.nii.gz")
    assert done.stderr.count("moving_labels.nii.gz looks like a label map, not like an image;") == 1
    assert len(done.stderr.splitlines()) == 1


def test_landmarks_of_which_some_lie_outside_are_warned_of(register, files, tmp_path):
    lines = [*(files / "landmarks.csv").read_text().splitlines(), "900,0,0,10,10,10"]
    (tmp_path / "one.csv").write_text("\n".join(lines) + "\n")
    _, done = register("--landmarks", tmp_path / "one.csv", "-q", "--no-report")
    assert done.stderr.count("one.csv: 1 of 5 points lie outside the fixed image") == 1


def test_landmarks_that_all_lie_outside_are_refused(register, files):
    folder, done = register("--landmarks", files / "ras.csv", "-q", code=2)
    assert len(done.stderr.splitlines()) == 1
    assert "ras.csv: 4 of 4 points lie outside the fixed image; check whether they are RAS" in done.stderr
    assert not folder.exists()


def test_label_maps_without_a_common_label_are_refused_where_they_only_score(register, files, tmp_path):
    other = wf.read_labels(files / "moving_labels.nii.gz")
    wf.write_image(wf.Image((other.data > 0).int() * 77, other.grid), tmp_path / "others.nii.gz")
    labels = ("--fixed-labels", files / "fixed_labels.nii.gz", "--moving-labels", tmp_path / "others.nii.gz")
    folder, done = register(*labels, "-q", code=2)
    assert len(done.stderr.splitlines()) == 1
    assert "fixed_labels.nii.gz and others.nii.gz have no label in common" in done.stderr
    assert not folder.exists()
    assert "have no label in common" in run("evaluate", *labels, code=2).stderr


def test_ras_landmarks_are_read_as_such(register, result, files):
    folder, done = register("--landmarks", files / "ras.csv", "--ras", "--no-report")
    assert "warning" not in done.stderr
    assert entries(folder)["landmarks"]["after_mm"] == pytest.approx(entries(result)["landmarks"]["after_mm"])


def test_dissimilar_images_are_warned_of_by_the_summary_and_for_programs(tmp_path, rng):
    for name in ("a", "b"):
        wf.write_image(wf.Image.from_array(rng.random((40, 42))), tmp_path / f"{name}.nii.gz")
    images = (tmp_path / "a.nii.gz", tmp_path / "b.nii.gz")
    options = ("--recipe", "affine", *QUICK_OPTIONS[:6])
    done = run("register", *images, "-o", tmp_path / "bare", *options, "--no-report")
    assert any(line.startswith("Warning   After the affine stage") for line in done.stdout.splitlines())
    done = run("register", *images, "-o", tmp_path / "out", *options)
    assert done.stdout.count("After the affine stage") == 1, "the verdict says it"
    assert "Warning" not in done.stdout
    done = run("register", *images, "-o", tmp_path / "out", *options, "--json", "--force")
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["warnings"] == entries(tmp_path / "out")["warnings"]
    assert len(last["warnings"]) == 1


def test_threads_are_limited_until_everything_is_written(register, files, monkeypatch, all_threads):
    scored, seen = wf.Companions.scores, []

    def watched(*arguments):
        seen.append(numba.get_num_threads())
        return scored(*arguments)

    monkeypatch.setattr(wf.Companions, "scores", watched)
    register("--landmarks", files / "landmarks.csv", "--threads", "1", "--no-report")
    assert seen == [1]
