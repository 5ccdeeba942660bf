"""Images with something wrong with them: noise, missing parts, shading; and how far a result is from the truth."""

import functools

import numpy as np
import torch
from torch.nn import functional

import warpfactor as wf
from warpfactor.measure import dice_figures
from warpfactor.phantom import phantom

THIRD = 1 / 3


def noisy(image, snr, seed):
    """Gaussian noise everywhere, its SD the mean of what is not dark divided by `snr`."""
    data = image.data
    sd = float(data[data > data.mean()].mean()) / snr
    noise = torch.randn(data.shape, generator=torch.Generator().manual_seed(seed))
    return wf.Image(data + sd * noise, image.grid, image.name)


def cut_of(image, axis):
    """Index along an array axis (z, y, x) behind which the last third of the object lies."""
    data = image.data[0]
    rest = tuple(a for a in range(3) if a != axis)
    filled = torch.nonzero((data > 0.2 * data.max()).any(rest[1]).any(rest[0])).flatten()
    first, last = int(filled[0]), int(filled[-1])
    return round(last + 1 - THIRD * (last + 1 - first))


def emptied(image, axis):
    """The last third of the object replaced by zeros."""
    data = image.data.clone()
    data.narrow(axis + 1, cut_of(image, axis), data.shape[axis + 1] - cut_of(image, axis)).zero_()
    return wf.Image(data, image.grid, image.name)


def cropped(image, axis):
    """The field of view ends before the last third of the object."""
    data = image.data.narrow(axis + 1, 0, cut_of(image, axis)).contiguous()
    return wf.Image(data, wf.Grid(tuple(data.shape[1:]), image.grid.matrix, image.grid.ndim), image.name)


def kept(image, axis):
    """Mask of what `emptied` and `cropped` keep."""
    mask = torch.zeros_like(image.data)
    mask.narrow(axis + 1, 0, cut_of(image, axis)).fill_(1)
    return wf.Image(mask.to(torch.uint8), image.grid, "mask")


def shaded(image, seed):
    """Multiplied by a random smooth field from 0.3 to 1.7."""
    size = image.data.shape[1:]
    nodes = torch.rand((1, 1, *(min(4, n) for n in size)), generator=torch.Generator().manual_seed(seed))
    field = functional.interpolate(nodes, size=size, mode="trilinear", align_corners=True)[0]
    field = 0.3 + 1.4 * (field - field.min()) / (field.max() - field.min())
    return wf.Image(image.data * field, image.grid, image.name)


def ramped(image, axis, sign):
    """Multiplied by a line from 0.3 to 1.7 along an array axis, or from 1.7 to 0.3."""
    n = image.data.shape[axis + 1]
    ramp = 1 + 0.7 * sign * torch.linspace(-1, 1, n).reshape([n if a == axis else 1 for a in range(3)])
    return wf.Image(image.data * ramp, image.grid, image.name)


AXIS = 1  # along which a third is lost; 2-D has it too


ATTACKS = {  # and a third without image, which tests/scene/test_missing.py is about
    "snr-3": lambda f, m: (noisy(f, 3, 1), noisy(m, 3, 2)),
    "cropped": lambda f, m: (f, cropped(m, AXIS)),
    "shaded": lambda f, m: (shaded(f, 1), shaded(m, 2)),
    "ramped-y": lambda f, m: (ramped(f, 1, 1), ramped(m, 1, -1)),
}


def assert_sound(found, limit_mm):
    assert found.history[-1].kept
    assert bool(torch.isfinite(found.warp.displacement).all())
    assert found.figures.warp.jacobian.folded_count == 0
    assert found.figures.warp.displacement_mm.max < limit_mm


SHAPES = {"3-D": (48, 56, 48), "2-D": (1, 112, 96)}


@functools.cache
def truth(dimension):
    return phantom(SHAPES[dimension], seed=5, displacement_vox=3.0)


def images_of(made):
    shape = made.fixed.shape if made.fixed.shape[0] > 1 else made.fixed.shape[1:]
    grid = wf.Grid.from_spacing(shape)
    return [wf.Image.from_array(array, grid=grid) for array in (made.fixed, made.moving)]


def error(transform, made, where):
    """Mean distance to the true warp in voxels."""
    total = transform.on_grid(images_of(made)[0].grid).total()
    return float((total - made.displacement).norm(dim=0)[where].mean())


@functools.cache
def brain(folder, number, edge_mm=3):
    """A brain at 3 mm or another whole number of mm, cut to its surroundings, and its labels at 1 mm."""
    image = wf.read_image(folder / "brain" / f"{number}_t1_brain.nii.gz")
    inside = torch.nonzero(image.data[0])
    low, high = (inside.min(0).values - 8).clamp(min=0).tolist(), (inside.max(0).values + 9).tolist()
    data = image.data[:, low[0] : high[0], low[1] : high[1], low[2] : high[2]]
    corner = np.eye(4)
    corner[:3, 3] = low
    grid = wf.Grid(tuple(data.shape[1:]), image.grid.matrix @ corner)
    small = functional.avg_pool3d(data[None], edge_mm)[0]
    coarse = wf.Image(small, grid.scaled(float(edge_mm), shape=small.shape[1:]), f"brain {number}")
    return coarse, wf.read_labels(folder / "brain" / f"{number}_labels.nii.gz")


def dice(transform, fixed_labels, moving_labels):
    """Dice of each label that both have, at every second voxel of the fixed labels."""
    step = np.diag([2.0, 2.0, 2.0, 1.0])
    sparse = fixed_labels.data[0, ::2, ::2, ::2].contiguous()
    grid = wf.Grid(tuple(sparse.shape), fixed_labels.grid.matrix @ step)
    return dice_figures(sparse, transform.resample(moving_labels, grid, mode="nearest").data[0])


def labels_behind(labels, image, axis):
    """Labels of which nine tenths lie behind the cut."""
    start = image.grid.index_to_world([[cut_of(image, axis) if a == axis else 0 for a in range(3)]])
    cut = round(float(labels.grid.world_to_index(start)[0, axis]))
    whole, behind = labels.data[0], labels.data[0].narrow(axis, cut, labels.data.shape[axis + 1] - cut)
    count, lost = (np.bincount(part.flatten().numpy(), minlength=int(whole.max()) + 1) for part in (whole, behind))
    return [label for label in range(1, len(count)) if count[label] and lost[label] > 0.9 * count[label]]
