"""Folding and volume change of a warp, from its Jacobian determinants."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from warpfactor import kernels
from warpfactor.kernels.ops import Ops
from warpfactor.measure.arrays import Array, counted, measurable

LOG_JACOBIAN_RANGE = (1e-3, 1e3)  # determinants are clipped to this range before the logarithm is taken
RANKS = (1, 5, 50, 95, 99)  # percentiles of determinants


@dataclass(frozen=True)
class JacobianFigures:
    """How regular a warp is, from its Jacobian determinants.

    Attributes:
        folded_count, folded_fraction: voxels whose determinant is zero or less.
        minimum: smallest determinant.
        percentiles: determinant at the 1st, 5th, 50th, 95th and 99th percentile, by percentile.
        sd_log: standard deviation of the natural logarithm, determinants clipped to LOG_JACOBIAN_RANGE.
    """

    folded_count: int
    folded_fraction: float
    minimum: float
    percentiles: dict[int, float]
    sd_log: float


def jacobian_figures(
    determinant: Array | Tensor, mask: Array | Tensor | None = None, *, ops: Ops | None = None
) -> JacobianFigures:
    """Folds, percentiles and spread of Jacobian determinants (D, H, W), where mask is true."""
    values, inside = measurable(determinant, mask)
    ops = ops or kernels.select(values.device)
    found = counted(ops.tally(values, mask=inside, log_range=LOG_JACOBIAN_RANGE))
    mean = found.total / found.count
    return JacobianFigures(
        folded_count=found.nonpositive,
        folded_fraction=found.nonpositive / found.count,
        minimum=found.minimum,
        percentiles=dict(zip(RANKS, ops.percentiles(values, RANKS, mask=inside), strict=True)),
        sd_log=math.sqrt(max(0.0, found.squares / found.count - mean * mean)),
    )
