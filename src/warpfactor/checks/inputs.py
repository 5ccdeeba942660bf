"""Inputs that can be read but are probably not what was meant: labels as an image, an image as a mask, a wrong spacing.

Of neighbouring voxels that are not both background, 67 to 98 % are equal in label maps and masks of brains,
hippocampi, lungs and slices, and at most 13 % in images of the same, of livers and of heads (86 files).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from warpfactor.errors import Notice
from warpfactor.geometry.grid import Grid, Points
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Transform
from warpfactor.io import Landmarks
from warpfactor.io.points import RAS_SIGN
from warpfactor.measure import target_registration_error

SAMPLES = 200_000  # voxels that are examined
MANY_LABELS = 500  # whole-brain parcellations have fewer
MANY_MASK_VALUES = 20
EVEN = 0.5  # share of equal neighbours above which an image is a label map
UNEVEN = 0.3  # share of equal neighbours below which an image is not a mask
FEW_VOXELS = 8  # along the longest axis; the length of smaller images says nothing about their spacing
FAR_IN_SIZE = 8.0  # ratio of lengths that images of the same object do not reach, but inches and millimetres do
MARGIN_VOX = 1.0  # by which a point may lie outside its image
CLEARLY = 0.5  # ratio of errors below which another reading of the landmarks is the right one

LABELS_AS_IMAGE = "labels_as_image"
SIZES_DIFFER = "sizes_differ"
IMAGE_AS_MASK = "image_as_mask"
POINTS_OUTSIDE = "points_outside"
LANDMARKS_MISREAD = "landmarks_misread"
IN_TARGET_SPACE = "in_target_space"
OUTSIDE_SOURCE_SPACE = "outside_source_space"
IMAGE_NOT_FOUND = "image_not_found"  # of a result folder
IMAGE_DIFFERS = "image_differs"
IMAGE_UNREADABLE = "image_unreadable"
IMAGE_CHANGED = "image_changed"
TRANSFORM_CHANGED = "transform_changed"


@dataclass(frozen=True)
class Texture:
    """What distinguishes an image from a label map.

    Attributes:
        whole: whether all values are whole numbers.
        count: number of different values.
        evenness: share of neighbours with equal values, of those that are not both background; 1 if there are none.
    """

    whole: bool
    count: int
    evenness: float


def texture(channel: Tensor) -> Texture:
    """The texture of a (D, H, W) channel, from a sample of its rows."""
    rows = channel.reshape(-1, channel.shape[-1])
    sample = rows[:: 1 + rows.numel() // SAMPLES].cpu().numpy()
    values, counts = np.unique(sample, return_counts=True)
    background = values[counts.argmax()]
    left, right = sample[:, :-1], sample[:, 1:]
    shown = (left != background) | (right != background)
    evenness = float((left == right)[shown].mean()) if shown.any() else 1.0
    return Texture(bool((values == np.round(values)).all()), len(values), evenness)


def looks_like_labels(image: Image) -> bool:
    """Whether an image has the texture of a label map."""
    found = texture(image.data[0]) if image.channels == 1 else None
    return found is not None and found.whole and 1 < found.count <= MANY_LABELS and found.evenness > EVEN


def check_images(fixed: Image, moving: Image) -> Iterator[Notice]:
    """Notices about two images: only one is a label map, or one is much longer than the other."""
    first, second = looks_like_labels(fixed), looks_like_labels(moving)
    if first != second:  # two label maps are registered on purpose
        yield Notice(LABELS_AS_IMAGE, {"name": (fixed if first else moving).name})
    lengths = lengths_apart(fixed, moving)
    if lengths is not None:
        small, large = sorted((fixed, moving), key=lambda image: length_mm(image.grid))
        yield Notice(SIZES_DIFFER, {"names": [large.name, small.name], "lengths_mm": list(lengths)})


def lengths_apart(one: Image, other: Image) -> tuple[float, float] | None:
    """The lengths in mm of the longer and the shorter image if they are not of one object; None if they may be."""
    small, large = sorted((one, other), key=lambda image: length_mm(image.grid))
    lengths = length_mm(large.grid), length_mm(small.grid)
    return lengths if max(small.grid.shape) >= FEW_VOXELS and lengths[0] > FAR_IN_SIZE * lengths[1] else None


def check_mask(name: str, channel: Tensor) -> Iterator[Notice]:
    """A notice if the (D, H, W) channel of a mask varies from voxel to voxel, as that of an image does."""
    found = texture(channel)
    if found.count > MANY_MASK_VALUES and found.evenness < UNEVEN:
        yield Notice(IMAGE_AS_MASK, {"name": name, "share": int((channel != 0).sum()) / channel.numel()})


def check_points(name: str, points: Points, grid: Grid | None, space: str, *, ras: bool) -> Iterator[Notice]:
    """A notice if (N, 3) LPS mm points lie outside the image of their space.

    Args:
        name: of the file they were read from.
        grid: of the image, if it is known.
        space: "fixed" or "moving".
        ras: whether they were read as RAS.
    """
    if grid is None:
        return
    index = grid.world_to_index(points)
    outside = (index < -MARGIN_VOX) | (index > np.asarray(grid.shape) - 1 + MARGIN_VOX)
    count = int(outside.any(axis=1).sum())
    if count:
        yield Notice(POINTS_OUTSIDE, {"name": name, "outside": count, "count": len(points), "space": space, "ras": ras})


def check_landmarks(name: str, points: Landmarks, transform: Transform, *, ras: bool) -> Iterator[Notice]:
    """A notice if landmarks fit far better with fixed and moving exchanged, or in the other convention (RAS, LPS)."""
    readings = {
        "swapped": Landmarks(points.moving, points.fixed),
        "lps" if ras else "ras": Landmarks(points.fixed * RAS_SIGN, points.moving * RAS_SIGN),
    }
    errors = {how: _error_mm(other, transform) for how, other in readings.items()}
    error, how = _error_mm(points, transform), min(errors, key=lambda key: errors[key])
    if errors[how] < CLEARLY * error:
        yield Notice(LANDMARKS_MISREAD, {"name": name, "error_mm": error, "better": how, "better_mm": errors[how]})


def check_space(name: str, grid: Grid, own: Grid | None, target: Grid | None, to: str) -> Iterator[Notice]:
    """A notice if an image that is to be resampled to the space `to` lies there already, or far from its own space.

    Args:
        own, target: grids of the space that the image should belong to and of the space `to`, if known.
    """
    if own is None or target is None or grid.same_space(own):
        return
    if grid.same_space(target):
        yield Notice(IN_TARGET_SPACE, {"name": name, "to": to})
    elif lie_apart(grid, own):
        yield Notice(OUTSIDE_SOURCE_SPACE, {"name": name, "to": to})


def lie_apart(grid: Grid, other: Grid) -> bool:
    """Whether two grids do not overlap, judged by the corners of the first."""
    corners = list(itertools.product(*[(-0.5, n - 0.5) for n in grid.shape]))
    index = other.world_to_index(grid.index_to_world(corners))
    return bool(((index.max(axis=0) < -0.5) | (index.min(axis=0) > np.asarray(other.shape) - 0.5)).any())


def length_mm(grid: Grid) -> float:
    """Length of the longest axis."""
    return max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1)


def _error_mm(points: Landmarks, transform: Transform) -> float:
    return target_registration_error(transform.map_points(points.fixed), points.moving).mean
