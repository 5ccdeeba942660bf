"""The mean shape of a group: the mean of the maps from a template to people, and its inverse.

Warps of the velocity model have a mean that is the flow of their mean velocity, and its inverse is the flow back; of
others displacements are averaged, which is the same to the first order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from warpfactor.cohort.template.matrices import mean_matrix, mirror
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.image import Image
from warpfactor.geometry.transform import Affine, Chain, Transform, Warp
from warpfactor.geometry.velocity import Velocity
from warpfactor.kernels.ops import Ops


@dataclass(frozen=True)
class MeanMap:
    """The mean of maps from a template to people, y = matrix · warp(x).

    Attributes:
        matrix: mean of the affines, 4x4, LPS mm.
        field: (3, D, H, W) mean of the displacements in voxels, float32; or of the velocities.
        grid: of the template.
        flows: whether the field is a velocity, so that the warp is its exponential, and its inverse that of -field.
    """

    matrix: Matrix
    field: Tensor
    grid: Grid
    flows: bool = False

    def back(self, ops: Ops) -> Chain:
        """The inverse of the mean: from the mean shape to the template as it is."""
        if self.flows:
            undone = Velocity(self.field, self.grid).warp(-1.0, ops=ops)
        else:
            undone = Warp(self.field, self.grid).inverse_with_residual(ops=ops)[0]
        return Chain((Affine(np.linalg.inv(self.matrix), dimension=self.grid.ndim), undone))

    def shift_mm(self, inside: Tensor, ops: Ops) -> float:
        """Mean distance by which the mean map, affine included, moves the voxels of a (D, H, W) mask."""
        warp = Velocity(self.field, self.grid).warp(ops=ops) if self.flows else Warp(self.field, self.grid)
        whole = Chain((warp, Affine(self.matrix, dimension=self.grid.ndim))).to_warp(self.grid)
        return float(self.grid.voxels_to_mm(whole.displacement).norm(dim=0)[inside].mean())

    def mirrored(self, ops: Ops) -> MeanMap:
        """The mean of this map and of what it would be if left and right were exchanged."""
        flip = mirror(self.grid)
        field = Image(self.field, self.grid, "mean warp")
        other = Affine(flip, dimension=self.grid.ndim).resample(field, self.grid, ops=ops)
        vectors = self.grid.voxels_to_mm(other.data)
        vectors[0] *= -1.0
        both = (self.field + self.grid.mm_to_voxels(vectors).to(torch.float32)) / 2
        return replace(self, matrix=mean_matrix([self.matrix, flip @ self.matrix @ flip]), field=both)


def mean_map(maps: Iterable[tuple[Matrix, Tensor | None]], grid: Grid, *, flows: bool = False) -> MeanMap:
    """The mean of maps of the form affine after warp, given one at a time by matrix, and displacement or velocity."""
    total, matrices = torch.zeros((3, *grid.shape), dtype=torch.float64), []
    for matrix, field in maps:
        matrices.append(matrix)
        if field is not None:
            total += field
    return MeanMap(mean_matrix(matrices), total.div_(max(1, len(matrices))).to(torch.float32), grid, flows)


def split(transform: Transform) -> tuple[Matrix, Tensor | None]:
    """The matrix of a result's transform, and the displacement before it."""
    matrix, displacement = np.eye(4), None
    for part in transform.parts:
        if isinstance(part, Warp):
            displacement = part.displacement
        else:
            matrix = part.matrix @ matrix
    return matrix, displacement
