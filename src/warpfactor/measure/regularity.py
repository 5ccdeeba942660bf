"""The quality figures of a registration: how regular the warp is and how well its inverse undoes it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.measure.quality import ErrorFigures, JacobianFigures, inverse_consistency, jacobian_figures

NEGLIGIBLE = 1e-9  # products of axes at right angles, up to rounding


@dataclass(frozen=True)
class WarpFigures:
    """Of the warp alone; the affine is exact in both directions and has one Jacobian everywhere.

    Attributes:
        jacobian: determinants of x -> x + u(x) in the whole fixed image.
        jacobian_foreground: the same, where the fixed image differs from its border, inside its mask.
        displacement_mm: length of u.
        there_and_back_vox, there_and_back_mm: |x - inverse(forward(x))|, over the voxels that stay in the image.
        back_and_there_vox, back_and_there_mm: |x - forward(inverse(x))|, likewise.
    """

    jacobian: JacobianFigures
    jacobian_foreground: JacobianFigures
    displacement_mm: ErrorFigures
    there_and_back_vox: ErrorFigures
    there_and_back_mm: ErrorFigures
    back_and_there_vox: ErrorFigures
    back_and_there_mm: ErrorFigures


@dataclass(frozen=True)
class Figures:
    """How regular a registration is.

    Attributes:
        affine_determinant: how much larger a volume is in moving than in fixed space, by the affine.
        warp: None without a warp.
    """

    affine_determinant: float
    warp: WarpFigures | None


def measure(
    matrix: Matrix,
    forward: Tensor | None,
    inverse: Tensor | None,
    *,
    grid: Grid,
    foreground: Tensor | None,
    ops: Ops,
) -> Figures:
    """The figures of y = matrix (x + forward(x)).

    Args:
        forward, inverse: (3, *grid.shape) displacements in voxels of `grid`; both or none.
        foreground: (D, H, W) bool, where the fixed image shows something; the whole image without.
    """
    determinant = float(np.linalg.det(matrix[:3, :3]))
    if forward is None or inverse is None:
        return Figures(determinant, None)
    jacobian = ops.jacobian_determinant(forward)
    whole, inner = jacobian_figures(jacobian, ops=ops), jacobian_figures(jacobian, foreground, ops=ops)
    del jacobian
    moved = displacement_figures(forward, grid, ops)
    there_vox, there_mm = round_trip(forward, inverse, grid, ops)
    back_vox, back_mm = round_trip(inverse, forward, grid, ops)
    warp = WarpFigures(
        jacobian=whole,
        jacobian_foreground=inner,
        displacement_mm=moved,
        there_and_back_vox=there_vox,
        there_and_back_mm=there_mm,
        back_and_there_vox=back_vox,
        back_and_there_mm=back_mm,
    )
    return Figures(determinant, warp)


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


def lengths_mm(field: Tensor, grid: Grid) -> Tensor:
    """(D, H, W) length in mm of a (3, *grid.shape) displacement in voxels: the square root of uᵀ G u."""
    gram = _gram(grid)
    total = torch.zeros_like(field[0])
    for a, b in itertools.product(range(3), repeat=2):
        if abs(gram[a, b]) > NEGLIGIBLE * np.trace(gram):
            total.addcmul_(field[a], field[b], value=float(gram[a, b]))
    return total.clamp_(min=0).sqrt_()
