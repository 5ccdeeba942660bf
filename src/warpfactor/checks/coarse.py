"""Coarse copies of images, which can be compared in a fraction of a second, and the object that an image shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from warpfactor.checks.sampling import sample
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import level_shape
from warpfactor.scene.object import foreground
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene

OBJECT_POINTS = 100_000  # voxels of the coarse mask of an object


def coarse_scene(
    fixed: Image, moving: Image, fixed_mask: Image | None, points: int, ops: Ops, *, moving_mask: Image | None = None
) -> Scene | None:
    """Both images at one spacing, the fixed one with about `points` voxels; None if an image is constant."""
    spacing = spacing_for(fixed.grid, points)
    small_fixed, small_moving = shrink(first_channel(fixed), spacing, ops), shrink(first_channel(moving), spacing, ops)
    masks = (shrink_mask(fixed_mask, small_fixed.grid, ops), shrink_mask(moving_mask, small_moving.grid, ops))
    try:
        return make_scene(small_fixed, small_moving, ops=ops, fixed_mask=masks[0], moving_mask=masks[1])
    except InputError:  # an image is constant
        return None


@dataclass(frozen=True)
class ObjectMask:
    """The object that an image shows, as a coarse mask.

    Attributes:
        shape: (D, H, W) of the image.
        mask: (d, h, w) bool over the field of view of the image.
    """

    shape: tuple[int, int, int]
    mask: NDArray[np.bool_]

    @classmethod
    def of(cls, image: Image, mask: Image | None, ops: Ops) -> ObjectMask:
        """Where an image differs from its border, inside its mask if there is one."""
        small = shrink(first_channel(image), spacing_for(image.grid, OBJECT_POINTS), ops)
        inside = shrink_mask(mask, small.grid, ops)
        where = foreground(torch.nan_to_num(small.data), None if inside is None else inside.data[0])
        return cls(image.grid.shape, where.numpy())

    @classmethod
    def whole(cls, grid: Grid) -> ObjectMask:
        """The whole field of view, for an image that is not available."""
        return cls(grid.shape, np.ones((1, 1, 1), dtype=np.bool_))

    def box(self) -> NDArray[np.int64]:
        """(2, 3) first and last index (z, y, x) of the object."""
        ratio = np.asarray(self.shape) / np.asarray(self.mask.shape)
        points = np.argwhere(self.mask)
        low, high = np.floor(points.min(axis=0) * ratio), np.ceil((points.max(axis=0) + 1) * ratio) - 1
        return np.clip(np.stack([low, high]).astype(np.int64), 0, np.asarray(self.shape) - 1)

    def size_mm(self, grid: Grid) -> float:
        """Diagonal of the bounding box in mm; `grid` is the grid of the image."""
        low, high = self.box()
        sides = (high - low + 1) * np.asarray(grid.spacing_mm) * (np.asarray(self.shape) > 1)
        return float(np.linalg.norm(sides))

    def planes(self, planes: slice) -> NDArray[np.bool_]:
        """(planes, H, W) the mask at the resolution of the image."""
        z, y, x = (np.arange(n) * m // n for n, m in zip(self.shape, self.mask.shape, strict=True))
        found: NDArray[np.bool_] = self.mask[z[planes]][:, y][:, :, x]  # axis by axis takes a tenth of the time
        return found


def spacing_for(grid: Grid, points: int) -> float:
    """Spacing in mm at which the field of view has about `points` isotropic voxels."""
    lengths = [n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1]
    return math.pow(math.prod(lengths) / points, 1 / len(lengths))


def shrink(image: Image, spacing_mm: float, ops: Ops) -> Image:
    """The image at about this spacing, along the axes that are finer; each voxel is a mean of a few samples."""
    grid = image.grid.scaled(shape=level_shape(image.grid, spacing_mm))
    return Image(sample(image, Affine(dimension=grid.ndim), grid, ops), grid, image.name)


def first_channel(image: Image) -> Image:
    """The image with its first channel only."""
    return image if image.channels == 1 else Image(image.data[:1], image.grid, image.name)


def shrink_mask(mask: Image | None, grid: Grid, ops: Ops) -> Image | None:
    """A mask on a coarse grid; None if there is no mask, or no voxel of it remains."""
    if mask is None:
        return None
    image = Image(mask.data.float(), mask.grid, mask.name)
    share = sample(image, Affine(dimension=grid.ndim), grid, ops, outside=0.0)
    inside = (share >= 0.5).to(torch.uint8)
    return Image(inside, grid, mask.name) if bool(inside.any()) else None
