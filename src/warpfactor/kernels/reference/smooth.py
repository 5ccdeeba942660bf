"""Separable filters along the array axes: Gaussian and box smoothing, window sums, central differences."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from warpfactor.kernels.reference.interpolate import working_type
from warpfactor.kernels.taps import gaussian_kernel, gaussian_kernels

Boundary = Literal["nearest", "zero"]


@torch.no_grad()
def smooth_gaussian(
    field: Tensor,
    sigma: Sequence[float],
    *,
    boundary: Boundary = "nearest",
    truncate: float = 3.0,
    tail: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """Gaussian smoothing of (C, D, H, W), in place; returns `field`.

    Args:
        field: (C, D, H, W).
        sigma: Standard deviation in voxels along z, y, x; axes with 0, or of length one, are not smoothed.
        boundary: What lies beyond the border: the edge value ("nearest") or zero ("zero").
        truncate: Distance at which the filter ends, in standard deviations.
        tail: (share, ratio): this share of the filter along each axis is a Gaussian `ratio` times as wide.
    """
    smoothed = field.to(working_type(field))
    for axis, s in enumerate(sigma):
        if s > 0 and field.shape[axis + 1] > 1:
            smoothed = correlate(smoothed, gaussian_kernel(s, truncate, tail), axis, boundary)
    return field.copy_(smoothed)


@torch.no_grad()
def smooth_share(
    field: Tensor, sigma: Sequence[float], share: Tensor, *, boundary: Boundary = "nearest", truncate: float = 3.0
) -> Tensor:
    """Gaussian smoothing of (C, D, H, W) with SD sigma * sqrt(share), in place; returns `field`.

    Args:
        share: a number of at most 1, without axes, on the device of the field; 0 leaves the field as it is.
    """
    smoothed = field.to(working_type(field))
    for axis, (s, taps) in enumerate(zip(sigma, gaussian_kernels(sigma, share, truncate), strict=True)):
        if s > 0 and field.shape[axis + 1] > 1:
            smoothed = correlate(smoothed, taps.to(smoothed.dtype), axis, boundary)
    return field.copy_(smoothed)


@torch.no_grad()
def smooth_box(field: Tensor, radius: Sequence[int]) -> Tensor:
    """Mean of (C, D, H, W) over windows of 2 radius + 1 voxels per axis, in place; returns `field`.

    At the border the mean is over the voxels that exist.
    """
    smoothed = field.to(working_type(field))
    for axis, r in enumerate(radius):
        taps = [1.0] * (2 * r + 1)
        line = smoothed.new_ones([n if dim == axis + 1 else 1 for dim, n in enumerate(smoothed.shape)])
        count = correlate(line, taps, axis, "zero")
        smoothed = correlate(smoothed, taps, axis, "zero") / count
    return field.copy_(smoothed)


def correlate(field: Tensor, taps: Sequence[float] | Tensor, axis: int, boundary: Boundary) -> Tensor:
    """out(i) = sum over k of taps[k + r] field(i + k) along one array axis (0 = z) of (C, D, H, W)."""
    dim = axis + 1
    n = field.shape[dim]
    radius = len(taps) // 2
    if boundary == "nearest":
        reach = torch.arange(-radius, n + radius, device=field.device).clamp_(0, n - 1)
        padded = field.index_select(dim, reach)
        out = torch.zeros_like(field)
        for k, tap in enumerate(taps):
            _add(out, padded.narrow(dim, k, n), tap)
        return out
    out = field * taps[radius]
    for k in range(1, min(radius, n - 1) + 1):
        _add(out.narrow(dim, 0, n - k), field.narrow(dim, k, n - k), taps[radius + k])
        _add(out.narrow(dim, k, n - k), field.narrow(dim, 0, n - k), taps[radius - k])
    return out


def _add(out: Tensor, values: Tensor, tap: float | Tensor) -> None:
    """out += tap * values."""
    if isinstance(tap, Tensor):
        out.addcmul_(values, tap)
    else:
        out.add_(values, alpha=tap)


def window_sum(field: Tensor, taps: Sequence[Sequence[float]]) -> Tensor:
    """Weighted sums over a separable window with these taps along z, y, x; values beyond the border count as zero."""
    for axis, line in enumerate(taps):
        field = correlate(field, line, axis, "zero")
    return field


def central_difference(field: Tensor, axis: int) -> Tensor:
    """d field / d index along one array axis (0 = z) of (..., D, H, W).

    The difference is one-sided at the border and zero along an axis of length one.
    """
    dim = axis - 3
    n = field.shape[dim]
    if n == 1:
        return torch.zeros_like(field)
    index = torch.arange(n, device=field.device)
    low, high = (index - 1).clamp_(min=0), (index + 1).clamp_(max=n - 1)
    shape = [-1 if d == dim else 1 for d in range(-3, 0)]
    distance = (high - low).to(field.dtype).reshape(shape)
    return (field.index_select(dim, high) - field.index_select(dim, low)) / distance
