"""The figures of a registration: how regular the warp is and how well its inverse undoes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.measure.displacement import ErrorFigures, displacement_figures, round_trip
from warpfactor.measure.jacobian import Distortion, JacobianFigures, distortion, jacobian_figures


@dataclass(frozen=True)
class WarpFigures:
    """Of the warp alone; the affine is exact in both directions and has one Jacobian everywhere.

    Attributes:
        jacobian: determinants of x -> x + u(x) in the whole fixed image.
        jacobian_foreground: the same, where the fixed image differs from its border, inside its mask.
        distortion_foreground: shear, and folds by one-sided differences, there too.
        displacement_mm: length of u.
        there_and_back_vox, there_and_back_mm: |x - inverse(forward(x))|, over the voxels that stay in the image.
        back_and_there_vox, back_and_there_mm: |x - forward(inverse(x))|, likewise.
    """

    jacobian: JacobianFigures
    jacobian_foreground: JacobianFigures
    distortion_foreground: Distortion
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
    residual: tuple[ErrorFigures, ErrorFigures] | None = None,
    grid: Grid,
    foreground: Tensor | None,
    ops: Ops,
) -> Figures:
    """The figures of y = matrix (x + forward(x)).

    Args:
        forward, inverse: (3, *grid.shape) displacements in voxels of `grid`; both or none.
        residual: figures of |x - forward(inverse(x))| in voxels and mm if they are known already.
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
    back_vox, back_mm = residual or round_trip(inverse, forward, grid, ops)
    warp = WarpFigures(
        jacobian=whole,
        jacobian_foreground=inner,
        distortion_foreground=distortion(forward, grid.spacing_mm, foreground, ops=ops),
        displacement_mm=moved,
        there_and_back_vox=there_vox,
        there_and_back_mm=there_mm,
        back_and_there_vox=back_vox,
        back_and_there_mm=back_mm,
    )
    return Figures(determinant, warp)
