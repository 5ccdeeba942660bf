"""A frame around an image, filled with one value: found and masked; the empty surroundings of an object are none."""

import functools

import numpy as np
import pytest
import torch

import warpfactor as wf
from scenes import OPS
from warpfactor.scene.frame import frame_of
from warpfactor.scene.prepare import make_side

SHAPE, PAD = (32, 48, 48), -2000.0


@functools.cache
def chest(depth=SHAPE[0], side="fixed"):
    """A phantom in air, in the units of a CT; larger than the frame, which cuts it off."""
    made = wf.phantom.phantom((depth, *SHAPE[1:]), displacement_vox=4, seed=1, noise=0.02)
    return -1000 + 1400 * getattr(made, side)


def circle(shape=SHAPE, radius=0.5):
    """(D, H, W) bool: outside a circle that touches the sides of each plane."""
    y, x = np.meshgrid(*(np.linspace(-0.5, 0.5, n) for n in shape[1:]), indexing="ij")
    return torch.from_numpy(np.broadcast_to(np.hypot(y, x) > radius, shape).copy())


def fan(shape=SHAPE):
    """(D, H, W) bool: outside a fan from above, whose tip lies outside the plane."""
    y, x = np.meshgrid(*(np.arange(n) / n for n in shape[1:]), indexing="ij")
    far, angle = np.hypot(y + 0.2, x - 0.5), np.arctan2(x - 0.5, y + 0.2)
    return torch.from_numpy(np.broadcast_to((far < 0.3) | (far > 1.1) | (np.abs(angle) > 0.7), shape).copy())


def box(shape=SHAPE):
    found = torch.ones(shape, dtype=torch.bool)
    found[4 : -6 if shape[0] > 1 else None, 5:-7, 3:] = False
    return found if shape[0] > 1 else box((16, *shape[1:]))[8:9]


FRAMES = {"circle": circle, "fan": fan, "box": box}


def assert_frame(found, outside):
    """The frame, and at most two voxels more."""
    assert found is not None
    assert bool(found[outside].all())
    assert float((found & ~outside).float().mean()) < 0.15


@pytest.mark.parametrize("name", FRAMES)
def test_the_frame_of_a_volume_is_found(name):
    outside = FRAMES[name]()
    assert_frame(frame_of(chest().masked_fill(outside, PAD)[None]), outside)


def test_planes_that_lie_along_another_axis_have_a_frame_too():
    outside = circle().transpose(0, 2)
    image = chest().transpose(0, 2).masked_fill(outside, PAD)
    assert_frame(frame_of(image[None].contiguous()), outside)


@pytest.mark.parametrize("name", ["circle", "box"])
def test_the_frame_of_a_slice_is_found(name):
    image = torch.full((1, 72, 72), -1000.0) + 20 * torch.randn((1, 72, 72), generator=torch.Generator().manual_seed(0))
    image[:, 12:60, 12:60] = chest(1)
    outside = FRAMES[name](image.shape)
    assert_frame(frame_of(image.masked_fill(outside, PAD)[None]), outside)


def skull_stripped(shape=SHAPE):
    made = wf.phantom.phantom(shape, displacement_vox=0, seed=2)
    return made.fixed.masked_fill(~made.mask, 0.0)


ORDINARY = {
    "brain": skull_stripped,
    "brain cut off below": lambda: skull_stripped()[9:],
    "slice of a brain": lambda: skull_stripped((1, 64, 64)),
    "slice that was copied": lambda: skull_stripped((1, 48, 48)).expand(6, -1, -1).clone(),
    "nothing empty": chest,
    "filled with what the air is": lambda: chest().masked_fill(circle(), -1000.0),
    "silhouette": lambda: torch.where(circle(radius=0.3), 0.0, 1.0),
    "all of one value": lambda: torch.zeros(SHAPE),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_other_images_have_no_frame(name):
    assert frame_of(ORDINARY[name]()[None]) is None


def test_channels_have_a_frame_if_all_are_empty_there():
    padded = chest().masked_fill(circle(), PAD)
    assert frame_of(torch.stack([padded, 3 - padded])) is not None
    assert frame_of(torch.stack([padded, chest()])) is None


def test_a_frame_is_masked_unless_a_mask_is_given():
    grid = wf.Grid.from_spacing(SHAPE, 1.0)
    image = wf.Image(chest().masked_fill(circle(), PAD)[None], grid)
    assert not bool((make_side(image, None, "cpu", OPS).mask > 0)[circle()].any())
    whole = wf.Image(torch.ones((1, *SHAPE), dtype=torch.uint8), grid)
    assert bool((make_side(image, whole, "cpu", OPS).mask > 0).all())


WIDE, INSET, SHIFT = (32, 64, 64), 8, (7, -6)


def in_air(side, moved=(0, 0)):
    """A chest with air around it."""
    made = chest(side=side)
    image = -1000 + 20 * torch.randn(WIDE, generator=torch.Generator().manual_seed(len(side)))
    image[:, INSET:-INSET, INSET:-INSET] = made
    return torch.roll(image, moved, (1, 2))


def error_vox(outside):
    """Mean error of the default in the object, where both images have this frame."""
    made = wf.phantom.phantom(SHAPE, displacement_vox=4, seed=1, noise=0.02)
    grid = wf.Grid.from_spacing(WIDE, 1.0)
    images = [in_air("fixed"), in_air("moving", SHIFT)]
    found = wf.register(*(wf.Image(image.masked_fill(outside, PAD)[None], grid) for image in images))
    index = torch.nonzero(made.mask)[::20]
    there = index + made.displacement[:, index[:, 0], index[:, 1], index[:, 2]].T + torch.tensor((0, *SHIFT))
    here, there = (grid.index_to_world(each.numpy() + np.array((0, INSET, INSET))) for each in (index, there))
    return float(np.linalg.norm(found.transform.map_points(here) - there, axis=1).mean())


def test_a_frame_does_not_mislead_a_registration():
    """Unmasked, the circle of the moving image is drawn onto that of the fixed one, and the error is 2.3 voxels."""
    assert error_vox(circle(WIDE)) < 1.5 * error_vox(torch.zeros(WIDE, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(1, 24, 20), (16, 24, 20)])
def test_an_image_of_one_value_has_no_frame(shape):
    assert frame_of(torch.zeros((1, *shape))) is None
