"""Label maps: structures of the two images that the warp is to bring together, each by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid, Matrix
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import beside_grid, beside_matrix, finest_spacing
from warpfactor.scene.middle import Middle
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Plain
from warpfactor.terms.both import Pair, mean_of

SOFT = 1.0  # SD of the Gaussian that makes a structure soft, in voxels of the level's finest axis
LEAST_SOFT = 0.5  # the same along any axis, in its own voxels
TAPS = 3.0  # SD at which that Gaussian ends
PULL = 5.0  # what a soft voxel counts beside one of a metric, so that a weight of 1 is a usual one; measured on brains
MARGIN = 3  # voxels of the level around a structure that are looked at
NOTHING = Linearization(0.0, 0.0, 0.0)  # where no structure is inside the image

Box = tuple[slice, slice, slice]


@dataclass(frozen=True, eq=False)
class LabelTerm(Plain):
    """The squared difference of soft structures, one label at a time: labels are never mixed or averaged.

    A label is 1 inside its structure and 0 outside, smoothed by a Gaussian of one voxel of the level. The cost is the
    sum over labels and voxels of (F - M)^2, divided by twice the sum of F^2: about one minus the Dice overlap of the
    soft structures.

    Attributes:
        fixed: (D, H, W) whole numbers on the grid of the fixed image.
        moving: the same of the moving image, on any grid in its space.
        fixed_grid, moving_grid: their grids.
        values: the labels that are used.
    """

    fixed: Tensor
    moving: Tensor
    fixed_grid: Grid
    moving_grid: Grid
    values: tuple[int, ...]
    name: str = "labels"

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError(
                "The two label maps have no label in common; give maps that use the same numbers for the same "
                "structures."
            )

    def prepare(
        self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> _PreparedLabels:
        """The structures at the resolution of the level."""
        fixed, moving = self._grids(scene)
        maps = self._maps(scene, finest_spacing(fixed), ops)
        count = 2 * PULL * sum(float(of_fixed.share.double().square().sum()) for of_fixed, _ in maps)
        return _PreparedLabels(maps, fixed, moving, scene.moving.grid, count, ops)

    def between(
        self, scene: Scene, middle: Middle, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> _LabelsBetween:
        """See BetweenTerm.between."""
        maps, matrices = self._maps(scene, finest_spacing(middle.grid), ops), middle.matrices_to(*self._grids(scene))
        boxes = tuple(_common_box(tuple(zip(both, matrices, strict=True)), middle.grid.shape) for both in maps)
        return _LabelsBetween(maps, boxes, matrices, ops)

    def _grids(self, scene: Scene) -> tuple[Grid, Grid]:
        """The grids of both maps at the resolution of a level."""
        return scene.fixed.grid, beside_grid(self.moving_grid, self.fixed_grid, scene)

    def _maps(self, scene: Scene, spacing_mm: float, ops: Ops) -> tuple[tuple[_Soft, _Soft], ...]:
        """The fixed and the moving form of every structure at a level; `spacing_mm` is that of its finest axis."""
        fixed, moving = self._grids(scene)
        soft_mm, device = SOFT * spacing_mm, scene.device
        return tuple(
            (
                _soft(self.fixed == value, self.fixed_grid, fixed, soft_mm, device, ops),
                _soft(self.moving == value, self.moving_grid, moving, soft_mm, device, ops),
            )
            for value in self.values
        )


class _Soft(NamedTuple):
    """A soft structure: the box of a level's voxels around it, and the share of each that is inside."""

    box: Box
    share: Tensor


def _soft(inside: Tensor, grid: Grid, level: Grid, soft_mm: float, device: torch.device, ops: Ops) -> _Soft:
    """A structure on the grid of a level, made of its surroundings only."""
    factors = [n / m for n, m in zip(grid.shape, level.shape, strict=True)]
    sigma = [
        max(soft_mm / s, LEAST_SOFT * f) if n > 1 else 0.0
        for s, f, n in zip(grid.spacing_mm, factors, grid.shape, strict=True)
    ]
    near, wide = [], []
    for (first, last), f, sd, n, m in zip(_ends(inside), factors, sigma, grid.shape, level.shape, strict=True):
        reach = math.ceil(TAPS * sd) + 1
        low = max(math.floor((first - reach) / f) - 1, 0)
        high = min(math.ceil((last + 1 + reach) / f) + 1, m)
        near.append(slice(low, high))
        wide.append(slice(max(math.floor(low * f) - reach, 0), min(math.ceil(high * f) + reach, n)))
    share = inside[tuple(wide)][None].to(device, torch.float32)
    ops.smooth_gaussian(share, sigma, truncate=TAPS)
    offset = [f * a.start + (f - 1) / 2 - b.start for f, a, b in zip(factors, near, wide, strict=True)]
    shape = [a.stop - a.start for a in near]
    return _Soft((near[0], near[1], near[2]), ops.resize(share, shape, factors, offset)[0])


def _ends(inside: Tensor) -> list[tuple[int, int]]:
    """First and last index of a structure along each axis."""
    found = []
    for axis in range(3):
        others = [other for other in range(3) if other != axis]
        there = inside.any(others[1]).any(others[0]).nonzero()
        found.append((int(there[0]), int(there[-1])))
    return found


@dataclass(frozen=True)
class _PreparedLabels:
    """The structures of one level.

    Attributes:
        maps: the fixed and the moving form of each.
        fixed, moving: the grids they lie on.
        registered: the grid of the moving image at this level, to which matrices lead.
        count: PULL times what the sum of squared differences is divided by.
        boxes: where each structure is compared; found at the first matrix that is asked for.
    """

    maps: tuple[tuple[_Soft, _Soft], ...]
    fixed: Grid
    moving: Grid
    registered: Grid
    count: float
    ops: Ops
    boxes: list[Box] = field(default_factory=list)

    def linearize(self, displacement: Tensor, matrix: Tensor, gradient: Tensor | None = None) -> Linearization:
        """See Prepared.linearize."""
        through = beside_matrix(matrix, self.registered, self.moving)
        if not self.boxes:
            here = torch.eye(3, 4, dtype=torch.float64)
            ways = ([(of_fixed, here), (of_moving, through)] for of_fixed, of_moving in self.maps)
            self.boxes.extend(_common_box(both, self.fixed.shape) for both in ways)
        if gradient is not None:
            gradient.zero_()
        total = 0.0
        for (of_fixed, of_moving), box in zip(self.maps, self.boxes, strict=True):
            total += _compare(of_fixed, of_moving, box, displacement, through, gradient, self.ops)
        cost = PULL * total / self.count
        return Linearization(cost, cost, self.count)


@dataclass(frozen=True)
class _LabelsBetween:
    """The structures of one level of two images that both move.

    Those of the image that is held still are taken where its displacement shows them on the middle grid.

    Attributes:
        maps: the fixed and the moving form of each.
        boxes: the voxels of the middle where each structure is compared.
        matrices: (3, 4) from the middle to the voxels of both maps.
    """

    maps: tuple[tuple[_Soft, _Soft], ...]
    boxes: tuple[Box, ...]
    matrices: tuple[Tensor, Tensor]
    ops: Ops

    def linearize(self, displacements: Pair, gradients: Pair | None = None) -> Linearization:
        """See PreparedBetween.linearize."""
        return mean_of(
            *(self._pull(side, displacements, None if gradients is None else gradients[side]) for side in (0, 1))
        )

    def _pull(self, side: int, displacements: Pair, gradient: Tensor | None) -> Linearization:
        """The cost with one image moving (0 is the fixed, 1 the moving one) and the other still."""
        other = 1 - side
        if gradient is not None:
            gradient.zero_()
        total = size = 0.0
        for both, box in zip(self.maps, self.boxes, strict=True):
            u = displacements[other][(slice(None), *box)].contiguous()
            share = self.ops.sample(both[other].share.to(u.dtype), u, _local(self.matrices[other], box, both[other]))
            still = _Soft(box, share)
            total += _compare(still, both[side], box, displacements[side], self.matrices[side], gradient, self.ops)
            size += float(share.double().square().sum())
        return Linearization(total / (2 * size), total / (2 * size), 2 * PULL * size) if size else NOTHING


def _compare(
    still: _Soft, led: _Soft, box: Box, displacement: Tensor, matrix: Tensor, gradient: Tensor | None, ops: Ops
) -> float:
    """The sum of (M - F)^2 of a structure F and one that is led to it, M; PULL times its gradient is added.

    Args:
        still: F, in a part of the box.
        led: M, in voxels of its own.
        matrix: (3, 4), from the voxels of the displacement to those.
        gradient: 2 PULL (M - F) dM/du is added to its part in the box.
    """
    part = (slice(None), *box)
    u = displacement[part].contiguous()
    local, share = _local(matrix, box, led), led.share.to(u.dtype)
    if gradient is None:
        difference = ops.sample(share, u, local)
    else:
        difference, slope, _ = ops.sample_gradient(share, u, local)
    inner = tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(still.box, box, strict=True))
    difference[inner] -= still.share.to(u.dtype)
    if gradient is not None:
        gradient[part] += slope * (2 * PULL * difference)
    return float(difference.double().square().sum())


def _local(matrix: Tensor, box: Box, of: _Soft) -> Tensor:
    """(3, 4), from voxels of a box to those of a structure's own box, of the matrix between their grids."""
    start = matrix.new_tensor([s.start for s in box])
    shift = matrix[:, 3] + matrix[:, :3] @ start - matrix.new_tensor([s.start for s in of.box])
    return torch.cat([matrix[:, :3], shift[:, None]], dim=1)


def _common_box(both: Sequence[tuple[_Soft, Tensor]], shape: tuple[int, int, int]) -> Box:
    """The voxels of a grid around a structure of both images, where the matrices to them alone put it."""
    corners = np.concatenate([_corners(of, matrix) for of, matrix in both])
    box = []
    for axis, n in enumerate(shape):
        low, high = math.floor(corners[:, axis].min()), math.ceil(corners[:, axis].max()) + 1
        first = min(max(low - MARGIN, 0), n - 1)
        box.append(slice(first, max(min(high + MARGIN, n), first + 1)))
    return box[0], box[1], box[2]


def _corners(of: _Soft, matrix: Tensor) -> Matrix:
    """(8, 3): the corners of a structure's box, in voxels of the grid from which a matrix leads there."""
    linear, shift = (part.to("cpu", torch.float64).numpy() for part in (matrix[:, :3], matrix[:, 3]))
    ends = [(s.start, s.stop - 1) for s in of.box]
    result: Matrix = (np.array(list(product(*ends))) - shift) @ np.linalg.pinv(linear).T
    return result
