"""How deep the pyramid of a linear registration is: it follows from the size of the fixed image."""

from __future__ import annotations

import math

from warpfactor.geometry.grid import Grid
from warpfactor.scene.levels import finest_spacing, level_shape

COARSEST_WIDTH = 32  # voxels along the longest axis: a turn or shift by a tenth of it is a few voxels
LEAST_COARSE = 8.0  # factor of the coarsest level of small images
FINEST = 2.0  # factor: an affine of images of half the resolution is as good
LARGEST = 1 << 21  # voxels of a level; more add nothing to at most 12 numbers


def levels_for(grid: Grid) -> tuple[float, ...]:
    """Factors of the levels, coarse to fine, each half the one before."""
    spacing = finest_spacing(grid)
    width = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True)) / spacing
    finest = FINEST
    while math.prod(level_shape(grid, finest * spacing)) > LARGEST:
        finest *= 2
    coarsest = max(LEAST_COARSE, 2.0 ** round(math.log2(width / COARSEST_WIDTH)), 2 * finest)
    return tuple(coarsest / 2**k for k in range(1 + round(math.log2(coarsest / finest))))


def limits_for(levels: tuple[float, ...], iterations: tuple[int, ...]) -> tuple[int, ...]:
    """One limit per level: the given ones belong to the finest levels, the first of them to all coarser ones too."""
    more = max(0, len(levels) - len(iterations))
    return (iterations[0],) * more + iterations[-len(levels) :]
