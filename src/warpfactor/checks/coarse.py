"""Images made small enough to be looked at as a whole in a fraction of a second, and where they show something."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool3d

from warpfactor.checks.pick import at
from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.image import Image
from warpfactor.geometry.resample import VoxelMap
from warpfactor.geometry.transform import Affine, Transform
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import level_shape
from warpfactor.scene.object import foreground
from warpfactor.scene.prepare import make_scene
from warpfactor.scene.scene import Scene

REGION_POINTS = 100_000  # voxels of the coarse mask of what an image shows
MOST_SAMPLES = 2  # along each axis of a coarse voxel: aliases are weak, and no full-size copy is made


def coarse_scene(
    fixed: Image, moving: Image, fixed_mask: Image | None, points: int, ops: Ops, *, moving_mask: Image | None = None
) -> Scene | None:
    """Both images at one spacing, the fixed one with about so many voxels; None if they show nothing to compare."""
    spacing = spacing_for(fixed.grid, points)
    small_fixed, small_moving = shrink(_first(fixed), spacing, ops), shrink(_first(moving), spacing, ops)
    masks = (shrink_mask(fixed_mask, small_fixed.grid, ops), shrink_mask(moving_mask, small_moving.grid, ops))
    try:
        return make_scene(small_fixed, small_moving, ops=ops, fixed_mask=masks[0], moving_mask=masks[1])
    except InputError:  # nothing but one value is left of it
        return None


@dataclass(frozen=True)
class Region:
    """The voxels of an image that show something, kept as a coarse mask.

    Attributes:
        shape: (D, H, W) of the image.
        mask: (d, h, w) bool over the same field of view.
    """

    shape: tuple[int, int, int]
    mask: NDArray[np.bool_]

    @classmethod
    def of(cls, image: Image, mask: Image | None, ops: Ops) -> Region:
        """Where an image differs from its border, inside its mask if there is one."""
        small = shrink(_first(image), spacing_for(image.grid, REGION_POINTS), ops)
        inside = shrink_mask(mask, small.grid, ops)
        where = foreground(torch.nan_to_num(small.data), None if inside is None else inside.data[0])
        return cls(image.grid.shape, where.numpy())

    @classmethod
    def whole(cls, grid: Grid) -> Region:
        return cls(grid.shape, np.ones((1, 1, 1), dtype=np.bool_))

    def box(self) -> NDArray[np.int64]:
        """(2, 3) first and last index (z, y, x)."""
        ratio = np.asarray(self.shape) / np.asarray(self.mask.shape)
        points = np.argwhere(self.mask)
        low, high = np.floor(points.min(axis=0) * ratio), np.ceil((points.max(axis=0) + 1) * ratio) - 1
        return np.clip(np.stack([low, high]).astype(np.int64), 0, np.asarray(self.shape) - 1)

    def size_mm(self, grid: Grid) -> float:
        """From corner to corner of its box; `grid` is that of the image."""
        low, high = self.box()
        sides = (high - low + 1) * np.asarray(grid.spacing_mm) * (np.asarray(self.shape) > 1)
        return float(np.linalg.norm(sides))

    def planes(self, planes: slice) -> NDArray[np.bool_]:
        """(planes, H, W) the mask voxel by voxel."""
        z, y, x = (np.arange(n) * m // n for n, m in zip(self.shape, self.mask.shape, strict=True))
        found: NDArray[np.bool_] = self.mask[z[planes]][:, y][:, :, x]  # axis by axis: a tenth of the time
        return found


def spacing_for(grid: Grid, points: int) -> float:
    """Spacing in mm at which the field of view has about so many isotropic voxels."""
    lengths = [n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1]
    return math.pow(math.prod(lengths) / points, 1 / len(lengths))


def shrink(image: Image, spacing_mm: float, ops: Ops) -> Image:
    """The image at about this spacing, along axes that are finer; a voxel is the mean of a few samples in it."""
    grid = image.grid.scaled(shape=level_shape(image.grid, spacing_mm))
    return Image(sample(image, Affine(dimension=grid.ndim), grid, ops), grid, image.name)


def sample(
    image: Image,
    transform: Transform,
    grid: Grid,
    ops: Ops,
    *,
    outside: float = math.nan,
    slices: bool = False,
    place: VoxelMap | None = None,
) -> Tensor:
    """(C, *grid.shape) of an image through a transform, averaged over each voxel of `grid` that is coarser than it.

    Args:
        slices: the first axis of `grid` counts slices far apart, which stay thin.
        place: the transform on `grid`, if it was made before.
    """
    ratios = [coarse / fine for coarse, fine in zip(grid.spacing_mm, _steps(image.grid, grid), strict=True)]
    counts = [min(MOST_SAMPLES, max(1, round(r))) if n > 1 else 1 for r, n in zip(ratios, grid.shape, strict=True)]
    if slices:
        counts[0] = 1
    if max(counts) == 1:
        return at(image, place or transform.on_grid(grid, ops=ops), outside=outside, ops=ops)
    fine = grid.scaled(shape=[n * k for n, k in zip(grid.shape, counts, strict=True)])
    return avg_pool3d(transform.resample(image, fine, outside=outside, ops=ops).data[None], counts)[0]


def parts(grid: Grid) -> Iterator[Grid]:
    """Runs of the slices of a grid, of a bounded number of voxels each: what is made of them needs little memory."""
    _, height, width = grid.shape
    for planes in slabs(grid.shape):
        shift = np.eye(4)
        shift[0, 3] = planes.start
        yield Grid((planes.stop - planes.start, height, width), grid.matrix @ shift, grid.ndim)


def _steps(image: Grid, grid: Grid) -> list[float]:
    """Spacing in mm of an image's axes that come nearest to each axis of `grid`."""
    directions, axes = (g.matrix[:3, :3] / g.spacing_mm for g in (image, grid))
    nearest = abs(axes.T @ directions).argmax(axis=1)
    return [image.spacing_mm[axis] for axis in nearest]


def _first(image: Image) -> Image:
    return image if image.channels == 1 else Image(image.data[:1], image.grid, image.name)


def shrink_mask(mask: Image | None, grid: Grid, ops: Ops) -> Image | None:
    """A mask on a coarse grid; None if there is none, or nothing is left of it."""
    if mask is None:
        return None
    image = Image(mask.data.float(), mask.grid, mask.name)
    share = sample(image, Affine(dimension=grid.ndim), grid, ops, outside=0.0)
    inside = (share >= 0.5).to(torch.uint8)
    return Image(inside, grid, mask.name) if bool(inside.any()) else None
