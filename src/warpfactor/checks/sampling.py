"""Images sampled on other grids: at voxels where the points are voxels, else interpolated, or averaged if coarser."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool3d

from warpfactor.geometry.grid import Grid, slabs
from warpfactor.geometry.image import Image
from warpfactor.geometry.resample import VoxelMap, resample_through
from warpfactor.geometry.transform import Affine, Transform
from warpfactor.kernels.ops import Ops

MOST_SAMPLES = 2  # along each axis of a coarse voxel: aliasing is weak, and no full-size copy is made
ON_VOXEL = 1e-6  # tolerance in voxels for points that are voxels of the image


def at(image: Image, place: VoxelMap, *, ops: Ops, mode: str = "linear", outside: float) -> Tensor:
    """(C, *place.grid.shape) float32 values of an image at the points of `place`."""
    own = None if place.displacement is not None else _own(image.data, place.matrix(image.grid), place.grid.shape)
    return resample_through(image, place, mode=mode, outside=outside, ops=ops).data if own is None else own


def nearest(image: Image, grid: Grid, *, ops: Ops, outside: float = math.nan) -> Tensor:
    """(C, *grid.shape) values of an image, interpolated by nearest neighbour."""
    return at(image, Affine(dimension=grid.ndim).on_grid(grid), ops=ops, mode="nearest", outside=outside)


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
    """(C, *grid.shape) values of an image through a transform, averaged where the voxels of `grid` are larger.

    Args:
        slices: the first axis of `grid` counts slices, which are not averaged.
        place: the transform on `grid`, if it is known already.
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
    """The slices of a grid in blocks of a bounded number of voxels, to limit the memory that is needed."""
    _, height, width = grid.shape
    for planes in slabs(grid.shape):
        shift = np.eye(4)
        shift[0, 3] = planes.start
        yield Grid((planes.stop - planes.start, height, width), grid.matrix @ shift, grid.ndim)


def _steps(image: Grid, grid: Grid) -> list[float]:
    """Spacing in mm of the image axes that are closest to each axis of `grid`."""
    directions, axes = (g.matrix[:3, :3] / g.spacing_mm for g in (image, grid))
    nearest = abs(axes.T @ directions).argmax(axis=1)
    return [image.spacing_mm[axis] for axis in nearest]


def _own(data: Tensor, matrix: Tensor, shape: tuple[int, int, int]) -> Tensor | None:
    """(C, *shape) view of a (C, D, H, W) image at matrix (3, 4) times an index; None if these are not all voxels."""
    steps = matrix.round().to(torch.int64).numpy()
    axes = np.abs(steps[:, :3]).argmax(axis=0)  # of the image, for each of the result
    one_each = sorted(axes) == [0, 1, 2] and np.count_nonzero(steps[:, :3]) == 3
    if not one_each or np.abs(matrix.numpy() - steps).max() > ON_VOXEL:
        return None
    runs = [slice(None)] * 4
    for k, axis in enumerate(axes):
        first, step = int(steps[axis, 3]), int(steps[axis, k])
        last = first + step * (shape[k] - 1)
        if min(first, last) < 0 or max(first, last) >= data.shape[1 + axis]:
            return None
        runs[1 + axis] = slice(first, last + step if last + step >= 0 else None, step)
    voxels = data.detach().numpy()[tuple(runs)].transpose(0, *(1 + axes))
    return torch.from_numpy(voxels.astype(np.float32))
