"""A part of an image that is missing, filled with background: found, masked, said; ordinary pairs are left alone."""

import functools
import threading

import numpy as np
import pytest
import torch

import warpfactor as wf
from damage import (
    AXIS,
    SHAPES,
    assert_sound,
    brain,
    cut_of,
    dice,
    emptied,
    error,
    images_of,
    kept,
    labels_behind,
    truth,
)
from scenes import OPS, scene_of
from warpfactor.scene.missing import LEAST, Lookout, without_background, without_gaps
from warpfactor.scene.prepare import stored

HERE = np.eye(4)  # the phantom's images lie on each other as they are


def halves(dimension, side):
    """The phantom's images, one of them with an empty third, and where that is."""
    images = dict(zip(("fixed", "moving"), images_of(truth(dimension)), strict=True))
    lost = kept(images[side], AXIS).data[0] == 0
    return {**images, side: emptied(images[side], AXIS)}, lost


@functools.cache
def registered(dimension, side):
    return wf.register(**halves(dimension, side)[0])


@pytest.mark.parametrize("dimension", SHAPES)
@pytest.mark.parametrize("side", ["fixed", "moving"])
def test_an_empty_third_is_found_to_the_voxel(dimension, side):
    images, lost = halves(dimension, side)
    (gap,) = Lookout(scene_of(**images)).gaps(HERE)
    assert gap.side == side
    assert 0.1 < gap.share < 0.5
    shown = images_of(truth(dimension))[side == "moving"].data[0] > 0.2
    assert float(gap.voxels[lost & shown].float().mean()) > 0.95
    assert float(gap.voxels[~lost & shown].float().mean()) < 0.05  # the voxel along the cut


@pytest.mark.parametrize("dimension", SHAPES)
def test_nothing_is_missing_from_ordinary_images(dimension):
    fixed, moving = images_of(truth(dimension))
    lookout = Lookout(scene_of(fixed, moving))
    assert lookout.gaps(HERE) == lookout.smaller() == ()
    found = wf.register(fixed, moving)
    assert found.run.missing == (0.0, 0.0)
    assert found.warnings == ()


def test_label_maps_are_not_missing_anything():
    """The numbers of labels are not intensities, and label maps have holes that are background."""
    made = truth("3-D")
    grid = images_of(made)[0].grid
    fixed, moving = (wf.Image(part[None].float(), grid, "labels") for part in (made.fixed_labels, made.moving_labels))
    assert Lookout(scene_of(fixed, emptied(moving, AXIS))).gaps(HERE) == ()


def test_a_crop_is_not_missing():
    """Where there is no image at all nothing is taken for background."""
    fixed, moving = images_of(truth("3-D"))
    data = moving.data[:, :, : cut_of(moving, AXIS)].contiguous()
    cropped = wf.Image(data, wf.Grid(tuple(data.shape[1:]), moving.grid.matrix, 3), "crop")
    assert Lookout(scene_of(fixed, cropped)).gaps(HERE) == ()


def test_an_image_with_a_mask_is_left_to_it():
    images, _ = halves("3-D", "moving")
    everything = wf.Image(torch.ones_like(images["moving"].data, dtype=torch.uint8), images["moving"].grid, "mask")
    lookout = Lookout(scene_of(**images, moving_mask=everything))
    assert lookout.gaps(HERE) == lookout.smaller() == ()


def test_a_mask_that_the_lattice_misses_shows_nothing(generator):
    grid = wf.Grid.from_spacing((100, 24, 24), 1.0)
    data = torch.zeros(1, *grid.shape)
    data[:, 20:80, 4:20, 4:20] = torch.rand((1, 60, 16, 16), generator=generator) + 1
    images = [wf.Image(data, grid, name) for name in ("fixed", "moving")]
    thin = torch.zeros_like(data, dtype=torch.uint8)
    thin[:, 41] = 1
    for masks in ({"fixed_mask": thin}, {"moving_mask": thin}, {"fixed_mask": thin, "moving_mask": thin}):
        given = {name: wf.Image(mask, grid, name) for name, mask in masks.items()}
        lookout = Lookout(scene_of(*images, **given))
        assert lookout.gaps(HERE) == lookout.smaller() == ()


def test_a_shape_of_one_value_misses_nothing():
    """A disc and a C differ in just that, and it is to be warped."""
    y, x = np.mgrid[-32:33, -32:33]
    disc = (y**2 + x**2 < 24**2).astype(np.float32)
    opened = disc * ~((np.abs(y) < 6) & (x > -4))
    fixed, moving = (
        wf.Image(torch.from_numpy(100 * data)[None, None], wf.Grid.from_spacing((65, 65), 1.0))
        for data in (disc, opened)
    )
    lookout = Lookout(scene_of(fixed, moving))
    assert lookout.gaps(HERE) == lookout.smaller() == ()


def test_a_knot_in_thin_tissue_is_not_missing_from_the_other_image():
    """Hardly a point lies deep in thin tissue, so that a small knot is all of its inside; a large one does count."""
    sheets = ((torch.arange(192) // 8) % 4 == 0).float()[:, None] * (1 + torch.arange(192) / 192)

    def gaps(size):
        knotted = sheets.clone()
        knotted[116 - size // 2 :, 96:][:size, :size] = 1 + torch.arange(size) / size
        return Lookout(scene_of(*(wf.Image.from_array(image) for image in (knotted, sheets)))).gaps(HERE)

    assert gaps(20) == ()
    assert [gap.side for gap in gaps(36)] == ["moving"]


def test_what_was_not_aligned_is_not_missing():
    """Apart by more than a lattice's step, without a linear stage."""
    fixed, moving = images_of(truth("3-D"))
    shift = np.eye(4)
    shift[0, 3] = 0.2 * moving.grid.shape[2] * moving.grid.spacing_mm[2]
    apart = wf.Image(moving.data, wf.Grid(moving.grid.shape, shift @ moving.grid.matrix, 3), "apart")
    found = wf.register(fixed, apart, recipe="fast", overrides={"linear": "none"})
    assert found.run.missing == (0.0, 0.0)


def test_no_background_no_gap():
    """Air that is noise has no value of its own that could stand for nothing."""
    images, _ = halves("3-D", "moving")
    noise = 0.01 * torch.randn(images["moving"].data.shape, generator=torch.Generator().manual_seed(1))
    noisy = wf.Image(images["moving"].data + noise, images["moving"].grid, "noisy")
    assert Lookout(scene_of(images["fixed"], noisy)).gaps(HERE) == ()


@pytest.mark.parametrize("value", [-1024.0, 7.5])
def test_any_background_will_do(value):
    images, _ = halves("3-D", "moving")
    raised = {name: wf.Image(100 * image.data + value, image.grid, name) for name, image in images.items()}
    (gap,) = Lookout(scene_of(**raised)).gaps(HERE)
    (plain,) = Lookout(scene_of(**images)).gaps(HERE)
    assert gap.share == pytest.approx(plain.share, rel=0.01)  # faint voxels may be rounded to the background


def test_lengths_have_no_unit():
    """A mouse and a man of the same shape are one."""
    images, _ = halves("3-D", "moving")
    (plain,) = Lookout(scene_of(**images)).gaps(HERE)
    small = {
        n: wf.Image(i.data, wf.Grid(i.grid.shape, np.diag([0.1] * 3 + [1]) @ i.grid.matrix, 3), n)
        for n, i in images.items()
    }
    (gap,) = Lookout(scene_of(**small)).gaps(HERE)
    assert gap.share == pytest.approx(plain.share)


def test_channels_count_where_all_are_empty():
    images, _ = halves("3-D", "moving")
    both = {n: wf.Image(torch.cat([i.data, 1 + 2 * i.data]), i.grid, n) for n, i in images.items()}
    (gap,) = Lookout(scene_of(**both)).gaps(HERE)
    assert gap.share > LEAST
    whole = images_of(truth("3-D"))[1].data
    half = wf.Image(torch.cat([images["moving"].data, whole]), images["moving"].grid, "half")
    fixed = wf.Image(both["fixed"].data, both["fixed"].grid, "fixed")
    assert Lookout(scene_of(fixed, half)).gaps(HERE) == ()


@pytest.mark.parametrize("side", ["fixed", "moving"])
def test_a_masked_gap_is_as_if_the_user_had_masked_it(side):
    """Whole numbers stay whole numbers, and the image goes on smoothly into the gap."""
    images, _ = halves("3-D", side)
    scene = scene_of(**images)
    (gap,) = Lookout(scene).gaps(HERE)
    valid = wf.Image((~gap.voxels)[None].to(torch.uint8), images[side].grid, "mask")
    given = scene_of(**images, **{f"{side}_mask": valid})
    for storage in ("float32", "int16"):
        found = without_gaps(stored(scene, storage), [gap], OPS)
        assert getattr(found, side).data.dtype == getattr(torch, storage)
        assert torch.equal(getattr(found, side).mask, valid.data[0])
        ours, theirs = getattr(found.single(), side).data, getattr(given, side).data
        inside = ~gap.voxels
        scale = theirs[0][inside].std() / ours[0][inside].std()  # they were standardised over other voxels
        shift = theirs[0][inside].mean() - scale * ours[0][inside].mean()
        assert float((scale * ours + shift - theirs)[0][inside].abs().max()) < 2e-3
        assert float(ours[0][gap.voxels].min()) > float(ours[0][inside].min()) - 0.1


def test_without_background_what_has_its_value_does_not_count():
    images, lost = halves("3-D", "moving")
    scene = scene_of(**images)
    found = without_background(scene, ["moving"], OPS)
    assert found.fixed.mask is None
    assert torch.equal(found.moving.mask == 0, lost)  # the rest of this background is noise
    assert without_background(scene, [], OPS) is scene


@pytest.mark.parametrize("dimension", SHAPES)
@pytest.mark.parametrize("side", ["fixed", "moving"])
def test_what_is_missing_is_not_dragged_away(dimension, side):
    made, found = truth(dimension), registered(dimension, side)
    assert found.figures.warp.jacobian.folded_count == 0
    lost = made.mask.clone()
    lost[:, : cut_of(images_of(made)[side == "moving"], AXIS)] = False
    assert error(found.transform, made, lost) < error(found.affine, made, lost) + 0.25
    assert error(found.transform, made, made.mask) < error(found.affine, made, made.mask)


@pytest.mark.parametrize("dimension", SHAPES)
def test_what_is_not_missing_comes_nearer_to_its_true_warp(dimension):
    made, found = truth(dimension), registered(dimension, "moving")
    assert_sound(found, limit_mm=10.0)
    seen = made.mask.clone()
    seen[:, cut_of(images_of(made)[1], AXIS) - 6 :] = False  # what was lost, and as much as the true warp moves
    assert error(found.transform, made, seen) < error(found.affine, made, seen)


def test_the_result_says_what_was_missing():
    found = registered("3-D", "moving")
    assert found.run.missing[0] == 0
    assert found.run.missing[1] > 0.1
    (text,) = found.warnings
    assert "moving image is missing" in text
    assert f"{found.run.missing[1]:.0%}" in text
    assert "--moving-mask" in text
    entries = found.to_dict()
    assert entries["moving"]["missing_share"] == found.run.missing[1]
    assert entries["warnings"] == [text]


def test_stopping_in_the_second_linear_run_leaves_the_first():
    clock, stop = [], threading.Event()

    def watch(event):
        clock.append(event.seconds)
        if event.stage != "deformable" and len(clock) > 1 and clock[-1] < clock[-2]:  # a clock of its own: another run
            stop.set()

    images, _ = halves("3-D", "moving")
    found = wf.register(**images, progress=watch, stop=stop)
    assert found.interrupted
    assert found.warp is None
    assert [stage.interrupted for stage in found.history] == [False]  # it is the first run's, which had ended


def test_a_given_mask_is_not_second_guessed():
    images, _ = halves("3-D", "moving")
    found = wf.register(**images, moving_mask=kept(images["moving"], AXIS), recipe="fast")
    assert found.run.missing == (0.0, 0.0)
    assert found.warnings == ()


@pytest.mark.parametrize(("axis", "side"), [(1, "moving"), (2, "fixed")])
def test_a_brain_without_a_third_is_registered_without_harm(data_dir, axis, side):
    """Labels overlap better than after the affine, and those that lie in the missing third no less."""
    (fixed, fixed_labels), (moving, moving_labels) = brain(data_dir, 1000), brain(data_dir, 1001)
    if side == "moving":
        found, lost = wf.register(fixed, emptied(moving, axis)), labels_behind(moving_labels, moving, axis)
    else:
        found, lost = wf.register(emptied(fixed, axis), moving), labels_behind(fixed_labels, fixed, axis)
    scores = [dice(t, fixed_labels, moving_labels) for t in (found.affine, found.transform)]
    if (axis, side) == (1, "moving"):
        assert_sound(found, limit_mm=20.0)
        assert scores[1].mean_common > scores[0].mean_common + 0.10
    before, after = (score.per_label for score in scores)
    assert found.figures.warp.jacobian.folded_count == 0
    assert np.mean(list(before.values())) > 0.4  # the affine was not misled
    assert np.mean(list(after.values())) > np.mean(list(before.values())) + 0.09
    assert np.mean([after[label] for label in lost]) > np.mean([before[label] for label in lost]) - 0.01


def test_nothing_is_missing_from_brains_and_livers(data_dir):
    (fixed, _), (moving, _) = brain(data_dir, 1000), brain(data_dir, 1001)
    liver = [wf.read_image(data_dir / "liver" / f"s18_{name}.nii.gz") for name in ("fixed_exh", "moving_cyc_1_10")]
    for pair in ((fixed, moving), liver):
        assert Lookout(scene_of(*pair)).gaps(wf.register(*pair, recipe="affine").affine.matrix) == ()
