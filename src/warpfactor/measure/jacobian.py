"""How regular a warp is: change of volume and folds by its Jacobian determinants, shear, folds between voxels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
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


class Distortion(NamedTuple):
    """How a warp changes shapes.

    Attributes:
        shear: mean of |F|² / (d det(F)^(2/d)) - 1, F = I + du/dx by central differences, d the number of dimensions; 0
            where a neighbourhood is only turned and scaled, whatever its change of volume.
        folded_one_sided: voxels at which one of the 2^d determinants of one-sided differences is zero or less: every
            corner of a voxel, where central differences look past the voxel itself.
    """

    shear: float
    folded_one_sided: int


def distortion(
    displacement: Tensor, spacing_mm: Sequence[float], mask: Tensor | None = None, *, ops: Ops | None = None
) -> Distortion:
    """Shear and one-sided folds of x + u(x).

    Args:
        displacement: (3, D, H, W), u in voxels; a depth of one is a slice.
        spacing_mm: along z, y, x, as lengths along different axes are compared.
        mask: (D, H, W), not zero where a voxel counts; None counts all.
        ops: the backend; the fastest of the field's device by default.
    """
    ops = ops or kernels.select(displacement.device)
    shear, least = ops.distortion(displacement.to(torch.float32).contiguous(), spacing_mm)
    inside = None if mask is None else mask.to(shear.device)
    found, folds = ops.tally(shear, mask=inside), ops.tally(least, mask=inside)
    return Distortion(found.total / found.count if found.count else 0.0, folds.nonpositive)
