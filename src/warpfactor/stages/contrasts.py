"""Whether two images, brought together by the linear stages, have the same contrast.

In images of one contrast an edge is as strong in one as in the other, but for one factor. Across contrasts the factor
depends on the tissue, and its sign may. What the linear stages leave apart hides this: edges that do not lie on each
other have any ratio. So the images are first warped onto each other at a coarse level, by local correlation, which
takes any factor and either sign. Then windows are compared that correlate well, so that they show the same thing, and
those count against one contrast whose ratio of variances is far from what most have, or whose correlation is negative.
docs/benchmarks/contrasts.md has the figures of many kinds of images.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warpfactor.geometry.grid import Matrix
from warpfactor.geometry.resample import VoxelMap
from warpfactor.kernels.buffers import zero_field
from warpfactor.kernels.ops import Ops
from warpfactor.scene.levels import finest_spacing, level_scene
from warpfactor.scene.object import shown
from warpfactor.scene.scene import Scene
from warpfactor.stages.greedy import run_greedy
from warpfactor.stages.settings import Deformable

WIDTH = 80  # voxels along the longest side of the images that are compared
LEVELS, ITERATIONS = (2.0, 1.0), (20, 5)  # of the warp that brings them onto each other
RADIUS = 1  # of the windows
SHOWN = 0.02  # share of an image's contrast from which a window shows something
ALIKE = 0.8  # squared correlation from which windows show the same thing
FAR = math.log(2)  # distance of the logarithm of a ratio of variances from the median
LIMIT = 0.22  # share of windows up to which images have the same contrast
DOUBT = 0.12  # share from which the warps there and back are asked, too
APART = 1.2  # voxels of the coarse level: the mean by which these miss each other, up to which the contrast is the same


def same_contrast(scene: Scene, matrix: Matrix, settings: Deformable, ops: Ops, *, both_ways: bool = False) -> bool:
    """Whether the images have the same contrast.

    Args:
        scene: the images.
        matrix: 4x4, LPS mm, fixed to moving, that brings them together.
        settings: of the warp between images of one contrast.
        ops: kernels.
        both_ways: compare them on both grids, so that it does not matter which image is the fixed one.
    """
    there = _brought_together(scene, matrix, settings, ops)
    shares = [_inconsistency(there, ops)]
    if both_ways:
        back = _brought_together(*_exchanged(scene, matrix), settings, ops)
        shares.append(_inconsistency(back, ops))
    share = sum(shares) / len(shares)
    if not DOUBT < share <= LIMIT:
        return share <= LIMIT
    if not both_ways:
        back = _brought_together(*_exchanged(scene, matrix), settings, ops)
    apart = [_apart(there, back, ops)]
    if both_ways:
        apart.append(_apart(back, there, ops))
    return sum(apart) / len(apart) <= APART


class _Together(NamedTuple):
    """Images at a coarse level, the warp (3, D, H, W) that local correlation finds there, and the map of its voxels."""

    level: Scene
    warp: Tensor
    through: Tensor


def _brought_together(scene: Scene, matrix: Matrix, settings: Deformable, ops: Ops) -> _Together:
    grid = scene.fixed.grid
    longest = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True))
    level = level_scene(scene, longest / finest_spacing(grid) / WIDTH, ops).single()
    warp, _ = run_greedy(level, _coarse(settings), ops=ops, affine=matrix)
    if warp is None:
        warp = zero_field((3, *level.shape), device=level.device)
    return _Together(level, warp, VoxelMap(level.fixed.grid, None, matrix).matrix(level.moving.grid))


def _exchanged(scene: Scene, matrix: Matrix) -> tuple[Scene, Matrix]:
    return scene.swapped(), np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _inconsistency(found: _Together, ops: Ops) -> float:
    level, warp, through = found
    weight = _weight(level, warp, through, ops)
    shares = []
    for fixed, moving in zip(level.fixed.data, level.moving.data, strict=True):
        warped = ops.sample(moving.contiguous(), warp, through, shape=level.shape)
        shares.append(_unusual(fixed, warped, weight, ops))
    return sum(shares) / len(shares)


def _apart(there: _Together, back: _Together, ops: Ops) -> float:
    """Mean distance of x from back(there(x)) where the fixed image shows something, in voxels of its finest axis."""
    level, warp, through = there
    returned = torch.stack([ops.sample(part.contiguous(), warp, through, shape=level.shape) for part in back.warp])
    linear = torch.linalg.pinv(through[:, :3].double()).to(warp.dtype)
    rest = warp + torch.einsum("ij,jzyx->izyx", linear, returned)
    spacing = torch.tensor(level.fixed.grid.spacing_mm, dtype=rest.dtype) / finest_spacing(level.fixed.grid)
    distance = torch.linalg.vector_norm(rest * spacing.to(rest.device).reshape(3, 1, 1, 1), dim=0)
    counted = _weight(level, warp, through, ops) * shown(level.fixed)
    total = float(counted.sum(dtype=torch.float64))
    return float((distance * counted).sum(dtype=torch.float64)) / total if total > 0 else 0.0


def _coarse(settings: Deformable) -> Deformable:
    """The settings for a few quick iterations."""
    size = replace(settings, levels=LEVELS, iterations=ITERATIONS, coarsest=0, meant_for=0)
    return replace(size, method="greedy", volume=0.0, agreement=0.0, heavy=0.0, broad_from=0.0, shading=0.0)


def _weight(level: Scene, warp: Tensor, through: Tensor, ops: Ops) -> Tensor:
    """1 where both images count, else 0."""
    moving = torch.ones(level.moving.shape, device=level.device)
    if level.moving.mask is not None:
        moving = level.moving.mask.to(moving.dtype)
    weight = (ops.sample(moving, warp, through, shape=level.shape) >= 0.5).to(moving.dtype)
    return weight if level.fixed.mask is None else weight * (level.fixed.mask > 0)


def _unusual(fixed: Tensor, warped: Tensor, weight: Tensor, ops: Ops) -> float:
    """Share of the windows of one channel."""
    f, m = fixed * weight, warped * weight
    radius = [RADIUS if n > 1 else 0 for n in fixed.shape]
    n, *sums = ops.smooth_box(torch.stack([weight, f, m, f * f, m * m, f * m]), radius)
    mean_f, mean_m, ff, mm, fm = (part / n.clamp(min=1e-6) for part in sums)
    var_f, var_m, cov = ff - mean_f * mean_f, mm - mean_m * mean_m, fm - mean_f * mean_m
    alike = (weight > 0) & _shows(var_f, weight) & _shows(var_m, weight) & (cov * cov > ALIKE * var_f * var_m)
    ratio, sign = torch.log(var_m[alike] / var_f[alike]), cov[alike] > 0
    if not bool(sign.any()):
        return float(alike.any())
    usual = (ratio - ratio[sign].median()).abs() <= FAR
    return 1 - float((usual & sign).double().mean())


def _shows(variance: Tensor, weight: Tensor) -> Tensor:
    """Where windows have a share of the contrast Σv² / Σv of all of them."""
    counted = variance.clamp(min=0) * weight
    total = float(counted.sum(dtype=torch.float64))
    contrast = float(counted.square().sum(dtype=torch.float64)) / total if total > 0 else 0.0
    return variance > max(SHOWN * contrast, 1e-12)
