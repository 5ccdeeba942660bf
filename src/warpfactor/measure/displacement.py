"""Errors and lengths of displacements, and how well an inverse undoes a warp."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor import kernels
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.measure.arrays import Array, counted, measurable, same_shape

NEGLIGIBLE = 1e-9  # relative size of dot products of orthogonal axes, due to rounding


class ErrorFigures(NamedTuple):
    """Mean, 95th percentile and maximum of an error, in the unit of what was measured."""

    mean: float
    p95: float
    max: float


def inverse_consistency(
    residual: Array | Tensor, mask: Array | Tensor | None = None, *, ops: Ops | None = None
) -> ErrorFigures:
    """Figures of the distance |x - inverse(forward(x))| (D, H, W), in its own unit, where mask is true."""
    values, inside = measurable(residual, mask)
    ops = ops or kernels.select(values.device)
    found = counted(ops.tally(values, mask=inside))
    (p95,) = ops.percentiles(values, (95,), mask=inside)
    return ErrorFigures(found.total / found.count, p95, found.maximum)


def displacement_error(found: Array | Tensor, true: Array | Tensor, mask: Array | Tensor | None = None) -> ErrorFigures:
    """Figures of |found - true| between displacements (3, D, H, W), where mask (D, H, W) is true."""
    a, b = same_shape(found, true)
    return inverse_consistency(np.linalg.norm(a.astype(np.float64) - b, axis=0), mask)


def displacement_figures(field: Tensor, grid: Grid, ops: Ops) -> ErrorFigures:
    """Of the length in mm of a (3, *grid.shape) displacement in voxels."""
    return inverse_consistency(lengths_mm(field, grid), ops=ops)


def round_trip_vox(first: Tensor, second: Tensor, ops: Ops) -> ErrorFigures:
    """Of |first(x) + second(x + first(x))| in voxels, where x + first(x) is in the image."""
    return _inside_figures(*ops.round_trip(first, second, np.eye(3)), ops)


def round_trip_map(first: Tensor, second: Tensor, grid: Grid, ops: Ops) -> tuple[ErrorFigures, Tensor]:
    """Figures of |first(x) + second(x + first(x))| in voxels, and (D, H, W) what it is in mm.

    Where x + first(x) is not in the image, the map is NaN.
    """
    found, inside = ops.round_trip(first, second, np.eye(3))
    voxels = _inside_figures(found, inside, ops)
    side_mm = _cube_side(_gram(grid))
    lengths_mm = ops.round_trip(first, second, _gram(grid))[0] if side_mm is None else found.mul_(side_mm)
    return voxels, lengths_mm.masked_fill_(~inside, math.nan)


def round_trip(first: Tensor, second: Tensor, grid: Grid, ops: Ops) -> tuple[ErrorFigures, ErrorFigures]:
    """Figures of |first(x) + second(x + first(x))| in voxels and mm, where x + first(x) is in the image."""
    voxels, gram = round_trip_vox(first, second, ops), _gram(grid)
    side_mm = _cube_side(gram)
    if side_mm is not None:
        return voxels, ErrorFigures(*(side_mm * value for value in voxels))
    return voxels, _inside_figures(*ops.round_trip(first, second, gram), ops)


def residual_figures(
    inverse: Tensor, residual: Tensor, grid: Grid, ops: Ops
) -> tuple[ErrorFigures, ErrorFigures] | None:
    """`round_trip` of "inverse, then forward" from the lengths in voxels that `invert` left of it.

    None if voxels are no cubes: lengths in mm do not follow from those in voxels then.
    """
    side_mm = _cube_side(_gram(grid))
    if side_mm is None:
        return None
    voxels = _inside_figures(residual, _stays(inverse), ops)
    return voxels, ErrorFigures(*(side_mm * value for value in voxels))


def _stays(displacement: Tensor) -> Tensor:
    """(D, H, W) bool: whether a voxel's displacement leaves it between the outermost voxel centres."""
    inside = torch.ones(displacement.shape[1:], dtype=torch.bool, device=displacement.device)
    for axis, part in enumerate(displacement):
        n = part.shape[axis]
        index = torch.arange(n, device=part.device, dtype=part.dtype)
        index = index.reshape([-1 if a == axis else 1 for a in range(3)])
        inside &= (part >= -index) & (part <= n - 1 - index)
    return inside


def lengths_mm(field: Tensor, grid: Grid) -> Tensor:
    """(D, H, W) length in mm of a (3, *grid.shape) displacement in voxels: the square root of uᵀ G u."""
    gram = _gram(grid)
    total = torch.zeros_like(field[0])
    for a, b in itertools.product(range(3), repeat=2):
        if abs(gram[a, b]) > NEGLIGIBLE * np.trace(gram):
            total.addcmul_(field[a], field[b], value=float(gram[a, b]))
    return total.clamp_(min=0).sqrt_()


def _inside_figures(lengths: Tensor, inside: Tensor, ops: Ops) -> ErrorFigures:
    return inverse_consistency(lengths, inside if bool(inside.any()) else None, ops=ops)


def _cube_side(gram: Matrix) -> float | None:
    """Side in mm of voxels that are cubes; None if they are not."""
    square = float(gram[0, 0])
    cubes = np.allclose(gram, square * np.eye(3), rtol=NEGLIGIBLE, atol=NEGLIGIBLE * square)
    return math.sqrt(square) if cubes else None


def _gram(grid: Grid) -> Matrix:
    """(3, 3) of which uᵀ G u is the squared length in mm of u in voxels."""
    gram: Matrix = grid.matrix[:3, :3].T @ grid.matrix[:3, :3]
    return gram
