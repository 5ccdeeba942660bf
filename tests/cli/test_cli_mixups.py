"""What commands say when a file is of the wrong space or read the wrong way, and that they are silent else."""

import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import warpfactor as wf
from small import GRID, QUICK_OPTIONS, pair, write_pair
from warpfactor.cli import app as cli
from warpfactor.cli.mixups import warn_of_misread_landmarks

RUNNER = CliRunner()
NAMES = [f"{side}_{axis}" for side in ("fixed", "moving") for axis in "xyz"]
RAS = np.array([-1.0, -1.0, 1.0])


def run(*arguments, code=0):
    done = RUNNER.invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def padded(path):
    """Rewrite an image with two planes more, so that its grid differs from the fixed image's."""
    image = wf.read_labels(path) if "labels" in path.name else wf.read_image(path)
    data = torch.cat([image.data, image.data[:, -2:]], dim=1)
    wf.write_image(wf.Image(data, wf.Grid((GRID.shape[0] + 2, *GRID.shape[1:]), GRID.matrix)), path, force=True)


def write_landmarks(path, fixed, moving, names=NAMES):
    np.savetxt(path, np.hstack([fixed, moving]), delimiter=",", header=",".join(names), comments="")
    return path


@pytest.fixture(scope="module")
def points():
    """Points of the phantom, and where its true warp takes them."""
    truth = pair().displacement
    index = torch.tensor([[8, 9, 10], [14, 12, 11], [12, 13, 9], [9, 15, 14]])
    moved = index + torch.stack([truth[:, z, y, x] for z, y, x in index.tolist()])
    return tuple(GRID.index_to_world(part.numpy()) for part in (index, moved))


@pytest.fixture(scope="module")
def files(tmp_path_factory, points):
    folder = write_pair(tmp_path_factory.mktemp("pair"))
    padded(folder / "moving.nii.gz")
    padded(folder / "moving_labels.nii.gz")
    write_landmarks(folder / "landmarks.csv", *points)
    write_landmarks(folder / "ras.csv", *(side * RAS for side in points))
    for number, side in enumerate(("fixed", "moving")):
        wf.io.write_points(wf.io.make_table(points[number]), points[number], folder / f"{side}_points.csv")
    return folder


@pytest.fixture(scope="module")
def result(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "out"
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    run("register", *images, "-o", folder, *QUICK_OPTIONS, "--no-report", "-q")
    return folder


def test_swapped_label_maps_are_refused(files, result):
    fixed, moving = files / "fixed_labels.nii.gz", files / "moving_labels.nii.gz"
    evaluate = ("evaluate", "--result", result)
    assert run(*evaluate, "--fixed-labels", fixed, "--moving-labels", moving).stderr == ""
    done = run(*evaluate, "--fixed-labels", moving, "--moving-labels", fixed, code=2)
    assert "moving_labels.nii.gz was given as --fixed-labels and lies on the grid of the moving image" in done.stderr


def test_labels_of_another_grid_are_not_scored(files, result, tmp_path):
    small = wf.Image(torch.ones((1, 8, 8, 8), dtype=torch.int32), wf.Grid.from_spacing((8, 8, 8)), "small")
    wf.write_image(small, tmp_path / "small.nii.gz")
    wf.write_image(
        wf.Image(small.data, wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel()), "far"),
        tmp_path / "far.nii.gz",
    )
    labels = [files / f"{side}_labels.nii.gz" for side in ("fixed", "moving")]
    for fixed, moving, sentence in (
        (tmp_path / "small.nii.gz", labels[1], "does not lie on the grid of its image"),
        (labels[0], tmp_path / "far.nii.gz", "lies outside the moving image in space"),
    ):
        done = run("evaluate", "--result", result, "--fixed-labels", fixed, "--moving-labels", moving, code=2)
        assert sentence in done.stderr


def test_ras_landmarks_are_read_as_such(files, result, tmp_path):
    found = [
        json.loads(run("evaluate", "--result", result, "--landmarks", *options, "--format", "json").stdout)
        for options in ((files / "landmarks.csv",), (files / "ras.csv", "--ras"))
    ]
    assert found[0] == pytest.approx(found[1])
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    done = run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS, "--landmarks", files / "ras.csv", "--ras")
    assert "warning" not in done.stderr
    saved = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert saved["landmarks"]["after_mm"]["mean"] == pytest.approx(found[0]["landmark_error_after_mean_mm"], abs=0.01)


def test_columns_that_are_named_lps_are_not_ras(points, result, tmp_path):
    names = [f"{side}_{axis}_lps" for side in ("fix", "mov") for axis in "xyz"]
    path = write_landmarks(tmp_path / "lps.csv", *points, names=names)
    run("evaluate", "--result", result, "--landmarks", path)
    done = run("evaluate", "--result", result, "--landmarks", path, "--ras", code=2)
    assert "its columns are named LPS; leave out --ras, or rename them." in done.stderr


def test_landmarks_outside_their_images_are_warned_of(files, result, tmp_path):
    done = run("evaluate", "--result", result, "--landmarks", files / "ras.csv")
    lines = done.stderr.splitlines()
    assert [line.split("ras.csv: ")[1].split(";")[0] for line in lines] == [
        f"4 of 4 points lie outside the {side} image" for side in ("fixed", "moving")
    ]
    assert "RAS (then add --ras)" in lines[0]
    done = run("evaluate", "--result", result, "--landmarks", files / "landmarks.csv", "--ras")
    assert "LPS (then leave out --ras)" in done.stderr
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    options = (*QUICK_OPTIONS, "--landmarks", files / "ras.csv", "--no-report", "-q")
    done = run("register", *images, "-o", tmp_path / "out", *options)
    assert done.stderr.count("4 of 4 points lie outside") == 2


def test_landmarks_that_are_read_the_wrong_way_are_noticed(rng, tmp_path):
    matrix = np.eye(4)
    matrix[:3] = [[0.9, 0.1, 0.3, 6], [0.2, 1.1, 0.1, 5], [0.1, 0.3, 0.95, 4]]
    transform, path = wf.Affine(matrix), tmp_path / "landmarks.csv"
    fixed = rng.uniform(-40, 40, (20, 3))
    moving = transform.map_points(fixed)
    warn_of_misread_landmarks(path, wf.io.Landmarks(fixed, moving), transform, ras=False)
    with pytest.warns(UserWarning, match=r"mm apart, but 0\.00 mm with fixed and moving swapped; check the file"):
        warn_of_misread_landmarks(path, wf.io.Landmarks(moving, fixed), transform, ras=False)
    turned = wf.io.Landmarks(fixed * RAS, moving * RAS)
    with pytest.warns(UserWarning, match=r"but 0\.00 mm as RAS \(with --ras\)"):
        warn_of_misread_landmarks(path, turned, transform, ras=False)
    with pytest.warns(UserWarning, match=r"but 0\.00 mm as LPS \(without --ras\)"):
        warn_of_misread_landmarks(path, turned, transform, ras=True)


def test_an_image_of_the_other_space_is_warned_of(files, result, tmp_path):
    fixed, moving = files / "fixed.nii.gz", files / "moving.nii.gz"
    apply = ("apply", "--result", result, "-o")
    assert run(*apply, tmp_path / "a.nii.gz", moving).stderr == ""
    assert run(*apply, tmp_path / "b.nii.gz", fixed, "--to", "moving").stderr == ""
    done = run(*apply, tmp_path / "c.nii.gz", fixed)
    assert done.stderr.endswith("is carried to fixed space; check whether --to moving is meant.\n")
    done = run(*apply, tmp_path / "d.nii.gz", files / "moving_labels.nii.gz", "--labels", "--to", "moving")
    assert "has the grid of the moving image, not that of the fixed image" in done.stderr
    volume = wf.read_image(fixed)
    wf.io.write_series([volume, volume], tmp_path / "series.nii.gz")
    assert "--to moving is meant" in run(*apply, tmp_path / "e.nii.gz", tmp_path / "series.nii.gz").stderr
    coarse = wf.Affine().resample(wf.read_image(moving), GRID.scaled(2))
    wf.write_image(coarse, tmp_path / "coarse.nii.gz")
    assert run(*apply, tmp_path / "f.nii.gz", tmp_path / "coarse.nii.gz").stderr == ""
    far = wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel())
    wf.write_image(wf.Image.from_array(np.ones((8, 8, 8)), grid=far), tmp_path / "far.nii.gz")
    assert "lies outside the moving image" in run(*apply, tmp_path / "g.nii.gz", tmp_path / "far.nii.gz").stderr


def test_points_outside_are_warned_of_and_carried(files, result, tmp_path):
    (tmp_path / "far.csv").write_text("x,y,z\n500,500,500\n", encoding="utf-8")
    done = run("apply", tmp_path / "far.csv", "-o", tmp_path / "moved.csv", "--result", result)
    assert "far.csv: 1 of 1 points lie outside the moving image" in done.stderr
    assert (tmp_path / "moved.csv").exists()
    for side, to in (("moving", "fixed"), ("fixed", "moving")):
        output = tmp_path / f"{side}.csv"
        assert run("apply", files / f"{side}_points.csv", "-o", output, "--result", result, "--to", to).stderr == ""


def test_options_that_would_have_no_effect_are_refused(files, result, tmp_path):
    points, image = files / "moving_points.csv", files / "moving.nii.gz"
    for source, output, options, sentence in (
        (points, "a.nii.gz", (), "points are written as CSV"),
        (points, "a.csv", ("--labels",), "holds points; --labels"),
        (points, "a.csv", ("-n", "nearest"), "holds points; --labels and --interpolation are for images"),
        (image, "a.nii.gz", ("--ras",), "--ras is for points"),
    ):
        done = run("apply", source, "-o", tmp_path / output, "--result", result, *options, code=2)
        assert sentence in done.stderr
        assert not (tmp_path / output).exists()


def test_labels_are_not_mixed(files, result, tmp_path):
    """Not by an option that contradicts --labels, nor unnoticed; -n label says that it is a label map."""
    source, out = files / "moving_labels.nii.gz", tmp_path / "out.nii.gz"
    for name in ("linear", "bspline"):
        done = run("apply", source, "--labels", "-n", name, "--result", result, "-o", out, code=2)
        assert f"-n {name} mixes labels" in done.output
    assert not out.exists()
    expected = np.unique(wf.read_labels(source).data.numpy())
    for options in (("--labels",), ("-n", "label"), ("--labels", "-n", "nearest")):
        assert "label map" in run("apply", source, *options, "--result", result, "-o", out, "--force").output
        assert set(np.unique(wf.read_labels(out).data.numpy())) <= set(expected)
    wf.write_image(wf.read_image(source), tmp_path / "floats.nii.gz")
    for name in (source, tmp_path / "floats.nii.gz"):
        done = run("apply", name, "--result", result, "-o", out, "--force")
        assert "looks like a label map, and linear interpolation mixes labels" in done.output


def test_points_of_another_dimension_are_refused(files, result, tmp_path, points):
    flat = tmp_path / "flat.csv"
    np.savetxt(flat, points[1][:, :2], delimiter=",", header="x,y", comments="")
    done = run("apply", flat, "--result", result, "-o", tmp_path / "out.csv", code=2)
    assert "needs columns named x, y and z, since the images are 3-D; it has x, y." in done.output
    slices = pair()
    folder = tmp_path / "slices"
    folder.mkdir()
    for side in ("fixed", "moving"):
        wf.write_image(wf.Image.from_array(getattr(slices, side)[12], 1.0), folder / f"{side}.nii.gz")
    planar = tmp_path / "planar"
    run("register", folder / "fixed.nii.gz", folder / "moving.nii.gz", "-o", planar, "--recipe", "affine", "--quiet")
    done = run("apply", files / "moving_points.csv", "--result", planar, "-o", tmp_path / "out.csv", code=2)
    assert "the images are 2-D; give x and y" in done.output
    assert not (tmp_path / "out.csv").exists()
    run("apply", flat, "--result", planar, "-o", tmp_path / "out.csv")


def test_a_result_is_applied_without_its_inverse(files, result, tmp_path):
    """It is read only where it is needed."""
    copy = tmp_path / "copy"
    shutil.copytree(result, copy)
    (copy / "1InverseWarp.nii.gz").unlink()
    run("apply", files / "moving.nii.gz", "--result", copy, "-o", tmp_path / "out.nii.gz")
    done = run("apply", files / "fixed.nii.gz", "--to", "moving", "--result", copy, "-o", tmp_path / "b.nii.gz", code=2)
    assert "1InverseWarp.nii.gz: there is no such file" in done.output


def test_an_image_of_whole_numbers_is_carried_without_a_word(result, tmp_path, generator):
    numbers = torch.randint(0, 124, GRID.shape, generator=generator).to(torch.uint8)
    wf.write_image(wf.Image(numbers[None], GRID), tmp_path / "bytes.nii.gz")
    output = tmp_path / "out.nii.gz"
    assert run("apply", tmp_path / "bytes.nii.gz", "-o", output, "--result", result, "--to", "moving").stderr == ""


def test_an_image_as_mask_is_warned_of_once(files, tmp_path):
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    options = (*QUICK_OPTIONS, "-q")
    done = run("register", *images, "-o", tmp_path / "a", *options, "--fixed-mask", files / "mask.nii.gz")
    assert done.stderr == ""
    generator = torch.Generator().manual_seed(1)
    wf.write_image(wf.Image(torch.rand((1, *GRID.shape), generator=generator), GRID), tmp_path / "noise.nii.gz")
    done = run("register", *images, "-o", tmp_path / "b", *options, "--fixed-mask", tmp_path / "noise.nii.gz")
    assert done.stderr.count("noise.nii.gz looks like an image, not like a mask") == 1
    inputs = json.loads((tmp_path / "b" / "result.json").read_text(encoding="utf-8"))["inputs"]
    assert inputs["fixed_mask"]["path"] == str(tmp_path / "noise.nii.gz")


def test_a_label_map_as_image_is_warned_of(files, tmp_path):
    images = (files / "fixed.nii.gz", files / "moving_labels.nii.gz")
    done = run("register", *images, "-o", tmp_path / "out", *QUICK_OPTIONS, "-q", "--no-report")
    assert done.stderr.startswith(
        "warpfactor: warning: moving_labels.nii.gz looks like a label map, not like an image;"
    )
    assert len(done.stderr.splitlines()) == 1


def test_channel_weights_are_counted_before_anything_runs(files, tmp_path, monkeypatch):
    monkeypatch.setattr("warpfactor.registration.run.run_linear", None)
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    done = run("register", *images, "-o", tmp_path / "out", "--channel-weights", "1,0.5", code=2)
    assert "Channel weights (1.0, 0.5): the number of channels is 1; give a weight for each." in done.stderr


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sigma_grad=2", "Unknown setting 'sigma_grad'; settings are named with their stage, here deformable.sigma_gr"),
        ("levels=2", "here linear.levels or deformable.levels."),
        ("deformable.iterations=100x50x20", "separate numbers by commas, --set deformable.iterations=100,50,20."),
    ],
)
def test_settings_are_corrected(setting, sentence, files, tmp_path):
    images = (files / "fixed.nii.gz", files / "moving.nii.gz")
    assert sentence in run("register", *images, "-o", tmp_path / "out", "--set", setting, code=2).stderr


def test_a_report_says_in_what_a_given_image_differs(files, result, tmp_path):
    image = wf.read_image(files / "fixed.nii.gz")
    other = wf.Image(image.data, wf.Grid.from_spacing(GRID.shape, 1.0))
    wf.write_image(other, tmp_path / "other.nii.gz")
    done = run("report", result, "--fixed", tmp_path / "other.nii.gz", code=2)
    assert (
        f"other.nii.gz: is not the fixed image of {result}: it has 24 x 26 x 24 voxels of 1 x 1 x 1 mm" in done.stderr
    )
    assert "the result 24 x 26 x 24 voxels of 1.5 x 1.5 x 1.5 mm (z, y, x); if its spacing was given" in done.stderr
    done = run("report", result, "--fixed", tmp_path / "nowhere.nii.gz", code=2)
    assert "there is no such file" in done.stderr


def test_evaluate_says_what_it_wrote(files, result, tmp_path):
    done = run("evaluate", "--result", result, "-o", tmp_path / "scores.json")
    assert done.stdout == f"4 figures written to {tmp_path / 'scores.json'}\n"


def test_a_saved_result_carries_as_a_registration_does(files, result, points):
    saved = wf.read_result(result)
    warped = saved.apply(files / "moving.nii.gz")
    assert torch.allclose(warped.data, wf.read_image(result / "warped.nii.gz").data, atol=1e-4)
    assert saved.apply(files / "fixed.nii.gz", to="moving").grid.same_space(saved.moving_grid)
    assert np.allclose(saved.apply_points(points[1]), saved.inverse.map_points(points[1]))
    with pytest.raises(AttributeError, match=r"no attribute 'figures'; what result.json holds is in `entries`"):
        saved.figures  # noqa: B018 - that is what fails
    assert not hasattr(saved, "warped")
