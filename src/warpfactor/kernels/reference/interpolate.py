"""Linear interpolation at arbitrary points, its exact derivative, and the number types they use."""

from collections.abc import Sequence

import torch
from torch import Tensor


def exact_type(device: torch.device) -> torch.dtype:
    """The type of coordinates and sums: float64, or float32 where the device (MPS) has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def working_type(*tensors: Tensor) -> torch.dtype:
    """The widest type among the tensors, at least float32: half precision stores, it does not compute."""
    widest = torch.float32
    for tensor in tensors:
        widest = torch.promote_types(widest, tensor.dtype)
    return widest


def voxel_indices(shape: Sequence[int], device: torch.device) -> list[Tensor]:
    """The index along each of the three axes, shaped to broadcast against (D, H, W)."""
    dtype = exact_type(device)
    return [
        torch.arange(n, dtype=dtype, device=device).reshape([-1 if a == axis else 1 for a in range(3)])
        for axis, n in enumerate(shape)
    ]


def interpolate(images: Tensor, points: Sequence[Tensor]) -> Tensor:
    """Linear interpolation of (C, D, H, W) at three coordinate maps, edge values beyond the border.

    Returns (C, *points shape), of the working type of `images`.
    """
    values, fractions = _cells(images, points)
    for fraction in reversed(fractions):
        values = _lerp_pairs(values, fraction)
    return values[0]


def interpolate_gradient(image: Tensor, points: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Value and derivative with respect to the point of the linear interpolant of one (D, H, W) image.

    A point on a voxel takes the derivative of the cell above it (below it at the last voxel);
    along an axis where the point lies beyond the border the derivative is zero.

    Returns:
        Value, shaped like a coordinate map, and derivative (3, *that shape).
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
    """The (D, H, W) image at floor(point + 0.5), edge values beyond the border."""
    index: Tensor | int = 0
    for point, n in zip(points, image.shape, strict=True):
        index = index * n + (point + 0.5).floor_().clamp_(0, n - 1).long().clamp_(0, n - 1)
    return image.reshape(-1)[index]


def _cells(images: Tensor, points: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The eight corner values around each point (x changes fastest) and the fractions within the cell."""
    dtype = working_type(images)
    first: Tensor | int = 0
    offsets = [0]
    fractions = []
    stride = images[0].numel()
    for point, n in zip(points, images.shape[1:], strict=True):
        stride //= n
        clamped = point.clamp(0, n - 1)
        last_cell = max(n - 2, 0)
        # The second clamp keeps the index of a NaN point legal; its fraction, and so the value, stays NaN.
        low = clamped.floor().clamp_(max=last_cell).long().clamp_(0, last_cell)
        first = first + low * stride
        fractions.append((clamped - low).to(dtype))
        offsets = [offset + step for offset in offsets for step in (0, stride if n > 1 else 0)]
    flat = images.flatten(1).to(dtype)
    return [flat[:, first + offset] for offset in offsets], fractions


def _lerp_pairs(values: list[Tensor], fraction: Tensor) -> list[Tensor]:
    return [torch.lerp(low, high, fraction) for low, high in zip(values[0::2], values[1::2], strict=True)]
