"""What the Jacobian determinant does not see of a warp: shear, and folds between neighbouring voxels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from warpfactor.kernels import select
from warpfactor.kernels.ops import Ops


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
    ops = ops or select(displacement.device)
    shear, least = ops.distortion(displacement.to(torch.float32).contiguous(), spacing_mm)
    inside = None if mask is None else mask.to(shear.device)
    found, folds = ops.tally(shear, mask=inside), ops.tally(least, mask=inside)
    return Distortion(found.total / found.count if found.count else 0.0, folds.nonpositive)
