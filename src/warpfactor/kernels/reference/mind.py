"""Self-similarity channels of an image (MIND-SSC), and the squared difference of such channels of two images.

A channel says how unlike two patches beside a voxel are, in units of how unlike such patches are there on average. That
depends on the shape of what is there and hardly on its intensities, so images of different contrast have like channels.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from warpfactor.kernels.held import two
from warpfactor.kernels.reference.interpolate import interpolate, interpolate_gradient, nearest, working_type
from warpfactor.kernels.reference.match import total
from warpfactor.kernels.reference.sample import chain_rule, inside_image, moving_points
from warpfactor.kernels.reference.smooth import central_difference, smooth_gaussian

CHANNELS = 12  # of every image, in three dimensions or two
FULL = 255  # the number that stands for one
LEAST = 1e-3  # of the mean patch distance of an image: less is nothing but rounding

Offset = tuple[float, float, float]


@torch.no_grad()
def mind_channels(image: Tensor, *, pairs: Sequence[tuple[Offset, Offset]], sigma: Sequence[float]) -> Tensor:
    """(D, H, W, 12) uint8: 255 exp(-d_k / V), d_k = G * (I(x + a_k) - I(x + b_k))², V the mean of all d_k, at least
    a thousandth of V's mean over the image.

    Args:
        image: (D, H, W), I; beyond the border it keeps its edge value, between voxels it is linear.
        pairs: a_k and b_k, twelve of them, in voxels.
        sigma: SD of the Gaussian patch G along z, y, x, in voxels; see `patch_sigma`.
    """
    values = image.to(working_type(image))
    points = {point: _shifted(values, point) for pair in pairs for point in pair}
    distances = []
    for a, b in pairs:
        square = (points[a] - points[b]).square_()
        distances.append(smooth_gaussian(square[None], sigma, truncate=TRUNCATE)[0])
    spread = torch.stack(distances).mean(0)
    floor = max(LEAST * float(spread.mean()), torch.finfo(spread.dtype).tiny)
    spread.clamp_(min=floor)
    channels = [(FULL * torch.exp(-d / spread)).round_().to(torch.uint8) for d in distances]
    return torch.stack(channels, dim=-1)


TRUNCATE = 2.0  # SD at which a patch ends


def _shifted(image: Tensor, by: Offset) -> Tensor:
    """image(x + by), linear between voxels, edge values beyond the border."""
    for axis, distance in enumerate(by):
        n = image.shape[axis]
        low = math.floor(distance)
        index = torch.arange(n, device=image.device) + low
        first = image.index_select(axis, index.clamp(0, n - 1))
        second = image.index_select(axis, (index + 1).clamp(0, n - 1))
        image = torch.lerp(first, second, distance - low)
    return image


@two
def mind(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    *,
    gradient: Tensor | None = None,
    fixed_mask: Tensor | None = None,
    moving_mask: Tensor | None = None,
    symmetric: bool = False,
) -> Tensor:
    """(sum of w r², sum of w), r² the mean over channels of (F_k - M_k(p))² / 255², and d total / du.

    Args:
        fixed: (D, H, W, 12) channels F of `mind_channels`.
        moving: (D', H', W', 12), M, whose pairs are those of the fixed image, carried by the matrix.
        displacement: (3, D, H, W), u.
        matrix: (3, 4), fixed voxel index plus displacement to moving voxel index p.
        gradient: (3, D, H, W), overwritten with d total / du; None computes the value only.
        fixed_mask, moving_mask: uint8 on their own grids; w is 1 where both, and p, are inside.
        symmetric: Replace dM/du by (dM/du + dF/dx) / 2 in the gradient.
    """
    shape = fixed.shape[:3]
    points = moving_points(moving[..., 0], displacement, matrix, shape)
    weight = inside_image(points, moving[..., 0])
    if fixed_mask is not None:
        weight &= fixed_mask != 0
    if moving_mask is not None:
        weight &= nearest(moving_mask, points) != 0
    dtype = working_type(displacement)
    cost = torch.zeros(shape, dtype=dtype, device=fixed.device)
    force = torch.zeros_like(displacement, dtype=dtype)
    for own, other in zip(fixed.to(dtype).unbind(-1), moving.to(dtype).unbind(-1), strict=True):
        if gradient is None:
            residual = torch.where(weight, own - interpolate(other[None], points)[0], 0.0)
        else:
            warped, derivative = interpolate_gradient(other, points)
            residual = torch.where(weight, own - warped, 0.0)
            slope = chain_rule(derivative, matrix)
            if symmetric:
                slope = (slope + torch.stack([central_difference(own, axis) for axis in range(3)])) / 2
            force -= 2 * residual * slope
        cost += residual.square()
    scale = 1 / (CHANNELS * FULL**2)
    if gradient is not None:
        gradient.copy_(torch.where(weight, scale * force, 0.0))
    return torch.stack([scale * total(cost), total(weight)])
