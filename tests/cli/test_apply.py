"""`apply` resamples images, labels and series, maps points, and says when a file is of the wrong space or kind."""

import shutil

import numpy as np
import pytest
import SimpleITK
import torch

import warpfactor as wf
from commands import run
from small import GRID, pair


def test_apply_gives_the_warped_image(result, images, tmp_path):
    fixed, moving = images
    run("apply", moving, "-o", tmp_path / "a.nii.gz", "--result", result)
    lists = ("-t", result / "1Warp.nii.gz", "-t", result / "0GenericAffine.mat")
    run("apply", moving, "-o", tmp_path / "b.nii.gz", *lists, "-r", fixed, "-q")
    warped = wf.read_image(result / "warped.nii.gz").data
    for name in ("a.nii.gz", "b.nii.gz"):
        assert torch.allclose(wf.read_image(tmp_path / name).data, warped, atol=1e-4)


def test_a_picture_of_eight_bits_stays_one(tmp_path):
    """A spline overshoots beyond 255."""
    board = np.kron(np.indices((6, 6)).sum(0) % 2, np.ones((4, 4))).astype(np.uint8) * 255
    picture, moved = tmp_path / "board.png", tmp_path / "moved.png"
    SimpleITK.WriteImage(SimpleITK.GetImageFromArray(board), str(picture))
    shift = np.eye(4)
    shift[:2, 3] = 0.4, 0.3
    wf.write_transform(wf.Affine(shift, dimension=2), tmp_path / "a.mat")
    run("apply", picture, "-t", tmp_path / "a.mat", "-r", picture, "-o", moved, "-n", "bspline")
    image = SimpleITK.ReadImage(str(moved))
    assert image.GetPixelID() == SimpleITK.sitkUInt8
    assert SimpleITK.GetArrayFromImage(image).max() == 255
    assert SimpleITK.GetArrayFromImage(image).min() == 0


def test_apply_resamples_labels_and_series_both_ways(result, files, images, tmp_path):
    labels = tmp_path / "labels.nii.gz"
    run("apply", files / "short_labels.nii.gz", "-o", labels, "--labels", "--result", result)
    assert torch.equal(wf.read_labels(labels).data, wf.read_labels(result / "warped_labels.nii.gz").data)
    assert SimpleITK.ReadImage(str(labels)).GetPixelID() == SimpleITK.sitkUInt16, "as the input"
    volume = wf.read_image(images[0])
    wf.io.write_series([volume, volume], tmp_path / "series.nii.gz", step=2.0)
    moved = tmp_path / "moved.nii.gz"
    done = run("apply", tmp_path / "series.nii.gz", "-o", moved, "--to", "moving", "--result", result)
    assert "2 volumes in moving space" in done.stdout
    series = wf.io.read_series(moved)
    run("apply", images[0], "-o", tmp_path / "one.nii.gz", "--to", "moving", "--result", result)
    assert (len(series), series.step) == (2, 2.0)
    assert torch.equal(series[1].data, wf.read_image(tmp_path / "one.nii.gz").data)
    run("apply", tmp_path / "series.nii.gz", "-o", tmp_path / "l.nii.gz", "--labels", "--result", result, code=2)


def test_the_space_of_the_output_is_named_if_it_is_known(result, images, tmp_path):
    fixed, moving = images
    known = run("apply", moving, "-o", tmp_path / "a.nii.gz", "--result", result).stdout
    assert known == f"Image in fixed space written to {tmp_path / 'a.nii.gz'}.\n"
    back = ("-t", f"[{result / '0GenericAffine.mat'},1]", "-t", result / "1InverseWarp.nii.gz", "-r", moving)
    done = run("apply", fixed, "-o", tmp_path / "b.nii.gz", *back).stdout
    assert done == f"Image written to {tmp_path / 'b.nii.gz'}.\n"


def test_points_go_where_their_image_goes(result, tmp_path):
    points = GRID.index_to_world([[9, 10, 11], [12, 12, 12]])
    wf.io.write_points(wf.io.make_table(points), points, tmp_path / "moving.csv")
    run("apply", tmp_path / "moving.csv", "-o", tmp_path / "fixed.csv", "--result", result)
    run("apply", tmp_path / "fixed.csv", "-o", tmp_path / "back.csv", "--result", result, "--to", "moving")
    saved = wf.read_result(result)
    assert np.allclose(wf.io.read_points(tmp_path / "fixed.csv").points, saved.inverse.map_points(points))
    assert np.abs(wf.io.read_points(tmp_path / "back.csv").points - points).max() < 0.1


def test_an_image_of_the_other_space_is_warned_of(files, images, result, tmp_path):
    fixed, moving = images
    apply = ("apply", "--result", result, "-o")
    assert run(*apply, tmp_path / "a.nii.gz", moving).stderr == ""
    assert run(*apply, tmp_path / "b.nii.gz", fixed, "--to", "moving").stderr == ""
    volume = wf.read_image(fixed)
    wf.io.write_series([volume, volume], tmp_path / "series.nii.gz")
    for source, options in (
        (fixed, ()),
        (tmp_path / "series.nii.gz", ()),
        (files / "moving_labels.nii.gz", ("--labels", "--to", "moving")),
    ):
        done = run(*apply, tmp_path / "c.nii.gz", source, *options, "--force")
        to = "moving" if options else "fixed"
        assert f"{source}: has the grid of the {to} image" in done.stderr
    coarse = wf.Affine().resample(wf.read_image(moving), GRID.scaled(2))
    wf.write_image(coarse, tmp_path / "coarse.nii.gz")
    assert run(*apply, tmp_path / "f.nii.gz", tmp_path / "coarse.nii.gz").stderr == ""
    far = wf.Grid.from_itk((8, 8, 8), (500.0, 0, 0), (1, 1, 1), np.eye(3).ravel())
    wf.write_image(wf.Image.from_array(np.ones((8, 8, 8)), grid=far), tmp_path / "far.nii.gz")
    assert "lies outside the moving image" in run(*apply, tmp_path / "g.nii.gz", tmp_path / "far.nii.gz").stderr


def test_points_outside_are_warned_of_and_mapped(files, result, tmp_path):
    (tmp_path / "far.csv").write_text("x,y,z\n500,500,500\n", encoding="utf-8")
    done = run("apply", tmp_path / "far.csv", "-o", tmp_path / "moved.csv", "--result", result)
    assert "far.csv: 1 of 1 points lie outside the moving image" in done.stderr
    assert (tmp_path / "moved.csv").exists()
    for side, to in (("moving", "fixed"), ("fixed", "moving")):
        output = tmp_path / f"{side}.csv"
        assert run("apply", files / f"{side}_points.csv", "-o", output, "--result", result, "--to", to).stderr == ""


def test_options_that_would_have_no_effect_are_refused(files, images, result, tmp_path):
    points, image = files / "moving_points.csv", images[1]
    for source, output, options, sentence in (
        (points, "a.nii.gz", (), "points are written as CSV"),
        (points, "a.csv", ("--labels",), "holds points; --labels"),
        (points, "a.csv", ("-n", "nearest"), "holds points; --labels and --interpolation are for images"),
        (image, "a.nii.gz", ("--ras",), "--ras is for points"),
        (image, "a.nii.gz", ("--to", "nowhere"), "use 'fixed' or 'moving'"),
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
        done = run("apply", source, *options, "--result", result, "-o", out, "--force")
        assert (done.stdout.startswith("Label map"), done.stderr) == (True, "")
        assert set(np.unique(wf.read_labels(out).data.numpy())) <= set(expected)
    wf.write_image(wf.read_image(source), tmp_path / "floats.nii.gz")
    for name in (source, tmp_path / "floats.nii.gz"):
        done = run("apply", name, "--result", result, "-o", out, "--force")
        assert done.stderr.startswith(f"warpfactor: warning: {name}: looks like a label map")
        assert len(done.stderr.splitlines()) == 1


def test_an_image_of_whole_numbers_is_resampled_without_a_warning(result, tmp_path, generator):
    numbers = torch.randint(0, 124, GRID.shape, generator=generator).to(torch.uint8)
    wf.write_image(wf.Image(numbers[None], GRID), tmp_path / "bytes.nii.gz")
    output = tmp_path / "out.nii.gz"
    assert run("apply", tmp_path / "bytes.nii.gz", "-o", output, "--result", result, "--to", "moving").stderr == ""


@pytest.fixture
def planar(tmp_path):
    """The result of two slices."""
    made = pair()
    for side in ("fixed", "moving"):
        wf.write_image(wf.Image.from_array(getattr(made, side)[12], 1.0), tmp_path / f"{side}.nii.gz")
    options = ("--recipe", "affine", "--set", "linear.levels=2", "--set", "linear.iterations=2", "--no-report", "-q")
    run("register", tmp_path / "fixed.nii.gz", tmp_path / "moving.nii.gz", "-o", tmp_path / "planar", *options)
    return tmp_path / "planar"


def test_points_and_images_of_another_dimension_are_refused(files, result, planar, tmp_path, points):
    flat, output = tmp_path / "flat.csv", tmp_path / "out.csv"
    np.savetxt(flat, points[1][:, :2], delimiter=",", header="x,y", comments="")
    done = run("apply", flat, "--result", result, "-o", output, code=2)
    assert "needs columns named x, y and z, since the images are 3-D; it has x, y." in done.output
    done = run("apply", files / "moving_points.csv", "--result", planar, "-o", output, code=2)
    assert "the images are 2-D; give x and y" in done.output
    assert not output.exists()
    run("apply", flat, "--result", planar, "-o", output)
    done = run("apply", tmp_path / "fixed.nii.gz", "-o", tmp_path / "x.nii.gz", "--result", result, code=2)
    assert "2-D" in done.stderr and "3-D" in done.stderr
    assert not (tmp_path / "x.nii.gz").exists()


def test_a_result_is_applied_without_its_inverse(images, result, tmp_path):
    """It is read only where it is needed."""
    copy = tmp_path / "copy"
    shutil.copytree(result, copy)
    (copy / "1InverseWarp.nii.gz").unlink()
    run("apply", images[1], "--result", copy, "-o", tmp_path / "out.nii.gz")
    done = run("apply", images[0], "--to", "moving", "--result", copy, "-o", tmp_path / "b.nii.gz", code=2)
    assert "1InverseWarp.nii.gz: there is no such file" in done.output


def test_a_saved_result_resamples_as_a_registration_does(images, result, points):
    saved = wf.read_result(result)
    warped = saved.apply(images[1])
    assert torch.allclose(warped.data, wf.read_image(result / "warped.nii.gz").data, atol=1e-4)
    assert saved.apply(images[0], to="moving").grid.same_space(saved.moving_grid)
    assert np.allclose(saved.apply_points(points[1]), saved.inverse.map_points(points[1]))
    with pytest.raises(AttributeError, match=r"no attribute 'figures'"):
        saved.figures  # noqa: B018 - that is what fails
