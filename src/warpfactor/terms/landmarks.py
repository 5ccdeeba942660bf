"""Landmarks: corresponding points of the two images that the warp is to bring together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix, Points
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import finest_spacing
from warpfactor.scene.middle import DIGITS, Middle, came_from
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Plain
from warpfactor.terms.both import Pair, mean_of

SPREAD = 3.0  # distances beyond so many times the median count less and less: a wrong landmark does not pull for ever
REACH = 0.03  # of the fixed image's longest extent: SD of the neighbourhood that follows a landmark
LEAST_REACH_VOX = 1.5
LEAST_SCALE_VOX = 2.0  # of the coarsest axis: nobody places a landmark better than to a voxel
CUT = 2.5  # SD at which a neighbourhood ends


@dataclass(frozen=True)
class LandmarkTerm(Plain):
    """The distance between landmarks, as a robust cost between 0 and 1.

    A landmark stands for the mean displacement of its neighbourhood, a Gaussian around it, and costs
    d^2 / (d^2 + s^2) for each voxel of it, d being its distance in mm from where it should be. The scale s is measured
    at the start of every level: three times the median distance, and at least two voxels.

    Attributes:
        fixed, moving: (N, 3) corresponding points, LPS mm, as tuples.
        reach_mm: SD of the neighbourhood; by default 3 % of the fixed image's longest extent.
    """

    fixed: tuple[tuple[float, float, float], ...]
    moving: tuple[tuple[float, float, float], ...]
    reach_mm: float | None = None
    name: str = "landmarks"

    @classmethod
    def of(cls, fixed: ArrayLike, moving: ArrayLike, *, reach_mm: float | None = None) -> LandmarkTerm:
        """The term of two arrays of points, (N, 3) LPS mm each; (N, 2) for 2-D images."""
        return cls(_as_tuples(fixed, "fixed"), _as_tuples(moving, "moving"), reach_mm)

    def __post_init__(self) -> None:
        if not self.fixed or len(self.fixed) != len(self.moving):
            raise InputError(
                f"There are {len(self.fixed)} fixed and {len(self.moving)} moving landmarks; "
                "give the same number of both, and at least one pair."
            )
        if self.reach_mm is not None and not 0 < self.reach_mm < math.inf:
            raise InputError(f"The reach of landmarks is {self.reach_mm:g} mm; it must be a positive number.")

    def check_inside(self, fixed: Grid, moving: Grid, source: str = "") -> None:
        """InputError that names a landmark which lies outside its image, after the file that it is from."""
        for side, grid, points in (("fixed", fixed, self.fixed), ("moving", moving, self.moving)):
            index = grid.world_to_index(np.asarray(points))
            outside = np.nonzero(~((index >= -0.5) & (index <= np.asarray(grid.shape) - 0.5)).all(axis=1))[0]
            if outside.size:
                number, point = int(outside[0]), points[int(outside[0])]
                place = ", ".join(f"{value:g}" for value in point)
                which = f"{source}landmark" if source else "Landmark"
                raise InputError(
                    f"{which} {number + 1} of {len(points)}, ({place}) mm, lies outside the {side} image; "
                    "check that the points are LPS millimetres (RAS has other signs) and in the right columns."
                )

    def prepare(
        self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> _PreparedLandmarks:
        """The landmarks in voxels of one level; the operations are PyTorch's, as the neighbourhoods are small."""
        grid = scene.fixed.grid
        goal = _Goal.of(self.moving, scene.moving.grid, grid)
        return _PreparedLandmarks.at(grid.world_to_index(np.asarray(self.fixed)), goal, grid, self._reach(grid))

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> _LandmarksBetween:
        """See BetweenTerm.between."""
        grid, sides = middle.grid, tuple(zip(scene.sides, (self.fixed, self.moving), middle.to_sides, strict=True))
        first, second = (_Goal.of(points, side.grid, grid) for side, points, _ in sides)
        starts = (grid.world_to_index(_before(points, matrix)).round(DIGITS) for _, points, matrix in sides)
        return _LandmarksBetween((first, second), tuple(starts), middle.matrices(scene), grid, self._reach(grid))

    def _reach(self, grid: Grid) -> float:
        """SD in mm of the neighbourhoods on a grid."""
        extent = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True))
        return max(self.reach_mm or REACH * extent, LEAST_REACH_VOX * finest_spacing(grid))


@dataclass(frozen=True)
class _Neighbourhood:
    """The voxels that follow a landmark.

    Attributes:
        box: slices along z, y, x.
        weight: Gaussian weights of its voxels, summing to one.
        volume: the sum of the weights with the largest being one: how many voxels follow it fully.
    """

    box: tuple[slice, slice, slice]
    weight: Tensor
    volume: float

    @classmethod
    def around(cls, index: Points, grid: Grid, reach_mm: float) -> _Neighbourhood:
        """Of a continuous index (z, y, x) of a grid; an SD is `reach_mm` in every direction of space."""
        box = []
        for centre, n, spacing in zip(index, grid.shape, grid.spacing_mm, strict=True):
            radius = CUT * reach_mm / spacing
            nearest = min(max(round(float(centre)), 0), n - 1)
            first = min(max(math.ceil(centre - radius), 0), nearest)
            box.append(slice(first, max(min(math.floor(centre + radius), n - 1), nearest) + 1))
        axes = [torch.arange(s.start, s.stop, dtype=torch.float64) - float(c) for s, c in zip(box, index, strict=True)]
        apart = torch.stack(torch.meshgrid(*axes, indexing="ij"))
        steps = torch.tensor(grid.matrix[:3, :3], dtype=torch.float64)
        square = torch.einsum("wa,azyx->wzyx", steps, apart).square().sum(0)
        weight = torch.exp(-square / (2 * reach_mm**2))
        volume = float(weight.sum() / weight.max())
        return cls((box[0], box[1], box[2]), (weight / weight.sum()).to(torch.float32), volume)


@dataclass(frozen=True)
class _Goal:
    """Where landmarks are to be in an image.

    Attributes:
        points: (N, 3) LPS mm.
        world: (3, 4), voxel index of the image to LPS mm.
        least_mm: the least scale of the cost.
        scale_mm: of the cost; measured at the first displacement of a level that is asked for.
    """

    points: Tensor
    world: Tensor
    least_mm: float
    scale_mm: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, points: tuple[tuple[float, float, float], ...], image: Grid, grid: Grid) -> _Goal:
        """Points of an image; `grid` is the one on which displacements are found."""
        coarsest = max(s for s, n in zip(grid.spacing_mm, grid.shape, strict=True) if n > 1)
        world = torch.tensor(image.matrix[:3], dtype=torch.float64)
        return cls(torch.tensor(points, dtype=torch.float64), world, LEAST_SCALE_VOX * coarsest)


@dataclass(frozen=True)
class _PreparedLandmarks:
    """The landmarks of one level.

    Attributes:
        index: (N, 3) fixed landmarks in voxels of the level.
        goal: where they are to be in the moving image.
        places: the neighbourhood of each.
    """

    index: Tensor
    goal: _Goal
    places: tuple[_Neighbourhood, ...]

    @classmethod
    def at(cls, index: Points, goal: _Goal, grid: Grid, reach_mm: float) -> _PreparedLandmarks:
        """Landmarks at continuous indices (z, y, x) of a grid."""
        places = tuple(_Neighbourhood.around(point, grid, reach_mm) for point in index)
        return cls(torch.as_tensor(index, dtype=torch.float64), goal, places)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize; the voxels that count are those of the neighbourhoods."""
        linear = matrix[:, :3].to("cpu", torch.float64)
        steps = torch.stack([_mean(displacement, place) for place in self.places])
        found = (self.index + steps) @ linear.T + matrix[:, 3].to("cpu", torch.float64)
        goal, world = self.goal, self.goal.world
        apart = found @ world[:, :3].T + world[:, 3] - goal.points
        square = apart.square().sum(1)
        if not goal.scale_mm:
            goal.scale_mm.append(max(SPREAD * float(square.median().sqrt()), goal.least_mm))
        limit = goal.scale_mm[0] ** 2
        volumes = torch.tensor([place.volume for place in self.places], dtype=torch.float64)
        total, count = float((volumes * square / (square + limit)).sum()), float(volumes.sum())
        if gradient is not None:
            slope = (2 * volumes * limit / (square + limit) ** 2)[:, None] * apart
            self._spread(slope @ (world[:, :3] @ linear), gradient)
        return Linearization(total / count, total / count, count)

    def _spread(self, forces: Tensor, gradient: Tensor) -> None:
        """Overwrite the gradient with the forces on the landmarks, (N, 3), each spread over its neighbourhood."""
        gradient.zero_()
        for force, place in zip(forces.to(gradient.device, gradient.dtype), self.places, strict=True):
            z, y, x = place.box
            gradient[:, z, y, x] += force[:, None, None, None] * place.weight.to(gradient)
        if gradient.shape[1] == 1:
            gradient[0] = 0.0


def _mean(displacement: Tensor, place: _Neighbourhood) -> Tensor:
    """(3,) mean displacement of a neighbourhood, float64 on the CPU."""
    z, y, x = place.box
    part = displacement[:, z, y, x].to(torch.float64)
    return (part * place.weight.to(part.device)).sum(dim=(1, 2, 3)).cpu()


@dataclass(frozen=True)
class _LandmarksBetween:
    """The landmarks of one level of two images that both move.

    The landmarks of the image that is held still are looked up in the middle, by inverting its displacement there; they
    are to be led to those of the other image.

    Attributes:
        goals: the landmarks of the fixed and of the moving image.
        starts: (N, 3) where the linear maps alone put them, in voxels of the middle.
        matrices: (3, 4) from the middle to the voxels of both images.
        grid: of the middle.
        reach_mm: SD of the neighbourhoods.
    """

    goals: tuple[_Goal, _Goal]
    starts: tuple[Points, ...]
    matrices: tuple[Tensor, Tensor]
    grid: Grid
    reach_mm: float

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """See PreparedBetween.linearize."""
        return mean_of(
            *(self._pull(side, displacements, None if gradients is None else gradients[side]) for side in (0, 1))
        )

    def _pull(self, side: int, displacements: Pair, gradient: Tensor | None) -> Linearization:
        """The cost with one image moving (0 is the fixed, 1 the moving one) and the other still."""
        other = 1 - side
        still = came_from(self.starts[other], displacements[other])
        led = _PreparedLandmarks.at(still, self.goals[side], self.grid, self.reach_mm)
        return led.linearize(displacements[side], self.matrices[side], gradient)


def _before(points: tuple[tuple[float, float, float], ...], matrix: Matrix) -> Points:
    """(N, 3) LPS mm: what a 4x4 matrix moves to some points."""
    return np.asarray(np.linalg.solve(matrix[:3, :3], (np.asarray(points) - matrix[:3, 3]).T).T, dtype=np.float64)


def _as_tuples(points: ArrayLike, side: str) -> tuple[tuple[float, float, float], ...]:
    given = np.atleast_2d(np.asarray(points, dtype=np.float64))
    if given.ndim != 2 or given.shape[1] not in (2, 3) or not np.all(np.isfinite(given)):
        raise InputError(f"The {side} landmarks have shape {given.shape}; give (N, 3) finite LPS millimetres.")
    flat = given if given.shape[1] == 3 else np.c_[given, np.zeros(len(given))]
    return tuple((float(x), float(y), float(z)) for x, y, z in flat)
