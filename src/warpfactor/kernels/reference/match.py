"""What every cost starts from: the two images voxel by voxel, which voxels count, and sums over them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import (
    exact_type,
    interpolate,
    interpolate_gradient,
    nearest,
    working_type,
)
from warpfactor.kernels.reference.sample import chain_rule, inside_image, moving_points
from warpfactor.kernels.reference.smooth import central_difference


@dataclass(frozen=True)
class Match:
    """The fixed image beside the moving image sampled on its grid.

    Attributes:
        fixed, warped: (D, H, W) intensities, zero where the weight is zero.
        weight: (D, H, W) bool: inside the moving image and both masks.
        slope: (3, D, H, W) d warped / d displacement, zero where the weight is zero; None if not asked for.
    """

    fixed: Tensor
    warped: Tensor
    weight: Tensor
    slope: Tensor | None


def match(
    fixed: Tensor,
    moving: Tensor,
    displacement: Tensor,
    matrix: Tensor,
    fixed_mask: Tensor | None,
    moving_mask: Tensor | None,
    with_slope: bool,
) -> Match:
    """Samples the moving image (and its slope) and the masks; intensities without weight are set to zero.

    Setting them, rather than multiplying, keeps what is under a mask out even if it is not a number.
    """
    points = moving_points(moving, displacement, matrix, fixed.shape)
    weight = inside_image(points, moving)
    if fixed_mask is not None:
        weight &= fixed_mask != 0
    if moving_mask is not None:
        weight &= nearest(moving_mask, points) != 0
    dtype = working_type(fixed, moving)
    slope = None
    if with_slope:
        warped, derivative = interpolate_gradient(moving, points)
        slope = torch.where(weight, chain_rule(derivative, matrix), 0.0).to(dtype)
    else:
        warped = interpolate(moving[None], points)[0]
    return Match(
        fixed=torch.where(weight, fixed, 0.0).to(dtype),
        warped=torch.where(weight, warped, 0.0).to(dtype),
        weight=weight,
        slope=slope,
    )


def fixed_slope(fixed: Tensor) -> Tensor:
    """dF/dx, (3, D, H, W), by central differences in voxels."""
    return torch.stack([central_difference(fixed.to(working_type(fixed)), axis) for axis in range(3)])


def total(values: Tensor) -> float:
    """Sum of (D, H, W): each plane in float64, then the planes in order."""
    planes: list[float] = values.sum(dim=(1, 2), dtype=exact_type(values.device)).tolist()
    return sum(planes, 0.0)
