"""Levels of a scene, coarse to fine, and the one loop over them that every stage uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Grid
from warpfactor.kernels.ops import Ops
from warpfactor.scene.scene import Scene, Side

MIN_SIZE = 16  # voxels: no axis is shrunk below this
BLUR = 0.75  # SD of the blur before shrinking by a factor f, in units of f; measured best on brains

_State = TypeVar("_State")


@dataclass(frozen=True)
class Level:
    """One level of a stage.

    Attributes:
        number: counted from 0 at the coarsest.
        factor: spacing in units of the fixed image's finest spacing; 1 is the full resolution.
        iterations: at most this many.
        finest: whether it is the last one.
        scene: the images at this resolution.
    """

    number: int
    factor: float
    iterations: int
    finest: bool
    scene: Scene


def coarse_to_fine(levels: Iterable[Level], solve: Callable[[Level, _State], _State], start: _State) -> _State:
    """The state after all levels; `solve` takes a level and the state before it. Levels may be made lazily."""
    state = start
    for level in levels:
        state = solve(level, state)
    return state


def level_scene(scene: Scene, factor: float, ops: Ops, *, blur: float = BLUR, grid: Grid | None = None) -> Scene:
    """The scene at `factor` times the fixed image's finest spacing; itself at full resolution.

    Every axis of both images is shrunk towards that spacing. None that is coarser already is refined, and none is
    shrunk below MIN_SIZE voxels, so thick slices stay as they are until the other axes have caught up.

    Args:
        blur: SD of the Gaussian before shrinking by a factor f, in units of f.
        grid: the grid whose finest spacing is meant; the fixed image's by default.
    """
    if factor <= 1:
        return scene
    spacing = factor * finest_spacing(scene.fixed.grid if grid is None else grid)
    fixed, moving = (_shrink(side, level_shape(side.grid, spacing), ops, blur) for side in scene.sides)
    return Scene(fixed, moving).single()


def beside_level(own: Scene, level: Scene, ops: Ops) -> Scene:
    """Another scene on the same fixed grid at the resolution of a level; itself at full resolution.

    Args:
        own: two images, of which the fixed one lies on the grid of the registration.
        level: the scene of a level of the registration.
    """
    shape = beside_grid(own.moving.grid, own.fixed.grid, level).shape
    if own.shape == level.shape and own.moving.shape == shape:
        return own
    return Scene(_shrink(own.fixed, level.shape, ops, BLUR), _shrink(own.moving, shape, ops, BLUR)).single()


def beside_grid(grid: Grid, fixed: Grid, level: Scene) -> Grid:
    """A grid in moving space at the resolution of a level: that of the moving image there, if it is its coarse form.

    Args:
        grid: at full resolution.
        fixed: the grid of the fixed image at full resolution.
        level: the scene of the level.
    """
    moving = level.moving.grid
    alike = grid.scaled(shape=moving.shape)
    if all(n >= m for n, m in zip(grid.shape, moving.shape, strict=True)) and alike.same_space(moving):
        return alike
    pairs = zip(level.fixed.grid.spacing_mm, fixed.shape, level.fixed.grid.shape, strict=True)
    coarse = [spacing for spacing, n, m in pairs if n > m]
    return grid.scaled(shape=level_shape(grid, max(coarse))) if coarse else grid


def beside_matrix(matrix: Tensor, moving: Grid, other: Grid) -> Tensor:
    """(3, 4) matrix to the voxels of another grid in moving space, of the one to the voxels of `moving`."""
    whole = np.vstack([matrix.to("cpu", torch.float64).numpy(), [0, 0, 0, 1]])
    found = torch.from_numpy(np.linalg.solve(other.matrix, moving.matrix @ whole)[:3].copy())
    if other.shape[0] == 1:
        found[0] = 0.0
    return found.to(matrix)


def repeated_levels(scene: Scene, factors: Sequence[float], grid: Grid | None = None) -> set[int]:
    """Numbers of the levels that have the same shapes as the next finer one, as those of small images do.

    Args:
        grid: the grid on which the levels compare the images; the fixed image's by default.
    """
    grids = [side.grid for side in scene.sides] + ([] if grid is None else [grid])
    finest = finest_spacing(scene.fixed.grid if grid is None else grid)
    shapes = [tuple(level_shape(each, factor * finest) for each in grids) for factor in factors]
    return {i for i in range(len(factors) - 1) if shapes[i] == shapes[i + 1]}


def finest_spacing(grid: Grid) -> float:
    """Smallest spacing in mm along the axes that have more than one voxel."""
    return min(s for s, n in zip(grid.spacing_mm, grid.shape, strict=True) if n > 1)


def level_shape(grid: Grid, spacing_mm: float) -> tuple[int, int, int]:
    """Shape of a grid of about the given spacing over the same field of view."""
    sizes = []
    for n, s in zip(grid.shape, grid.spacing_mm, strict=True):
        wanted = math.ceil(n * s / spacing_mm - 1e-6) if spacing_mm > s else n
        sizes.append(min(n, max(wanted, MIN_SIZE)))
    return sizes[0], sizes[1], sizes[2]


def _shrink(side: Side, shape: tuple[int, int, int], ops: Ops, blur: float) -> Side:
    """The side on a coarser grid; the blur keeps aliases out."""
    sigma = [blur * n / m if n > m else 0.0 for n, m in zip(side.grid.shape, shape, strict=True)]
    small_mask = None
    if side.mask is not None:
        share = ops.shrink(side.mask[None], shape, sigma)[0]
        small_mask = (share >= 0.5).to(torch.uint8)
        if not bool(small_mask.any()):
            small_mask = (share >= share.max() / 2).to(torch.uint8)
    return replace(side, data=ops.shrink(side.data, shape, sigma), mask=small_mask, grid=side.grid.scaled(shape=shape))
