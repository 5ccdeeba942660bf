"""Inputs that are probably not what was meant cause notices; real images cause none."""

import re
import warnings

import numpy as np
import pytest
import torch
from PIL import Image as Picture

import warpfactor as wf
from small import GRID, image, pair
from warpfactor.checks.inputs import (
    check_images,
    check_landmarks,
    check_mask,
    check_points,
    check_space,
    looks_like_labels,
)
from warpfactor.registration import inputs
from warpfactor.show.wording import sentence

MADE = pair()
PICTURE = image((124 * MADE.fixed).round(), name="picture")
LABELS = image(MADE.fixed_labels.float(), name="labels")


def test_whole_numbers_that_vary_are_no_labels(generator):
    noise = torch.randint(0, 40, GRID.shape, generator=generator).float()
    assert looks_like_labels(LABELS)
    assert not looks_like_labels(image(noise))
    assert not looks_like_labels(image(LABELS.data[0] + 0.5))
    assert not looks_like_labels(image(torch.ones(GRID.shape)))
    assert not looks_like_labels(wf.Image(LABELS.data.repeat(2, 1, 1, 1), GRID))


def test_a_label_map_among_two_images_is_noticed(generator):
    other = image(torch.rand(GRID.shape, generator=generator), name="other")
    (notice,) = check_images(other, LABELS)
    assert (notice.code, notice.facts) == ("labels_as_image", {"name": "labels"})
    assert sentence(notice).startswith("labels looks like a label map, not like an image; register")
    assert not list(check_images(LABELS, LABELS))
    assert not list(check_images(other, other))


def test_an_image_as_mask_is_noticed(generator):
    noise = torch.rand(GRID.shape, generator=generator)
    (notice,) = check_mask("noise", noise)
    assert notice.code == "image_as_mask"
    assert re.match(r"noise looks like an image, not like a mask; .* 100 % of them", sentence(notice))
    soft = torch.nn.functional.avg_pool3d(MADE.mask[None].float(), 3, 1, 1)[0]
    for mask in (MADE.mask.byte(), MADE.fixed_labels, soft, torch.ones(GRID.shape), (noise > 0.9).byte()):
        assert not list(check_mask("mask", mask))


def test_lengths_that_differ_by_inches_are_noticed():
    small, large = (wf.Image.from_array(np.zeros((40, 50)), size, name=f"{size} mm") for size in (0.0847, 1.0))
    text = "1.0 mm is 50 mm long and 0.0847 mm 4.23 mm; check the spacing of both"
    for images in ((small, large), (large, small)):
        (notice,) = check_images(*images)
        assert notice.code == "sizes_differ"
        assert sentence(notice).startswith(text)
    assert not list(check_images(large, wf.Image.from_array(np.zeros((20, 10)), 1.0)))


def test_points_outside_their_image_are_noticed():
    inside, outside = GRID.index_to_world([[5.0, 6.0, 7.0]]), np.array([[500.0, 0.0, 0.0]])
    assert not list(check_points("a.csv", inside, GRID, "fixed", ras=False))
    assert not list(check_points("a.csv", outside, None, "fixed", ras=False)), "the grid is not known"
    (notice,) = check_points("a.csv", np.r_[inside, outside], GRID, "fixed", ras=False)
    assert notice.code == "points_outside"
    assert sentence(notice).startswith("a.csv: 1 of 2 points lie outside the fixed image; check whether they are RAS")


@pytest.mark.parametrize("better", ["swapped", "ras"])
def test_landmarks_that_fit_another_reading_are_noticed(better):
    shift = np.eye(4)
    shift[:3, 3] = (10.0, 4.0, 6.0)
    fixed = np.array([[10.0, 20.0, 30.0], [15.0, 30.0, 35.0]])
    moving = fixed + shift[:3, 3]
    sign = np.array([-1.0, -1.0, 1.0])
    given = {"swapped": (moving, fixed), "ras": (fixed * sign, moving * sign)}[better]
    assert not list(check_landmarks("a.csv", wf.io.Landmarks(fixed, moving), wf.Affine(shift), ras=False))
    (notice,) = check_landmarks("a.csv", wf.io.Landmarks(*given), wf.Affine(shift), ras=False)
    assert (notice.code, notice.facts["better"]) == ("landmarks_misread", better)
    assert "but 0.00 mm" in sentence(notice)


def test_images_of_the_wrong_space_are_noticed():
    other = wf.Grid.from_spacing((10, 12, 14))
    far = wf.Grid(GRID.shape, np.block([[np.eye(3), np.full((3, 1), 900.0)], [np.zeros((1, 3)), np.eye(1)]]))
    assert not list(check_space("a.nii", GRID, GRID, other, "fixed"))
    assert not list(check_space("a.nii", far, None, other, "fixed")), "the grids are not known"
    assert [notice.code for notice in check_space("a.nii", other, GRID, other, "fixed")] == ["in_target_space"]
    assert [notice.code for notice in check_space("a.nii", far, GRID, other, "fixed")] == ["outside_source_space"]


def test_files_are_checked_and_arrays_are_not(tmp_path, generator):
    wf.write_image(LABELS, tmp_path / "labels.nii.gz")
    noise = wf.Image.from_array(torch.rand(GRID.shape, generator=generator), grid=GRID)
    wf.write_image(noise, tmp_path / "noise.nii.gz")
    files = tmp_path / "noise.nii.gz", tmp_path / "labels.nii.gz"
    with pytest.warns(UserWarning, match="labels.nii.gz looks like a label map"):
        inputs.load_pair(*files)
    inputs.load_pair(*(wf.read_image(path) for path in files))
    with pytest.warns(UserWarning, match="noise.nii.gz looks like an image"):
        inputs.load_mask(files[0], noise)


def test_real_files_raise_no_alarm(data_dir):
    names = {
        "brain": ("1000_t1_brain.nii.gz", "1001_t1_brain.nii.gz", "1000_labels.nii.gz"),
        "hippocampus": ("hippocampus_001_img.nii.gz", "hippocampus_003_img.nii.gz", "hippocampus_001_lab.nii.gz"),
        "lung": ("lung_fixed.nii.gz", "lung_moving.nii.gz", "lung_fixed_mask.nii.gz"),
        "liver": ("s18_fixed_exh.nii.gz", "s18_moving_cyc_1_10.nii.gz", None),
        "slices2d": (
            "OASIS-TRT-20-1_slice118.nii.gz",
            "OASIS-TRT-20-2_slice118.nii.gz",
            "OASIS-TRT-20-1_DKT31_CMA_labels_slice118.nii.gz",
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", wf.io.GeometryWarning)
        for folder, (fixed, moving, labels) in names.items():
            inputs.load_pair(data_dir / folder / fixed, data_dir / folder / moving)
            assert not looks_like_labels(wf.read_image(data_dir / folder / fixed))
            if labels:
                inputs.load_mask(data_dir / folder / labels, wf.read_image(data_dir / folder / labels))
                assert looks_like_labels(wf.read_image(data_dir / folder / labels))


def test_what_is_not_zero_is_inside_a_mask(tmp_path):
    data = torch.zeros(GRID.shape)
    data[3:9] = -1.0
    data[10:12] = float("nan")
    wf.write_image(image(data), tmp_path / "mask.nii.gz")
    expected = (data == -1).to(torch.uint8)
    assert torch.equal(wf.io.read_mask(tmp_path / "mask.nii.gz").data[0], expected)
    found = inputs.load_mask(data.numpy(), image(data))
    assert torch.equal(found.data[0], expected)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_an_opaque_channel_is_left_out(tmp_path, rng, suffix):
    numbers = rng.integers(0, 255, (20, 24, 4), dtype=np.uint8)
    numbers[..., -1] = 255
    Picture.fromarray(numbers).save(tmp_path / f"opaque{suffix}")
    found = wf.read_image(tmp_path / f"opaque{suffix}")
    assert np.array_equal(found.data[:, 0].numpy(), np.moveaxis(numbers, -1, 0)[:3])
    numbers[4, 5, -1] = 0
    Picture.fromarray(numbers).save(tmp_path / f"clear{suffix}")
    assert wf.read_image(tmp_path / f"clear{suffix}").channels == 4


def test_labels_in_colours_are_refused_with_what_to_do(tmp_path):
    picture = Picture.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) % 3)
    picture.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    picture.save(tmp_path / "palette.png")
    for read in (wf.read_labels, wf.io.read_mask):
        with pytest.raises(wf.FileError, match=r"has one channel, this has 3; save a picture .* one number per pixel"):
            read(tmp_path / "palette.png")
