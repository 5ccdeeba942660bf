"""The space in the middle of two images: where it is, how both get there, and how an image sees what happens there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.geometry.halfway import middle_grid, moved_grid, square_root
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene


@dataclass(frozen=True)
class Middle:
    """A space half-way between fixed and moving space; exchanged images have the same one.

    Attributes:
        grid: its voxels.
        from_fixed: 4x4, LPS mm, fixed space to the middle.
        to_moving: 4x4, LPS mm, the middle to moving space. Both are the root of the affine.
    """

    grid: Grid
    from_fixed: Matrix
    to_moving: Matrix

    @classmethod
    def of(cls, fixed: Grid, moving: Grid, affine: Matrix) -> Middle:
        """The middle of two images that an affine brings together; fixed space, if the affine mirrors them."""
        half = square_root(affine)
        from_fixed, to_moving = (np.eye(4), affine) if half is None else (half, half)
        back = np.asarray(np.linalg.inv(to_moving), dtype=np.float64)
        return cls(middle_grid(moved_grid(fixed, from_fixed), moved_grid(moving, back)), from_fixed, to_moving)

    @property
    def to_sides(self) -> tuple[Matrix, Matrix]:
        """4x4 each, LPS mm: the middle to fixed space, and to moving space."""
        return np.asarray(np.linalg.inv(self.from_fixed), dtype=np.float64), self.to_moving

    def at(self, grid: Grid) -> Middle:
        """The same space on another grid."""
        return replace(self, grid=grid)

    def matrices(self, scene: Scene) -> tuple[Tensor, Tensor]:
        """(3, 4) each: voxels of the middle plus displacement to voxels of the fixed, and of the moving image."""
        return self.matrices_to(scene.fixed.grid, scene.moving.grid)

    def matrices_to(self, fixed: Grid, moving: Grid) -> tuple[Tensor, Tensor]:
        """The same to the voxels of any grid in fixed space, and of one in moving space."""
        to_fixed, to_moving = self.to_sides
        return VoxelMap(self.grid, None, to_fixed).matrix(fixed), VoxelMap(self.grid, None, to_moving).matrix(moving)

    def seen_from(self, grid: Grid, steps: tuple[Tensor, ...], ops: Ops) -> Tensor:
        """(3, *grid.shape): what displacements of the middle, one after the other, do to the voxels of a fixed grid.

        Each voxel is carried to the middle, displaced there by every step in turn, and carried back. Beyond the middle
        grid the steps keep their edge values.

        Args:
            grid: of fixed space; the result is in its voxels.
            steps: (3, D, H, W) displacements in voxels of the middle.
        """
        matrix = VoxelMap(grid, None, self.from_fixed).matrix(self.grid)
        total = torch.zeros((3, *grid.shape), device=steps[0].device)
        for step in steps:
            away = _offsets(matrix, total, self.grid)
            for axis in range(3):
                total[axis] += ops.sample(step[axis].contiguous(), away, torch.eye(3, 4, dtype=torch.float64))
            del away
        linear = matrix[:, :3].numpy().copy()
        if grid.shape[0] == 1 and self.grid.shape[0] == 1:
            linear[0, 0] = 1.0
        back = torch.from_numpy(np.linalg.inv(linear)).to(total)
        return torch.einsum("ab,bzyx->azyx", back, total)


def _offsets(matrix: Tensor, steps: Tensor, grid: Grid) -> Tensor:
    """(3, D, H, W): how far, in indices, voxels are from their places on another grid or the nearest voxels there.

    Args:
        matrix: (3, 4), from voxel to voxel.
        steps: (3, D, H, W), added to the place.
    """
    result = torch.empty_like(steps)
    index = [
        torch.arange(n, dtype=torch.float64, device=steps.device).reshape([-1 if a == axis else 1 for a in range(3)])
        for axis, n in enumerate(steps.shape[1:])
    ]
    for axis, (row, n) in enumerate(zip(matrix.tolist(), grid.shape, strict=True)):
        place = row[0] * index[0] + row[1] * index[1] + row[2] * index[2] + row[3] + steps[axis]
        result[axis] = place.clamp_(0, n - 1) - index[axis]
    return result
