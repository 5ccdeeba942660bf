"""Levels and iterations that follow from the size of the images."""

from __future__ import annotations

import math
from dataclasses import replace

from warpfactor.geometry.grid import Grid
from warpfactor.scene.levels import finest_spacing
from warpfactor.stages.settings import Deformable
from warpfactor.terms.base import aligned


def fitted(settings: Deformable, grid: Grid) -> Deformable:
    """The settings for a fixed image on this grid: `coarsest` and `meant_for` have become levels and iterations.

    The coarsest level is the power of two that comes nearest to `coarsest` voxels along the longest axis. Settings per
    level are those of the finest levels; further coarse ones have those of the first. An image narrower than the ones
    that the iterations are meant for has more of them, in proportion, but no level more than the coarsest.
    """
    if settings.coarsest > 0:
        finest = finest_spacing(grid)
        width = max(n * s for n, s in zip(grid.shape, grid.spacing_mm, strict=True) if n > 1) / finest
        depth = 1 + max(0, round(math.log2(width / settings.coarsest)))
        settings = replace(
            settings,
            levels=tuple(2.0**k for k in reversed(range(depth))),
            iterations=aligned(settings.iterations, depth),
            metric=settings.metric.for_levels(depth),
            coarsest=0,
        )
    if settings.meant_for > 0:
        width = math.prod(grid.shape) ** (1 / sum(n > 1 for n in grid.shape))
        factor = max(1.0, settings.meant_for / width)
        most = max(settings.iterations)
        more = tuple(min(most, round(factor * n)) for n in settings.iterations)
        settings = replace(settings, iterations=more, meant_for=0)
    return settings
