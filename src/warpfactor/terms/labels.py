"""Label maps: structures of the two images that the warp is to bring together, each by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError
from warpfactor.geometry.grid import Grid
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import beside_matrix, beside_shape, finest_spacing
from warpfactor.scene.scene import Scene
from warpfactor.terms.base import Linearization, Plain

SOFT = 1.0  # SD of the Gaussian that makes a structure soft, in voxels of the level's finest axis
LEAST_SOFT = 0.5  # the same along any axis, in its own voxels
TAPS = 3.0  # SD at which that Gaussian ends
PULL = 5.0  # what a soft voxel counts beside one of a metric, so that a weight of 1 is a usual one; measured on brains
MARGIN = 3  # voxels of the level around a structure that are looked at

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
            raise InputError("The two label maps have no label in common; give maps that number structures alike.")

    def prepare(
        self, scene: Scene, ops: Ops, *, level: int = 0, weights: tuple[float, ...] | None = None
    ) -> _PreparedLabels:
        """The structures at the resolution of the level."""
        fixed = scene.fixed.grid
        moving = self.moving_grid.scaled(shape=beside_shape(self.moving_grid, self.fixed_grid, fixed))
        soft_mm = SOFT * finest_spacing(fixed)
        maps = []
        for value in self.values:
            of_fixed = _soft(self.fixed == value, self.fixed_grid, fixed, soft_mm, scene.device, ops)
            of_moving = _soft(self.moving == value, self.moving_grid, moving, soft_mm, scene.device, ops)
            maps.append((of_fixed, of_moving))
        count = 2 * PULL * sum(float(of_fixed.share.double().square().sum()) for of_fixed, _ in maps)
        return _PreparedLabels(tuple(maps), fixed, moving, scene.moving.grid, count, ops)


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
            self.boxes.extend(_common_box(*both, through, self.fixed.shape) for both in self.maps)
        if gradient is not None:
            gradient.zero_()
        total = 0.0
        for (of_fixed, of_moving), box in zip(self.maps, self.boxes, strict=True):
            total += self._compare(of_fixed, of_moving, box, displacement, through, gradient)
        cost = PULL * total / self.count
        return Linearization(cost, cost, self.count)

    def _compare(
        self,
        of_fixed: _Soft,
        of_moving: _Soft,
        box: Box,
        displacement: Tensor,
        matrix: Tensor,
        gradient: Tensor | None,
    ) -> float:
        """The sum of (M - F)^2 of one structure in its box; PULL times its gradient 2 (M - F) dM/du is added."""
        part = (slice(None), *box)
        u = displacement[part].contiguous()
        start = matrix.new_tensor([s.start for s in box])
        shift = matrix[:, 3] + matrix[:, :3] @ start - matrix.new_tensor([s.start for s in of_moving.box])
        local = torch.cat([matrix[:, :3], shift[:, None]], dim=1)
        share = of_moving.share.to(u.dtype)
        if gradient is None:
            difference = self.ops.sample(share, u, local)
        else:
            difference, slope, _ = self.ops.sample_gradient(share, u, local)
        inner = tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(of_fixed.box, box, strict=True))
        difference[inner] -= of_fixed.share.to(u.dtype)
        if gradient is not None:
            gradient[part] += slope * (2 * PULL * difference)
        return float(difference.double().square().sum())


def _common_box(of_fixed: _Soft, of_moving: _Soft, matrix: Tensor, shape: tuple[int, int, int]) -> Box:
    """The voxels around a structure's place in the fixed image and where the matrix alone puts the moving one."""
    linear, shift = (part.to("cpu", torch.float64).numpy() for part in (matrix[:, :3], matrix[:, 3]))
    ends = [(s.start, s.stop - 1) for s in of_moving.box]
    corners = (np.array(list(product(*ends))) - shift) @ np.linalg.pinv(linear).T
    box = []
    for axis, (own, n) in enumerate(zip(of_fixed.box, shape, strict=True)):
        low, high = math.floor(corners[:, axis].min()), math.ceil(corners[:, axis].max()) + 1
        first = min(own.start, max(low, 0))
        box.append(slice(max(first - MARGIN, 0), min(max(own.stop, min(high, n)) + MARGIN, n)))
    return box[0], box[1], box[2]
