"""Weights of the Gaussian filter, shared by all backends."""

import math
from itertools import pairwise


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


def _gaussian(sigma: float, truncate: float) -> list[float]:
    radius = max(1, math.ceil(truncate * sigma - 0.5))
    edges = [math.erf((k - 0.5) / (math.sqrt(2) * sigma)) for k in range(-radius, radius + 2)]
    taps = [b - a for a, b in pairwise(edges)]
    total = math.fsum(taps)
    return [t / total for t in taps]
