"""Weights of the Gaussian filter, shared by all backends."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from warpfactor.kernels.held import doubles_on
from warpfactor.kernels.pairs import Each

BISECTIONS = 40  # until an SD is exact to rounding


def gaussian_kernel(sigma: float, truncate: float, tail: tuple[float, float] = (0.0, 1.0)) -> list[float]:
    """Weights of a Gaussian, integrated over each voxel and summing to one.

    Args:
        sigma: Standard deviation in voxels.
        truncate: Distance at which the weights end, in standard deviations; it is at least one voxel.
        tail: (share, ratio): this share of the filter is a Gaussian `ratio` times as wide, which gives it a heavy tail.
    """
    share, ratio = tail
    taps = _gaussian(sigma, truncate)
    if share <= 0:
        return taps
    wide = _gaussian(ratio * sigma, truncate)
    pad = (len(wide) - len(taps)) // 2
    narrow = [0.0] * pad + taps + [0.0] * pad
    return [(1 - share) * a + share * b for a, b in zip(narrow, wide, strict=True)]


def gaussian_kernels(sigma: Sequence[Any], share: Tensor, truncate: float) -> list[Tensor]:
    """The weights of `gaussian_kernel` for the SD sigma * sqrt(share) of each axis, computed on the device of `share`.

    Args:
        sigma: of each axis, a number or Each for the pairs that `share` has.
        share: of at most 1, without axes or (B,); the weights, (N,) or (B, N), are as many as for 1 and the largest
            sigma, those beyond the truncation zero.
    """
    return [_weights(s, share, truncate) for s in sigma]


def _weights(sigma: Any, share: Tensor, truncate: float) -> Tensor:
    differ = isinstance(sigma, Each)
    most = max(gaussian_radius(each, truncate) for each in (sigma if differ else (sigma,)))
    s = (share.double().sqrt() * (doubles_on(share.device, sigma) if differ else sigma)).unsqueeze(-1)
    place = torch.arange(-most, most + 2, dtype=torch.float64, device=share.device)
    edges = torch.erf((place - 0.5) / (math.sqrt(2) * s))  # a share of 0 leaves the weight in the middle
    radius = (truncate * s - 0.5).ceil().clamp_(min=1)
    taps = torch.where(place[:-1].abs() <= radius, edges.diff(), 0.0)
    # Their sum; added up, it would be rounded otherwise where other pairs have more weights.
    return taps / (2 * torch.erf((radius + 0.5) / (math.sqrt(2) * s)))


def gaussian_radius(sigma: float, truncate: float) -> int:
    """Number of weights on each side of the one in the middle."""
    return max(1, math.ceil(truncate * sigma - 0.5))


def gaussian_variance(sigma: float, truncate: float) -> float:
    """Variance of the weights, in voxels squared: that of the Gaussian, of the voxels and of what is cut off."""
    taps = _gaussian(sigma, truncate) if sigma > 0 else [1.0]
    return math.fsum(tap * (k - len(taps) // 2) ** 2 for k, tap in enumerate(taps))


def sigma_of_variance(variance: float, truncate: float) -> float:
    """The SD at which the weights have this variance; 0 for a variance that is not positive."""
    if variance <= 0:
        return 0.0
    low, high = 0.0, 1.0 + 2 * math.sqrt(variance)  # above it in any case, as weights end beyond one SD
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_variance(middle, truncate) < variance else (low, middle)
    return (low + high) / 2


def _gaussian(sigma: float, truncate: float) -> list[float]:
    radius = gaussian_radius(sigma, truncate)
    edges = [math.erf((k - 0.5) / (math.sqrt(2) * sigma)) for k in range(-radius, radius + 2)]
    taps = [b - a for a, b in pairwise(edges)]
    total = math.fsum(taps)
    return [t / total for t in taps]
