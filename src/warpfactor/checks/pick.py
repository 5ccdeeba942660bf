"""An image at given points: its own voxels if these are the points, which is many times cheaper than to interpolate."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.geometry.image import Image
from warpfactor.geometry.resample import VoxelMap, resample_through
from warpfactor.geometry.transform import Affine
from warpfactor.kernels.ops import Ops

ON_VOXEL = 1e-6  # voxels by which a step or a first point may be off


def at(image: Image, place: VoxelMap, *, ops: Ops, mode: str = "linear", outside: float) -> Tensor:
    """(C, *place.grid.shape) float32 of an image at the points of `place`."""
    own = None if place.displacement is not None else _own(image.data, place.matrix(image.grid), place.grid.shape)
    return resample_through(image, place, mode=mode, outside=outside, ops=ops).data if own is None else own


def nearest(image: Image, grid: Grid, *, ops: Ops, outside: float = math.nan) -> Tensor:
    """(C, *grid.shape) of the voxels of an image that are nearest to those of `grid`."""
    return at(image, Affine(dimension=grid.ndim).on_grid(grid), ops=ops, mode="nearest", outside=outside)


def _own(data: Tensor, matrix: Tensor, shape: tuple[int, int, int]) -> Tensor | None:
    """(C, *shape) of a (C, D, H, W) image at matrix (3, 4) times an index; None if these are not all voxels of it."""
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
