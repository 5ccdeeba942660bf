"""The quality figures of a registration: how regular the warp is and how well its inverse undoes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from warpfactor.grid import Grid, Matrix
from warpfactor.quality import ErrorFigures, JacobianFigures, inverse_consistency, jacobian_figures
from warpfactor.resample import slab_index, slabs


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
    """Attributes:
    affine_determinant: how much larger a volume is in moving than in fixed space, by the affine.
    warp: None without a warp.
    """

    affine_determinant: float
    warp: WarpFigures | None


def measure(
    matrix: Matrix, forward: Tensor | None, inverse: Tensor | None, *, grid: Grid, foreground: Tensor, ops: ModuleType
) -> Figures:
    """The figures of y = matrix (x + forward(x)).

    Args:
        forward, inverse: (3, *grid.shape) displacements in voxels of `grid`; both or none.
        foreground: (D, H, W) bool, where the fixed image shows something.
    """
    determinant = float(np.linalg.det(matrix[:3, :3]))
    if forward is None or inverse is None:
        return Figures(determinant, None)
    jacobian = ops.jacobian_determinant(forward)
    there_vox, there_mm = _round_trip(forward, inverse, grid, ops)
    back_vox, back_mm = _round_trip(inverse, forward, grid, ops)
    warp = WarpFigures(
        jacobian=jacobian_figures(jacobian),
        jacobian_foreground=jacobian_figures(jacobian, foreground),
        displacement_mm=inverse_consistency(_lengths(forward, grid)[1]),
        there_and_back_vox=there_vox,
        there_and_back_mm=there_mm,
        back_and_there_vox=back_vox,
        back_and_there_mm=back_mm,
    )
    return Figures(determinant, warp)


def _round_trip(first: Tensor, second: Tensor, grid: Grid, ops: ModuleType) -> tuple[ErrorFigures, ErrorFigures]:
    """Figures of |first(x) + second(x + first(x))| in voxels and mm, where x + first(x) is in the image."""
    voxels, millimetres = _lengths(ops.compose(second, first), grid)
    inside = _stays(first, grid)
    if not bool(inside.any()):
        inside = torch.ones_like(inside)
    return inverse_consistency(voxels, inside), inverse_consistency(millimetres, inside)


def _lengths(field: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """(D, H, W) length of a voxel displacement, in voxels and in mm; slab by slab, for the memory."""
    voxels = torch.empty(grid.shape, dtype=torch.float32)
    millimetres = torch.empty(grid.shape, dtype=torch.float32)
    for planes in slabs(grid.shape):
        part = field[:, planes].cpu()
        voxels[planes] = part.norm(dim=0)
        millimetres[planes] = grid.voxels_to_mm(part).norm(dim=0).float()
    return voxels, millimetres


def _stays(field: Tensor, grid: Grid) -> Tensor:
    """(D, H, W) bool: whether a voxel is inside the image after its displacement."""
    last = torch.tensor(grid.shape, dtype=torch.float64) - 1
    return torch.cat(list(_inside_slabs(field, grid, last)))


def _inside_slabs(field: Tensor, grid: Grid, last: Tensor) -> Iterator[Tensor]:
    for planes in slabs(grid.shape):
        index = slab_index(grid.shape, planes) + field[:, planes].reshape(3, -1).T.cpu()
        yield ((index >= 0) & (index <= last)).all(dim=1).reshape(-1, *grid.shape[1:])
