"""The space in the middle of two images: where it is, how both get there, and how an image sees what happens there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from warpfactor.geometry.grid import Grid, Matrix, Points, apply_matrix
from warpfactor.geometry.halfway import middle_grid, moved_grid, square_root
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import give_back_memory
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene

# Decimals of what leads from the middle to the images, in voxels or mm. Exchanged images have the same but for the last
# bits; hundreds of iterations would make that visible, so these bits are left out.
DIGITS = 9
RELAXED = 0.8  # share of a step in looking for where a displacement leads from; it converges up to a stretch of 2.5
ROUNDS = 60  # of that for points, at most; about ten are needed
EXACT_VOX = 1e-4  # longest step at which it ends
REFINEMENTS = 3  # of that for all voxels, which begin at the inverse as it is interpolated
_STILL = torch.eye(3, 4, dtype=torch.float64)


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
        grid = middle_grid(moved_grid(fixed, from_fixed), moved_grid(moving, back))
        return cls(Grid(grid.shape, np.round(grid.matrix, DIGITS), grid.ndim), from_fixed, to_moving)

    @property
    def to_sides(self) -> tuple[Matrix, Matrix]:
        """4x4 each, LPS mm: the middle to fixed space, and to moving space."""
        return np.asarray(np.linalg.inv(self.from_fixed), dtype=np.float64), self.to_moving

    def at(self, grid: Grid) -> Middle:
        """The same space on another grid."""
        return replace(self, grid=grid)

    def swapped(self) -> Middle:
        """The same space of the exchanged images."""
        back, ahead = (np.asarray(np.linalg.inv(each), dtype=np.float64) for each in (self.to_moving, self.from_fixed))
        return Middle(self.grid, back, ahead)

    def map_points(self, points: ArrayLike, back: Tensor, along: Tensor) -> Points:
        """(N, 3) LPS mm of fixed space -> moving space, against one displacement of the middle and along another."""
        start = self.grid.world_to_index(apply_matrix(self.from_fixed, points))
        place = came_from(start, back.double())
        moved = place + _at_points(along.double(), torch.from_numpy(place).to(along.device)).cpu().numpy()
        return apply_matrix(self.to_moving, self.grid.index_to_world(moved))

    def matrices(self, scene: Scene) -> tuple[Tensor, Tensor]:
        """(3, 4) each: voxels of the middle plus displacement to voxels of the fixed, and of the moving image."""
        return self.matrices_to(scene.fixed.grid, scene.moving.grid)

    def matrices_to(self, fixed: Grid, moving: Grid) -> tuple[Tensor, Tensor]:
        """The same to the voxels of any grid in fixed space, and of one in moving space."""
        first, second = (
            VoxelMap(self.grid, None, matrix).matrix(grid).round(decimals=DIGITS)
            for matrix, grid in zip(self.to_sides, (fixed, moving), strict=True)
        )
        return first, second

    def seen_from(self, grid: Grid, field: Tensor, ops: Ops) -> Tensor:
        """(3, *grid.shape): a displacement of the middle at the voxels of a fixed grid, in these voxels.

        Each voxel is carried to the middle, displaced there, and carried back. Beyond the middle grid a field keeps its
        edge values.

        Args:
            grid: of fixed space.
            field: (3, D, H, W) in voxels of the middle.
        """
        matrix = VoxelMap(grid, None, self.from_fixed).matrix(self.grid)
        still = torch.zeros((3, *grid.shape), device=field.device)
        return self._carried_back(_sampled(field, _Places.of(matrix, still, self.grid), ops), matrix)

    def brought(self, field: Tensor, grid: Grid, matrix: Tensor, ops: Ops) -> Tensor:
        """(3, *self.grid.shape): a displacement of another grid as the middle sees it, in its voxels, to third order.

        Args:
            matrix: (3, 4), voxels of the middle to those of the other grid; see matrices_to.
        """
        still = torch.zeros((3, *self.grid.shape), device=field.device)
        linear = matrix[:, :3].numpy().copy()
        if grid.shape[0] == 1 and self.grid.shape[0] == 1:
            linear[0, 0] = 1.0
        back = torch.from_numpy(np.linalg.inv(linear)).to(still)
        seen = _sampled(field, _Places.of(matrix, still, grid), ops)
        give_back_memory()
        return torch.einsum("ab,bzyx->azyx", back, seen).contiguous()

    def whole_way(self, grid: Grid, back: Tensor, along: Tensor, ops: Ops) -> Tensor:
        """(3, *grid.shape): where voxels of a fixed grid get against one displacement of the middle, along another.

        Each voxel is carried to the middle, to the place from which `back` leads to it, from there along `along`, and
        carried back. With the two exchanged, it is the inverse. Every voxel is looked up in the two fields themselves,
        so that nothing is interpolated twice.

        Args:
            grid: of fixed space; the result is in its voxels.
            back, along: (3, D, H, W) displacements in voxels of the middle.
        """
        matrix = VoxelMap(grid, None, self.from_fixed).matrix(self.grid)
        inverse, _ = ops.invert(back.contiguous())
        total = torch.zeros((3, *grid.shape), device=back.device)
        places = _Places.of(matrix, total, self.grid)
        for axis in range(3):
            total[axis] = ops.sample(inverse[axis], places.away, _STILL)
        del inverse
        give_back_memory()
        for _ in range(REFINEMENTS):
            error = _sampled(back, _Places.of(matrix, total, self.grid), ops).add_(total)
            total.sub_(error, alpha=RELAXED)
            del error
            give_back_memory()
        total += _sampled(along, _Places.of(matrix, total, self.grid), ops)
        return self._carried_back(total, matrix)

    def _carried_back(self, steps: Tensor, matrix: Tensor) -> Tensor:
        """Displacements (3, *grid.shape) of the middle in voxels of the grid from which a matrix leads there."""
        linear = matrix[:, :3].numpy().copy()
        if steps.shape[1] == 1 and self.grid.shape[0] == 1:
            linear[0, 0] = 1.0
        back = torch.from_numpy(np.linalg.inv(linear)).to(steps)
        return torch.einsum("ab,bzyx->azyx", back, steps).contiguous()


def came_from(index: Points, displacement: Tensor) -> Points:
    """(N, 3): the places x whose x + displacement(x) are given indices, by a relaxed fixed-point iteration."""
    goal = torch.as_tensor(np.array(index), dtype=displacement.dtype, device=displacement.device)
    place = goal.clone()
    for _ in range(ROUNDS):
        change = goal - place - _at_points(displacement, place)
        place += RELAXED * change
        if float(change.abs().max()) <= EXACT_VOX:
            break
    return place.cpu().double().numpy()


def _at_points(displacement: Tensor, places: Tensor) -> Tensor:
    """(N, 3): a displacement at continuous indices, linearly interpolated; edge values hold beyond its grid."""
    sizes = places.new_tensor(displacement.shape[1:])
    shares = ((2 * places + 1) / sizes - 1).flip(1)[None, None, None]  # (x, y, z), -1 and 1 being the outer edges
    sampled = torch.nn.functional.grid_sample(
        displacement[None], shares, mode="bilinear", padding_mode="border", align_corners=False
    )
    return sampled[0, :, 0, 0].T


@dataclass(frozen=True)
class _Places:
    """Where voxels are on another grid, or on the nearest voxels there.

    Attributes:
        away: (3, D, H, W), how far in indices, as the kernels take it.
        between: (3, D, H, W), t (1 - t) / 2 of the part t of a voxel by which they lie beyond one.
    """

    away: Tensor
    between: Tensor

    @classmethod
    def of(cls, matrix: Tensor, steps: Tensor, grid: Grid) -> _Places:
        """Of voxels that a matrix (3, 4) and then steps (3, D, H, W) lead to another grid."""
        away, between = torch.empty_like(steps), torch.empty_like(steps)
        index = [
            torch.arange(n, dtype=torch.float64, device=steps.device).reshape(
                [-1 if a == axis else 1 for a in range(3)]
            )
            for axis, n in enumerate(steps.shape[1:])
        ]
        for axis, (row, n) in enumerate(zip(matrix.tolist(), grid.shape, strict=True)):
            place = row[0] * index[0] + row[1] * index[1] + row[2] * index[2] + row[3] + steps[axis]
            place.clamp_(0, n - 1)
            away[axis] = place - index[axis]
            part = place.sub_(place.floor())
            between[axis] = part.mul_(1 - part).mul_(0.5)
        return cls(away, between)


def displaced(values: Tensor, displacement: Tensor, ops: Ops) -> Tensor:
    """(D, H, W): values at their voxels plus a displacement of these, to third order."""
    grid = Grid.from_spacing(tuple(values.shape))
    places = _Places.of(_STILL, displacement, grid)
    return _sampled(values[None], places, ops)[0]


def _sampled(field: Tensor, places: _Places, ops: Ops) -> Tensor:
    """(C, D, H, W): a displacement, or other values, at some places, to third order.

    Linear interpolation cuts the corners of a bent field, by t (1 - t) / 2 times its second difference along each axis;
    that is given back. Without it a warp that is interpolated on another grid comes out smoother than it was found.
    """
    found = torch.empty((len(field), *places.away.shape[1:]), dtype=places.away.dtype, device=field.device)
    for component, out in zip(field, found, strict=True):
        out.copy_(ops.sample(component.contiguous(), places.away, _STILL))
        for axis, weight in enumerate(places.between):
            if component.shape[axis] > 2:
                out.addcmul_(ops.sample(_second_difference(component, axis), places.away, _STILL), weight, value=-1)
    return found


def _second_difference(values: Tensor, axis: int) -> Tensor:
    """Along one axis; zero at both ends."""
    found, inner = torch.zeros_like(values, memory_format=torch.contiguous_format), values.shape[axis] - 2
    middle = found.narrow(axis, 1, inner)
    torch.add(values.narrow(axis, 2, inner), values.narrow(axis, 0, inner), out=middle)
    middle.sub_(values.narrow(axis, 1, inner), alpha=2)
    return found
