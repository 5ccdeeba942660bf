"""Linear interpolation at arbitrary points, its exact derivative, and the number types in which they are computed."""

from collections.abc import Sequence

import torch
from torch import Tensor


def exact_type(device: torch.device) -> torch.dtype:
    """The type of coordinates and sums: float64, or float32 on a device that has no float64 (MPS)."""
    return torch.float32 if device.type == "mps" else torch.float64


def working_type(*tensors: Tensor) -> torch.dtype:
    """The widest type among the tensors, at least float32: half precision is for storage only."""
    widest = torch.float32
    for tensor in tensors:
        widest = torch.promote_types(widest, tensor.dtype)
    return widest


def voxel_indices(shape: Sequence[int], device: torch.device) -> list[Tensor]:
    """The voxel index along each of the three axes, in shapes that broadcast to (D, H, W)."""
    dtype = exact_type(device)
    return [
        torch.arange(n, dtype=dtype, device=device).reshape([-1 if a == axis else 1 for a in range(3)])
        for axis, n in enumerate(shape)
    ]


def interpolate(images: Tensor, points: Sequence[Tensor]) -> Tensor:
    """(C, *points shape): linear interpolation of (C, D, H, W) images at points given by three coordinate maps.

    Beyond the border the edge value holds. The result has the working type of `images`.
    """
    values, fractions = _cells(images, points)
    for fraction in reversed(fractions):
        values = _lerp_pairs(values, fraction)
    return values[0]


def interpolate_gradient(image: Tensor, points: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Value of the linear interpolant of a (D, H, W) image, and its derivative with respect to the point.

    At a voxel centre the derivative is that of the following cell, or of the preceding one at the last voxel. Along an
    axis on which the point lies beyond the border the derivative is zero.

    Returns:
        Value, in the shape of a coordinate map, and derivative, (3, *that shape).
    """
    values, fractions = _cells(image[None], points)
    slopes: list[list[Tensor]] = []
    for fraction in reversed(fractions):
        slopes = [_lerp_pairs(slope, fraction) for slope in slopes]
        slopes.insert(0, [high - low for low, high in zip(values[0::2], values[1::2], strict=True)])
        values = _lerp_pairs(values, fraction)
    derivative = torch.cat([slope[0] for slope in slopes])
    for axis, (point, n) in enumerate(zip(points, image.shape, strict=True)):
        derivative[axis].masked_fill_((point < 0) | (point > n - 1), 0)
    return values[0][0], derivative


def nearest(image: Tensor, points: Sequence[Tensor]) -> Tensor:
    """The (D, H, W) image at floor(point + 0.5); beyond the border the edge value holds."""
    index: Tensor | int = 0
    for point, n in zip(points, image.shape, strict=True):
        index = index * n + (point + 0.5).floor_().clamp_(0, n - 1).long().clamp_(0, n - 1)
    return image.reshape(-1)[index]


def _cells(images: Tensor, points: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The values at the eight corners around each point (x changes fastest), and the fractions within the cell."""
    dtype = working_type(images)
    first: Tensor | int = 0
    offsets = [0]
    fractions = []
    stride = images[0].numel()
    for point, n in zip(points, images.shape[1:], strict=True):
        stride //= n
        clamped = point.clamp(0, n - 1)
        last_cell = max(n - 2, 0)
        # The second clamp keeps the index of a NaN point valid; its fraction, and thus the value, remains NaN.
        low = clamped.floor().clamp_(max=last_cell).long().clamp_(0, last_cell)
        first = first + low * stride
        fractions.append((clamped - low).to(dtype))
        offsets = [offset + step for offset in offsets for step in (0, stride if n > 1 else 0)]
    flat = images.flatten(1).to(dtype)
    return [flat[:, first + offset] for offset in offsets], fractions


def _lerp_pairs(values: list[Tensor], fraction: Tensor) -> list[Tensor]:
    return [torch.lerp(low, high, fraction) for low, high in zip(values[0::2], values[1::2], strict=True)]
