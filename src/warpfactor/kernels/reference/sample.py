"""The moving image, and its derivative, at the points to which a displacement and an affine matrix map a grid."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import interpolate, interpolate_gradient, nearest, voxel_indices


@torch.no_grad()
def sample(
    image: Tensor,
    displacement: Tensor | None,
    matrix: Tensor,
    *,
    shape: Sequence[int] | None = None,
    mode: Literal["linear", "nearest"] = "linear",
    outside: float = 0.0,
) -> Tensor:
    """image(p), p = matrix[:, :3] (index + displacement) + matrix[:, 3], for every voxel of the fixed grid.

    Args:
        image: (D, H, W) moving image.
        displacement: (3, *fixed shape), or None for the affine alone.
        matrix: (3, 4), fixed voxel index to moving voxel index.
        shape: Fixed shape, used only without a displacement.
        mode: Interpolation; "nearest" takes floor(p + 0.5).
        outside: Value of points more than half a voxel beyond the outermost voxel centres.
    """
    if displacement is not None:
        shape = displacement.shape[1:]
    if shape is None:
        raise ValueError("sample needs a displacement or a shape; both are None")
    points = moving_points(image, displacement, matrix, shape)
    inside = inside_image(points, image)
    value = nearest(image, points) if mode == "nearest" else interpolate(image[None], points)[0]
    return torch.where(inside, value, outside).to(image.dtype)


@torch.no_grad()
def sample_gradient(
    image: Tensor, displacement: Tensor, matrix: Tensor, *, outside: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """image(p), its exact derivative with respect to the displacement, and where p is inside the image.

    Args:
        image: (D, H, W) moving image.
        displacement: (3, *fixed shape).
        matrix: (3, 4), fixed voxel index to moving voxel index.
        outside: Value of points outside; their derivative is zero.

    Returns:
        Value (fixed shape), derivative (3, *fixed shape), inside (fixed shape) bool.
    """
    points = moving_points(image, displacement, matrix, displacement.shape[1:])
    inside = inside_image(points, image)
    value, derivative = interpolate_gradient(image, points)
    slope = chain_rule(derivative, matrix)
    return (
        torch.where(inside, value, outside).to(image.dtype),
        torch.where(inside, slope, 0.0).to(image.dtype),
        inside,
    )


def moving_points(image: Tensor, displacement: Tensor | None, matrix: Tensor, shape: Sequence[int]) -> list[Tensor]:
    """The three maps of p = matrix[:, :3] (index + displacement) + matrix[:, 3], in voxels of `image`.

    If both grids have depth one, p_z is zero: points do not leave the plane.
    """
    indices = voxel_indices(shape, image.device)
    if displacement is not None:
        indices = [index + u for index, u in zip(indices, displacement, strict=True)]
    points = []
    for z, y, x, shift in matrix.tolist():
        points.append((z * indices[0] + y * indices[1] + x * indices[2] + shift).expand(*shape))
    if shape[0] == 1 and image.shape[0] == 1:
        points[0] = torch.zeros_like(points[0])
    return points


def inside_image(points: Sequence[Tensor], image: Tensor) -> Tensor:
    """Where -0.5 <= p <= n - 0.5 on every axis, as in ITK; False for points that are NaN."""
    inside = torch.ones_like(points[0], dtype=torch.bool)
    for point, n in zip(points, image.shape, strict=True):
        inside &= (point >= -0.5) & (point <= n - 0.5)
    return inside


def chain_rule(derivative: Tensor, matrix: Tensor) -> Tensor:
    """Derivative by u from the (3, D, H, W) derivative by p: it is multiplied by the transpose of matrix[:, :3]."""
    linear = matrix[:, :3].to(device=derivative.device, dtype=derivative.dtype)
    return torch.einsum("ab,azyx->bzyx", linear, derivative)
