"""`--spacing` and `--channel` on the command line, with TIFF files."""

import re

import numpy as np
import pytest
import tifffile

import warpfactor as wf
from commands import entries, run
from warpfactor.cli.options import parse_channels, parse_pair, parse_spacing
from warpfactor.errors import InputError
from warpfactor.phantom import phantom

QUICK = ("--set", "linear.levels=4,2", "--set", "linear.iterations=10,5", "--set", "linear.metric=lncc", "--no-report")


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    """Two ImageJ stacks of two channels; the second one of each is empty but for a corner."""
    folder = tmp_path_factory.mktemp("stacks")
    made = phantom((16, 40, 36), displacement_vox=1.0)
    for name, image in (("fixed", made.fixed), ("moving", made.moving)):
        other = np.zeros(image.shape, np.float32)
        other[:, :5, :5] = 1
        tifffile.imwrite(
            folder / f"{name}.tif",
            np.stack([image.numpy(), other], axis=1),
            imagej=True,
            resolution=(1 / 0.65, 1 / 0.65),
            metadata={"axes": "ZCYX", "spacing": 2.5, "unit": "um"},
        )
    return folder


def test_a_channel_is_chosen_and_its_spacing_known(stacks, tmp_path):
    out = tmp_path / "out"
    files = (stacks / "fixed.tif", stacks / "moving.tif")
    run("register", *files, "-o", out, "--recipe", "affine", "--channel", "1", *QUICK)
    assert np.allclose(entries(out)["fixed"]["spacing_zyx_mm"], (0.0025, 0.00065, 0.00065), rtol=1e-4)
    assert wf.read_image(out / "warped.nii.gz").channels == 1
    run("apply", stacks / "moving.tif", "--result", out, "--channel", "2", "-o", tmp_path / "second.nii.gz")
    assert wf.read_image(tmp_path / "second.nii.gz").channels == 1
    text = run("register", *files, "-o", tmp_path / "no", "--channel", "3/1", code=2).output
    assert "fixed.tif: has 2 channels; channel 3 cannot be chosen" in " ".join(text.split())


def test_a_spacing_holds_instead_of_the_files(stacks, tmp_path):
    out = tmp_path / "out"
    line = ("--recipe", "affine", "--channel", "1", "--spacing", "0.5,0.5,2", *QUICK)
    files = (stacks / "fixed.tif", stacks / "moving.tif")
    run("register", *files, "-o", out, *line)
    assert np.allclose(entries(out)["moving"]["spacing_zyx_mm"], (2, 0.5, 0.5))
    run("report", out)  # which finds the images in the files, whose own spacing is another one
    assert entries(out)["verdict"]["level"] != "grey"
    text = " ".join(
        run("register", *files, "-o", tmp_path / "no", "--channel", "1", "--spacing", "1,2", code=2).output.split()
    )
    assert "2 numbers are not a valid spacing: give one number above 0 in mm, or 3, since the image is 3-D" in text


def test_lengths_of_microscopy_are_told_in_micrometres(stacks, tmp_path):
    line = ("--recipe", "affine", "--channel", "1", *QUICK)
    text = run("register", stacks / "fixed.tif", stacks / "moving.tif", "-o", tmp_path / "out", *line).stdout
    assert re.search(r"translation of the centre by \d+\.\d um", text)


def test_a_spacing_that_is_wrong_by_a_thousand_is_refused_at_once(stacks, tmp_path):
    line = ("--channel", "1", "--spacing", "0.00065,0.00065,0.0025/0.65,0.65,2.5", "--no-report")
    text = run("register", stacks / "fixed.tif", stacks / "moving.tif", "-o", tmp_path / "no", *line, code=2).output
    sentence = "moving.tif is 40 mm long and fixed.tif 0.04 mm: one of them has a wrong spacing"
    assert sentence in " ".join(text.split())


def test_what_the_options_mean():
    assert parse_pair("0.5", "--spacing", parse_spacing) == ((0.5,), (0.5,))
    assert parse_pair("0.65x0.65x2.5/1,1,3", "--spacing", parse_spacing) == ((2.5, 0.65, 0.65), (3, 1, 1))
    assert parse_pair(None, "--channel", parse_channels) == (None, None)
    assert parse_pair("2/1,3", "--channel", parse_channels) == ((2,), (1, 3))
    for wrong in ("0", "1,2,3,4", "-1"):
        with pytest.raises(InputError, match=r"--spacing .*give one number above 0, in mm, or one each along x, y, z"):
            parse_spacing(wrong)
    with pytest.raises(InputError, match="--channel a: give numbers from 1 on"):
        parse_channels("a")
    with pytest.raises(InputError, match="FIXED/MOVING"):
        parse_pair("1/2/3", "--channel", parse_channels)
