"""The mean shape of a group: the mean of the maps from a template to people, and its inverse."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from warpfactor.cohort.template.matrices import mean_matrix, mirror
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.kernels.ops import Ops


@dataclass(frozen=True)
class MeanMap:
    """The mean of maps from a template to people, y = matrix (x + displacement(x)).

    Attributes:
        matrix: mean of the affines, 4x4, LPS mm.
        displacement: (3, D, H, W) mean of the warps in voxels, float32.
        grid: of the template.
    """

    matrix: Matrix
    displacement: Tensor
    grid: Grid

    def back(self, ops: Ops) -> Chain:
        """The inverse of the mean: from the mean shape to the template as it is."""
        undone = Warp(self.displacement, self.grid).inverse_with_residual(ops=ops)[0]
        return Chain((Affine(np.linalg.inv(self.matrix), dimension=self.grid.ndim), undone))

    def shift_mm(self, inside: Tensor) -> float:
        """Mean distance by which the mean map, affine included, moves the voxels of a (D, H, W) mask."""
        whole = Chain((Warp(self.displacement, self.grid), Affine(self.matrix, dimension=self.grid.ndim)))
        return float(self.grid.voxels_to_mm(whole.to_warp(self.grid).displacement).norm(dim=0)[inside].mean())

    def mirrored(self, ops: Ops) -> MeanMap:
        """The mean of this map and of what it would be if left and right were exchanged."""
        flip = mirror(self.grid)
        field = Image(self.displacement, self.grid, "mean warp")
        other = Affine(flip, dimension=self.grid.ndim).resample(field, self.grid, ops=ops)
        vectors = self.grid.voxels_to_mm(other.data)
        vectors[0] *= -1.0
        both = (self.displacement + self.grid.mm_to_voxels(vectors).to(torch.float32)) / 2
        return MeanMap(mean_matrix([self.matrix, flip @ self.matrix @ flip]), both, self.grid)


def mean_map(transforms: Iterable[Transform], grid: Grid) -> MeanMap:
    """The mean of maps of the form affine after warp, one at a time."""
    total, matrices = torch.zeros((3, *grid.shape), dtype=torch.float64), []
    for transform in transforms:
        matrix, displacement = split(transform)
        matrices.append(matrix)
        if displacement is not None:
            total += displacement
    return MeanMap(mean_matrix(matrices), total.div_(max(1, len(matrices))).to(torch.float32), grid)


def split(transform: Transform) -> tuple[Matrix, Tensor | None]:
    """The matrix of a result's transform, and the displacement before it."""
    matrix, displacement = np.eye(4), None
    for part in transform.parts:
        if isinstance(part, Warp):
            displacement = part.displacement
        else:
            matrix = part.matrix @ matrix
    return matrix, displacement
