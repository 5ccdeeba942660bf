"""Squared difference of intensities."""

import torch
from torch import Tensor

from warpfactor.kernels.held import two
from warpfactor.kernels.reference.match import fixed_slope, match, total

TINY = 1e-20  # makes 0 / 0 zero where both the residual and the gradient are zero


@two
def mse(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    alike: tuple[float, float] = (1.0, 0.0),
    symmetric: bool = False,
    demons: float | None = None,
    lengths: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> Tensor:
    """Sum of r² over the voxels that count, and their number; r = F - M(p), and d total / du = -2 r dM/du.

    Args:
        fixed: (D, H, W), F.
        moving: (D, H, W); M is `alike[0]` times this image plus `alike[1]`.
        displacement: (3, *fixed shape), u.
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index p.
        gradient: (3, *fixed shape), overwritten with the gradient; None computes the value only.
        fixed_mask, moving_mask: uint8, each on its own grid; a voxel counts where both masks are not 0 and p is inside.
        alike: Scale and shift that convert the moving image to the units of the fixed one.
        symmetric: Replace dM/du by n = (dM/du + dF/dx) / 2 in the gradient.
        demons: α > 0; write minus the demons force r n / (|n̂|² + α² r²) (paper eq. 9) instead of the gradient.
        lengths: Factors in n̂ = lengths * n; `descend` with form "plain" and the same weights then gives the step.
    """
    pair = match(fixed, moving, displacement, matrix, fixed_mask, moving_mask, gradient is not None)
    residual = torch.where(pair.weight, pair.fixed - (alike[0] * pair.warped + alike[1]), 0.0)
    if gradient is not None and pair.slope is not None:
        slope = alike[0] * pair.slope
        slope = (slope + fixed_slope(fixed)) / 2 if symmetric else slope
        if demons is None:
            scale = -2 * residual
        else:
            weight = torch.tensor(lengths, dtype=slope.dtype, device=slope.device).reshape(3, 1, 1, 1)
            scale = -residual / ((weight * slope).square().sum(0) + (demons * residual).square() + TINY)
        gradient.copy_(torch.where(pair.weight, scale * slope, 0.0))
    return torch.stack([total(residual.square()), total(pair.weight)])
