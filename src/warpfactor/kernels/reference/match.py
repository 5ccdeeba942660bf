"""The first step of every metric: the warped image beside the fixed one, and the voxels that count."""

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
    """The fixed image and the moving image sampled on its grid.

    Attributes:
        fixed, warped: (D, H, W) intensities, zero where a voxel does not count.
        weight: (D, H, W) bool, whether a voxel counts: it is inside the moving image and both masks.
        slope: (3, D, H, W), d warped / d displacement, zero where a voxel does not count; None if it was not requested.
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
    """The match of two images under a displacement and an affine matrix.

    Intensities of voxels that do not count are set to zero, not multiplied by zero: they may be NaN.
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
    """dF/dx per voxel, (3, D, H, W), by central differences."""
    return torch.stack([central_difference(fixed.to(working_type(fixed)), axis) for axis in range(3)])


def total(values: Tensor) -> Tensor:
    """Sum of (D, H, W) values, without axes: over each plane in float64, then over the planes in order."""
    return values.sum(dim=(1, 2), dtype=exact_type(values.device)).cumsum(0)[-1]
