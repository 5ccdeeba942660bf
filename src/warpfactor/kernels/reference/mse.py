"""Mean squared difference of intensities."""

import torch
from torch import Tensor

from warpfactor.kernels.reference.match import fixed_slope, match, total


@torch.no_grad()
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    symmetric: bool = False,
) -> tuple[float, float]:
    """(sum of w r², sum of w), r = F - M(p), and d total / du = -2 w r dM/du.

    Args:
        fixed: (D, H, W), F.
        moving: (D, H, W), M.
        displacement: (3, *fixed shape), u.
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index p.
        gradient: (3, *fixed shape), overwritten with the gradient; None computes the value only.
        fixed_mask, moving_mask: uint8 on their own grids; w is 1 where both, and p, are inside.
        symmetric: Replace dM/du by (dM/du + dF/dx) / 2 in the gradient.
    """
    pair = match(fixed, moving, displacement, matrix, fixed_mask, moving_mask, gradient is not None)
    residual = pair.fixed - pair.warped
    if gradient is not None and pair.slope is not None:
        slope = (pair.slope + fixed_slope(fixed)) / 2 if symmetric else pair.slope
        gradient.copy_(torch.where(pair.weight, -2 * residual * slope, 0.0))
    return total(residual.square()), total(pair.weight)
